//! Hostnames of services: what HostnameGenerators make of them, and who has a hostname that several want.
//!
//! A hostname belongs to one service of a mesh and kind. Of several the one has it whose generator comes
//! first, then the older one, then the first by name: this depends on what is stored alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Key, Kind, Resource,
    kinds::{
        hostname_generator::{HostnameData, HostnameGenerator, HostnameSelector},
        service_status::{Address, Condition, HostnameGeneratorRef, HostnameGeneratorStatus},
    },
    labels,
};

use crate::labelled::Labelled;

const ORIGIN: &str = "HostnameGenerator";
const GENERATED: &str = "Generated";
const COLLISION: &str = "Collision";
const TEMPLATE_ERROR: &str = "TemplateError";

/// Services of one kind that want one hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostnameConflict {
    pub hostname: Arc<str>,
    pub kind: Kind,
    /// The service that has it.
    pub winner: Arc<str>,
    /// Those that do not, by name.
    pub losers: BTreeSet<Arc<str>>,
}

/// Hostnames in the status of a service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostnameStatus {
    pub addresses: Vec<Address>,
    pub generators: Vec<HostnameGeneratorStatus>,
}

/// The hostnames of a mesh.
#[derive(Debug, Clone)]
pub struct Hostnames {
    zone: Arc<str>,
    generators: BTreeMap<Arc<str>, Arc<Resource>>,
    services: HashMap<Key, Service>,
    /// By generator: the services that it selects.
    selected: HashMap<Arc<str>, BTreeSet<Key>>,
    labelled: Labelled,
    claims: BTreeMap<(Kind, Arc<str>), BTreeSet<Claim>>,
    contested: BTreeSet<(Kind, Arc<str>)>,
    rendered: u64,
}

/// A service as it was last seen, and by generator what it makes of it: a hostname, or why there is none.
#[derive(Debug, Clone)]
struct Service {
    resource: Arc<Resource>,
    made: BTreeMap<Arc<str>, Result<Arc<str>, String>>,
}

/// The order of claims decides who has a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    generator: Rank,
    created: Timestamp,
    service: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    synchronised: bool,
    created: Timestamp,
    name: Arc<str>,
}

impl Rank {
    fn of(generator: &Resource) -> Rank {
        Rank {
            synchronised: generator.label(labels::ORIGIN) != Some(labels::ORIGIN_ZONE),
            created: generator.created,
            name: generator.key.name.clone(),
        }
    }
}

impl Hostnames {
    pub fn new(zone: &Arc<str>) -> Hostnames {
        Hostnames {
            zone: zone.clone(),
            generators: BTreeMap::new(),
            services: HashMap::new(),
            selected: HashMap::new(),
            labelled: Labelled::default(),
            claims: BTreeMap::new(),
            contested: BTreeSet::new(),
            rendered: 0,
        }
    }

    /// Returns the number of times that a generator was asked for a hostname.
    pub fn rendered(&self) -> u64 {
        self.rendered
    }

    /// The hostnames that several services want.
    pub fn conflicts(&self) -> impl Iterator<Item = HostnameConflict> {
        self.contested.iter().filter_map(|place @ (kind, hostname)| {
            let claims = self.claims.get(place)?;
            let winner = claims.first()?.service.clone();
            let losers = claims.iter().map(|claim| claim.service.clone());
            let losers = losers.filter(|service| *service != winner).collect();
            Some(HostnameConflict { hostname: hostname.clone(), kind: *kind, winner, losers })
        })
    }

    /// Replaces a generator. Returns the services whose hostnames that may change.
    pub fn replace_generator(&mut self, name: &Arc<str>, new: Option<Arc<Resource>>) -> BTreeSet<Key> {
        let old = self.generators.get(name);
        let same = |old: &Resource, new: &Resource| old.spec == new.spec && Rank::of(old) == Rank::of(new);
        if old.zip(new.as_ref()).is_some_and(|(old, new)| same(old, new)) {
            return BTreeSet::new();
        }
        let mut touched = BTreeSet::new();
        let before = self.selected.remove(name).unwrap_or_default();
        if let Some(old) = self.generators.remove(name) {
            before.iter().for_each(|service| self.forget(service, &old, &mut touched));
        }
        touched.extend(before);
        if let Some(new) = new {
            let selected = self.wanted_by(&new);
            selected.iter().for_each(|service| self.make(service, &new, &mut touched));
            touched.extend(selected);
            self.generators.insert(name.clone(), new);
        }
        touched
    }

    /// Replaces a service, as it is going to be. Returns the others whose hostnames that may change.
    pub fn replace(&mut self, key: &Key, new: Option<&Arc<Resource>>) -> Vec<Arc<str>> {
        if let (Some(service), Some(new)) = (self.services.get_mut(key), new)
            && service.resource.labels == new.labels
            && service.resource.created == new.created
        {
            service.resource = new.clone();
            return Vec::new();
        }
        let mut touched = BTreeSet::new();
        let before = self.services.get(key).map(|service| service.made.keys().cloned().collect::<Vec<_>>());
        for generator in before.into_iter().flatten() {
            if let Some(generator) = self.generators.get(&generator).cloned() {
                self.forget(key, &generator, &mut touched);
            }
            if let Some(selected) = self.selected.get_mut(&generator) {
                selected.remove(key);
            }
        }
        self.services.remove(key);
        self.labelled.replace(key, new.map(|new| Arc::new(new.labels.clone())).as_ref());
        if let Some(new) = new {
            self.services.insert(key.clone(), Service { resource: new.clone(), made: BTreeMap::new() });
            let selects = |generator: &&Arc<Resource>| {
                generator.spec.get::<HostnameGenerator>().is_some_and(|spec| spec.selects(new))
            };
            let generators: Vec<Arc<Resource>> = self.generators.values().filter(selects).cloned().collect();
            generators.iter().for_each(|generator| self.make(key, generator, &mut touched));
        }
        touched.remove(key);
        touched.into_iter().map(|key| key.name).collect()
    }

    /// Returns the hostnames to write to the status of a service.
    pub fn of(&self, key: &Key) -> HostnameStatus {
        let mut named = HostnameStatus::default();
        for (generator, made) in self.services.get(key).into_iter().flat_map(|service| &service.made) {
            let reference = HostnameGeneratorRef { core_name: generator.to_string() };
            let (reason, message) = match made {
                Err(error) => (TEMPLATE_ERROR, error.clone()),
                Ok(hostname) => match self.owner(key.kind, hostname) {
                    Some(owner) if *owner != key.name => {
                        (COLLISION, format!("Hostname collision with {}: {owner}", key.kind))
                    }
                    _ => {
                        named.addresses.push(Address {
                            hostname: hostname.to_string(),
                            origin: ORIGIN.to_owned(),
                            hostname_generator_ref: reference.clone(),
                        });
                        (GENERATED, String::new())
                    }
                },
            };
            let status = if reason == GENERATED { "True" } else { "False" };
            let condition = Condition {
                type_: GENERATED.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
            };
            named.generators.push(HostnameGeneratorStatus {
                hostname_generator_ref: reference,
                conditions: vec![condition],
            });
        }
        named
    }

    fn owner(&self, kind: Kind, hostname: &Arc<str>) -> Option<&Arc<str>> {
        let claims = self.claims.get(&(kind, hostname.clone()))?;
        claims.first().map(|claim| &claim.service)
    }

    /// The services that a generator selects.
    fn wanted_by(&self, generator: &Resource) -> BTreeSet<Key> {
        let Some(HostnameGenerator { selector, .. }) = generator.spec.get() else { return BTreeSet::new() };
        let HostnameSelector { mesh_service, mesh_external_service, mesh_multi_zone_service } = selector;
        let by_kind = [
            (Kind::MeshService, mesh_service),
            (Kind::MeshExternalService, mesh_external_service),
            (Kind::MeshMultiZoneService, mesh_multi_zone_service),
        ];
        let selectors = by_kind.iter().filter_map(|(kind, selector)| Some((*kind, selector.as_ref()?)));
        selectors
            .flat_map(|(kind, selector)| self.labelled.find(kind, &selector.match_labels))
            .cloned()
            .collect()
    }

    /// Asks a generator for the hostname of a service that it selects.
    fn make(&mut self, key: &Key, generator: &Resource, touched: &mut BTreeSet<Key>) {
        let Some(service) = self.services.get_mut(key) else { return };
        let Some(spec) = generator.spec.get::<HostnameGenerator>() else { return };
        self.rendered += 1;
        let made = spec.hostname(&HostnameData::of(&service.resource, &self.zone));
        let made = made.map(Arc::<str>::from).map_err(|error| error.to_string());
        let created = service.resource.created;
        service.made.insert(generator.key.name.clone(), made.clone());
        self.selected.entry(generator.key.name.clone()).or_default().insert(key.clone());
        if let Ok(hostname) = made {
            let claim = Claim { generator: Rank::of(generator), created, service: key.name.clone() };
            self.change_claims(key, hostname, touched, |claims| {
                claims.insert(claim);
            });
        }
    }

    /// Takes back what a generator made for a service.
    fn forget(&mut self, key: &Key, generator: &Resource, touched: &mut BTreeSet<Key>) {
        let Some(service) = self.services.get_mut(key) else { return };
        let created = service.resource.created;
        if let Some(Ok(hostname)) = service.made.remove(&generator.key.name) {
            let claim = Claim { generator: Rank::of(generator), created, service: key.name.clone() };
            self.change_claims(key, hostname, touched, |claims| {
                claims.remove(&claim);
            });
        }
    }

    /// Changes who wants a hostname. If that changes who has it, all of them are touched: the others say who
    /// has it.
    fn change_claims(
        &mut self,
        key: &Key,
        hostname: Arc<str>,
        touched: &mut BTreeSet<Key>,
        change: impl FnOnce(&mut BTreeSet<Claim>),
    ) {
        let place = (key.kind, hostname);
        let claims = self.claims.entry(place.clone()).or_default();
        let before = claims.first().map(|claim| claim.service.clone());
        change(claims);
        let after = claims.first().map(|claim| &claim.service);
        if before.as_ref() != after {
            let of = |name: &Arc<str>| Key { name: name.clone(), ..key.clone() };
            touched.extend(before.iter().map(of));
            touched.extend(claims.iter().map(|claim| of(&claim.service)));
        }
        let contested = claims.iter().any(|claim| Some(&claim.service) != after);
        if claims.is_empty() {
            self.claims.remove(&place);
        }
        if contested {
            self.contested.insert(place)
        } else {
            self.contested.remove(&place)
        };
    }
}
