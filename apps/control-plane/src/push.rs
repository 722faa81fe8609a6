//! From a change to the proxies that must know: the one loop.
//!
//! ```text
//!   store::Changes ─▶ topology::State ─▶ snapshots swapped ─▶ affected proxies woken
//!                                                              │ each, when it gets its turn:
//!                                                              ▼ plan ─▶ envoy ─▶ target ─▶ its stream
//! ```
//!
//! Changes arrive as sets, so a burst is one round; a round starts at once when the loop is idle.
//! Waking a proxy is setting a flag: however often it is woken before its turn, it computes once, from
//! the newest snapshot. Turns are handed out first come, first served, to as many proxies at a time as
//! there are processors. A proxy that uses none of the changed destinations is not woken at all.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use plan::{ProxyPlan, ProxyTraits};
use resources::{Key, Kind};
use runtime::Shutdown;
use store::{Dirty, Store};
use tokio::sync::{Notify, Semaphore, watch};
use topology::{Affected, DestinationId, MeshSnapshot, State};
use xds::Target;

type Meshes = HashMap<Arc<str>, Arc<MeshSnapshot>>;

/// What every stream shares.
pub struct Push {
    store: Arc<dyn Store>,
    zone: Arc<str>,
    meshes: ArcSwap<Meshes>,
    encoder: envoy::Encoder,
    watchers: Mutex<HashMap<u64, Arc<Watcher>>>,
    next_id: AtomicU64,
    turns: Semaphore,
    /// Counts changes of secrets: tokens may have been revoked, authorities replaced.
    secrets: watch::Sender<u64>,
}

/// A connected proxy, as the loop sees it.
#[derive(Debug)]
pub struct Watcher {
    id: u64,
    pub traits: ProxyTraits,
    woken: Notify,
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    uses: BTreeSet<DestinationId>,
    /// Any destination may matter: the proxy gets all of them, or waits for one that is not there yet.
    open: bool,
    work: Work,
}

/// What a woken proxy has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Work {
    #[default]
    Nothing,
    /// Only who serves these destinations is different: no plan changes.
    Endpoints(BTreeSet<DestinationId>),
    Everything,
}

impl Work {
    fn add(&mut self, more: Work) {
        match (&mut *self, more) {
            (_, Work::Nothing) | (Work::Everything, _) => {}
            (Work::Endpoints(have), Work::Endpoints(more)) => have.extend(more),
            (_, more) => *self = more,
        }
    }
}

impl Watcher {
    /// Waits until there is something to do, and takes it.
    pub async fn work(&self) -> Work {
        loop {
            let work = std::mem::take(&mut lock(&self.state).work);
            if work != Work::Nothing {
                return work;
            }
            self.woken.notified().await;
        }
    }

    /// Asks for a new look at everything, whatever changed.
    pub fn wake(&self) {
        self.add(Work::Everything);
    }

    fn add(&self, work: Work) {
        if work != Work::Nothing {
            lock(&self.state).work.add(work);
            self.woken.notify_one();
        }
    }

    /// What a change of the mesh means for this proxy.
    fn concerns(&self, affected: &Affected) -> Work {
        let Waiting { uses, open, .. } = &*lock(&self.state);
        let own = affected.everyone || affected.proxies.contains(&self.traits.name);
        if own || affected.destinations.iter().any(|destination| *open || uses.contains(destination)) {
            return Work::Everything;
        }
        let endpoints: BTreeSet<_> = affected.endpoints.intersection(uses).cloned().collect();
        if endpoints.is_empty() { Work::Nothing } else { Work::Endpoints(endpoints) }
    }
}

impl Push {
    /// `zone` is the zone of this control plane.
    pub fn new(store: Arc<dyn Store>, zone: &str) -> Push {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Push {
            store,
            zone: zone.into(),
            meshes: ArcSwap::default(),
            encoder: envoy::Encoder::default(),
            watchers: Mutex::default(),
            next_id: AtomicU64::new(0),
            turns: Semaphore::new(processors),
            secrets: watch::Sender::new(0),
        }
    }

    /// Starts the loop. The first round sees everything that is stored.
    pub fn start(self: &Arc<Self>, shutdown: &Shutdown) {
        let push = self.clone();
        let begun = shutdown.clone();
        shutdown.spawn(async move {
            let mut state = State::default();
            let mut changes = push.store.changes().from_the_beginning();
            push.round(&mut state, Dirty::Everything);
            loop {
                let dirty = tokio::select! {
                    dirty = changes.next() => dirty,
                    () = begun.begun() => None,
                };
                let Some(dirty) = dirty else { return };
                push.round(&mut state, dirty);
            }
        });
    }

    /// Folds what changed into the meshes and wakes whom it concerns.
    fn round(&self, state: &mut State, dirty: Dirty) {
        // A store that cannot be read now announces itself again when it can.
        let Ok(snapshot) = self.store.snapshot() else { return };
        let keys: BTreeSet<Key> = match dirty {
            Dirty::Keys(keys) => keys,
            // Nobody knows what is gone, so the meshes are built anew and everybody looks again.
            Dirty::Everything => {
                *state = State::in_zone(&self.zone);
                self.meshes.store(Arc::default());
                lock(&self.watchers).values().for_each(|watcher| watcher.wake());
                snapshot.iter().map(|resource| resource.key.clone()).collect()
            }
        };
        if keys.iter().any(|key| matches!(key.kind, Kind::Secret | Kind::GlobalSecret | Kind::Mesh)) {
            self.secrets.send_modify(|count| *count += 1);
        }
        let changed: Vec<_> =
            keys.into_iter().map(|key| (key.clone(), snapshot.get(&key).cloned())).collect();
        let updates = state.apply(&changed);
        if updates.is_empty() {
            return;
        }
        let mut meshes = Meshes::clone(&self.meshes.load());
        for update in &updates {
            match &update.snapshot {
                Some(snapshot) => meshes.insert(update.mesh.clone(), snapshot.clone()),
                None => meshes.remove(&update.mesh),
            };
        }
        self.meshes.store(Arc::new(meshes));
        for watcher in lock(&self.watchers).values() {
            for update in updates.iter().filter(|update| update.mesh == watcher.traits.mesh) {
                watcher.add(watcher.concerns(&update.affected));
            }
        }
    }

    /// Tells when secrets have changed.
    pub fn secrets_changed(&self) -> watch::Receiver<u64> {
        self.secrets.subscribe()
    }

    pub fn mesh(&self, name: &str) -> Option<Arc<MeshSnapshot>> {
        self.meshes.load().get(name).cloned()
    }

    /// A proxy that connected. It is woken at once, and forgotten when the guard is dropped.
    pub fn connect(self: &Arc<Self>, traits: ProxyTraits) -> Connected {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(Waiting { work: Work::Everything, ..Waiting::default() });
        let watcher = Arc::new(Watcher { id, traits, woken: Notify::new(), state });
        lock(&self.watchers).insert(id, watcher.clone());
        Connected { push: self.clone(), watcher }
    }

    /// Whether a proxy of this name is connected here.
    pub fn is_connected(&self, mesh: &str, name: &str) -> bool {
        lock(&self.watchers).values().any(|w| &*w.traits.mesh == mesh && &*w.traits.name == name)
    }

    pub fn connected(&self) -> Vec<Arc<Watcher>> {
        lock(&self.watchers).values().cloned().collect()
    }

    pub fn encoder(&self) -> &envoy::Encoder {
        &self.encoder
    }
}

/// A connected proxy; dropping it disconnects.
pub struct Connected {
    push: Arc<Push>,
    pub watcher: Arc<Watcher>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        lock(&self.push.watchers).remove(&self.watcher.id);
    }
}

/// What a proxy was last told to do.
#[derive(Debug, Clone)]
pub struct Current {
    pub plan: Arc<ProxyPlan>,
    pub target: Target,
}

impl Current {
    /// Whether the endpoints of these destinations are resources of their own. Those of what lies outside
    /// the mesh are part of their cluster.
    fn all_discovered(&self, destinations: &BTreeSet<DestinationId>) -> bool {
        !self.plan.outbounds.iter().any(|o| o.external.is_some() && destinations.contains(&o.destination))
    }
}

impl Connected {
    /// The proxy's configuration after `work`, computed when it is its turn. `None` while its mesh or its
    /// Dataplane does not exist.
    pub async fn compute(&self, work: &Work, current: Option<&Current>) -> Option<Current> {
        // Closed only when the process ends, and then nothing needs to be computed.
        let _turn = self.push.turns.acquire().await.ok()?;
        let mesh = self.push.mesh(&self.watcher.traits.mesh)?;
        match (work, current) {
            (Work::Endpoints(destinations), Some(current)) if current.all_discovered(destinations) => {
                Some(self.with_endpoints(&mesh, destinations, current))
            }
            _ => self.from_scratch(&mesh),
        }
    }

    fn from_scratch(&self, mesh: &MeshSnapshot) -> Option<Current> {
        let plan = match plan::for_proxy(mesh, &self.watcher.traits) {
            Ok(plan) => Arc::new(plan),
            Err(error) => {
                tracing::debug!(proxy = &*self.watcher.traits.name, %error, "no configuration");
                return None;
            }
        };
        {
            let mut waiting = lock(&self.watcher.state);
            waiting.uses = plan.outbounds.iter().map(|outbound| outbound.destination.clone()).collect();
            waiting.open = !plan.problems.is_empty() || !plan.passthrough.is_empty();
        }
        let target = self.push.encoder.lower(&plan);
        Some(Current { plan, target })
    }

    /// The fast lane: the same plan with other endpoints.
    fn with_endpoints(
        &self,
        mesh: &MeshSnapshot,
        destinations: &BTreeSet<DestinationId>,
        current: &Current,
    ) -> Current {
        let mut next = current.clone();
        for outbound in current.plan.outbounds.iter().filter(|o| destinations.contains(&o.destination)) {
            if let Some(endpoints) = mesh.endpoints.get(&outbound.destination) {
                next.target.insert(
                    xds::Type::Endpoint,
                    self.push.encoder.endpoints(&outbound.names.cluster, endpoints),
                );
            }
        }
        next
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
