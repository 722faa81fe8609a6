//! `check`: whether the control plane and its proxies are well, in one command.
//!
//! The number of requests depends on the number of meshes and of pages of proxies, and is bounded; no proxy is asked.

mod certificates;
mod control_plane;
mod meshes;
mod proxies;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::Client,
    failure::{Failure, Result},
    output::PlainOutput,
};

const EXAMPLES: &str = "\
Examples:
  kumactl check
  kumactl check --context production
  kumactl check -o json

Exit codes:
  0  nothing failed; there may be warnings
  1  something failed, or the control plane could not be reached";

/// Check the control plane, its certificates, its proxies and their policies
///
/// Checks whether the control plane can be reached and as which user, compares versions and clocks, and
/// looks for certificates
/// that expire soon, proxies that are offline or reject their configuration, and what `kumactl analyze` finds.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    #[command(flatten)]
    output: PlainOutput,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Ok,
    Warn,
    Fail,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

/// What one check found.
#[derive(Debug)]
pub struct Line {
    verdict: Verdict,
    subject: &'static str,
    message: String,
    /// What to do; empty where nothing is to be done.
    hint: String,
}

/// The findings of all checks, in their order.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
}

impl Report {
    pub fn ok(&mut self, subject: &'static str, message: impl Into<String>) {
        self.add(Verdict::Ok, subject, message, "");
    }

    pub fn add(
        &mut self,
        verdict: Verdict,
        subject: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.lines.push(Line { verdict, subject, message: message.into(), hint: hint.into() });
    }

    /// A check that could not be made.
    pub fn failed(&mut self, subject: &'static str, failure: &Failure) {
        self.add(Verdict::Fail, subject, failure.to_string(), "");
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|line| line.verdict == verdict).count()
    }

    fn worst(&self) -> Verdict {
        self.lines.iter().map(|line| line.verdict).max().unwrap_or(Verdict::Ok)
    }

    fn to_json(&self) -> Value {
        let checks: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                json!({
                    "check": line.subject, "result": line.verdict.name(), "message": line.message,
                    "hint": line.hint,
                })
            })
            .collect();
        json!({ "result": self.worst().name(), "checks": checks })
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.lines {
            let mut said = line.message.lines();
            let first = said.next().unwrap_or_default();
            out.push_str(&format!("{:<4}  {:<14}  {first}\n", line.verdict.name(), line.subject));
            for more in said.chain(line.hint.lines()) {
                out.push_str(&format!("{:22}{more}\n", ""));
            }
        }
        let count = |verdict| self.count(verdict);
        out.push_str(&format!(
            "\n{} ok, {}, {} failed\n",
            count(Verdict::Ok),
            plural(count(Verdict::Warn), "warning", "warnings"),
            count(Verdict::Fail)
        ));
        out
    }
}

impl Check {
    pub fn run(&self, client: &Client) -> Result<()> {
        let mut report = Report::default();
        if control_plane::check(client, &mut report) {
            certificates::of_control_plane(client, &mut report);
            proxies::check(client, &mut report);
            certificates::of_trusts(client, &mut report);
            meshes::check(client, &mut report);
        }
        self.output.show(&report.to_json(), || report.text())?;
        match report.count(Verdict::Fail) {
            0 => Ok(()),
            failed => Err(Failure::failed(format!("{} failed", plural(failed, "check", "checks")))),
        }
    }
}

/// `a, b, c and 4 more`.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
