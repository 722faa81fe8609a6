//! `--type reachability`: which destinations a proxy reaches, and why.

use contract::reachability::{DestinationReachability, ProxyReachability, ReachabilityDestination};

use crate::{
    cell::{self, Column, line, lines},
    output, reachability,
};

const COLUMNS: [Column<ReachabilityDestination>; 4] = [
    ("DESTINATION", |item| line(&item.destination)),
    ("VERDICT", |item| reachability::verdict(item.verdict).to_owned()),
    ("REFUSING", |item| if item.refusing == 0 { String::new() } else { item.refusing.to_string() }),
    ("DECIDED BY", |item| {
        if item.callable_by_all { "anyone may call it".to_owned() } else { lines(&item.decided_by, ",") }
    }),
];

/// One destination, explained.
pub fn one(answer: &DestinationReachability) -> String {
    let mode = reachability::mode(&answer.mode);
    let to = line(&answer.destination);
    format!("Mode: {mode}\nDestination: {to}\n{}", reachability::explained(&answer.explained))
}

/// All destinations.
pub fn all(answer: &ProxyReachability) -> String {
    let mode = reachability::mode(&answer.mode);
    let counts = &answer.counts;
    let counts = format!(
        "{} reachable, {} trimmed, {} denied, {} unknown",
        counts.reachable, counts.trimmed, counts.denied, counts.unknown
    );
    let (titles, rows) = cell::grid(&COLUMNS, &answer.destinations);
    let table = if rows.is_empty() { String::new() } else { format!("\n{}", output::table(&titles, rows)) };
    let more = if answer.truncated { "\nThere are more: select one with --to.\n" } else { "" };
    let report = answer.report.as_ref().map(reachability::report).unwrap_or_default();
    format!("Mode: {mode}\nDestinations: {counts}\n{report}{table}{more}")
}
