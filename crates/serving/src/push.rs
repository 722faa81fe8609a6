//! The push loop: from a change to the proxies that it affects.
//!
//! ```text
//!   store::Changes ─▶ topology::AllMeshes ─▶ snapshots swapped ─▶ affected proxies woken
//!                                                              │ each, when it gets its turn:
//!                                                              ▼ plan ─▶ envoy ─▶ target ─▶ its stream
//! ```
//!
//! ```text
//!   change ─▶ snapshot swapped ─▶ readers: who read that? ─▶ classes marked, their members woken
//!                                                            own Dataplane or policies: proxies woken
//!                                                            │ the first member with a turn plans the class,
//!                                                            ▼ every member takes over the difference
//! ```
//!
//! A change of endpoints encodes one resource for each class that calls the destination, and plans nothing. A changed
//! policy finds the proxies that it selected and selects in the snapshot ([`topology`]'s selection). A permission that
//! changes what trimmed proxies may call wakes the classes for which that is different, after the servers ([`holds`]).
//! Sidecars and zone proxies go through the same steps; a class of zone proxies has a part for each mesh ([`classes`]).
//!
//! [`Push::what_if`] applies changes to a copy of the state, and wakes no proxy.
//!
//! Changes arrive as sets, so a burst is one round; a round starts at once when the loop is idle.
//! Planning says what it read, and [`readers`] keeps who reads what, so a round visits the proxies it
//! concerns and no others. What proxies that call the same have in common is planned and encoded once
//! ([`classes`]). Waking a proxy is setting a flag: however often it is woken before its turn, it
//! computes once, from the newest snapshot. Turns are handed out first come, first served, to as many
//! proxies at a time as there are processors.

mod agent_reports;
mod classes;
mod holds;
pub mod meter;
pub mod metrics;
mod pending_changes;
mod progress;
mod proxy_findings;
mod readers;
mod refusals;
mod secrets;
mod watcher;
mod zone_acks;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use contract::sync::ProxySyncState as SyncState;
use plan::{Finding, ProxyTraits};
use resources::{Key, Resource, kinds::dataplane::Inbound, naming::service_hosts::ServiceHosts};
use runtime::Shutdown;
use store::{Changes, Cursor, Dirty, Snapshot, Store};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};
use topology::{
    AllMeshes, DestinationId, MeshSnapshot, MeshUpdate, ResourceChange, TrimmingMode, cidr::Ipv6Prefix,
};

use classes::Classes;
pub use holds::HoldTimes;
use holds::Holds;
use proxy_findings::ProxyFindings;
use readers::Readers;
pub use refusals::Refusals;
pub use secrets::SecretChanges;
use secrets::Secrets;
use zone_acks::ZoneProxyEvents;

pub use classes::MeshSecrets;
pub use meter::{Confirmation, Delivery, StreamMetrics};
pub use pending_changes::{MeshChange, PendingChanges};
pub use watcher::planned;
pub use watcher::{Connected, Current, PendingWork, ProxyAddress, Watcher};
pub use zone_acks::{WakeMarks, ZoneAcks};

type Meshes = HashMap<Arc<str>, Arc<MeshSnapshot>>;

/// Delay before a store that cannot be read is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// State that all streams share.
pub struct Push {
    store: Arc<dyn Store>,
    standpoint: Standpoint,
    last: LastRound,
    proxies: ConnectedProxies,
    holds: Holds,
    secrets: Secrets,
    findings: PushFindings,
    encoder: envoy::Encoder,
    turns: Semaphore,
    /// Events on the streams of proxies.
    meter: Arc<StreamMetrics>,
    /// Subscribers, to each of which changes are left.
    subscribers: Mutex<Vec<Arc<PendingChanges>>>,
}

/// Settings from which meshes look as they do here.
struct Standpoint {
    zone: Arc<str>,
    /// Mode of trimming where neither a mesh nor a proxy has one.
    default_mode: TrimmingMode,
    /// The hostnames of services, where these are called by tags.
    service_hosts: Option<Arc<ServiceHosts>>,
    /// Prefix of IPv6 virtual addresses, if there are any.
    ipv6_prefix: Option<Ipv6Prefix>,
}

/// Result of the last round.
#[derive(Default)]
struct LastRound {
    meshes: ArcSwap<Meshes>,
    /// For asking what a change would do.
    state: ArcSwap<AllMeshes>,
    /// Up to which revision changes of the store have marked the proxies they affect.
    seen: watch::Sender<Option<Cursor>>,
}

/// Proxies that are connected here, and who of them reads what.
#[derive(Default)]
struct ConnectedProxies {
    readers: Mutex<Readers>,
    classes: Classes,
    zone_events: ZoneProxyEvents,
    next_id: AtomicU64,
    /// Number of times a proxy was woken by a change, for proving that cost follows change.
    woken: AtomicU64,
}

/// Findings about connected proxies.
#[derive(Default)]
struct PushFindings {
    /// Findings of their plans.
    of_plans: ProxyFindings,
    refusals: Refusals,
}

/// Meshes as they would be after some changes.
pub struct Hypothetical {
    pub before: Arc<AllMeshes>,
    pub after: AllMeshes,
    pub updates: Vec<MeshUpdate>,
    /// The connected proxies that would have to look again, by mesh and name.
    pub proxies: Vec<Arc<Watcher>>,
}

impl Push {
    /// `zone` is the zone of this control plane.
    pub fn new(store: Arc<dyn Store>, zone: &str) -> Push {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let standpoint = Standpoint {
            zone: zone.into(),
            default_mode: TrimmingMode::Off,
            service_hosts: None,
            ipv6_prefix: None,
        };
        Push {
            store,
            standpoint,
            last: LastRound::default(),
            proxies: ConnectedProxies::default(),
            holds: Holds::default(),
            secrets: Secrets::default(),
            findings: PushFindings::default(),
            encoder: envoy::Encoder::default(),
            turns: Semaphore::new(processors),
            meter: Arc::default(),
            subscribers: Mutex::default(),
        }
    }

    /// As it is, with another mode of trimming for proxies of which neither they nor their mesh say one.
    #[must_use]
    pub fn with_default_mode(self, default_mode: TrimmingMode) -> Push {
        Push { standpoint: Standpoint { default_mode, ..self.standpoint }, ..self }
    }

    /// As it is, with hostnames for services in meshes whose services are called by tags.
    #[must_use]
    pub fn naming_services(self, hosts: Option<ServiceHosts>) -> Push {
        let service_hosts = hosts.map(Arc::new);
        Push { standpoint: Standpoint { service_hosts, ..self.standpoint }, ..self }
    }

    /// As it is, with IPv6 virtual addresses beside those of IPv4.
    #[must_use]
    pub fn with_ipv6_prefix(self, ipv6_prefix: Option<Ipv6Prefix>) -> Push {
        Push { standpoint: Standpoint { ipv6_prefix, ..self.standpoint }, ..self }
    }

    /// Starts the loop. The first round sees everything that is stored.
    pub fn start(self: &Arc<Self>, shutdown: &Shutdown) {
        let push = self.clone();
        let begun = shutdown.clone();
        shutdown.spawn(async move {
            let mut state = AllMeshes::default();
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
    fn round(&self, state: &mut AllMeshes, dirty: Dirty, changes: &Changes) -> bool {
        let Ok(snapshot) = self.store.snapshot() else { return false };
        self.fold(state, dirty, &snapshot);
        self.last.seen.send_replace(Some(changes.cursor()));
        true
    }

    /// Folds what changed into the meshes and wakes the proxies it concerns.
    fn fold(&self, state: &mut AllMeshes, dirty: Dirty, snapshot: &Snapshot) {
        let anew = dirty == Dirty::Everything;
        let (keys, meshes) = match dirty {
            Dirty::Keys(keys) => (keys, Meshes::clone(&self.last.meshes.load())),
            // What is gone is not known, so the meshes are built anew and every proxy looks again.
            Dirty::Everything => {
                *state = AllMeshes::in_zone(&self.standpoint.zone)
                    .with_default_mode(self.standpoint.default_mode)
                    .naming_services(self.standpoint.service_hosts.clone())
                    .with_ipv6_prefix(self.standpoint.ipv6_prefix);
                (snapshot.iter().map(|resource| resource.key.clone()).collect(), Meshes::default())
            }
        };
        self.secrets.changes.send_if_modified(|changes| changes.record(&keys, anew));
        let changed: Vec<_> =
            keys.into_iter().map(|key| (key.clone(), snapshot.get(&key).cloned())).collect();
        let updates = state.apply(&changed);
        // What no proxy sees is part of it too: a later change may bring it to light.
        self.last.state.store(Arc::new(state.clone()));
        self.proxies.woken.fetch_add(
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
        let of_every_mesh = self.proxies.classes.of_every_mesh();
        let concerned = if anew {
            readers.all(&of_every_mesh)
        } else {
            readers.affected_by(updates).and_of_every_mesh(&of_every_mesh, &self.standpoint.zone, updates)
        };
        let hold = concerned.hold(&self.holds, &self.last.meshes.load(), &meshes);
        self.last.meshes.store(Arc::new(meshes));
        for pending in lock(&self.subscribers).iter() {
            pending.post(updates, anew);
        }
        self.proxies.woken.fetch_add(concerned.wake(hold.as_ref()), Ordering::Relaxed);
    }

    /// Meshes as they would be if these resources changed, and the proxies that would be affected. Nothing is written.
    pub fn what_if(&self, changes: &[ResourceChange]) -> Hypothetical {
        let before = self.last.state.load_full();
        let mut after = AllMeshes::clone(&before);
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

    /// Problems of the plans of the connected proxies of a mesh, each about the thing that causes it.
    pub fn findings(&self, mesh: &str) -> Vec<Finding> {
        self.findings.of_plans.of_mesh(mesh)
    }

    /// The proxies that no MeshIdentity is given to, nor a connection.
    pub fn refusals(&self) -> &Refusals {
        &self.findings.refusals
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        lock(&self.proxies.readers)
    }

    /// Tells when secrets have changed.
    pub fn secrets_changed(&self) -> watch::Receiver<SecretChanges> {
        self.secrets.changes.subscribe()
    }

    /// Waits until every change made so far has woken the proxies it affects.
    pub async fn caught_up(&self) {
        let now = self.store.changes().cursor();
        // Fails only when the sender is gone, which is here.
        let _ = self.last.seen.subscribe().wait_for(|seen| seen.is_some_and(|seen| seen >= now)).await;
    }

    /// Number of times a proxy was woken by a change since the beginning.
    pub fn woken(&self) -> u64 {
        self.proxies.woken.load(Ordering::Relaxed)
    }

    /// Number of views of policies made since the beginning, for proving that one per changed policy is.
    pub fn policy_views(&self) -> u64 {
        self.last.state.load().views_made()
    }

    /// The zone of this control plane.
    pub fn zone(&self) -> &str {
        &self.standpoint.zone
    }

    pub fn mesh(&self, name: &str) -> Option<Arc<MeshSnapshot>> {
        self.last.meshes.load().get(name).cloned()
    }

    /// A proxy that connected, with the Dataplane that is stored. It is woken at once, and forgotten when the
    /// guard is dropped.
    pub fn connect(self: &Arc<Self>, traits: ProxyTraits) -> Connected {
        let id = self.proxies.next_id.fetch_add(1, Ordering::Relaxed);
        let stored = self.store.snapshot().ok();
        let place = stored.and_then(|stored| ProxyAddress::of(&stored.get(&traits.key())?.spec));
        let watcher = Arc::new(Watcher::new(id, traits, place, self.meter.clone()));
        self.readers().add_watcher(&watcher);
        Connected { push: self.clone(), watcher }
    }

    /// Number of connections of a proxy here: one that comes back may do so before its old connection is seen to be
    /// dead.
    pub fn connections(&self, proxy: &Key) -> usize {
        self.readers().connections(proxy).len()
    }

    /// The newest connection of a proxy.
    pub fn newest(&self, proxy: &Key) -> Option<Arc<Watcher>> {
        self.readers().connections(proxy).last().cloned()
    }

    /// Synchronisation of the newest connection of a sidecar; `None` if it has none here. To be asked after
    /// [`Push::caught_up`], so that the proxy knows of what it has to follow.
    pub fn sync_state(&self, proxy: &Key) -> Option<SyncState> {
        let secrets = self.secrets.changes.borrow().of(&proxy.mesh);
        Some(self.newest(proxy)?.sync_state(secrets))
    }

    /// Number of connected sidecars of a mesh, and of those among them that reported their calls.
    pub fn reporting(&self, mesh: &str) -> (usize, usize) {
        let readers = self.readers();
        let reporting = readers.sidecars(mesh).filter(|watcher| watcher.reports.any()).count();
        (readers.sidecars(mesh).count(), reporting)
    }

    /// The destinations that an inbound of a Dataplane serves now.
    pub fn served_at(&self, dataplane: &Resource, inbound: &Inbound) -> BTreeSet<DestinationId> {
        self.last.state.load().served_at(dataplane, inbound)
    }

    /// All meshes, by name.
    pub fn all_meshes(&self) -> Vec<Arc<MeshSnapshot>> {
        let mut meshes: Vec<_> = self.last.meshes.load().values().cloned().collect();
        meshes.sort_by(|a, b| a.name.cmp(&b.name));
        meshes
    }

    /// The names of the ZoneIngresses of this zone.
    pub fn own_ingresses(&self) -> Vec<Arc<str>> {
        self.last.state.load().zones().own_ingresses().cloned().collect()
    }

    /// Number of connected proxies.
    pub fn connected(&self) -> usize {
        self.readers().count()
    }

    /// Number of connected sidecars of each mesh.
    pub fn connected_by_mesh(&self) -> Vec<(Arc<str>, usize)> {
        self.readers().count_by_mesh()
    }

    /// Events on the streams of proxies.
    pub fn meter(&self) -> &StreamMetrics {
        &self.meter
    }

    /// Number of classes of proxies: each is planned once for all its members.
    pub fn classes(&self) -> usize {
        self.proxies.classes.count()
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
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
