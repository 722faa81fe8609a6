//! Follows the meshes, and publishes a catalog when targets changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{InspectError, ScrapeTargets, TargetPage};
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Runner, Wake, Whole};
use resources::Kind;
use serving::push::{PendingChanges, Push, lock};
use store::{Dirty, Snapshot, Store};
use tokio::sync::watch;

use crate::{
    catalog::{Catalog, Page, Question},
    mesh::MeshTargets,
    zone_proxies::{FOLLOWED, ZoneTargets},
};

/// Longest wait for the first look at the store. A Prometheus keeps what it has until then.
const PATIENCE: Duration = Duration::from_secs(10);

/// The targets of all meshes.
pub struct Targets {
    store: Arc<dyn Store>,
    push: Arc<Push>,
    pending: Arc<PendingChanges>,
    meshes: Mutex<BTreeMap<Arc<str>, MeshTargets>>,
    zone_proxies: Mutex<ZoneTargets>,
    /// `None` until the store has been looked at.
    catalog: watch::Sender<Option<Arc<Catalog>>>,
    pause: Duration,
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").finish_non_exhaustive()
    }
}

/// The store could not be read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the control plane has not read its store yet, so it does not know which proxies there are; ask again"
)]
pub struct NotReadYet;

impl Targets {
    /// Before the push loop starts, so that nothing is missed. Two catalogs are at least the pause apart.
    pub fn new(store: Arc<dyn Store>, push: Arc<Push>, pause: Duration) -> Arc<Targets> {
        Arc::new(Targets {
            pending: push.subscribe(),
            store,
            push,
            meshes: Mutex::default(),
            zone_proxies: Mutex::default(),
            catalog: watch::Sender::default(),
            pause,
        })
    }

    /// Starts following changes.
    pub fn start(self: &Arc<Self>, runner: &Runner) {
        runner.run(Following(self.clone()));
    }

    /// Catalogs from now on, the current one first.
    pub async fn catalogs(&self) -> Result<watch::Receiver<Option<Arc<Catalog>>>, NotReadYet> {
        let catalogs = self.catalog.subscribe();
        // An empty answer would take all targets away from a Prometheus that outlived this process' predecessor.
        if catalogs.borrow().is_none() {
            tokio::time::timeout(PATIENCE, self.push.caught_up()).await.map_err(|_| NotReadYet)?;
            let snapshot = self.store.snapshot().map_err(|_| NotReadYet)?;
            lock(&self.zone_proxies).update(&snapshot, &Dirty::Everything);
            self.take_changes();
            self.publish();
        }
        Ok(catalogs)
    }

    /// Number of Dataplanes that were looked at for their targets, to prove that cost follows change.
    pub fn examined(&self) -> u64 {
        lock(&self.meshes).values().map(MeshTargets::examined).sum()
    }

    /// Folds changes in; returns true if there are other targets now.
    fn take_changes(&self) -> bool {
        let mut meshes = lock(&self.meshes);
        let mut changes = self.pending.take();
        let mut changed = false;
        if changes.anew {
            let is_there = |mesh: &Arc<str>| changes.meshes.get(mesh).is_some_and(|it| it.snapshot.is_some());
            let before = meshes.len();
            meshes.retain(|mesh, _| is_there(mesh));
            changed |= meshes.len() != before;
            changes.meshes.values_mut().for_each(|change| change.affected.whole_mesh = true);
        }
        for (mesh, change) in changes.meshes {
            changed |= match (change.snapshot, meshes.get_mut(&mesh)) {
                (None, _) => meshes.remove(&mesh).is_some(),
                (Some(snapshot), Some(known)) => known.update(&snapshot, &change.affected),
                (Some(snapshot), None) => {
                    meshes.insert(mesh, MeshTargets::of(&snapshot));
                    true
                }
            };
        }
        changed
    }

    fn publish(&self) {
        let meshes = lock(&self.meshes).clone();
        let zone_proxies = lock(&self.zone_proxies).clone();
        self.catalog.send_replace(Some(Arc::new(Catalog::new(meshes, zone_proxies))));
    }
}

/// Keeps targets up to date, and writes nothing to the store.
struct Following(Arc<Targets>);

impl Reconciler for Following {
    const NAME: &'static str = "scrape_targets";
    const WORK: &'static str = "publish targets of metrics";
    const FOLLOWS: &'static [Kind] = &FOLLOWED;
    type Unit = Whole;

    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Whole> {
        Whole::if_due(lock(&self.0.zone_proxies).update(snapshot, dirty))
    }

    fn wake(&self) -> Wake {
        self.0.pending.wake()
    }

    fn woken(&mut self) -> BTreeSet<Whole> {
        Whole::if_due(self.0.take_changes())
    }

    async fn reconcile(&mut self, _unit: &Whole, _pass: &Pass) -> Result<Next, ReconcileFailure> {
        // The first catalog is for the first question, which waits until all meshes have been read.
        if self.0.catalog.borrow().is_some() {
            self.0.publish();
        }
        Ok(Next::on_change().after(self.0.pause))
    }
}

#[async_trait::async_trait]
impl ScrapeTargets for Targets {
    async fn listed(&self, mesh: Option<&str>, client: &str) -> Result<TargetPage, InspectError> {
        let catalogs = self.catalogs().await.map_err(|error| InspectError::Unreachable(error.to_string()))?;
        let Some(catalog) = catalogs.borrow().clone() else {
            return Err(InspectError::Unreachable(NotReadYet.to_string()));
        };
        let known = |name: &str| {
            let missing = || InspectError::NotFound(format!("there is no mesh {name:?}"));
            catalog.mesh(name).ok_or_else(missing)
        };
        let mesh = mesh.map(known).transpose()?;
        let Page { version, body } =
            catalog.page(Question::Groups { mesh, client: catalog.client(client) }).await;
        Ok(TargetPage { version, body })
    }
}
