//! Runs the benchmark of synchronisation, and writes what it measured into the documentation.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::run;

const PAGE: &str = "docs/reference/benchmarks-kds.md";
/// Default limit of a message, in bytes.
const DEFAULT_LIMIT: f64 = 10_485_760.0;

/// A quick run is for seeing that it works, so no page is written of it.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let quick = match arguments {
        [] => false,
        [only] if only == "--quick" => true,
        other => bail!("`bench kds` takes --quick, not {other:?}"),
    };
    let (root, file) = (run::root(), run::root().join("target/bench-kds.json"));
    let mut bench = run::cargo();
    bench.args(["bench", "--locked", "--package", "kds", "--bench", "sync", "--", "--json"]).arg(&file);
    run::step("synchronisation", bench.args(arguments))?;
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
    let zones = number(measured, "zones")?;
    let whole = &measured["everything"];
    let of = |name: &str| number(whole, name);
    let resources = of("resources")?;
    let took = of("microseconds")?;
    let floor = of("floorMicroseconds")?;
    let per_resource = of("bytesPerZone")? / resources;
    let mut page = format!(
        "# Benchmarks of synchronisation\n\nWritten by `cargo xtask bench kds`: a global control plane and {zones} zones \
         in one process, without network, disk and compression; messages are encoded and decoded as between control \
         planes. A third of the resources are protobuf, the others JSON.\n\n## Everything to all zones\n\nZones that \
         have nothing connect. The floor is what the bytes cost alone: encoding every resource for every zone and \
         decoding it there, without deciding who gets what, looking at what is stored, and storing.\n\n\
         | resources | zones | took | floor | against the floor | encoded | messages per zone | bytes per resource |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    writeln!(
        page,
        "| {resources} | {zones} | {:.0} ms | {:.0} ms | {:.2} | {} | {} | {per_resource:.0} |\n\n\
         Of one kind about {:.0} of this size fit into a message of 10 MiB, the default of `maxMsgSize`. More go in \
         parts; a control plane of Kuma needs a higher limit for them.\n",
        took / 1e3,
        floor / 1e3,
        took / floor,
        of("encoded")?,
        of("responsesPerZone")?,
        (DEFAULT_LIMIT / per_resource / 1e3).floor() * 1e3
    )?;
    page.push_str(
        "## One change\n\nOne resource changes, and all zones have stored it: the median of many changes, each of \
         another resource. What it costs must not depend on what is there; that every change encodes one resource per \
         zone is counted here and in a test.\n\n\
         | resources present | took | per zone | against the smallest | encoded per change and zone | bytes per zone |\n\
         |---|---|---|---|---|---|\n",
    );
    let rows = measured["changes"].as_array().context("no changes were measured")?;
    let smallest = number(rows.first().context("no changes were measured")?, "microseconds")?;
    for row in rows {
        let took = number(row, "microseconds")?;
        let times = number(row, "changes")?;
        writeln!(
            page,
            "| {} | {took:.0} µs | {:.1} µs | {:.2} | {:.2} | {} |",
            number(row, "present")?,
            took / zones,
            took / smallest,
            number(row, "encoded")? / times / zones,
            number(row, "bytesPerZone")?
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
        let change = |present: u32, microseconds: f64| {
            json!({"present": present, "microseconds": microseconds, "changes": 200, "encoded": 2000,
                "bytesPerZone": 512, "responsesPerZone": 200})
        };
        let page = page(&json!({"zones": 10, "everything": {"resources": 10_000, "microseconds": 3e6,
            "floorMicroseconds": 1.5e6, "encoded": 100_010, "bytesPerZone": 5_000_000, "responsesPerZone": 4},
            "changes": [change(1_000, 100.0), change(100_000, 110.0)]}))
        .unwrap();
        assert!(page.contains("| 10000 | 10 | 3000 ms | 1500 ms | 2.00 | 100010 | 4 | 500 |"), "{page}");
        assert!(page.contains("about 20000 of this size"), "{page}");
        assert!(page.contains("| 100000 | 110 µs | 11.0 µs | 1.10 | 1.00 | 512 |"), "{page}");
        assert!(super::page(&json!({"zones": 10})).is_err());
    }
}
