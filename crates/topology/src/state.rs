//! Folding changes into snapshots.

pub(crate) mod index;
mod mesh;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{Key, Kind, Resource};

use crate::{DestinationId, MeshSnapshot};
use mesh::MeshState;

/// A resource as it is now; `None` when it was deleted.
pub type Change = (Key, Option<Arc<Resource>>);

/// The one writer's view of all meshes.
#[derive(Debug, Default)]
pub struct State {
    zone: Arc<str>,
    meshes: BTreeMap<Arc<str>, MeshState>,
    built: u64,
}

/// A mesh after some changes; `snapshot` is `None` when the mesh is gone.
#[derive(Debug, Clone)]
pub struct MeshUpdate {
    pub mesh: Arc<str>,
    pub snapshot: Option<Arc<MeshSnapshot>>,
    pub affected: Affected,
}

/// Who must look again, as narrow as can be said. An empty one means that nothing a proxy sees changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affected {
    /// Everybody in the mesh.
    pub everyone: bool,
    /// Proxies whose own Dataplane changed.
    pub proxies: BTreeSet<Arc<str>>,
    /// Destinations that appeared, disappeared or changed otherwise than in their endpoints.
    pub destinations: BTreeSet<DestinationId>,
    /// Some of them can be found now where nothing, or something else, was found before: a service
    /// is new or has other ports or labels. (Tags are asked for by the proxies in `proxies` only.)
    pub appeared: bool,
    /// Destinations with other endpoints than before, and no other change.
    pub endpoints: BTreeSet<DestinationId>,
}

impl Affected {
    /// Whether nobody needs to look.
    pub fn is_empty(&self) -> bool {
        *self == Affected::default()
    }
}

impl State {
    /// The state of a control plane of this zone; MeshExternalServices of other zones are left out.
    pub fn in_zone(zone: &str) -> State {
        State { zone: zone.into(), ..State::default() }
    }

    /// Folds changed resources in. Returns the meshes that look different now.
    pub fn apply(&mut self, changed: &[Change]) -> Vec<MeshUpdate> {
        let mut by_mesh: BTreeMap<&Arc<str>, Vec<&Change>> = BTreeMap::new();
        for change in changed {
            let key = &change.0;
            let mesh = if key.kind == Kind::Mesh { &key.name } else { &key.mesh };
            if !mesh.is_empty() {
                by_mesh.entry(mesh).or_default().push(change);
            }
        }
        let mut updates = Vec::new();
        for (name, changes) in by_mesh {
            let mesh = self
                .meshes
                .entry(name.clone())
                .or_insert_with(|| MeshState::empty(name.clone(), self.zone.clone()));
            updates.extend(mesh.apply(&changes, &mut self.built));
            if mesh.is_empty() {
                self.meshes.remove(name);
            }
        }
        updates
    }

    pub fn mesh(&self, name: &str) -> Option<&Arc<MeshSnapshot>> {
        self.meshes.get(name)?.snapshot()
    }

    /// How many destinations were computed since the beginning, for proving that cost follows change.
    pub fn destinations_built(&self) -> u64 {
        self.built
    }
}
