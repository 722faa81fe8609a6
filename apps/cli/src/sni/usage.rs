//! `sni usage`: which server names are still asked for.

use std::{collections::HashMap, thread};

use clap::Args;
use contract::sni::{AskedProxy, SniUsage, UsageList};
use resources::duration::GoDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, line, lines},
    cli::Global,
    client::{ApiClient, query_value, read_as, segment},
    config::ClientSettings,
    document::{self, overwrite},
    failure::Result,
    output::{self, TableFormat},
    pages::PagedList,
    terminal,
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

/// A value, and the connections since it was asked for first.
struct Row {
    usage: SniUsage,
    new: u64,
}

const COLUMNS: [Column<Row>; 5] = [
    ("SNI", |row| line(&row.usage.value)),
    ("DESTINATION", |row| lines(row.usage.destinations.iter().map(|one| &one.kri), ",")),
    ("DIALLED", |row| if is_dialled(&row.usage) { "yes" } else { "no" }.to_owned()),
    ("CONNECTIONS", |row| row.usage.connections.to_string()),
    ("OPEN", |row| row.usage.active.to_string()),
];
const NEW: Column<Row> = ("NEW", |row| row.new.to_string());
const SEEN_BY: Column<Row> = ("SEEN BY", |row| lines(row.usage.seen_by.iter().map(|one| &one.kri), ","));

fn is_dialled(usage: &SniUsage) -> bool {
    usage.destinations.iter().any(|one| one.dialled)
}

/// One look at the counts.
struct UsageSample {
    sent: Vec<Value>,
    read: Vec<SniUsage>,
    sent_proxies: Value,
    proxies: Vec<AskedProxy>,
}

/// The asked proxies as they were sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SentProxies {
    proxies: Value,
}

impl Usage {
    pub fn run(&self, global: &Global) -> Result<()> {
        let client = ClientSettings::load(global)?.client()?;
        let before = match self.over.and_then(GoDuration::to_std) {
            Some(over) => {
                let counted = self.ask(&client)?;
                thread::sleep(over);
                Some(Connections::of(&counted.read))
            }
            None => None,
        };
        let UsageSample { mut sent, read, sent_proxies, proxies } = self.ask(&client)?;
        let mut rows = Vec::new();
        for (usage, sent) in read.into_iter().zip(&mut sent) {
            let new = before.as_ref().map(|before| before.until(&usage));
            if let Some(new) = new {
                overwrite(sent, &json!({ "new": new }));
            }
            rows.push(Row { usage, new: new.unwrap_or(0) });
        }
        talk(&proxies);
        let answer = json!({ "items": sent, "proxies": sent_proxies });
        let table = || {
            let columns: Vec<Column<Row>> =
                COLUMNS.into_iter().chain(before.as_ref().map(|_| NEW)).chain([SEEN_BY]).collect();
            let (titles, rows) = cell::grid(&columns, &rows);
            output::table(&titles, rows)
        };
        Ok(terminal::data(&self.format.render(&answer, table))?)
    }

    fn ask(&self, client: &ApiClient) -> Result<UsageSample> {
        let value = self.value.as_ref().map(|value| format!("&value={}", query_value(value)));
        let old = if self.old { "&dialled=false" } else { "" };
        let filters = format!("{}{old}", value.unwrap_or_default());
        let path = format!("/meshes/{}/_sni-usage", segment(&self.mesh));
        let list = PagedList::of(&path, &filters);
        let found = list.all(client)?;
        let read = found.read(&list.attempted)?;
        let last: UsageList = read_as(&found.rest, &list.attempted)?;
        let SentProxies { proxies: sent_proxies } = document::parts(&found.rest);
        Ok(UsageSample { sent: found.items, read, sent_proxies, proxies: last.proxies })
    }
}

/// Connections by value and proxy.
struct Connections(HashMap<(String, String), u64>);

impl Connections {
    fn of(usages: &[SniUsage]) -> Connections {
        let mut counted = HashMap::new();
        for usage in usages {
            for seen in &usage.seen_by {
                counted.insert((usage.value.clone(), seen.kri.clone()), seen.connections);
            }
        }
        Connections(counted)
    }

    /// Number of connections that came since. A proxy that started again meanwhile counts from nothing.
    fn until(&self, usage: &SniUsage) -> u64 {
        let new = usage.seen_by.iter().map(|seen| {
            let before = self.0.get(&(usage.value.clone(), seen.kri.clone()));
            let now = seen.connections;
            before.filter(|before| **before <= now).map_or(now, |before| now - before)
        });
        new.sum()
    }
}

/// Says what the counts lack.
fn talk(proxies: &[AskedProxy]) {
    if proxies.is_empty() {
        terminal::warn("there is no zone ingress or zone egress to ask");
    }
    for proxy in proxies {
        let kind = line(&proxy.kind);
        let name = line(&proxy.name);
        if let Some(error) = &proxy.error {
            let error = line(error);
            // Most reasons name the proxy themselves.
            let named = error.starts_with(&kind);
            let reason = if named { error } else { format!("{kind} {name:?}: {error}") };
            terminal::warn(&format!("no counts: {reason}"));
        }
        let unknown = proxy.unknown.unwrap_or(0);
        if unknown > 0 {
            terminal::warn(&format!(
                "{kind} {name:?} rejected {unknown} connections with an unknown server name"
            ));
        }
    }
}
