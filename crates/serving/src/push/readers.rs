//! Index from a change to the proxies and classes it affects, without looking at the others.
//!
//! A plan says what it read ([`plan::Reads`], by mesh); this is the inverse.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use plan::{Dependency, Impact, ProxyKind, Reads, effective::KINDS, reads};
use policy::{Policy, PolicySelector};
use resources::{Key, Kind, Labels, Resource, kinds::target_ref::TargetRefKind};
use topology::{Affected, DestinationId, MeshSnapshot, MeshUpdate};

use super::{
    Meshes, PendingWork, Watcher,
    classes::{ClassCell, PendingImpact},
    holds::{Hold, Holds},
};

type Cells = HashMap<u64, Arc<ClassCell>>;

/// Everything that is connected, by what it reads.
#[derive(Debug, Default)]
pub(super) struct Readers {
    meshes: HashMap<Arc<str>, MeshReaders>,
    /// Zone proxies, which are of no mesh.
    zone_proxies: HashMap<Key, Vec<Arc<Watcher>>>,
    count: usize,
}

#[derive(Debug, Default)]
struct MeshReaders {
    /// By the name of the Dataplane, newest connection last: one that comes back may do so before its old connection
    /// is seen to be dead.
    watchers: HashMap<Arc<str>, Vec<Arc<Watcher>>>,
    classes: HashMap<Dependency, Cells>,
    /// References by labels, listed under one of their labels.
    by_label: HashMap<(Kind, String, String), BTreeSet<Labels>>,
}

/// The proxies and classes that changes affect, and in which way. Nothing is done to them until they are woken.
#[derive(Debug, Default)]
pub(super) struct AffectedReaders {
    /// They look at everything.
    watchers: HashMap<u64, Arc<Watcher>>,
    /// They are planned anew.
    cells: Cells,
    /// They may call others than before.
    reachability: Cells,
    /// They follow changes of meshes as far as these concern them.
    impacts: HashMap<u64, (Arc<ClassCell>, PendingImpact)>,
}

impl AffectedReaders {
    fn add(&mut self, watcher: &Arc<Watcher>) {
        self.watchers.insert(watcher.id, watcher.clone());
    }

    fn impact(&mut self, cell: &Arc<ClassCell>) -> &mut PendingImpact {
        let (_, pending) =
            self.impacts.entry(cell.id).or_insert_with(|| (cell.clone(), PendingImpact::default()));
        pending
    }

    /// The same with the classes of every mesh that the changes concern.
    pub(super) fn and_of_every_mesh(
        mut self,
        cells: &[Arc<ClassCell>],
        zone: &str,
        updates: &[MeshUpdate],
    ) -> AffectedReaders {
        for (cell, update) in cells.iter().flat_map(|cell| updates.iter().map(move |update| (cell, update))) {
            let impact = match update.snapshot {
                Some(_) => cell.class().impact(zone, &update.affected),
                None => Impact::Everything,
            };
            self.impact(cell).add(&update.mesh, &impact);
        }
        self
    }

    /// Holds the classes that may call others than before, until the servers that the changes concern know of it.
    pub(super) fn hold(&self, holds: &Holds, before: &Meshes, after: &Meshes) -> Option<Arc<Hold>> {
        holds.begin(&self.reachability, &self.watchers, (before, after))
    }

    /// Tells all of them but those that are held; returns how many proxies that woke.
    pub(super) fn wake(&self, hold: Option<&Arc<Hold>>) -> u64 {
        let mut woken: HashSet<u64> = HashSet::new();
        let unheld = self.reachability.iter().filter(|(id, _)| !hold.is_some_and(|hold| hold.holds(**id)));
        unheld.for_each(|(_, cell)| cell.touch_all(&mut woken));
        if let Some(hold) = hold {
            self.watchers.values().for_each(|server| server.await_for(hold));
            hold.answered(None).iter().for_each(|cell| cell.touch_all(&mut woken));
        }
        self.cells.values().for_each(|cell| cell.touch_all(&mut woken));
        self.impacts.values().for_each(|(cell, impact)| cell.touch(impact, &mut woken));
        for (id, watcher) in &self.watchers {
            watcher.add(PendingWork::Everything);
            woken.insert(*id);
        }
        woken.len() as u64
    }

    /// The proxies that would be woken, by mesh and name; of several connections of one the newest.
    pub(super) fn proxies(&self) -> Vec<Arc<Watcher>> {
        let mut found: BTreeMap<(Arc<str>, Arc<str>), Arc<Watcher>> = BTreeMap::new();
        let mut add = |watcher: &Arc<Watcher>| {
            let key = (watcher.traits.mesh.clone(), watcher.traits.name.clone());
            let known = found.entry(key).or_insert_with(|| watcher.clone());
            if known.id < watcher.id {
                *known = watcher.clone();
            }
        };
        self.watchers.values().for_each(&mut add);
        let of_endpoints = self.impacts.values().map(|(cell, _)| cell);
        let cells = self.cells.values().chain(self.reachability.values()).chain(of_endpoints);
        cells.for_each(|cell| cell.each_member(&mut add));
        found.into_values().collect()
    }
}

impl Readers {
    pub(super) fn add_watcher(&mut self, watcher: &Arc<Watcher>) {
        self.count += 1;
        let traits = &watcher.traits;
        let own = match traits.kind {
            ProxyKind::Sidecar => {
                let mesh = self.meshes.entry(traits.mesh.clone()).or_default();
                mesh.watchers.entry(traits.name.clone()).or_default()
            }
            ProxyKind::Zone(_) => self.zone_proxies.entry(traits.key()).or_default(),
        };
        own.push(watcher.clone());
    }

    pub(super) fn remove_watcher(&mut self, watcher: &Watcher) {
        let traits = &watcher.traits;
        let own = match traits.kind {
            ProxyKind::Sidecar => {
                self.meshes.get_mut(&traits.mesh).and_then(|mesh| mesh.watchers.get_mut(&traits.name))
            }
            ProxyKind::Zone(_) => self.zone_proxies.get_mut(&traits.key()),
        };
        let Some(own) = own else { return };
        let before = own.len();
        own.retain(|other| other.id != watcher.id);
        self.count -= before - own.len();
        if !own.is_empty() {
            return;
        }
        match traits.kind {
            ProxyKind::Sidecar => {
                if let Some(mesh) = self.meshes.get_mut(&traits.mesh) {
                    mesh.watchers.remove(&traits.name);
                }
                self.forget_if_empty(&traits.mesh);
            }
            ProxyKind::Zone(_) => drop(self.zone_proxies.remove(&traits.key())),
        }
    }

    /// The connections of a proxy, newest last.
    pub(super) fn connections(&self, proxy: &Key) -> &[Arc<Watcher>] {
        let of_mesh = || self.meshes.get(&proxy.mesh)?.watchers.get(&proxy.name);
        let found = match proxy.kind {
            Kind::Dataplane => of_mesh(),
            _ => self.zone_proxies.get(proxy),
        };
        found.map_or(&[], Vec::as_slice)
    }

    /// The newest connection of each sidecar of a mesh.
    pub(super) fn sidecars(&self, mesh: &str) -> impl Iterator<Item = &Arc<Watcher>> {
        let of_mesh = self.meshes.get(mesh).into_iter();
        of_mesh.flat_map(|mesh| mesh.watchers.values()).filter_map(|own| own.last())
    }

    /// Wakes the zone proxies that these resources describe; returns how many.
    pub(super) fn wake_zone_proxies<'k>(&self, changed: impl Iterator<Item = &'k Key>) -> u64 {
        let described = changed.filter(|key| matches!(key.kind, Kind::ZoneIngress | Kind::ZoneEgress));
        let watchers = described.filter_map(|key| self.zone_proxies.get(key)).flatten();
        watchers.map(|watcher| watcher.add(PendingWork::Everything)).count() as u64
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Number of connected sidecars of each mesh, by mesh.
    pub(super) fn count_by_mesh(&self) -> Vec<(Arc<str>, usize)> {
        self.meshes.iter().map(|(name, mesh)| (name.clone(), mesh.watchers.len())).collect()
    }

    /// Files a class under what it reads now.
    pub(super) fn replace_reads(&mut self, cell: &Arc<ClassCell>, before: &Reads, now: &Reads) {
        for (mesh, read) in before.iter().filter(|(mesh, read)| !now.contains(mesh, read)) {
            if let Some(of_mesh) = self.meshes.get_mut(mesh) {
                of_mesh.remove(read, cell.id);
            }
            self.forget_if_empty(mesh);
        }
        for (mesh, read) in now.iter().filter(|(mesh, read)| !before.contains(mesh, read)) {
            self.meshes.entry(mesh.clone()).or_default().add(read, cell);
        }
    }

    fn forget_if_empty(&mut self, mesh: &str) {
        if self.meshes.get(mesh).is_some_and(|m| m.watchers.is_empty() && m.classes.is_empty()) {
            self.meshes.remove(mesh);
        }
    }

    /// Everything: what changed is not known.
    pub(super) fn all(&self, of_every_mesh: &[Arc<ClassCell>]) -> AffectedReaders {
        let mut affected_readers = AffectedReaders::default();
        affected_readers.cells.extend(of_every_mesh.iter().map(|cell| (cell.id, cell.clone())));
        self.zone_proxies.values().flatten().for_each(|watcher| affected_readers.add(watcher));
        self.meshes.values().for_each(|mesh| mesh.all(&mut affected_readers));
        affected_readers
    }

    /// Readers that changes of meshes affect.
    pub(super) fn affected_by(&self, updates: &[MeshUpdate]) -> AffectedReaders {
        let mut affected_readers = AffectedReaders::default();
        updates.iter().for_each(|update| self.add_affected(update, &mut affected_readers));
        affected_readers
    }

    /// Adds what a change of a mesh affects.
    fn add_affected(&self, update: &MeshUpdate, affected_readers: &mut AffectedReaders) {
        let Some(mesh) = self.meshes.get(&update.mesh) else { return };
        let Affected {
            whole_mesh,
            policies,
            services,
            endpoints,
            // `reads::touched` says who reads these.
            proxies: _,
            destinations: _,
            virtual_hosts: _,
            access_rules: _,
            reachability: _,
            reachability_by_default: _,
            // These concern zone proxies: see `ZoneClass::impact`.
            globals: _,
            zones: _,
        } = &update.affected;
        if *whole_mesh {
            return mesh.all(affected_readers);
        }
        for read in reads::touched(&update.affected) {
            if let Dependency::Proxy(name) = &read {
                mesh.watchers
                    .get(name)
                    .into_iter()
                    .flatten()
                    .for_each(|watcher| affected_readers.add(watcher));
            }
            let cells = match &read {
                Dependency::Reachability(_) | Dependency::ReachabilityByDefault | Dependency::AccessRules => {
                    &mut affected_readers.reachability
                }
                _ => &mut affected_readers.cells,
            };
            mesh.collect(&read, cells);
        }
        for (service, labels) in services {
            labels
                .iter()
                .for_each(|labels| mesh.collect_labelled(service.kind, labels, &mut affected_readers.cells));
        }
        for id in endpoints {
            let impact = Impact::Endpoints(BTreeSet::from([id.clone()]));
            for cell in mesh.readers_of(id) {
                affected_readers.impact(cell).add(&update.mesh, &impact);
            }
        }
        if let Some(snapshot) = &update.snapshot {
            let policies = policies.iter().flat_map(|change| change.versions());
            mesh.selected(snapshot, policies, affected_readers);
        }
    }
}

impl MeshReaders {
    fn add(&mut self, read: &Dependency, cell: &Arc<ClassCell>) {
        self.classes.entry(read.clone()).or_default().insert(cell.id, cell.clone());
        if let Some((anchor, labels)) = anchor(read) {
            self.by_label.entry(anchor).or_default().insert(labels.clone());
        }
    }

    fn remove(&mut self, read: &Dependency, cell: u64) {
        let Some(cells) = self.classes.get_mut(read) else { return };
        cells.remove(&cell);
        if !cells.is_empty() {
            return;
        }
        self.classes.remove(read);
        if let Some((anchor, labels)) = anchor(read)
            && let Some(listed) = self.by_label.get_mut(&anchor)
        {
            listed.remove(labels);
            if listed.is_empty() {
                self.by_label.remove(&anchor);
            }
        }
    }

    fn all(&self, affected_readers: &mut AffectedReaders) {
        let cells = self.classes.get(&Dependency::Mesh).into_iter().flatten();
        for (id, cell) in cells {
            affected_readers.cells.insert(*id, cell.clone());
            // Permissions may have changed in the same round: what they open and close is held, all else is not.
            if cell.sidecar().is_some_and(|class| class.trimmed.is_some()) {
                affected_readers.reachability.insert(*id, cell.clone());
            }
        }
        self.watchers.values().flatten().for_each(|watcher| affected_readers.add(watcher));
    }

    fn collect(&self, read: &Dependency, cells: &mut Cells) {
        let reading = self.classes.get(read).into_iter().flatten();
        cells.extend(reading.map(|(id, cell)| (*id, cell.clone())));
    }

    /// Classes that look for services of a kind by some of these labels.
    fn collect_labelled(&self, kind: Kind, labels: &Labels, cells: &mut Cells) {
        for (name, value) in labels {
            let listed = self.by_label.get(&(kind, name.clone(), value.clone())).into_iter().flatten();
            let found =
                listed.filter(|wanted| wanted.iter().all(|(name, value)| labels.get(name) == Some(value)));
            for wanted in found {
                self.collect(&Dependency::Labelled(kind, wanted.clone()), cells);
            }
        }
    }

    fn readers_of(&self, id: &DestinationId) -> impl Iterator<Item = &Arc<ClassCell>> {
        let reads = [Dependency::Destination(id.clone()), Dependency::AllDestinations].into_iter();
        reads.filter_map(|read| self.classes.get(&read)).flat_map(HashMap::values)
    }

    /// The proxies that changed policies select, as they were and as they are. A proxy is judged by its
    /// Dataplane as it is now: if that changed, too, or comes later, the proxy is woken for that.
    fn selected<'p>(
        &self,
        snapshot: &MeshSnapshot,
        policies: impl Iterator<Item = &'p Arc<Policy>>,
        affected_readers: &mut AffectedReaders,
    ) {
        let has_effect = |policy: &&Arc<Policy>| KINDS.contains(&policy.resource.kind());
        for policy in policies.filter(has_effect) {
            let by_route = |policy: &Policy| policy.view.top.kind == TargetRefKind::MeshHttpRoute;
            let referring =
                || snapshot.selections.referring_to_routes().filter_map(|k| snapshot.policies.get(k));
            let moves_others =
                policy.resource.kind() == Kind::MeshHTTPRoute && referring().any(|other| by_route(other));
            // A policy with a route at its top selects what that route selects, which may have been others a
            // moment ago. This way of writing is old and rare: everything looks again.
            if by_route(policy) || moves_others {
                return self.watchers.values().flatten().for_each(|watcher| affected_readers.add(watcher));
            }
            let selector = PolicySelector::default();
            let selects = |dataplane: &Arc<Resource>| selector.selects(&policy.resource, dataplane);
            let connected = |name: &Arc<str>| {
                self.watchers.get(name).filter(|_| snapshot.dataplanes.get(name).is_some_and(selects))
            };
            let mut add =
                |found: &Vec<Arc<Watcher>>| found.iter().for_each(|watcher| affected_readers.add(watcher));
            match snapshot.selections.dataplanes(&policy.view) {
                Some(names) => names.into_iter().filter_map(connected).for_each(&mut add),
                None => self.watchers.keys().filter_map(connected).for_each(&mut add),
            }
        }
    }
}

/// Under which label a reference by labels is listed.
fn anchor(read: &Dependency) -> Option<((Kind, String, String), &Labels)> {
    let Dependency::Labelled(kind, labels) = read else { return None };
    let (name, value) = labels.first_key_value()?;
    Some(((*kind, name.clone(), value.clone()), labels))
}

#[cfg(test)]
mod tests {
    use plan::{Applying, Calls, Class, ProxyClass, ProxyTraits};
    use resources::{Spec, kinds::dataplane::Dataplane};

    use super::*;
    use crate::push::classes::Classes;

    fn traits() -> ProxyTraits {
        ProxyTraits { unified_naming: true, reuse_port: true, ..ProxyTraits::assumed("one", "gate") }
    }

    fn dataplane() -> Arc<Resource> {
        let key = Key::new(Kind::Dataplane, "one", "gate");
        let spec = Spec::from(Dataplane::default());
        let at = jiff::Timestamp::UNIX_EPOCH;
        let labels = Labels::new();
        let owner = None;
        let status = None;
        Arc::new(Resource { key, labels, created: at, modified: at, version: 1, owner, spec, status })
    }

    fn destination(name: &str) -> DestinationId {
        DestinationId::Tags(Arc::new([("kuma.io/service".to_owned(), name.to_owned())].into()))
    }

    fn update(mesh: &str, destination: &DestinationId) -> MeshUpdate {
        let affected = Affected { destinations: [destination.clone()].into(), ..Affected::default() };
        MeshUpdate { mesh: mesh.into(), snapshot: None, affected }
    }

    #[test]
    fn a_class_may_read_several_meshes_and_is_woken_by_what_it_reads_of_each() {
        let (watcher, classes) =
            (Arc::new(Watcher::new(1, traits(), None, Arc::default())), Classes::default());
        let dataplane = dataplane();
        let class = Class::of(&traits(), &dataplane, Calls::of(&dataplane), Applying::default());
        let member = classes.join(ProxyClass::Sidecar(Box::new(class)), &watcher);
        let mut reads = Reads::default();
        reads.add(&"one".into(), Dependency::Destination(destination("a")));
        reads.add(&"two".into(), Dependency::AllDestinations);
        reads.add(&"two".into(), Dependency::Mesh);
        let mut readers = Readers::default();
        readers.replace_reads(member.cell(), &Reads::default(), &reads);

        let woken = |mesh: &str, service: &str, readers: &Readers| {
            readers.affected_by(&[update(mesh, &destination(service))]).wake(None)
        };
        assert_eq!(woken("one", "a", &readers), 1);
        assert_eq!(woken("one", "b", &readers), 0, "nothing it reads");
        assert_eq!((woken("two", "a", &readers), woken("two", "b", &readers)), (1, 1));
        assert_eq!(woken("three", "a", &readers), 0);
        let everyone = |mesh: &str| {
            let affected = Affected { whole_mesh: true, ..Affected::default() };
            readers.affected_by(&[MeshUpdate { mesh: mesh.into(), snapshot: None, affected }]).wake(None)
        };
        assert_eq!((everyone("one"), everyone("two")), (0, 1), "it reads the mesh itself of one of them");

        let mut fewer = Reads::default();
        fewer.add(&"one".into(), Dependency::Destination(destination("a")));
        readers.replace_reads(member.cell(), &reads, &fewer);
        assert_eq!((woken("one", "a", &readers), woken("two", "b", &readers)), (1, 0));
        assert_eq!(readers.meshes.len(), 1, "what is not read is not kept");
    }
}
