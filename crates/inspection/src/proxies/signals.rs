//! Rates and latencies of calls in a mesh.

use std::{cmp::Reverse, collections::BTreeMap};

use api::inspect::signals::{SignalGroup, WantedSignals};
use contract::{
    observed::ReportingProxies,
    signals::{SignalClient, SignalItem, SignalList, SignalServer, TrafficRates},
};
use jiff::Timestamp;
use resources::labels;
use serving::observed::{
    Observations,
    signals::{EdgeClient, MeshSignals},
};
use signals::{Counter, Sample, TICK_SECONDS, Tick};
use topology::{DestinationId, MeshSnapshot, observed::destination_text};

/// The signals that are wanted, as of now.
pub fn of(
    mesh: &MeshSnapshot,
    observations: &Observations,
    (connected, reporting): (usize, usize),
    wanted: &WantedSignals,
    now: Timestamp,
) -> SignalList {
    let ticks = wanted.seconds.div_ceil(TICK_SECONDS);
    let is_here = wanted.zone.as_deref().is_none_or(|zone| zone == &*mesh.zone);
    let summed = observations.signals.read(&mesh.name, now, |signals, tick| {
        let window = Window { now: tick, ticks };
        let groups = if is_here { groups(signals, &window, wanted) } else { BTreeMap::new() };
        (groups, signals.edges.dropped().saturating_add(signals.inbounds.dropped()))
    });
    let (groups, dropped) = summed.unwrap_or_default();
    let mut items: Vec<(GroupKey, Group)> = groups.into_iter().collect();
    items.sort_by_cached_key(|(key, group)| (Reverse(group.busyness()), key.clone()));
    let total = items.len();
    let seconds = ticks * TICK_SECONDS;
    let page = items.into_iter().skip(wanted.offset).take(wanted.size);
    SignalList {
        seconds,
        total,
        items: page.map(|(key, group)| group.shown(key, &mesh.zone, seconds)).collect(),
        dropped,
        proxies: ReportingProxies { reporting, connected },
        zones: Vec::new(),
    }
}

/// The ticks that are asked for.
struct Window {
    now: Tick,
    ticks: Tick,
}

/// Identity of a sum: parts that are added up over are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    workload: Option<String>,
    identity: Option<String>,
    server: Option<String>,
}

/// Sum of edges.
#[derive(Debug, Default)]
struct Group {
    server: Option<SignalServer>,
    called: Sample,
    served: Option<Sample>,
}

impl Group {
    fn busyness(&self) -> u64 {
        let served = self.served.as_ref().map_or(0, |served| served.get(Counter::Requests));
        self.called.get(Counter::Requests).max(served)
    }

    fn shown(self, key: GroupKey, zone: &str, seconds: u32) -> SignalItem {
        let GroupKey { workload, identity, server: _ } = key;
        let client =
            workload.map(|workload| SignalClient { workload, identity: identity.unwrap_or_default() });
        SignalItem {
            client,
            server: self.server,
            zone: zone.to_owned(),
            traffic: TrafficRates::of(&self.called, seconds),
            served: self.served.map(|served| TrafficRates::of(&served, seconds)),
        }
    }
}

fn groups(signals: &MeshSignals, window: &Window, wanted: &WantedSignals) -> BTreeMap<GroupKey, Group> {
    let mut groups: BTreeMap<GroupKey, Group> = BTreeMap::new();
    for edge in signals.edges.last(window.now, window.ticks) {
        let service = service(edge.to);
        let is_wanted = names_client(wanted, edge.from) && names_server(wanted, edge.to, &service);
        if !is_wanted {
            continue;
        }
        let EdgeClient { workload, identity } = edge.from;
        let (key, server) = match wanted.by {
            SignalGroup::Edges => {
                let id = destination_text(edge.to);
                let key = GroupKey {
                    workload: Some(workload.to_string()),
                    identity: Some(identity.to_string()),
                    server: Some(id.clone()),
                };
                (key, Some(SignalServer { id, name: service.name }))
            }
            SignalGroup::Services => {
                (GroupKey { server: Some(service.id.clone()), ..GroupKey::default() }, Some(service))
            }
            SignalGroup::Workloads => {
                (GroupKey { workload: Some(workload.to_string()), ..GroupKey::default() }, None)
            }
            SignalGroup::Zones => (GroupKey::default(), None),
        };
        let group = groups.entry(key).or_default();
        group.server = server;
        group.called.add(&edge.sample);
    }
    if wanted.by == SignalGroup::Workloads && wanted.server.is_none() {
        add_served(signals, window, wanted, &mut groups);
    }
    groups
}

/// Adds the calls that workloads got, as their own proxies counted them.
fn add_served(
    signals: &MeshSignals,
    window: &Window,
    wanted: &WantedSignals,
    groups: &mut BTreeMap<GroupKey, Group>,
) {
    for inbound in signals.inbounds.last(window.now, window.ticks) {
        if wanted.client.as_deref().is_some_and(|only| only != &**inbound.from) {
            continue;
        }
        let key = GroupKey { workload: Some(inbound.from.to_string()), ..GroupKey::default() };
        groups.entry(key).or_default().served.get_or_insert_default().add(&inbound.sample);
    }
}

fn names_client(wanted: &WantedSignals, client: &EdgeClient) -> bool {
    let only = wanted.client.as_deref();
    only.is_none_or(|only| only == &*client.workload || only == &*client.identity)
}

fn names_server(wanted: &WantedSignals, destination: &DestinationId, service: &SignalServer) -> bool {
    let only = wanted.server.as_deref();
    only.is_none_or(|only| {
        only == service.name || only == service.id || only == destination_text(destination)
    })
}

/// The service that a destination is a part of.
fn service(destination: &DestinationId) -> SignalServer {
    match destination {
        DestinationId::Port(kri) => {
            SignalServer { id: kri.without_section().to_string(), name: kri.name.clone() }
        }
        DestinationId::Tags(tags) => {
            let name = tags.get(labels::SERVICE).cloned();
            SignalServer { id: destination_text(destination), name: name.unwrap_or_default() }
        }
    }
}
