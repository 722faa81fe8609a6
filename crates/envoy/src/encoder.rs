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
    Admin, AgentConfiguration, Collector, FilterChain, Finding, JointResource, Locality, Outgoing, OwnPlan,
    OwnSidecar, Passthrough, Patches, ProxyMetrics, ProxyPlan, SharedPlan, Stub, ZonePlan, ZoneProxy,
    ZoneServer,
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
    patch::{Note, PatchedResource, Patching},
    secret,
    stub::StubListener,
    zone_proxy::{ForwardingCluster, ServerNameListener},
};

const SHARDS: usize = 16;
/// Below this many resources in a part, looking for forgotten ones is not worth it.
const SWEEP_FROM: usize = 64;

/// Turns plans into resources, and remembers those in use.
#[derive(Debug, Default)]
pub struct Encoder {
    /// In parts, so that threads seldom wait for each other: a part is locked while one of its resources is encoded.
    memo: [Mutex<EncodedCache>; SHARDS],
    /// Results of patching resources. Few proxies have some.
    patched: Mutex<HashMap<u128, PatchedEntry>>,
    encoded: [AtomicU64; Type::ALL.len()],
}

/// Part of a class's plan that is in resources of each of its proxies.
#[derive(Debug, Clone, PartialEq)]
pub enum ClassPart {
    /// Documents for agents; `None` where these get none.
    Documents(Option<Documents>),
    /// Filter chains of the listeners of zone proxies.
    FilterChains(Arc<[FilterChain]>),
}

impl Default for ClassPart {
    fn default() -> ClassPart {
        ClassPart::Documents(None)
    }
}

impl ClassPart {
    pub fn of(plan: &SharedPlan) -> ClassPart {
        match plan {
            SharedPlan::Sidecar(plan) => ClassPart::Documents(plan.records.as_ref().map(Documents::of)),
            SharedPlan::Zone(plan) => ClassPart::FilterChains(plan.filter_chains.as_slice().into()),
        }
    }
}

/// A resource that was patched, and the notes about that.
#[derive(Debug, Clone)]
struct PatchedEntry {
    resource: Weak<Encoded>,
    discovers: bool,
    notes: Vec<Note>,
}

/// A layer while it is made.
struct LayerBuilder<'a, L> {
    layer: L,
    patching: Option<Patching<'a>>,
}

impl<'a, L: Default> LayerBuilder<'a, L> {
    fn with(patches: Option<&'a Patches>) -> LayerBuilder<'a, L> {
        LayerBuilder { layer: L::default(), patching: patches.map(Patching::of) }
    }

    fn finish(self) -> (L, Vec<Finding>) {
        (self.layer, self.patching.map(Patching::findings).unwrap_or_default())
    }
}

#[derive(Debug, Default)]
struct EncodedCache {
    resources: HashMap<u128, Weak<Encoded>>,
    sweep_at: usize,
}

impl Encoder {
    /// Everything the proxy should have, except secrets, which the caller inserts.
    pub fn lower(&self, plan: &ProxyPlan) -> Target {
        self.lower_told(plan).0
    }

    /// As [`Encoder::lower`], with what patches cannot do.
    pub fn lower_told(&self, plan: &ProxyPlan) -> (Target, Vec<Finding>) {
        let ProxyPlan { own, outgoing } = plan;
        let (mut encoded, mut findings) = self.sidecar(own);
        let (shared, more) = self.outgoing(outgoing);
        let documents = outgoing.records.as_ref().map(Documents::of);
        self.put_documents(&mut encoded, own.agent.as_ref(), documents.as_ref());
        findings.extend(more);
        (Target { own: encoded, shared: Arc::new(shared) }, findings)
    }

    /// Encodes what only one proxy has, except secrets and the resource that it makes jointly with its class; also
    /// returns the findings of patches there.
    pub fn own(&self, plan: &OwnPlan) -> (xds::OwnResources, Vec<Finding>) {
        match plan {
            OwnPlan::Sidecar(own) => self.sidecar(own),
            OwnPlan::Zone(own) => {
                // The listener is made jointly with the class.
                let ZoneProxy { listener: _, admin, findings: _ } = &**own;
                let mut own = LayerBuilder::with(None);
                self.put_admin(&mut own, admin.as_ref());
                own.finish()
            }
        }
    }

    /// Encodes what the proxies of a class share of a mesh; also returns the findings of patches there.
    pub fn shared(&self, plan: &SharedPlan) -> (Layer, Vec<Finding>) {
        match plan {
            SharedPlan::Sidecar(outgoing) => self.outgoing(outgoing),
            SharedPlan::Zone(plan) => self.zone(plan),
        }
    }

    /// Inserts the resource that a proxy makes jointly with its class.
    pub fn put_joint(&self, own: &mut xds::OwnResources, resource: &JointResource, part: &ClassPart) {
        match (resource, part) {
            (JointResource::Agent(agent), ClassPart::Documents(documents)) => {
                self.put_documents(own, Some(agent), documents.as_ref());
            }
            (JointResource::Listener(listener), ClassPart::FilterChains(filter_chains)) => {
                let listener = self.resource(&ServerNameListener { listener, filter_chains });
                own.insert(Type::Listener, listener);
            }
            // No class has the part of another kind of proxies.
            (JointResource::Agent(_), ClassPart::FilterChains(_))
            | (JointResource::Listener(_), ClassPart::Documents(_)) => {}
        }
    }

    /// Encodes the part of a mesh that the zone proxies of a class share.
    fn zone(&self, plan: &ZonePlan) -> (Layer, Vec<Finding>) {
        // Filter chains are a part of each proxy's listener.
        let ZonePlan { filter_chains: _, backends, secrets: _, findings: _ } = plan;
        let mut layer = LayerBuilder::with(None);
        for backend in backends {
            match &backend.served {
                ZoneServer::Proxy => {
                    let cluster = backend.cluster.as_str();
                    let endpoints = &*backend.endpoints;
                    let locality = backend.locality.as_deref();
                    self.put(&mut layer, &ForwardingCluster::of(backend));
                    self.put(&mut layer, &EndpointsOf { cluster, endpoints, locality });
                }
                ZoneServer::External(external) => {
                    self.put(&mut layer, &ExternalCluster::behind_egress(backend, external));
                }
            }
        }
        layer.finish()
    }

    /// Encodes the part that one sidecar has alone.
    fn sidecar(&self, plan: &OwnSidecar) -> (xds::OwnResources, Vec<Finding>) {
        let OwnSidecar {
            mesh,
            inbounds,
            passthrough,
            collectors,
            tracing,
            admin,
            metrics,
            agent,
            security,
            patches,
            findings: _,
        } = plan;
        let tracing = tracing.as_deref();
        let security = security.as_ref();
        let mut own = LayerBuilder::with(patches.as_ref());
        // Older names let inbounds share a cluster; the first one decides, as the plan's findings say.
        for inbound in inbounds.iter().rev() {
            self.put_into(&mut own, &InboundListener { mesh, security, inbound, tracing });
            self.put_into(&mut own, &InboundCluster::of(inbound));
        }
        self.put_collectors(&mut own, collectors);
        self.put_passthrough(&mut own, passthrough);
        self.put_admin(&mut own, admin.as_ref());
        self.put_metrics(&mut own, metrics.as_ref());
        self.put_agent(&mut own, agent.as_ref());
        self.put_additions(&mut own);
        own.finish()
    }

    /// Encodes the part that the sidecars of a class share.
    fn outgoing(&self, plan: &Outgoing) -> (Layer, Vec<Finding>) {
        let Outgoing {
            outbounds,
            backends,
            stub,
            tracing,
            security,
            patches,
            // The agent gets these in a document of the proxy's own.
            hostnames: _,
            records: _,
            mesh: _,
            findings: _,
            reads: _,
        } = plan;
        let mut layer = LayerBuilder::with(patches.as_ref());
        for outbound in outbounds {
            self.put(&mut layer, &OutboundListener::of(outbound, tracing.as_deref()));
        }
        for backend in backends {
            if let Some(external) = &backend.external {
                self.put(&mut layer, &ExternalCluster::of(backend, external));
            } else {
                let cluster = MeshCluster::of(backend, security.as_ref());
                self.put(&mut layer, &cluster);
                let endpoints = &*backend.endpoints;
                let locality = backend.locality.as_deref();
                self.put(&mut layer, &EndpointsOf { cluster: cluster.name, endpoints, locality });
            }
        }
        self.put_stub(&mut layer, stub.as_ref());
        layer.finish()
    }

    fn put_stub(&self, layer: &mut LayerBuilder<'_, Layer>, stub: Option<&Stub>) {
        if let Some(stub) = stub {
            self.put(layer, &StubListener(stub));
        }
    }

    fn put_collectors(&self, own: &mut LayerBuilder<'_, xds::OwnResources>, collectors: &[Collector]) {
        collectors.iter().for_each(|collector| self.put_into(own, &CollectorCluster(collector)));
    }

    fn put_passthrough(&self, own: &mut LayerBuilder<'_, xds::OwnResources>, passthrough: &[Passthrough]) {
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
    }

    fn put_admin(&self, own: &mut LayerBuilder<'_, xds::OwnResources>, admin: Option<&Admin>) {
        if let Some(admin) = admin {
            self.put_into(own, &AdminListener(admin));
            self.put_into(own, &AdminCluster::of(admin));
            if admin.readiness_port != 0 {
                self.put_into(own, &ReadinessCluster::of(admin));
            }
        }
    }

    fn put_metrics(&self, own: &mut LayerBuilder<'_, xds::OwnResources>, metrics: Option<&ProxyMetrics>) {
        let Some(ProxyMetrics { pages, collectors, .. }) = metrics else { return };
        for page in pages {
            self.put_into(own, &PageListener(page));
            self.put_into(own, &MetricsCluster::of(page));
        }
        for collector in collectors {
            self.put_into(own, &MetricsOutListener(collector));
            self.put_into(own, &MetricsOutCluster(collector));
        }
    }

    fn put_agent(&self, own: &mut LayerBuilder<'_, xds::OwnResources>, agent: Option<&AgentConfiguration>) {
        if let Some(agent) = agent {
            self.put_into(own, &AgentListener(agent));
        }
    }

    /// Inserts the documents that the agent of a proxy reads, with those of its class if it reads them.
    pub fn put_documents(
        &self,
        own: &mut xds::OwnResources,
        agent: Option<&AgentConfiguration>,
        shared: Option<&Documents>,
    ) {
        if let Some(agent) = agent.filter(|agent| agent.with_hostnames) {
            self.encoded[Type::Route as usize].fetch_add(1, Ordering::Relaxed);
            own.insert(Type::Route, Arc::new(agent::routes(agent, shared)));
        }
    }

    /// Encodes the endpoints of a destination of the mesh: the one resource that other endpoints change.
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

    /// Returns the number of resources of a type encoded since the beginning, to prove that cost follows
    /// change.
    pub fn encoded(&self, kind: Type) -> u64 {
        self.encoded[kind as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of resources that are remembered, dead ones included.
    pub fn remembered(&self) -> usize {
        self.memo.iter().map(|memo| memo.lock().unwrap_or_else(PoisonError::into_inner).resources.len()).sum()
    }

    fn put_into<P: Part>(&self, own: &mut LayerBuilder<'_, xds::OwnResources>, part: &P) {
        if let Some(resource) = self.made(part, own.patching.as_mut()) {
            own.layer.insert(P::TYPE, resource);
        }
    }

    fn put<P: Part>(&self, layer: &mut LayerBuilder<'_, Layer>, part: &P) {
        if let Some(resource) = self.made(part, layer.patching.as_mut()) {
            layer.layer.insert(P::TYPE, resource);
        }
    }

    /// Resources that patches add are the proxy's own.
    fn put_additions(&self, own: &mut LayerBuilder<'_, xds::OwnResources>) {
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
        let subject =
            PatchedResource { kind: P::TYPE, origin: P::ORIGIN, name: part.name(), tags: part.tags() };
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
                    let discovers = applied.discovers;
                    let notes = applied.notes.clone();
                    let mut patched = self.patched();
                    if patched.len() >= SWEEP_FROM && patched.len().is_power_of_two() {
                        patched.retain(|_, known| known.resource.strong_count() > 0);
                    }
                    let resource = Arc::downgrade(fresh);
                    patched.insert(fingerprint, PatchedEntry { resource, discovers, notes });
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

    fn patched(&self) -> MutexGuard<'_, HashMap<u128, PatchedEntry>> {
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

    fn memo(&self, fingerprint: u128) -> MutexGuard<'_, EncodedCache> {
        #[allow(clippy::cast_possible_truncation, reason = "any part of a hash will do")]
        let shard = fingerprint as usize % SHARDS;
        // Nothing in the memo can be half done, so a panic elsewhere does not spoil it.
        self.memo[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodedCache {
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
