//! `inspect reachability`: what trimming by permissions takes from the proxies of a mesh, or would take.

use clap::Args;
use contract::reachability::{MeshReachability, ProxySavings, ReachabilityReport};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, line},
    client::{ApiClient, read_as, segment},
    document,
    failure::Result,
    output::{self, PlainOutput},
    pages::{ListedItems, PagedList},
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

const COLUMNS: [Column<ProxySavings>; 7] = [
    ("NAME", |item| line(&item.name)),
    ("MODE", |item| reachability::mode(&item.mode)),
    ("DESTINATIONS", |item| {
        of(item, |report| change(report.destinations_before, report.destinations_after, count))
    }),
    ("CLUSTERS", |item| of(item, |report| fewer(report.clusters, count))),
    ("LISTENERS", |item| of(item, |report| fewer(report.listeners, count))),
    ("SENT", |item| of(item, |report| change(report.bytes_before, report.bytes_after, reachability::bytes))),
    ("MEMORY", |item| of(item, |report| fewer(report.estimate.memory_bytes, reachability::bytes))),
];

/// Names are those that proxies have in their zones.
const ZONE: [Column<ProxySavings>; 1] = [("ZONE", |item| item.zone.as_deref().map(line).unwrap_or_default())];

/// A cell of the report, if there is one.
fn of(item: &ProxySavings, cell: fn(&ReachabilityReport) -> String) -> String {
    item.report.as_ref().map(cell).unwrap_or_default()
}

/// `300 → 10`, or one number where nothing is taken.
fn change(before: usize, after: usize, shown: fn(usize) -> String) -> String {
    if before == after { shown(before) } else { format!("{} → {}", shown(before), shown(after)) }
}

fn fewer(saved: usize, shown: fn(usize) -> String) -> String {
    if saved == 0 { String::new() } else { format!("-{}", shown(saved)) }
}

fn count(number: usize) -> String {
    number.to_string()
}

/// The zones of an answer of a global control plane, as they were sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SentZones {
    zones: Option<Vec<Value>>,
}

impl Reachability {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let path = format!("/meshes/{}/_reachability", segment(&self.mesh));
        let attempted = format!("could not read what the proxies of mesh {:?} reach", self.mesh);
        let list = PagedList { page_size: PAGE, attempted: attempted.clone(), ..PagedList::of(&path, "") };
        let ListedItems { items, rest, .. } = list.all(client)?;
        let mut sent = json!({ "total": items.len(), "items": items });
        if let SentZones { zones: Some(zones) } = document::parts(&rest) {
            document::overwrite(&mut sent, &json!({ "zones": zones }));
        }
        let read: MeshReachability = read_as(&sent, &attempted)?;
        for zone in &read.zones {
            if let Some(missing) = &zone.missing {
                let name = line(&zone.name);
                terminal::warn(&format!("the proxies of zone {name} are missing: {}", line(missing)));
            }
        }
        self.output.show(&sent, || {
            let zone = if read.zones.is_empty() { &[][..] } else { &ZONE };
            let (titles, rows) = cell::grid(&[zone, &COLUMNS].concat(), &read.items);
            output::table(&titles, rows)
        })
    }
}
