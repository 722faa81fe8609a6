//! Keeps MeshInsights and ServiceInsights in line with what is stored.
//!
//! The counts of each mesh follow its changes. They are written when they are others, at once or else an
//! interval after the last time: the services of a mesh are one document, which a thousand proxies that
//! connect at once would otherwise write a thousand times. Control planes on one store may all do it: they
//! come to the same result, and who comes second finds nothing to write or its version outdated.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use resources::{
    Key, Kind, Resource, Spec,
    kinds::service_insight::{self, ServiceInsight},
};
use runtime::Shutdown;
use store::{Dirty, Error, Snapshot, Store, Write};
use tokio::time::Instant;

use super::{counts::Counts, write};
use crate::following::{Follow, Meshes};

/// How long to leave the insights of a mesh alone after they were written, at least.
const INTERVAL: Duration = Duration::from_secs(1);
/// And for each service: a large document is written less often, so that writing it stays a small part of
/// the work however many services there are.
const PER_SERVICE: Duration = Duration::from_millis(1);
/// How long another control plane's write may take to arrive here.
const ARRIVAL: Duration = Duration::from_millis(100);

/// The counts of every mesh.
#[derive(Default)]
struct Insights {
    counts: Meshes<Counts>,
    schedule: Schedule,
}

/// When to write the insights of which mesh.
#[derive(Default)]
struct Schedule {
    due: BTreeMap<Arc<str>, Instant>,
    /// When those of each mesh may be written again.
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
    let mut insights = Insights::default();
    insights.fold(store, Dirty::Everything);
    loop {
        tokio::select! {
            dirty = changes.next() => match dirty {
                Some(dirty) => insights.fold(store, dirty),
                None => return,
            },
            () = tokio::time::sleep(INTERVAL), if insights.counts.behind() => insights.fold(store, Dirty::Everything),
            mesh = insights.schedule.next() => {
                let again = insights.settle(store, &mesh).await;
                let rest = insights.rest(&mesh);
                insights.schedule.written(mesh, again, rest);
            }
        }
    }
}

impl Follow for Counts {
    /// Everything in a mesh counts, except counts.
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        self.replace(key, resource);
        key.kind != Kind::ServiceInsight
    }
}

impl Insights {
    /// Counts what changed.
    fn fold(&mut self, store: &dyn Store, dirty: Dirty) {
        let changed = self.counts.fold(store, dirty, |snapshot, mesh, _| Counts::read(snapshot, mesh));
        self.schedule.add(changed);
    }

    /// How long to leave the insights of a mesh alone.
    fn rest(&self, mesh: &str) -> Duration {
        let services = self.counts.get(mesh).map_or(0, |counts| counts.services().services.len());
        INTERVAL.max(PER_SERVICE.saturating_mul(u32::try_from(services).unwrap_or(u32::MAX)))
    }

    /// Writes what is different; says when to try again if that did not work.
    async fn settle(&self, store: &dyn Store, mesh: &str) -> Option<Duration> {
        let counts = self.counts.get(mesh)?;
        let Ok(snapshot) = store.snapshot() else { return Some(INTERVAL) };
        let batch = outdated(&snapshot, mesh, counts);
        if batch.is_empty() {
            return None;
        }
        match store.write(batch).await {
            Ok(_) => None,
            // Another one wrote in between, or the mesh is gone: that is on its way here.
            Err(
                Error::Conflict { .. }
                | Error::AlreadyExists(_)
                | Error::NotFound(_)
                | Error::OwnerMissing { .. },
            ) => Some(ARRIVAL),
            Err(error) => {
                tracing::warn!(mesh, %error, "cannot write the insights of a mesh; retrying");
                Some(INTERVAL)
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

    fn written(&mut self, mesh: Arc<str>, again: Option<Duration>, rest: Duration) {
        let now = Instant::now();
        self.due.remove(&mesh);
        if let Some(pause) = again {
            self.due.insert(mesh.clone(), now + pause);
        }
        self.rested.retain(|_, at| *at > now);
        self.rested.insert(mesh, now + rest);
    }
}

/// What to write so that the insights of a mesh say what there is.
fn outdated(snapshot: &Snapshot, mesh: &str, counts: &Counts) -> Vec<Write> {
    let owner = Key::global(Kind::Mesh, mesh);
    let of_mesh = Spec::from(counts.mesh(snapshot, mesh));
    let of_mesh = write(snapshot, &Key::global(Kind::MeshInsight, mesh), &owner, of_mesh);
    let key = Key::new(Kind::ServiceInsight, mesh, &service_insight::resource_name(mesh));
    let stored = snapshot.get(&key).and_then(|stored| stored.spec.get::<ServiceInsight>());
    // A large document, copied only to be written.
    let of_services = (stored != Some(counts.services()))
        .then(|| write(snapshot, &key, &owner, Spec::from(counts.services().clone())));
    of_mesh.into_iter().chain(of_services.flatten()).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use resources::Labels;
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
    async fn only_what_is_different_is_written() {
        let store = Memory::default();
        store.write(vec![stored(Key::global(Kind::Mesh, "default"), json!({}))]).await.unwrap();
        let revision = || store.snapshot().unwrap().revision();
        let mut insights = Insights::default();
        insights.fold(&store, Dirty::Everything);
        for more in [None, Some(Kind::Dataplane)] {
            if let Some(kind) = more {
                let key = Key::new(kind, "default", "one");
                store.write(vec![stored(key.clone(), json!({}))]).await.unwrap();
                insights.fold(&store, Dirty::Keys([key].into()));
            }
            let before = revision();
            assert_eq!(insights.settle(&store, "default").await, None);
            assert_eq!(revision(), before + 1, "both insights in one batch");
            assert_eq!(insights.settle(&store, "default").await, None);
            assert_eq!(revision(), before + 1);
        }
        assert_eq!(insights.settle(&store, "no-such-mesh").await, None);
    }

    #[test]
    fn insights_are_written_at_once_and_then_at_most_once_in_an_interval() {
        let mesh: Arc<str> = "default".into();
        let mut schedule = Schedule::default();
        // However often it changes.
        schedule.add(BTreeSet::from([mesh.clone()]));
        schedule.add(BTreeSet::from([mesh.clone()]));
        assert!(schedule.due[&mesh] <= Instant::now());
        let written = Instant::now();
        schedule.written(mesh.clone(), None, INTERVAL);
        assert!(schedule.due.is_empty());
        schedule.add(BTreeSet::from([mesh.clone()]));
        assert!(schedule.due[&mesh] >= written + INTERVAL);
        schedule.written(mesh.clone(), Some(ARRIVAL), INTERVAL);
        assert!(schedule.due[&mesh] < Instant::now() + INTERVAL, "what did not work is tried again soon");
    }

    #[tokio::test]
    async fn a_mesh_of_many_services_is_written_less_often() {
        let rest_with = async |services: u32| {
            let store = Memory::default();
            let dataplane = |i: u32| {
                let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": format!("s-{i}") } }]);
                let spec = json!({ "networking": { "address": "10.0.0.1", "inbound": inbound } });
                stored(Key::new(Kind::Dataplane, "default", &format!("dp-{i}")), spec)
            };
            let mesh = stored(Key::global(Kind::Mesh, "default"), json!({}));
            store.write((0..services).map(dataplane).chain([mesh]).collect()).await.unwrap();
            let mut insights = Insights::default();
            insights.fold(&store, Dirty::Everything);
            insights.rest("default")
        };
        assert_eq!(rest_with(10).await, INTERVAL);
        assert_eq!(rest_with(3000).await, Duration::from_secs(3));
    }

    #[tokio::test]
    async fn counts_are_not_counted() {
        let store = Memory::default();
        let meshes =
            ["a", "b", "c", "d", "e", "f"].map(|mesh| stored(Key::global(Kind::Mesh, mesh), json!({})));
        store.write(meshes.into()).await.unwrap();
        let mut insights = Insights::default();
        insights.fold(&store, Dirty::Everything);
        insights.schedule = Schedule::default();
        let keys = [
            Key::global(Kind::MeshInsight, "a"),
            Key::new(Kind::ServiceInsight, "b", "all-services-b"),
            Key::global(Kind::GlobalSecret, "c"),
            Key::new(Kind::DataplaneInsight, "d", "web"),
            Key::new(Kind::MeshTimeout, "e", "slow"),
            Key::global(Kind::Mesh, "f"),
            Key::new(Kind::MeshTimeout, "no-such-mesh", "slow"),
        ];
        insights.fold(&store, Dirty::Keys(keys.into()));
        assert_eq!(insights.schedule.due.keys().map(|mesh| &**mesh).collect::<Vec<_>>(), ["d", "e", "f"]);
    }
}
