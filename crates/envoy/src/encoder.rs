//! Encoding each resource once, however many proxies get it.
//!
//! A resource is found by a fingerprint of the part of the plan it is made of. The encoder holds it only
//! weakly: what no proxy has any more is forgotten.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use plan::{
    Admin, AgentConfiguration, Backend, Collector, Inbound, Lane, Locality, Metrics, Outbound, Outgoing, Own,
    Passage, Passthrough, Patches, Problem, ProxyPlan, Security, Stub, Tracing, ZoneProxy, ZoneServer,
};
use resources::naming::Direction;
use topology::Endpoints;
use xds::{Encoded, Layer, Target, Type};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    agent::{self, Documents},
    part::{
        AdminCluster, AdminListener, AgentListener, CollectorCluster, EndpointsOf, ExternalCluster,
        InboundCluster, InboundListener, MatchedCluster, MeshCluster, MetricsCluster, MetricsOutCluster,
        MetricsOutListener, OutboundListener, PageListener, Part, PassthroughCluster, PassthroughListener,
        ReadinessCluster, RefusalCluster,
    },
    patch::{Note, Patching, Subject},
    secret,
    stub::StubListener,
    zone_proxy::{LaneListener, PassedCluster},
};

const SHARDS: usize = 16;
/// Below this many resources in a part, looking for forgotten ones is not worth it.
const SWEEP_FROM: usize = 64;

/// Turns plans into resources, and remembers those in use.
#[derive(Debug, Default)]
pub struct Encoder {
    /// In parts, so that threads seldom wait for each other: a part is locked while one of its resources is encoded.
    memo: [Mutex<Memo>; SHARDS],
    /// What became of resources that patches change. Few proxies have some.
    patched: Mutex<HashMap<u128, Remembered>>,
    encoded: [AtomicU64; Type::ALL.len()],
}

/// A resource that was patched, and what there is to say about that.
#[derive(Debug, Clone)]
struct Remembered {
    resource: Weak<Encoded>,
    discovers: bool,
    notes: Vec<Note>,
}

/// A layer while it is made.
struct Making<'a, L> {
    layer: L,
    patching: Option<Patching<'a>>,
}

impl<'a, L: Default> Making<'a, L> {
    fn with(patches: Option<&'a Patches>) -> Making<'a, L> {
        Making { layer: L::default(), patching: patches.map(Patching::of) }
    }

    fn finish(self) -> (L, Vec<Problem>) {
        (self.layer, self.patching.map(Patching::problems).unwrap_or_default())
    }
}

#[derive(Debug, Default)]
struct Memo {
    resources: HashMap<u128, Weak<Encoded>>,
    sweep_at: usize,
}

impl Encoder {
    /// Everything the proxy should have, except secrets, which the caller inserts.
    pub fn lower(&self, plan: &ProxyPlan) -> Target {
        self.lower_told(plan).0
    }

    /// As [`Encoder::lower`], with what patches cannot do.
    pub fn lower_told(&self, plan: &ProxyPlan) -> (Target, Vec<Problem>) {
        let ProxyPlan { mesh, inbounds, outbounds, backends, passthrough, admin, metrics, .. } = plan;
        let (security, tracing, patches) =
            (plan.security.as_ref(), plan.tracing.as_deref(), plan.patches.as_ref());
        let mut own = Making::with(patches);
        self.put_own(&mut own, mesh, inbounds, security, tracing);
        self.put_collectors(&mut own, &plan.collectors);
        self.put_interfaces(&mut own, passthrough, admin.as_ref());
        self.put_metrics(&mut own, metrics.as_ref());
        self.put_agent(&mut own, plan.agent.as_ref());
        self.put_additions(&mut own);
        let mut shared = Making::with(patches);
        self.put_outgoing(&mut shared, (outbounds, tracing), backends, security);
        self.put_stub(&mut shared, plan.stub.as_ref());
        let ((mut own, mut problems), (shared, more)) = (own.finish(), shared.finish());
        self.put_documents(&mut own, plan.agent.as_ref(), plan.records.as_ref().map(Documents::of).as_ref());
        problems.extend(more);
        (Target { own, shared: Arc::new(shared) }, problems)
    }

    /// What a zone proxy has alone: its listener, with everything it leads to, and its own interface.
    pub fn lower_zone(&self, plan: &ZoneProxy, lanes: &[Lane]) -> xds::Own {
        let mut own = Making::with(None);
        if let Some(listener) = &plan.listener {
            self.put_into(&mut own, &LaneListener { listener, lanes });
        }
        self.put_interfaces(&mut own, &[], plan.admin.as_ref());
        own.layer
    }

    /// What zone proxies that are alike have of a mesh.
    pub fn lower_passage(&self, passage: &Passage) -> Layer {
        let mut layer = Making::with(None);
        for backend in &passage.backends {
            match &backend.served {
                ZoneServer::Proxy => {
                    let (cluster, endpoints) = (backend.cluster.as_str(), &*backend.endpoints);
                    let locality = backend.locality.as_deref();
                    self.put(&mut layer, &PassedCluster::of(backend));
                    self.put(&mut layer, &EndpointsOf { cluster, endpoints, locality });
                }
                ZoneServer::External(external) => {
                    self.put(&mut layer, &ExternalCluster::behind_egress(backend, external));
                }
            }
        }
        layer.layer
    }

    /// What only this proxy has, except secrets and documents, which the caller inserts; and what patches cannot do
    /// there.
    pub fn lower_own(&self, plan: &Own) -> (xds::Own, Vec<Problem>) {
        let mut own = Making::with(plan.patches.as_ref());
        self.put_own(&mut own, &plan.mesh, &plan.inbounds, plan.security.as_ref(), plan.tracing.as_deref());
        self.put_collectors(&mut own, &plan.collectors);
        self.put_interfaces(&mut own, &plan.passthrough, plan.admin.as_ref());
        self.put_metrics(&mut own, plan.metrics.as_ref());
        self.put_agent(&mut own, plan.agent.as_ref());
        self.put_additions(&mut own);
        own.finish()
    }

    /// What all proxies of a class have, and what patches cannot do there.
    pub fn lower_outgoing(&self, plan: &Outgoing) -> (Layer, Vec<Problem>) {
        let Outgoing { outbounds, backends, tracing, security, patches, .. } = plan;
        let mut layer = Making::with(patches.as_ref());
        self.put_outgoing(&mut layer, (outbounds, tracing.as_deref()), backends, security.as_ref());
        self.put_stub(&mut layer, plan.stub.as_ref());
        layer.finish()
    }

    fn put_own(
        &self,
        own: &mut Making<'_, xds::Own>,
        mesh: &str,
        inbounds: &[Inbound],
        security: Option<&Security>,
        tracing: Option<&Tracing>,
    ) {
        // Older names let inbounds share a cluster; the first one decides, as the plan's problems say.
        for inbound in inbounds.iter().rev() {
            self.put_into(own, &InboundListener { mesh, security, inbound, tracing });
            self.put_into(own, &InboundCluster::of(inbound));
        }
    }

    fn put_outgoing(
        &self,
        layer: &mut Making<'_, Layer>,
        (outbounds, tracing): (&[Outbound], Option<&Tracing>),
        backends: &[Backend],
        security: Option<&Security>,
    ) {
        for outbound in outbounds {
            self.put(layer, &OutboundListener::of(outbound, tracing));
        }
        for backend in backends {
            if let Some(external) = &backend.external {
                self.put(layer, &ExternalCluster::of(backend, external));
            } else {
                let cluster = MeshCluster::of(backend, security);
                self.put(layer, &cluster);
                let (endpoints, locality) = (&*backend.endpoints, backend.locality.as_deref());
                self.put(layer, &EndpointsOf { cluster: cluster.name, endpoints, locality });
            }
        }
    }

    fn put_stub(&self, layer: &mut Making<'_, Layer>, stub: Option<&Stub>) {
        if let Some(stub) = stub {
            self.put(layer, &StubListener(stub));
        }
    }

    fn put_collectors(&self, own: &mut Making<'_, xds::Own>, collectors: &[Collector]) {
        collectors.iter().for_each(|collector| self.put_into(own, &CollectorCluster(collector)));
    }

    fn put_interfaces(
        &self,
        own: &mut Making<'_, xds::Own>,
        passthrough: &[Passthrough],
        admin: Option<&Admin>,
    ) {
        for passthrough in passthrough {
            self.put_into(own, &PassthroughListener(passthrough));
            if passthrough.allowed {
                self.put_into(own, &PassthroughCluster(passthrough));
            } else if passthrough.direction == Direction::Inbound {
                self.put_into(own, &RefusalCluster::of(&passthrough.names));
            }
            for way in passthrough.ways.iter() {
                way.hosts.iter().for_each(|host| self.put_into(own, &MatchedCluster::of(way, host)));
            }
        }
        if let Some(admin) = admin {
            self.put_into(own, &AdminListener(admin));
            self.put_into(own, &AdminCluster::of(admin));
            if admin.readiness_port != 0 {
                self.put_into(own, &ReadinessCluster::of(admin));
            }
        }
    }

    fn put_metrics(&self, own: &mut Making<'_, xds::Own>, metrics: Option<&Metrics>) {
        let Some(Metrics { pages, collectors, .. }) = metrics else { return };
        for page in pages {
            self.put_into(own, &PageListener(page));
            self.put_into(own, &MetricsCluster::of(page));
        }
        for collector in collectors {
            self.put_into(own, &MetricsOutListener(collector));
            self.put_into(own, &MetricsOutCluster(collector));
        }
    }

    fn put_agent(&self, own: &mut Making<'_, xds::Own>, agent: Option<&AgentConfiguration>) {
        if let Some(agent) = agent {
            self.put_into(own, &AgentListener(agent));
        }
    }

    /// What the agent of a proxy reads, where documents of its class are among it.
    pub fn put_documents(
        &self,
        own: &mut xds::Own,
        agent: Option<&AgentConfiguration>,
        shared: Option<&Documents>,
    ) {
        if let Some(agent) = agent.filter(|agent| agent.with_hostnames) {
            self.encoded[Type::Route as usize].fetch_add(1, Ordering::Relaxed);
            own.insert(Type::Route, Arc::new(agent::routes(agent, shared)));
        }
    }

    /// Who serves a destination of the mesh: the one resource that other endpoints change.
    pub fn endpoints(
        &self,
        cluster: &str,
        endpoints: &Endpoints,
        locality: Option<&Locality>,
    ) -> Arc<Encoded> {
        self.resource(&EndpointsOf { cluster, endpoints, locality })
    }

    /// A certificate with its key, both in PEM. Secrets are never remembered.
    pub fn secret(&self, name: &str, chain_pem: &str, key_pem: &str) -> Arc<Encoded> {
        self.finish(Type::Secret, name, &secret::certificate(name, chain_pem, key_pem))
    }

    /// Certificates of authorities, in PEM.
    pub fn authorities(&self, name: &str, roots_pem: &str) -> Arc<Encoded> {
        self.finish(Type::Secret, name, &secret::authorities(name, roots_pem))
    }

    /// Certificates of authorities by trust domain, in PEM.
    pub fn trust_bundle(&self, name: &str, domains: &[(String, String)]) -> Arc<Encoded> {
        self.finish(Type::Secret, name, &secret::trust_bundle(name, domains))
    }

    /// How many resources of a type were encoded since the beginning, for proving that cost follows change.
    pub fn encoded(&self, kind: Type) -> u64 {
        self.encoded[kind as usize].load(Ordering::Relaxed)
    }

    /// How many resources are remembered, dead ones included.
    pub fn remembered(&self) -> usize {
        self.memo.iter().map(|memo| memo.lock().unwrap_or_else(PoisonError::into_inner).resources.len()).sum()
    }

    fn put_into<P: Part>(&self, own: &mut Making<'_, xds::Own>, part: &P) {
        if let Some(resource) = self.made(part, own.patching.as_mut()) {
            own.layer.insert(P::TYPE, resource);
        }
    }

    fn put<P: Part>(&self, layer: &mut Making<'_, Layer>, part: &P) {
        if let Some(resource) = self.made(part, layer.patching.as_mut()) {
            layer.layer.insert(P::TYPE, resource);
        }
    }

    /// Resources that patches add are the proxy's own.
    fn put_additions(&self, own: &mut Making<'_, xds::Own>) {
        let Some(patching) = &mut own.patching else { return };
        for (kind, name, body) in patching.additions() {
            own.layer.insert(kind, self.finish(kind, &name, &body));
        }
    }

    /// The resource of a part after patches; `None` for one that is not there any more.
    fn made<P: Part>(&self, part: &P, patching: Option<&mut Patching<'_>>) -> Option<Arc<Encoded>> {
        let Some(patching) = patching else { return Some(self.resource(part)) };
        if P::TYPE == Type::Endpoint && !patching.asks_for_endpoints(part.name()) {
            return None;
        }
        let subject = Subject { kind: P::TYPE, origin: P::ORIGIN, name: part.name(), tags: part.tags() };
        if !patching.chooses(&subject) {
            return Some(self.resource(part));
        }
        let fingerprint = fingerprint(part, Some(patching.patches));
        let known = self.patched().get(&fingerprint).cloned();
        let known = known.and_then(|known| Some((known.resource.upgrade()?, known.discovers, known.notes)));
        let (resource, discovers, notes) = match known {
            Some((resource, discovers, notes)) => (Some(resource), discovers, notes),
            None => {
                let applied = patching.apply(&subject, part.encode());
                let fresh = applied.body.map(|mut body| {
                    if applied.same {
                        return self.resource(part);
                    }
                    body.extend(part.sealed());
                    self.finish(P::TYPE, part.name(), &body)
                });
                if let Some(fresh) = &fresh {
                    let (discovers, notes) = (applied.discovers, applied.notes.clone());
                    let mut patched = self.patched();
                    if patched.len() >= SWEEP_FROM && patched.len().is_power_of_two() {
                        patched.retain(|_, known| known.resource.strong_count() > 0);
                    }
                    let resource = Arc::downgrade(fresh);
                    patched.insert(fingerprint, Remembered { resource, discovers, notes });
                }
                (fresh, applied.discovers, applied.notes)
            }
        };
        if P::TYPE == Type::Cluster && !discovers {
            patching.forgo_endpoints(part.name());
        }
        patching.note(part.name(), notes);
        resource
    }

    fn patched(&self) -> MutexGuard<'_, HashMap<u128, Remembered>> {
        self.patched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resource<P: Part>(&self, part: &P) -> Arc<Encoded> {
        let fingerprint = fingerprint(part, None);
        let mut memo = self.memo(fingerprint);
        if let Some(known) = memo.resources.get(&fingerprint).and_then(Weak::upgrade) {
            return known;
        }
        // Encoded under the lock: two threads that need the same get the same, and it is encoded once.
        let mut body = part.encode();
        body.extend(part.sealed());
        let fresh = self.finish(P::TYPE, part.name(), &body);
        memo.resources.insert(fingerprint, Arc::downgrade(&fresh));
        memo.sweep();
        fresh
    }

    fn finish(&self, kind: Type, name: &str, body: &[u8]) -> Arc<Encoded> {
        self.encoded[kind as usize].fetch_add(1, Ordering::Relaxed);
        Arc::new(Encoded::new(kind, name, xxh3_128(body), body))
    }

    fn memo(&self, fingerprint: u128) -> MutexGuard<'_, Memo> {
        #[allow(clippy::cast_possible_truncation, reason = "any part of a hash will do")]
        let shard = fingerprint as usize % SHARDS;
        // Nothing in the memo can be half done, so a panic elsewhere does not spoil it.
        self.memo[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memo {
    /// Forgets resources that no proxy has, each time the number of resources has doubled.
    fn sweep(&mut self) {
        if self.resources.len() < self.sweep_at.max(SWEEP_FROM) {
            return;
        }
        self.resources.retain(|_, resource| resource.strong_count() > 0);
        self.sweep_at = 2 * self.resources.len();
    }
}

fn fingerprint<P: Part>(part: &P, patches: Option<&Patches>) -> u128 {
    let mut hasher = Xxh3::new();
    P::SHAPE.hash(&mut hasher);
    part.hash(&mut hasher);
    patches.hash(&mut hasher);
    hasher.digest128()
}
