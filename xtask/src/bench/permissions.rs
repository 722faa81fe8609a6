//! Writes what criterion measured about permissions into the documentation.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde_json::Value;

/// The sizes the benchmark of `policy` measures.
const ENTRIES: [u32; 5] = [250, 500, 1000, 2000, 4000];
const PAGE: &str = "docs/reference/benchmarks-permissions.md";

/// Reads the medians under `target/criterion` and writes the page.
pub fn write_page(root: &Path) -> anyhow::Result<()> {
    let mut page = String::from(
        "# Benchmarks of permissions\n\n\
         Written by `cargo xtask bench permissions`. One inbound, one MeshTrafficPermission with so many `from` \
         entries; medians by criterion. The number of steps is linear, which a test of `policy` counts; what \
         the time per entry grows by is the processor waiting for memory.\n\n\
         | entries | to resolve | per entry | to decide about one client | per entry |\n|---|---|---|---|---|\n",
    );
    for entries in ENTRIES {
        let resolve = median(root, "resolve", entries)?;
        let decide = median(root, "decide", entries)?;
        let per_entry = |nanoseconds: f64| nanoseconds / f64::from(entries);
        writeln!(
            page,
            "| {entries} | {:.1} µs | {:.0} ns | {:.1} µs | {:.0} ns |",
            resolve / 1000.0,
            per_entry(resolve),
            decide / 1000.0,
            per_entry(decide)
        )?;
    }
    fs::write(root.join(PAGE), page).with_context(|| format!("writing {PAGE}"))
}

/// In nanoseconds.
fn median(root: &Path, what: &str, entries: u32) -> anyhow::Result<f64> {
    let path = root.join(format!("target/criterion/permission/{what}/{entries}/new/estimates.json"));
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let estimates: Value = serde_json::from_str(&text)?;
    estimates["median"]["point_estimate"].as_f64().with_context(|| format!("no median in {}", path.display()))
}
