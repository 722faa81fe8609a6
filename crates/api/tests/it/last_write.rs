//! Puts without `If-Match` while the control plane itself writes the same resources: the last write wins, and loses
//! nothing that the control plane found out.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use api::Settings;
use async_trait::async_trait;
use resources::{Kind, Resource, Status};
use serde_json::{Value, json};
use store::{Changes, Committed, Error, Memory, Snapshot, Store, Write};

use crate::world::{World, setup, zone};

/// Writes of the control plane before each write of a user gets through. Ten is more than any wait for a turn.
const IN_BETWEEN: usize = 10;

/// Write of the control plane to the resource that a user is about to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interference {
    Status,
    Deletion,
}

/// A store that makes a write of the control plane right before a user's.
struct Busy {
    inner: Memory,
    interference: Interference,
    left: AtomicUsize,
    made: AtomicUsize,
}

impl Busy {
    fn new(interference: Interference) -> Arc<Busy> {
        let (inner, left, made) = Default::default();
        Arc::new(Busy { inner, interference, left, made })
    }

    async fn interfere(&self, stored: &Resource) {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let expected = stored.version;
        let write = match self.interference {
            Interference::Status => Write::Update { resource: with_status(stored, made), expected },
            Interference::Deletion => Write::Delete { key: stored.key.clone(), expected: None },
        };
        self.inner.write(vec![write]).await.unwrap();
    }
}

/// The resource with the address that the control plane gave it last.
fn with_status(stored: &Resource, made: usize) -> Resource {
    let address = json!({ "ip": address(made) });
    let status = match stored.kind() {
        Kind::MeshExternalService => json!({ "vip": address }),
        _ => json!({ "vips": [address] }),
    };
    Resource { status: Some(Status::from_json(stored.kind(), status).unwrap()), ..stored.clone() }
}

fn address(made: usize) -> String {
    format!("241.0.0.{made}")
}

#[async_trait]
impl Store for Busy {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.inner.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        let stored = self.inner.snapshot()?.get(batch[0].key()).cloned();
        let left = self.left.load(Ordering::Relaxed);
        if let Some(stored) = stored.filter(|_| left > 0) {
            self.left.store(left - 1, Ordering::Relaxed);
            self.interfere(&stored).await;
        }
        self.inner.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}

/// Services with a port, which users change and the control plane looks after.
fn services(port: u32) -> [(&'static str, Value); 3] {
    let body =
        |kind: &str, spec: Value| json!({ "type": kind, "mesh": "default", "name": "pay", "spec": spec });
    let selector = json!({ "meshService": { "matchLabels": { "app": "pay" } } });
    let endpoints = json!([{ "address": "10.0.0.1", "port": port }]);
    [
        ("meshservices", body("MeshService", json!({ "ports": [{ "port": port, "appProtocol": "tcp" }] }))),
        (
            "meshexternalservices",
            body("MeshExternalService", json!({ "match": { "port": port }, "endpoints": endpoints })),
        ),
        (
            "meshmultizoneservices",
            body("MeshMultiZoneService", json!({ "selector": selector, "ports": [{ "port": port }] })),
        ),
    ]
}

async fn world(interference: Interference) -> (World, Arc<Busy>) {
    let store = Busy::new(interference);
    let world = World::on(store.clone(), setup(zone()), Settings::default()).await;
    for (path, body) in services(80) {
        world.put(&format!("/meshes/default/{path}/pay"), &body).await.expect(201);
    }
    (world, store)
}

#[tokio::test]
async fn a_put_without_if_match_wins_and_keeps_the_control_planes_fields() {
    let (world, store) = world(Interference::Status).await;
    for (path, body) in services(8080) {
        let path = format!("/meshes/default/{path}/pay");
        store.left.store(IN_BETWEEN, Ordering::Relaxed);
        let answer = world.put(&path, &body).await.expect(200);
        assert_eq!(answer.header("x-kuma-outcome"), "updated", "{path}");
        assert_eq!(
            store.left.load(Ordering::Relaxed),
            0,
            "{path}: the control plane was in between each time"
        );
        let stored = world.get(&path).await.expect(200).body;
        assert!(stored.contains("\"port\": 8080"), "{path}: what the user wrote last: {stored}");
        let last = address(store.made.load(Ordering::Relaxed));
        assert!(stored.contains(&last), "{path}: what the control plane wrote last, {last}: {stored}");
    }
}

#[tokio::test]
async fn a_put_of_what_is_deleted_meanwhile_creates_it() {
    let (world, store) = world(Interference::Deletion).await;
    for (path, body) in services(8080) {
        store.left.store(1, Ordering::Relaxed);
        let answer = world.put(&format!("/meshes/default/{path}/pay"), &body).await.expect(201);
        assert_eq!(answer.header("x-kuma-outcome"), "created", "{path}");
    }
}
