//! `proxy status`: for every proxy and kind of configuration, whether it runs what it was sent.

use std::sync::{Mutex, PoisonError};

use clap::Args;
use resources::{Kind, naming::classify};
use serde_json::{Map, Value, json};

use crate::{
    cell::{self, Column, number, text},
    client::Client,
    failure::{Outcome, Result},
    insight,
    inspect::{
        InMesh,
        dataplane::{ask, attempted},
    },
    output::{self, Format, Output},
    pages, parallel, terminal,
    types::Type,
};

const MEANING: &str = "\
Of each kind of configuration (clusters CDS, endpoints EDS, listeners LDS, routes RDS, secrets SDS):
  synced    the proxy runs what it was sent
  stale     the proxy has not answered yet
  rejected  the proxy rejected something; the reason and the responsible resource are below the table
  -         nothing was sent, or the proxy is offline
Exit codes:
  0  everything is synced
  3  a proxy rejected something
  4  nothing is rejected, but something is stale or a proxy is offline";

/// Show whether proxies run what they were sent, and what they rejected
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct Status {
    /// Name of one proxy; all of the mesh without it
    #[arg(conflicts_with = "all_meshes")]
    name: Option<String>,
    #[command(flatten)]
    scope: InMesh,
    #[command(flatten)]
    output: Output,
}

/// So many proxies are asked for, whose insights say that they are stale.
const MOST_ASKED: usize = 200;

/// A kind of configuration: its field in insights and the word for one of its resources.
const TYPES: [(&str, &str); 5] =
    [("cds", "cluster"), ("eds", "endpoints"), ("lds", "listener"), ("rds", "routes"), ("sds", "secret")];

impl Status {
    pub fn run(&self, client: &Client) -> Result<Outcome> {
        let overviews = match &self.name {
            Some(name) => {
                let attempted = attempted(&self.scope.mesh, name);
                vec![ask(client, &self.scope.mesh, name, "_overview")?.json(&attempted)?]
            }
            None => {
                pages::all(client, &format!("{}/_overview", self.scope.collection(Kind::Dataplane)), "")?
                    .items
            }
        };
        let mut items: Vec<Value> = overviews.iter().map(status).collect();
        catch_up(&mut items, client);
        let document = || match (&self.name, items.first()) {
            (Some(_), Some(one)) => one.clone(),
            _ => json!({ "total": items.len(), "items": items, "next": null }),
        };
        let rendered = match self.output.format {
            Format::Json => output::json(&document()),
            Format::Yaml => output::yaml(&document()),
            Format::Name => items.iter().map(|item| format!("dataplane/{}\n", text(&item["name"]))).collect(),
            format => {
                let (titles, rows) = cell::grid(&columns(format == Format::Wide), &items);
                output::table(&titles, rows) + &refusals(&items)
            }
        };
        terminal::data(&rendered)?;
        Ok(outcome(&items))
    }
}

fn outcome(items: &[Value]) -> Outcome {
    if items.iter().any(|item| item["state"] == "rejected") {
        Outcome::No
    } else if items.iter().all(|item| item["state"] == "synced") {
        Outcome::Done
    } else {
        Outcome::Partly
    }
}

/// What is known about one proxy. The same fields, whatever its insight says: programs may rely on them.
pub fn status(overview: &Value) -> Value {
    let insight = &overview["dataplaneInsight"];
    let online = insight::is_online(insight);
    let said = &insight::latest(insight)["status"];
    let rejections: Vec<Value> = said["rejections"].as_array().into_iter().flatten().map(rejection).collect();
    let types: Map<String, Value> = TYPES
        .iter()
        .map(|(kind, _)| {
            let count = |of: &str| number(&said[*kind][of]);
            let (sent, acknowledged, rejected) =
                (count("responsesSent"), count("responsesAcknowledged"), count("responsesRejected"));
            let state = if rejections.iter().any(|rejection| rejection["type"] == *kind) {
                json!("rejected")
            } else if sent == 0 {
                Value::Null
            } else if sent > acknowledged + rejected {
                json!("stale")
            } else {
                json!("synced")
            };
            let counts =
                json!({ "state": state, "sent": sent, "acknowledged": acknowledged, "rejected": rejected });
            ((*kind).to_owned(), counts)
        })
        .collect();
    let has = |state: &str| types.values().any(|of| of["state"] == state);
    let worst = ["rejected", "stale", "synced"].into_iter().find(|state| has(state));
    let state = if online { worst } else { Some("offline") };
    json!({
        "mesh": overview["mesh"], "name": overview["name"], "kri": overview["kri"], "online": online,
        "state": state, "types": types, "rejections": rejections, "names": insight::naming(insight),
        "lastUpdateTime": said["lastUpdateTime"], "controlPlane": insight::control_plane(insight),
    })
}

/// Brings items up to date that are stale by the insights of their proxies, which are written now and then: the control
/// plane knows whether a proxy has acknowledged everything meanwhile. Of many, the first ones are asked for.
pub fn catch_up(items: &mut [Value], client: &Client) {
    let stale = items.iter_mut().filter(|item| item["state"] == "stale").take(MOST_ASKED);
    let stale: Vec<Mutex<&mut Value>> = stale.map(Mutex::new).collect();
    let asked = parallel::map(&stale, |item| {
        let mut item = item.lock().unwrap_or_else(PoisonError::into_inner);
        if is_synced(&item, client) {
            acknowledge(&mut item);
        }
        Ok(())
    });
    // Asking has no failure: without an answer, the insight is what is known.
    drop(asked);
}

fn is_synced(item: &Value, client: &Client) -> bool {
    let word = |field: &str| item[field].as_str().unwrap_or_default();
    let path = format!("{}/_sync", Type::of_kind(Kind::Dataplane).item(word("mesh"), word("name")));
    // Kuma does not answer this.
    let answer =
        client.get(&path).and_then(|answer| answer.json("could not find out whether the proxy follows"));
    answer.is_ok_and(|answer| answer["state"] == "synced")
}

/// Notes that a proxy has acknowledged all that it was sent.
fn acknowledge(item: &mut Value) {
    item["state"] = "synced".into();
    for of in item["types"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        if of["state"] == "stale" {
            of["state"] = "synced".into();
            of["acknowledged"] = number(&of["sent"]).saturating_sub(number(&of["rejected"])).into();
        }
    }
}

/// What a proxy refuses, with the resource to blame: as the control plane says, or by its name.
fn rejection(said: &Value) -> Value {
    let kri = match said["kri"].as_str() {
        Some(kri) if !kri.is_empty() => Some(kri.to_owned()),
        _ => classify(&text(&said["name"])).kri().map(ToString::to_string),
    };
    json!({
        "type": said["type"], "name": said["name"], "kri": kri,
        "policies": said["policies"].as_array().cloned().unwrap_or_default(),
        "message": said["message"], "time": said["time"],
    })
}

fn columns(wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("MESH", |item| text(&item["mesh"])),
        ("NAME", |item| text(&item["name"])),
        ("STATUS", |item| if item["online"] == true { "Online" } else { "Offline" }.to_owned()),
        ("CDS", |item| state(item, "cds")),
        ("EDS", |item| state(item, "eds")),
        ("LDS", |item| state(item, "lds")),
        ("RDS", |item| state(item, "rds")),
        ("SDS", |item| state(item, "sds")),
        ("LAST UPDATED AGO", |item| cell::since(&item["lastUpdateTime"])),
    ];
    if wide {
        columns.extend::<[Column; 5]>([
            ("SENT", |item| total(item, "sent")),
            ("ACKNOWLEDGED", |item| total(item, "acknowledged")),
            ("REJECTED", |item| total(item, "rejected")),
            ("NAMES", |item| text(&item["names"])),
            ("CONTROL PLANE", |item| text(&item["controlPlane"])),
        ]);
    }
    columns
}

/// Of a proxy that is offline nothing is known.
fn state(item: &Value, kind: &str) -> String {
    if item["online"] == true { text(&item["types"][kind]["state"]) } else { String::new() }
}

fn total(item: &Value, count: &str) -> String {
    TYPES.iter().map(|(kind, _)| number(&item["types"][*kind][count])).sum::<u64>().to_string()
}

/// One paragraph per refusal: Envoy's words are too long for a column.
fn refusals(items: &[Value]) -> String {
    let mut out = String::new();
    for item in items.iter().filter(|item| item["online"] == true) {
        for rejection in item["rejections"].as_array().into_iter().flatten() {
            let kind = text(&rejection["type"]);
            let noun = TYPES.iter().find(|(known, _)| *known == kind).map_or("resource", |(_, noun)| noun);
            let kri = text(&rejection["kri"]);
            let blame = if kri.is_empty() { kri } else { format!(", which comes from {kri}") };
            out.push_str(&format!(
                "\n{} rejected {noun} {}{blame}:\n",
                text(&item["name"]),
                text(&rejection["name"])
            ));
            for line in rejection["message"].as_str().unwrap_or_default().lines() {
                out.push_str(&format!("  {line}\n"));
            }
            let policies = cell::list(&rejection["policies"], text).replace(',', ", ");
            if !policies.is_empty() {
                out.push_str(&format!("  policies in it: {policies}\n"));
            }
        }
    }
    out
}
