//! Whatever happens in whatever order, the proxy ends up with what it should have, and never points
//! to what is not there on the way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use proptest::prelude::*;
use xds::{
    Action, Encoded, SyncState, Target, Type,
    delta::Stream,
    message::{DeltaRequest, DeltaResponse},
};
use xxhash_rust::xxh3::xxh3_128;

use crate::proxy::{SimulatedEnvoy, is, words};

/// A cluster with endpoints of its own when `eds`; revision 0 of anything is refused by the proxy.
#[derive(Debug, Clone)]
pub struct ClusterState {
    eds: bool,
    cluster: u8,
    endpoints: u8,
}

/// A listener, with a route when it has a revision for one; both use services by index.
#[derive(Debug, Clone)]
pub struct Entry {
    rev: u8,
    uses: Vec<usize>,
    route: Option<u8>,
    secret: Option<u8>,
}

#[derive(Debug, Clone)]
pub struct World {
    services: Vec<Option<ClusterState>>,
    entries: Vec<Option<Entry>>,
}

#[derive(Debug, Clone)]
enum Step {
    Change(World),
    ProxyReads,
    ServerReads,
    Reconnect,
    Mute(bool),
}

pub fn worlds() -> impl Strategy<Value = World> {
    let service = (any::<bool>(), 0..8u8, 0..8u8);
    let service = service.prop_map(|(eds, cluster, endpoints)| ClusterState { eds, cluster, endpoints });
    let uses = prop::collection::vec(0..5usize, 0..3);
    let entry = (0..8u8, uses, prop::option::of(0..8u8), prop::option::of(0..8u8));
    let entry = entry.prop_map(|(rev, uses, route, secret)| Entry { rev, uses, route, secret });
    let services = prop::collection::vec(prop::option::weighted(0.7, service), 5);
    let entries = prop::collection::vec(prop::option::weighted(0.7, entry), 3);
    (services, entries).prop_map(|(services, entries)| World { services, entries })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => worlds().prop_map(Step::Change),
        6 => Just(Step::ProxyReads),
        6 => Just(Step::ServerReads),
        1 => Just(Step::Reconnect),
        1 => any::<bool>().prop_map(Step::Mute),
    ];
    prop::collection::vec(step, 0..60)
}

fn insert(target: &mut Target, kind: Type, name: &str, rev: u8, more: &str) {
    let fate = if rev == 0 { "bad" } else { "good" };
    // The largest fill a chunk by two, so that sets are cut in many ways.
    let padding = if rev == 7 { "#".repeat(40_000) } else { String::new() };
    let body = format!("name={name} rev={rev} {fate} {more} {padding}");
    let version = xxh3_128(body.as_bytes());
    let resource = Arc::new(Encoded::new(kind, name, version, body.as_bytes()));
    // What is called is shared between proxies, in parts that also overlap with the proxy's own.
    match kind {
        Type::Cluster | Type::Endpoint if name != "c0" || rev.is_multiple_of(2) => {
            Arc::make_mut(&mut target.shared).insert(kind, resource);
        }
        _ => target.insert(kind, resource),
    }
}

pub fn target(world: &World) -> Target {
    let mut target = Target::default();
    for (index, service) in world.services.iter().enumerate() {
        let Some(service) = service else { continue };
        let name = format!("c{index}");
        insert(
            &mut target,
            Type::Cluster,
            &name,
            service.cluster,
            if service.eds { "eds" } else { "static" },
        );
        if service.eds {
            insert(&mut target, Type::Endpoint, &name, service.endpoints, "");
        }
    }
    for (index, entry) in world.entries.iter().enumerate() {
        let Some(entry) = entry else { continue };
        let used = entry.uses.iter().filter(|service| world.services[**service].is_some());
        let uses =
            format!("uses={}", used.map(|service| format!("c{service}")).collect::<Vec<_>>().join(","));
        let mut more = uses.clone();
        if let Some(rev) = entry.route {
            insert(&mut target, Type::Route, &format!("r{index}"), rev, &uses);
            more = format!("{more} routes=r{index}");
        }
        if let Some(rev) = entry.secret {
            insert(&mut target, Type::Secret, &format!("s{index}"), rev, "");
            more = format!("{more} secrets=s{index}");
        }
        insert(&mut target, Type::Listener, &format!("l{index}"), entry.rev, &more);
    }
    target
}

/// A stream, a proxy, and what is between them.
struct Line {
    stream: Stream,
    target: Arc<Target>,
    proxy: SimulatedEnvoy,
    inbox: VecDeque<DeltaResponse>,
    in_flight: BTreeSet<String>,
    last_sent: BTreeMap<(Type, String), String>,
    refused: BTreeSet<(Type, String, String)>,
    has_target: bool,
}

impl Line {
    fn new() -> Line {
        let mut line = Line {
            stream: Stream::new(),
            target: Arc::default(),
            proxy: SimulatedEnvoy::default(),
            inbox: VecDeque::new(),
            in_flight: BTreeSet::new(),
            last_sent: BTreeMap::new(),
            refused: BTreeSet::new(),
            has_target: false,
        };
        line.proxy.connect();
        line
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change(world) => {
                self.target = Arc::new(target(&world));
                let known = &self.target;
                self.refused.retain(|(kind, name, _)| known.of(*kind).contains_key(name.as_str()));
                if self.has_target {
                    let actions = self.stream.set_target(self.target.clone());
                    self.take(actions, None);
                }
            }
            Step::ProxyReads => {
                if let Some(response) = self.inbox.pop_front() {
                    self.proxy.receive(response);
                }
            }
            Step::ServerReads => self.server_reads(),
            Step::Reconnect => {
                self.stream = Stream::new();
                self.has_target = false;
                self.inbox.clear();
                self.in_flight.clear();
                self.refused.clear();
                self.proxy.connect();
            }
            Step::Mute(mute) => self.proxy.mute = mute,
        }
    }

    fn server_reads(&mut self) {
        let Some(request) = self.proxy.outbox.pop_front() else { return };
        if !request.response_nonce.is_empty() {
            self.in_flight.remove(&request.type_url);
        }
        let actions = self.stream.on_request(request.clone());
        self.take(actions, Some(request));
        // A control plane knows the target of a proxy only after the proxy has said who it is.
        if !std::mem::replace(&mut self.has_target, true) {
            let actions = self.stream.set_target(self.target.clone());
            self.take(actions, None);
        }
    }

    fn take(&mut self, actions: Vec<Action<DeltaResponse>>, request: Option<DeltaRequest>) {
        for action in actions {
            match action {
                Action::Send(response) => self.sent(response),
                Action::Rejected { kind, names, .. } => {
                    for name in names {
                        let version = self.last_sent[&(kind, name.to_string())].clone();
                        self.refused.insert((kind, name.to_string(), version));
                    }
                }
                Action::Acked { .. } => {}
                Action::Ignored { reason } => panic!("{reason}: {request:?}"),
                Action::Close(error) => panic!("{error}: {request:?}"),
            }
        }
    }

    fn sent(&mut self, response: DeltaResponse) {
        let kind = Type::by_url(&response.type_url).unwrap();
        assert!(self.in_flight.insert(response.type_url.clone()), "a second {kind:?} response is in flight");
        for resource in &response.decoded().unwrap() {
            let body = &resource.resource.as_ref().unwrap().value;
            let bad = is(std::str::from_utf8(body).unwrap(), "bad");
            let key = (kind, resource.name.clone(), resource.version.clone());
            assert!(!bad || !self.refused.contains(&key), "{key:?} was refused and is sent again");
            self.last_sent.insert((kind, resource.name.clone()), resource.version.clone());
        }
        self.inbox.push_back(response);
    }

    /// Lets both sides talk until neither has anything to say.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.inbox.is_empty() && self.proxy.outbox.is_empty() {
                return;
            }
            self.step(Step::ProxyReads);
            self.step(Step::ServerReads);
        }
        panic!("the conversation does not end");
    }

    /// The proxy has exactly what it should have, except for what it refused.
    fn check(&self) {
        for kind in Type::ALL {
            let wanted: BTreeSet<&str> = match kind {
                Type::Cluster | Type::Listener => self.target.of(kind).keys().map(|name| &**name).collect(),
                _ => self.proxy.subscribed(kind).iter().map(String::as_str).collect(),
            };
            for name in &wanted {
                let Some(resource) = self.target.of(kind).get(name) else { continue };
                let body = resource.body();
                let body = std::str::from_utf8(&body).unwrap();
                if !is(body, "bad") && !self.proxy.is_orphan(kind, name) {
                    let held = self.proxy.bodies(kind).get(*name).map(String::as_str);
                    assert_eq!(held, Some(body), "{kind:?} {name}");
                }
            }
            for name in self.proxy.bodies(kind).keys() {
                let wanted = self.target.of(kind).contains_key(name.as_str());
                assert!(wanted || self.proxy.is_orphan(kind, name), "{kind:?} {name} should be gone");
            }
        }
        for name in self.proxy.warming() {
            let endpoints = self.target.of(Type::Endpoint).get(name.as_str());
            let bad = endpoints.is_none_or(|e| is(std::str::from_utf8(&e.body()).unwrap(), "bad"));
            assert!(bad || self.proxy.refused(Type::Cluster, name), "{name} waits for endpoints for ever");
        }
        for status in self.stream.status() {
            assert_ne!(status.state(), SyncState::Pending, "{:?}", status.kind);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_proxy_reaches_its_target_and_never_has_a_dangling_reference(steps in steps()) {
        let mut line = Line::new();
        steps.into_iter().for_each(|step| line.step(step));
        line.settle();
        line.check();

        line.step(Step::Reconnect);
        line.settle();
        line.check();
        let nothing_is_bad = Type::ALL.iter().all(|kind| {
            line.target.of(*kind).values().all(|resource| !is(std::str::from_utf8(&resource.body()).unwrap(), "bad"))
        });
        if nothing_is_bad {
            prop_assert_eq!(line.proxy.received, 0, "a proxy that has everything got something");
        }
    }
}

#[test]
fn the_proxy_of_the_property_reads_bodies() {
    assert_eq!(words("rev=1 good uses=c0,c1 routes=r0", "uses"), ["c0", "c1"]);
    assert!(words("rev=1 good uses= ", "uses").is_empty());
    assert!(is("rev=0 bad ", "bad") && !is("rev=0 good", "bad"));
}
