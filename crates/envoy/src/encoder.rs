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

use bytes::Bytes;
use plan::ProxyPlan;
use resources::naming::Direction;
use topology::Endpoints;
use xds::{Encoded, Target, Type};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    part::{
        AdminCluster, AdminListener, EndpointsOf, ExternalCluster, InboundCluster, InboundListener,
        MeshCluster, OutboundListener, Part, PassthroughCluster, PassthroughListener, ReadinessCluster,
        RefusalCluster,
    },
    secret,
};

/// Below this many resources, looking for forgotten ones is not worth it.
const SWEEP_FROM: usize = 1024;

/// Turns plans into resources, and remembers those in use.
#[derive(Debug, Default)]
pub struct Encoder {
    memo: Mutex<Memo>,
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
        let mut target = Target::default();
        let secrets = plan.secrets.as_ref();
        // Older names let inbounds share a cluster; the first one decides, as the plan's problems say.
        for inbound in plan.inbounds.iter().rev() {
            self.put(&mut target, &InboundListener { mesh: &plan.mesh, secrets, inbound });
            self.put(&mut target, &InboundCluster::of(inbound));
        }
        for outbound in &plan.outbounds {
            self.put(&mut target, &OutboundListener::of(outbound));
        }
        for backend in &plan.backends {
            if let Some(external) = &backend.external {
                self.put(&mut target, &ExternalCluster::of(backend, external));
            } else {
                let cluster = MeshCluster::of(&plan.mesh, backend, secrets);
                self.put(&mut target, &cluster);
                self.put(&mut target, &EndpointsOf { cluster: cluster.name, endpoints: &backend.endpoints });
            }
        }
        for passthrough in &plan.passthrough {
            self.put(&mut target, &PassthroughListener(passthrough));
            if passthrough.allowed {
                self.put(&mut target, &PassthroughCluster(passthrough));
            } else if passthrough.direction == Direction::Inbound {
                self.put(&mut target, &RefusalCluster::of(&passthrough.names));
            }
        }
        if let Some(admin) = &plan.admin {
            self.put(&mut target, &AdminListener(admin));
            self.put(&mut target, &AdminCluster::of(admin));
            if admin.readiness_port != 0 {
                self.put(&mut target, &ReadinessCluster::of(admin));
            }
        }
        target
    }

    /// Who serves a destination of the mesh: the one resource that other endpoints change.
    pub fn endpoints(&self, cluster: &str, endpoints: &Endpoints) -> Arc<Encoded> {
        self.resource(&EndpointsOf { cluster, endpoints })
    }

    /// A certificate with its key, both in PEM. Secrets are never remembered.
    pub fn secret(&self, name: &str, chain_pem: &str, key_pem: &str) -> Arc<Encoded> {
        self.finish(Type::Secret, name, secret::certificate(name, chain_pem, key_pem))
    }

    /// Certificates of authorities, in PEM.
    pub fn authorities(&self, name: &str, roots_pem: &str) -> Arc<Encoded> {
        self.finish(Type::Secret, name, secret::authorities(name, roots_pem))
    }

    /// How many resources of a type were encoded since the beginning, for proving that cost follows change.
    pub fn encoded(&self, kind: Type) -> u64 {
        self.encoded[kind as usize].load(Ordering::Relaxed)
    }

    /// How many resources are remembered, dead ones included.
    pub fn remembered(&self) -> usize {
        self.memo().resources.len()
    }

    fn put<P: Part>(&self, target: &mut Target, part: &P) {
        target.insert(P::TYPE, self.resource(part));
    }

    fn resource<P: Part>(&self, part: &P) -> Arc<Encoded> {
        let fingerprint = fingerprint(part);
        if let Some(known) = self.memo().resources.get(&fingerprint).and_then(Weak::upgrade) {
            return known;
        }
        // Encoded without the lock: at worst two threads do the same work, and the bytes are equal.
        let fresh = self.finish(P::TYPE, part.name(), part.encode());
        let mut memo = self.memo();
        memo.resources.insert(fingerprint, Arc::downgrade(&fresh));
        memo.sweep();
        fresh
    }

    fn finish(&self, kind: Type, name: &str, body: Vec<u8>) -> Arc<Encoded> {
        self.encoded[kind as usize].fetch_add(1, Ordering::Relaxed);
        Arc::new(Encoded { name: name.into(), version: xxh3_128(&body), body: Bytes::from(body) })
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        // Nothing in the memo can be half done, so a panic elsewhere does not spoil it.
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
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
