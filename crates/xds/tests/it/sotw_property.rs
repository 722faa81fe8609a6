//! The property of delta streams, for proxies that get the state of the world and refuse nothing.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use proptest::prelude::*;
use xds::{
    Action, SyncState, Target, Type,
    message::{Node, Request, Response},
    sotw::Stream,
};

use crate::{
    property::{World, target, worlds},
    proxy::{is, words},
};

#[derive(Debug, Clone)]
enum Step {
    Change(World),
    ProxyReads,
    ServerReads,
    Reconnect,
}

#[derive(Default)]
struct Held {
    bodies: BTreeMap<String, String>,
    names: BTreeSet<String>,
    version: String,
    nonce: String,
    asked: bool,
}

#[derive(Default)]
struct Line {
    stream: Stream,
    has_target: bool,
    target: Arc<Target>,
    held: [Held; Type::ALL.len()],
    inbox: VecDeque<Response>,
    outbox: VecDeque<Request>,
    in_flight: BTreeSet<String>,
    received: usize,
}

impl Line {
    fn request(&mut self, kind: Type) {
        let held = &mut self.held[kind as usize];
        held.asked = true;
        self.outbox.push_back(Request {
            version_info: held.version.clone(),
            node: Some(Node { id: "default.web".into(), ..Node::default() }),
            resource_names: held.names.iter().cloned().collect(),
            type_url: kind.url().into(),
            response_nonce: held.nonce.clone(),
            error_detail: None,
        });
    }

    fn connect(&mut self) {
        (self.stream, self.has_target, self.received) = (Stream::new(), false, 0);
        self.inbox.clear();
        self.outbox.clear();
        self.in_flight.clear();
        for kind in Type::ALL {
            self.held[kind as usize].nonce.clear();
            if kind == Type::Cluster || self.held[kind as usize].asked {
                self.request(kind);
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change(world) => {
                self.target = Arc::new(target(&world));
                if self.has_target {
                    let actions = self.stream.set_target(self.target.clone());
                    self.take(actions);
                }
            }
            Step::ProxyReads => self.proxy_reads(),
            Step::ServerReads => self.server_reads(),
            Step::Reconnect => self.connect(),
        }
    }

    fn server_reads(&mut self) {
        let Some(request) = self.outbox.pop_front() else { return };
        let actions = self.stream.on_request(request);
        self.take(actions);
        if !std::mem::replace(&mut self.has_target, true) {
            let actions = self.stream.set_target(self.target.clone());
            self.take(actions);
        }
    }

    fn take(&mut self, actions: Vec<Action<Response>>) {
        for action in actions {
            match action {
                Action::Send(response) => {
                    let url = response.type_url.clone();
                    assert!(self.in_flight.insert(url), "a second response is in flight: {response:?}");
                    self.inbox.push_back(response);
                }
                Action::Acked { kind, .. } => assert!(self.in_flight.remove(kind.url())),
                // Names that cross a response are sent again with its acknowledgement.
                Action::Ignored { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn proxy_reads(&mut self) {
        let Some(response) = self.inbox.pop_front() else { return };
        let kind = Type::by_url(&response.type_url).unwrap();
        self.received += response.resources.len();
        let bodies =
            response.decoded().unwrap().into_iter().map(|any| String::from_utf8(any.value.to_vec()).unwrap());
        let bodies: BTreeMap<String, String> = bodies.map(|b| (words(&b, "name")[0].to_owned(), b)).collect();
        let held = &mut self.held[kind as usize];
        (held.version, held.nonce) = (response.version_info, response.nonce);
        if matches!(kind, Type::Cluster | Type::Listener) {
            held.bodies = bodies;
        } else {
            // What is left out of such a response stays as it is.
            let names = &held.names;
            held.bodies.extend(bodies.into_iter().filter(|(name, _)| names.contains(name)));
        }
        self.check_uses();
        self.request(kind);
        self.subscribe();
    }

    fn subscribe(&mut self) {
        let clusters = self.held[Type::Cluster as usize].bodies.iter().filter(|(_, body)| is(body, "eds"));
        let endpoints: BTreeSet<String> = clusters.map(|(name, _)| name.clone()).collect();
        let listeners = || self.held[Type::Listener as usize].bodies.values();
        let of = |key: &str| listeners().flat_map(|body| words(body, key)).map(str::to_owned).collect();
        let wanted =
            [(Type::Endpoint, endpoints), (Type::Route, of("routes")), (Type::Secret, of("secrets"))];
        for (kind, names) in wanted {
            let held = &mut self.held[kind as usize];
            held.bodies.retain(|name, _| names.contains(name));
            if held.names != names {
                held.names = names;
                self.request(kind);
            }
        }
        let endpoints = &self.held[Type::Endpoint as usize];
        let ready = endpoints.names.iter().all(|name| endpoints.bodies.contains_key(name));
        if ready && !self.held[Type::Listener as usize].asked {
            self.request(Type::Listener);
        }
    }

    fn check_uses(&self) {
        let clusters = &self.held[Type::Cluster as usize].bodies;
        for (listener, body) in &self.held[Type::Listener as usize].bodies {
            for cluster in words(body, "uses") {
                assert!(clusters.contains_key(cluster), "{listener} uses {cluster}, which is not there");
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.inbox.is_empty() && self.outbox.is_empty() {
                return;
            }
            self.step(Step::ProxyReads);
            self.step(Step::ServerReads);
        }
        panic!("the conversation does not end");
    }

    fn check(&self) {
        for kind in Type::ALL {
            let held = &self.held[kind as usize];
            let all = matches!(kind, Type::Cluster | Type::Listener);
            let wanted = self.target.of(kind).values().filter(|r| all || held.names.contains(&*r.name));
            let wanted: BTreeMap<String, String> = wanted
                .map(|resource| {
                    (resource.name.to_string(), String::from_utf8(resource.body().to_vec()).unwrap())
                })
                .collect();
            assert_eq!(held.bodies, wanted, "{kind:?}");
        }
        for status in self.stream.status() {
            assert_ne!(status.state(), SyncState::Pending, "{:?}", status.kind);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_proxy_of_the_state_of_the_world_ends_up_with_its_target(steps in prop::collection::vec(prop_oneof![
        2 => worlds().prop_map(Step::Change),
        6 => Just(Step::ProxyReads),
        6 => Just(Step::ServerReads),
    ], 0..60)) {
        let mut line = Line::default();
        line.connect();
        steps.into_iter().for_each(|step| line.step(step));
        line.settle();
        line.check();

        line.step(Step::Reconnect);
        line.settle();
        line.check();
        // A response may have been left out because only a name went away; now every version is the last one.
        line.step(Step::Reconnect);
        line.settle();
        prop_assert_eq!(line.received, 0, "a proxy that has everything got something");
    }
}
