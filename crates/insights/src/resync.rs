//! Keeps MeshInsights and ServiceInsights in line with what is stored.
//!
//! The counts of each mesh follow its changes. They are written when they are others, at once or else an
//! interval after the last time: the services of a mesh are one document, which a thousand proxies that
//! connect at once would otherwise write a thousand times. The interval is a second, and longer in meshes of more than a
//! thousand services. Control planes on one store may all do it: they
//! come to the same result, and who comes second finds nothing to write or its version outdated.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use reconcile::{Follow, Meshes, Next, Pass, ReconcileFailure, Reconciler};
use resources::{
    Key, Kind, Resource, Spec,
    kinds::service_insight::{self, ServiceInsight},
};
use store::{Dirty, Snapshot, Write};

use super::{counts::Counts, write};

/// Shortest pause between two looks at the insights of a mesh.
const INTERVAL: Duration = Duration::from_secs(1);
/// And for each service: a large document is written less often, so that writing it stays a small part of
/// the work however many services there are.
const PER_SERVICE: Duration = Duration::from_millis(1);

/// The counts of every mesh.
#[derive(Default)]
pub(super) struct Insights {
    counts: Meshes<Counts>,
}

impl Follow for Counts {
    /// Everything in a mesh counts, except counts.
    fn apply(&mut self, key: &Key, resource: Option<&Arc<Resource>>) -> bool {
        self.replace(key, resource);
        key.kind != Kind::ServiceInsight
    }
}

impl Reconciler for Insights {
    const NAME: &'static str = "insights";
    const WORK: &'static str = "write the insights of a mesh";
    const FOLLOWS: &'static [Kind] = Kind::ALL;
    type Unit = Arc<str>;

    /// Counts what changed.
    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Arc<str>> {
        self.counts.apply(snapshot, dirty, |snapshot, mesh, _| Counts::read(snapshot, mesh))
    }

    /// Writes what is different, both insights in one batch.
    async fn reconcile(&mut self, mesh: &Arc<str>, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let Some(counts) = self.counts.get(mesh) else { return Ok(Next::on_change()) };
        let batch = outdated(&pass.snapshot, mesh, counts);
        if !batch.is_empty() {
            pass.store.write(batch).await?;
        }
        Ok(Next::on_change().after(rest(counts)))
    }
}

/// Pause until the insights of a mesh are looked at again.
fn rest(counts: &Counts) -> Duration {
    let services = u32::try_from(counts.services().services.len()).unwrap_or(u32::MAX);
    INTERVAL.max(PER_SERVICE.saturating_mul(services))
}

/// Writes after which the insights of a mesh are up to date.
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
    use reconcile::{Driver, Metrics, Moment};
    use resources::Labels;
    use serde_json::json;
    use store::{Memory, Store};

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

    /// A look at a mesh now.
    async fn look(insights: &mut Insights, store: &Arc<Memory>, mesh: &str) -> Next {
        let now = Moment::now();
        let snapshot = store.snapshot().unwrap();
        let pass = Pass { store: store.clone(), snapshot, now: now.wall, instant: now.instant };
        insights.reconcile(&mesh.into(), &pass).await.unwrap()
    }

    fn apply(insights: &mut Insights, store: &Memory, dirty: Dirty) -> BTreeSet<Arc<str>> {
        insights.apply(&store.snapshot().unwrap(), &dirty)
    }

    #[tokio::test]
    async fn only_what_is_different_is_written() {
        let store = Arc::new(Memory::default());
        store.write(vec![stored(Key::global(Kind::Mesh, "default"), json!({}))]).await.unwrap();
        let revision = || store.snapshot().unwrap().revision();
        let mut insights = Insights::default();
        apply(&mut insights, &store, Dirty::Everything);
        for more in [None, Some(Kind::Dataplane)] {
            if let Some(kind) = more {
                let key = Key::new(kind, "default", "one");
                store.write(vec![stored(key.clone(), json!({}))]).await.unwrap();
                apply(&mut insights, &store, Dirty::Keys([key].into()));
            }
            let before = revision();
            look(&mut insights, &store, "default").await;
            assert_eq!(revision(), before + 1, "both insights in one batch");
            look(&mut insights, &store, "default").await;
            assert_eq!(revision(), before + 1);
        }
        assert_eq!(look(&mut insights, &store, "no-such-mesh").await, Next::on_change());
    }

    #[tokio::test]
    async fn insights_are_written_at_once_and_then_at_most_once_in_an_interval() {
        let store = Arc::new(Memory::default());
        store.write(vec![stored(Key::global(Kind::Mesh, "default"), json!({}))]).await.unwrap();
        let start = Moment::now();
        let passed = Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let clock = passed.clone();
        let metrics = Metrics::register(&runtime::metrics::Metrics::default());
        let clock = move || start.after(*clock.lock().unwrap());
        let mut driver = Driver::new(Insights::default(), store.clone(), &metrics, clock);
        let dataplanes = || {
            let insight = store.snapshot().unwrap().get(&Key::global(Kind::MeshInsight, "default")).cloned();
            insight.map(|it| it.spec.to_json()["dataplanes"]["total"].as_u64().unwrap_or_default())
        };
        driver.step().await;
        assert_eq!(dataplanes(), Some(0), "at once");
        // However often it changes.
        for name in ["one", "two", "three"] {
            store.write(vec![stored(Key::new(Kind::Dataplane, "default", name), json!({}))]).await.unwrap();
            let next = driver.step().await;
            assert_eq!((dataplanes(), next), (Some(0), Some(start.instant + INTERVAL)));
        }
        *passed.lock().unwrap() = INTERVAL;
        driver.step().await;
        assert_eq!(dataplanes(), Some(3));
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
            apply(&mut insights, &store, Dirty::Everything);
            rest(insights.counts.get("default").unwrap())
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
        apply(&mut insights, &store, Dirty::Everything);
        let keys = [
            Key::global(Kind::MeshInsight, "a"),
            Key::new(Kind::ServiceInsight, "b", "all-services-b"),
            Key::global(Kind::GlobalSecret, "c"),
            Key::new(Kind::DataplaneInsight, "d", "web"),
            Key::new(Kind::MeshTimeout, "e", "slow"),
            Key::global(Kind::Mesh, "f"),
            Key::new(Kind::MeshTimeout, "no-such-mesh", "slow"),
        ];
        let due = apply(&mut insights, &store, Dirty::Keys(keys.into()));
        assert_eq!(due.iter().map(|mesh| &**mesh).collect::<Vec<_>>(), ["d", "e", "f"]);
    }
}
