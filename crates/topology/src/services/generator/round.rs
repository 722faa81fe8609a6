//! One answer of a generator: what is dirty is planned, observed, given addresses, and compared with what
//! is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Key, Kind, Resource, Status,
    kinds::{
        mesh::MeshServicesMode, mesh_external_service::MeshExternalServiceStatus,
        mesh_multi_zone_service::MeshMultiZoneServiceStatus, service_status::Vip,
    },
};

use super::{ByName, Generator, Pool, has_mtls, mode};
use crate::{
    matching::MemberSelector,
    services::{
        Desired, ServiceChange, ServiceContext, ServiceWork,
        generate::ServiceUpdate,
        hostnames::{HostnameStatus, Hostnames},
        multi_zone,
        status::{self, ServiceMember},
        update_status,
    },
    state::index::ServiceRef,
};

type Works = BTreeMap<Arc<str>, Option<ServiceWork>>;

impl Generator {
    /// Returns the writes that are needed now; none for a mesh that does not exist.
    pub fn desired(&mut self, now: Timestamp) -> Desired {
        let mut desired = Desired::default();
        let Some(mesh) = self.mesh.clone() else { return desired };
        let zone = self.zone.clone();
        let deletion_grace_period = self.deletion_grace_period;
        let snis = self.snis.clone();
        let around = ServiceContext { zone: &zone, mesh: &mesh, deletion_grace_period, snis: &snis, now };
        self.dirty.services.extend(self.deadlines.due(now).cloned());
        for (kind, pool) in self.vips.pools().into_iter().filter(|(_, pool)| pool.may_give(now)) {
            self.dirty.of(kind).extend(pool.wanting().iter().cloned());
        }
        let mut works = self.plan(&around, &mut desired);
        self.observe(&mesh, &mut works);
        desired.given = self.give_addresses(&around, &mut works);
        self.give_hostnames(&mesh, &mut works);
        for (name, work) in works {
            match work.and_then(|work| work.finish(&around, name.clone())) {
                Some(change) => desired.changes.push(change),
                None => drop(self.dirty.services.remove(&name)),
            }
        }
        self.external(now, &mut desired);
        self.multi_zone(now, &mut desired);
        desired.changes.sort_by(|a, b| a.key().cmp(b.key()));
        desired.record = self.vips.write(&mesh, now);
        let addresses = self.vips.pools().into_iter().filter_map(|(_, pool)| pool.look_again(now));
        desired.look_again = self.deadlines.next().into_iter().chain(addresses).min();
        desired
    }

    /// Plans every dirty service, and those that have its address.
    fn plan(&mut self, around: &ServiceContext<'_>, desired: &mut Desired) -> Works {
        let mut works = Works::new();
        let mut queue = self.dirty.services.clone();
        let mut room = self.young_waiting.room();
        while let Some(name) = queue.pop_first() {
            self.visits += 1;
            let ServiceUpdate { work, conflict, grace, crowded_out } = self.plan_one(&name, around, room > 0);
            self.deadlines.set(&name, grace.map(|grace| grace.ends));
            desired.crowded_out += usize::from(crowded_out);
            if grace.is_some_and(|grace| grace.is_young) && !self.young_waiting.contains(&name) {
                room = room.saturating_sub(1);
            }
            let known = self.conflicts.get(&name);
            if conflict.as_ref() != known {
                desired.conflicts.extend(conflict.clone());
            }
            match conflict {
                Some(conflict) => drop(self.conflicts.insert(name.clone(), conflict)),
                None => drop(self.conflicts.remove(&name)),
            }
            let others = self.follow(&name, work.as_ref().filter(|work| !work.delete), around);
            works.insert(name, work);
            let unplanned = others.into_iter().filter(|other| !works.contains_key(other));
            for other in unplanned {
                self.dirty.services.insert(other.clone());
                queue.insert(other);
            }
        }
        works
    }

    fn plan_one(&self, name: &Arc<str>, around: &ServiceContext<'_>, has_room: bool) -> ServiceUpdate {
        let existing = self.services.get(name);
        if mode(around.mesh) == MeshServicesMode::Disabled {
            return ServiceUpdate::retired(existing);
        }
        let claimants = self.claimants.get(name).into_iter().flatten();
        let dataplanes = claimants.filter_map(|claimant| self.dataplanes.get(claimant));
        ServiceUpdate::of(name, existing, dataplanes, around, has_room)
    }

    /// Lets indexes and addresses follow a service that is going to be there, or not. Returns the services
    /// for which that may mean another address.
    fn follow(
        &mut self,
        name: &Arc<str>,
        work: Option<&ServiceWork>,
        around: &ServiceContext<'_>,
    ) -> Vec<Arc<str>> {
        let subject = ServiceRef::Service(name.clone());
        match work.filter(|work| work.is_local()) {
            Some(work) => {
                let dataplanes = &self.dataplanes;
                let selector = MemberSelector::of(&work.spec.selector);
                self.dataplanes_of.select(&subject, selector, |name| dataplanes.get(name));
            }
            None => self.dataplanes_of.forget(&subject),
        }
        let new = work.map(|work| work.planned(around, name));
        let old = super::replace(&mut self.planned, name, new.clone());
        if old.as_ref().map(|old| &old.labels) != new.as_ref().map(|new| &new.labels) {
            let touched = self.services_of.replace(old.as_deref(), new.as_deref());
            let name_of = |subject: ServiceRef| match subject {
                ServiceRef::MultiZone(name) => Some(name),
                _ => None,
            };
            self.dirty.multi_zone.extend(touched.into_iter().filter_map(name_of));
        }
        let existing = work.and_then(|work| Some((work, work.existing.as_ref()?)));
        let held = existing
            .and_then(|(work, existing)| Some((work.status.vips.first()?.ip.as_str(), existing.created)));
        let mut others = self.vips.services.hold(name, held);
        let key = of_mesh(around.mesh, Kind::MeshService, name);
        others.extend(self.hostnames.replace(&key, new.as_ref()));
        others
    }

    /// Writes down the hostnames of every planned service.
    fn give_hostnames(&self, mesh: &Resource, works: &mut Works) {
        for (name, work) in works.iter_mut() {
            let Some(work) = work.as_mut().filter(|work| !work.delete) else { continue };
            let key = of_mesh(mesh, Kind::MeshService, name);
            let HostnameStatus { addresses, generators } = self.hostnames.of(&key);
            (work.status.addresses, work.status.hostname_generators) = (addresses, generators);
        }
    }

    fn observe(&self, mesh: &Resource, works: &mut Works) {
        let secured = has_mtls(mesh) || self.identities.any_ready();
        let local = |work: &&mut ServiceWork| !work.delete && work.is_local();
        for (name, work) in works.iter_mut() {
            let Some(work) = work.as_mut().filter(local) else { continue };
            let subject = ServiceRef::Service(name.clone());
            let proxy = |name: &Arc<str>| {
                let observed = self.observed.get(name).copied().unwrap_or_default();
                Some(ServiceMember { dataplane: self.dataplanes.get(name)?, observed })
            };
            let proxies: Vec<ServiceMember<'_>> =
                self.dataplanes_of.members(&subject).filter_map(proxy).collect();
            status::observe(work, &proxies, secured, (&self.identities, &self.zone));
        }
    }

    /// Gives an address to every planned service without one, those that exist first, the oldest first.
    fn give_addresses(&mut self, around: &ServiceContext<'_>, works: &mut Works) -> BTreeSet<Key> {
        let pool = &mut self.vips.services;
        pool.begin(around.now);
        let mut without: Vec<(&Arc<str>, &mut ServiceWork)> = works
            .iter_mut()
            .filter_map(|(name, work)| Some((name, work.as_mut()?)))
            .filter(|(name, work)| !work.delete && !pool.keeps(name))
            .collect();
        without.sort_by_key(|(_, work)| {
            let created = work.existing.as_ref().map(|existing| existing.created);
            (created.is_none(), created)
        });
        let mut given = BTreeSet::new();
        for (name, work) in without {
            work.status.vips = pool.give(name, around.now).into_iter().collect();
            if !work.status.vips.is_empty() {
                given.insert(of_mesh(around.mesh, Kind::MeshService, name));
            }
        }
        given
    }

    fn external(&mut self, now: Timestamp, desired: &mut Desired) {
        let pool = &mut self.vips.external;
        let dirty = &mut self.dirty.external;
        let address = |resource: &Resource| Some(external_status(resource)?.vip.ip.clone());
        let within = (Kind::MeshExternalService, &self.mesh);
        spread(dirty, pool, &mut self.hostnames, (&self.external, within), address);
        pool.begin(now);
        let mut changes = Vec::new();
        for resource in by_age(&self.external, dirty) {
            self.visits += 1;
            let mut status = external_status(resource).cloned().unwrap_or_default();
            if !pool.keeps(&resource.key.name) {
                status.vip = pool.give(&resource.key.name, now).unwrap_or_default();
                desired.given.extend((!status.vip.ip.is_empty()).then(|| resource.key.clone()));
            }
            let HostnameStatus { addresses, generators } = self.hostnames.of(&resource.key);
            (status.addresses, status.hostname_generators) = (addresses, generators);
            changes.extend(update_status(resource, Status::MeshExternalService(Arc::new(status))));
        }
        settle(dirty, &changes);
        desired.changes.extend(changes);
    }

    fn multi_zone(&mut self, now: Timestamp, desired: &mut Desired) {
        let pool = &mut self.vips.multi_zone;
        let dirty = &mut self.dirty.multi_zone;
        let address = |resource: &Resource| match &resource.status {
            Some(Status::MeshMultiZoneService(status)) => status.vips.first().map(|vip| vip.ip.clone()),
            _ => None,
        };
        let within = (Kind::MeshMultiZoneService, &self.mesh);
        spread(dirty, pool, &mut self.hostnames, (&self.multi_zone, within), address);
        pool.begin(now);
        let mut changes = Vec::new();
        for resource in by_age(&self.multi_zone, dirty) {
            self.visits += 1;
            let name = &resource.key.name;
            let subject = ServiceRef::MultiZone(name.clone());
            let members = self.services_of.members(&subject);
            let members = members.filter_map(|name| self.planned.get(name)).map(|service| &**service);
            let mut status: MeshMultiZoneServiceStatus = multi_zone::observe(resource, members);
            if !pool.keeps(name) {
                status.vips = pool.give(name, now).into_iter().collect::<Vec<Vip>>();
                desired.given.extend((!status.vips.is_empty()).then(|| resource.key.clone()));
            }
            let HostnameStatus { addresses, generators } = self.hostnames.of(&resource.key);
            (status.addresses, status.hostname_generators) = (addresses, generators);
            changes.extend(update_status(resource, Status::MeshMultiZoneService(Arc::new(status))));
        }
        settle(dirty, &changes);
        desired.changes.extend(changes);
    }
}

fn of_mesh(mesh: &Resource, kind: Kind, name: &Arc<str>) -> Key {
    Key { kind, mesh: mesh.key.name.clone(), name: name.clone() }
}

fn external_status(resource: &Resource) -> Option<&MeshExternalServiceStatus> {
    match &resource.status {
        Some(Status::MeshExternalService(status)) => Some(status),
        _ => None,
    }
}

/// Records the addresses and hostnames of what is dirty; whatever has or wants the same is dirty, too.
fn spread(
    dirty: &mut BTreeSet<Arc<str>>,
    pool: &mut Pool,
    hostnames: &mut Hostnames,
    (all, (kind, mesh)): (&ByName, (Kind, &Option<Arc<Resource>>)),
    address: impl Fn(&Resource) -> Option<String>,
) {
    let mesh = mesh.as_ref().map(|mesh| mesh.key.name.clone()).unwrap_or_default();
    let mut queue = dirty.clone();
    while let Some(name) = queue.pop_first() {
        let resource = all.get(&name);
        let held = resource.and_then(|resource| Some((address(resource)?, resource.created)));
        let held = held.as_ref().map(|(vip, created)| (vip.as_str(), *created));
        let key = Key { kind, mesh: mesh.clone(), name: name.clone() };
        let others = pool.hold(&name, held).into_iter().chain(hostnames.replace(&key, resource));
        for other in others {
            if dirty.insert(other.clone()) {
                queue.insert(other);
            }
        }
    }
}

/// The order in which services get addresses: the oldest first.
fn by_age<'a>(all: &'a ByName, names: &BTreeSet<Arc<str>>) -> Vec<&'a Arc<Resource>> {
    let mut found: Vec<_> = names.iter().filter_map(|name| all.get(name)).collect();
    found.sort_by_key(|resource| resource.created);
    found
}

/// Only what is to be written stays dirty.
fn settle(dirty: &mut BTreeSet<Arc<str>>, changes: &[ServiceChange]) {
    *dirty = changes.iter().map(|change| change.key().name.clone()).collect();
}
