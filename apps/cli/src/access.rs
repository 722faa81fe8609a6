//! `access A B`: may A call B, and which rule says so.

use clap::Args;
use contract::{
    access::{AccessAction, AccessCheck, AccessNearMiss, AccessParty, AccessVerdict},
    reachability::ReachabilityVerdict,
};

use crate::{
    cell::{self, Column, line},
    client::{ApiClient, Call, Document},
    failure::{CommandResult, Result},
    output::{self, TableFormat},
    reachability, terminal,
    types::DEFAULT_MESH,
};

const MEANING: &str = "\
Exit codes:
  0  allowed
  3  denied
  4  mixed: some proxies of A may call some proxies of B, others may not";

/// Show whether A may call B, and which rule says so
///
/// A and B are names of Dataplanes or MeshServices, or values of kuma.io/service; the first match wins, in
/// this order. Every proxy of A is checked against every inbound of B. B may also be the name of a
/// MeshMultiZoneService or a MeshExternalService, or the KRI of any service, served in this zone or elsewhere.
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct AccessCommand {
    /// Who calls
    #[arg(value_name = "A")]
    from: String,
    /// Who is called
    #[arg(value_name = "B")]
    to: String,
    /// Mesh of both
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Only this port of B: its name, or its number if it has none
    #[arg(long, value_name = "SECTION")]
    port: Option<String>,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    format: TableFormat,
}

impl AccessCommand {
    pub fn run(&self, client: &ApiClient) -> Result<CommandResult> {
        let call = Call { mesh: &self.mesh, from: &self.from, to: &self.to, port: self.port.as_deref() };
        let attempted = format!("could not determine whether {} may call {}", self.from, self.to);
        let Document { sent, read } = client.access(&call)?.document(&attempted)?;
        let outcome = match read.verdict {
            AccessVerdict::Allowed => CommandResult::Done,
            AccessVerdict::Denied => CommandResult::No,
            AccessVerdict::Mixed => CommandResult::Partly,
        };
        terminal::data(&self.format.render(&sent, || table(&read)))?;
        Ok(outcome)
    }
}

fn table(answer: &contract::access::Access) -> String {
    let (titles, rows) = cell::grid(&COLUMNS, &answer.checks);
    let more = if answer.truncated { MORE } else { "" };
    let checks = if rows.is_empty() { String::new() } else { format!("\n{}", output::table(&titles, rows)) };
    let reach =
        answer.reachability.as_ref().map(|explained| format!("\n{}", reachability::explained(explained)));
    let misses = near_misses(&answer.near_misses);
    format!("{}\n{checks}{more}{misses}{}", sentence(answer), reach.unwrap_or_default())
}

/// The permissions that almost allow it, a line each.
fn near_misses(misses: &[AccessNearMiss]) -> String {
    if misses.is_empty() {
        return String::new();
    }
    let lines: String = misses.iter().map(|miss| format!("  {}\n", line(&miss.reason))).collect();
    format!("\nNear misses:\n{lines}")
}

const MORE: &str = "\nThis is about the checks above, and there are more: name one Dataplane or a --port.\n";

const COLUMNS: [Column<AccessCheck>; 6] = [
    ("CLIENT", |check| one_of(&check.client, check.clients)),
    ("SERVER", |check| one_of(&check.server, check.servers)),
    ("ALLOWED", |check| if check.allowed { "yes" } else { "no" }.to_owned()),
    ("ACTION", |check| action(check.action).to_owned()),
    ("RULE", |check| check.rule.as_deref().map(line).unwrap_or_default()),
    ("REASON", reason),
];

fn action(action: AccessAction) -> &'static str {
    match action {
        AccessAction::Allow => "Allow",
        AccessAction::Deny => "Deny",
        AccessAction::AllowWithShadowDeny => "AllowWithShadowDeny",
    }
}

/// Reason of a check, without the verdict that stands before it.
fn reason(check: &AccessCheck) -> String {
    let said = line(&check.reason);
    let bare = ["allowed: ", "denied: "].iter().find_map(|verdict| said.strip_prefix(verdict));
    bare.map(str::to_owned).unwrap_or(said)
}

/// Says so where one stands for several of which the same is true.
fn one_of(kri: &str, count: usize) -> String {
    match count {
        0 | 1 => line(kri),
        count => format!("{} and {} alike", line(kri), count - 1),
    }
}

/// The answer in words. A reason that all checks share is part of it.
fn sentence(answer: &contract::access::Access) -> String {
    let from = side(&answer.from);
    let to = side(&answer.to);
    let checks = &answer.checks;
    let allowed = checks.iter().filter(|check| check.allowed).count();
    let known = answer.reachability.as_ref().map(|explained| explained.verdict);
    let verdict = match answer.verdict {
        AccessVerdict::Allowed if known == Some(ReachabilityVerdict::Unknown) => {
            format!("{from} may call {to} as far as this control plane knows")
        }
        AccessVerdict::Allowed => format!("{from} may call {to}"),
        AccessVerdict::Denied => format!("{from} may not call {to}"),
        AccessVerdict::Mixed => {
            return format!(
                "{from} may call {to} only in part: {allowed} of {} checks allow it.",
                checks.len()
            );
        }
    };
    let mut reasons: Vec<String> = checks.iter().map(reason).collect();
    reasons.dedup();
    match reasons.as_slice() {
        [reason] if !reason.is_empty() => format!("{verdict}: {}.", reason.trim_end_matches('.')),
        _ => format!("{verdict}."),
    }
}

/// `MeshService backend`, with how many proxies it has unless it is one.
fn side(of: &AccessParty) -> String {
    let kind = line(&of.kind);
    let name = line(&of.name);
    match of.dataplanes {
        Some(count) if kind != "Dataplane" => format!("{kind} {name} (dataplanes: {count})"),
        _ => format!("{kind} {name}"),
    }
}
