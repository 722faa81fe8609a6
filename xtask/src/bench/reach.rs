//! Runs the benchmark of reachability, and writes what it measured into the documentation.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::run;

const PAGE: &str = "docs/reference/benchmarks-reach.md";

/// A quick run is for seeing that it works, so no page is written of it.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let quick = match arguments {
        [] => false,
        [only] if only == "--quick" => true,
        other => bail!("`bench reach` takes --quick, not {other:?}"),
    };
    let (root, file) = (run::root(), run::root().join("target/bench-reach.json"));
    let mut bench = run::cargo();
    bench.args(["bench", "--locked", "--package", "topology", "--bench", "reach", "--", "--json"]).arg(&file);
    run::step("reachability", bench.args(arguments))?;
    if quick { Ok(()) } else { write_page(&root, &file) }
}

fn write_page(root: &Path, file: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let page = page(&serde_json::from_str(&text)?)?;
    fs::write(root.join(PAGE), page).with_context(|| format!("writing {PAGE}"))
}

fn number(within: &Value, name: &str) -> anyhow::Result<f64> {
    within[name].as_f64().with_context(|| format!("no {name} in {within}"))
}

fn page(measured: &Value) -> anyhow::Result<String> {
    let clients = number(measured, "clients")?;
    let whole = &measured["everything"];
    let of = |name: &str| number(whole, name);
    let services = of("services")?;
    let built = of("builtMicroseconds")?;
    let floor = of("floorMicroseconds")?;
    let change = of("permissionMicroseconds")?;
    let change_floor = of("permissionFloorMicroseconds")?;
    let mut page = format!(
        "# Benchmarks of reachability\n\nWritten by `cargo xtask bench reach`: who may call whom, in one process and on one \
         processor. Every service has one Dataplane, a certificate of its own, and a MeshTrafficPermission with {clients} \
         clients, half of them by tags and half by identities. A change is the whole fold of one resource into the mesh, \
         as the control plane makes it: the permission is read, whom it selects is found, rows are made and compared, and \
         those affected are named. The floor is a table of bits that already knows whom the permission selects: it looks \
         up {clients} clients, writes one row and the lists of clients for which it is different.\n\n\
         ## {services} services, {services} classes of clients, {services} permissions\n\n\
         | what | took | floor | against the floor |\n|---|---|---|---|\n"
    );
    writeln!(
        page,
        "| all permissions at once | {:.0} ms | {:.1} ms | {:.0} |\n\
         | one permission changes | {change:.0} µs | {change_floor:.1} µs | {:.0} |\n\
         | one Dataplane changes, its class does not | {:.0} µs | | |\n\
         | one Dataplane of a new class | {:.0} µs | | |\n\
         | what one class may call | {:.0} µs | | |\n",
        built / 1e3,
        floor / 1e3,
        built / floor,
        change / change_floor,
        of("dataplaneMicroseconds")?,
        of("newClassMicroseconds")?,
        of("listMicroseconds")?,
    )?;
    page.push_str(
        "## One change among ever more services\n\nThe same change with the same affected clients: medians, and in \
         brackets against the smallest mesh. What it costs must not depend on what else is there. For the last column as \
         many services of another zone are added, and a permission by a label changes, which may select the proxies of \
         each of these.\n\n\
         | services | one permission | one Dataplane | one new class | one permission by label, with as many services of \
         another zone |\n|---|---|---|---|---|\n",
    );
    let rows = measured["growth"].as_array().context("no growth was measured")?;
    let smallest = rows.first().context("no growth was measured")?;
    for row in rows {
        let cell = |name: &str| -> anyhow::Result<String> {
            let took = number(row, name)?;
            let least = number(smallest, name)?;
            Ok(format!("{took:.0} µs ({:.2})", took / least))
        };
        writeln!(
            page,
            "| {} | {} | {} | {} | {} |",
            number(row, "services")?,
            cell("permissionMicroseconds")?,
            cell("dataplaneMicroseconds")?,
            cell("newClassMicroseconds")?,
            cell("elsewhereMicroseconds")?
        )?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_has_ratios_and_not_only_times() {
        let row = |services: u32, permission: f64| {
            json!({"services": services, "permissionMicroseconds": permission, "dataplaneMicroseconds": 50.0,
                "newClassMicroseconds": 60.0, "elsewhereMicroseconds": 70.0})
        };
        let page = page(&json!({"clients": 20, "everything": {"services": 10_000, "builtMicroseconds": 4e6,
            "floorMicroseconds": 2e4, "permissionMicroseconds": 300.0, "permissionFloorMicroseconds": 3.0,
            "dataplaneMicroseconds": 40.0, "newClassMicroseconds": 70.0, "listMicroseconds": 9.0},
            "growth": [row(1_000, 100.0), row(100_000, 120.0)]}))
        .unwrap();
        assert!(page.contains("| all permissions at once | 4000 ms | 20.0 ms | 200 |"), "{page}");
        assert!(page.contains("| one permission changes | 300 µs | 3.0 µs | 100 |"), "{page}");
        assert!(
            page.contains("| 100000 | 120 µs (1.20) | 50 µs (1.00) | 60 µs (1.00) | 70 µs (1.00) |"),
            "{page}"
        );
        assert!(super::page(&json!({"clients": 20})).is_err());
    }
}
