//! Dependencies between crates: the table in ARCHITECTURE.md, compared with `cargo metadata`.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::Value;

use super::reach;
use crate::run;

/// Each package of this workspace with its row.
pub type Table = BTreeMap<String, Layer>;

/// A row of the table.
#[derive(Debug)]
pub struct Layer {
    /// `apps`, `edges`, `pure`, `leaves` or `tests`.
    pub group: String,
    /// Packages of this workspace that it may use, and groups, each of which stands for all its packages.
    uses: Vec<String>,
}

/// Reads the block under "Layers": lines of the form `[group] package → package package`.
pub fn table(page: &str) -> anyhow::Result<Table> {
    let layers = page.split_once("\n## Layers\n").context("ARCHITECTURE.md has no section Layers")?.1;
    let block = layers.split("```").nth(1).context("the section Layers has no table")?;
    let mut table = Table::new();
    let mut group = String::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (package, used) = line.split_once('→').with_context(|| format!("no arrow in {line:?}"))?;
        let mut words = package.split_whitespace();
        let package = words.next_back().with_context(|| format!("no package in {line:?}"))?;
        if let Some(first) = words.next() {
            first.clone_into(&mut group);
        }
        let uses = used.split_whitespace().filter(|used| *used != "nothing").map(str::to_owned).collect();
        let twice = table.insert(package.to_owned(), Layer { group: group.clone(), uses });
        anyhow::ensure!(twice.is_none(), "{package} is listed twice");
    }
    Ok(table)
}

/// Packages that know no clock, no network, no disk: what they must not even depend on.
const PURE: &[&str] =
    &["contract", "resources", "policy", "topology", "plan", "envoy", "findings", "kds", "xds", "signals"];
const IMPURE: &[&str] =
    &["tokio", "hyper", "axum", "rusqlite", "tokio-postgres", "rand", "uuid", "nix", "reqwest", "ureq"];

/// Dependencies that stay behind one door.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("envoy-types", &["envoy"]),
    ("tokio-postgres", &["store-postgres"]),
    ("deadpool-postgres", &["store-postgres"]),
    ("rusqlite", &["store-sqlite", "e2e"]),
    ("store-postgres", &["kuma-cp"]),
    ("store-sqlite", &["kuma-cp"]),
    ("jsonwebtoken", &["identity"]),
    ("anyhow", &["kuma-cp", "kuma-dp", "kumactl", "kuma-demo", "xtask", "e2e", "scale", "testkit"]),
];

/// Packages that no crate may depend on, with the reason.
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
    let own = || packages.iter().filter(|p| p["id"].as_str().is_some_and(|id| members.contains(&id)));
    let page =
        std::fs::read_to_string(run::root().join("ARCHITECTURE.md")).context("reading ARCHITECTURE.md")?;
    let table = table(&page)?;
    let mut findings: Vec<String> = own().flat_map(|package| check_package(package, &table)).collect();
    let exists = |name: &&String| own().any(|package| package["name"] == name.as_str());
    let gone = table.keys().filter(|name| !exists(name));
    findings.extend(gone.map(|name| format!("ARCHITECTURE.md lists {name}, which is no package")));
    for (package, layer) in &table {
        if layer.group == "pure" || PURE.contains(&package.as_str()) {
            findings.extend(reached(package, &table)?);
        }
    }
    // The lock file and the metadata also list what features need that no crate enables.
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

/// Names what a pure crate must not reach through its dependencies. Features are those that it asks for by itself.
fn reached(package: &str, table: &Table) -> anyhow::Result<Vec<String>> {
    let tree = run::output(run::cargo().args([
        "tree",
        "--package",
        package,
        "--edges",
        "normal,no-proc-macro",
        "--target",
        "all",
        "--prefix",
        "depth",
        "--format",
        reach::FORMAT,
        "--locked",
    ]))?;
    Ok(reach::violations(&tree, table))
}

fn check_package(package: &Value, table: &Table) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some(layer) = table.get(name) else {
        return vec![format!("package {name} is not in the table of layers in ARCHITECTURE.md")];
    };
    let mut findings = Vec::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let used = dependency["name"].as_str().unwrap_or_default();
        let for_tests = dependency["kind"] == "dev";
        let group = table.get(used).map(|of| of.group.as_str());
        let may_use = layer.uses.iter().any(|allowed| allowed == used || Some(allowed.as_str()) == group);
        if table.contains_key(used) && !for_tests && !may_use {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "# A\n\n## Layers\n\n```\napps    cp → plan store\n        dp → nothing\n```\n\n```\nelse\n```\n";

    #[test]
    fn the_table_is_read_from_the_page_and_compared_with_what_packages_use() {
        let table = table(PAGE).unwrap();
        assert_eq!(table["cp"].uses, ["plan", "store"]);
        assert!(table["dp"].uses.is_empty());
        assert_eq!(table["dp"].group, "apps");
        let using = |used: &str| serde_json::json!({ "name": "dp", "dependencies": [{ "name": used, "kind": null }] });
        assert_eq!(check_package(&using("cp"), &table), ["dp depends on cp, which its layer does not allow"]);
        assert!(check_package(&using("serde"), &table).is_empty());
        let unknown = serde_json::json!({ "name": "new", "dependencies": [] });
        assert_eq!(
            check_package(&unknown, &table),
            ["package new is not in the table of layers in ARCHITECTURE.md"]
        );
    }

    #[test]
    fn groups_stand_for_packages_and_drivers_stay_behind_their_door() {
        let page = "## A\n\n## Layers\n\n```\napps    cp → edges\nedges   api → store-sqlite\n        store-sqlite → nothing\n\
                    leaves  runtime → nothing\n```\n";
        let table = super::table(page).unwrap();
        let using = |name: &str, used: &str| serde_json::json!({ "name": name, "dependencies": [{ "name": used, "kind": null }] });
        assert!(check_package(&using("cp", "api"), &table).is_empty());
        assert_eq!(check_package(&using("cp", "runtime"), &table).len(), 1);
        assert_eq!(
            check_package(&using("api", "store-sqlite"), &table),
            ["api depends on store-sqlite, which only Some([\"kuma-cp\"]) may"]
        );
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error() {
        assert!(super::table("# A\n").is_err());
        assert!(super::table(&PAGE.replace('→', "->")).is_err());
        assert!(super::table(&PAGE.replace("dp →", "cp →")).is_err());
    }
}
