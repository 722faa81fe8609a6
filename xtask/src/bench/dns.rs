//! Writes what criterion measured about the agent's DNS server into the documentation.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use super::median;

/// The sizes the benchmark of `kuma-dp` measures.
const NAMES: [u32; 3] = [500, 5_000, 50_000];
const PAGE: &str = "docs/reference/benchmarks-dns.md";

/// Reads the medians under `target/criterion` and writes the page.
pub fn write_page(root: &Path) -> anyhow::Result<()> {
    let mut page = String::from(
        "# Benchmarks of names\n\n\
         Written by `cargo xtask bench dns`: the agent's DNS server in its process, without sockets; medians by \
         criterion.\n\n## One query\n\nFinding a name in the table, and all that is done for a packet: reading it, \
         finding the name, writing the answer.\n\n| names | to find one | to answer a packet |\n|---|---|---|\n",
    );
    for names in NAMES {
        let [find, answer] = ["find", "answer"].map(|what| median(root, &format!("dns/{what}/{names}")));
        writeln!(page, "| {names} | {:.0} ns | {:.2} µs |", find?, answer? / 1000.0)?;
    }
    page.push_str(
        "\n## One document\n\nThe control plane sends all names in one document. Reading it costs what it is long, \
         whatever is done with it: the first column only reads it. The second makes a table of it from nothing, the \
         third takes it over when one name of it is new; the table then shares all others with the last one, which a \
         test counts. Queries are answered from the last table meanwhile.\n\n\
         | names | only read | whole table | one changed name | against the whole table |\n|---|---|---|---|---|\n",
    );
    for names in NAMES {
        let [read, build, change] =
            ["read", "build", "change"].map(|what| median(root, &format!("dns/{what}/{names}")));
        let build = build?;
        let change = change?;
        writeln!(
            page,
            "| {names} | {:.2} ms | {:.2} ms | {:.2} ms | {:.0} % |",
            read? / 1e6,
            build / 1e6,
            change / 1e6,
            100.0 * change / build
        )?;
    }
    fs::write(root.join(PAGE), page).with_context(|| format!("writing {PAGE}"))
}
