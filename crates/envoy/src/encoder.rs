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
    Admin, Backend, Collector, Inbound, Outbound, Outgoing, Own, Passthrough, Plan, ProxyPlan, SecretNames,
    Tracing, ZoneProxy,
};
use resources::naming::Direction;
use topology::Endpoints;
use xds::{Encoded, Layer, Target, Type};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    part::{
        AdminCluster, AdminListener, CollectorCluster, EndpointsOf, ExternalCluster, InboundCluster,
        InboundListener, MeshCluster, OutboundListener, Part, PassthroughCluster, PassthroughListener,
        ReadinessCluster, RefusalCluster,
    },
    secret,
};

const SHARDS: usize = 16;
/// Below this many resources in a part, looking for forgotten ones is not worth it.
const SWEEP_FROM: usize = 64;

/// Turns plans into resources, and remembers those in use.
#[derive(Debug, Default)]
pub struct Encoder {
    /// In parts, so that threads seldom wait for each other: a part is locked while one of its resources is encoded.
    memo: [Mutex<Memo>; SHARDS],
    encoded: [AtomicU64; Type::ALL.len()],
}

#[derive(Debug, Default)]
struct Memo {
    resources: HashMap<u128, Weak<Encoded>>,
    sweep_at: usize,
}

impl Encoder {
    /// Everything the proxy should have, except secrets, which the caller inserts.
    pub fn lower(&self, plan: &ProxyPlan) -> Target {
        let ProxyPlan { mesh, inbounds, outbounds, backends, passthrough, admin, secrets, .. } = plan;
        let (mut own, mut shared) = (xds::Own::default(), Layer::default());
        let (secrets, tracing) = (secrets.as_ref(), plan.tracing.as_deref());
        self.put_own(&mut own, mesh, inbounds, secrets, tracing);
        self.put_collectors(&mut own, &plan.collectors);
        self.put_interfaces(&mut own, passthrough, admin.as_ref());
        self.put_outgoing(&mut shared, mesh, (outbounds, tracing), backends, secrets);
        Target { own, shared: Arc::new(shared) }
    }

    /// As [`Encoder::lower`], for a proxy of any kind.
    pub fn lower_any(&self, plan: &Plan) -> Target {
        match plan {
            Plan::Sidecar(plan) => self.lower(plan),
            Plan::Ingress(ZoneProxy { admin, .. }) | Plan::Egress(ZoneProxy { admin, .. }) => {
                let mut target = Target::default();
                self.put_interfaces(&mut target.own, &[], admin.as_ref());
                target
            }
        }
    }

    /// What only this proxy has, except secrets, which the caller inserts.
    pub fn lower_own(&self, plan: &Own) -> xds::Own {
        let mut own = xds::Own::default();
        self.put_own(&mut own, &plan.mesh, &plan.inbounds, plan.secrets.as_ref(), plan.tracing.as_deref());
        self.put_collectors(&mut own, &plan.collectors);
        self.put_interfaces(&mut own, &plan.passthrough, plan.admin.as_ref());
        own
    }

    /// What all proxies of a class have.
    pub fn lower_outgoing(&self, plan: &Outgoing) -> Layer {
        let mut layer = Layer::default();
        let Outgoing { mesh, outbounds, backends, tracing, secrets, .. } = plan;
        self.put_outgoing(&mut layer, mesh, (outbounds, tracing.as_deref()), backends, secrets.as_ref());
        layer
    }

    fn put_own(
        &self,
        own: &mut xds::Own,
        mesh: &str,
        inbounds: &[Inbound],
        secrets: Option<&SecretNames>,
        tracing: Option<&Tracing>,
    ) {
        // Older names let inbounds share a cluster; the first one decides, as the plan's problems say.
        for inbound in inbounds.iter().rev() {
            self.put_into(own, &InboundListener { mesh, secrets, inbound, tracing });
            self.put_into(own, &InboundCluster::of(inbound));
        }
    }

    fn put_outgoing(
        &self,
        layer: &mut Layer,
        mesh: &str,
        (outbounds, tracing): (&[Outbound], Option<&Tracing>),
        backends: &[Backend],
        secrets: Option<&SecretNames>,
    ) {
        for outbound in outbounds {
            self.put(layer, &OutboundListener::of(outbound, tracing));
        }
        for backend in backends {
            if let Some(external) = &backend.external {
                self.put(layer, &ExternalCluster::of(backend, external));
            } else {
                let cluster = MeshCluster::of(mesh, backend, secrets);
                self.put(layer, &cluster);
                self.put(layer, &EndpointsOf { cluster: cluster.name, endpoints: &backend.endpoints });
            }
        }
    }

    fn put_collectors(&self, own: &mut xds::Own, collectors: &[Collector]) {
        collectors.iter().for_each(|collector| self.put_into(own, &CollectorCluster(collector)));
    }

    fn put_interfaces(&self, own: &mut xds::Own, passthrough: &[Passthrough], admin: Option<&Admin>) {
        for passthrough in passthrough {
            self.put_into(own, &PassthroughListener(passthrough));
            if passthrough.allowed {
                self.put_into(own, &PassthroughCluster(passthrough));
            } else if passthrough.direction == Direction::Inbound {
                self.put_into(own, &RefusalCluster::of(&passthrough.names));
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

    /// Who serves a destination of the mesh: the one resource that other endpoints change.
    pub fn endpoints(&self, cluster: &str, endpoints: &Endpoints) -> Arc<Encoded> {
        self.resource(&EndpointsOf { cluster, endpoints })
    }

    /// A certificate with its key, both in PEM. Secrets are never remembered.
    pub fn secret(&self, name: &str, chain_pem: &str, key_pem: &str) -> Arc<Encoded> {
        self.finish(Type::Secret, name, &secret::certificate(name, chain_pem, key_pem))
    }

    /// Certificates of authorities, in PEM.
    pub fn authorities(&self, name: &str, roots_pem: &str) -> Arc<Encoded> {
        self.finish(Type::Secret, name, &secret::authorities(name, roots_pem))
    }

    /// How many resources of a type were encoded since the beginning, for proving that cost follows change.
    pub fn encoded(&self, kind: Type) -> u64 {
        self.encoded[kind as usize].load(Ordering::Relaxed)
    }

    /// How many resources are remembered, dead ones included.
    pub fn remembered(&self) -> usize {
        self.memo.iter().map(|memo| memo.lock().unwrap_or_else(PoisonError::into_inner).resources.len()).sum()
    }

    fn put_into<P: Part>(&self, own: &mut xds::Own, part: &P) {
        own.insert(P::TYPE, self.resource(part));
    }

    fn put<P: Part>(&self, layer: &mut Layer, part: &P) {
        layer.insert(P::TYPE, self.resource(part));
    }

    fn resource<P: Part>(&self, part: &P) -> Arc<Encoded> {
        let fingerprint = fingerprint(part);
        let mut memo = self.memo(fingerprint);
        if let Some(known) = memo.resources.get(&fingerprint).and_then(Weak::upgrade) {
            return known;
        }
        // Encoded under the lock: two threads that need the same get the same, and it is encoded once.
        let fresh = self.finish(P::TYPE, part.name(), &part.encode());
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
    /// Forgets what nobody has, each time the number of resources has doubled.
    fn sweep(&mut self) {
        if self.resources.len() < self.sweep_at.max(SWEEP_FROM) {
            return;
        }
        self.resources.retain(|_, resource| resource.strong_count() > 0);
        self.sweep_at = 2 * self.resources.len();
    }
}

fn fingerprint<P: Part>(part: &P) -> u128 {
    let mut hasher = Xxh3::new();
    P::SHAPE.hash(&mut hasher);
    part.hash(&mut hasher);
    hasher.digest128()
}
