//! Parts of a mesh that depend on other zones, brought in line when the ways there change.

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;
use resources::{
    Key, Resource,
    kinds::{
        mesh::{Mesh, MeshServicesMode},
        tags::Tags,
    },
    labels,
};

use super::{
    Affected, MeshUpdate, WorkCounts,
    index::ServiceRef,
    mesh::{MeshState, Round},
};
use crate::{
    ZoneRoutes,
    build::Routing,
    lists::{Lists, add_to, remove_from},
    matching,
    virtual_hosts::claims::ChangedClaims,
    zones::ChangedRoutes,
};

/// Parts of a mesh that are served in other zones.
#[derive(Debug, Clone, Default)]
pub(super) struct RemoteServices {
    pub zones: ZoneRoutes,
    pub routing: Routing,
    /// The mesh has destinations chosen by tags.
    pub tags: bool,
    /// The MeshServices of other zones, by zone.
    services: Lists<Arc<str>, Arc<str>>,
    /// Number of inbounds that take traffic with each set of tags.
    pub instances: OrdMap<Arc<Tags>, u32>,
    /// Number of these sets of each service.
    own: OrdMap<Arc<str>, u32>,
    /// The sets of tags that other zones list, by service. VirtualOutbounds make hostnames of them, too.
    listed: OrdMap<Arc<str>, Arc<BTreeSet<Tags>>>,
}

impl RemoteServices {
    pub(super) fn seen_by(zones: ZoneRoutes) -> RemoteServices {
        RemoteServices { zones, ..RemoteServices::default() }
    }

    /// Takes in another version of a MeshService.
    pub(super) fn replace_service(&mut self, old: Option<&Arc<Resource>>, new: Option<&Arc<Resource>>) {
        let zone = |service: Option<&Arc<Resource>>| {
            let service = service.filter(|service| !matching::is_local(service))?;
            Some((Arc::<str>::from(service.label(labels::ZONE)?), service.key.name.clone()))
        };
        let before = zone(old);
        let after = zone(new);
        if before == after {
            return;
        }
        if let Some((zone, name)) = before {
            remove_from(&mut self.services, &zone, &name);
        }
        if let Some((zone, name)) = after {
            add_to(&mut self.services, zone, name);
        }
    }

    /// Other zones find destinations chosen by tags here.
    fn is_found_by_tags(&self) -> bool {
        self.tags && self.zones.is_entered()
    }

    fn services_of<'a>(
        &'a self,
        zones: impl Iterator<Item = &'a Arc<str>> + 'a,
    ) -> impl Iterator<Item = ServiceRef> + 'a {
        zones.filter_map(|zone| self.services.get(zone)).flatten().cloned().map(ServiceRef::Service)
    }
}

impl MeshState {
    /// Takes in the resources that belong to no mesh, some of which changed, and with them how zones are reached.
    pub fn take_globals(
        &mut self,
        globals: &OrdMap<Key, Arc<Resource>>,
        changed: &BTreeSet<Key>,
        (zones, moved): (&ZoneRoutes, &ChangedRoutes),
        made: &mut WorkCounts,
    ) -> Option<MeshUpdate> {
        self.stored.globals = globals.clone();
        let found_before = self.remote_services.is_found_by_tags();
        self.remote_services.zones = zones.clone();
        let affected =
            Affected { globals: changed.clone(), zones: moved.zones.clone(), ..Affected::default() };
        let mut round = Round { affected, ..Round::default() };
        round.dirty.extend(self.remote_services.services_of(moved.zones.iter()));
        let name = self.name.clone();
        for (_, service) in moved.services.iter().filter(|(mesh, _)| *mesh == name) {
            round.dirty.extend(self.wanted_of(service).cloned().map(ServiceRef::Tags));
            self.list_remote_service(service, &mut round.touched);
        }
        let limit = self.hosts.claims.limit;
        self.settle_hosts(limit, &mut round);
        if moved.egress && self.remote_services.routing.egress {
            self.rebuild_remote_services(&mut round);
        }
        self.offer_by_tags(found_before, &mut round);
        self.settle(round, made)
    }

    /// Takes in what other zones list of all services.
    pub(super) fn list_all_remote_services(&mut self) {
        // A new mesh has no VirtualOutbounds: no hostname is touched.
        let mut touched = ChangedClaims::default();
        for service in self.remote_services.zones.services_listed(&self.name) {
            self.list_remote_service(&service, &mut touched);
        }
    }

    /// Takes in what other zones list of a service.
    fn list_remote_service(&mut self, service: &Arc<str>, touched: &mut ChangedClaims) {
        let zones = self.remote_services.zones.clone();
        let now = zones.listed(&self.name, service);
        let before = self.remote_services.listed.get(service).cloned().unwrap_or_default();
        self.hosts.claims.replace_sources(&before.iter().collect(), &now, touched);
        let now: BTreeSet<Tags> = now.into_iter().cloned().collect();
        if now.is_empty() {
            self.remote_services.listed.remove(service)
        } else {
            self.remote_services.listed.insert(service.clone(), Arc::new(now))
        };
    }

    /// Takes in what a mesh says about traffic between zones.
    pub(super) fn take_routing(&mut self, mesh: Option<&Resource>, round: &mut Round) {
        let routing = mesh.map(Routing::of).unwrap_or_default();
        if routing != std::mem::replace(&mut self.remote_services.routing, routing) {
            self.rebuild_remote_services(round);
        }
        let found_before = self.remote_services.is_found_by_tags();
        let mode = mesh.and_then(|mesh| mesh.spec.get::<Mesh>()).map(Mesh::mesh_services_mode);
        self.remote_services.tags = mode.is_some_and(|mode| mode != MeshServicesMode::Exclusive);
        self.offer_by_tags(found_before, round);
    }

    /// Counts what inbounds take traffic with, and offers every service of theirs to other zones.
    pub(super) fn count_instances(
        &mut self,
        old: Option<&Resource>,
        new: Option<&Resource>,
        round: &mut Round,
    ) {
        for tags in ready_tags(old) {
            self.count_down(tags, round);
        }
        for tags in ready_tags(new) {
            self.count_up(tags, round);
        }
    }

    fn count_up(&mut self, tags: &Tags, round: &mut Round) {
        let Some(service) = tags.get(labels::SERVICE) else { return };
        let instances = self.remote_services.instances.entry(Arc::new(tags.clone())).or_default();
        *instances += 1;
        if *instances > 1 {
            return;
        }
        let sets = self.remote_services.own.entry(service.as_str().into()).or_default();
        *sets += 1;
        if *sets == 1 && self.remote_services.is_found_by_tags() {
            self.want(&of_service(service), round);
        }
    }

    fn count_down(&mut self, tags: &Tags, round: &mut Round) {
        let Some(service) = tags.get(labels::SERVICE) else { return };
        let Some(instances) = self.remote_services.instances.get_mut(tags) else { return };
        *instances -= 1;
        if *instances > 0 {
            return;
        }
        self.remote_services.instances.remove(tags);
        let name: Arc<str> = service.as_str().into();
        let Some(sets) = self.remote_services.own.get_mut(&name) else { return };
        *sets -= 1;
        if *sets == 0 {
            self.remote_services.own.remove(&name);
            if self.remote_services.is_found_by_tags() {
                self.no_longer_want(&of_service(service), round);
            }
        }
    }

    /// Brings what is offered to other zones in line with whether they find it.
    fn offer_by_tags(&mut self, before: bool, round: &mut Round) {
        let now = self.remote_services.is_found_by_tags();
        if before == now {
            return;
        }
        let services: Vec<Arc<str>> = self.remote_services.own.keys().cloned().collect();
        for service in services {
            if now {
                self.want(&of_service(&service), round)
            } else {
                self.no_longer_want(&of_service(&service), round)
            }
        }
    }

    /// Everything that leads out of the zone is computed again.
    pub(super) fn rebuild_remote_services(&self, round: &mut Round) {
        round.dirty.extend(self.remote_services.services_of(self.remote_services.services.keys()));
        let outside =
            |subject: &&ServiceRef| matches!(subject, ServiceRef::External(_) | ServiceRef::Tags(_));
        round.dirty.extend(self.offers.built.keys().filter(outside).cloned());
    }
}

/// The tags of the inbounds of a Dataplane that take traffic.
fn ready_tags(dataplane: Option<&Resource>) -> impl Iterator<Item = &Tags> {
    let inbounds = dataplane.map(matching::inbounds).unwrap_or_default();
    inbounds.iter().filter(|inbound| matching::is_ready(inbound)).map(|inbound| &inbound.tags)
}

/// Returns the tags that other zones ask for to call a service by its tag.
fn of_service(service: &str) -> Arc<Tags> {
    Arc::new(Tags::from([(labels::SERVICE.to_owned(), service.to_owned())]))
}
