//! `proxy status`: for every proxy and kind of configuration, whether it runs what it was sent.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use clap::Args;
use contract::{overview::DataplaneOverview, resource::ShownResource, sync::ProxySyncState};
use jiff::Timestamp;
use resources::{
    Kind,
    kinds::dataplane_insight::{DiscoveryStatus, ResourceRejection, ResponseCounts},
    naming::classify,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, line, lines},
    client::{ApiClient, Proxy},
    failure::{CommandResult, Result},
    insight,
    inspect::{
        InMesh,
        dataplane::{ask, attempted},
    },
    output::{self, Output, OutputFormat},
    pages, parallel, terminal,
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

/// A type of configuration: its name, the word for one of its resources, and its counts in insights.
type Discovery = (&'static str, &'static str, fn(&DiscoveryStatus) -> &ResponseCounts);

const TYPES: [Discovery; 5] = [
    ("cds", "cluster", |of| &of.cds),
    ("eds", "endpoints", |of| &of.eds),
    ("lds", "listener", |of| &of.lds),
    ("rds", "routes", |of| &of.rds),
    ("sds", "secret", |of| &of.sds),
];

impl Status {
    pub fn run(&self, client: &ApiClient) -> Result<CommandResult> {
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
        let mut items: Vec<ProxyStatus> = overviews.iter().map(ProxyStatus::of).collect();
        catch_up(&mut items, client);
        let document = || match (&self.name, items.first()) {
            (Some(_), Some(one)) => json!(one),
            _ => json!({ "total": items.len(), "items": items, "next": null }),
        };
        let rendered = match self.output.format {
            OutputFormat::Json => output::json(&document()),
            OutputFormat::Yaml => output::yaml(&document()),
            OutputFormat::Name => {
                items.iter().map(|item| format!("dataplane/{}\n", line(&item.name))).collect()
            }
            format => {
                let (titles, rows) = cell::grid(&columns(format == OutputFormat::Wide), &items);
                output::table(&titles, rows) + &refusals(&items)
            }
        };
        terminal::data(&rendered)?;
        Ok(outcome(&items))
    }
}

fn outcome(items: &[ProxyStatus]) -> CommandResult {
    if items.iter().any(|item| item.state == Some(State::Rejected)) {
        CommandResult::No
    } else if items.iter().all(|item| item.state == Some(State::Synced)) {
        CommandResult::Done
    } else {
        CommandResult::Partly
    }
}

/// Status of one proxy. The same fields, whatever its insight says: programs may rely on them.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyStatus {
    pub mesh: String,
    pub name: String,
    pub kri: Option<String>,
    pub online: bool,
    /// The worst of its types; absent if nothing was sent.
    pub state: Option<State>,
    /// By the names in [`TYPES`].
    pub types: BTreeMap<&'static str, TypeStatus>,
    pub rejections: Vec<Rejection>,
    /// Scheme of its names in Envoy.
    pub names: String,
    pub last_update_time: Option<Timestamp>,
    /// Control plane that holds the newest connection.
    pub control_plane: String,
}

/// State of a proxy, or of one type of its configuration; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Of proxies only.
    Offline,
    Rejected,
    Stale,
    Synced,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Offline => "offline",
            State::Rejected => "rejected",
            State::Stale => "stale",
            State::Synced => "synced",
        }
    }
}

/// Status of one type of configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TypeStatus {
    /// Absent if nothing was sent.
    pub state: Option<State>,
    pub sent: u64,
    pub acknowledged: u64,
    pub rejected: u64,
}

/// Rejection by a proxy, with the resource to blame: as the control plane says, or by its name.
#[derive(Debug, Clone, Serialize)]
pub struct Rejection {
    pub r#type: String,
    pub name: String,
    pub kri: Option<String>,
    pub policies: Vec<String>,
    pub message: String,
    pub time: Option<Timestamp>,
}

impl ProxyStatus {
    /// As an overview shows it.
    pub fn of(overview: &Value) -> ProxyStatus {
        ProxyStatus::read(&ShownResource::read(overview))
    }

    pub fn read(overview: &ShownResource<DataplaneOverview>) -> ProxyStatus {
        let ShownResource { metadata, of } = overview;
        let insight = &of.dataplane_insight;
        let online = insight::is_online(&insight.subscriptions);
        let latest = insight::latest(&insight.subscriptions);
        let said = latest.and_then(|latest| latest.status.clone()).unwrap_or_default();
        let types: BTreeMap<_, _> = TYPES
            .iter()
            .map(|(kind, _, counts)| (*kind, TypeStatus::of(&said, kind, counts(&said))))
            .collect();
        let worst = types.values().filter_map(|of| of.state).min();
        ProxyStatus {
            mesh: metadata.mesh.clone(),
            name: metadata.name.clone(),
            kri: metadata.kri.clone(),
            online,
            state: if online { worst } else { Some(State::Offline) },
            types,
            rejections: said.rejections.iter().map(Rejection::of).collect(),
            names: insight::naming(&insight.metadata),
            last_update_time: said.last_update_time,
            control_plane: latest.map(|latest| line(&latest.control_plane_instance_id)).unwrap_or_default(),
        }
    }

    /// Notes that the proxy has acknowledged all that it was sent.
    fn acknowledge(&mut self) {
        self.state = Some(State::Synced);
        for of in self.types.values_mut().filter(|of| of.state == Some(State::Stale)) {
            of.state = Some(State::Synced);
            of.acknowledged = of.sent.saturating_sub(of.rejected);
        }
    }
}

impl TypeStatus {
    fn of(said: &DiscoveryStatus, kind: &str, counts: &ResponseCounts) -> TypeStatus {
        let ResponseCounts { responses_sent, responses_acknowledged, responses_rejected } = *counts;
        let state = if said.rejections.iter().any(|rejection| rejection.kind == kind) {
            Some(State::Rejected)
        } else if responses_sent == 0 {
            None
        } else if responses_sent > responses_acknowledged.saturating_add(responses_rejected) {
            Some(State::Stale)
        } else {
            Some(State::Synced)
        };
        TypeStatus {
            state,
            sent: responses_sent,
            acknowledged: responses_acknowledged,
            rejected: responses_rejected,
        }
    }
}

impl Rejection {
    fn of(said: &ResourceRejection) -> Rejection {
        let kri = said.kri.as_ref().map(ToString::to_string);
        Rejection {
            r#type: said.kind.clone(),
            name: said.name.clone(),
            kri: kri.or_else(|| classify(&line(&said.name)).kri().map(ToString::to_string)),
            policies: said.policies.iter().map(ToString::to_string).collect(),
            message: said.message.clone(),
            time: said.time,
        }
    }
}

/// Brings items up to date that are stale by the insights of their proxies, which are written now and then: the control
/// plane knows whether a proxy has acknowledged everything meanwhile. Of many, the first ones are asked for.
pub fn catch_up(items: &mut [ProxyStatus], client: &ApiClient) {
    let stale = items.iter_mut().filter(|item| item.state == Some(State::Stale)).take(MOST_ASKED);
    let stale: Vec<Mutex<&mut ProxyStatus>> = stale.map(Mutex::new).collect();
    let asked = parallel::map(&stale, |item| {
        let mut item = item.lock().unwrap_or_else(PoisonError::into_inner);
        if is_synced(&item, client) {
            item.acknowledge();
        }
        Ok(())
    });
    // Asking has no failure: without an answer, the insight is what is known.
    drop(asked);
}

fn is_synced(item: &ProxyStatus, client: &ApiClient) -> bool {
    // Kuma does not answer this.
    let reply = client.proxy_sync(&Proxy { mesh: &item.mesh, name: &item.name });
    let answer = reply.and_then(|reply| reply.read("could not find out whether the proxy follows"));
    answer.is_ok_and(|answer| answer.state == ProxySyncState::Synced)
}

fn columns(wide: bool) -> Vec<Column<ProxyStatus>> {
    let mut columns: Vec<Column<ProxyStatus>> = vec![
        ("MESH", |item| line(&item.mesh)),
        ("NAME", |item| line(&item.name)),
        ("STATUS", |item| if item.online { "Online" } else { "Offline" }.to_owned()),
        ("CDS", |item| state(item, "cds")),
        ("EDS", |item| state(item, "eds")),
        ("LDS", |item| state(item, "lds")),
        ("RDS", |item| state(item, "rds")),
        ("SDS", |item| state(item, "sds")),
        ("LAST UPDATED AGO", |item| cell::ago(item.last_update_time)),
    ];
    if wide {
        columns.extend::<[Column<ProxyStatus>; 5]>([
            ("SENT", |item| total(item, |of| of.sent)),
            ("ACKNOWLEDGED", |item| total(item, |of| of.acknowledged)),
            ("REJECTED", |item| total(item, |of| of.rejected)),
            ("NAMES", |item| line(&item.names)),
            ("CONTROL PLANE", |item| line(&item.control_plane)),
        ]);
    }
    columns
}

/// Of a proxy that is offline nothing is known.
fn state(item: &ProxyStatus, kind: &str) -> String {
    let known = item.types.get(kind).filter(|_| item.online).and_then(|of| of.state);
    known.map(State::name).unwrap_or_default().to_owned()
}

fn total(item: &ProxyStatus, count: fn(&TypeStatus) -> u64) -> String {
    item.types.values().map(count).fold(0, u64::saturating_add).to_string()
}

/// One paragraph per refusal: Envoy's words are too long for a column.
fn refusals(items: &[ProxyStatus]) -> String {
    let mut out = String::new();
    for item in items.iter().filter(|item| item.online) {
        for rejection in &item.rejections {
            let known = TYPES.iter().find(|(known, ..)| *known == line(&rejection.r#type));
            let noun = known.map_or("resource", |(_, noun, _)| noun);
            let blame = rejection.kri.as_deref().map(|kri| format!(", which comes from {}", line(kri)));
            out.push_str(&format!(
                "\n{} rejected {noun} {}{}:\n",
                line(&item.name),
                line(&rejection.name),
                blame.unwrap_or_default()
            ));
            for line in rejection.message.lines() {
                out.push_str(&format!("  {line}\n"));
            }
            if !rejection.policies.is_empty() {
                out.push_str(&format!("  policies in it: {}\n", lines(&rejection.policies, ", ")));
            }
        }
    }
    out
}
