//! Inputs of a plan, by which a change finds the plans that it affects.
//!
//! Everything that planning reads is recorded here, by mesh, because one proxy may read several: the mesh, destinations,
//! services by name or label, access, routes, Dataplanes. A change of anything else plans nothing.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{Key, Kind, Labels, naming::Kri};
use topology::{Affected, ClientClass, DestinationId, labelled};

/// An input of a plan, present or looked for in vain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// The mesh itself, which every plan reads.
    Mesh,
    /// Every destination of the mesh.
    AllDestinations,
    Destination(DestinationId),
    /// The ports of a service, by its name in the store; it need not exist.
    Service(Key),
    /// The ports of a resource, by its identifier without a section; it need not exist.
    Resource(Kri),
    /// The services of a kind that carry all these labels.
    Labelled(Kind, Labels),
    /// Every hostname that VirtualOutbounds make.
    AllVirtualHosts,
    /// The hostnames that VirtualOutbounds make for a service (`kuma.io/service`).
    VirtualHostsOf(Arc<str>),
    /// Destinations that a class of clients has because rules name it.
    Reachability(ClientClass),
    /// Destinations that clients have that no rule names.
    ReachabilityByDefault,
    /// Rules that decide about access to any destination.
    AccessRules,
    /// Set of MeshHTTPRoutes.
    Routes,
    /// A Dataplane: the proxy's own, and any other.
    Proxy(Arc<str>),
}

/// Everything a plan was made from, by mesh: a proxy may read several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads(BTreeMap<Arc<str>, BTreeSet<Dependency>>);

impl Reads {
    pub fn add(&mut self, mesh: &Arc<str>, dependency: Dependency) {
        match self.0.get_mut(mesh) {
            Some(reads) => drop(reads.insert(dependency)),
            None => drop(self.0.insert(mesh.clone(), BTreeSet::from([dependency]))),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Dependency)> {
        self.0.iter().flat_map(|(mesh, reads)| reads.iter().map(move |dependency| (mesh, dependency)))
    }

    pub fn contains(&self, mesh: &str, dependency: &Dependency) -> bool {
        self.0.get(mesh).is_some_and(|reads| reads.contains(dependency))
    }
}

/// Reads of one mesh while they are made.
#[derive(Debug, Default)]
pub(crate) struct Recorder(RefCell<BTreeSet<Dependency>>);

impl Recorder {
    pub(crate) fn note(&self, dependency: Dependency) {
        self.0.borrow_mut().insert(dependency);
    }

    /// Notes that a service was looked for which the global control plane calls so.
    pub(crate) fn note_on_global(&self, kind: Kind, name: &str) {
        if let Some(label) = labelled::on_global(kind, name) {
            self.note(Dependency::Labelled(kind, label));
        }
    }

    pub(crate) fn finish(self, mesh: &Arc<str>) -> Reads {
        let mut noted = self.0.into_inner();
        noted.insert(Dependency::Mesh);
        if noted.contains(&Dependency::AllDestinations) {
            // It includes these.
            noted.retain(|dependency| !matches!(dependency, Dependency::Destination(_)));
        }
        Reads(BTreeMap::from([(mesh.clone(), noted)]))
    }
}

/// Returns the dependencies that a change of a mesh touches: plans that read one of them must be made anew.
/// Changes of endpoints alone, and of policies, are not among them.
pub fn touched(affected: &Affected) -> BTreeSet<Dependency> {
    let Affected {
        policies,
        proxies,
        destinations,
        services,
        virtual_hosts,
        access_rules,
        reachability,
        reachability_by_default,
        // Every plan reads the mesh: the caller knows them all.
        whole_mesh: _,
        endpoints: _,
        // Zones and resources of no mesh reach a plan as endpoints and destinations.
        globals: _,
        zones: _,
    } = affected;
    let mut touched = BTreeSet::new();
    for id in destinations {
        touched.insert(Dependency::AllDestinations);
        if let DestinationId::Port(kri) = id {
            touched.insert(Dependency::Resource(kri.without_section()));
        }
        touched.insert(Dependency::Destination(id.clone()));
    }
    touched.extend(services.keys().cloned().map(Dependency::Service));
    for service in virtual_hosts.values().flatten() {
        touched.insert(Dependency::AllVirtualHosts);
        touched.insert(Dependency::VirtualHostsOf(service.clone()));
    }
    touched.extend(reachability.iter().cloned().map(Dependency::Reachability));
    touched.extend(reachability_by_default.then_some(Dependency::ReachabilityByDefault));
    touched.extend(access_rules.then_some(Dependency::AccessRules));
    touched.extend(proxies.iter().cloned().map(Dependency::Proxy));
    let versions = policies.iter().flat_map(|change| change.versions());
    for policy in versions {
        if policy.resource.kind() == Kind::MeshHTTPRoute {
            touched.insert(Dependency::Routes);
        }
    }
    touched
}
