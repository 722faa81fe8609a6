//! Changes of meshes for one subscriber, which takes them when it can: several changes of one mesh are merged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use reconcile::Wake;
use topology::{Affected, MeshSnapshot, MeshUpdate};

use super::lock;

/// Changes since the reader last looked. Holds no more than the meshes have.
#[derive(Debug, Default)]
pub struct PendingChanges {
    changed: Mutex<ChangeSet>,
    arrived: Wake,
}

/// Changes of meshes.
#[derive(Debug, Default)]
pub struct ChangeSet {
    /// All meshes were read anew: those that are not here are gone.
    pub anew: bool,
    pub meshes: BTreeMap<Arc<str>, MeshChange>,
}

/// A mesh as it is now; `None` when it is gone.
#[derive(Debug)]
pub struct MeshChange {
    pub snapshot: Option<Arc<MeshSnapshot>>,
    pub affected: Affected,
}

impl PendingChanges {
    pub(super) fn post(&self, updates: &[MeshUpdate], anew: bool) {
        let mut changed = lock(&self.changed);
        if anew {
            *changed = ChangeSet { anew, meshes: BTreeMap::new() };
        }
        for MeshUpdate { mesh, snapshot, affected } in updates {
            match changed.meshes.get_mut(mesh) {
                Some(known) => {
                    known.snapshot.clone_from(snapshot);
                    known.affected.add(affected);
                }
                None => {
                    let change = MeshChange { snapshot: snapshot.clone(), affected: affected.clone() };
                    changed.meshes.insert(mesh.clone(), change);
                }
            }
        }
        self.arrived.wake();
    }

    /// Wakes a reconciler when something changed.
    pub fn wake(&self) -> Wake {
        self.arrived.clone()
    }

    /// Waits until something changed.
    pub async fn arrived(&self) {
        self.arrived.called().await;
    }

    /// Takes the changes since the last time.
    pub fn take(&self) -> ChangeSet {
        std::mem::take(&mut *lock(&self.changed))
    }
}
