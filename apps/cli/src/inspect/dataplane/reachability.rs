//! `--type reachability`: which destinations a proxy reaches, and why.

use serde_json::Value;

use crate::{
    cell::{self, Column, text},
    output, reachability,
};

const COLUMNS: [Column; 4] = [
    ("DESTINATION", |item| text(&item["destination"])),
    ("VERDICT", |item| text(&item["verdict"])),
    ("REFUSING", |item| match cell::number(&item["refusing"]) {
        0 => String::new(),
        count => count.to_string(),
    }),
    ("DECIDED BY", |item| match item["open"] == true {
        true => "anyone may call it".to_owned(),
        false => cell::list(&item["decidedBy"], text),
    }),
];

pub fn shown(answer: &Value) -> String {
    let mode = format!("Mode: {}\n", reachability::mode(&answer["mode"]));
    if answer["destination"].is_string() {
        let to = format!("Destination: {}\n", text(&answer["destination"]));
        return mode + &to + &reachability::explained(answer);
    }
    let counts = &answer["counts"];
    let counts: Vec<String> = ["reachable", "trimmed", "denied", "unknown"]
        .iter()
        .map(|verdict| format!("{} {verdict}", cell::number(&counts[*verdict])))
        .collect();
    let (titles, rows) = cell::grid(&COLUMNS, answer["destinations"].as_array().into_iter().flatten());
    let table = if rows.is_empty() { String::new() } else { format!("\n{}", output::table(&titles, rows)) };
    let more = if answer["truncated"] == true { "\nThere are more: select one with --to.\n" } else { "" };
    let report = reachability::report(&answer["report"]);
    format!("{mode}Destinations: {}\n{report}{table}{more}", counts.join(", "))
}
