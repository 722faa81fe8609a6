//! Calls that proxies reported: kept by mesh, stored, and merged with what other control planes on the same store saw.
//!
//! ```text
//!   POST /observed ─▶ Observations::report ─▶ ledger of the mesh ─▶ shards in the store (at once, then in batches)
//!                                                    └─▶ of_mesh: what is stored and what is to be
//! ```
//!
//! A shard is written by adding what this control plane saw to what is stored, at the version that was read. So
//! several control planes may write one shard: the second finds its version outdated, reads, and adds again.

mod ledger;
mod metrics;
mod record;
pub mod signals;
mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use reconcile::{Runner, Wake};
use resources::{Key, Kind};
use runtime::metrics::Metrics;
use store::{Snapshot, Store};
use topology::observed::{Edge, ObservedEdges};

use self::signals::Signals;
use ledger::Ledger;
pub use metrics::ReportMetrics;
pub use writer::Pace;
use writer::Writer;

/// Largest number of edges of a mesh that are kept.
pub const MAX_EDGES: usize = 100_000;

/// Observed calls of all meshes.
pub struct Observations {
    store: Arc<dyn Store>,
    pace: Pace,
    max_edges: usize,
    meshes: Mutex<BTreeMap<Arc<str>, Ledger>>,
    /// Meshes with something to write, or with something that is to be written earlier.
    touched: Mutex<BTreeSet<Arc<str>>>,
    wake: Wake,
    pub meter: ReportMetrics,
    pub signals: Signals,
}

impl fmt::Debug for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observations")
    }
}

impl Observations {
    pub fn new(store: Arc<dyn Store>, metrics: &Metrics) -> Observations {
        Observations {
            store,
            pace: Pace::default(),
            max_edges: MAX_EDGES,
            meshes: Mutex::default(),
            touched: Mutex::default(),
            wake: Wake::default(),
            meter: ReportMetrics::register(metrics),
            signals: Signals::register(metrics),
        }
    }

    /// Observed calls, which are written from now on.
    pub fn started(metrics: &Metrics, runner: &Runner) -> Arc<Observations> {
        let observations = Arc::new(Observations::new(runner.store().clone(), metrics));
        observations.start(runner);
        observations
    }

    /// The same with other limits.
    #[must_use]
    pub fn with(self, pace: Pace, max_edges: usize) -> Observations {
        Observations { pace, max_edges, ..self }
    }

    /// Starts to write what is reported.
    pub fn start(self: &Arc<Self>, runner: &Runner) {
        runner.run(Writer::of(self.clone()));
    }

    /// Takes in a report about a mesh: how often each edge was seen since the last one.
    pub fn report(&self, mesh: &str, edges: impl IntoIterator<Item = (Edge, u64)>, now: Timestamp) {
        let Ok(snapshot) = self.store.snapshot() else { return };
        let now = whole_seconds(now);
        let mut meshes = self.meshes();
        let Some(ledger) = known(&mut meshes, &snapshot, mesh) else { return };
        let before = ledger.waiting();
        let dropped = ledger.add(&snapshot, edges, self.max_edges, now);
        let is_due_earlier = ledger.waiting() != before;
        drop(meshes);
        self.meter.report(dropped);
        if is_due_earlier {
            self.touched.lock().unwrap_or_else(PoisonError::into_inner).insert(mesh.into());
            self.wake.wake();
        }
    }

    /// Everything that was seen in a mesh, by this control plane and by others on the same store.
    pub fn of_mesh(&self, mesh: &str) -> ObservedEdges {
        let Ok(snapshot) = self.store.snapshot() else { return ObservedEdges::default() };
        let mut meshes = self.meshes();
        known(&mut meshes, &snapshot, mesh).map(|ledger| ledger.all(&snapshot)).unwrap_or_default()
    }

    /// Time at which the last report of a mesh came to this control plane.
    pub fn last_report(&self, mesh: &str) -> Option<Timestamp> {
        self.meshes().get(mesh).and_then(Ledger::last_report)
    }

    fn meshes(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Ledger>> {
        self.meshes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ledger of a mesh that exists.
fn known<'a>(
    meshes: &'a mut BTreeMap<Arc<str>, Ledger>,
    snapshot: &Snapshot,
    mesh: &str,
) -> Option<&'a mut Ledger> {
    let exists = |mesh: &str| snapshot.get(&Key::global(Kind::Mesh, mesh)).is_some();
    if !exists(mesh) {
        meshes.remove(mesh);
        return None;
    }
    if !meshes.contains_key(mesh) {
        // What was seen in a mesh goes with the mesh.
        meshes.retain(|known, _| exists(known));
        meshes.insert(mesh.into(), Ledger::read(mesh, snapshot));
    }
    meshes.get_mut(mesh)
}

/// More is of no use, and is stored for every edge.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
