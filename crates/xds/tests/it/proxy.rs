//! A proxy that behaves like Envoy on a delta stream.
//!
//! The body of a resource says what it needs: `rev=1 eds`, `rev=2 uses=c0,c1 routes=r0 secrets=s0`,
//! and `bad` when the proxy is to refuse it. The proxy panics when a listener or route would point to
//! a cluster that is not usable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use xds::{
    Type,
    message::{DeltaRequest, DeltaResponse, Node, RpcStatus},
};

#[derive(Default)]
struct Held {
    bodies: BTreeMap<String, String>,
    /// Only what was acknowledged has a version to come back with.
    versions: BTreeMap<String, String>,
    subscribed: BTreeSet<String>,
    /// Names once refused: which of their versions is there depends on what came between.
    refused: BTreeSet<String>,
    /// Names the server knows nothing about.
    missing: BTreeSet<String>,
    /// Names taken from a response that was refused for others.
    unversioned: BTreeSet<String>,
    /// Unversioned names of an earlier stream: the protocol has no words to tell a server about them.
    orphans: BTreeSet<String>,
    asked: bool,
}

#[derive(Default)]
pub struct SimulatedEnvoy {
    held: [Held; Type::ALL.len()],
    /// Clusters that were replaced and wait for endpoints.
    warming: BTreeSet<String>,
    pub outbox: VecDeque<DeltaRequest>,
    /// Refuses the whole response without saying why, instead of naming the culprits and taking the rest.
    pub mute: bool,
    /// Resources received on this stream.
    pub received: usize,
    told_node: bool,
}

pub fn words<'a>(body: &'a str, key: &str) -> Vec<&'a str> {
    let list = body.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    list.map(|list| list.split(',').filter(|name| !name.is_empty()).collect()).unwrap_or_default()
}

pub fn is(body: &str, word: &str) -> bool {
    body.split(' ').any(|known| known == word)
}

impl SimulatedEnvoy {
    pub fn bodies(&self, kind: Type) -> &BTreeMap<String, String> {
        &self.held[kind as usize].bodies
    }

    pub fn refused(&self, kind: Type, name: &str) -> bool {
        self.held[kind as usize].refused.contains(name)
    }

    pub fn is_orphan(&self, kind: Type, name: &str) -> bool {
        self.held[kind as usize].orphans.contains(name)
    }

    pub fn subscribed(&self, kind: Type) -> &BTreeSet<String> {
        &self.held[kind as usize].subscribed
    }

    pub fn warming(&self) -> &BTreeSet<String> {
        &self.warming
    }

    pub fn asked(&self, kind: Type) -> bool {
        self.held[kind as usize].asked
    }

    fn request(&mut self, kind: Type, request: DeltaRequest) {
        let first = !std::mem::replace(&mut self.told_node, true);
        let node = first.then(|| Node { id: "default.web".into(), ..Node::default() });
        self.held[kind as usize].asked = true;
        self.outbox.push_back(DeltaRequest { node, type_url: kind.url().into(), ..request });
    }

    /// Opens a stream: asks for everything asked for before, and says what is there.
    pub fn connect(&mut self) {
        self.outbox.clear();
        // The server cannot know who waits for endpoints; Envoy's timeout ends it.
        self.warming.clear();
        (self.told_node, self.received) = (false, 0);
        for kind in Type::ALL {
            let held = &mut self.held[kind as usize];
            held.orphans.append(&mut held.unversioned);
            if kind == Type::Cluster || held.asked {
                let request = DeltaRequest {
                    resource_names_subscribe: held.subscribed.iter().cloned().collect(),
                    initial_resource_versions: held.versions.clone().into_iter().collect(),
                    ..DeltaRequest::default()
                };
                self.request(kind, request);
            }
        }
    }

    pub fn receive(&mut self, response: DeltaResponse) {
        let kind = Type::by_url(&response.type_url).unwrap();
        self.received += response.resources.len();
        let body = |resource: &xds::message::Resource| {
            String::from_utf8(resource.resource.as_ref().unwrap().value.to_vec()).unwrap()
        };
        let held = &self.held[kind as usize];
        // What is no longer subscribed when it arrives is ignored.
        let wanted =
            |name: &str| matches!(kind, Type::Cluster | Type::Listener) || held.subscribed.contains(name);
        let decoded = response.decoded().unwrap();
        let resources = decoded.iter().filter(|resource| wanted(&resource.name));
        let resources: Vec<_> = resources.map(|r| (r.name.clone(), r.version.clone(), body(r))).collect();
        let bad: Vec<&str> = resources.iter().filter(|r| is(&r.2, "bad")).map(|r| r.0.as_str()).collect();
        self.held[kind as usize].refused.extend(bad.iter().map(ToString::to_string));
        let mut ack = DeltaRequest { response_nonce: response.nonce, ..DeltaRequest::default() };
        if !bad.is_empty() {
            let named = bad.iter().map(|name| format!("{name}: is bad")).collect::<Vec<_>>().join(", ");
            let message = if self.mute { "malformed".to_owned() } else { format!("Error adding {named}") };
            ack.error_detail = Some(RpcStatus { code: 13, message });
        }
        if bad.is_empty() || !self.mute {
            for name in &response.removed_resources {
                self.remove(kind, name);
                self.held[kind as usize].missing.insert(name.clone());
            }
            for (name, version, body) in &resources {
                if !is(body, "bad") {
                    self.apply(kind, name, body);
                }
                let held = &mut self.held[kind as usize];
                if bad.is_empty() {
                    held.versions.insert(name.clone(), version.clone());
                    held.unversioned.remove(name);
                    held.orphans.remove(name);
                } else if !is(body, "bad") {
                    held.unversioned.insert(name.clone());
                }
            }
        }
        self.request(kind, ack);
        self.subscribe();
    }

    fn apply(&mut self, kind: Type, name: &str, body: &str) {
        self.held[kind as usize].missing.remove(name);
        let before = self.held[kind as usize].bodies.insert(name.to_owned(), body.to_owned());
        match kind {
            Type::Cluster if before.as_deref().is_some_and(|before| before != body) && is(body, "eds") => {
                self.warming.insert(name.to_owned());
            }
            Type::Endpoint => drop(self.warming.remove(name)),
            Type::Listener | Type::Route => {
                words(body, "uses").iter().for_each(|cluster| self.check(name, cluster))
            }
            _ => {}
        }
    }

    /// A cluster is usable when it is there and has got endpoints.
    fn check(&self, user: &str, cluster: &str) {
        let excused = |kind| self.refused(kind, cluster) || self.is_orphan(kind, cluster);
        if excused(Type::Cluster) || excused(Type::Endpoint) {
            return;
        }
        let body = self.bodies(Type::Cluster).get(cluster);
        let body = body.unwrap_or_else(|| panic!("{user} uses {cluster}, which is not there"));
        let ready = !is(body, "eds") || self.bodies(Type::Endpoint).contains_key(cluster);
        assert!(ready, "{user} uses {cluster}, which has no endpoints");
    }

    fn remove(&mut self, kind: Type, name: &str) {
        let held = &mut self.held[kind as usize];
        held.bodies.remove(name);
        held.versions.remove(name);
        held.unversioned.remove(name);
        held.orphans.remove(name);
        held.missing.remove(name);
        if kind == Type::Cluster {
            self.warming.remove(name);
            for user in [Type::Listener, Type::Route] {
                for (user_name, body) in self.bodies(user) {
                    let excused = self.refused(user, user_name) || self.is_orphan(user, user_name);
                    let used = words(body, "uses").contains(&name);
                    assert!(!used || excused, "{name} is removed while {user_name} uses it");
                }
            }
        }
    }

    /// Subscribes to what the resources at hand refer to, and to nothing else.
    fn subscribe(&mut self) {
        let clusters = self.bodies(Type::Cluster).iter().filter(|(_, body)| is(body, "eds"));
        let endpoints = clusters.map(|(name, _)| name.clone()).collect();
        let of = |key: &str| {
            let listeners = self.bodies(Type::Listener).values();
            listeners.flat_map(|body| words(body, key)).map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let wanted =
            [(Type::Endpoint, endpoints), (Type::Route, of("routes")), (Type::Secret, of("secrets"))];
        for (kind, wanted) in wanted {
            let held = &mut self.held[kind as usize];
            let added: Vec<String> = wanted.difference(&held.subscribed).cloned().collect();
            let removed: Vec<String> = held.subscribed.difference(&wanted).cloned().collect();
            held.subscribed = wanted;
            removed.iter().for_each(|name| self.remove(kind, name));
            if !added.is_empty() || !removed.is_empty() {
                let resource_names_subscribe = added;
                let resource_names_unsubscribe = removed;
                let change = DeltaRequest {
                    resource_names_subscribe,
                    resource_names_unsubscribe,
                    ..DeltaRequest::default()
                };
                self.request(kind, change);
            }
        }
        let waits = |name: &String| {
            let endpoints = &self.held[Type::Endpoint as usize];
            ![&endpoints.refused, &endpoints.missing].into_iter().any(|known| known.contains(name))
                && !endpoints.bodies.contains_key(name)
        };
        // Like Envoy: listeners are asked for when the first clusters are ready.
        if !self.asked(Type::Listener) && !self.subscribed(Type::Endpoint).iter().any(waits) {
            self.request(Type::Listener, DeltaRequest::default());
        }
    }
}
