//! `access A B`: may A call B, and which rule says so.

use clap::Args;
use serde_json::Value;

use crate::{
    cell::{self, Column, number, text},
    client::{Client, query_value, segment},
    failure::{Failure, Outcome, Result},
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
pub struct Access {
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

impl Access {
    pub fn run(&self, client: &Client) -> Result<Outcome> {
        let mut path = format!(
            "/meshes/{}/_access?from={}&to={}",
            segment(&self.mesh),
            query_value(&self.from),
            query_value(&self.to)
        );
        if let Some(port) = &self.port {
            path.push_str(&format!("&port={}", query_value(port)));
        }
        let attempted = format!("could not determine whether {} may call {}", self.from, self.to);
        let answer = client.get(&path)?.json(&attempted)?;
        let outcome = match answer["verdict"].as_str() {
            Some("Allowed") => Outcome::Done,
            Some("Denied") => Outcome::No,
            Some("Mixed") => Outcome::Partly,
            _ => return Err(Failure::failed(format!("{attempted}: the answer has no verdict"))),
        };
        terminal::data(&self.format.render(&answer, || table(&answer, outcome)))?;
        Ok(outcome)
    }
}

fn table(answer: &Value, outcome: Outcome) -> String {
    let checks: Vec<&Value> = answer["checks"].as_array().into_iter().flatten().collect();
    let (titles, rows) = cell::grid(&COLUMNS, checks.iter().copied());
    let more = if answer["truncated"] == true { MORE } else { "" };
    let checks = if rows.is_empty() { String::new() } else { format!("\n{}", output::table(&titles, rows)) };
    // Control planes of Kuma say nothing about it.
    let reach = match &answer["reachability"] {
        Value::Null => String::new(),
        explained => format!("\n{}", reachability::explained(explained)),
    };
    format!("{}\n{checks}{more}{}{reach}", sentence(answer, outcome), near_misses(answer))
}

/// The permissions that almost allow it, a line each.
fn near_misses(answer: &Value) -> String {
    let misses: Vec<&Value> = answer["nearMisses"].as_array().into_iter().flatten().collect();
    if misses.is_empty() {
        return String::new();
    }
    let lines: String = misses.iter().map(|miss| format!("  {}\n", text(&miss["reason"]))).collect();
    format!("\nNear misses:\n{lines}")
}

const MORE: &str = "\nThis is about the checks above, and there are more: name one Dataplane or a --port.\n";

const COLUMNS: [Column; 6] = [
    ("CLIENT", |check| one_of(&check["client"], &check["clients"])),
    ("SERVER", |check| one_of(&check["server"], &check["servers"])),
    ("ALLOWED", |check| if check["allowed"] == true { "yes" } else { "no" }.to_owned()),
    ("ACTION", |check| text(&check["action"])),
    ("RULE", |check| text(&check["rule"])),
    ("REASON", reason),
];

/// Why, without the verdict that stands before it.
fn reason(check: &Value) -> String {
    let said = text(&check["reason"]);
    let bare = ["allowed: ", "denied: "].iter().find_map(|verdict| said.strip_prefix(verdict));
    bare.map(str::to_owned).unwrap_or(said)
}

/// Who stands for several of which the same is true says so.
fn one_of(kri: &Value, count: &Value) -> String {
    match number(count) {
        0 | 1 => text(kri),
        count => format!("{} and {} alike", text(kri), count - 1),
    }
}

/// The answer in words. A reason that all checks share is part of it.
fn sentence(answer: &Value, outcome: Outcome) -> String {
    let (from, to) = (side(&answer["from"]), side(&answer["to"]));
    let checks: Vec<&Value> = answer["checks"].as_array().into_iter().flatten().collect();
    let allowed = checks.iter().filter(|check| check["allowed"] == true).count();
    let verdict = match outcome {
        Outcome::Done | Outcome::Differs if answer["reachability"]["verdict"] == "unknown" => {
            format!("{from} may call {to} as far as this control plane knows")
        }
        Outcome::Done | Outcome::Differs => format!("{from} may call {to}"),
        Outcome::No => format!("{from} may not call {to}"),
        Outcome::Partly => {
            return format!(
                "{from} may call {to} only in part: {allowed} of {} checks allow it.",
                checks.len()
            );
        }
    };
    let mut reasons: Vec<String> = checks.iter().map(|check| reason(check)).collect();
    reasons.dedup();
    match reasons.as_slice() {
        [reason] if !reason.is_empty() => format!("{verdict}: {}.", reason.trim_end_matches('.')),
        _ => format!("{verdict}."),
    }
}

/// `MeshService backend`, with how many proxies it has unless it is one.
fn side(of: &Value) -> String {
    let (kind, name) = (text(&of["kind"]), text(&of["name"]));
    match (kind.as_str(), &of["dataplanes"]) {
        ("Dataplane", _) | (_, Value::Null) => format!("{kind} {name}"),
        (_, count) => format!("{kind} {name} (dataplanes: {count})"),
    }
}
