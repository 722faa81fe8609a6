//! What the control plane finds wrong with each mesh.

use std::collections::BTreeMap;

use resources::Kind;
use serde_json::Value;

use super::{Report, Verdict, plural, some};
use crate::{
    cell::text,
    client::{Client, segment},
    failure::Result,
    pages,
    types::Type,
};

/// So many meshes are looked into; `kumactl analyze -m` looks into the others.
const MESHES: usize = 50;
/// Findings of one mesh that are read; the worst come first.
const FINDINGS: usize = 1000;
/// The code of policies that select no proxy.
const MATCHES_NOTHING: &str = "matches-nothing";
/// The code of what proxies reject. The check of proxies counts them already.
const REJECTED: &str = "rejected";

pub fn check(client: &Client, report: &mut Report) {
    let meshes = match pages::all(client, &Type::of_kind(Kind::Mesh).collection(None), "") {
        Ok(found) => found.items,
        Err(failure) => return report.failed("meshes", &failure),
    };
    let names: Vec<String> = meshes.iter().map(|mesh| text(&mesh["name"])).collect();
    for mesh in names.iter().take(MESHES) {
        match findings(client, mesh) {
            Ok(found) => tell(mesh, &found, report),
            Err(failure) => report.failed("meshes", &failure),
        }
    }
    if names.len() > MESHES {
        let message = format!("only {MESHES} of {} meshes were looked into", names.len());
        report.add(Verdict::Warn, "meshes", message, "use `kumactl analyze -m MESH` for the others");
    }
}

fn findings(client: &Client, mesh: &str) -> Result<Vec<Value>> {
    let path = format!("/meshes/{}/_problems?size={FINDINGS}", segment(mesh));
    let mut page = client.get(&path)?.json(&format!("could not analyze mesh {mesh:?}"))?;
    Ok(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// One line for each code, with the resources it is about.
fn tell(mesh: &str, found: &[Value], report: &mut Report) {
    let mut by_code: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let is_told = |finding: &&Value| finding["severity"] != "info" && finding["code"] != REJECTED;
    for finding in found.iter().filter(is_told) {
        by_code.entry(text(&finding["code"])).or_default().push(finding);
    }
    if by_code.is_empty() {
        return report.ok("meshes", format!("nothing is wrong with mesh {mesh:?}"));
    }
    for (code, findings) in by_code {
        let Some(first) = findings.first() else { continue };
        let verdict = if first["severity"] == "error" { Verdict::Fail } else { Verdict::Warn };
        let message = if code == MATCHES_NOTHING {
            let names: Vec<String> = findings.iter().map(|finding| text(&finding["kri"])).collect();
            let policies = plural(findings.len(), "policy selects", "policies select");
            format!("mesh {mesh:?}: {policies} no proxy: {}", some(&names))
        } else {
            let more = match findings.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            format!("mesh {mesh:?}: {code}: {}{more}", text(&first["message"]))
        };
        report.add(
            verdict,
            if code == MATCHES_NOTHING { "policies" } else { "meshes" },
            message,
            text(&first["fix"]),
        );
    }
}
