//! The page of the documentation.

use std::fmt::Write as _;

use super::{HEADER, columns, goals, number};
use crate::bench::row::Row;

const INTRODUCTION: &str = "\
# Benchmarks at scale

Written by `cargo xtask bench scale`. Simulated Envoys, each with a TLS connection and a delta stream of its own, \
connect to a real control plane; what it costs is read from outside. A cell is named by its proxies, its services \
and, after a `d`, how many services each proxy calls (every service without it). All meshes have mutual TLS by a \
builtin authority, HTTP services and MeshServices only.

**The floor** is a bare server on the same libraries (tonic, rustls with aws-lc-rs) that pushes the bytes the \
control plane was recorded sending, encoded before and shared by all proxies. It decides nothing. \
× floor is the control plane's processor time over that.
";

const LEGEND: &str = "\
Everything is per change. **proxies**: how many a change concerns. **ms**: from the request to the REST API \
until a proxy has received the new content. **CPU**: of all threads of the server, from the scheduler's \
statistics. **× needed**: bytes sent over the bytes of responses without what the proxy had already. **others**: \
proxies that received something although the change does not concern them. **RSS**: of the server afterwards, \
and at most meanwhile.
";

/// The page about these rows; `plot` is the file next to it with the plot.
pub fn write(rows: &[Row], machine: &str, plot: &str) -> Result<String, std::fmt::Error> {
    let mut page = String::from(INTRODUCTION);
    writeln!(
        page,
        "\nMeasured on {machine}.\n\n## Goals\n\n| goal | at most | measured | |\n|---|---|---|---|"
    )?;
    for goal in goals::goals(rows) {
        let (measured, limit) = goal.measured.map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |(measured, limit)| {
                (format!("{} {}", number(measured), goal.unit), format!("{limit} {}", goal.unit))
            },
        );
        writeln!(page, "| {} | {limit} | {measured} | {} |", goal.text, goal.verdict())?;
    }
    writeln!(page, "\n![× floor of each workload]({plot})\n\n## Measurements\n\n{LEGEND}")?;
    writeln!(page, "| {} |\n|{}", HEADER.join(" | "), "---|".repeat(HEADER.len()))?;
    for row in rows {
        writeln!(page, "| {} |", columns(row).join(" | "))?;
    }
    writeln!(page, "\n## Notes\n")?;
    for row in rows.iter().filter(|row| !row.notes.is_empty()) {
        writeln!(page, "- {} {} {}: {}", row.cell, row.workload, row.what, row.notes.join("; "))?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_opens_with_the_goals_and_holds_every_row() {
        let row =
            Row { cell: "100x100".to_owned(), what: "all connect at once".to_owned(), ..Row::default() };
        let page = write(&[row], "2 processors", "plot.svg").unwrap();
        let goals = page.find("## Goals").unwrap();
        let rows = page.find("all connect at once").unwrap();
        assert!(goals < rows);
        let cells = |line: &str| line.matches('|').count();
        let table: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("| cell")).take(3).collect();
        assert!(table.iter().all(|line| cells(line) == cells(table[0])), "{table:?}");
    }
}
