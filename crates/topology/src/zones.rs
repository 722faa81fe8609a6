//! Ways from this zone to others: through their ingresses, or through an egress of this zone.
//!
//! Every snapshot of a mesh has them, so that planning a client needs no other input.

use std::{collections::BTreeSet, sync::Arc};

use imbl::{OrdMap, OrdSet};
use resources::{
    Kind, Resource,
    kinds::{
        tags::{self, Tags},
        zone_egress::ZoneEgress,
        zone_ingress::{AvailableService, ZoneIngress},
    },
    labels,
};

use crate::{Endpoint, snapshot::looks_same};

/// The priority of endpoints in other zones, where those of this zone come first.
pub(crate) const REMOTE: u32 = 1;

type ZoneProxiesByName = OrdMap<Arc<str>, Arc<Resource>>;
/// Listings of one service, by the zone and the name of the ingress.
type Offers = OrdMap<(Arc<str>, Arc<str>), Arc<[AvailableService]>>;

/// The zone proxies that matter to clients in this zone. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ZoneRoutes {
    own: Arc<str>,
    /// The ZoneIngresses of other zones that have an address for us, by zone.
    ingresses: OrdMap<Arc<str>, ZoneProxiesByName>,
    /// The ZoneEgresses of this zone.
    egresses: ZoneProxiesByName,
    /// The names of the ZoneIngresses of this zone.
    own_ingresses: OrdSet<Arc<str>>,
    /// Services that ingresses of other zones list, by mesh and `kuma.io/service`.
    available: OrdMap<(Arc<str>, Arc<str>), Offers>,
}

/// Changed ways to other zones.
#[derive(Debug, Default)]
pub(crate) struct ChangedRoutes {
    pub zones: BTreeSet<Arc<str>>,
    pub egress: bool,
    /// By mesh and `kuma.io/service`.
    pub services: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl ChangedRoutes {
    pub(crate) fn add(&mut self, more: ChangedRoutes) {
        self.zones.extend(more.zones);
        self.egress |= more.egress;
        self.services.extend(more.services);
    }
}

impl ZoneRoutes {
    pub(crate) fn seen_from(own: Arc<str>) -> ZoneRoutes {
        ZoneRoutes { own, ..ZoneRoutes::default() }
    }

    /// The zone of this control plane.
    pub fn own(&self) -> &Arc<str> {
        &self.own
    }

    /// The name is that of a zone other than this control plane's. The global control plane has none, and
    /// looks at each proxy from the proxy's zone.
    pub fn is_other(&self, zone: &str) -> bool {
        !zone.is_empty() && !self.own.is_empty() && *self.own != *zone
    }

    /// Returns the addresses where a zone is entered from outside; none if it has no public ingress.
    pub fn entrances(&self, zone: &str) -> impl Iterator<Item = (&str, u32)> {
        let there = self.ingresses.get(zone);
        there.into_iter().flat_map(OrdMap::values).filter_map(|ingress| {
            let networking = ingress.spec.get::<ZoneIngress>()?.networking.as_ref()?;
            Some((networking.advertised_address.as_str(), networking.advertised_port))
        })
    }

    /// Other zones can enter this one.
    pub fn is_entered(&self) -> bool {
        !self.own_ingresses.is_empty()
    }

    /// The names of the ZoneIngresses of this zone.
    pub fn own_ingresses(&self) -> impl Iterator<Item = &Arc<str>> {
        self.own_ingresses.iter()
    }

    /// The names of the ZoneEgresses of this zone.
    pub fn own_egresses(&self) -> impl Iterator<Item = &Arc<str>> {
        self.egresses.keys()
    }

    /// Another zone reports MeshTrafficPermissions of its own, which are not known here.
    pub fn has_own_permissions(&self, zone: &str) -> bool {
        let there = self.ingresses.get(zone);
        there.into_iter().flat_map(OrdMap::values).any(|ingress| says_own_permissions(ingress))
    }

    /// Returns the addresses where traffic leaves this zone.
    pub fn exits(&self) -> impl Iterator<Item = (&str, u32)> {
        self.egresses.values().filter_map(|egress| {
            let networking = egress.spec.get::<ZoneEgress>()?.networking.as_ref()?;
            Some((networking.address.as_str(), networking.port))
        })
    }

    /// Returns the endpoints that are called for destinations outside of the mesh.
    pub(crate) fn exit_endpoints(&self) -> Vec<Endpoint> {
        let mut called: Vec<Endpoint> =
            self.exits().map(|(address, port)| remote_endpoint(address, port, &self.own)).collect();
        called.iter_mut().for_each(|endpoint| endpoint.priority = 0);
        called
    }

    /// Returns the endpoints that are called for a service of another zone: an egress where the mesh wants
    /// that and this zone has one, else the ingresses of that zone.
    pub fn toward(&self, zone: &str, through_egress: bool) -> Vec<Endpoint> {
        let endpoint = |(address, port): (&str, u32)| remote_endpoint(address, port, zone);
        let exit = self.exits().next().filter(|_| through_egress);
        match exit {
            // An egress cannot lead to where there is no ingress.
            Some(_) if self.entrances(zone).next().is_none() => Vec::new(),
            Some(_) => self.exits().map(endpoint).collect(),
            None => self.entrances(zone).map(endpoint).collect(),
        }
    }

    /// Returns the endpoints that are called in other zones for these tags, each weighted by the instances
    /// there, with the tags of those instances.
    pub fn tagged(&self, mesh: &str, wanted: &Tags, through_egress: bool) -> Vec<(Endpoint, Vec<&Tags>)> {
        let Some(service) = wanted.get(labels::SERVICE) else { return Vec::new() };
        let offers = self.available.get(&(mesh.into(), service.as_str().into()));
        let mut found = Vec::new();
        for ((zone, ingress), services) in offers.into_iter().flatten() {
            let matching = services.iter().filter(|service| tags::matches(wanted, &service.tags));
            let matching: Vec<&AvailableService> = matching.collect();
            let weight = matching.iter().map(|service| service.instances).sum::<u32>().max(1);
            if matching.is_empty() {
                continue;
            }
            let carried: Vec<&Tags> = matching.iter().map(|service| &service.tags).collect();
            let entrance = || {
                let ingress = self.ingresses.get(zone)?.get(ingress)?;
                let networking = ingress.spec.get::<ZoneIngress>()?.networking.as_ref()?;
                Some((networking.advertised_address.as_str(), networking.advertised_port))
            };
            let called: Vec<(&str, u32)> =
                if through_egress { self.exits().collect() } else { entrance().into_iter().collect() };
            for (address, port) in called {
                found.push((Endpoint { weight, ..remote_endpoint(address, port, zone) }, carried.clone()));
            }
        }
        found
    }

    /// The sets of tags that other zones list of a service.
    pub(crate) fn listed(&self, mesh: &Arc<str>, service: &Arc<str>) -> BTreeSet<&Tags> {
        let offers = self.available.get(&(mesh.clone(), service.clone()));
        offers
            .into_iter()
            .flat_map(OrdMap::values)
            .flat_map(|services| services.iter())
            .map(|it| &it.tags)
            .collect()
    }

    /// The services that other zones list of a mesh.
    pub(crate) fn services_listed(&self, mesh: &Arc<str>) -> Vec<Arc<str>> {
        let of_mesh = self.available.range((mesh.clone(), Arc::from(""))..);
        let of_mesh = of_mesh.take_while(|((of, _), _)| of == mesh);
        of_mesh.map(|((_, service), _)| service.clone()).collect()
    }

    /// Takes in another version of a zone proxy.
    pub(crate) fn replace(
        &mut self,
        old: Option<&Arc<Resource>>,
        new: Option<&Arc<Resource>>,
    ) -> ChangedRoutes {
        let mut moved = ChangedRoutes::default();
        let Some(kind) = old.or(new).map(|resource| resource.kind()) else { return moved };
        if kind == Kind::ZoneEgress {
            let own = |egress: &&Arc<Resource>| self.is_exit(egress);
            let before = old.filter(own);
            let after = new.filter(own);
            moved.egress = before.map(|egress| place_of(egress)) != after.map(|egress| place_of(egress));
            if let Some(gone) = before {
                self.egresses.remove(&gone.key.name);
            }
            if let Some(there) = after {
                self.egresses.insert(there.key.name.clone(), there.clone());
            }
            return moved;
        }
        match old.or(new) {
            Some(ingress) if new.is_some_and(|new| self.is_own_ingress(new)) => {
                self.own_ingresses.insert(ingress.key.name.clone());
            }
            Some(ingress) => drop(self.own_ingresses.remove(&ingress.key.name)),
            None => {}
        }
        let before = old.and_then(|ingress| Some((self.zone_of(ingress)?, ingress)));
        let after = new.and_then(|ingress| Some((self.zone_of(ingress)?, ingress)));
        let place = |there: &Option<(Arc<str>, &Arc<Resource>)>| {
            there
                .as_ref()
                .map(|(zone, ingress)| (zone.clone(), place_of(ingress), says_own_permissions(ingress)))
        };
        let elsewhere = place(&before) != place(&after);
        if let Some((zone, ingress)) = &before {
            self.forget(zone, ingress, elsewhere, &mut moved);
        }
        if let Some((zone, ingress)) = &after {
            self.ingresses
                .entry(zone.clone())
                .or_default()
                .insert(ingress.key.name.clone(), (*ingress).clone());
            self.list(zone, ingress, &mut moved);
            moved.zones.extend(elsewhere.then(|| zone.clone()));
        }
        // What is listed as before, at the same place, is not touched.
        if let (Some((_, old)), Some((_, new)), false) = (&before, &after, elsewhere) {
            let old = groups(old);
            let new = groups(new);
            moved.services.retain(|service| old.get(service) != new.get(service));
        }
        moved
    }

    fn forget(
        &mut self,
        zone: &Arc<str>,
        ingress: &Arc<Resource>,
        elsewhere: bool,
        moved: &mut ChangedRoutes,
    ) {
        if let Some(of_zone) = self.ingresses.get_mut(zone) {
            of_zone.remove(&ingress.key.name);
            if of_zone.is_empty() {
                self.ingresses.remove(zone);
            }
        }
        for service in groups(ingress).into_keys() {
            if let Some(offers) = self.available.get_mut(&service) {
                offers.remove(&(zone.clone(), ingress.key.name.clone()));
                if offers.is_empty() {
                    self.available.remove(&service);
                }
            }
            moved.services.insert(service);
        }
        moved.zones.extend(elsewhere.then(|| zone.clone()));
    }

    fn list(&mut self, zone: &Arc<str>, ingress: &Arc<Resource>, moved: &mut ChangedRoutes) {
        for (service, group) in groups(ingress) {
            let offers = self.available.entry(service.clone()).or_default();
            offers.insert((zone.clone(), ingress.key.name.clone()), group.into_iter().cloned().collect());
            moved.services.insert(service);
        }
    }

    /// The other zone that an ingress leads to, if it has an address for us.
    fn zone_of(&self, ingress: &Resource) -> Option<Arc<str>> {
        let spec = ingress.spec.get::<ZoneIngress>()?;
        (spec.has_public_address() && spec.is_remote(&self.own)).then(|| spec.zone.as_str().into())
    }

    fn is_own_ingress(&self, ingress: &Resource) -> bool {
        let zone = ingress.spec.get::<ZoneIngress>().map(|spec| spec.zone.as_str());
        zone.is_some_and(|zone| zone.is_empty() || *zone == *self.own)
    }

    fn is_exit(&self, egress: &Resource) -> bool {
        let zone = egress.spec.get::<ZoneEgress>().map(|spec| spec.zone.as_str());
        zone.is_some_and(|zone| zone.is_empty() || *zone == *self.own)
    }
}

impl PartialEq for ZoneRoutes {
    fn eq(&self, other: &ZoneRoutes) -> bool {
        let same = |a: &ZoneProxiesByName, b: &ZoneProxiesByName| {
            a.len() == b.len() && a.values().zip(b.values()).all(|(a, b)| looks_same(a, b))
        };
        same(&self.egresses, &other.egresses)
            && self.ingresses.keys().eq(other.ingresses.keys())
            && self.ingresses.values().zip(other.ingresses.values()).all(|(a, b)| same(a, b))
    }
}

/// Returns the address and port of a zone proxy.
fn place_of(proxy: &Resource) -> Option<(String, u32)> {
    if let Some(ingress) = proxy.spec.get::<ZoneIngress>() {
        let networking = ingress.networking.as_ref()?;
        return Some((networking.advertised_address.clone(), networking.advertised_port));
    }
    let networking = proxy.spec.get::<ZoneEgress>()?.networking.as_ref()?;
    Some((networking.address.clone(), networking.port))
}

fn says_own_permissions(ingress: &Resource) -> bool {
    ingress.label(labels::OWN_PERMISSIONS) == Some("true")
}

type Groups<'r> = std::collections::BTreeMap<(Arc<str>, Arc<str>), Vec<&'r AvailableService>>;

/// Groups the services that an ingress lists, by mesh and `kuma.io/service`. Services outside of the mesh are
/// not called through it.
fn groups(ingress: &Resource) -> Groups<'_> {
    let mut groups = Groups::new();
    let listed = ingress.spec.get::<ZoneIngress>().into_iter().flat_map(|spec| &spec.available_services);
    for service in listed.filter(|service| !service.external_service) {
        if let Some(name) = service.tags.get(labels::SERVICE) {
            let key = (service.mesh.as_str().into(), name.as_str().into());
            groups.entry(key).or_default().push(service);
        }
    }
    groups
}

fn remote_endpoint(address: &str, port: u32, zone: &str) -> Endpoint {
    Endpoint {
        address: address.to_owned(),
        port,
        tags: Tags::from([(labels::ZONE.to_owned(), zone.to_owned())]),
        weight: 1,
        priority: REMOTE,
        instance: None,
    }
}
