//! The services of one mesh, followed change by change.

mod round;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use resources::{
    Environment, Key, Kind, Resource,
    kinds::{
        mesh::{Mesh, MeshServicesMode},
        mesh_multi_zone_service::MeshMultiZoneService,
    },
    naming::sni,
};

use super::{
    PortConflict, ServiceChange,
    deadlines::Deadlines,
    generate,
    grace::YoungWaiting,
    hostnames::{HostnameConflict, Hostnames},
    record::{self, Vips},
    status::InsightFacts,
    vips::{Addresses, Pool},
};
use crate::{
    Identities,
    cidr::Ipv4Range,
    matching::MemberSelector,
    state::index::{Index, ServiceRef},
};

type ByName = BTreeMap<Arc<str>, Arc<Resource>>;

/// Says what to write so that the services of one mesh are what they should be.
///
/// A service is dirty from the change that concerns it until what is stored is what is wanted: asking
/// again before the store has written gives the same writes again.
#[derive(Debug, Clone)]
pub struct Generator {
    zone: Arc<str>,
    deletion_grace_period: Duration,
    snis: sni::Owner,
    mesh: Option<Arc<Resource>>,
    dataplanes: ByName,
    /// By Dataplane: what its proxy reported, as far as services take it from there.
    observed: HashMap<Arc<str>, InsightFacts>,
    /// By `kuma.io/service` tag: the Dataplanes that have it.
    claimants: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    services: ByName,
    identities: Identities,
    external: ByName,
    multi_zone: ByName,
    /// The MeshServices as they were last planned: those to be deleted are not among them, those to be
    /// created are.
    planned: ByName,
    /// Index of planned services and their Dataplanes.
    dataplanes_of: Index,
    /// Index of MeshMultiZoneServices and their planned services.
    services_of: Index,
    vips: Vips,
    hostnames: Hostnames,
    deadlines: Deadlines,
    young_waiting: YoungWaiting,
    conflicts: BTreeMap<Arc<str>, PortConflict>,
    dirty: Dirty,
    visits: u64,
}

/// Services that have no address, because there is none left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExhaustedRange {
    pub kind: Kind,
    pub range: Ipv4Range,
    /// By name.
    pub services: Vec<Arc<str>>,
}

/// Names of services that have to be looked at.
#[derive(Debug, Clone, Default)]
struct Dirty {
    services: BTreeSet<Arc<str>>,
    external: BTreeSet<Arc<str>>,
    multi_zone: BTreeSet<Arc<str>>,
}

impl Dirty {
    fn of(&mut self, kind: Kind) -> &mut BTreeSet<Arc<str>> {
        match kind {
            Kind::MeshExternalService => &mut self.external,
            Kind::MeshMultiZoneService => &mut self.multi_zone,
            _ => &mut self.services,
        }
    }
}

impl Generator {
    /// For a mesh of which nothing is known yet. `deletion_grace_period` is how long a service outlives
    /// its last Dataplane.
    pub fn new(zone: &str, deletion_grace_period: Duration) -> Generator {
        let zone: Arc<str> = zone.into();
        Generator {
            hostnames: Hostnames::new(&zone),
            snis: sni::Owner {
                place: sni::OwnerLocation::Zone { name: zone.clone(), federated: false },
                formats: sni::Formats::default(),
                environment: Environment::default(),
            },
            zone,
            deletion_grace_period,
            mesh: None,
            dataplanes: ByName::new(),
            observed: HashMap::new(),
            claimants: BTreeMap::new(),
            services: ByName::new(),
            identities: Identities::default(),
            external: ByName::new(),
            multi_zone: ByName::new(),
            planned: ByName::new(),
            dataplanes_of: Index::default(),
            services_of: Index::default(),
            vips: Vips::of(&Addresses::default()),
            deadlines: Deadlines::default(),
            young_waiting: YoungWaiting::default(),
            conflicts: BTreeMap::new(),
            dirty: Dirty::default(),
            visits: 0,
        }
    }

    /// The same with addresses from elsewhere than usual.
    #[must_use]
    pub fn with_addresses(mut self, addresses: &Addresses) -> Generator {
        self.vips = Vips::of(addresses);
        self
    }

    /// The same for a control plane that is not alone, or writes other server names than usual.
    #[must_use]
    pub fn with_snis(mut self, owner: &sni::Owner) -> Generator {
        self.snis = owner.clone();
        self
    }

    /// One that knows nothing but which addresses were ever in use, to be fed everything again.
    #[must_use]
    pub fn anew(self) -> Generator {
        let mut anew = Generator::new(&self.zone, self.deletion_grace_period);
        anew.snis = self.snis;
        anew.vips = self.vips;
        anew.vips.release_all();
        anew
    }

    /// Returns the number of times that a service was looked at, or a hostname was made, to prove that cost
    /// follows change.
    pub fn visits(&self) -> u64 {
        self.visits + self.hostnames.rendered()
    }

    /// [`Generator::desired`] may return something.
    pub fn is_dirty(&self) -> bool {
        let Dirty { services, external, multi_zone } = &self.dirty;
        !(services.is_empty() && external.is_empty() && multi_zone.is_empty()) || self.vips.is_dirty()
    }

    /// Applies a resource of the mesh, its record of addresses, or a HostnameGenerator as it is now; `None`
    /// for one that is gone.
    pub fn apply(&mut self, key: &Key, resource: Option<Arc<Resource>>) {
        let name = &key.name;
        self.vips.arrived(key);
        match key.kind {
            Kind::Mesh => self.replace_mesh(resource),
            Kind::Dataplane => self.replace_dataplane(name, resource),
            Kind::DataplaneInsight => self.replace_insight(name, resource.as_deref()),
            Kind::MeshService => {
                self.young_waiting.apply(name, resource.as_deref(), self.deletion_grace_period);
                replace(&mut self.services, name, resource);
                self.dirty.services.insert(name.clone());
            }
            Kind::MeshIdentity => self.replace_identity(key, resource.as_ref()),
            Kind::MeshExternalService => {
                replace(&mut self.external, name, resource);
                self.dirty.external.insert(name.clone());
            }
            Kind::MeshMultiZoneService => self.replace_multi_zone(name, resource),
            Kind::HostnameGenerator => self.replace_hostname_generator(name, resource),
            Kind::Config => self.replace_record(key, resource),
            _ => {}
        }
    }

    /// Says that a service of [`super::Desired::given`] could not be written, though the record was.
    pub fn was_refused(&mut self, change: &ServiceChange) {
        self.vips.was_refused(change);
    }

    /// Says that a service of [`super::Desired::given`] was written, before it is shown here.
    pub fn was_written(&mut self, change: &ServiceChange) {
        self.vips.was_written(change);
    }

    /// The services whose Dataplanes do not agree about their ports, as of the last round.
    pub fn conflicts(&self) -> impl Iterator<Item = &PortConflict> {
        self.conflicts.values()
    }

    /// The hostnames that several services want, as of the last round.
    pub fn hostname_conflicts(&self) -> impl Iterator<Item = HostnameConflict> {
        self.hostnames.conflicts()
    }

    /// The ranges that are used up, as of the last round.
    pub fn exhausted(&self) -> impl Iterator<Item = ExhaustedRange> {
        let pools = self.vips.pools().into_iter();
        pools.filter(|(_, pool)| !pool.wanting().is_empty()).map(|(kind, pool)| ExhaustedRange {
            kind,
            range: pool.range(),
            services: pool.wanting().iter().cloned().collect(),
        })
    }

    fn replace_record(&mut self, key: &Key, stored: Option<Arc<Resource>>) {
        let own = self.mesh.as_deref().map(Resource::name);
        if own.is_none() || record::mesh_of_record(key) != own {
            return;
        }
        for (kind, outside) in self.vips.read(stored) {
            self.dirty.of(kind).extend(outside);
        }
    }

    fn replace_hostname_generator(&mut self, name: &Arc<str>, generator: Option<Arc<Resource>>) {
        for service in self.hostnames.replace_generator(name, generator) {
            self.dirty.of(service.kind).insert(service.name);
        }
    }

    fn replace_identity(&mut self, key: &Key, identity: Option<&Arc<Resource>>) {
        if self.identities.replace(key, identity) {
            self.dirty.services.extend(self.services.keys().cloned());
        }
    }

    fn replace_mesh(&mut self, mesh: Option<Arc<Resource>>) {
        let matters = |mesh: &Option<Arc<Resource>>| mesh.as_deref().map(|mesh| (mode(mesh), has_mtls(mesh)));
        if matters(&self.mesh) != matters(&mesh) {
            let names = self.services.keys().chain(self.claimants.keys());
            self.dirty.services.extend(names.cloned());
        }
        self.mesh = mesh;
    }

    fn replace_dataplane(&mut self, name: &Arc<str>, new: Option<Arc<Resource>>) {
        let old = replace(&mut self.dataplanes, name, new.clone());
        let unchanged = |old: &Resource, new: &Resource| old.labels == new.labels && old.spec == new.spec;
        if old.as_deref().zip(new.as_deref()).is_some_and(|(old, new)| unchanged(old, new)) {
            return;
        }
        let touched = self.dataplanes_of.replace(old.as_deref(), new.as_deref());
        self.dirty.services.extend(touched.into_iter().filter_map(service_of));
        let claimed = |dataplane: &Option<Arc<Resource>>| -> BTreeSet<Arc<str>> {
            let services = dataplane.as_deref().map(generate::services_of).unwrap_or_default();
            services.into_iter().map(Arc::from).collect()
        };
        for service in claimed(&old) {
            if let Some(claimants) = self.claimants.get_mut(&service) {
                claimants.remove(name);
                if claimants.is_empty() {
                    self.claimants.remove(&service);
                }
            }
            self.dirty.services.insert(service);
        }
        for service in claimed(&new) {
            self.claimants.entry(service.clone()).or_default().insert(name.clone());
            self.dirty.services.insert(service);
        }
    }

    fn replace_insight(&mut self, name: &Arc<str>, insight: Option<&Resource>) {
        let new = insight.map(InsightFacts::of).unwrap_or_default();
        // Most of what is written in an insight does not concern services.
        let old = if new == InsightFacts::default() {
            self.observed.remove(name)
        } else {
            self.observed.insert(name.clone(), new)
        };
        if old.unwrap_or_default() != new
            && let Some(dataplane) = self.dataplanes.get(name)
        {
            let subjects = self.dataplanes_of.subjects_of(dataplane);
            self.dirty.services.extend(subjects.into_iter().filter_map(service_of));
        }
    }

    fn replace_multi_zone(&mut self, name: &Arc<str>, resource: Option<Arc<Resource>>) {
        let subject = ServiceRef::MultiZone(name.clone());
        match resource.as_ref().and_then(|resource| resource.spec.get::<MeshMultiZoneService>()) {
            Some(spec) => {
                let planned = &self.planned;
                self.services_of
                    .select(&subject, MemberSelector::of_multi_zone(spec), |name| planned.get(name));
            }
            None => self.services_of.forget(&subject),
        }
        replace(&mut self.multi_zone, name, resource);
        self.dirty.multi_zone.insert(name.clone());
    }
}

fn replace(all: &mut ByName, name: &Arc<str>, new: Option<Arc<Resource>>) -> Option<Arc<Resource>> {
    match new {
        Some(new) => all.insert(name.clone(), new),
        None => all.remove(name),
    }
}

fn service_of(subject: ServiceRef) -> Option<Arc<str>> {
    match subject {
        ServiceRef::Service(name) => Some(name),
        _ => None,
    }
}

fn mode(mesh: &Resource) -> MeshServicesMode {
    mesh.spec.get::<Mesh>().map_or(MeshServicesMode::Disabled, Mesh::mesh_services_mode)
}

fn has_mtls(mesh: &Resource) -> bool {
    mesh.spec.get::<Mesh>().and_then(Mesh::enabled_backend).is_some()
}
