//! `apply`: reads everything, checks everything, and only then sends anything.

pub mod input;
mod place;
pub mod plan;
mod preflight;
mod selects;
mod send;
mod set;
mod sources;
pub mod unknown;

use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use input::Input;
use plan::{ApplyPlan, PlannedResource};
use resources::{Key, labels};
use selects::Selections;
use send::ApplyAction;
use serde_json::{Value, json};
use set::StaleResources;

use crate::{
    cli::Global,
    client::ApiClient,
    config::ClientSettings,
    document::overwrite,
    failure::{Failure, Result},
    output::{self, OutputFormat},
    target::NamedResource,
    terminal,
    types::DEFAULT_MESH,
    what_if::{self, WhatIfQuestion},
};

/// From this many resources on, a progress bar is shown.
const WORTH_A_BAR: usize = 10;

const EXAMPLES: &str = "\
Examples:
  kumactl apply -f mesh.yaml
  kumactl apply -f policies -R --dry-run=server
  kumactl apply -f template.yaml -v name=shop
  kumactl apply -f policies --set policies --prune";

/// Create or update resources
///
/// Reads YAML or JSON in Universal or Kubernetes form. All input is read and checked before anything is written; of
/// several resources the control plane is asked first whether it accepts each. stderr says what was created, updated
/// or left unchanged, and how many proxies a policy selects.
///
/// With --set every resource gets the label `kumactl.kuma.io/set`, and --prune deletes what has that label and is not
/// in the input any more. Only resources that were applied with the same --set are pruned; a selector could
/// match resources of others. Resources that control planes generate or synchronise, and system resources,
/// are never pruned. Nothing is pruned when --skip-unknown skipped a resource.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Apply {
    #[command(flatten)]
    input: Input,
    /// Check the input and change nothing: =client prints what would be sent, =server asks the control plane what
    /// that would do
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<DryRun>,
    /// Name of a set that all of the input belongs to, kept in the label kumactl.kuma.io/set
    #[arg(long, value_name = "NAME", value_parser = set::parse)]
    set: Option<String>,
    /// Delete what was applied with the same --set before and is not in the input any more
    #[arg(long, requires = "set")]
    prune: bool,
    /// Form of the result on stdout; nothing by default, YAML with --dry-run
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    format: Option<OutputFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// Nothing is sent
    Client,
    /// The control plane says what would change, and for which proxies
    Server,
}

/// Effect of applying one resource.
pub struct AppliedResource {
    key: Key,
    action: ApplyAction,
    /// Number of proxies that it selects, where that is known.
    selects: Option<u64>,
}

/// Every document that sources hold, each with its place.
pub fn documents(files: &[String], recursive: bool, timeout: Duration) -> Result<Vec<(String, Value)>> {
    plan::read(&sources::read(files, recursive, timeout)?)
}

impl Apply {
    pub fn run(&self, global: &Global) -> Result<()> {
        let ApplyPlan { mut planned, skipped } = self.input.plan(global)?;
        if self.prune && !skipped.is_empty() {
            // What was skipped may be what a stored resource of the set was applied from.
            return Err(Failure::invalid(format!(
                "nothing was sent: --prune cannot tell what to delete, because --skip-unknown skipped {}; correct the \
                 input or leave out --prune",
                count(skipped.len())
            )));
        }
        if let Some(set) = &self.set {
            set::join(&mut planned, set);
        }
        if self.dry_run == Some(DryRun::Client) {
            plan::check_old_names(&planned, None)?;
            // Only what is there already is asked for, and only to prune.
            let stale = if self.prune {
                self.stale(&planned, &ClientSettings::load(global)?.client()?)?
            } else {
                StaleResources::default()
            };
            return self.show_plan(&planned, &stale);
        }
        let client = ClientSettings::load(global)?.client()?;
        if self.dry_run == Some(DryRun::Server) {
            return self.show_effects(&planned, &client);
        }
        plan::check_old_names(&planned, Some(&client))?;
        if let Some(set) = &self.set {
            set::check_owners(&planned, set, &client)?;
        }
        let stale = self.stale(&planned, &client)?;
        preflight::check(&planned, &client)?;
        let mut outcomes = Vec::new();
        let refused = send_all(&planned, &client, &mut outcomes);
        let mut kept = Vec::new();
        if refused.is_none() {
            let (pruned, failures) = set::prune(stale.keys, &client);
            let gone = |key| AppliedResource { key, action: ApplyAction::Pruned, selects: None };
            outcomes.extend(pruned.into_iter().map(gone));
            kept = failures;
        }
        self.show_outcomes(&outcomes)?;
        match refused {
            Some((resource, reason)) => Err(interrupted(&planned, &outcomes, resource, &reason)),
            None if kept.is_empty() => Ok(()),
            None => {
                Err(Failure::failed(format!("everything was applied, but not pruned:\n{}", kept.join("\n"))))
            }
        }
    }

    /// Resources that are to be pruned.
    fn stale(&self, planned: &[PlannedResource], client: &ApiClient) -> Result<StaleResources> {
        let Some(set) = self.set.as_ref().filter(|_| self.prune) else {
            return Ok(StaleResources::default());
        };
        let stale = set::stale(planned, set, client)?;
        stale.kept.iter().for_each(|why| terminal::warn(why));
        Ok(stale)
    }

    /// Shows what the control plane says this would do.
    fn show_effects(&self, planned: &[PlannedResource], client: &ApiClient) -> Result<()> {
        let deletions: Vec<NamedResource> =
            self.stale(planned, client)?.keys.iter().map(NamedResource::from).collect();
        let question = WhatIfQuestion { planned, deletions: &deletions, mesh: DEFAULT_MESH, proxies: &[] };
        let answer = question.ask(client)?;
        what_if::warnings(&answer.read).iter().for_each(|warning| terminal::warn(warning));
        let text = match self.format {
            Some(OutputFormat::Json) => output::json(&answer.sent),
            Some(OutputFormat::Yaml) => output::yaml(&answer.sent),
            Some(OutputFormat::Name) => {
                planned.iter().map(|resource| format!("{}\n", resource.path_name())).collect()
            }
            None | Some(OutputFormat::Table | OutputFormat::Wide) => what_if::table(&answer.read),
        };
        terminal::data(&text)?;
        terminal::talk(&format!("dry run: {} accepted, nothing was written", count(planned.len())));
        Ok(())
    }

    fn show_plan(&self, planned: &[PlannedResource], stale: &StaleResources) -> Result<()> {
        for resource in planned {
            for unknown in &resource.unknown_fields {
                terminal::warn(&format!("{}: {unknown}", resource.label()));
            }
            for advice in resource.advice.iter().chain(&resource.draft.spec.warnings()) {
                terminal::warn(&format!("{}: {advice}", resource.label()));
            }
        }
        let bodies: Vec<&Value> = planned.iter().map(|resource| &resource.body).collect();
        let text = match self.format {
            Some(OutputFormat::Json) => output::json(&json!(bodies)),
            Some(OutputFormat::Name | OutputFormat::Table | OutputFormat::Wide) => {
                planned.iter().map(|resource| format!("{}\n", resource.path_name())).collect()
            }
            None | Some(OutputFormat::Yaml) => {
                bodies.into_iter().map(output::yaml).collect::<Vec<_>>().join("---\n")
            }
        };
        terminal::data(&text)?;
        stale.keys.iter().for_each(|key| terminal::talk(&format!("{key} would be pruned")));
        terminal::talk(&format!("dry run: {} valid, nothing was sent", count(planned.len())));
        Ok(())
    }

    fn show_outcomes(&self, outcomes: &[AppliedResource]) -> Result<()> {
        let Some(format) = self.format else { return Ok(()) };
        let text = match format {
            OutputFormat::Table | OutputFormat::Wide => {
                output::table(&["TYPE", "MESH", "NAME", "ACTION"], outcomes.iter().map(AppliedResource::row))
            }
            OutputFormat::Json => output::json(&outcomes.iter().map(AppliedResource::to_json).collect()),
            OutputFormat::Yaml => output::yaml(&outcomes.iter().map(AppliedResource::to_json).collect()),
            OutputFormat::Name => outcomes.iter().map(AppliedResource::path_name).collect(),
        };
        Ok(terminal::data(&text)?)
    }
}

impl AppliedResource {
    fn to_json(&self) -> Value {
        let Key { kind, mesh, name } = &self.key;
        let action = self.action.word();
        let mut outcome = json!({ "type": kind.name(), "mesh": &**mesh, "name": &**name, "action": action });
        if let Some(proxies) = self.selects {
            overwrite(&mut outcome, &json!({ "selects": proxies }));
        }
        outcome
    }

    fn row(&self) -> Vec<String> {
        let Key { kind, mesh, name } = &self.key;
        let mesh = if mesh.is_empty() { "-".to_owned() } else { mesh.to_string() };
        vec![kind.to_string(), mesh, name.to_string(), self.action.word().to_owned()]
    }

    fn path_name(&self) -> String {
        format!("{}/{}\n", self.key.kind.name().to_lowercase(), self.key.name)
    }
}

/// Sends everything, up to the first resource that is refused.
fn send_all<'a>(
    planned: &'a [PlannedResource],
    client: &ApiClient,
    outcomes: &mut Vec<AppliedResource>,
) -> Option<(&'a PlannedResource, Failure)> {
    let bar = progress(planned.len());
    let mut selections = Selections::default();
    let mut refused = None;
    for resource in planned {
        let (action, warnings) = match send::send(resource, client) {
            Ok(sent) => sent,
            Err(reason) => {
                refused = Some((resource, reason));
                break;
            }
        };
        let mut outcome = AppliedResource { key: resource.draft.key.clone(), action, selects: None };
        outcome.selects = selections.of(&outcome, client);
        let is_shadow = resource.draft.labels.get(labels::EFFECT).is_some_and(|effect| effect == "shadow");
        bar.suspend(|| {
            for warning in warnings {
                terminal::warn(&format!("{}: {warning}", resource.label()));
            }
            terminal::talk(&format!("{} {}", resource.label(), action.word()));
            selects::tell(&outcome, is_shadow);
        });
        outcomes.push(outcome);
        bar.inc(1);
    }
    bar.finish_and_clear();
    refused
}

/// Says what is done and what is not.
fn interrupted(
    planned: &[PlannedResource],
    done: &[AppliedResource],
    failed: &PlannedResource,
    reason: &Failure,
) -> Failure {
    let mut message = format!("{} was not applied: {reason}", failed.label());
    if planned.len() > 1 {
        let written = done.iter().filter(|outcome| outcome.action != ApplyAction::Unchanged).count();
        message.push_str(&format!(
            "\n{} applied before it ({written} written, {} unchanged)",
            count(done.len()),
            done.len() - written
        ));
        let rest: Vec<String> = planned[done.len() + 1..].iter().map(PlannedResource::label).collect();
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
