//! Signals of meshes: traffic that agents reported, for a quarter of an hour.
//!
//! Kept in memory only. After a restart of the control plane the first numbers are back with the next reports, and the
//! longest window is whole a quarter of an hour later.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use runtime::metrics::Metrics;
use signals::{Sample, Tick, Windows, tick_of};
use topology::DestinationId;

/// Largest number of edges of a mesh, and of inbounds: 30 MB each at most.
pub const MAX_WINDOWS: usize = 50_000;

/// A client of an edge. Replicas are one client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeClient {
    /// The value of `kuma.io/workload`, or of `kuma.io/service` where there is none.
    pub workload: Arc<str>,
    /// The first identity in its certificate; empty where there is none.
    pub identity: Arc<str>,
}

/// An inbound of a Dataplane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboundOf {
    pub dataplane: Arc<str>,
    pub section: Arc<str>,
}

/// Traffic of a proxy since its last report.
#[derive(Debug)]
pub struct ProxyTraffic {
    pub client: EdgeClient,
    pub outbounds: Vec<OutboundTraffic>,
    pub inbounds: Vec<InboundTraffic>,
}

#[derive(Debug)]
pub struct OutboundTraffic {
    pub destination: DestinationId,
    pub sample: Sample,
}

#[derive(Debug)]
pub struct InboundTraffic {
    pub inbound: InboundOf,
    pub sample: Sample,
}

/// Windows of one mesh.
#[derive(Debug)]
pub struct MeshSignals {
    /// Counted by clients.
    pub edges: Windows<EdgeClient, DestinationId>,
    /// Counted by servers; the workload is that of the server.
    pub inbounds: Windows<Arc<str>, InboundOf>,
}

impl MeshSignals {
    fn with_limit(limit: usize) -> MeshSignals {
        MeshSignals { edges: Windows::with_limit(limit), inbounds: Windows::with_limit(limit) }
    }
}

/// Signals of all meshes.
#[derive(Debug)]
pub struct Signals {
    meshes: Mutex<BTreeMap<Arc<str>, Arc<Mutex<MeshSignals>>>>,
    max_windows: usize,
    dropped: Counter,
}

impl Signals {
    pub(super) fn register(metrics: &Metrics) -> Signals {
        let help = "Reports of traffic between pairs that were not kept, because the mesh has too many";
        let dropped = metrics.register("signals_dropped", help, Counter::default());
        Signals { meshes: Mutex::default(), max_windows: MAX_WINDOWS, dropped }
    }

    /// The same with another limit.
    #[must_use]
    pub fn with_limit(self, max_windows: usize) -> Signals {
        Signals { max_windows, ..self }
    }

    /// Takes in a report about a mesh. Meshes that do not `exist` any more are forgotten when a new one comes.
    pub fn record(
        &self,
        mesh: &Arc<str>,
        traffic: &ProxyTraffic,
        now: Timestamp,
        exists: impl Fn(&str) -> bool,
    ) {
        let tick = tick_of(now.as_second());
        let of_mesh = self.opened(mesh, exists);
        let mut of_mesh = locked(&of_mesh);
        let ProxyTraffic { client, outbounds, inbounds } = traffic;
        let mut dropped = 0;
        for OutboundTraffic { destination, sample } in outbounds {
            dropped += u64::from(!of_mesh.edges.record(client, destination, tick, sample));
        }
        for InboundTraffic { inbound, sample } in inbounds {
            dropped += u64::from(!of_mesh.inbounds.record(&client.workload, inbound, tick, sample));
        }
        self.dropped.inc_by(dropped);
    }

    /// Looks at a mesh at this moment; `None` while nothing was reported.
    pub fn read<T>(
        &self,
        mesh: &str,
        now: Timestamp,
        look: impl FnOnce(&MeshSignals, Tick) -> T,
    ) -> Option<T> {
        let of_mesh = self.all().get(mesh).cloned()?;
        let of_mesh = locked(&of_mesh);
        Some(look(&of_mesh, tick_of(now.as_second())))
    }

    fn opened(&self, mesh: &Arc<str>, exists: impl Fn(&str) -> bool) -> Arc<Mutex<MeshSignals>> {
        let mut meshes = self.all();
        if let Some(known) = meshes.get(mesh) {
            return known.clone();
        }
        meshes.retain(|known, _| exists(known));
        let new = Arc::new(Mutex::new(MeshSignals::with_limit(self.max_windows)));
        meshes.insert(mesh.clone(), new.clone());
        new
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Mutex<MeshSignals>>>> {
        self.meshes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sum that a panic interrupted has one sample less.
fn locked(of_mesh: &Mutex<MeshSignals>) -> MutexGuard<'_, MeshSignals> {
    of_mesh.lock().unwrap_or_else(PoisonError::into_inner)
}
