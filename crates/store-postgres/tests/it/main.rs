//! The store on a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod connecting;
mod kuma;
mod outages;
mod proxy;
mod several;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use resources::{Key, Kind, Resource, Spec};
use serde_json::json;
use store::{
    Changes, Dirty, Error, Memory, Snapshot, Store, Write, backup,
    conformance::{Fixture, resource, same_history},
};
use store_postgres::{Postgres, PostgresConfig};
use testkit::postgres::{Database, fresh_database};

/// Less than the time after which the store looks at the database unasked: what is seen within this
/// time was announced.
const PATIENCE: Duration = Duration::from_secs(20);

async fn empty() -> Fixture {
    Fixture::new(Arc::new(connect(&fresh_database().unwrap()).await), ())
}

store::conformance_tests!(empty);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_random_histories_are_the_same_as_in_memory() {
    for seed in 100..106 {
        let store = connect(&fresh_database().unwrap()).await;
        same_history(&Memory::default(), &store, seed, 120).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_moves_everything_to_another_database_and_survives_a_restart() {
    let source = connect(&fresh_database().unwrap()).await;
    same_history(&Memory::default(), &source, 7, 60).await;
    let mut file = Vec::new();
    let count = backup::export(&source, &[], &mut file).unwrap();
    assert!(count > 0);

    let database = fresh_database().unwrap();
    let target = connect(&database).await;
    let restored = backup::read(file.as_slice()).unwrap().resources;
    assert_eq!(backup::restore(&target, restored).await.unwrap(), count);
    assert_eq!(contents(&target), contents(&source));
    drop(target);
    assert_eq!(contents(&connect(&database).await), contents(&source));
}

/// Patches may set something to `null`, which is not the same as not saying what to set it to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explicit_null_of_a_patch_is_stored_and_read_back() {
    let database = fresh_database().unwrap();
    let patches = json!([
        { "op": "replace", "path": "/commonLbConfig", "value": null },
        { "op": "remove", "path": "/altStatName" },
        { "op": "add", "path": "/metadata", "value": { "kept": null, "list": [null, 1] } },
    ]);
    let modification = json!({ "cluster": { "operation": "Patch", "jsonPatches": patches } });
    let spec =
        json!({ "targetRef": { "kind": "Mesh" }, "default": { "appendModifications": [modification] } });
    let patch = Resource {
        key: Key::new(Kind::MeshProxyPatch, "default", "nulls"),
        spec: Spec::from_json(Kind::MeshProxyPatch, spec, &mut Vec::new()).unwrap(),
        ..secret("nulls")
    };
    let store = connect(&database).await;
    store.write(vec![Write::Create(patch.clone())]).await.unwrap();
    drop(store);
    // Another control plane, which has it from the database alone.
    let read = connect(&database).await.snapshot().unwrap().get(&patch.key).unwrap().clone();
    assert_eq!(read.spec, patch.spec);
    let stored = read.spec.to_json()["default"]["appendModifications"][0]["cluster"]["jsonPatches"].clone();
    assert_eq!(stored, patches);
    assert!(stored[0].as_object().unwrap().contains_key("value"), "{stored}");
    assert!(!stored[1].as_object().unwrap().contains_key("value"), "{stored}");
}

fn config(database: &Database) -> PostgresConfig {
    PostgresConfig {
        host: database.host.clone(),
        port: database.port,
        user: database.user.clone(),
        password: database.password.clone(),
        db_name: database.name.clone(),
        ..PostgresConfig::default()
    }
}

async fn connect(database: &Database) -> Postgres {
    Postgres::connect(config(database)).await.unwrap()
}

fn secret(name: &str) -> Resource {
    resource(Kind::Secret, "default", name, "tag")
}

fn key(name: &str) -> Key {
    secret(name).key
}

async fn create(store: &Postgres, name: &str) -> Arc<Resource> {
    let committed = store.write(vec![Write::Create(secret(name))]).await.unwrap();
    committed.get(&key(name)).unwrap().clone()
}

async fn delete(store: &Postgres, name: &str) {
    store.write(vec![Write::Delete { key: key(name), expected: None }]).await.unwrap();
}

fn contents(store: &Postgres) -> Vec<Arc<Resource>> {
    store.snapshot().unwrap().iter().cloned().collect()
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Unavailable(why)) => why,
        other => panic!("expected that the store is unavailable, found {other:?}"),
    }
}

/// Returns the snapshot if the store vouches for it: not while there is an outage.
fn vouched_for(store: &Postgres) -> Result<Arc<Snapshot>, Error> {
    match store.outage() {
        Some(outage) => Err(Error::Unavailable(outage.reason)),
        None => store.snapshot(),
    }
}

/// Waits until a condition holds, on what the store shows or on its refusal to vouch for anything.
async fn eventually(store: &Postgres, what: &str, holds: impl Fn(Result<Arc<Snapshot>, Error>) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(vouched_for(store)) {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn next(changes: &mut Changes) -> Dirty {
    tokio::time::timeout(PATIENCE, changes.next())
        .await
        .expect("a change was missed")
        .expect("the store is there")
}

/// Waits until all of `expected` were reported, and sees that nothing else was.
async fn reported(changes: &mut Changes, expected: &[&str]) {
    let expected: BTreeSet<Key> = expected.iter().map(|name| key(name)).collect();
    let mut seen = BTreeSet::new();
    while seen != expected {
        match next(changes).await {
            Dirty::Keys(keys) => seen.extend(keys),
            Dirty::Everything => panic!("nothing was forgotten, yet everything is dirty"),
        }
        assert!(seen.is_subset(&expected), "no store wrote all of {seen:?}");
    }
}
