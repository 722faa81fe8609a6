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
//! there are processors. A proxy that uses none of the changed destinations, and that none of the
//! changed policies selects, is not woken at all.

pub mod metrics;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use plan::{AdminTls, ProxyPlan, ProxyTraits, effective::Concern};
use resources::{Key, Kind};
use runtime::Shutdown;
use store::{Changes, Cursor, Dirty, Snapshot, Store};
use tokio::sync::{Notify, Semaphore, watch};
use topology::{DestinationId, MeshSnapshot, MeshUpdate, State};
use xds::Target;

use crate::inspect;

type Meshes = HashMap<Arc<str>, Arc<MeshSnapshot>>;

/// How long to leave a store alone that cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// What every stream shares.
pub struct Push {
    store: Arc<dyn Store>,
    zone: Arc<str>,
    meshes: ArcSwap<Meshes>,
    encoder: envoy::Encoder,
    watchers: Mutex<HashMap<u64, Arc<Watcher>>>,
    next_id: AtomicU64,
    turns: Semaphore,
    /// Who signs the certificates of admin interfaces.
    admin_authority: identity::admin::Stored,
    /// When secrets changed: tokens may have been revoked, authorities replaced.
    secrets: watch::Sender<SecretChanges>,
    /// How often a proxy was woken by a change, for proving that cost follows change.
    woken: AtomicU64,
    /// Up to where the store's changes have reached everybody's flags.
    seen: watch::Sender<Option<Cursor>>,
}

/// In which round the secrets of each mesh last changed.
#[derive(Debug, Default)]
pub struct SecretChanges {
    rounds: u64,
    everywhere: u64,
    of_mesh: HashMap<Arc<str>, u64>,
}

impl SecretChanges {
    /// A number that is another one when something changed that matters in the mesh.
    pub fn of(&self, mesh: &str) -> u64 {
        self.of_mesh.get(mesh).copied().unwrap_or_default().max(self.everywhere)
    }

    fn record(&mut self, keys: &BTreeSet<Key>, anew: bool) -> bool {
        let round = self.rounds + 1;
        if anew {
            (self.rounds, self.everywhere) = (round, round);
        }
        for key in keys {
            match key.kind {
                Kind::GlobalSecret => self.everywhere = round,
                Kind::Secret => drop(self.of_mesh.insert(key.mesh.clone(), round)),
                Kind::Mesh => drop(self.of_mesh.insert(key.name.clone(), round)),
                _ => continue,
            }
            self.rounds = round;
        }
        self.rounds == round
    }
}

/// A connected proxy, as the loop sees it.
#[derive(Debug)]
pub struct Watcher {
    id: u64,
    pub traits: ProxyTraits,
    woken: Notify,
    state: Mutex<Waiting>,
    /// The certificate of its admin interface, and the address it is for.
    admin_tls: Mutex<Option<(String, Arc<AdminTls>)>>,
}

#[derive(Debug, Default)]
struct Waiting {
    uses: BTreeSet<DestinationId>,
    /// Any destination may matter: the proxy gets all of them, or waits for one that is not there yet.
    open: bool,
    /// Which destination is meant depends on what others there are: it is asked for by labels, or by the
    /// name of a service that has one port.
    choosing: bool,
    /// Something of the Dataplane cannot be done now.
    troubled: bool,
    work: Work,
}

impl Waiting {
    /// What is to be watched for a proxy with this plan; says whether that is something else than before.
    fn follow(&mut self, plan: &ProxyPlan) -> bool {
        let troubled = !plan.problems.is_empty();
        let next = Waiting {
            uses: plan.destinations().cloned().collect(),
            open: troubled || !plan.passthrough.is_empty(),
            choosing: plan.choosing,
            troubled,
            work: std::mem::take(&mut self.work),
        };
        let watched = |w: &Waiting| (w.open, w.choosing, w.troubled);
        let differs = next.uses != self.uses || watched(&next) != watched(self);
        *self = next;
        differs
    }
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

    /// Says whether there was anything to add.
    fn add(&self, work: Work) -> bool {
        let any = work != Work::Nothing;
        if any {
            lock(&self.state).work.add(work);
            self.woken.notify_one();
        }
        any
    }

    /// What a change of the mesh means for this proxy.
    fn concerns(&self, change: &Changed<'_>) -> Work {
        let affected = &change.update.affected;
        let own = affected.everyone || affected.proxies.contains(&self.traits.name);
        if own || change.policies_reach(&self.traits.name) {
            return Work::Everything;
        }
        let Waiting { uses, open, choosing, troubled, .. } = &*lock(&self.state);
        let found_otherwise = affected.appeared && *choosing;
        let used = |destination: &DestinationId| *open || uses.contains(destination);
        // What lies outside the mesh may be in the way because of where it is.
        let movable = |destination: &DestinationId| *troubled && is_external(destination);
        if found_otherwise || affected.destinations.iter().any(used) || affected.endpoints.iter().any(movable)
        {
            return Work::Everything;
        }
        let endpoints: BTreeSet<_> = affected.endpoints.intersection(uses).cloned().collect();
        if endpoints.is_empty() { Work::Nothing } else { Work::Endpoints(endpoints) }
    }
}

/// A mesh that changed.
struct Changed<'a> {
    update: &'a MeshUpdate,
    policies: Option<Concern<'a>>,
}

impl<'a> Changed<'a> {
    fn of(update: &'a MeshUpdate) -> Changed<'a> {
        let snapshot = update.snapshot.as_deref().filter(|_| !update.affected.policies.is_empty());
        Changed { update, policies: snapshot.map(|mesh| Concern::of(mesh, &update.affected.policies)) }
    }

    /// Whether the policies that changed matter to a proxy. It is judged by its Dataplane as it is now:
    /// if that changed, too, or comes later, the proxy is woken for that.
    fn policies_reach(&self, proxy: &str) -> bool {
        let dataplane = self.update.snapshot.as_ref().and_then(|mesh| mesh.dataplanes.get(proxy));
        let Some((concern, dataplane)) = self.policies.as_ref().zip(dataplane) else { return false };
        concern.reaches(dataplane)
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
            admin_authority: identity::admin::Stored::default(),
            secrets: watch::Sender::default(),
            woken: AtomicU64::new(0),
            seen: watch::Sender::default(),
        }
    }

    /// Starts the loop. The first round sees everything that is stored.
    pub fn start(self: &Arc<Self>, shutdown: &Shutdown) {
        let push = self.clone();
        let begun = shutdown.clone();
        shutdown.spawn(async move {
            let mut state = State::default();
            let mut changes = push.store.changes();
            let mut behind = !push.round(&mut state, Dirty::Everything, &changes);
            loop {
                let dirty = tokio::select! {
                    dirty = changes.next() => dirty,
                    () = tokio::time::sleep(PAUSE), if behind => Some(Dirty::Everything),
                    () = begun.begun() => None,
                };
                let Some(dirty) = dirty else { return };
                // What could not be read then is not known now.
                let dirty = if behind { Dirty::Everything } else { dirty };
                behind = !push.round(&mut state, dirty, &changes);
            }
        });
    }

    /// Returns whether the store could be read.
    fn round(&self, state: &mut State, dirty: Dirty, changes: &Changes) -> bool {
        let Ok(snapshot) = self.store.snapshot() else { return false };
        self.fold(state, dirty, &snapshot);
        self.seen.send_replace(Some(changes.cursor()));
        true
    }

    /// Folds what changed into the meshes and wakes whom it concerns.
    fn fold(&self, state: &mut State, dirty: Dirty, snapshot: &Snapshot) {
        let anew = dirty == Dirty::Everything;
        let (keys, mut meshes) = match dirty {
            Dirty::Keys(keys) => (keys, Meshes::clone(&self.meshes.load())),
            // Nobody knows what is gone, so the meshes are built anew and everybody looks again.
            Dirty::Everything => {
                *state = State::in_zone(&self.zone);
                (snapshot.iter().map(|resource| resource.key.clone()).collect(), Meshes::default())
            }
        };
        self.secrets.send_if_modified(|changes| changes.record(&keys, anew));
        let changed: Vec<_> =
            keys.into_iter().map(|key| (key.clone(), snapshot.get(&key).cloned())).collect();
        let updates = state.apply(&changed);
        if updates.is_empty() && !anew {
            return;
        }
        for update in &updates {
            match &update.snapshot {
                Some(snapshot) => meshes.insert(update.mesh.clone(), snapshot.clone()),
                None => meshes.remove(&update.mesh),
            };
        }
        self.meshes.store(Arc::new(meshes));
        let woken = match anew {
            true => self.wake(|_| Work::Everything),
            false => {
                let changes: Vec<_> = updates.iter().map(Changed::of).collect();
                self.wake(|watcher| {
                    let own = changes.iter().find(|change| change.update.mesh == watcher.traits.mesh);
                    own.map_or(Work::Nothing, |change| watcher.concerns(change))
                })
            }
        };
        self.woken.fetch_add(woken, Ordering::Relaxed);
    }

    /// Gives work to those for whom there is any, and counts them. Whoever connects meanwhile sees the
    /// meshes as they are now and looks at everything.
    fn wake(&self, work: impl Fn(&Watcher) -> Work) -> u64 {
        self.connected().iter().map(|watcher| u64::from(watcher.add(work(watcher)))).sum()
    }

    /// Tells when secrets have changed.
    pub fn secrets_changed(&self) -> watch::Receiver<SecretChanges> {
        self.secrets.subscribe()
    }

    /// Waits until everybody is woken whom changes concern that were made until now.
    pub async fn caught_up(&self) {
        let now = self.store.changes().cursor();
        // Fails only when the sender is gone, which is here.
        let _ = self.seen.subscribe().wait_for(|seen| seen.is_some_and(|seen| seen >= now)).await;
    }

    /// How often a proxy was woken by a change since the beginning.
    pub fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    pub fn mesh(&self, name: &str) -> Option<Arc<MeshSnapshot>> {
        self.meshes.load().get(name).cloned()
    }

    /// A proxy that connected. It is woken at once, and forgotten when the guard is dropped.
    pub fn connect(self: &Arc<Self>, traits: ProxyTraits) -> Connected {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(Waiting { work: Work::Everything, ..Waiting::default() });
        let watcher =
            Arc::new(Watcher { id, traits, woken: Notify::new(), state, admin_tls: Mutex::default() });
        lock(&self.watchers).insert(id, watcher.clone());
        Connected { push: self.clone(), watcher }
    }

    /// Whether a proxy of this name is connected here.
    pub fn is_connected(&self, mesh: &str, name: &str) -> bool {
        self.newest(mesh, name).is_some()
    }

    /// The newest connection of a proxy: one that comes back may do so before its old connection is seen
    /// to be dead.
    pub fn newest(&self, mesh: &str, name: &str) -> Option<Arc<Watcher>> {
        let watchers = lock(&self.watchers);
        let own = watchers.values().filter(|w| &*w.traits.mesh == mesh && &*w.traits.name == name);
        own.max_by_key(|watcher| watcher.id).cloned()
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
        !self.plan.backends.iter().any(|b| b.external.is_some() && destinations.contains(&b.destination))
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
            _ => self.compute_all(&mesh),
        }
    }

    fn compute_all(&self, mesh: &Arc<MeshSnapshot>) -> Option<Current> {
        let plan = match plan::for_proxy(mesh, &self.watcher.traits) {
            Ok(plan) => Arc::new(self.with_admin_tls(plan)),
            Err(error) => {
                tracing::debug!(proxy = &*self.watcher.traits.name, %error, "no configuration");
                return None;
            }
        };
        let watches_others = lock(&self.watcher.state).follow(&plan);
        // A change that came while this was computed was judged by what the proxy used before.
        if watches_others && !self.push.mesh(&mesh.name).is_some_and(|now| Arc::ptr_eq(&now, mesh)) {
            self.watcher.wake();
        }
        let target = self.push.encoder.lower(&plan);
        Some(Current { plan, target })
    }

    /// Gives the admin interface its certificate, made once per connection: it takes a signature.
    fn with_admin_tls(&self, mut plan: ProxyPlan) -> ProxyPlan {
        let Some(admin) = &mut plan.admin else { return plan };
        let traits = &self.watcher.traits;
        let key = Key::new(Kind::Dataplane, &traits.mesh, &traits.name);
        let address = admin.address.to_string();
        let mut kept = lock(&self.watcher.admin_tls);
        if kept.as_ref().is_none_or(|(for_address, _)| *for_address != address) {
            let made = self.push.store.snapshot().map_err(anyhow::Error::from).and_then(|snapshot| {
                let authority = self.push.admin_authority.load(&snapshot, Timestamp::now())?;
                Ok(inspect::admin_tls(&authority, &key, &address)?)
            });
            *kept = match made {
                Ok(tls) => Some((address, Arc::new(tls))),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(proxy = %key, error, "its admin interface cannot be offered");
                    None
                }
            };
        }
        admin.tls = kept.as_ref().map(|(_, tls)| tls.clone());
        plan
    }

    /// The fast lane: the same plan with other endpoints.
    fn with_endpoints(
        &self,
        mesh: &MeshSnapshot,
        destinations: &BTreeSet<DestinationId>,
        current: &Current,
    ) -> Current {
        let mut next = current.clone();
        for backend in current.plan.backends.iter().filter(|b| destinations.contains(&b.destination)) {
            if let Some(endpoints) = mesh.endpoints.get(&backend.destination) {
                let encoded = self.push.encoder.endpoints(&backend.cluster, endpoints);
                next.target.insert(xds::Type::Endpoint, encoded);
            }
        }
        next
    }
}

fn is_external(destination: &DestinationId) -> bool {
    matches!(destination, DestinationId::Port(kri) if kri.kind() == Some(Kind::MeshExternalService))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
