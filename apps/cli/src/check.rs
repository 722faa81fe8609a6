//! `check`: whether the control plane and its proxies are well, in one command.
//!
//! The number of requests depends on the number of meshes and of pages of proxies, and is bounded; no proxy is asked.

mod certificates;
mod control_plane;
mod meshes;
mod naming;
mod proxies;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::ApiClient,
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
pub struct CheckCommand {
    #[command(flatten)]
    output: PlainOutput,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckStatus {
    Ok,
    Warn,
    Fail,
}

impl CheckStatus {
    fn name(self) -> &'static str {
        match self {
            CheckStatus::Ok => "ok",
            CheckStatus::Warn => "warn",
            CheckStatus::Fail => "fail",
        }
    }
}

/// One line of the report.
#[derive(Debug)]
pub struct CheckLine {
    verdict: CheckStatus,
    subject: &'static str,
    message: String,
    /// Advice; empty where nothing is to be done.
    hint: String,
}

/// The findings of all checks, in their order.
#[derive(Debug, Default)]
pub struct CheckReport {
    lines: Vec<CheckLine>,
}

impl CheckReport {
    pub fn ok(&mut self, subject: &'static str, message: impl Into<String>) {
        self.add(CheckStatus::Ok, subject, message, "");
    }

    pub fn add(
        &mut self,
        verdict: CheckStatus,
        subject: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.lines.push(CheckLine { verdict, subject, message: message.into(), hint: hint.into() });
    }

    /// A check that could not be made.
    pub fn failed(&mut self, subject: &'static str, failure: &Failure) {
        self.add(CheckStatus::Fail, subject, failure.to_string(), "");
    }

    fn count(&self, verdict: CheckStatus) -> usize {
        self.lines.iter().filter(|line| line.verdict == verdict).count()
    }

    fn worst(&self) -> CheckStatus {
        self.lines.iter().map(|line| line.verdict).max().unwrap_or(CheckStatus::Ok)
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
            count(CheckStatus::Ok),
            plural(count(CheckStatus::Warn), "warning", "warnings"),
            count(CheckStatus::Fail)
        ));
        out
    }
}

impl CheckCommand {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let mut report = CheckReport::default();
        if control_plane::check(client, &mut report) {
            certificates::of_control_plane(client, &mut report);
            proxies::check(client, &mut report);
            certificates::of_trusts(client, &mut report);
            meshes::check(client, &mut report);
        }
        self.output.show(&report.to_json(), || report.text())?;
        match report.count(CheckStatus::Fail) {
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
