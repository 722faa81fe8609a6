//! Discovery by the state of the world: a response carries everything of a type the proxy asked for.
//!
//! For proxies that do not speak the delta protocol. The version of a response is a hash of its
//! content, so a proxy that reconnects with the version it should have gets nothing. The order between
//! types is that of [`crate::delta`]: clusters to be removed stay in the set until listeners and routes
//! that may use them are replaced.
//!
//! A refused resource is replaced by the last one that was taken. When the proxy's message names no
//! resource and more than one changed, that set is not sent again; the next target is.

mod channel;

use std::sync::Arc;

use crate::{
    action::{self, Error, Status},
    delta::MAX_NAMES,
    encoded::{Encoded, version_text},
    identify::StreamIdentity,
    message::{ControlPlane, Request, Response},
    nack_message,
    target::{Target, Type},
};

use channel::{Channel, ProxyAnswer, Set};

/// Work that a state-of-the-world stream asks of its server.
pub type Action = action::Action<Response>;

/// The server's side of one state-of-the-world stream.
#[derive(Default)]
pub struct Stream {
    control_plane: Option<ControlPlane>,
    identity: StreamIdentity,
    target: Option<Arc<Target>>,
    channels: [Channel; Type::ALL.len()],
    /// The proxy asked for the endpoints of all its clusters; `None` until that is computed again.
    all_asked: Option<bool>,
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
    pub fn on_request(&mut self, mut request: Request) -> Vec<Action> {
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
        let count = request.resource_names.len();
        if count > MAX_NAMES {
            return self.close(Error::TooManyNames { kind, count, limit: MAX_NAMES });
        }
        let channel = &mut self.channels[kind as usize];
        if channel.requested && request.response_nonce != channel.nonce {
            // The proxy sends its names again when it answers the response it has not seen yet.
            let nonce = &request.response_nonce;
            return vec![Action::Ignored { reason: format!("stale nonce {nonce:?} for {kind:?}") }];
        }
        let mut actions = Vec::new();
        let nonce = request.response_nonce.clone();
        match channel.answer(&request) {
            None => {}
            Some(ProxyAnswer::Acked { resources }) => actions.push(Action::Acked { kind, nonce, resources }),
            Some(ProxyAnswer::Rejected { blamed }) => {
                let message = request.error_detail.as_ref().map(|e| e.message.clone()).unwrap_or_default();
                actions.push(Action::Rejected { kind, nonce, names: blamed, message });
            }
        }
        let subscribed =
            channel.subscribe(kind, &request, self.target.as_ref().map(|target| target.of(kind)));
        if subscribed || kind == Type::Cluster {
            self.all_asked = None;
        }
        self.advance(&mut actions);
        actions
    }

    /// Takes in what the proxy should have from now on.
    pub fn set_target(&mut self, target: Arc<Target>) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.closed {
            let before = self.target.replace(target.clone());
            for kind in Type::ALL {
                if !before.as_ref().is_some_and(|before| target.shares(before, kind)) {
                    self.channels[kind as usize].retarget(target.of(kind));
                    self.all_asked = None;
                }
            }
            self.advance(&mut actions);
        }
        actions
    }

    /// Sends what was refused once more: for complaints that may pass, such as an address in use.
    pub fn retry(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.closed {
            self.channels.iter_mut().for_each(Channel::forgive);
            self.all_asked = None;
            self.advance(&mut actions);
        }
        actions
    }

    /// Returns the status of every type.
    pub fn status(&self) -> Vec<Status> {
        let target = |kind: Type| self.target.as_ref().map(|target| target.of(kind));
        Type::ALL.into_iter().map(|kind| self.channels[kind as usize].status(kind, target(kind))).collect()
    }

    /// Number of visits to resources since the stream began; proves that cost follows change.
    pub fn visits(&self) -> u64 {
        self.channels.iter().map(Channel::visits).sum()
    }

    fn close(&mut self, error: Error) -> Vec<Action> {
        self.closed = true;
        vec![Action::Close(error)]
    }

    /// Sends whatever may be sent now, in the order of dependencies.
    fn advance(&mut self, actions: &mut Vec<Action>) {
        let Some(target) = self.target.clone() else { return };
        for kind in Type::ALL {
            let channel = &mut self.channels[kind as usize];
            channel.refresh(kind, target.of(kind));
            channel.recognise(kind, target.of(kind));
        }
        let in_use = !self.users_of_clusters_are_settled(&target);
        self.send(Type::Cluster, &target, in_use, actions);
        self.send(Type::Endpoint, &target, false, actions);
        self.send(Type::Secret, &target, false, actions);
        if self.clusters_are_usable(&target, in_use) {
            self.send(Type::Listener, &target, false, actions);
            // Routes may tell about listeners, which must be there by then.
            if self.channels[Type::Listener as usize].settled(Type::Listener, target.of(Type::Listener)) {
                self.send(Type::Route, &target, false, actions);
            }
        }
    }

    fn send(&mut self, kind: Type, target: &Target, keep_removed: bool, actions: &mut Vec<Action>) {
        let channel = &mut self.channels[kind as usize];
        if channel.is_waiting() {
            return;
        }
        let Some(set) = channel.due(kind, target.of(kind), keep_removed) else { return };
        if kind == Type::Cluster {
            self.renew_endpoints(&set, target);
        }
        self.last_nonce += 1;
        let nonce = self.last_nonce.to_string();
        let mut sent: Vec<&Arc<Encoded>> = set.resources.iter().collect();
        if kind == Type::Listener {
            // A changed listener may give up an address that a new one takes over.
            let accepted = &self.channels[kind as usize].accepted;
            sent.sort_by_key(|resource| accepted.get(&resource.name).is_none());
        }
        actions.push(Action::Send(Response {
            version_info: version_text(set.version),
            resources: sent.into_iter().map(|resource| resource.any()).collect(),
            type_url: kind.url().to_owned(),
            nonce: nonce.clone(),
            control_plane: self.control_plane.clone(),
        }));
        self.channels[kind as usize].launch(nonce, set);
    }

    /// A changed cluster waits for its endpoints, which the proxy may already be subscribed to.
    fn renew_endpoints(&mut self, clusters: &Set, target: &Target) {
        let [known, endpoints, ..] = &mut self.channels;
        let changed = clusters.resources.iter().any(|cluster| {
            let replaced =
                known.accepted.get(&cluster.name).is_some_and(|old| old.version != cluster.version);
            replaced && target.of(Type::Endpoint).contains_key(&cluster.name)
        });
        if changed {
            endpoints.send_again();
        }
    }

    fn users_of_clusters_are_settled(&mut self, target: &Target) -> bool {
        let mut settled = |kind: Type| self.channels[kind as usize].settled(kind, target.of(kind));
        settled(Type::Listener) && settled(Type::Route)
    }

    /// True if the proxy has every cluster that listeners and routes may use, and its endpoints.
    fn clusters_are_usable(&mut self, target: &Target, in_use: bool) -> bool {
        let [clusters, endpoints, ..] = &mut self.channels;
        !clusters.is_waiting()
            && clusters.due(Type::Cluster, target.of(Type::Cluster), in_use).is_none()
            && !endpoints.introduces()
            && (endpoints.is_waiting()
                || endpoints.due(Type::Endpoint, target.of(Type::Endpoint), false).is_none())
            && self.all_asked(target)
    }

    /// True if the proxy asked for the endpoints of all its clusters.
    fn all_asked(&mut self, target: &Target) -> bool {
        let [clusters, endpoints, ..] = &self.channels;
        let wanted = target.of(Type::Cluster);
        let assigned = target.of(Type::Endpoint);
        *self.all_asked.get_or_insert_with(|| {
            let names = clusters.accepted.resources.iter().map(|cluster| &cluster.name);
            let mut discovered =
                names.filter(|name| assigned.contains_key(name) && wanted.contains_key(name));
            discovered.all(|name| endpoints.wants(Type::Endpoint, name))
        })
    }
}
