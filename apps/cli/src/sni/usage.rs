//! `sni usage`: which server names are still asked for.

use std::{collections::HashMap, thread};

use clap::Args;
use resources::duration::GoDuration;
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, list, number, text},
    cli::Global,
    client::{Client, query_value, segment},
    config::Settings,
    failure::Result,
    output::{self, TableFormat},
    pages, terminal,
    types::DEFAULT_MESH,
};

/// Show which server names (SNIs) zone proxies receive
///
/// Zone ingresses and zone egresses count connections by server name, from their start on. A zone's control plane asks
/// those of its zone, a global one those of all zones. A name that is not dialled, whose connections are gone and
/// which gets no new ones (--over) can be removed from multizone.sni.formats.
#[derive(Debug, Args)]
pub struct Usage {
    /// Mesh of the destinations
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Only this server name
    #[arg(long, value_name = "SNI")]
    value: Option<String>,
    /// Only names that clients of the mesh do not dial
    #[arg(long)]
    old: bool,
    /// Ask twice, this far apart, and show how many new connections there were
    #[arg(long, value_name = "DURATION")]
    over: Option<GoDuration>,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    format: TableFormat,
}

const COLUMNS: [Column; 5] = [
    ("SNI", |it| text(&it["value"])),
    ("DESTINATION", |it| list(&it["destinations"], |one| text(&one["kri"]))),
    ("DIALLED", |it| if is_dialled(it) { "yes" } else { "no" }.to_owned()),
    ("CONNECTIONS", |it| number(&it["connections"]).to_string()),
    ("OPEN", |it| number(&it["active"]).to_string()),
];
const NEW: Column = ("NEW", |it| number(&it["new"]).to_string());
const SEEN_BY: Column = ("SEEN BY", |it| list(&it["seenBy"], |one| text(&one["kri"])));

fn is_dialled(item: &Value) -> bool {
    item["destinations"].as_array().into_iter().flatten().any(|one| one["dialled"] == true)
}

impl Usage {
    pub fn run(&self, global: &Global) -> Result<()> {
        let client = Settings::load(global)?.client()?;
        let before = match self.over.and_then(GoDuration::to_std) {
            Some(over) => {
                let (items, _) = self.ask(&client)?;
                thread::sleep(over);
                Some(items)
            }
            None => None,
        };
        let (mut items, proxies) = self.ask(&client)?;
        if let Some(before) = &before {
            add_new(&mut items, before);
        }
        talk(&proxies);
        let answer = json!({ "items": items, "proxies": proxies });
        let table = || {
            let columns: Vec<Column> =
                COLUMNS.into_iter().chain(before.as_ref().map(|_| NEW)).chain([SEEN_BY]).collect();
            let (titles, rows) = cell::grid(&columns, items.iter());
            output::table(&titles, rows)
        };
        Ok(terminal::data(&self.format.render(&answer, table))?)
    }

    /// The values and the proxies that were asked.
    fn ask(&self, client: &Client) -> Result<(Vec<Value>, Value)> {
        let value = self.value.as_ref().map(|value| format!("&value={}", query_value(value)));
        let old = if self.old { "&dialled=false" } else { "" };
        let filters = format!("{}{old}", value.unwrap_or_default());
        let mut found = pages::all(client, &format!("/meshes/{}/_sni-usage", segment(&self.mesh)), &filters)?;
        Ok((found.items, found.rest["proxies"].take()))
    }
}

/// Adds how many connections came since. A proxy that started again meanwhile counts from nothing.
fn add_new(items: &mut [Value], before: &[Value]) {
    let seen_by = |item: &Value| item["seenBy"].as_array().cloned().unwrap_or_default();
    let mut counted: HashMap<(String, String), u64> = HashMap::new();
    for item in before {
        for seen in seen_by(item) {
            counted.insert((text(&item["value"]), text(&seen["kri"])), number(&seen["connections"]));
        }
    }
    for item in items {
        let (value, seen) = (text(&item["value"]), seen_by(item));
        let new = seen.iter().map(|seen| {
            let (now, key) = (number(&seen["connections"]), (value.clone(), text(&seen["kri"])));
            counted.get(&key).filter(|before| **before <= now).map_or(now, |before| now - before)
        });
        item["new"] = new.sum::<u64>().into();
    }
}

/// Says what the counts lack.
fn talk(proxies: &Value) {
    let all = proxies.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        terminal::warn("there is no zone ingress or zone egress to ask");
    }
    for proxy in all {
        let (kind, name) = (text(&proxy["type"]), text(&proxy["name"]));
        let error = text(&proxy["error"]);
        if !error.is_empty() {
            // Most reasons name the proxy themselves.
            let named = error.starts_with(&kind);
            let reason = if named { error } else { format!("{kind} {name:?}: {error}") };
            terminal::warn(&format!("no counts: {reason}"));
        }
        let unknown = number(&proxy["unknown"]);
        if unknown > 0 {
            terminal::warn(&format!(
                "{kind} {name:?} rejected {unknown} connections with an unknown server name"
            ));
        }
    }
}
