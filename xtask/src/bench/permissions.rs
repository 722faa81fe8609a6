//! Writes what criterion measured about permissions into the documentation.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use super::median;

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
        let resolve = median(root, &format!("permission/resolve/{entries}"))?;
        let decide = median(root, &format!("permission/decide/{entries}"))?;
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
