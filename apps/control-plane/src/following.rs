//! Something for each mesh that follows the changes of its resources.
//!
//! A mesh is read as a whole when it is new, or when changes may have been missed; from then on only what
//! changed is looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{Key, Kind, Resource};
use store::{Dirty, Snapshot, Store};

/// What is kept for one mesh.
pub trait Follow: Sized {
    /// The kinds without a mesh that every mesh follows.
    const GLOBAL: &'static [Kind] = &[];

    /// The mesh of a resource without one that is about a single mesh all the same.
    fn mesh_of(_key: &Key) -> Option<&str> {
        None
    }

    /// Takes in a resource of the mesh as it is now, `None` for one that is gone; says whether that matters.
    /// Also one of [`Follow::GLOBAL`].
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool;
}

/// What is kept for every mesh that exists.
#[derive(Debug)]
pub struct Meshes<T> {
    of: BTreeMap<Arc<str>, T>,
    behind: bool,
}

impl<T> Default for Meshes<T> {
    fn default() -> Self {
        Meshes { of: BTreeMap::new(), behind: false }
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

    /// Whether the store could not be read, so that everything is to be folded in again.
    pub fn behind(&self) -> bool {
        self.behind
    }

    /// Takes in what changed; returns the meshes in which that matters. `read` reads a whole mesh; it gets
    /// what was kept for it before.
    pub fn fold(
        &mut self,
        store: &dyn Store,
        dirty: Dirty,
        read: impl Fn(&Snapshot, &Arc<str>, Option<T>) -> T,
    ) -> BTreeSet<Arc<str>> {
        let Ok(snapshot) = store.snapshot() else {
            self.behind = true;
            return BTreeSet::new();
        };
        match dirty {
            Dirty::Keys(keys) if !self.behind => {
                let (global, own): (Vec<&Key>, Vec<&Key>) =
                    keys.iter().partition(|key| T::GLOBAL.contains(&key.kind));
                let mut changed: BTreeSet<Arc<str>> =
                    own.into_iter().filter_map(|key| self.apply(&snapshot, key, &read)).collect();
                for key in global {
                    let resource = snapshot.get(key);
                    let all = self.of.iter_mut();
                    let matters = all.filter_map(|(mesh, known)| known.apply(key, resource).then_some(mesh));
                    changed.extend(matters.cloned());
                }
                changed
            }
            // What is gone is not known, so every mesh is read again.
            _ => {
                let mut before = std::mem::take(&mut self.of);
                for mesh in snapshot.of_kind(Kind::Mesh).map(|mesh| &mesh.key.name) {
                    self.of.insert(mesh.clone(), read(&snapshot, mesh, before.remove(mesh)));
                }
                self.behind = false;
                self.of.keys().cloned().collect()
            }
        }
    }

    fn apply(
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use jiff::Timestamp;
    use resources::{Labels, Spec};
    use serde_json::json;
    use store::{Changes, Committed, Error, Memory, Write};

    use super::*;

    /// A store that cannot always be read.
    #[derive(Default)]
    struct Flaky {
        store: Memory,
        away: AtomicBool,
    }

    #[async_trait]
    impl Store for Flaky {
        fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
            match self.away.load(Ordering::Relaxed) {
                true => Err(Error::Unavailable("away".into())),
                false => self.store.snapshot(),
            }
        }

        async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
            self.store.write(batch).await
        }

        fn changes(&self) -> Changes {
            self.store.changes()
        }
    }

    /// The Dataplanes of a mesh, and how often it was read as a whole.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Names {
        dataplanes: BTreeSet<String>,
        read: u32,
    }

    impl Follow for Names {
        fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
            match resource {
                _ if key.kind != Kind::Dataplane => false,
                Some(_) => self.dataplanes.insert(key.name.to_string()),
                None => self.dataplanes.remove(&*key.name),
            }
        }
    }

    fn read(snapshot: &Snapshot, mesh: &Arc<str>, before: Option<Names>) -> Names {
        let dataplanes = snapshot.in_mesh(Kind::Dataplane, mesh).map(|d| d.name().to_owned()).collect();
        Names { dataplanes, read: before.map_or(0, |before| before.read) + 1 }
    }

    fn create(key: Key) -> Write {
        Write::Create(Resource {
            spec: Spec::from_json(key.kind, json!({}), &mut Vec::new()).unwrap(),
            key,
            labels: Labels::new(),
            created: Timestamp::UNIX_EPOCH,
            modified: Timestamp::UNIX_EPOCH,
            version: 0,
            owner: None,
            status: None,
        })
    }

    fn delete(key: Key) -> Write {
        Write::Delete { key, expected: None }
    }

    #[tokio::test]
    async fn a_mesh_is_read_once_and_again_only_after_changes_were_missed() {
        let store = Flaky::default();
        let mesh = || Key::global(Kind::Mesh, "default");
        let dataplane = |name: &str| Key::new(Kind::Dataplane, "default", name);
        let mut changes = store.changes();
        let mut meshes = Meshes::default();
        let mut check = async |batch: Vec<Write>, away: bool, expect: Option<(&[&str], u32)>| {
            store.write(batch).await.unwrap();
            store.away.store(away, Ordering::Relaxed);
            let changed = meshes.fold(&store, changes.next().await.unwrap(), read);
            let found =
                meshes.get("default").map(|n| (n.dataplanes.iter().map(String::as_str).collect(), n.read));
            assert_eq!(found, expect.map(|(names, read)| (names.to_vec(), read)));
            (changed.len(), meshes.behind())
        };
        assert_eq!(check(vec![create(dataplane("early"))], false, None).await, (0, false));
        assert_eq!(check(vec![create(mesh())], false, Some((&["early"], 1))).await, (1, false));
        let two = vec![create(dataplane("a")), delete(dataplane("early"))];
        assert_eq!(check(two, false, Some((&["a"], 1))).await, (1, false));
        let timeout = Key::new(Kind::MeshTimeout, "default", "t");
        assert_eq!(
            check(vec![create(timeout)], false, Some((&["a"], 1))).await,
            (0, false),
            "does not matter"
        );
        assert_eq!(check(vec![delete(dataplane("a"))], true, Some((&["a"], 1))).await, (0, true));
        assert_eq!(check(vec![create(dataplane("b"))], false, Some((&["b"], 2))).await, (1, false));
        assert_eq!(check(vec![delete(mesh())], false, None).await, (0, false));
    }
}
