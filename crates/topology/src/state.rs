//! Folding changes into snapshots.
//!
//! A state is cheap to clone, because its maps share what is equal. A copy that some changes are applied to says what
//! these would do, and the state that proxies are configured from stays as it is.

mod access;
mod hosts;
pub(crate) mod index;
mod mesh;
mod resource_diff;
mod secrets;
mod served;
mod zones;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::OrdMap;
use policy::Policy;
use resources::{
    Key, Kind, Labels, Resource, kinds::dataplane::Inbound, naming::service_hosts::ServiceHosts,
};

use crate::{
    ClientClass, DestinationId, MeshSnapshot, TrimmingMode, ZoneRoutes,
    cidr::Ipv6Prefix,
    snapshot::looks_same,
    virtual_hosts::{LIMIT, vips},
    zones::ChangedRoutes,
};
use mesh::MeshState;

/// A resource as it is now; `None` when it was deleted.
pub type ResourceChange = (Key, Option<Arc<Resource>>);

/// The one writer's view of all meshes. Cheap to clone: a clone that some changes are applied to says what
/// they would do.
#[derive(Debug, Clone, Default)]
pub struct AllMeshes {
    /// Ways to other zones from the zone of this control plane.
    zones: ZoneRoutes,
    meshes: OrdMap<Arc<str>, MeshState>,
    /// Resources that belong to no mesh and may matter to all.
    globals: OrdMap<Key, Arc<Resource>>,
    made: WorkCounts,
    /// Limit of hostnames of a mesh, if not [`LIMIT`].
    host_limit: Option<usize>,
    defaults: MeshDefaults,
}

/// Settings for meshes that have none of their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshDefaults {
    /// Mode of trimming where neither a mesh nor a proxy sets one.
    mode: TrimmingMode,
    /// The hostnames of services, where these are called by tags.
    service_hosts: Option<Arc<ServiceHosts>>,
    /// Prefix of IPv6 virtual addresses, if there are any.
    ipv6_prefix: Option<Ipv6Prefix>,
}

/// Amount of work since the beginning.
#[derive(Debug, Clone, Default)]
struct WorkCounts {
    destinations: u64,
    views: u64,
}

/// A mesh after some changes; `snapshot` is `None` when the mesh is gone.
#[derive(Debug, Clone)]
pub struct MeshUpdate {
    pub mesh: Arc<str>,
    pub snapshot: Option<Arc<MeshSnapshot>>,
    pub affected: Affected,
}

/// Subscribers that must look again, as narrow as can be said. An empty value means that nothing a proxy sees
/// changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Affected {
    /// Every proxy of the mesh.
    pub whole_mesh: bool,
    /// Policies that changed. The Dataplanes they select, and the effect of their kind, are not known here.
    pub policies: Vec<PolicyChange>,
    /// Proxies whose own Dataplane changed.
    pub proxies: BTreeSet<Arc<str>>,
    /// Destinations that appeared, disappeared or changed otherwise than in their endpoints.
    pub destinations: BTreeSet<DestinationId>,
    /// Services that are new or gone, or have other ports or labels, each with the labels it had and has: a
    /// reference may find something else now.
    pub services: BTreeMap<Key, BTreeSet<Arc<Labels>>>,
    /// Destinations with other endpoints than before, and no other change.
    pub endpoints: BTreeSet<DestinationId>,
    /// Hostnames of VirtualOutbounds that appeared, disappeared or changed, each with the services it led and leads
    /// to; without any where only conflicts are others. The empty name stands for what has none: what could not be
    /// rendered or was left out.
    pub virtual_hosts: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Resources that belong to no mesh.
    pub globals: BTreeSet<Key>,
    /// Other zones that are reached otherwise than before.
    pub zones: BTreeSet<Arc<str>>,
    /// Destinations accept or refuse clients by other rules than before.
    pub access_rules: bool,
    /// Classes of clients that may call other destinations than before.
    pub reachability: BTreeSet<ClientClass>,
    /// Clients that no rule names may call other destinations than before.
    pub reachability_by_default: bool,
}

/// A policy before and after a change; `None` where it does not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyChange {
    pub old: Option<Arc<Policy>>,
    pub new: Option<Arc<Policy>>,
}

impl PolicyChange {
    /// The policy as it was and as it is.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.old.iter().chain(&self.new)
    }
}

impl Affected {
    /// Takes in what a later change affects.
    pub fn add(&mut self, later: &Affected) {
        let Affected {
            whole_mesh,
            policies,
            proxies,
            destinations,
            services,
            endpoints,
            virtual_hosts,
            globals,
            zones,
            access_rules,
            reachability,
            reachability_by_default,
        } = later;
        self.whole_mesh |= whole_mesh;
        self.add_policies(policies);
        self.proxies.extend(proxies.iter().cloned());
        self.destinations.extend(destinations.iter().cloned());
        for (service, labels) in services {
            self.services.entry(service.clone()).or_default().extend(labels.iter().cloned());
        }
        self.endpoints.extend(endpoints.iter().cloned());
        for (host, services) in virtual_hosts {
            self.virtual_hosts.entry(host.clone()).or_default().extend(services.iter().cloned());
        }
        self.globals.extend(globals.iter().cloned());
        self.zones.extend(zones.iter().cloned());
        self.access_rules |= access_rules;
        self.reachability.extend(reachability.iter().cloned());
        self.reachability_by_default |= reachability_by_default;
    }

    /// A policy that changes twice changes from what it was first to what it is last.
    fn add_policies(&mut self, later: &[PolicyChange]) {
        let key = |change: &PolicyChange| change.versions().next().map(|policy| policy.resource.key.clone());
        let known = std::mem::take(&mut self.policies);
        let mut by_key: BTreeMap<Option<Key>, PolicyChange> =
            known.into_iter().map(|change| (key(&change), change)).collect();
        for change in later {
            by_key
                .entry(key(change))
                .and_modify(|known| known.new.clone_from(&change.new))
                .or_insert_with(|| change.clone());
        }
        self.policies = by_key.into_values().collect();
    }

    /// No proxy needs to look.
    pub fn is_empty(&self) -> bool {
        *self == Affected::default()
    }
}

impl AllMeshes {
    /// The state of a control plane of this zone; MeshExternalServices of other zones are left out.
    pub fn in_zone(zone: &str) -> AllMeshes {
        AllMeshes { zones: ZoneRoutes::seen_from(zone.into()), ..AllMeshes::default() }
    }

    /// As it is, with another limit on the hostnames that VirtualOutbounds make in a mesh.
    #[must_use]
    pub fn with_host_limit(self, limit: usize) -> AllMeshes {
        AllMeshes { host_limit: Some(limit), ..self }
    }

    /// As it is, with another mode of trimming for proxies of which neither they nor their mesh say one.
    #[must_use]
    pub fn with_default_mode(self, mode: TrimmingMode) -> AllMeshes {
        AllMeshes { defaults: MeshDefaults { mode, ..self.defaults }, ..self }
    }

    /// As it is, with hostnames for services in meshes whose services are called by tags.
    #[must_use]
    pub fn naming_services(self, service_hosts: Option<Arc<ServiceHosts>>) -> AllMeshes {
        AllMeshes { defaults: MeshDefaults { service_hosts, ..self.defaults }, ..self }
    }

    /// As it is, with IPv6 virtual addresses beside those of IPv4.
    #[must_use]
    pub fn with_ipv6_prefix(self, ipv6_prefix: Option<Ipv6Prefix>) -> AllMeshes {
        AllMeshes { defaults: MeshDefaults { ipv6_prefix, ..self.defaults }, ..self }
    }

    /// Folds changed resources in. Returns the meshes that look different now.
    pub fn apply(&mut self, changed: &[ResourceChange]) -> Vec<MeshUpdate> {
        let mut by_mesh: BTreeMap<Arc<str>, Vec<&ResourceChange>> = BTreeMap::new();
        let mut globals = BTreeSet::new();
        let mut moved = ChangedRoutes::default();
        for change in changed {
            let key = &change.0;
            if let Some(mesh) = mesh_of(key) {
                by_mesh.entry(mesh).or_default().push(change);
            } else if self.take_global(change, &mut moved) {
                globals.insert(key.clone());
            }
        }
        let mut updates = if globals.is_empty() { Vec::new() } else { self.share_globals(&globals, &moved) };
        for (name, changes) in by_mesh {
            let mesh = self.meshes.entry(name.clone()).or_insert_with(|| {
                MeshState::empty(name.clone(), &self.zones, &self.defaults, self.globals.clone())
            });
            let limit = self.host_limit.unwrap_or(LIMIT);
            updates.extend(mesh.apply(&changes, limit, &mut self.made));
            if mesh.is_empty() {
                self.meshes.remove(&name);
            }
        }
        updates
    }

    /// Takes in a resource that belongs to no mesh; says whether it looks different now.
    fn take_global(&mut self, (key, value): &ResourceChange, moved: &mut ChangedRoutes) -> bool {
        if !concerns_meshes(key.kind) {
            return false;
        }
        let same = match (self.globals.get(key), value) {
            (Some(old), Some(new)) => looks_same(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        let old = match value {
            Some(value) => self.globals.insert(key.clone(), value.clone()),
            None => self.globals.remove(key),
        };
        if !same && matches!(key.kind, Kind::ZoneIngress | Kind::ZoneEgress) {
            moved.add(self.zones.replace(old.as_ref(), value.as_ref()));
        }
        !same
    }

    fn share_globals(&mut self, changed: &BTreeSet<Key>, moved: &ChangedRoutes) -> Vec<MeshUpdate> {
        let names: Vec<Arc<str>> = self.meshes.keys().cloned().collect();
        let mut updates = Vec::new();
        for name in names {
            let Some(mesh) = self.meshes.get_mut(&name) else { continue };
            let zones = (&self.zones, moved);
            updates.extend(mesh.take_globals(&self.globals, changed, zones, &mut self.made));
        }
        updates
    }

    /// Returns the ways to other zones.
    pub fn zones(&self) -> &ZoneRoutes {
        &self.zones
    }

    /// A resource that belongs to no mesh.
    pub fn global(&self, key: &Key) -> Option<&Arc<Resource>> {
        self.globals.get(key)
    }

    pub fn mesh(&self, name: &str) -> Option<&Arc<MeshSnapshot>> {
        self.meshes.get(name)?.snapshot()
    }

    /// The destinations that an inbound of a Dataplane serves now.
    pub fn served_at(&self, dataplane: &Resource, inbound: &Inbound) -> BTreeSet<DestinationId> {
        let mesh = self.meshes.get(dataplane.mesh());
        mesh.map(|mesh| mesh.served_at(dataplane, inbound)).unwrap_or_default()
    }

    /// Returns the number of destinations computed since the beginning, to prove that cost follows change.
    pub fn destinations_built(&self) -> u64 {
        self.made.destinations
    }

    /// Returns the number of hostnames rendered since the beginning, to prove that cost follows change.
    pub fn hosts_rendered(&self) -> u64 {
        self.meshes.values().map(|mesh| mesh.hosts.claims.rendered).sum()
    }

    /// Returns the number of claims on hostnames that are kept, to prove that it is bounded.
    pub fn host_claims_kept(&self) -> usize {
        self.meshes.values().map(|mesh| mesh.hosts.claims.kept()).sum()
    }

    /// Returns the number of accesses to destinations computed since the beginning, plus the lookups of servers
    /// that are not known here, to prove that cost follows change.
    pub fn access_work(&self) -> u64 {
        self.meshes.values().map(|mesh| mesh.access.work).sum()
    }

    /// Returns the number of views of policies made since the beginning, to prove that each version has one.
    pub fn views_made(&self) -> u64 {
        self.made.views
    }
}

/// The mesh that a resource is about.
fn mesh_of(key: &Key) -> Option<Arc<str>> {
    match key.kind {
        Kind::Mesh => Some(key.name.clone()),
        Kind::Config => vips::of_config(&key.name).map(|(mesh, _)| mesh.into()),
        _ => Some(key.mesh.clone()).filter(|mesh| !mesh.is_empty()),
    }
}

/// Resources of a kind that belong to no mesh matter to meshes: not observations, and not secrets.
fn concerns_meshes(kind: Kind) -> bool {
    matches!(kind, Kind::HostnameGenerator | Kind::Zone | Kind::ZoneIngress | Kind::ZoneEgress)
}
