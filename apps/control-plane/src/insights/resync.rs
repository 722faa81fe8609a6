//! Keeps MeshInsights and ServiceInsights in line with what is stored.
//!
//! A mesh is counted when something in it changed, at once or else an interval after the last time, and
//! written when the result is another one. Control planes on one store may all do it: they come to the
//! same result, and who comes second finds nothing to write or its version outdated, and counts again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use resources::{Key, Kind, Scope, Spec, kinds::service_insight};
use runtime::Shutdown;
use store::{Dirty, Error, Snapshot, Store, Write};
use tokio::time::Instant;

use super::{counts, write};

/// How long to leave a mesh alone after it was counted.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long another control plane's write may take to arrive here.
const ARRIVAL: Duration = Duration::from_millis(10);

/// When to count which mesh.
#[derive(Default)]
struct Schedule {
    due: BTreeMap<Arc<str>, Instant>,
    /// When each mesh may be counted again.
    rested: HashMap<Arc<str>, Instant>,
}

/// Starts the loop.
pub fn start(store: Arc<dyn Store>, shutdown: &Shutdown) {
    let ending = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = run(store.as_ref()) => {}
            () = ending.begun() => {}
        }
    });
}

async fn run(store: &dyn Store) {
    let mut changes = store.changes();
    let mut schedule = Schedule::default();
    schedule.add(meshes_of(store, Dirty::Everything).await);
    loop {
        tokio::select! {
            dirty = changes.next() => match dirty {
                Some(dirty) => schedule.add(meshes_of(store, dirty).await),
                None => return,
            },
            mesh = schedule.next() => {
                let again = settle(store, &mesh).await;
                schedule.counted(mesh, again);
            }
        }
    }
}

impl Schedule {
    fn add(&mut self, meshes: BTreeSet<Arc<str>>) {
        for mesh in meshes {
            let at = self.rested.get(&mesh).copied().unwrap_or_else(Instant::now);
            self.due.entry(mesh).or_insert(at);
        }
    }

    /// The mesh whose turn it is, as soon as it is.
    async fn next(&self) -> Arc<str> {
        let first = self.due.iter().min_by_key(|(_, at)| **at);
        match first {
            Some((mesh, at)) => {
                tokio::time::sleep_until(*at).await;
                mesh.clone()
            }
            None => std::future::pending().await,
        }
    }

    fn counted(&mut self, mesh: Arc<str>, again: Option<Duration>) {
        let now = Instant::now();
        self.due.remove(&mesh);
        if let Some(pause) = again {
            self.due.insert(mesh.clone(), now + pause);
        }
        self.rested.retain(|_, at| *at > now);
        self.rested.insert(mesh, now + INTERVAL);
    }
}

/// Counts a mesh and writes what is different; says when to try again if that did not work.
async fn settle(store: &dyn Store, mesh: &str) -> Option<Duration> {
    let Ok(snapshot) = store.snapshot() else { return Some(INTERVAL) };
    let batch = outdated(&snapshot, mesh);
    if batch.is_empty() {
        return None;
    }
    match store.write(batch).await {
        Ok(_) => None,
        // Somebody wrote in between, or the mesh is gone.
        Err(
            Error::Conflict { .. }
            | Error::AlreadyExists(_)
            | Error::NotFound(_)
            | Error::OwnerMissing { .. },
        ) => Some(ARRIVAL),
        Err(error) => {
            tracing::warn!(mesh, %error, "the insights of a mesh could not be written");
            Some(INTERVAL)
        }
    }
}

/// What to write so that the insights of a mesh say what there is.
fn outdated(snapshot: &Snapshot, mesh: &str) -> Vec<Write> {
    let Some((of_mesh, of_services)) = counts::of_mesh(snapshot, mesh) else { return Vec::new() };
    let owner = Key::global(Kind::Mesh, mesh);
    let services = Key::new(Kind::ServiceInsight, mesh, &service_insight::resource_name(mesh));
    [(Key::global(Kind::MeshInsight, mesh), Spec::from(of_mesh)), (services, Spec::from(of_services))]
        .into_iter()
        .filter_map(|(key, spec)| write(snapshot, &key, &owner, spec))
        .collect()
}

/// The meshes in which something is to be counted again. Counts do not count themselves.
async fn meshes_of(store: &dyn Store, dirty: Dirty) -> BTreeSet<Arc<str>> {
    match dirty {
        Dirty::Everything => loop {
            if let Ok(snapshot) = store.snapshot() {
                return snapshot.of_kind(Kind::Mesh).map(|mesh| mesh.key.name.clone()).collect();
            }
            tokio::time::sleep(INTERVAL).await;
        },
        Dirty::Keys(keys) => keys
            .into_iter()
            .filter(|key| key.kind != Kind::ServiceInsight)
            .filter_map(|key| match key.kind {
                Kind::Mesh => Some(key.name),
                kind if kind.descriptor().scope == Scope::Mesh => Some(key.mesh),
                _ => None,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use resources::{Labels, Resource};
    use serde_json::json;
    use store::Memory;

    use super::*;

    fn stored(key: Key, spec: serde_json::Value) -> Write {
        Write::Create(Resource {
            spec: Spec::from_json(key.kind, spec, &mut Vec::new()).unwrap(),
            key,
            labels: Labels::new(),
            created: Timestamp::UNIX_EPOCH,
            modified: Timestamp::UNIX_EPOCH,
            version: 0,
            owner: None,
            status: None,
        })
    }

    #[tokio::test]
    async fn counting_again_writes_only_what_is_different() {
        let store = Memory::default();
        store.write(vec![stored(Key::global(Kind::Mesh, "default"), json!({}))]).await.unwrap();
        let revision = || store.snapshot().unwrap().revision();
        for more in [None, Some(Kind::Dataplane)] {
            if let Some(kind) = more {
                store.write(vec![stored(Key::new(kind, "default", "one"), json!({}))]).await.unwrap();
            }
            let before = revision();
            assert_eq!(settle(&store, "default").await, None);
            assert_eq!(revision(), before + 1, "both insights in one batch");
            assert_eq!(settle(&store, "default").await, None);
            assert_eq!(revision(), before + 1);
        }
        assert_eq!(settle(&store, "no-such-mesh").await, None);
    }

    #[test]
    fn a_mesh_is_counted_at_once_and_then_at_most_once_in_an_interval() {
        let mesh: Arc<str> = "default".into();
        let mut schedule = Schedule::default();
        // However often it changes.
        schedule.add(BTreeSet::from([mesh.clone()]));
        schedule.add(BTreeSet::from([mesh.clone()]));
        assert!(schedule.due[&mesh] <= Instant::now());
        let counted = Instant::now();
        schedule.counted(mesh.clone(), None);
        assert!(schedule.due.is_empty());
        schedule.add(BTreeSet::from([mesh.clone()]));
        assert!(schedule.due[&mesh] >= counted + INTERVAL);
        schedule.counted(mesh.clone(), Some(ARRIVAL));
        assert!(schedule.due[&mesh] < Instant::now() + INTERVAL, "what did not work is tried again soon");
    }

    #[tokio::test]
    async fn counts_are_not_counted() {
        let store = Memory::default();
        let keys = [
            Key::global(Kind::MeshInsight, "a"),
            Key::new(Kind::ServiceInsight, "b", "all-services-b"),
            Key::global(Kind::GlobalSecret, "c"),
            Key::new(Kind::DataplaneInsight, "d", "web"),
            Key::new(Kind::MeshTimeout, "e", "slow"),
            Key::global(Kind::Mesh, "f"),
        ];
        let meshes = meshes_of(&store, Dirty::Keys(keys.into())).await;
        assert_eq!(meshes.iter().map(|mesh| &**mesh).collect::<Vec<_>>(), ["d", "e", "f"]);
    }
}
