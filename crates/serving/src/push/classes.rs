//! Classes of proxies at work: what all members of a class share is planned and encoded once.
//!
//! A class is brought up to date by the first of its members that gets a turn; the others find it done.
//! What of it changed travels to each member as the difference of two layers that share the rest.
//!
//! Sidecars share what they call, of their mesh. Zone proxies share what they lead to, of every mesh, and a mesh that
//! changes is planned alone ([`parts`]).

mod parts;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use plan::{Class, Impact, NamingScheme, ProxyClass, Reads};
use topology::{ClientClass, DestinationId, MeshSnapshot};

use super::{PendingWork, Push, Watcher, holds::ClassHolds, lock};
pub use parts::MeshSecrets;
use parts::Parts;
pub(super) use parts::SharedConfig;

type Address = (IpAddr, u16);

/// The classes that have members.
#[derive(Debug, Default)]
pub(super) struct Classes {
    known: Mutex<KnownClasses>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct KnownClasses {
    by_class: HashMap<ProxyClass, Arc<ClassCell>>,
    /// Those that serve every mesh: a few at most, however many zone proxies are connected.
    of_every_mesh: HashMap<u64, Arc<ClassCell>>,
}

/// A class and its members.
#[derive(Debug)]
pub(super) struct ClassCell {
    pub(super) id: u64,
    class: ProxyClass,
    members: Mutex<HashMap<u64, Arc<Watcher>>>,
    pending: Mutex<PendingImpact>,
    state: Mutex<ClassState>,
    /// While what it calls waits for servers.
    freeze: Mutex<Option<ClassHolds>>,
}

/// Changes that a class has not followed yet.
#[derive(Debug)]
pub(super) enum PendingImpact {
    /// All its meshes are looked at, because some may be gone.
    Everything,
    Meshes(BTreeMap<Arc<str>, Impact>),
}

impl Default for PendingImpact {
    fn default() -> PendingImpact {
        PendingImpact::Meshes(BTreeMap::new())
    }
}

impl PendingImpact {
    pub(super) fn add(&mut self, mesh: &Arc<str>, impact: &Impact) {
        match self {
            PendingImpact::Everything => {}
            PendingImpact::Meshes(_) if *impact == Impact::Nothing => {}
            PendingImpact::Meshes(meshes) => meshes.entry(mesh.clone()).or_default().add(impact),
        }
    }

    fn add_all(&mut self, later: &PendingImpact) {
        match later {
            PendingImpact::Everything => *self = PendingImpact::Everything,
            PendingImpact::Meshes(meshes) => {
                meshes.iter().for_each(|(mesh, impact)| self.add(mesh, impact));
            }
        }
    }

    /// The work of members.
    fn work(&self) -> PendingWork {
        match self {
            PendingImpact::Everything => PendingWork::Outbounds,
            PendingImpact::Meshes(meshes) => {
                let work = |impact: &Impact| match impact {
                    Impact::Nothing => PendingWork::Nothing,
                    Impact::Endpoints(_) => PendingWork::Endpoints,
                    Impact::Everything => PendingWork::Outbounds,
                };
                meshes.values().map(work).max().unwrap_or_default()
            }
        }
    }
}

/// State that the members of a class share. Plans are not kept.
#[derive(Debug, Default)]
struct ClassState {
    parts: Parts,
    /// Parts of meshes that the plans were made from.
    reads: Reads,
    /// Destinations that the clusters lead to, by their names in statistics. Made when it is asked for.
    called: Option<HashMap<Arc<str>, DestinationId>>,
    /// Destinations that trimming leaves the class whatever permissions say. Made when it is asked for.
    never_trimmed: Option<Arc<BTreeSet<DestinationId>>>,
}

/// A watcher's place in a class.
#[derive(Debug, Clone)]
pub(super) struct Member {
    cell: Arc<ClassCell>,
    watcher: u64,
}

impl Classes {
    pub(super) fn join(&self, class: ProxyClass, watcher: &Arc<Watcher>) -> Member {
        let mut known = lock(&self.known);
        let cell = known.by_class.get(&class).cloned().unwrap_or_else(|| {
            let cell = Arc::new(ClassCell {
                id: self.next_id.fetch_add(1, Ordering::Relaxed),
                class: class.clone(),
                members: Mutex::default(),
                pending: Mutex::new(PendingImpact::Everything),
                state: Mutex::default(),
                freeze: Mutex::default(),
            });
            if class.mesh().is_none() {
                known.of_every_mesh.insert(cell.id, cell.clone());
            }
            known.by_class.insert(class, cell.clone());
            cell
        });
        lock(&cell.members).insert(watcher.id, watcher.clone());
        Member { cell, watcher: watcher.id }
    }

    /// The last member to leave takes the class along.
    pub(super) fn leave(&self, member: &Member, push: &Push) {
        let cell = &member.cell;
        let mut known = lock(&self.known);
        let mut members = lock(&cell.members);
        members.remove(&member.watcher);
        if members.is_empty() {
            drop(members);
            known.by_class.remove(&cell.class);
            known.of_every_mesh.remove(&cell.id);
            drop(known);
            let state = std::mem::take(&mut *lock(&cell.state));
            push.readers().replace_reads(cell, &state.reads, &Reads::default());
        }
    }

    /// Classes whose plans are of every mesh.
    pub(super) fn of_every_mesh(&self) -> Vec<Arc<ClassCell>> {
        lock(&self.known).of_every_mesh.values().cloned().collect()
    }

    /// The number of classes of sidecars.
    pub(super) fn count(&self) -> usize {
        let known = lock(&self.known);
        known.by_class.len() - known.of_every_mesh.len()
    }
}

impl Member {
    pub(super) fn class(&self) -> &ProxyClass {
        &self.cell.class
    }

    /// True while changes of the destinations that the class calls wait for servers.
    pub(super) fn is_held(&self) -> bool {
        lock(&self.cell.freeze).is_some()
    }

    #[cfg(test)]
    pub(super) fn cell(&self) -> &Arc<ClassCell> {
        &self.cell
    }

    /// Brings the class up to date, and says at which of these addresses it offers something. `None` while its mesh
    /// does not exist.
    pub(super) fn settle(
        &self,
        push: &Push,
        answers_at: &[Address],
    ) -> Option<(SharedConfig, BTreeSet<Address>)> {
        let mut state = lock(&self.cell.state);
        self.cell.catch_up(&mut state, push)?;
        let clash = answers_at.iter().filter(|address| state.parts.offers_at(address));
        Some((state.parts.shared().clone(), clash.copied().collect()))
    }

    /// Destinations that clusters of the class lead to, by their names in statistics. `None` while the class has no
    /// plan, and for zone proxies, whose agents report no calls.
    pub(super) fn called(
        &self,
        mesh: &MeshSnapshot,
        names: &mut dyn Iterator<Item = &str>,
    ) -> Option<Vec<Option<DestinationId>>> {
        let scheme = NamingScheme::chosen(self.cell.sidecar()?.unified_naming);
        let mut state = lock(&self.cell.state);
        let called = state.called(mesh, scheme)?;
        Some(names.map(|name| called.get(name).cloned()).collect())
    }

    /// Destinations that the clusters of the class lead to whatever permissions say. One plan for all members and
    /// reports, made anew when the class is. `None` for zone proxies, whose plans are not trimmed.
    pub(super) fn never_trimmed(
        &self,
        mesh: &MeshSnapshot,
        client: &ClientClass,
    ) -> Option<Arc<BTreeSet<DestinationId>>> {
        let class = self.cell.sidecar()?;
        let made = || Arc::new(plan::never_trimmed(mesh, class, client));
        Some(lock(&self.cell.state).never_trimmed.get_or_insert_with(made).clone())
    }
}

impl ClassCell {
    pub(super) fn class(&self) -> &ProxyClass {
        &self.class
    }

    /// The class, if it is one of sidecars: no other may be trimmed, and so held.
    pub(super) fn sidecar(&self) -> Option<&Class> {
        match &self.class {
            ProxyClass::Sidecar(class) => Some(class),
            ProxyClass::Zone(_) => None,
        }
    }

    pub(super) fn freeze(&self) -> &Mutex<Option<ClassHolds>> {
        &self.freeze
    }

    /// Notes that everything about the class may be different, and wakes its members.
    pub(super) fn touch_all(&self, woken: &mut HashSet<u64>) {
        self.touch(&PendingImpact::Everything, woken);
    }

    /// Notes what changes mean for the class, and wakes its members.
    pub(super) fn touch(&self, impact: &PendingImpact, woken: &mut HashSet<u64>) {
        let work = impact.work();
        if work == PendingWork::Nothing {
            return;
        }
        lock(&self.pending).add_all(impact);
        for (id, watcher) in &*lock(&self.members) {
            watcher.add(work);
            woken.insert(*id);
        }
    }

    pub(super) fn each_member(&self, mut visit: impl FnMut(&Arc<Watcher>)) {
        lock(&self.members).values().for_each(&mut visit);
    }

    fn catch_up(self: &Arc<Self>, state: &mut ClassState, push: &Push) -> Option<()> {
        loop {
            let pending = std::mem::take(&mut *lock(&self.pending));
            let meshes = push.last.meshes.load_full();
            if self.class.mesh().is_some_and(|mesh| !meshes.contains_key(mesh)) {
                lock(&self.pending).add_all(&PendingImpact::Everything);
                return None;
            }
            let impacts = match pending {
                PendingImpact::Meshes(none) if none.is_empty() => return Some(()),
                PendingImpact::Meshes(some) => some,
                PendingImpact::Everything => {
                    state.parts.retain(|mesh| meshes.contains_key(mesh));
                    let all = meshes.keys().filter(|name| self.class.mesh().is_none_or(|mesh| mesh == *name));
                    all.map(|name| (name.clone(), Impact::Everything)).collect()
                }
            };
            // Without any mesh there is nothing to plan, and yet something may be gone.
            let mut planned = impacts.is_empty();
            for (name, impact) in impacts {
                let Some(mesh) = meshes.get(&name) else {
                    state.parts.retain(|mesh| *mesh != name);
                    planned = true;
                    continue;
                };
                if !state.parts.renew_endpoints(&self.class, mesh, &impact, push.encoder()) {
                    self.plan(state, mesh, push);
                    planned = true;
                }
            }
            if planned {
                state.called = None;
                state.never_trimmed = None;
                state.parts.combine(&self.class);
            }
        }
    }

    /// Plans the class's part of a mesh anew.
    fn plan(self: &Arc<Self>, state: &mut ClassState, mesh: &Arc<MeshSnapshot>, push: &Push) {
        // After the mesh: a class is held before its mesh becomes another one.
        let held = lock(&self.freeze).as_ref().map(|freeze| freeze.held().clone());
        let plan = self.class.plan(mesh, held.as_deref());
        let reads = state.parts.replace(&mesh.name, plan, push.encoder());
        // Classes of every mesh are found without what they read.
        if self.class.mesh().is_none() || reads == state.reads {
            return;
        }
        push.readers().replace_reads(self, &state.reads, &reads);
        state.reads = reads;
        // A change that came meanwhile was judged by what the class read before.
        if !push.mesh(&mesh.name).is_some_and(|now| Arc::ptr_eq(&now, mesh)) {
            lock(&self.pending).add_all(&PendingImpact::Everything);
        }
    }
}

impl ClassState {
    /// A proxy whose names have just been switched reports what it counted under the others, so both are known.
    fn called(
        &mut self,
        mesh: &MeshSnapshot,
        names: NamingScheme,
    ) -> Option<&HashMap<Arc<str>, DestinationId>> {
        if self.parts.is_empty() {
            return None;
        }
        let parts = &self.parts;
        Some(self.called.get_or_insert_with(|| {
            let switched = parts.clusters().filter_map(|(id, _)| {
                let (cluster, stats) = names.other().backend(mesh.destinations.get(id)?);
                Some((Arc::from(stats.unwrap_or(cluster)), id.clone()))
            });
            let called = parts.clusters().map(|(id, cluster)| {
                let stats = names.other_in_stats(id, cluster);
                (stats.map_or_else(|| cluster.clone(), Arc::from), id.clone())
            });
            switched.chain(called).collect()
        }))
    }
}
