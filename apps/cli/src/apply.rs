//! `apply`: reads everything, checks everything, and only then sends anything.

pub mod input;
pub mod plan;
mod send;
mod sources;

use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use input::Input;
use plan::Planned;
use send::Action;
use serde_json::{Value, json};

use crate::{
    cli::Global,
    client::Client,
    config::Settings,
    failure::{Failure, Result},
    output::{self, Format},
    terminal,
    types::DEFAULT_MESH,
    what_if::{self, Question},
};

/// From this many resources on, a person watching wants to see how far it got.
const WORTH_A_BAR: usize = 10;

/// Create or update resources
///
/// Reads YAML or JSON in Universal or Kubernetes form. All input is read and checked before anything is
/// sent; what was created, updated or left unchanged is told on stderr.
#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    input: Input,
    /// Check the input and change nothing: =client prints what would be sent, =server asks the control plane what
    /// that would do
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<DryRun>,
    /// Form of the result on stdout; nothing by default, YAML with --dry-run
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// Nothing is sent
    Client,
    /// The control plane says what would change, and for whom
    Server,
}

/// What became of a resource.
struct Outcome<'a> {
    planned: &'a Planned,
    action: Action,
}

/// Every document that sources hold, each with its place.
pub fn documents(files: &[String], recursive: bool, timeout: Duration) -> Result<Vec<(String, Value)>> {
    plan::read(&sources::read(files, recursive, timeout)?)
}

impl Apply {
    pub fn run(&self, global: &Global) -> Result<()> {
        let planned = self.input.read(global)?;
        match self.dry_run {
            Some(DryRun::Client) => return self.show_plan(&planned),
            Some(DryRun::Server) => return self.show_effects(&planned, &Settings::load(global)?.client()?),
            None => {}
        }
        let client = Settings::load(global)?.client()?;
        let bar = progress(planned.len());
        let mut outcomes = Vec::new();
        let mut failure = None;
        for resource in &planned {
            match send::send(resource, &client) {
                Ok((action, warnings)) => {
                    bar.suspend(|| {
                        for warning in warnings {
                            terminal::warn(&format!("{}: {warning}", resource.label()));
                        }
                        terminal::talk(&format!("{} {}", resource.label(), action.word()));
                    });
                    outcomes.push(Outcome { planned: resource, action });
                    bar.inc(1);
                }
                Err(reason) => {
                    failure = Some((resource, reason));
                    break;
                }
            }
        }
        bar.finish_and_clear();
        self.show_outcomes(&outcomes)?;
        match failure {
            None => Ok(()),
            Some((resource, reason)) => Err(interrupted(&planned, &outcomes, resource, &reason)),
        }
    }

    /// What the control plane says about it.
    fn show_effects(&self, planned: &[Planned], client: &Client) -> Result<()> {
        let question = Question { planned, deletions: &[], mesh: DEFAULT_MESH, proxies: &[] };
        let answer = question.ask(client)?;
        what_if::warnings(&answer).iter().for_each(|warning| terminal::warn(warning));
        let text = match self.format {
            Some(Format::Json) => output::json(&answer),
            Some(Format::Yaml) => output::yaml(&answer),
            Some(Format::Name) => {
                planned.iter().map(|resource| format!("{}\n", resource.path_name())).collect()
            }
            None | Some(Format::Table | Format::Wide) => what_if::table(&answer),
        };
        terminal::data(&text)?;
        terminal::talk(&format!("dry run: {} accepted, nothing was written", count(planned.len())));
        Ok(())
    }

    fn show_plan(&self, planned: &[Planned]) -> Result<()> {
        for resource in planned {
            for field in &resource.unknown_fields {
                terminal::warn(&format!("{}: unknown field {field}, it has no effect", resource.label()));
            }
            for advice in &resource.advice {
                terminal::warn(&format!("{}: {advice}", resource.label()));
            }
        }
        let bodies: Vec<&Value> = planned.iter().map(|resource| &resource.body).collect();
        let text = match self.format {
            Some(Format::Json) => output::json(&json!(bodies)),
            Some(Format::Name | Format::Table | Format::Wide) => {
                planned.iter().map(|resource| format!("{}\n", resource.path_name())).collect()
            }
            None | Some(Format::Yaml) => {
                bodies.into_iter().map(output::yaml).collect::<Vec<_>>().join("---\n")
            }
        };
        terminal::data(&text)?;
        terminal::talk(&format!("dry run: {} valid, nothing was sent", count(planned.len())));
        Ok(())
    }

    fn show_outcomes(&self, outcomes: &[Outcome<'_>]) -> Result<()> {
        let Some(format) = self.format else { return Ok(()) };
        let list = || -> Value {
            outcomes
                .iter()
                .map(|outcome| {
                    let key = &outcome.planned.draft.key;
                    json!({
                        "type": key.kind.name(), "mesh": key.mesh.as_ref(), "name": key.name.as_ref(),
                        "action": outcome.action.word(),
                    })
                })
                .collect()
        };
        let rows = outcomes.iter().map(|outcome| {
            let key = &outcome.planned.draft.key;
            let mesh = if key.mesh.is_empty() { "-".to_owned() } else { key.mesh.to_string() };
            vec![key.kind.to_string(), mesh, key.name.to_string(), outcome.action.word().to_owned()]
        });
        let text = match format {
            Format::Table | Format::Wide => output::table(&["TYPE", "MESH", "NAME", "ACTION"], rows),
            Format::Json => output::json(&list()),
            Format::Yaml => output::yaml(&list()),
            Format::Name => outcomes.iter().map(|o| format!("{}\n", o.planned.path_name())).collect(),
        };
        Ok(terminal::data(&text)?)
    }
}

/// Says what is done and what is not, so that nobody has to find out.
fn interrupted(planned: &[Planned], done: &[Outcome<'_>], failed: &Planned, reason: &Failure) -> Failure {
    let mut message = format!("{} was not applied: {reason}", failed.label());
    if planned.len() > 1 {
        let written = done.iter().filter(|outcome| outcome.action != Action::Unchanged).count();
        message.push_str(&format!(
            "\n{} applied before it ({written} written, {} unchanged)",
            count(done.len()),
            done.len() - written
        ));
        let rest: Vec<String> = planned[done.len() + 1..].iter().map(Planned::label).collect();
        if rest.is_empty() {
            message.push_str("; nothing was left");
        } else {
            message.push_str(&format!("; not applied:\n* {}", rest.join("\n* ")));
        }
    }
    Failure::failed(message)
}

fn count(resources: usize) -> String {
    if resources == 1 { "1 resource".to_owned() } else { format!("{resources} resources") }
}

fn progress(resources: usize) -> ProgressBar {
    if resources < WORTH_A_BAR || !terminal::stderr_is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(resources as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta} left") {
        bar.set_style(style);
    }
    bar
}
