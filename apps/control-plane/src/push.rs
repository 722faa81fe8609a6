//! The push loop: from a change to the proxies that it affects.
//!
//! ```text
//!   store::Changes ─▶ topology::State ─▶ snapshots swapped ─▶ affected proxies woken
//!                                                              │ each, when it gets its turn:
//!                                                              ▼ plan ─▶ envoy ─▶ target ─▶ its stream
//! ```
//!
//! Changes arrive as sets, so a burst is one round; a round starts at once when the loop is idle.
//! Planning says what it read, and [`readers`] keeps who reads what, so a round visits the proxies it
//! concerns and no others. What proxies that call the same have in common is planned and encoded once
//! ([`classes`]). Waking a proxy is setting a flag: however often it is woken before its turn, it
//! computes once, from the newest snapshot. Turns are handed out first come, first served, to as many
//! proxies at a time as there are processors.

mod classes;
mod holds;
pub mod meter;
pub mod metrics;
mod pending_changes;
mod problems;
mod progress;
mod readers;
mod refusals;
mod watcher;
mod zone_acks;
mod zone_cells;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api::inspect::sync::SyncState;
use arc_swap::ArcSwap;
use plan::{Problem, ProxyKind, ProxyTraits, ZoneClass};
use resources::{Key, Kind, Resource, kinds::dataplane::Inbound, naming::service_hosts::ServiceHosts};
use runtime::Shutdown;
use store::{Changes, Cursor, Dirty, Snapshot, Store};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};
use topology::{Change, DestinationId, MeshSnapshot, MeshUpdate, Mode, State};

use classes::Classes;
pub use holds::HoldTimes;
use holds::Holds;
use problems::ProxyProblems;
use readers::Readers;
pub use refusals::Refusals;
use zone_acks::ZoneProxyEvents;
use zone_cells::ZoneCells;

pub use meter::{Confirmation, Delivery, Meter};
pub use pending_changes::{MeshChange, PendingChanges};
pub(crate) use watcher::planned;
pub use watcher::{Connected, Current, Place, Watcher, Work};
pub use zone_acks::{Marks, ZoneAcks};

type Meshes = HashMap<Arc<str>, Arc<MeshSnapshot>>;

/// How long to leave a store alone that cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// What every stream shares.
pub struct Push {
    store: Arc<dyn Store>,
    zone: Arc<str>,
    /// Whether outbounds are trimmed where neither a mesh nor a proxy says so.
    default_mode: Mode,
    /// The hostnames of services, where these are called by tags.
    service_hosts: Option<Arc<ServiceHosts>>,
    meshes: ArcSwap<Meshes>,
    /// As of the last round, for asking what a change would do.
    state: ArcSwap<State>,
    encoder: envoy::Encoder,
    readers: Mutex<Readers>,
    classes: Classes,
    zone_cells: ZoneCells,
    zone_proxies: ZoneProxyEvents,
    holds: Holds,
    next_id: AtomicU64,
    turns: Semaphore,
    /// Who signs the certificates of admin interfaces.
    admin_authority: identity::admin::Stored,
    /// When secrets changed: tokens may have been revoked, authorities replaced.
    secrets: watch::Sender<SecretChanges>,
    /// How often a proxy was woken by a change, for proving that cost follows change.
    woken: AtomicU64,
    /// What happens on the streams of proxies.
    meter: Arc<Meter>,
    /// What is wrong with the plans of connected proxies.
    problems: ProxyProblems,
    refusals: Refusals,
    /// Where to leave what changed for those who asked for it.
    subscribers: Mutex<Vec<Arc<PendingChanges>>>,
    /// Up to which revision changes of the store have marked the proxies they affect.
    seen: watch::Sender<Option<Cursor>>,
}

/// Meshes as they would be after some changes.
pub struct Hypothetical {
    pub before: Arc<State>,
    pub after: State,
    pub updates: Vec<MeshUpdate>,
    /// The connected proxies that would have to look again, by mesh and name.
    pub proxies: Vec<Arc<Watcher>>,
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
                Kind::Secret | Kind::MeshIdentity | Kind::MeshTrust => {
                    self.of_mesh.insert(key.mesh.clone(), round);
                }
                Kind::Mesh => drop(self.of_mesh.insert(key.name.clone(), round)),
                _ => continue,
            }
            self.rounds = round;
        }
        self.rounds == round
    }
}

impl Push {
    /// `zone` is the zone of this control plane.
    pub fn new(store: Arc<dyn Store>, zone: &str) -> Push {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Push {
            store,
            zone: zone.into(),
            default_mode: Mode::Off,
            service_hosts: None,
            meshes: ArcSwap::default(),
            state: ArcSwap::default(),
            encoder: envoy::Encoder::default(),
            readers: Mutex::default(),
            classes: Classes::default(),
            zone_cells: ZoneCells::default(),
            zone_proxies: ZoneProxyEvents::default(),
            holds: Holds::default(),
            next_id: AtomicU64::new(0),
            turns: Semaphore::new(processors),
            admin_authority: identity::admin::Stored::default(),
            secrets: watch::Sender::default(),
            woken: AtomicU64::new(0),
            meter: Arc::default(),
            problems: ProxyProblems::default(),
            refusals: Refusals::default(),
            subscribers: Mutex::default(),
            seen: watch::Sender::default(),
        }
    }

    /// As it is, with another mode of trimming for proxies of which neither they nor their mesh say one.
    #[must_use]
    pub fn with_default_mode(self, default_mode: Mode) -> Push {
        Push { default_mode, ..self }
    }

    /// As it is, with hostnames for services in meshes whose services are called by tags.
    #[must_use]
    pub fn naming_services(self, hosts: Option<ServiceHosts>) -> Push {
        Push { service_hosts: hosts.map(Arc::new), ..self }
    }

    /// Starts the loop. The first round sees everything that is stored.
    pub fn start(self: &Arc<Self>, shutdown: &Shutdown) {
        let push = self.clone();
        let begun = shutdown.clone();
        shutdown.spawn(async move {
            let mut state = State::default();
            let mut changes = push.store.changes();
            let mut behind = !push.round(&mut state, Dirty::Everything, &changes);
            let mut began = None;
            loop {
                let next_end = push.holds.next_end();
                // What has come during a round was stored after the round began.
                let changed_at = began.filter(|_| changes.are_waiting());
                let dirty = tokio::select! {
                    dirty = changes.next() => dirty,
                    () = tokio::time::sleep(PAUSE), if behind => Some(Dirty::Everything),
                    () = begun.begun() => None,
                    () = at(next_end) => {
                        push.end_holds();
                        continue;
                    }
                };
                let Some(dirty) = dirty else { return };
                // What could not be read then is not known now.
                let dirty = if behind { Dirty::Everything } else { dirty };
                began = Some(Instant::now());
                push.meter.round_begins(changed_at.or(began));
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

    /// Folds what changed into the meshes and wakes the proxies it concerns.
    fn fold(&self, state: &mut State, dirty: Dirty, snapshot: &Snapshot) {
        let anew = dirty == Dirty::Everything;
        let (keys, meshes) = match dirty {
            Dirty::Keys(keys) => (keys, Meshes::clone(&self.meshes.load())),
            // What is gone is not known, so the meshes are built anew and every proxy looks again.
            Dirty::Everything => {
                *state = State::in_zone(&self.zone)
                    .with_default_mode(self.default_mode)
                    .naming_services(self.service_hosts.clone());
                (snapshot.iter().map(|resource| resource.key.clone()).collect(), Meshes::default())
            }
        };
        self.secrets.send_if_modified(|changes| changes.record(&keys, anew));
        let changed: Vec<_> =
            keys.into_iter().map(|key| (key.clone(), snapshot.get(&key).cloned())).collect();
        let updates = state.apply(&changed);
        // What no proxy sees is part of it too: a later change may bring it to light.
        self.state.store(Arc::new(state.clone()));
        self.woken.fetch_add(
            self.readers().wake_zone_proxies(changed.iter().map(|(key, _)| key)),
            Ordering::Relaxed,
        );
        self.publish(&updates, meshes, anew);
    }

    /// Swaps the meshes and wakes the proxies that updates concern; all of them where it is not known what changed.
    fn publish(&self, updates: &[MeshUpdate], mut meshes: Meshes, anew: bool) {
        if updates.is_empty() && !anew {
            return;
        }
        for update in updates {
            match &update.snapshot {
                Some(snapshot) => meshes.insert(update.mesh.clone(), snapshot.clone()),
                None => meshes.remove(&update.mesh),
            };
        }
        // A proxy that connects meanwhile waits for this, sees the meshes as they are then and looks at everything.
        let readers = self.readers();
        let cells = self.zone_cells.all();
        let concerned = match anew {
            true => readers.all(&cells),
            false => readers.affected_by(updates).and_zones(&cells, &self.zone, updates),
        };
        let hold = concerned.hold(&self.holds, &self.meshes.load(), &meshes);
        self.meshes.store(Arc::new(meshes));
        for pending in lock(&self.subscribers).iter() {
            pending.post(updates, anew);
        }
        self.woken.fetch_add(concerned.wake(hold.as_ref()), Ordering::Relaxed);
    }

    /// What meshes would look like, and which proxies would be affected, if these resources changed. Nothing is written.
    pub fn what_if(&self, changes: &[Change]) -> Hypothetical {
        let before = self.state.load_full();
        let mut after = State::clone(&before);
        let updates = after.apply(changes);
        let proxies = self.readers().affected_by(&updates).proxies();
        Hypothetical { before, after, updates, proxies }
    }

    /// A new subscriber: it gets everything that changes from now on.
    pub fn subscribe(&self) -> Arc<PendingChanges> {
        let pending = Arc::<PendingChanges>::default();
        lock(&self.subscribers).push(pending.clone());
        pending
    }

    /// What is wrong with the plans of the connected proxies of a mesh, each about what it is wrong with.
    pub fn problems(&self, mesh: &str) -> Vec<Problem> {
        self.problems.of_mesh(mesh)
    }

    /// The proxies that no MeshIdentity is given to, nor a connection.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        lock(&self.readers)
    }

    /// Tells when secrets have changed.
    pub fn secrets_changed(&self) -> watch::Receiver<SecretChanges> {
        self.secrets.subscribe()
    }

    /// Waits until every change made so far has woken the proxies it affects.
    pub async fn caught_up(&self) {
        let now = self.store.changes().cursor();
        // Fails only when the sender is gone, which is here.
        let _ = self.seen.subscribe().wait_for(|seen| seen.is_some_and(|seen| seen >= now)).await;
    }

    /// How often a proxy was woken by a change since the beginning.
    pub fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// How many views of policies were made since the beginning, for proving that one per changed policy is.
    pub fn policy_views(&self) -> u64 {
        self.state.load().views_made()
    }

    pub fn mesh(&self, name: &str) -> Option<Arc<MeshSnapshot>> {
        self.meshes.load().get(name).cloned()
    }

    /// A proxy that connected, with the Dataplane that is stored. It is woken at once, and forgotten when the
    /// guard is dropped.
    pub fn connect(self: &Arc<Self>, traits: ProxyTraits) -> Connected {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let stored = self.store.snapshot().ok();
        let place = stored.and_then(|stored| Place::of(&stored.get(&traits.key())?.spec));
        let watcher = Arc::new(Watcher::new(id, traits, place, self.meter.clone()));
        self.readers().add_watcher(&watcher);
        let zone = match watcher.traits.kind {
            ProxyKind::Sidecar => None,
            ProxyKind::Ingress | ProxyKind::Egress => {
                Some(self.zone_cells.join(ZoneClass::of(&watcher.traits), &watcher))
            }
        };
        Connected { push: self.clone(), watcher, zone }
    }

    /// How many connections a proxy has here: one that comes back may do so before its old connection is
    /// seen to be dead.
    pub fn connections(&self, proxy: &Key) -> usize {
        self.readers().connections(proxy).len()
    }

    /// The newest connection of a proxy.
    pub fn newest(&self, proxy: &Key) -> Option<Arc<Watcher>> {
        self.readers().connections(proxy).last().cloned()
    }

    /// Where the newest connection of a sidecar stands; `None` if it has none here. To be asked after
    /// [`Push::caught_up`], so that the proxy knows of what it has to follow.
    pub fn sync_state(&self, proxy: &Key) -> Option<SyncState> {
        let secrets = self.secrets.borrow().of(&proxy.mesh);
        Some(self.newest(proxy)?.sync_state(secrets))
    }

    /// How many sidecars of a mesh are connected, and how many of them said what they call.
    pub fn reporting(&self, mesh: &str) -> (usize, usize) {
        let readers = self.readers();
        let reporting = readers.sidecars(mesh).filter(|watcher| watcher.has_reported()).count();
        (readers.sidecars(mesh).count(), reporting)
    }

    /// The destinations that an inbound of a Dataplane serves now.
    pub fn served_at(&self, dataplane: &Resource, inbound: &Inbound) -> BTreeSet<DestinationId> {
        self.state.load().served_at(dataplane, inbound)
    }

    /// All meshes, by name.
    pub fn all_meshes(&self) -> Vec<Arc<MeshSnapshot>> {
        let mut meshes: Vec<_> = self.meshes.load().values().cloned().collect();
        meshes.sort_by(|a, b| a.name.cmp(&b.name));
        meshes
    }

    /// The names of the ZoneIngresses of this zone.
    pub fn own_ingresses(&self) -> Vec<Arc<str>> {
        self.state.load().zones().own_ingresses().cloned().collect()
    }

    /// How many proxies are connected.
    pub fn connected(&self) -> usize {
        self.readers().count()
    }

    /// How many sidecars of each mesh are connected.
    pub fn connected_by_mesh(&self) -> Vec<(Arc<str>, usize)> {
        self.readers().count_by_mesh()
    }

    /// What happens on the streams of proxies.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// How many classes of proxies there are: each is planned once for all its members.
    pub fn classes(&self) -> usize {
        self.classes.count()
    }

    pub fn encoder(&self) -> &envoy::Encoder {
        &self.encoder
    }
}

/// Waits for a moment; forever when there is none to wait for.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Nothing that is locked here can be half done, so a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
