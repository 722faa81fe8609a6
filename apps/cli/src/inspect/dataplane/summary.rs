//! `--type stats --format summary`: what happened at each listener and cluster, by the resource that its
//! name stands for.

use serde_json::Value;

use crate::{
    cell::{self, Column, text},
    output,
};

pub fn table(summary: &Value) -> String {
    let mut rows: Vec<Value> = Vec::new();
    let mut silent = 0;
    for (name, of) in summary["resources"].as_object().into_iter().flatten() {
        let mut row = of.clone();
        row["name"] = name.as_str().into();
        // Resources of the mesh are listed even if they have no traffic.
        let told = !row["kri"].is_null() || NUMBERS.iter().any(|(_, number)| !number(&row).is_empty());
        silent += usize::from(!told);
        rows.extend(told.then_some(row));
    }
    // What belongs to the mesh comes first, what is internal last; names of one resource stand together.
    rows.sort_by_cached_key(|row| {
        let order = ["self", "kri", "legacy", "other", "system"];
        let rank = order.iter().position(|class| row["class"] == *class).unwrap_or(order.len());
        (rank, row["kri"].is_null(), text(&row["kri"]), text(&row["name"]))
    });
    let columns = [&NAME[..], &NUMBERS[..], &RESOURCE[..]].concat();
    let (titles, cells) = cell::grid(&columns, &rows);
    let mut out = output::table(&titles, cells);
    if silent > 0 {
        out.push_str(&format!("\nNames without any of these numbers: {silent} (-o yaml lists them)\n"));
    }
    out
}

const NAME: [Column; 2] = [("NAME", |row| text(&row["name"])), ("KIND", |row| text(&row["class"]))];

const RESOURCE: [Column; 1] = [("KRI", |row| text(&row["kri"]))];

const NUMBERS: [Column; 10] = [
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
fn requests(row: &Value, counts: &[&str]) -> String {
    let stats = &row["stats"];
    let places = [("http", "downstream_rq"), ("cluster", "upstream_rq")];
    let mut known = places.iter().flat_map(|(group, prefix)| {
        counts.iter().map(move |count| &stats[*group][format!("{prefix}_{count}")])
    });
    known.find(|value| !value.is_null()).map(text).unwrap_or_default()
}

/// Connections as the listener counts them, else as the part nearest to it does.
fn connections(row: &Value, count: &str) -> String {
    let stats = &row["stats"];
    let places =
        [("listener", "downstream"), ("http", "downstream"), ("tcp", "downstream"), ("cluster", "upstream")];
    let mut known = places.iter().map(|(group, prefix)| &stats[*group][format!("{prefix}_{count}")]);
    known.find(|value| !value.is_null()).map(text).unwrap_or_default()
}

/// How many requests or connections permissions let through or refused.
fn permissions(row: &Value, count: &str) -> String {
    text(&row["stats"]["rbac"][count])
}
