//! `--type stats --format summary`: what happened at each listener and cluster, by the resource that its
//! name stands for.

use contract::stats::{ResourceStats, StatsSummary};

use crate::{
    cell::{self, Column, line, text},
    output,
};

/// The statistics of one name.
struct Row {
    name: String,
    of: ResourceStats,
}

pub fn table(summary: StatsSummary) -> String {
    let mut rows: Vec<Row> = Vec::new();
    let mut silent = 0;
    for (name, of) in summary.resources {
        let row = Row { name, of };
        // Resources of the mesh are listed even if they have no traffic.
        let told = row.of.kri.is_some() || NUMBERS.iter().any(|(_, number)| !number(&row).is_empty());
        silent += usize::from(!told);
        rows.extend(told.then_some(row));
    }
    // What belongs to the mesh comes first, what is internal last; names of one resource stand together.
    rows.sort_by_cached_key(|row| {
        let order = ["self", "kri", "legacy", "other", "system"];
        let rank = order.iter().position(|class| row.of.class == *class).unwrap_or(order.len());
        (rank, row.of.kri.is_none(), row.of.kri.clone(), row.name.clone())
    });
    let columns = [&NAME[..], &NUMBERS[..], &RESOURCE[..]].concat();
    let (titles, cells) = cell::grid(&columns, &rows);
    let mut out = output::table(&titles, cells);
    if silent > 0 {
        out.push_str(&format!("\nNames without any of these numbers: {silent} (-o yaml lists them)\n"));
    }
    out
}

const NAME: [Column<Row>; 2] = [("NAME", |row| line(&row.name)), ("KIND", |row| line(&row.of.class))];

const RESOURCE: [Column<Row>; 1] = [("KRI", |row| row.of.kri.as_deref().map(line).unwrap_or_default())];

const NUMBERS: [Column<Row>; 10] = [
    ("REQUESTS", |row| requests(row, &["total", "completed"])),
    ("2XX", |row| requests(row, &["2xx"])),
    ("3XX", |row| requests(row, &["3xx"])),
    ("4XX", |row| requests(row, &["4xx"])),
    ("5XX", |row| requests(row, &["5xx"])),
    ("CONNECTIONS", |row| connections(row, "cx_total")),
    ("ACTIVE", |row| connections(row, "cx_active")),
    ("ALLOWED", |row| permissions(row, "allowed")),
    ("DENIED", |row| permissions(row, "denied")),
    ("SHADOW DENIED", |row| permissions(row, "shadow_denied")),
];

/// Requests as the listener counts them; a cluster without a listener of its name counts its own.
fn requests(row: &Row, counts: &[&str]) -> String {
    let places = [("http", "downstream_rq"), ("cluster", "upstream_rq")];
    let mut known = places.iter().flat_map(|(group, prefix)| {
        counts.iter().filter_map(move |count| row.number(group, &format!("{prefix}_{count}")))
    });
    known.next().unwrap_or_default()
}

/// Connections as the listener counts them, else as the part nearest to it does.
fn connections(row: &Row, count: &str) -> String {
    let places =
        [("listener", "downstream"), ("http", "downstream"), ("tcp", "downstream"), ("cluster", "upstream")];
    let mut known =
        places.iter().filter_map(|(group, prefix)| row.number(group, &format!("{prefix}_{count}")));
    known.next().unwrap_or_default()
}

/// Number of requests or connections that permissions let through or refused.
fn permissions(row: &Row, count: &str) -> String {
    row.number("rbac", count).unwrap_or_default()
}

impl Row {
    /// A number of a group, if it was counted.
    fn number(&self, group: &str, name: &str) -> Option<String> {
        self.of.stats.get(group)?.get(name).map(text)
    }
}
