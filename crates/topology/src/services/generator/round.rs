//! One answer of a generator: what is dirty is planned, observed, given addresses, and compared with what
//! is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Resource, Status,
    kinds::{
        mesh::MeshServicesMode, mesh_external_service::MeshExternalServiceStatus,
        mesh_multi_zone_service::MeshMultiZoneServiceStatus, service_status::Vip,
    },
};

use super::{ByName, Generator, Pool, has_mtls, mode};
use crate::{
    matching::Selector,
    services::{
        Around, Desired, ServiceChange, Work,
        generate::Plan,
        multi_zone,
        status::{self, Proxy},
        update_status,
    },
    state::index::Subject,
};

type Works = BTreeMap<Arc<str>, Option<Work>>;

impl Generator {
    /// What to write now. Of a mesh that does not exist there is nothing to say.
    pub fn desired(&mut self, now: Timestamp) -> Desired {
        let mut desired = Desired::default();
        let Some(mesh) = self.mesh.clone() else { return desired };
        let zone = self.zone.clone();
        let deletion_grace_period = self.deletion_grace_period;
        let around = Around { zone: &zone, mesh: &mesh, deletion_grace_period, now };
        self.dirty.services.extend(self.deadlines.due(now).cloned());
        let mut works = self.plan(&around, &mut desired);
        self.observe(&mesh, &mut works);
        self.give_addresses(&mut works);
        for (name, work) in works {
            match work.and_then(|work| work.finish(&around, name.clone())) {
                Some(change) => desired.changes.push(change),
                None => drop(self.dirty.services.remove(&name)),
            }
        }
        desired.changes.extend(self.external(now));
        desired.changes.extend(self.multi_zone(now));
        desired.changes.sort_by(|a, b| a.key().cmp(b.key()));
        desired.look_again = self.deadlines.next();
        desired
    }

    /// Plans every dirty service, and those that have its address.
    fn plan(&mut self, around: &Around<'_>, desired: &mut Desired) -> Works {
        let mut works = Works::new();
        let mut queue = self.dirty.services.clone();
        while let Some(name) = queue.pop_first() {
            self.visits += 1;
            let Plan { work, conflict, deadline } = self.plan_one(&name, around);
            self.deadlines.set(&name, deadline);
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

    fn plan_one(&self, name: &Arc<str>, around: &Around<'_>) -> Plan {
        let existing = self.services.get(name);
        if mode(around.mesh) == MeshServicesMode::Disabled {
            return Plan::retired(existing);
        }
        let claimants = self.claimants.get(name).into_iter().flatten();
        let dataplanes = claimants.filter_map(|claimant| self.dataplanes.get(claimant));
        Plan::of(name, existing, dataplanes, around)
    }

    /// Lets indexes and addresses follow a service that is going to be there, or not. Returns the services
    /// for which that may mean another address.
    fn follow(&mut self, name: &Arc<str>, work: Option<&Work>, around: &Around<'_>) -> Vec<Arc<str>> {
        let subject = Subject::Service(name.clone());
        match work.filter(|work| work.is_local()) {
            Some(work) => {
                let dataplanes = &self.dataplanes;
                let selector = Selector::of(&work.spec.selector);
                self.dataplanes_of.select(&subject, selector, |name| dataplanes.get(name));
            }
            None => self.dataplanes_of.forget(&subject),
        }
        let new = work.map(|work| work.planned(around, name));
        let old = super::replace(&mut self.planned, name, new.clone());
        if old.as_ref().map(|old| &old.labels) != new.as_ref().map(|new| &new.labels) {
            let touched = self.services_of.replace(old.as_deref(), new.as_deref());
            let name_of = |subject: Subject| match subject {
                Subject::MultiZone(name) => Some(name),
                _ => None,
            };
            self.dirty.multi_zone.extend(touched.into_iter().filter_map(name_of));
        }
        let existing = work.and_then(|work| Some((work, work.existing.as_ref()?)));
        let held = existing
            .and_then(|(work, existing)| Some((work.status.vips.first()?.ip.as_str(), existing.created)));
        self.vips.services.hold(name, held)
    }

    fn observe(&self, mesh: &Resource, works: &mut Works) {
        let secured = has_mtls(mesh) || self.identities.any_ready();
        let local = |work: &&mut Work| !work.delete && work.is_local();
        for (name, work) in works.iter_mut() {
            let Some(work) = work.as_mut().filter(local) else { continue };
            let subject = Subject::Service(name.clone());
            let proxy = |name: &Arc<str>| {
                let observed = self.observed.get(name).copied().unwrap_or_default();
                Some(Proxy { dataplane: self.dataplanes.get(name)?, observed })
            };
            let proxies: Vec<Proxy<'_>> = self.dataplanes_of.members(&subject).filter_map(proxy).collect();
            status::observe(work, &proxies, secured, (&self.identities, &self.zone));
        }
    }

    /// Gives an address to every planned service without one, those that exist first, the oldest first.
    fn give_addresses(&mut self, works: &mut Works) {
        let pool = &mut self.vips.services;
        let mut without: Vec<(&Arc<str>, &mut Work)> = works
            .iter_mut()
            .filter_map(|(name, work)| Some((name, work.as_mut()?)))
            .filter(|(name, work)| !work.delete && !pool.keeps(name))
            .collect();
        if without.is_empty() {
            return;
        }
        without.sort_by_key(|(_, work)| {
            let created = work.existing.as_ref().map(|existing| existing.created);
            (created.is_none(), created)
        });
        pool.recycle();
        for (_, work) in without {
            work.status.vips = pool.allocate().into_iter().collect();
        }
    }

    fn external(&mut self, now: Timestamp) -> Vec<ServiceChange> {
        let (pool, dirty) = (&mut self.vips.external, &mut self.dirty.external);
        hold_addresses(pool, dirty, &self.external, |resource| {
            let vip = external_status(resource)?.vip.ip.as_str();
            (!vip.is_empty()).then_some(vip)
        });
        let mut changes = Vec::new();
        for resource in by_age(&self.external, dirty) {
            let name = &resource.key.name;
            let vip = if pool.keeps(name) { None } else { pool.allocate() };
            let change = vip.and_then(|vip| {
                let status = external_status(resource).cloned().unwrap_or_default();
                let status = MeshExternalServiceStatus { vip, ..status };
                update_status(resource, Status::MeshExternalService(Arc::new(status)), now)
            });
            changes.extend(change);
        }
        settle(dirty, &changes);
        changes
    }

    fn multi_zone(&mut self, now: Timestamp) -> Vec<ServiceChange> {
        let (pool, dirty) = (&mut self.vips.multi_zone, &mut self.dirty.multi_zone);
        hold_addresses(pool, dirty, &self.multi_zone, |resource| match &resource.status {
            Some(Status::MeshMultiZoneService(status)) => status.vips.first().map(|vip| vip.ip.as_str()),
            _ => None,
        });
        let mut changes = Vec::new();
        for resource in by_age(&self.multi_zone, dirty) {
            self.visits += 1;
            let name = &resource.key.name;
            let subject = Subject::MultiZone(name.clone());
            let members = self.services_of.members(&subject);
            let members = members.filter_map(|name| self.planned.get(name)).map(|service| &**service);
            let mut status: MeshMultiZoneServiceStatus = multi_zone::observe(resource, members);
            if !pool.keeps(name) {
                status.vips = pool.allocate().into_iter().collect::<Vec<Vip>>();
            }
            changes.extend(update_status(resource, Status::MeshMultiZoneService(Arc::new(status)), now));
        }
        settle(dirty, &changes);
        changes
    }
}

fn external_status(resource: &Resource) -> Option<&MeshExternalServiceStatus> {
    match &resource.status {
        Some(Status::MeshExternalService(status)) => Some(status),
        _ => None,
    }
}

/// Records the addresses of what is dirty; whatever has the same address is dirty, too.
fn hold_addresses(
    pool: &mut Pool,
    dirty: &mut BTreeSet<Arc<str>>,
    all: &ByName,
    address: impl Fn(&Resource) -> Option<&str>,
) {
    let mut queue = dirty.clone();
    while let Some(name) = queue.pop_first() {
        let held = all.get(&name).and_then(|resource| Some((address(resource)?, resource.created)));
        for other in pool.hold(&name, held) {
            if dirty.insert(other.clone()) {
                queue.insert(other);
            }
        }
    }
    if dirty.iter().any(|name| !pool.keeps(name)) {
        pool.recycle();
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
