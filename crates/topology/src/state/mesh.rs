//! One mesh: its resources, what selects what, and the snapshot made of them.

mod parts;
mod telemetry;
mod wanted;

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;
use policy::Policy;
use resources::{
    Key, Kind, Resource,
    kinds::{mesh_multi_zone_service::MeshMultiZoneService, mesh_service::MeshService},
};

use super::{
    Affected, MeshDefaults, MeshUpdate, PolicyChange, ResourceChange, WorkCounts,
    access::AccessState,
    index::ServiceRef,
    resource_diff::{seen_alike, serves_alike, tags_called_by, tags_routed_to},
    zones::RemoteServices,
};
use crate::{
    DestinationId, MeshSnapshot, Mtls, ZoneRoutes,
    access::AccessChange,
    build::{self, BuiltDestinations, BuiltPort, Member, MeshFacts},
    lists::{List, add_to, remove_from},
    matching::{self, MemberSelector},
    selection::Selections,
    snapshot::of_kind,
    virtual_hosts::claims::ChangedClaims,
};

use parts::{Hosts, Members, Offers, Security, Stored, WantedTags};

/// One mesh, while it is changed. Cheap to clone, for asking what a change would do.
#[derive(Debug, Clone, Default)]
pub struct MeshState {
    pub(super) name: Arc<str>,
    pub(super) zone: Arc<str>,
    defaults: MeshDefaults,
    pub(super) stored: Stored,
    pub(super) security: Security,
    wanted: WantedTags,
    pub(super) selections: Selections,
    pub(super) members: Members,
    pub(super) offers: Offers,
    pub(super) hosts: Hosts,
    pub(super) remote_services: RemoteServices,
    pub(super) access: AccessState,
    snapshot: Option<Arc<MeshSnapshot>>,
}

/// Work that a round of changes leaves.
#[derive(Debug, Default)]
pub struct Round {
    pub(super) affected: Affected,
    pub(super) dirty: BTreeSet<ServiceRef>,
    /// Hostnames that may be different.
    pub(super) touched: ChangedClaims,
    /// Subjects that were computed anew.
    pub(super) rebuilt: BTreeSet<ServiceRef>,
}

impl Round {
    /// Notes the effect of a destination's changed access on clients.
    pub(super) fn note(&mut self, change: AccessChange) {
        self.affected.access_rules |= change.rules;
        self.affected.reachability.extend(change.classes);
        self.affected.reachability_by_default |= change.default;
    }
}

impl MeshState {
    pub fn empty(
        name: Arc<str>,
        zones: &ZoneRoutes,
        defaults: &MeshDefaults,
        globals: OrdMap<Key, Arc<Resource>>,
    ) -> MeshState {
        let zone = zones.own().clone();
        let remote_services = RemoteServices::seen_by(zones.clone());
        let defaults = defaults.clone();
        let stored = Stored { globals, ..Stored::default() };
        let mut state = MeshState { name, zone, defaults, stored, remote_services, ..MeshState::default() };
        state.list_all_remote_services();
        state
    }

    pub fn snapshot(&self) -> Option<&Arc<MeshSnapshot>> {
        self.snapshot.as_ref()
    }

    /// Nothing of the mesh is left.
    pub fn is_empty(&self) -> bool {
        self.stored.mesh.is_none()
            && self.stored.dataplanes.is_empty()
            && self.security.certified.is_empty()
            && self.stored.services.is_empty()
            && self.stored.policies.is_empty()
            && self.stored.telemetry.is_empty()
            && self.security.secrets.is_empty()
            && self.security.identities.is_empty()
            && self.security.trusts.is_empty()
            && self.hosts.claims.is_empty()
    }

    /// Folds changes in, with at most so many hostnames, and counts what it had to compute.
    pub fn apply(
        &mut self,
        changes: &[&ResourceChange],
        host_limit: usize,
        made: &mut WorkCounts,
    ) -> Option<MeshUpdate> {
        let mut round = Round::default();
        self.hosts.claims.limit = host_limit;
        for (key, value) in changes {
            self.take(key, value.as_ref(), &mut round, made);
        }
        self.settle_hosts(host_limit, &mut round);
        self.settle(round, made)
    }

    /// Computes what is dirty, and publishes what came of it.
    pub(super) fn settle(&mut self, mut round: Round, made: &mut WorkCounts) -> Option<MeshUpdate> {
        // Services come before those that consist of services, so nothing is computed twice.
        while let Some(subject) = round.dirty.pop_first() {
            if self.rebuild(&subject, &mut round.affected, made) {
                round.dirty.extend(self.made_of(&subject));
            }
            round.rebuilt.insert(subject);
        }
        self.settle_taken_over(&round);
        self.settle_access(&mut round);
        self.publish(round)
    }

    fn take(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round, made: &mut WorkCounts) {
        match key.kind {
            Kind::Mesh => self.take_mesh(value, round),
            Kind::Dataplane => self.take_dataplane(key, value, round),
            Kind::DataplaneInsight => self.take_insight(key, value, round),
            Kind::MeshIdentity => self.take_identity(key, value, round),
            Kind::MeshTrust => round.affected.whole_mesh |= self.security.trusts.replace(key, value),
            Kind::MeshService => self.take_service(key, value, round),
            Kind::MeshExternalService | Kind::MeshMultiZoneService => self.take_other(key, value, round),
            Kind::Secret => round.dirty.extend(self.security.secrets.replace(key, value)),
            Kind::MeshOpenTelemetryBackend => self.take_backend(key, value, round),
            Kind::VirtualOutbound => self.hosts.claims.replace_policy(&key.name, value, &mut round.touched),
            Kind::Config => self.take_config(key, value, round),
            kind if kind.descriptor().policy.is_some() => self.take_policy(key, value, round, made),
            _ => {}
        }
    }

    fn take_mesh(&mut self, value: Option<&Arc<Resource>>, round: &mut Round) {
        if seen_alike(self.stored.mesh.as_ref(), value) {
            return;
        }
        round.affected.whole_mesh = true;
        self.stored.mesh = value.cloned();
        self.take_routing(value.map(|mesh| &**mesh), round);
        let named = self.remote_services.tags.then_some(self.defaults.service_hosts.as_ref()).flatten();
        self.hosts.claims.name_services(named, &mut round.touched);
        let key = Key::global(Kind::Mesh, &self.name);
        round.dirty.extend(self.security.secrets.replace_signer(&key, value.map(|mesh| &**mesh)));
        let mtls = value.and_then(|mesh| Mtls::of(mesh));
        if mtls != self.security.mtls {
            self.security.mtls = mtls;
            round.dirty.extend(self.offers.built.keys().cloned());
        }
    }

    fn take_identity(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round) {
        let before = self.security.identities.any_ready();
        let matters = self.security.identities.replace(key, value);
        round.affected.whole_mesh |= matters;
        round.dirty.extend(self.security.secrets.replace_signer(key, value.map(|identity| &**identity)));
        let switched = before != self.security.identities.any_ready();
        // Servers that tags choose are expected to be who their identities say.
        let depends = |subject: &&ServiceRef| switched || matters && matches!(subject, ServiceRef::Tags(_));
        round.dirty.extend(self.offers.built.keys().filter(depends).cloned());
    }

    fn take_dataplane(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round) {
        let old = self.stored.dataplanes.get(&key.name).cloned();
        if seen_alike(old.as_ref(), value) {
            return;
        }
        round.affected.proxies.insert(key.name.clone());
        match value {
            Some(dataplane) => self.stored.dataplanes.insert(key.name.clone(), dataplane.clone()),
            None => self.stored.dataplanes.remove(&key.name),
        };
        let old = old.as_deref();
        let new = value.map(|value| &**value);
        self.selections.replace_dataplane(old, new);
        self.hosts.claims.replace_dataplane(old, new, &mut round.touched);
        if !serves_alike(old, new) {
            self.count_instances(old, new, round);
            round.dirty.extend(self.members.index.replace(old, new));
        }
        self.want_instead(&tags_called_by(old), &tags_called_by(new), round);
    }

    /// Of an insight only one thing matters to others: whether the proxy has a certificate.
    fn take_insight(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round) {
        let certified = value.is_some_and(|insight| matching::has_certificate(insight));
        let changed = if certified {
            self.security.certified.insert(key.name.clone()).is_none()
        } else {
            self.security.certified.remove(&key.name).is_some()
        };
        if changed && let Some(dataplane) = self.stored.dataplanes.get(&key.name) {
            let subjects = self.members.index.subjects_of(dataplane);
            round.dirty.extend(subjects.into_iter().filter(|s| matches!(s, ServiceRef::Tags(_))));
        }
    }

    fn take_service(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round) {
        let subject = ServiceRef::Service(key.name.clone());
        round.dirty.insert(subject.clone());
        let old = self.store_service(key, value);
        self.remote_services.replace_service(old.as_ref(), value);
        if old.as_ref().map(|old| &old.labels) != value.map(|new| &new.labels) {
            round.dirty.extend(self.members.zones.replace(old.as_deref(), value.map(|new| &**new)));
        } else if old.as_deref().map(build::is_called) != value.map(|new| build::is_called(new)) {
            round.dirty.extend(self.made_of(&subject));
        }
        match value.and_then(|service| Some((service, service.spec.get::<MeshService>()?))) {
            Some((service, spec)) => {
                let selector = MemberSelector::of_service(service, spec, &self.zone);
                let dataplanes = &self.stored.dataplanes;
                self.members.index.select(&subject, selector, |name| dataplanes.get(name));
            }
            None => self.members.index.forget(&subject),
        }
    }

    /// A service that has no Dataplanes of its own.
    fn take_other(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round) {
        let old = self.store_service(key, value);
        if key.kind == Kind::MeshExternalService {
            self.security.secrets.replace_reader(old.as_deref(), value.map(|new| &**new));
            round.dirty.insert(ServiceRef::External(key.name.clone()));
            return;
        }
        let subject = ServiceRef::MultiZone(key.name.clone());
        match value.and_then(|service| service.spec.get::<MeshMultiZoneService>()) {
            Some(spec) => {
                let services = &self.stored.services;
                let mesh = &self.name;
                let key = |name: &str| Key { kind: Kind::MeshService, mesh: mesh.clone(), name: name.into() };
                self.members
                    .zones
                    .select(&subject, MemberSelector::of_multi_zone(spec), |name| services.get(&key(name)));
            }
            None => self.members.zones.forget(&subject),
        }
        round.dirty.insert(subject);
    }

    /// Returns what was there before.
    fn store_service(&mut self, key: &Key, value: Option<&Arc<Resource>>) -> Option<Arc<Resource>> {
        match value {
            Some(service) => self.stored.services.insert(key.clone(), service.clone()),
            None => self.stored.services.remove(key),
        }
    }

    /// The subjects that consist of this one, among others.
    pub(super) fn made_of(&self, subject: &ServiceRef) -> Vec<ServiceRef> {
        let ServiceRef::Service(_) = subject else { return Vec::new() };
        let service = self.key_of(subject).and_then(|key| self.stored.services.get(&key));
        service.map(|service| self.members.zones.subjects_of(service)).unwrap_or_default()
    }

    fn take_policy(
        &mut self,
        key: &Key,
        value: Option<&Arc<Resource>>,
        round: &mut Round,
        made: &mut WorkCounts,
    ) {
        if seen_alike(self.stored.policies.get(key).map(|policy| &policy.resource), value) {
            return;
        }
        let new = value.and_then(|policy| Policy::of(policy.clone())).map(Arc::new);
        made.views += u64::from(new.is_some());
        let old = match &new {
            Some(policy) => self.stored.policies.insert(key.clone(), policy.clone()),
            None => self.stored.policies.remove(key),
        };
        self.selections.replace_policy(key, new.as_deref());
        self.want_instead(&tags_routed_to(old.as_deref()), &tags_routed_to(new.as_deref()), round);
        // Whether anything is trimmed at all depends on whether there are permissions.
        let first_or_last = key.kind == Kind::MeshTrafficPermission
            && old.is_some() != new.is_some()
            && of_kind(&self.stored.policies, key.kind).all(|(other, _)| other == key);
        round.affected.whole_mesh |= first_or_last;
        if old.is_some() || new.is_some() {
            round.affected.policies.push(PolicyChange { old, new });
        }
    }

    /// Computes what a subject offers now, and what that changes; `false` when it offers the same.
    fn rebuild(&mut self, subject: &ServiceRef, affected: &mut Affected, made: &mut WorkCounts) -> bool {
        let offered = self.build(subject);
        made.destinations += offered.as_ref().map_or(0, |offered| offered.len() as u64);
        self.list_ports(subject, offered.as_deref(), affected);

        let exists = offered.is_some();
        let mut now = BuiltDestinations::new();
        for BuiltPort { destination, endpoints } in offered.into_iter().flatten() {
            // Of two ports with one name the first counts.
            let id = destination.id.clone();
            now.entry(id).or_insert_with(|| (Arc::new(destination), Arc::new(endpoints)));
        }
        let ids: BTreeSet<DestinationId> = now.keys().cloned().collect();
        let differs = self.offers.built.get(subject) != exists.then_some(&now);
        let before = if exists {
            self.offers.built.insert(subject.clone(), now)
        } else {
            self.offers.built.remove(subject)
        };
        let before: BTreeSet<DestinationId> = before.unwrap_or_default().into_keys().collect();
        for id in before.difference(&ids) {
            remove_from(&mut self.offers.claims, id, subject);
            self.settle_claim(id, affected);
        }
        for id in &ids {
            if !before.contains(id) {
                add_to(&mut self.offers.claims, id.clone(), subject.clone());
            }
            self.settle_claim(id, affected);
        }
        differs
    }

    /// `None` when the subject is gone.
    fn build(&self, subject: &ServiceRef) -> Option<Vec<BuiltPort>> {
        let around = MeshFacts {
            mesh: &self.name,
            zone: &self.zone,
            mtls: self.security.mtls.as_ref(),
            identities: &self.security.identities,
            zones: &self.remote_services.zones,
            routing: self.remote_services.routing,
        };
        let members = self.members.index.members(subject).filter_map(|name| self.stored.dataplanes.get(name));
        let members: Vec<&Arc<Resource>> = members.collect();
        match subject {
            ServiceRef::Service(_) => {
                Some(build::service(self.stored.services.get(&self.key_of(subject)?)?, &members, around))
            }
            ServiceRef::External(_) => {
                let service = self.stored.services.get(&self.key_of(subject)?)?;
                Some(build::external(service, around, |tls| self.security.secrets.fill(tls)))
            }
            ServiceRef::MultiZone(_) => {
                let resource = self.stored.services.get(&self.key_of(subject)?)?;
                let member = |name: &Arc<str>| {
                    let service = ServiceRef::Service(name.clone());
                    let called = build::is_called(self.stored.services.get(&self.key_of(&service)?)?);
                    Some(Member { offer: self.offers.built.get(&service)?, called })
                };
                let members: Vec<Member<'_>> =
                    self.members.zones.members(subject).filter_map(member).collect();
                Some(build::multi_zone(resource, &members, around))
            }
            ServiceRef::Tags(tags) => {
                let wanted = self.wanted.tags.contains_key(tags);
                wanted.then(|| vec![build::tagged(tags, &members, &self.security.certified, around)])
            }
        }
    }

    pub(super) fn key_of(&self, subject: &ServiceRef) -> Option<Key> {
        let (kind, name) = match subject {
            ServiceRef::Service(name) => (Kind::MeshService, name),
            ServiceRef::External(name) => (Kind::MeshExternalService, name),
            ServiceRef::MultiZone(name) => (Kind::MeshMultiZoneService, name),
            ServiceRef::Tags(_) => return None,
        };
        Some(Key { kind, mesh: self.name.clone(), name: name.clone() })
    }

    fn list_ports(&mut self, subject: &ServiceRef, offered: Option<&[BuiltPort]>, affected: &mut Affected) {
        let Some(key) = self.key_of(subject) else { return };
        let ports = offered.map(|offered| -> Arc<[DestinationId]> {
            let mut ids: Vec<&DestinationId> = Vec::new();
            for built in offered {
                if !ids.contains(&&built.destination.id) {
                    ids.push(&built.destination.id);
                }
            }
            ids.into_iter().cloned().collect()
        });
        let labels = offered.and_then(<[_]>::first).map(|built| built.destination.labels.clone());
        let old = self.offers.labelled.replace(&key, labels.as_ref());
        if old != labels || self.offers.ports.get(&key) != ports.as_ref() {
            affected.services.entry(key.clone()).or_default().extend(old.into_iter().chain(labels));
            match ports {
                Some(ports) => self.offers.ports.insert(key, ports),
                None => self.offers.ports.remove(&key),
            };
        }
    }

    /// Lets the first who claims a destination have it, and notes what is different then.
    fn settle_claim(&mut self, id: &DestinationId, affected: &mut Affected) {
        let owner = self.offers.claims.get(id).and_then(List::first);
        let Some((destination, endpoints)) =
            owner.and_then(|owner| self.offers.built.get(owner)?.get(id)).cloned()
        else {
            self.offers.claims.remove(id);
            self.offers.endpoints.remove(id);
            if let Some(old) = self.offers.destinations.remove(id) {
                self.hosts.service_hosts.replace(Some(&old), None);
                affected.destinations.insert(id.clone());
            }
            return;
        };
        let old = self.offers.destinations.get(id);
        let same_endpoints = self.offers.endpoints.get(id) == Some(&endpoints);
        if old != Some(&destination) {
            affected.destinations.insert(id.clone());
            self.hosts.service_hosts.replace(old.map(|old| &**old), Some(&destination));
            self.offers.destinations.insert(id.clone(), destination);
        } else if !same_endpoints {
            affected.endpoints.insert(id.clone());
        }
        if !same_endpoints {
            self.offers.endpoints.insert(id.clone(), endpoints);
        }
    }

    fn publish(&mut self, mut round: Round) -> Option<MeshUpdate> {
        let existed = self.snapshot.is_some();
        if round.affected.is_empty() || (self.stored.mesh.is_none() && !existed) {
            return None;
        }
        // A destination can differ within a round in more than one way; the wider one counts.
        round.affected.endpoints.retain(|id| !round.affected.destinations.contains(id));
        self.snapshot = self.stored.mesh.clone().map(|mesh| Arc::new(self.freeze(mesh)));
        Some(MeshUpdate {
            mesh: self.name.clone(),
            snapshot: self.snapshot.clone(),
            affected: round.affected,
        })
    }

    /// Clones of shared maps only: what does not change costs nothing.
    fn freeze(&self, mesh: Arc<Resource>) -> MeshSnapshot {
        MeshSnapshot {
            name: self.name.clone(),
            mesh,
            mtls: self.security.mtls.clone(),
            identities: self.security.identities.clone(),
            trusts: self.security.trusts.clone(),
            zone: self.zone.clone(),
            default_mode: self.defaults.mode,
            ipv6_prefix: self.defaults.ipv6_prefix,
            dataplanes: self.stored.dataplanes.clone(),
            destinations: self.offers.destinations.clone(),
            endpoints: self.offers.endpoints.clone(),
            services: self.offers.ports.clone(),
            labelled: self.offers.labelled.clone(),
            virtual_hosts: self.hosts.virtual_hosts.clone(),
            policies: self.stored.policies.clone(),
            selections: self.selections.clone(),
            access: self.access.graph.clone(),
            telemetry: self.stored.telemetry.clone(),
            globals: self.stored.globals.clone(),
            zones: self.remote_services.zones.clone(),
            instances: self.remote_services.instances.clone(),
        }
    }
}
