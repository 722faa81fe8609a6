//! `get -w`: reads a list again and again and shows what changed.

use std::{collections::BTreeMap, thread, time::Duration};

use contract::{lenient::read_partly, resource::Metadata};
use serde_json::{Value, json};

use super::{Get, columns};
use crate::{
    client::ApiClient,
    failure::{Failure, Result},
    output::{self, OutputFormat},
    pages::ListedItems,
    terminal,
    types::Type,
};

/// An interval of zero must not keep the control plane busy.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

type KnownItems = BTreeMap<(String, String), Value>;

/// Runs until interrupted. The first look must succeed; later ones are tried again when they fail.
pub fn run(get: &Get, kind: &Type, name: Option<&str>, client: &ApiClient) -> Result<()> {
    let first = get.look(kind, name, client)?;
    let mut revision = first.revision.clone();
    let mut seen = index(first);
    let mut header = true;
    let added: Vec<(&str, &Value)> = seen.values().map(|item| ("ADDED", item)).collect();
    show(get, kind, &added, &mut header)?;
    let mut connected = true;
    loop {
        thread::sleep(get.interval.max(SHORTEST_PAUSE));
        let found = match get.look(kind, name, client) {
            Ok(found) => found,
            Err(failure) => {
                if connected {
                    terminal::warn(&format!("{failure}\nwatching goes on when the control plane is back"));
                }
                connected = false;
                continue;
            }
        };
        if !connected {
            terminal::talk("the control plane is back");
            connected = true;
        }
        if found.revision.is_some() && found.revision == revision {
            continue;
        }
        revision = found.revision.clone();
        let now = index(found);
        show(get, kind, &changes(&seen, &now), &mut header)?;
        seen = now;
    }
}

fn index(found: ListedItems) -> KnownItems {
    let keyed = |item: Value| {
        let Metadata { mesh, name, .. } = read_partly(&item);
        ((mesh, name), item)
    };
    found.items.into_iter().map(keyed).collect()
}

fn changes<'a>(before: &'a KnownItems, now: &'a KnownItems) -> Vec<(&'static str, &'a Value)> {
    let gone = before.iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, item)| ("DELETED", item));
    let come = now.iter().filter_map(|(key, item)| match before.get(key) {
        None => Some(("ADDED", item)),
        Some(old) if old != item => Some(("MODIFIED", item)),
        Some(_) => None,
    });
    gone.chain(come).collect()
}

/// Lines of JSON, documents of YAML, or rows whose first column says what happened.
fn show(get: &Get, kind: &Type, changes: &[(&str, &Value)], header: &mut bool) -> Result<()> {
    let format = get.output.format;
    if changes.is_empty() {
        return Ok(());
    }
    let text: String = match format {
        OutputFormat::Json => changes
            .iter()
            .map(|(event, item)| format!("{}\n", json!({ "event": event, "object": item })))
            .collect(),
        OutputFormat::Yaml => changes
            .iter()
            .map(|(event, item)| format!("---\n{}", output::yaml(&json!({ "event": event, "object": item }))))
            .collect(),
        OutputFormat::Name => changes
            .iter()
            .map(|(event, item)| format!("{event} {}\n", columns::name_of(kind, item, get.all_meshes)))
            .collect(),
        OutputFormat::Table | OutputFormat::Wide => {
            let columns::Cells { titles, rows } =
                columns::cells(kind, changes.iter().map(|(_, item)| *item), format);
            let titles: Vec<&str> = std::iter::once("EVENT").chain(titles).collect();
            let rows = changes.iter().zip(rows).map(|((event, _), mut row)| {
                row.insert(0, (*event).to_owned());
                row
            });
            let text: String = output::table(&titles, rows);
            let skipped = usize::from(!*header);
            *header = false;
            text.lines().skip(skipped).map(|line| format!("{line}\n")).collect()
        }
    };
    terminal::data(&text).map_err(Failure::from)
}
