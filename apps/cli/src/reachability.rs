//! Why a client reaches a destination or not, in words.

use serde_json::Value;

use crate::{
    cell::{number, text},
    output,
};

/// How many inbounds are named that refuse.
const NAMED: usize = 10;

/// The verdict, who decides, which servers would refuse, and what would let the client in.
pub fn explained(of: &Value) -> String {
    let mut out = format!("Reachability: {}\n", text(&of["verdict"]));
    let reason = text(&of["reason"]);
    if !reason.is_empty() {
        out.push_str(&format!("  {reason}\n"));
    }
    let rules: Vec<String> = array(&of["decidedBy"]).map(text).collect();
    if !rules.is_empty() {
        out.push_str(&format!("Decided by: {}\n", rules.join(", ")));
    }
    if of["verdict"] == "reachable" {
        for answer in array(&of["answers"]).filter(|answer| answer["allowed"] == false) {
            let alike = match number(&answer["servers"]) {
                0 | 1 => String::new(),
                count => format!(" and {} alike", count - 1),
            };
            out.push_str(&format!(
                "Would refuse: {}{alike}: {}\n",
                text(&answer["server"]),
                text(&answer["reason"])
            ));
        }
    }
    out.push_str(&refusing(of));
    if of["truncated"] == true {
        out.push_str("Not all servers were checked.\n");
    }
    if of["missing"].is_string() {
        out.push_str(&format!("Not offered: {}\n", text(&of["missing"])));
    }
    out.push_str(&change(&of["change"]));
    out
}

/// The inbounds that refuse, where these are several.
fn refusing(of: &Value) -> String {
    let named: Vec<String> = array(&of["refusing"]).map(text).take(NAMED).collect();
    let total = number(&of["refusingTotal"]);
    if total < 2 || named.is_empty() {
        return String::new();
    }
    let more = match total.saturating_sub(named.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("Refusing inbounds: {}{more}\n", named.join(", "))
}

fn change(change: &Value) -> String {
    if change.is_null() {
        return String::new();
    }
    let mut out = format!("To allow it: {}\n", text(&change["text"]));
    for note in array(&change["notes"]) {
        out.push_str(&format!("Note: {}\n", text(note)));
    }
    let documents: Vec<String> = array(&change["resources"]).map(output::yaml).collect();
    if !documents.is_empty() {
        out.push_str(&format!("\n{}", documents.join("---\n")));
    }
    out
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What is done about destinations that the proxy may not call.
pub fn mode(mode: &Value) -> String {
    let asked = format!("{} (said by {})", text(&mode["asked"]), text(&mode["saidBy"]));
    match &mode["inactive"] {
        Value::Null => asked,
        inactive => format!("{asked}, without effect: {}", text(inactive)),
    }
}

/// What trimming takes or would take, in two lines.
pub fn report(report: &Value) -> String {
    if report.is_null() {
        return String::new();
    }
    let n = |field: &str| number(&report[field]);
    let goes = if report["done"] == true { "Trimmed" } else { "Would be trimmed" };
    let saved = n("bytesBefore").saturating_sub(n("bytesAfter"));
    let estimate = &report["estimate"];
    format!(
        "{goes}: {} of {} destinations, {} clusters, {} listeners, {} of {}\nEstimate: Envoy needs {} of memory and {} ms \
         of processor time less\n",
        n("destinationsBefore").saturating_sub(n("destinationsAfter")),
        n("destinationsBefore"),
        n("clusters"),
        n("listeners"),
        bytes(saved),
        bytes(n("bytesBefore")),
        bytes(number(&estimate["memoryBytes"])),
        number(&estimate["cpuMicroseconds"]) / 1000,
    )
}

/// `512 B`, `1.5 KiB`, `3.0 MiB`.
pub fn bytes(count: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = count.saturating_mul(10) / unit;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", tenths(1024)),
        _ => format!("{} MiB", tenths(1_048_576)),
    }
}
