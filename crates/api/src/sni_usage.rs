//! Values of SNI that are asked for, as zone proxies count them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use admission::ControlPlaneRole;
use axum::response::Response;
use contract::{
    pages::Listing,
    sni::{AskedProxy, SeenBy, SniDestination, SniUsage, UsageList},
};
use resources::{Kind, Resource, Spec, labels, naming::system};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    AdminView, Error, Inspect,
    access::VIEW_STATS,
    call::{Call, with_revision},
    inspect::flag,
    json,
    list::Paging,
    route,
    snis::{self, ListedSni},
};

/// Longest time a zone proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time all of them may take together; those whose turn has not come by then are not asked.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(15);
/// Number of zone proxies that are asked at a time.
const AT_ONCE: usize = 16;

/// Answers of zone proxies.
#[derive(Debug, Default)]
struct SniAnswers {
    proxies: Vec<AskedProxy>,
    /// By what a value is counted under, then by proxy.
    values: HashMap<String, Vec<SeenBy>>,
}

/// Answer of one of them.
#[derive(Debug, Default)]
struct UsageReport {
    uptime: Option<u64>,
    unknown: Option<u64>,
    /// Connections and those that are open, by what they are counted under.
    counts: HashMap<String, (u64, u64)>,
}

/// The answer is made of statistics and of services.
pub fn check_access(call: &Call) -> Result<(), Error> {
    VIEW_STATS.check(call)?;
    call.check_mesh()?;
    snis::KINDS.into_iter().try_for_each(|kind| call.check_access(kind))
}

/// `GET /meshes/{mesh}/_sni-usage`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let seen = ask(&call)?.await;
    route::aside(call, move |call| page(call, seen)).await
}

/// Asks all zone proxies of this control plane: those of its zone, or of all zones on a global one.
fn ask(call: &Call) -> Result<impl Future<Output = SniAnswers> + use<>, Error> {
    let snapshot = call.snapshot()?;
    let deadline = Instant::now() + PATIENCE_WITH_ALL;
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut asked = JoinSet::new();
    let proxies = [Kind::ZoneIngress, Kind::ZoneEgress].into_iter().flat_map(|kind| snapshot.of_kind(kind));
    // Those of other zones are asked there.
    for proxy in proxies.filter(|proxy| proxy.label(labels::ORIGIN) != Some(labels::ORIGIN_GLOBAL)) {
        let proxy = proxy.clone();
        let turns = turns.clone();
        let inspect = call.context.inspect.clone();
        asked.spawn(async move {
            let said = timeout_at(deadline, async {
                let _turn = turns.acquire_owned().await;
                question(&*inspect, &proxy).await
            });
            let said = said.await.unwrap_or_else(|_| {
                Err(format!("{} was not asked: the others took {PATIENCE_WITH_ALL:?}", proxy.key))
            });
            (proxy, said)
        });
    }
    let here = match call.context.registrar.mode() {
        ControlPlaneRole::Zone { name, .. } => name.clone(),
        ControlPlaneRole::Global => String::new(),
    };
    Ok(async move {
        let mut seen = SniAnswers::default();
        while let Some(answer) = asked.join_next().await {
            if let Ok((proxy, said)) = answer {
                seen.add(&proxy, &here, said);
            }
        }
        seen.settle();
        seen
    })
}

async fn question(inspect: &dyn Inspect, proxy: &Resource) -> Result<UsageReport, String> {
    let late = |_| format!("{} did not answer within {PATIENCE:?}", proxy.key);
    let answer = timeout(PATIENCE, inspect.admin(&proxy.key, AdminView::SniUsage)).await.map_err(late)?;
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(UsageReport::read(&String::from_utf8_lossy(&answer.body), port(proxy)))
}

/// Port at which a zone proxy takes connections.
fn port(proxy: &Resource) -> Option<u32> {
    match &proxy.spec {
        Spec::ZoneIngress(ingress) => ingress.networking.as_ref().map(|networking| networking.port),
        Spec::ZoneEgress(egress) => egress.networking.as_ref().map(|networking| networking.port),
        _ => None,
    }
}

impl UsageReport {
    /// Reads statistics of Envoy, of which there may be more than what is counted by server name.
    fn read(text: &str, port: Option<u32>) -> UsageReport {
        let mut said = UsageReport::default();
        // Its listener is named after the port, in either scheme of names.
        let unknown = port.map(|port| format!("_{port}.no_filter_chain_match"));
        for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
            let Ok(value) = value.parse::<u64>() else { continue };
            let counted = |name: &str, end: &str| {
                let under = name.strip_suffix(end)?;
                under.starts_with(system::SNI).then(|| under.to_owned())
            };
            if name == "server.uptime" {
                said.uptime = Some(value);
            } else if unknown.as_deref().is_some_and(|end| name.ends_with(end)) {
                said.unknown = Some(said.unknown.unwrap_or(0).saturating_add(value));
            } else if let Some(under) = counted(name, ".rbac.shadow_allowed") {
                said.counts.entry(under).or_default().0 = value;
            } else if let Some(under) =
                name.strip_prefix("connection_limit.").and_then(|name| counted(name, ".active_connections"))
            {
                said.counts.entry(under).or_default().1 = value;
            }
        }
        said
    }
}

impl SniAnswers {
    /// `here`: the zone of proxies that do not say theirs.
    fn add(&mut self, proxy: &Resource, here: &str, said: Result<UsageReport, String>) {
        let kri = proxy.kri("").map(|kri| kri.to_string()).unwrap_or_default();
        let (said, error) = match said {
            Ok(said) => (said, None),
            Err(error) => (UsageReport::default(), Some(error)),
        };
        for (under, (connections, active)) in said.counts {
            self.values.entry(under).or_default().push(SeenBy { kri: kri.clone(), connections, active });
        }
        self.proxies.push(AskedProxy {
            kri,
            kind: proxy.kind().name().to_owned(),
            name: proxy.display_name().to_owned(),
            zone: proxy.label(labels::ZONE).unwrap_or(here).to_owned(),
            uptime_seconds: said.uptime,
            unknown: error.is_none().then(|| said.unknown.unwrap_or(0)),
            error,
        });
    }

    /// Answers come in any order.
    fn settle(&mut self) {
        self.proxies.sort_by(|one, other| one.kri.cmp(&other.kri));
        for seen in self.values.values_mut() {
            seen.sort_by(|one, other| one.kri.cmp(&other.kri));
        }
    }

    fn usage(&self, value: &str, destinations: Vec<SniDestination>) -> SniUsage {
        let seen_by = self.values.get(&system::sni(value)).cloned().unwrap_or_default();
        SniUsage {
            value: value.to_owned(),
            destinations,
            connections: seen_by.iter().map(|seen| seen.connections).sum(),
            active: seen_by.iter().map(|seen| seen.active).sum(),
            seen_by,
        }
    }
}

/// The answer, from what zone proxies said.
fn page(call: &Call, seen: SniAnswers) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let mesh = call.mesh(&snapshot)?;
    let paging = Paging::read(call)?;
    let dialled = match call.query("dialled") {
        Some(_) => Some(flag(call, "dialled", false)?),
        None => None,
    };
    let wanted = |destinations: &[SniDestination]| {
        dialled.is_none_or(|dialled| destinations.iter().any(|it| it.dialled) == dialled)
    };
    let known = snis::known(call, &snapshot, mesh).into_iter().filter(|(_, all)| wanted(all));
    let mesh = call.param("mesh");
    let placed = known.map(|(value, destinations)| ListedSni { mesh, value, destinations });
    let page = paging.cut(call, placed, |placed| seen.usage(&placed.value, placed.destinations.clone()));
    let Listing { total, items, next } = page;
    let answer = UsageList { total, items, next, proxies: seen.proxies };
    Ok(with_revision(json::ok(&answer), &snapshot))
}
