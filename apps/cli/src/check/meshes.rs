//! Findings of the control plane about each mesh.

use std::collections::BTreeMap;

use contract::{findings::FoundProblem, lenient::read_partly, resource::Metadata};
use resources::Kind;

use super::{CheckReport, CheckStatus, plural, some};
use crate::{cell::line, client::ApiClient, failure::Result, pages, types::Type};

/// So many meshes are looked into; `kumactl analyze -m` looks into the others.
const MESHES: usize = 50;
/// Findings of one mesh that are read; the worst come first.
const FINDINGS: usize = 1000;
/// The code of policies that select no proxy.
const MATCHES_NOTHING: &str = "matches-nothing";
/// The code of what proxies reject. The check of proxies counts them already.
const REJECTED: &str = "rejected";

pub fn check(client: &ApiClient, report: &mut CheckReport) {
    let meshes = match pages::all(client, &Type::of_kind(Kind::Mesh).collection(None), "") {
        Ok(found) => found.items,
        Err(failure) => return report.failed("meshes", &failure),
    };
    let names: Vec<String> = meshes.iter().map(|mesh| line(&read_partly::<Metadata>(mesh).name)).collect();
    for mesh in names.iter().take(MESHES) {
        match findings(client, mesh) {
            Ok(found) => tell(mesh, &found, report),
            Err(failure) => report.failed("meshes", &failure),
        }
    }
    if names.len() > MESHES {
        let message = format!("only {MESHES} of {} meshes were looked into", names.len());
        report.add(CheckStatus::Warn, "meshes", message, "use `kumactl analyze -m MESH` for the others");
    }
}

fn findings(client: &ApiClient, mesh: &str) -> Result<Vec<FoundProblem>> {
    let found = client.worst_findings(mesh, FINDINGS)?.read(&format!("could not analyze mesh {mesh:?}"))?;
    Ok(found.items)
}

/// One line for each code, with the resources it is about.
fn tell(mesh: &str, found: &[FoundProblem], report: &mut CheckReport) {
    let mut by_code: BTreeMap<String, Vec<&FoundProblem>> = BTreeMap::new();
    let is_told = |finding: &&FoundProblem| finding.severity != "info" && finding.code != REJECTED;
    for finding in found.iter().filter(is_told) {
        by_code.entry(line(&finding.code)).or_default().push(finding);
    }
    if by_code.is_empty() {
        return report.ok("meshes", format!("nothing is wrong with mesh {mesh:?}"));
    }
    for (code, findings) in by_code {
        let Some(first) = findings.first() else { continue };
        let verdict = if first.severity == "error" { CheckStatus::Fail } else { CheckStatus::Warn };
        let message = if code == MATCHES_NOTHING {
            let names: Vec<String> = findings.iter().map(|finding| line(&finding.kri)).collect();
            let policies = plural(findings.len(), "policy selects", "policies select");
            format!("mesh {mesh:?}: {policies} no proxy: {}", some(&names))
        } else {
            let more = match findings.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            format!("mesh {mesh:?}: {code}: {}{more}", line(&first.message))
        };
        report.add(
            verdict,
            if code == MATCHES_NOTHING { "policies" } else { "meshes" },
            message,
            line(&first.fix),
        );
    }
}
