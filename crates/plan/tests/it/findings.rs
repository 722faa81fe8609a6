//! Problems of a plan, in words.

use plan::Finding;

pub fn texts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
