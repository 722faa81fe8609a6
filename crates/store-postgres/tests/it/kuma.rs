//! A database that Kuma's own control plane has used.

use resources::{Key, Kind, kinds::config::Config as StoredConfig};
use store::{Store, backup};
use store_postgres::{Kuma, Postgres};
use testkit::{
    kuma::TABLES,
    postgres::{Database, fresh_database, shared},
};

use crate::{config, unavailable};

const ROWS: &str = "
    INSERT INTO resources (name, mesh, type, version, spec, creation_time) VALUES
        ('default', '', 'Mesh', 4,
         '{\"mtls\":{\"enabledBackend\":\"ca-1\",\"backends\":[{\"name\":\"ca-1\",\"type\":\"builtin\"}]}}',
         '2026-01-02 03:04:05.678'),
        ('kuma-cluster-id', '', 'Config', 0, '{\"config\":\"a-b-c\"}', now()),
        ('cp-catalog', '', 'Config', 9, '{\"config\":\"[]\"}', now()),
        ('kuma-default-dns-vips', '', 'Config', 2, '{\"config\":\"{}\"}', now()),
        ('user-token-signing-key-1', '', 'GlobalSecret', 0, '{\"data\":\"a2V5\"}', now());
    INSERT INTO resources (name, mesh, type, version, spec, labels, owner_name, owner_mesh, owner_type) VALUES
        ('default.ca-builtin-key-ca-1', 'default', 'Secret', 0, '{\"data\":\"a2V5\"}', 'null', 'default', '', 'Mesh'),
        ('slow', 'default', 'MeshTimeout', 1,
         '{\"to\":[{\"targetRef\":{\"kind\":\"Mesh\"},\"default\":{\"connectionTimeout\":\"1m0s\"}}]}',
         '{\"kuma.io/mesh\":\"default\"}', 'default', '', 'Mesh'),
        ('later', 'default', 'MeshTelepathy', 0, '{}', '{}', 'default', '', 'Mesh'),
        ('web', 'default', 'DataplaneInsight', 7, '{}', '{}', 'default', '', 'Mesh'),
        ('lost', 'gone', 'MeshTimeout', 0, '{}', '{}', NULL, NULL, NULL);";

fn used_by_kuma() -> Database {
    let database = fresh_database().unwrap();
    shared().unwrap().sql(&database.name, &[TABLES, ROWS].concat()).unwrap();
    database
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_kuma_is_refused_unchanged_and_the_import_is_offered() {
    let database = used_by_kuma();
    let why = unavailable(Postgres::connect(config(&database)).await.map(drop));
    for part in ["tables of Kuma", "kuma-cp migrate import-kuma", "KUMA_STORE_POSTGRES_DB_NAME"] {
        assert!(why.contains(part), "{part:?} is not in {why:?}");
    }
    let schemas = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'kuma_rs'";
    assert_eq!(shared().unwrap().sql(&database.name, schemas).unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_of_kuma_that_counts_is_imported_and_the_rest_is_named() {
    let database = used_by_kuma();
    let mut kuma = Kuma::read(&config(&database)).await.unwrap();
    let skipped: Vec<(&str, usize)> =
        kuma.skipped.iter().map(|((kind, _), count)| (kind.as_str(), *count)).collect();
    assert_eq!(
        skipped,
        [("Config", 1), ("DataplaneInsight", 1), ("MeshTelepathy", 1), ("MeshTimeout", 1)],
        "{:?}",
        kuma.skipped
    );
    let store = Postgres::connect_beside_kuma(config(&database)).await.unwrap();
    let count = backup::restore(&store, std::mem::take(&mut kuma.resources)).await.unwrap();
    assert_eq!(count, 6);
    drop(store);

    let store = Postgres::connect(config(&database)).await.expect("what is imported can be used");
    let snapshot = store.snapshot().unwrap();
    let mesh = Key::global(Kind::Mesh, "default");
    assert_eq!(snapshot.get(&mesh).unwrap().created.to_string(), "2026-01-02T03:04:05.678Z");
    let id = snapshot.get(&Key::global(Kind::Config, "kuma-cluster-id")).unwrap();
    assert_eq!(id.spec.get::<StoredConfig>().unwrap().config, "a-b-c");
    for (kind, name) in [(Kind::Secret, "default.ca-builtin-key-ca-1"), (Kind::MeshTimeout, "slow")] {
        let stored = snapshot.get(&Key::new(kind, "default", name)).unwrap();
        assert_eq!(stored.owner.as_ref(), Some(&mesh), "{name}");
    }
    let slow = snapshot.get(&Key::new(Kind::MeshTimeout, "default", "slow")).unwrap();
    assert_eq!(slow.labels.get("kuma.io/mesh").map(String::as_str), Some("default"));
    assert_eq!(slow.spec.to_json()["to"][0]["default"]["connectionTimeout"], "1m0s");

    let again = Kuma::read(&config(&database)).await.unwrap();
    let refused = backup::restore(&store, again.resources).await.unwrap_err().to_string();
    assert!(refused.contains("not empty"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_another_version_or_of_no_one_are_not_imported() {
    let database = used_by_kuma();
    shared().unwrap().sql(&database.name, "UPDATE schema_migrations SET version = 1664201204").unwrap();
    let why = unavailable(Kuma::read(&config(&database)).await);
    assert!(why.contains("1664201204") && why.contains("kuma-cp migrate up"), "{why}");
    let why = unavailable(Kuma::read(&config(&fresh_database().unwrap())).await);
    assert!(why.contains("holds no tables of Kuma"), "{why}");
}
