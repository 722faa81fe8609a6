//! Folding changes into snapshots.

mod hosts;
pub(crate) mod index;
mod mesh;
mod reach;
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
    ClientClass, DestinationId, MeshSnapshot, Mode, Zones,
    snapshot::looks_same,
    virtual_hosts::{LIMIT, vips},
    zones::Moved,
};
use mesh::MeshState;

/// A resource as it is now; `None` when it was deleted.
pub type Change = (Key, Option<Arc<Resource>>);

/// The one writer's view of all meshes. Cheap to clone: a clone that some changes are applied to says what
/// they would do.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// How zones are reached from the one of this control plane.
    zones: Zones,
    meshes: OrdMap<Arc<str>, MeshState>,
    /// What belongs to no mesh and may matter to all.
    globals: OrdMap<Key, Arc<Resource>>,
    made: WorkCounts,
    /// How many hostnames a mesh may have, if not [`LIMIT`].
    host_limit: Option<usize>,
    defaults: MeshDefaults,
}

/// What holds for meshes that do not say otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshDefaults {
    /// Whether outbounds are trimmed where neither a mesh nor a proxy says so.
    mode: Mode,
    /// The hostnames of services, where these are called by tags.
    service_hosts: Option<Arc<ServiceHosts>>,
}

/// How much was computed since the beginning.
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

/// Who must look again, as narrow as can be said. An empty one means that nothing a proxy sees changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Affected {
    /// Every proxy of the mesh.
    pub whole_mesh: bool,
    /// Policies that changed. What they select, and whether their kind has an effect, is not known here.
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
    /// Whether destinations let in or refuse clients by other rules than before.
    pub rows: bool,
    /// Classes of clients that may call other destinations than before.
    pub reach: BTreeSet<ClientClass>,
    /// Whether clients that no rule names may call other destinations than before.
    pub reach_by_default: bool,
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
        self.whole_mesh |= later.whole_mesh;
        self.add_policies(&later.policies);
        self.proxies.extend(later.proxies.iter().cloned());
        self.destinations.extend(later.destinations.iter().cloned());
        for (service, labels) in &later.services {
            self.services.entry(service.clone()).or_default().extend(labels.iter().cloned());
        }
        self.endpoints.extend(later.endpoints.iter().cloned());
        for (host, services) in &later.virtual_hosts {
            self.virtual_hosts.entry(host.clone()).or_default().extend(services.iter().cloned());
        }
        self.globals.extend(later.globals.iter().cloned());
        self.zones.extend(later.zones.iter().cloned());
        self.rows |= later.rows;
        self.reach.extend(later.reach.iter().cloned());
        self.reach_by_default |= later.reach_by_default;
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

    /// Whether no proxy needs to look.
    pub fn is_empty(&self) -> bool {
        *self == Affected::default()
    }
}

impl State {
    /// The state of a control plane of this zone; MeshExternalServices of other zones are left out.
    pub fn in_zone(zone: &str) -> State {
        State { zones: Zones::seen_from(zone.into()), ..State::default() }
    }

    /// As it is, with another limit on the hostnames that VirtualOutbounds make in a mesh.
    #[must_use]
    pub fn with_host_limit(self, limit: usize) -> State {
        State { host_limit: Some(limit), ..self }
    }

    /// As it is, with another mode of trimming for proxies of which neither they nor their mesh say one.
    #[must_use]
    pub fn with_default_mode(self, mode: Mode) -> State {
        State { defaults: MeshDefaults { mode, ..self.defaults }, ..self }
    }

    /// As it is, with hostnames for services in meshes whose services are called by tags.
    #[must_use]
    pub fn naming_services(self, service_hosts: Option<Arc<ServiceHosts>>) -> State {
        State { defaults: MeshDefaults { service_hosts, ..self.defaults }, ..self }
    }

    /// Folds changed resources in. Returns the meshes that look different now.
    pub fn apply(&mut self, changed: &[Change]) -> Vec<MeshUpdate> {
        let mut by_mesh: BTreeMap<Arc<str>, Vec<&Change>> = BTreeMap::new();
        let mut globals = BTreeSet::new();
        let mut moved = Moved::default();
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
    fn take_global(&mut self, (key, value): &Change, moved: &mut Moved) -> bool {
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

    fn share_globals(&mut self, changed: &BTreeSet<Key>, moved: &Moved) -> Vec<MeshUpdate> {
        let names: Vec<Arc<str>> = self.meshes.keys().cloned().collect();
        let mut updates = Vec::new();
        for name in names {
            let Some(mesh) = self.meshes.get_mut(&name) else { continue };
            let zones = (&self.zones, moved);
            updates.extend(mesh.take_globals(&self.globals, changed, zones, &mut self.made));
        }
        updates
    }

    /// How other zones are reached.
    pub fn zones(&self) -> &Zones {
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

    /// How many destinations were computed since the beginning, for proving that cost follows change.
    pub fn destinations_built(&self) -> u64 {
        self.made.destinations
    }

    /// How often hostnames were rendered since the beginning, for proving that cost follows change.
    pub fn hosts_rendered(&self) -> u64 {
        self.meshes.values().map(|mesh| mesh.host_claims.rendered).sum()
    }

    /// How many claims on hostnames are kept, for proving that there is an end to them.
    pub fn host_claims_kept(&self) -> usize {
        self.meshes.values().map(|mesh| mesh.host_claims.kept()).sum()
    }

    /// How many rows of the graph were worked out since the beginning, and servers that are not known here asked about,
    /// for proving that cost follows change.
    pub fn reach_work(&self) -> u64 {
        self.meshes.values().map(|mesh| mesh.reach.work).sum()
    }

    /// How many views of policies were made since the beginning, for proving that one per version is.
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

/// Whether resources of a kind that belong to no mesh say something to meshes: not what is observed, and not
/// what is secret.
fn concerns_meshes(kind: Kind) -> bool {
    matches!(kind, Kind::HostnameGenerator | Kind::Zone | Kind::ZoneIngress | Kind::ZoneEgress)
}
