//! State that is kept for each mesh, and follows the changes of its resources.
//!
//! A mesh is read as a whole when it is new, or when changes may have been missed; from then on only what
//! changed is looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{Key, Kind, Resource};
use store::{Dirty, Snapshot};

/// State of one mesh.
pub trait Follow: Sized {
    /// The kinds without a mesh that every mesh follows.
    const GLOBAL: &'static [Kind] = &[];

    /// The mesh of a resource without one that is about a single mesh all the same.
    fn mesh_of(_key: &Key) -> Option<&str> {
        None
    }

    /// Applies a resource of the mesh, or of [`Follow::GLOBAL`], as it is now; `None` for one that is gone. Returns
    /// whether the mesh needs a look.
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool;
}

/// State of every mesh that exists.
#[derive(Debug)]
pub struct Meshes<T> {
    of: BTreeMap<Arc<str>, T>,
}

impl<T> Default for Meshes<T> {
    fn default() -> Self {
        Meshes { of: BTreeMap::new() }
    }
}

impl<T: Follow> Meshes<T> {
    pub fn get(&self, mesh: &str) -> Option<&T> {
        self.of.get(mesh)
    }

    pub fn get_mut(&mut self, mesh: &str) -> Option<&mut T> {
        self.of.get_mut(mesh)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.of.iter()
    }

    /// Applies what changed; returns the meshes in which that matters. `read` reads a whole mesh; it gets what was kept
    /// for it before.
    pub fn apply(
        &mut self,
        snapshot: &Snapshot,
        dirty: &Dirty,
        read: impl Fn(&Snapshot, &Arc<str>, Option<T>) -> T,
    ) -> BTreeSet<Arc<str>> {
        let Dirty::Keys(keys) = dirty else {
            return self.read(snapshot, read);
        };
        let (global, own): (Vec<&Key>, Vec<&Key>) =
            keys.iter().partition(|key| T::GLOBAL.contains(&key.kind));
        let mut changed: BTreeSet<Arc<str>> =
            own.into_iter().filter_map(|key| self.apply_key(snapshot, key, &read)).collect();
        for key in global {
            let resource = snapshot.get(key);
            let all = self.of.iter_mut();
            let matters = all.filter_map(|(mesh, known)| known.apply(key, resource).then_some(mesh));
            changed.extend(matters.cloned());
        }
        changed
    }

    /// Reads every mesh again: what is gone is not known.
    fn read(
        &mut self,
        snapshot: &Snapshot,
        read: impl Fn(&Snapshot, &Arc<str>, Option<T>) -> T,
    ) -> BTreeSet<Arc<str>> {
        let mut before = std::mem::take(&mut self.of);
        for mesh in snapshot.of_kind(Kind::Mesh).map(|mesh| &mesh.key.name) {
            self.of.insert(mesh.clone(), read(snapshot, mesh, before.remove(mesh)));
        }
        self.of.keys().cloned().collect()
    }

    fn apply_key(
        &mut self,
        snapshot: &Snapshot,
        key: &Key,
        read: impl Fn(&Snapshot, &Arc<str>, Option<T>) -> T,
    ) -> Option<Arc<str>> {
        let resource = snapshot.get(key);
        let about = T::mesh_of(key).map(Arc::from);
        let mesh = about.as_ref().unwrap_or(if key.kind == Kind::Mesh { &key.name } else { &key.mesh });
        if key.kind == Kind::Mesh && resource.is_none() {
            // What is kept for a mesh goes with it.
            self.of.remove(mesh);
            return None;
        }
        let matters = match self.of.get_mut(mesh) {
            Some(known) => known.apply(key, resource),
            None if key.kind == Kind::Mesh => {
                self.of.insert(mesh.clone(), read(snapshot, mesh, None));
                true
            }
            None => false,
        };
        matters.then(|| mesh.clone())
    }
}
