//! Several control planes on one database.

use resources::{Kind, Resource};
use store::{Error, Store, Write, conformance::resource};
use store_postgres::{Postgres, PostgresConfig};
use testkit::postgres::{fresh_database, shared};

use crate::{PATIENCE, config, connect, contents, create, delete, eventually, key, reported, secret};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_through_one_is_seen_by_the_other() {
    let database = fresh_database().unwrap();
    let one = connect(&database).await;
    let two = connect(&database).await;
    let mut changes = two.changes();
    let created = create(&one, "a").await;
    reported(&mut changes, &["a"]).await;
    assert_eq!(two.snapshot().unwrap().get(&key("a")), Some(&created));

    delete(&one, "a").await;
    reported(&mut changes, &["a"]).await;
    assert_eq!(contents(&two), []);
    assert_eq!(two.snapshot().unwrap().revision(), one.snapshot().unwrap().revision());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_checked_against_the_database_not_against_what_is_shown() {
    let database = fresh_database().unwrap();
    let one = connect(&database).await;
    let two = connect(&database).await;
    // Nothing waits for the other control plane here: each step may find it behind.
    for round in 0..20 {
        let name = format!("secret-{round}");
        let created = create(&one, &name).await;
        let again = two.write(vec![Write::Create(secret(&name))]).await;
        assert!(matches!(again, Err(Error::AlreadyExists(_))), "{again:?}");

        let update = |expected| vec![Write::Update { resource: secret(&name), expected }];
        let updated = two.write(update(created.version)).await.unwrap();
        let stale = one.write(update(created.version)).await;
        let Err(Error::Conflict { expected, found, .. }) = stale else { panic!("{stale:?}") };
        assert_eq!((expected, found), (created.version, updated.get(&key(&name)).unwrap().version));

        let mesh = resource(Kind::Mesh, "", &format!("mesh-{round}"), "");
        let mut owned = secret(&format!("owned-{round}"));
        owned.owner = Some(mesh.key.clone());
        one.write(vec![Write::Create(mesh.clone())]).await.unwrap();
        two.write(vec![Write::Create(owned.clone())]).await.unwrap();
        let gone = one.write(vec![Write::Delete { key: mesh.key.clone(), expected: None }]).await.unwrap();
        assert_eq!(gone.changed, [(owned.key, None), (mesh.key, None)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_refused_because_of_another_catches_up_and_succeeds() {
    let database = fresh_database().unwrap();
    let one = connect(&database).await;
    let two = connect(&database).await;
    // Nothing else is waited for: in most rounds the second finds itself behind.
    for round in 0..20 {
        let name = format!("secret-{round}");
        let created = create(&one, &name).await;
        let refused = two.write(vec![Write::Create(secret(&name))]).await.unwrap_err();
        assert!(refused.is_outdated(), "{refused}");
        let snapshot = two.caught_up(PATIENCE).await.unwrap();
        let found = snapshot.get(&key(&name)).expect("what stood in the way is shown");
        assert_eq!(found, &created);
        let update = Write::Update { resource: secret(&name), expected: found.version };
        let updated = two.write_each(vec![update]).await.remove(0).unwrap();

        let Err(Error::Conflict { found, .. }) =
            one.write(vec![Write::Delete { key: key(&name), expected: Some(created.version) }]).await
        else {
            panic!("the version is an older one")
        };
        one.changes().until(found, PATIENCE).await.unwrap();
        assert_eq!(one.snapshot().unwrap().get(&key(&name)), updated.get(&key(&name)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn independent_writes_share_one_transaction() {
    let database = fresh_database().unwrap();
    let one = connect(&database).await;
    let two = connect(&database).await;
    let creates = (0..100).map(|n| Write::Create(secret(&(n % 99).to_string()))).collect();
    let outcomes = one.write_each(creates).await;
    let refused: Vec<usize> = (0..100).filter(|n| outcomes[*n].is_err()).collect();
    assert_eq!(refused, [99]);
    let sql = |sql: &str| shared().unwrap().sql(&database.name, sql).unwrap();
    assert_eq!(sql("SELECT count(*), count(DISTINCT xmin::text) FROM kuma_rs.resources"), "99|1");

    let snapshot = two.caught_up(PATIENCE).await.unwrap();
    assert_eq!(snapshot.iter().count(), 99, "another control plane sees all of them");
    assert_eq!(contents(&one), contents(&two));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_on_both_end_with_the_same_contents() {
    const WRITES: usize = 40;
    let database = fresh_database().unwrap();
    let one = connect(&database).await;
    let two = connect(&database).await;
    let mut at_one = one.changes();
    let mut at_two = two.changes();
    let write = async |store: &Postgres, prefix: &str| {
        for n in 0..WRITES {
            create(store, &format!("{prefix}-{n}")).await;
        }
    };
    tokio::join!(write(&one, "one"), write(&two, "two"), write(&one, "also-one"));

    let names: Vec<String> = ["one", "two", "also-one"]
        .iter()
        .flat_map(|prefix| (0..WRITES).map(move |n| format!("{prefix}-{n}")))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    reported(&mut at_one, &names).await;
    reported(&mut at_two, &names).await;
    assert_eq!(contents(&one), contents(&two));
    let mut versions: Vec<u64> = contents(&one).iter().map(|r| r.version).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=names.len() as u64).collect::<Vec<_>>(), "every write got its own revision");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_open_an_empty_database_together_all_succeed() {
    let database = fresh_database().unwrap();
    let (one, two, three) = tokio::join!(connect(&database), connect(&database), connect(&database));
    create(&one, "a").await;
    for store in [&two, &three] {
        eventually(store, "the write is seen", |shown| shown.unwrap().get(&key("a")).is_some()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_changes_keeps_the_last_hundred_thousand_revisions() {
    let database = fresh_database().unwrap();
    let store = connect(&database).await;
    let other = connect(&database).await;
    let mut changes = other.changes();
    create(&store, "old").await;
    reported(&mut changes, &["old"]).await;
    for (name, version) in [("young", 60_000), ("youngest", 150_000)] {
        store.write(vec![Write::Restore(Resource { version, ..secret(name) })]).await.unwrap();
        // A control plane that keeps up does not notice.
        eventually(&other, "the write is seen", |shown| shown.unwrap().get(&key(name)).is_some()).await;
    }
    reported(&mut changes, &["young", "youngest"]).await;
    let sql = |sql: &str| shared().unwrap().sql(&database.name, sql).unwrap();
    assert_eq!(sql("SELECT revision, name FROM kuma_rs.changes ORDER BY 1"), "60000|young\n150000|youngest");
    assert_eq!(sql("SELECT value, trimmed FROM kuma_rs.revision"), "150000|50000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_connections_are_opened_than_allowed() {
    let database = fresh_database().unwrap();
    let limited = PostgresConfig { max_open_connections: 3, ..config(&database) };
    let store = std::sync::Arc::new(Postgres::connect(limited).await.unwrap());
    let tasks: Vec<_> = (0..30)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { create(&store, &format!("{n}")).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(contents(&store).len(), 30);
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'", database.name);
    let open: u32 = shared().unwrap().sql("postgres", &count).unwrap().parse().unwrap();
    assert!((1..=3).contains(&open), "{open} connections are open");
}
