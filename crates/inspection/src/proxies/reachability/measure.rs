//! Amount of configuration for proxies with trimming and without.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use contract::reachability::{ReachabilityEstimate, ReachabilityReport};
use plan::{Class, SharedPlan};
use topology::{ClientClass, DestinationId, MeshSnapshot};
use xds::Type;

/// Memory of an Envoy for a service that it is sent, with HTTP and mTLS.
const MEMORY_BYTES: usize = 138 * 1024;
const CPU_MICROSECONDS: usize = 2800;

/// Configuration of a class of proxies about its calls.
#[derive(Debug, Default)]
pub struct ClassFootprint {
    pub destinations: BTreeSet<DestinationId>,
    clusters: usize,
    listeners: usize,
    bytes: usize,
}

/// Plans and encodes for classes of proxies, each once.
#[derive(Default)]
pub struct Measure {
    /// Set when only destinations are asked for: then nothing is encoded.
    destinations_only: bool,
    offered: HashMap<Class, Arc<ClassFootprint>>,
    planned: usize,
    /// One of its own: looking must not change what is counted and remembered for proxies.
    encoder: envoy::Encoder,
}

impl Measure {
    /// For questions about destinations. Sizes are zero.
    pub fn of_destinations() -> Measure {
        Measure { destinations_only: true, ..Measure::default() }
    }

    /// Number of resources planned so far.
    pub fn planned(&self) -> usize {
        self.planned
    }

    /// Configuration of a class without trimming and with it.
    pub fn both(
        &mut self,
        mesh: &MeshSnapshot,
        class: Class,
        client: &ClientClass,
    ) -> (Arc<ClassFootprint>, Arc<ClassFootprint>) {
        let before = self.of(mesh, Class { trimmed: None, ..class.clone() });
        let after = self
            .of(mesh, Class { trimmed: Some(client.clone()).filter(|client| !client.is_plain()), ..class });
        (before, after)
    }

    fn of(&mut self, mesh: &MeshSnapshot, class: Class) -> Arc<ClassFootprint> {
        if let Some(offered) = self.offered.get(&class) {
            return offered.clone();
        }
        let plan = plan::outgoing(mesh, &class);
        let destinations = plan.outbounds.iter().map(|outbound| outbound.destination.clone()).collect();
        if self.destinations_only {
            let offered = Arc::new(ClassFootprint { destinations, ..ClassFootprint::default() });
            self.offered.insert(class, offered.clone());
            return offered;
        }
        let (layer, _) = self.encoder.shared(&SharedPlan::Sidecar(Box::new(plan)));
        self.planned += Type::ALL.into_iter().map(|kind| layer.len(kind)).sum::<usize>() + 1;
        let bytes = Type::ALL.into_iter().flat_map(|kind| layer.of(kind)).map(|resource| resource.size());
        let offered = Arc::new(ClassFootprint {
            destinations,
            clusters: layer.len(Type::Cluster),
            listeners: layer.len(Type::Listener),
            bytes: bytes.sum(),
        });
        self.offered.insert(class, offered.clone());
        offered
    }
}

/// Reports the difference between two footprints: done, or what trimming would do.
pub fn report(before: &ClassFootprint, after: &ClassFootprint, done: bool) -> ReachabilityReport {
    let destinations_before = before.destinations.len();
    let destinations_after = after.destinations.len();
    let services = destinations_before.saturating_sub(destinations_after);
    ReachabilityReport {
        done,
        destinations_before,
        destinations_after,
        clusters: before.clusters.saturating_sub(after.clusters),
        listeners: before.listeners.saturating_sub(after.listeners),
        bytes_before: before.bytes,
        bytes_after: after.bytes,
        estimate: ReachabilityEstimate {
            memory_bytes: services * MEMORY_BYTES,
            cpu_microseconds: services * CPU_MICROSECONDS,
        },
    }
}
