//! `inspect reachability`: what trimming by permissions takes from the proxies of a mesh, or would take.

use clap::Args;
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, number, text},
    client::{Client, segment},
    failure::Result,
    output::{self, PlainOutput},
    pages::{Found, List},
    reachability, terminal,
    types::DEFAULT_MESH,
};

/// As many as the REST API measures at once.
const PAGE: u32 = 100;

/// Show what trimming by permissions takes from each proxy, or would take
///
/// It is measured in the modes report, shadow and enforce. Memory and processor time of Envoy are estimates.
#[derive(Debug, Args)]
pub struct Reachability {
    /// Mesh of the proxies
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    #[command(flatten)]
    output: PlainOutput,
}

const COLUMNS: [Column; 7] = [
    ("NAME", |item| text(&item["name"])),
    ("MODE", |item| reachability::mode(&item["mode"])),
    ("DESTINATIONS", |item| change(&item["report"], "destinationsBefore", "destinationsAfter", count)),
    ("CLUSTERS", |item| fewer(&item["report"], "clusters", count)),
    ("LISTENERS", |item| fewer(&item["report"], "listeners", count)),
    ("SENT", |item| change(&item["report"], "bytesBefore", "bytesAfter", reachability::bytes)),
    ("MEMORY", |item| fewer(&item["report"]["estimate"], "memoryBytes", reachability::bytes)),
];

/// `300 → 10`, or one number where nothing is taken.
fn change(report: &Value, before: &str, after: &str, shown: fn(u64) -> String) -> String {
    if report.is_null() {
        return String::new();
    }
    let (before, after) = (number(&report[before]), number(&report[after]));
    if before == after { shown(before) } else { format!("{} → {}", shown(before), shown(after)) }
}

fn fewer(report: &Value, field: &str, shown: fn(u64) -> String) -> String {
    match number(&report[field]) {
        0 => String::new(),
        saved => format!("-{}", shown(saved)),
    }
}

fn count(number: u64) -> String {
    number.to_string()
}

impl Reachability {
    pub fn run(&self, client: &Client) -> Result<()> {
        let Found { items, rest, .. } = self.read(client)?;
        let mut document = json!({ "total": items.len(), "items": items });
        if rest["zones"].is_array() {
            document["zones"] = rest["zones"].clone();
        }
        for zone in
            document["zones"].as_array().into_iter().flatten().filter(|zone| zone["missing"].is_string())
        {
            terminal::warn(&format!(
                "the proxies of zone {} are missing: {}",
                text(&zone["name"]),
                text(&zone["missing"])
            ));
        }
        self.output.show(&document, || {
            let items = || document["items"].as_array().into_iter().flatten();
            // Names are those that proxies have in their zones.
            let zone: &[Column] = &[("ZONE", |item| text(&item["zone"]))];
            let zone = if document["zones"].is_array() { zone } else { &[] };
            let (titles, rows) = cell::grid(&[zone, &COLUMNS].concat(), items());
            output::table(&titles, rows)
        })
    }

    fn read(&self, client: &Client) -> Result<Found> {
        let path = format!("/meshes/{}/_reachability", segment(&self.mesh));
        let attempted = format!("could not read what the proxies of mesh {:?} reach", self.mesh);
        List { page_size: PAGE, attempted, ..List::of(&path, "") }.all(client)
    }
}
