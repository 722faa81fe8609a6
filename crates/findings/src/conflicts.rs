//! Findings that reconcilers report, mesh by mesh.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use resources::finding::Finding;

/// Conflicts of each mesh, found by the reconcilers of services and hostnames: ports that Dataplanes do not agree
/// about, hostnames that several want, addresses that are used up.
#[derive(Debug, Default)]
pub struct ServiceConflicts(Mutex<BTreeMap<Arc<str>, Vec<Finding>>>);

impl ServiceConflicts {
    /// Replaces those of a mesh.
    pub fn replace(&self, mesh: &Arc<str>, conflicts: Vec<Finding>) {
        if conflicts.is_empty() {
            self.meshes().remove(mesh)
        } else {
            self.meshes().insert(mesh.clone(), conflicts)
        };
    }

    /// Those of a mesh.
    pub fn of_mesh(&self, mesh: &str) -> Vec<Finding> {
        self.meshes().get(mesh).cloned().unwrap_or_default()
    }

    /// Forgets those of other meshes.
    pub fn retain(&self, exists: impl Fn(&Arc<str>) -> bool) {
        self.meshes().retain(|mesh, _| exists(mesh));
    }

    fn meshes(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Vec<Finding>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
