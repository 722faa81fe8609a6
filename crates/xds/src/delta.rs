//! Incremental discovery: only differences travel, and the proxy says what it has when it connects.
//!
//! Per type at most one response is in flight; its answer is followed by one difference to the target
//! of that moment, so a slow proxy skips targets instead of queueing them.
//!
//! Order between types, so that nothing is used before it is there nor removed while it is used:
//!
//! ```text
//!   added, changed:  clusters ─ACK─▶ their endpoints ─ACK─▶ listeners ─ACK─▶ routes
//!   removed:         routes ─ACK─▶ listeners ─ACK─▶ clusters ─ACK─▶ endpoints, secrets
//! ```
//!
//! Routes may tell about listeners (an agent reads in one which hostnames there are), so they come after
//! listeners and go before them. Where listeners come and go at a time, the new ones do not wait for the old ones to
//! go: one may take over the address of another. For the same reason removals come first in a response, then changed
//! listeners, then new ones.

mod channel;

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use crate::{
    action::{self, Error, Status},
    encoded::Encoded,
    identify::StreamIdentity,
    message::{ControlPlane, DeltaRequest, DeltaResponse},
    nack_message,
    target::{Target, Type},
};

use channel::{Batch, Channel, Order, ProxyAnswer};

/// Work that a delta stream asks of its server.
pub type Action = action::Action<DeltaResponse>;

/// Limit of names per type that a proxy may subscribe to.
pub const MAX_NAMES: usize = 100_000;

/// State of a cluster whose endpoints are awaited: `Yes` if the proxy has the cluster of the target. A proxy
/// that rejected it keeps an older cluster of the same name, which may not use endpoint discovery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AwaitedEndpoints {
    Yes,
    No,
}

/// The server's side of one delta stream.
#[derive(Default)]
pub struct Stream {
    control_plane: Option<ControlPlane>,
    identity: StreamIdentity,
    target: Option<Arc<Target>>,
    channels: [Channel; Type::ALL.len()],
    /// Clusters the proxy took on this stream and whose endpoints it has still to ask for. Those it came
    /// with do not count: what it wants for them is in its first requests, or nowhere.
    /// Listeners wait for those that the proxy has as it should.
    unasked: HashMap<Arc<str>, AwaitedEndpoints>,
    /// Number of the `unasked` clusters that listeners wait for.
    awaited: usize,
    /// Clusters in flight that discover endpoints, unless the target changed meanwhile.
    discovering: Option<Vec<Arc<str>>>,
    last_nonce: u64,
    closed: bool,
}

impl Stream {
    pub fn new() -> Stream {
        Stream::default()
    }

    /// A stream whose responses name the control plane that sends them.
    pub fn identified_as(control_plane: impl Into<String>) -> Stream {
        let control_plane = Some(ControlPlane { identifier: control_plane.into() });
        Stream { control_plane, ..Stream::default() }
    }

    /// The id of the proxy, after its first request.
    pub fn node_id(&self) -> Option<&str> {
        self.identity.id()
    }

    /// Takes in a request. Nothing is sent before there is a target.
    pub fn on_request(&mut self, mut request: DeltaRequest) -> Vec<Action> {
        if self.closed {
            return Vec::new();
        }
        if let Some(error) = &mut request.error_detail {
            error.message = nack_message::own(&error.message);
        }
        if let Err(error) = self.identity.check(request.node.as_ref()) {
            return self.close(error);
        }
        let Some(kind) = Type::by_url(&request.type_url) else {
            return vec![Action::Ignored { reason: format!("unknown resource type {:?}", request.type_url) }];
        };
        let count = self.channel(kind).names_after(&request);
        if count > MAX_NAMES {
            return self.close(Error::TooManyNames { kind, count, limit: MAX_NAMES });
        }
        let mut actions = Vec::new();
        if !request.response_nonce.is_empty() {
            actions.push(self.on_answer(kind, &request));
        }
        let target = self.target.clone();
        self.channel(kind).subscribe(kind, &request, target.as_ref().map(|target| target.of(kind)));
        if kind == Type::Endpoint {
            request.resource_names_subscribe.iter().for_each(|name| self.asked(name));
            if self.channels[kind as usize].wants_everything() {
                (self.unasked, self.awaited) = (HashMap::new(), 0);
            }
        }
        self.advance(&mut actions);
        actions
    }

    /// Takes in what the proxy should have from now on.
    pub fn set_target(&mut self, target: Arc<Target>) -> Vec<Action> {
        if self.closed {
            return Vec::new();
        }
        let before = self.target.replace(target.clone());
        self.discovering = None;
        for kind in Type::ALL {
            let channel = &mut self.channels[kind as usize];
            let Some(before) = &before else {
                channel.review_everything(target.of(kind));
                continue;
            };
            let changed = target.changed(before, kind);
            channel.touch(&changed, target.of(kind));
            if matches!(kind, Type::Cluster | Type::Endpoint) && !self.unasked.is_empty() {
                changed.iter().for_each(|(name, _)| self.review_awaited(name));
            }
        }
        let mut actions = Vec::new();
        self.advance(&mut actions);
        actions
    }

    /// Sends what was refused once more: for complaints that may pass, such as an address in use.
    pub fn retry(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.closed {
            let target = self.target.clone();
            for kind in Type::ALL {
                self.channel(kind).forgive(target.as_ref().map(|target| target.of(kind)));
            }
            self.advance(&mut actions);
        }
        actions
    }

    /// Returns the status of every type.
    pub fn status(&self) -> Vec<Status> {
        let status = |kind: Type| {
            let target = self.target.as_ref().map(|target| target.of(kind));
            self.channels[kind as usize].status(kind, target)
        };
        Type::ALL.into_iter().map(status).collect()
    }

    /// Number of visits to names since the stream began; proves that cost follows change.
    pub fn visits(&self) -> u64 {
        self.channels.iter().map(Channel::visits).sum()
    }

    fn channel(&mut self, kind: Type) -> &mut Channel {
        &mut self.channels[kind as usize]
    }

    fn close(&mut self, error: Error) -> Vec<Action> {
        self.closed = true;
        vec![Action::Close(error)]
    }

    fn on_answer(&mut self, kind: Type, request: &DeltaRequest) -> Action {
        let nonce = request.response_nonce.clone();
        let target = self.target.clone();
        let target = target.as_ref().map(|target| target.of(kind));
        match self.channel(kind).answer(&nonce, request.error_detail.as_ref(), target) {
            ProxyAnswer::Stale => Action::Ignored { reason: format!("stale nonce {nonce:?} for {kind:?}") },
            ProxyAnswer::Rejected { sent, blamed } => {
                self.on_clusters(kind, &sent, false);
                let message = request.error_detail.as_ref().map(|e| e.message.clone()).unwrap_or_default();
                Action::Rejected { kind, nonce, names: blamed, message }
            }
            ProxyAnswer::Acked { sent, resources } => {
                self.on_clusters(kind, &sent, true);
                Action::Acked { kind, nonce, resources }
            }
        }
    }

    /// Notes which clusters the proxy took, or refused, and has to ask endpoints for.
    fn on_clusters(&mut self, kind: Type, sent: &[Arc<Encoded>], taken: bool) {
        if kind != Type::Cluster {
            return;
        }
        if let Some(discovering) = self.discovering.take().filter(|_| taken) {
            for name in &discovering {
                if !self.channels[Type::Endpoint as usize].wants(name) {
                    self.note(name, AwaitedEndpoints::Yes);
                }
            }
            return;
        }
        for resource in sent {
            if taken && !self.channels[Type::Endpoint as usize].wants(&resource.name) {
                self.note(&resource.name, AwaitedEndpoints::No);
            }
            self.review_awaited(&resource.name);
        }
    }

    /// Looks at a cluster about which, or about whose endpoints, something happened.
    fn review_awaited(&mut self, name: &str) {
        let Some((unasked, _)) = self.unasked.get_key_value(name) else { return };
        let Some(target) = &self.target else { return };
        let cluster = target.of(Type::Cluster).get(name);
        let assigned = target.of(Type::Endpoint).get(name);
        let Some(cluster) = cluster.filter(|_| assigned.is_some()) else { return self.asked(name) };
        let has_wanted = self.channels[Type::Cluster as usize].version(name) == Some(cluster.version);
        let unasked = unasked.clone();
        self.note(&unasked, if has_wanted { AwaitedEndpoints::Yes } else { AwaitedEndpoints::No });
    }

    fn note(&mut self, name: &Arc<str>, awaited: AwaitedEndpoints) {
        let before = self.unasked.insert(name.clone(), awaited);
        self.awaited -= usize::from(before == Some(AwaitedEndpoints::Yes));
        self.awaited += usize::from(awaited == AwaitedEndpoints::Yes);
    }

    /// The proxy asked for the endpoints of a cluster, or has no reason to any more.
    fn asked(&mut self, name: &str) {
        if self.unasked.is_empty() {
            return;
        }
        self.awaited -= usize::from(self.unasked.remove(name) == Some(AwaitedEndpoints::Yes));
        if self.unasked.is_empty() {
            self.unasked = HashMap::new();
        }
    }

    /// Sends whatever may be sent now, in the order of dependencies.
    fn advance(&mut self, actions: &mut Vec<Action>) {
        let Some(target) = self.target.clone() else { return };
        let users_settled = self.users_of_clusters_are_settled(&target);
        self.send(Type::Cluster, &target, true, users_settled, actions);
        let nothing_uses = users_settled && self.channel(Type::Cluster).settled(target.of(Type::Cluster));
        self.send(Type::Endpoint, &target, true, nothing_uses, actions);
        self.send(Type::Secret, &target, true, nothing_uses, actions);
        let usable = self.clusters_are_usable(&target);
        let idle = !self.channel(Type::Listener).has_sends(target.of(Type::Listener));
        let told = self.channel(Type::Route).settled(target.of(Type::Route));
        self.send(Type::Listener, &target, usable, if idle { told } else { usable }, actions);
        let listening = {
            let listeners = self.channel(Type::Listener);
            !listeners.is_waiting() && !listeners.has_sends(target.of(Type::Listener))
        };
        self.send(Type::Route, &target, usable && listening, true, actions);
    }

    fn send(
        &mut self,
        kind: Type,
        target: &Target,
        may_send: bool,
        may_remove: bool,
        actions: &mut Vec<Action>,
    ) {
        let order = Order::of(kind);
        let allowed = (may_send, may_remove);
        let Some(batch) = self.channel(kind).next(target.of(kind), order, allowed) else { return };
        if kind == Type::Cluster {
            self.renew_endpoints(&batch, target);
        }
        self.last_nonce += 1;
        let nonce = self.last_nonce.to_string();
        let sent = self.channel(kind).ordered(&batch, order);
        actions.push(Action::Send(DeltaResponse {
            system_version_info: String::new(),
            resources: sent.into_iter().map(|resource| resource.resource()).collect(),
            type_url: kind.url().to_owned(),
            nonce: nonce.clone(),
            removed_resources: batch.removed.iter().map(ToString::to_string).collect(),
            control_plane: self.control_plane.clone(),
        }));
        self.channel(kind).launch(nonce, batch);
    }

    /// A changed cluster waits for its endpoints, but does not ask for them when the proxy is subscribed already.
    fn renew_endpoints(&mut self, batch: &Batch, target: &Target) {
        let assigned = target.of(Type::Endpoint);
        let endpoints = self.channel(Type::Endpoint);
        let assigned_to = |cluster: &Arc<Encoded>| assigned.get(&cluster.name);
        let discovered: Vec<&Arc<Encoded>> = batch.sent.iter().filter_map(assigned_to).collect();
        discovered.iter().for_each(|resource| endpoints.send_again(resource));
        let discovering = discovered.into_iter().map(|resource| resource.name.clone()).collect();
        batch.removed.iter().for_each(|name| endpoints.send_at_most_once(name, assigned));
        self.discovering = Some(discovering);
    }

    /// True if no listener or route is in flight or to be sent: any of them may stop using a cluster.
    fn users_of_clusters_are_settled(&mut self, target: &Target) -> bool {
        let introduced = self.channel(Type::Cluster).introduced();
        let mut settled = |kind: Type| self.channels[kind as usize].settled(target.of(kind));
        introduced && settled(Type::Listener) && settled(Type::Route)
    }

    /// True if the proxy has every cluster that listeners and routes may use, and its endpoints.
    fn clusters_are_usable(&mut self, target: &Target) -> bool {
        let [clusters, endpoints, ..] = &mut self.channels;
        let clusters_come = clusters.is_waiting() || clusters.has_sends(target.of(Type::Cluster));
        let endpoints_come = endpoints.introduces() || endpoints.has_sends(target.of(Type::Endpoint));
        !clusters_come && !endpoints_come && self.awaited == 0
    }
}
