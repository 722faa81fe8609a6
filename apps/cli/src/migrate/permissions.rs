//! `migrate permissions`: from a mesh in which everyone calls everyone to one where permissions decide, step by step.
//!
//! Where a mesh stands is read from the mesh itself, so a run goes on where the last one stopped.

mod evidence;
mod mesh;

use std::io::{self, BufRead, Read};

use clap::{Args, ValueEnum};
use contract::{
    lenient::read_partly,
    resource::Metadata,
    suggestions::{AllowAll, SuggestedPermission, Suggestions},
};
use resources::duration::GoDuration;
use serde_json::Value;

use crate::{
    cell::{line, lines},
    cli::Global,
    client::ApiClient,
    config::ClientSettings,
    failure::{CommandResult, Result},
    output, suggest, terminal,
    types::DEFAULT_MESH,
};
use evidence::Evidence;
use mesh::{Mesh, TrimmingStage};

/// The most that is read of the answer to a question.
const LONGEST_ANSWER: u64 = 1024;

const MEANING: &str = "\
Steps, in this order; each is skipped where it is done already:
  check        mTLS is on, and proxies have reported their calls for long enough
  permissions  the permissions are written that observed calls need
  shadow       the mode of the mesh becomes shadow: calls that would be trimmed are counted
  enforce      the mode of the mesh becomes enforce: proxies get what they may call and nothing else
  deny         permissions that allow everyone are deleted, and one that denies everyone is written, to be seen

Exit codes:
  0  every step is done
  3  a step was refused because its evidence is missing; stderr says what is missing
  4  a step was not confirmed, or not taken because of --dry-run";

/// Move a mesh to permissions step by step, based on observed calls
///
/// Moves a mesh in which every client may call every service to one where only permitted calls are
/// configured and accepted.
/// Every step says what it does and why. A step is refused while its evidence is missing: the calls were not observed
/// for long enough, proxies do not report, a service has no observed caller, or calls were seen that would be
/// trimmed. Nothing is kept by this command: run it again to go on.
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct MigratePermissions {
    /// Mesh to move
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Only this service: a MeshService, a value of kuma.io/service or a KRI; it is closed separately; repeatable
    #[arg(long = "service", value_name = "NAME")]
    services: Vec<String>,
    /// Change the mesh without asking
    #[arg(short, long)]
    yes: bool,
    /// Take steps whose evidence is missing
    #[arg(long)]
    force: bool,
    /// Shortest time for which calls must have been observed, such as 36h or 7d
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_window)]
    min_window: GoDuration,
    /// Shortest time in mode shadow before it becomes enforce, such as 12h or 7d
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_window)]
    min_shadow: GoDuration,
    /// Only this step; those before it must be done
    #[arg(long, value_name = "NAME")]
    step: Option<MigrationStep>,
    /// Show what would be done, and write the resources to stdout instead of into the mesh
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum MigrationStep {
    Check,
    Permissions,
    Shadow,
    Enforce,
    Deny,
}

impl MigrationStep {
    const ALL: [MigrationStep; 5] = [
        MigrationStep::Check,
        MigrationStep::Permissions,
        MigrationStep::Shadow,
        MigrationStep::Enforce,
        MigrationStep::Deny,
    ];

    fn word(self) -> &'static str {
        match self {
            MigrationStep::Check => "check",
            MigrationStep::Permissions => "permissions",
            MigrationStep::Shadow => "shadow",
            MigrationStep::Enforce => "enforce",
            MigrationStep::Deny => "deny",
        }
    }
}

/// End of a step.
enum StepEnd {
    /// It is done, or was before.
    Done,
    /// Evidence is missing.
    Refused,
    /// The user did not agree, or nothing is to be done.
    NotTaken,
}

impl MigratePermissions {
    pub fn run(&self, global: &Global) -> Result<CommandResult> {
        let walk = Walk { asked: self, client: ClientSettings::load(global)?.client()? };
        for step in MigrationStep::ALL.into_iter().filter(|step| self.step.is_none_or(|only| only == *step)) {
            match walk.take(step)? {
                StepEnd::Done => {}
                StepEnd::Refused => return Ok(CommandResult::No),
                StepEnd::NotTaken if self.dry_run && self.step.is_none() => {
                    terminal::talk("dry run: nothing was changed, and the steps after this one depend on it");
                    return Ok(CommandResult::Partly);
                }
                StepEnd::NotTaken => return Ok(CommandResult::Partly),
            }
        }
        if self.step.is_none() { walk.finish() } else { Ok(CommandResult::Done) }
    }
}

struct Walk<'a> {
    asked: &'a MigratePermissions,
    client: ApiClient,
}

impl Walk<'_> {
    fn take(&self, step: MigrationStep) -> Result<StepEnd> {
        match step {
            MigrationStep::Check => self.check(),
            MigrationStep::Permissions => self.permissions(),
            MigrationStep::Shadow => self.shadow(),
            MigrationStep::Enforce => self.enforce(),
            MigrationStep::Deny => self.deny(),
        }
    }

    /// Says that it is done, unless something still lets in clients that no rule names.
    fn finish(&self) -> Result<CommandResult> {
        let what = if self.asked.services.is_empty() { "the mesh" } else { "what was asked for" };
        let open = self.open(&self.suggestions()?);
        for policy in &open {
            terminal::talk(&format!("open: {policy}"));
        }
        if !open.is_empty() && !self.asked.force {
            terminal::talk(&format!(
                "not done: change or delete these policies, or say with --force that {what} is to stay open to clients \
                 that no rule names"
            ));
            return Ok(CommandResult::No);
        }
        terminal::talk(&format!("done: permissions decide about {what}"));
        Ok(CommandResult::Done)
    }

    /// Policies that let in clients that no rule names, each in a sentence.
    fn open(&self, suggestions: &[Suggestions]) -> Vec<String> {
        // Where services are closed on their own, the mesh stays open.
        let all = if self.asked.services.is_empty() { allow_all(suggestions) } else { Vec::new() };
        let all = all.iter().map(|policy| format!("{} lets every client call everything", line(&policy.kri)));
        let some = suggestions.iter().flat_map(|it| &it.open).map(|open| {
            format!("{} lets every client call {}", line(&open.policy), lines(&open.destinations, ", "))
        });
        all.chain(some).collect()
    }

    /// Suggestions for the services that were asked about.
    fn suggestions(&self) -> Result<Vec<Suggestions>> {
        let ask = |service| Ok(suggest::ask(&self.client, &self.asked.mesh, service)?.read);
        let services = &self.asked.services;
        if services.is_empty() {
            return Ok(vec![ask(None)?]);
        }
        services.iter().map(|it| ask(Some(it.as_str()))).collect()
    }

    fn mesh(&self) -> Result<Mesh> {
        Mesh::read(&self.client, &self.asked.mesh)
    }

    /// True if the step may be taken; says what is missing.
    fn may(&self, step: MigrationStep, missing: &[String]) -> bool {
        for what in missing {
            say(step, &format!("missing: {what}"));
        }
        match (missing.is_empty(), self.asked.force) {
            (true, _) => true,
            (false, true) => {
                say(step, "continuing because of --force");
                true
            }
            (false, false) => {
                say(step, "refused, nothing was changed; --force continues anyway");
                false
            }
        }
    }

    /// True if the mesh may be changed.
    fn confirmed(&self, step: MigrationStep) -> Result<bool> {
        if self.asked.dry_run {
            return Ok(false);
        }
        if self.asked.yes {
            return Ok(true);
        }
        say(step, "continue? [y/N] (--yes skips this question)");
        let mut answer = String::new();
        io::stdin().lock().take(LONGEST_ANSWER).read_line(&mut answer)?;
        let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
        if !agreed {
            say(step, "not confirmed, nothing was changed");
        }
        Ok(agreed)
    }

    fn check(&self) -> Result<StepEnd> {
        let step = MigrationStep::Check;
        let mesh = self.mesh()?;
        say(step, &mesh.security());
        let suggestions = self.suggestions()?;
        for answer in &suggestions {
            let window = &answer.window;
            let since = line(window.since.as_deref().unwrap_or("never"));
            say(step, &format!("calls are observed since {since} ({} s)", window.seconds));
            answer.warnings.iter().for_each(|it| terminal::warn(&line(it)));
        }
        let mut missing = mesh.missing();
        missing.extend(self.evidence(&suggestions)?.observation());
        let taken = self.may(step, &missing);
        Ok(if taken { StepEnd::Done } else { StepEnd::Refused })
    }

    fn permissions(&self) -> Result<StepEnd> {
        let step = MigrationStep::Permissions;
        let suggestions = self.suggestions()?;
        let wanted: Vec<&SuggestedPermission> = suggestions.iter().flat_map(|it| &it.permissions).collect();
        for denied in suggestions.iter().flat_map(|it| &it.denied) {
            terminal::warn(&suggest::denial(denied));
        }
        if wanted.is_empty() {
            say(step, "every observed call is permitted or denied by name; nothing to write");
            return Ok(StepEnd::Done);
        }
        say(step, &format!("{} would be written, for calls that no rule is about yet", several(&wanted)));
        if self.asked.dry_run {
            terminal::data(&suggest::documents(wanted.iter().copied()))?;
        } else {
            suggest::documents(wanted.iter().copied()).lines().for_each(|line| say(step, line));
        }
        if !self.may(step, &self.evidence(&suggestions)?.before_permissions()) {
            return Ok(StepEnd::Refused);
        }
        if !self.confirmed(step)? {
            return Ok(StepEnd::NotTaken);
        }
        for permission in &wanted {
            self.write(step, &permission.resource)?;
        }
        Ok(StepEnd::Done)
    }

    fn shadow(&self) -> Result<StepEnd> {
        let step = MigrationStep::Shadow;
        let mesh = self.mesh()?;
        if mesh.mode() >= TrimmingStage::Shadow {
            say(step, &format!("the mode of the mesh is {} already", mesh.mode().word()));
            return Ok(StepEnd::Done);
        }
        say(step, "the mode of the mesh becomes shadow: nothing is trimmed, what would be is counted");
        let missing = self.evidence(&self.suggestions()?)?.of_permissions();
        self.set(step, mesh, TrimmingStage::Shadow, &missing)
    }

    fn enforce(&self) -> Result<StepEnd> {
        let step = MigrationStep::Enforce;
        let mesh = self.mesh()?;
        if mesh.mode() == TrimmingStage::Enforce {
            say(step, "the mode of the mesh is enforce already");
            return Ok(StepEnd::Done);
        }
        let suggestions = self.suggestions()?;
        let open = allow_all(&suggestions);
        say(
            step,
            "the mode of the mesh becomes enforce: proxies lose what their permissions do not let them call",
        );
        if !open.is_empty() {
            let names = names(&open);
            say(step, &format!("{names} allow everyone: nothing is trimmed before the step deny ends that"));
        }
        let mut missing = self.evidence(&suggestions)?.all();
        missing.extend(evidence::shadow(&mesh, self.asked.min_shadow.to_std().unwrap_or_default()));
        self.set(step, mesh, TrimmingStage::Enforce, &missing)
    }

    fn deny(&self) -> Result<StepEnd> {
        let step = MigrationStep::Deny;
        let suggestions = self.suggestions()?;
        // One service is closed on its own: everyone else stays as they are.
        let open = if self.asked.services.is_empty() { allow_all(&suggestions) } else { Vec::new() };
        let closing: Vec<&Value> = suggestions.iter().flat_map(|it| &it.closing).collect();
        if open.is_empty() && closing.is_empty() {
            say(step, "every other call is denied, and a policy states it already");
            return Ok(StepEnd::Done);
        }
        let (changed, deleted): (Vec<&AllowAll>, Vec<&AllowAll>) =
            open.iter().copied().partition(|policy| policy.rest.is_some());
        if !deleted.is_empty() {
            let names = names(&deleted);
            say(step, &format!("{names} allow everyone and would be deleted: all else is denied then"));
        }
        if !changed.is_empty() {
            let names = names(&changed);
            say(step, &format!("{names} allow everyone and would lose that; what else they say stays"));
        }
        for name in closing.iter().map(|policy| name_of(policy)) {
            let why = "would be written last: it shows that everything else is denied";
            say(step, &format!("MeshTrafficPermission {name} {why}"));
        }
        if self.asked.dry_run {
            let rests = changed.iter().filter_map(|it| it.rest.as_ref());
            let shown: Vec<String> = rests.chain(closing.iter().copied()).map(output::yaml).collect();
            terminal::data(&shown.join("---\n"))?;
        }
        let mut missing = self.evidence(&suggestions)?.all();
        if self.mesh()?.mode() != TrimmingStage::Enforce {
            missing.push("the mode of the mesh is not enforce: run the step enforce first".to_owned());
        }
        if !self.may(step, &missing) {
            return Ok(StepEnd::Refused);
        }
        if !self.confirmed(step)? {
            return Ok(StepEnd::NotTaken);
        }
        self.close(step, &open, &closing)?;
        Ok(StepEnd::Done)
    }

    fn close(&self, step: MigrationStep, open: &[&AllowAll], closing: &[&Value]) -> Result<()> {
        for policy in open {
            if let Some(rest) = &policy.rest {
                self.write(step, rest)?;
                continue;
            }
            let name = line(&policy.name);
            let path = mesh::permission(&self.asked.mesh, &name);
            self.client.delete(&path)?.accepted(&format!("could not delete MeshTrafficPermission {name}"))?;
            say(step, &format!("MeshTrafficPermission {name} deleted"));
        }
        closing.iter().try_for_each(|policy| self.write(step, policy))
    }

    fn set(
        &self,
        step: MigrationStep,
        mesh: Mesh,
        mode: TrimmingStage,
        missing: &[String],
    ) -> Result<StepEnd> {
        if !self.may(step, missing) {
            return Ok(StepEnd::Refused);
        }
        if let Some(advice) = mesh.elsewhere(mode) {
            say(step, &advice);
            return Ok(StepEnd::NotTaken);
        }
        if !self.confirmed(step)? {
            return Ok(StepEnd::NotTaken);
        }
        mesh.set(&self.client, mode)?;
        say(
            step,
            &format!("the label {} of the mesh is {}", resources::labels::REACHABILITY_MODE, mode.word()),
        );
        Ok(StepEnd::Done)
    }

    fn write(&self, step: MigrationStep, permission: &Value) -> Result<()> {
        let name = name_of(permission);
        let path = mesh::permission(&self.asked.mesh, &name);
        let answer = self.client.put(&path, permission)?;
        let answer = answer.accepted(&format!("could not write MeshTrafficPermission {name}"))?;
        let done = if answer.status == 201 { "created" } else { "updated" };
        say(step, &format!("MeshTrafficPermission {name} {done}"));
        Ok(())
    }

    fn evidence<'s>(&self, suggestions: &'s [Suggestions]) -> Result<Evidence<'s>> {
        let window = self.asked.min_window.to_std().unwrap_or_default();
        Evidence::read(&self.client, &self.asked.mesh, suggestions, window)
    }
}

fn say(step: MigrationStep, text: &str) {
    terminal::talk(&format!("{}: {text}", step.word()));
}

/// The policies that allow everyone, each once.
fn allow_all(suggestions: &[Suggestions]) -> Vec<&AllowAll> {
    let mut all: Vec<&AllowAll> = Vec::new();
    for policy in suggestions.iter().flat_map(|it| &it.allow_all) {
        if !all.contains(&policy) {
            all.push(policy);
        }
    }
    all
}

fn names(policies: &[&AllowAll]) -> String {
    format!("MeshTrafficPermissions {}", lines(policies.iter().map(|it| &it.name), ", "))
}

fn name_of(resource: &Value) -> String {
    line(&read_partly::<Metadata>(resource).name)
}

fn several(permissions: &[&SuggestedPermission]) -> String {
    match permissions.len() {
        1 => "1 permission".to_owned(),
        count => format!("{count} permissions"),
    }
}

/// A Go duration, or a number of days.
fn parse_window(text: &str) -> std::result::Result<GoDuration, String> {
    let hours =
        text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()).map(|days| u64::from(days) * 24);
    let text = hours.map_or_else(|| text.to_owned(), |hours| format!("{hours}h"));
    let duration: GoDuration = text.parse().map_err(|error| format!("{error}; or days, such as 7d"))?;
    duration.to_std().map(|_| duration).ok_or_else(|| "must not be negative".to_owned())
}
