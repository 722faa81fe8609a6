//! Who may depend on whom. The table is the one of ARCHITECTURE.md; `cargo metadata` is the truth.

use anyhow::Context;
use serde_json::Value;

use crate::run;

/// Each package with the packages of this workspace it may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("resources", &[]),
    ("runtime", &[]),
    ("xds", &[]),
    ("policy", &["resources"]),
    ("topology", &["policy", "resources"]),
    ("plan", &["policy", "resources", "topology"]),
    ("envoy", &["plan", "policy", "resources", "topology", "xds"]),
    ("store", &["resources"]),
    ("store-postgres", &["resources", "store"]),
    ("identity", &["resources", "store"]),
    ("api", &["resources", "store", "identity", "runtime"]),
    ("testkit", &["resources", "store"]),
    (
        "kuma-cp",
        &[
            "api",
            "envoy",
            "identity",
            "plan",
            "policy",
            "resources",
            "runtime",
            "store",
            "store-postgres",
            "topology",
            "xds",
        ],
    ),
    ("kuma-dp", &["resources", "runtime"]),
    ("kumactl", &["resources", "identity"]),
    ("kuma-demo", &["runtime"]),
    ("e2e", &["resources", "store", "testkit", "xds"]),
    ("scale", &[]),
    ("xtask", &[]),
];

/// Packages that know no clock, no network, no disk: what they must not even depend on.
const PURE: &[&str] = &["resources", "policy", "topology", "plan", "envoy", "xds"];
const IMPURE: &[&str] =
    &["tokio", "hyper", "axum", "rusqlite", "tokio-postgres", "rand", "uuid", "nix", "reqwest", "ureq"];

/// Dependencies that stay behind one door.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("envoy-types", &["envoy"]),
    ("tokio-postgres", &["store-postgres"]),
    ("deadpool-postgres", &["store-postgres"]),
    ("rusqlite", &["store", "e2e"]),
    ("jsonwebtoken", &["identity"]),
    ("anyhow", &["kuma-cp", "kuma-dp", "kumactl", "kuma-demo", "xtask", "e2e", "scale", "testkit"]),
];

/// Packages nobody may pull in, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("ring", "one crypto library is enough: aws-lc-rs"),
    ("openssl", "TLS is rustls"),
    ("serde_yaml", "archived; serde-saphyr reads YAML"),
    ("serde_yml", "has an advisory; serde-saphyr reads YAML"),
];

pub fn check() -> anyhow::Result<Vec<String>> {
    let metadata = run::output(run::cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("reading cargo metadata")?;
    let members = strings(&metadata["workspace_members"]);
    let packages = metadata["packages"].as_array().context("no packages")?;
    let own = packages.iter().filter(|p| p["id"].as_str().is_some_and(|id| members.contains(&id)));
    let mut findings: Vec<String> = own.flat_map(check_package).collect();
    // The lock file and the metadata also list what only features nobody enables would need.
    let built = run::output(run::cargo().args([
        "tree",
        "--workspace",
        "--target",
        "all",
        "--prefix",
        "none",
        "--locked",
    ]))?;
    for (name, reason) in BANNED {
        if built.lines().any(|line| line.split(' ').next() == Some(name)) {
            findings.push(format!("something depends on {name}: {reason}"));
        }
    }
    Ok(findings)
}

fn check_package(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some((_, allowed)) = MAY_USE.iter().find(|(n, _)| *n == name) else {
        return vec![format!(
            "package {name} is not in the table of layers (xtask/src/tidy/layers.rs, ARCHITECTURE.md)"
        )];
    };
    let mut findings = Vec::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let used = dependency["name"].as_str().unwrap_or_default();
        let for_tests = dependency["kind"] == "dev";
        let is_ours = MAY_USE.iter().any(|(n, _)| *n == used);
        if is_ours && !for_tests && !allowed.contains(&used) {
            findings.push(format!("{name} depends on {used}, which its layer does not allow"));
        }
        if used == "testkit" && !for_tests && name != "e2e" {
            findings.push(format!("{name} depends on testkit outside its tests"));
        }
        if PURE.contains(&name) && !for_tests && IMPURE.contains(&used) {
            findings.push(format!("{name} is pure and depends on {used}"));
        }
        let guarded = ONLY_IN.iter().find(|(n, _)| *n == used);
        if !for_tests && guarded.is_some_and(|(_, homes)| !homes.contains(&name)) {
            findings.push(format!("{name} depends on {used}, which only {:?} may", guarded.map(|(_, h)| h)));
        }
    }
    findings
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
