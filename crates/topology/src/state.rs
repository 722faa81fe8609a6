//! Folding changes into snapshots.

use std::{collections::BTreeSet, sync::Arc};

use resources::{Key, Resource};

use crate::{DestinationId, MeshSnapshot};

/// The one writer's view of all meshes.
#[derive(Debug, Default)]
pub struct State {}

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
    /// Destinations with other endpoints than before, and no other change.
    pub endpoints: BTreeSet<DestinationId>,
}

impl State {
    /// Folds changed resources in; `None` means deleted. Returns the meshes that look different now.
    pub fn apply(&mut self, changed: &[(Key, Option<Arc<Resource>>)]) -> Vec<MeshUpdate> {
        let _ = changed;
        Vec::new()
    }

    pub fn mesh(&self, name: &str) -> Option<&Arc<MeshSnapshot>> {
        let _ = name;
        None
    }
}
