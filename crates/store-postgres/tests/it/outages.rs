//! The database goes away and comes back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use store::{Dirty, Store, Write};
use store_postgres::{Postgres, PostgresConfig};
use testkit::postgres::{self, Database, fresh_database, shared};

use crate::{
    config, connect, contents, create, delete, eventually, key, next, proxy::TcpProxy, reported, secret,
    unavailable, vouched_for,
};

/// A user of its own for one store, so that this store alone can be locked out.
struct Visitor<'a> {
    cluster: &'a postgres::Postgres,
    database: Database,
}

impl<'a> Visitor<'a> {
    fn of(cluster: &'a postgres::Postgres, database: &Database) -> Visitor<'a> {
        let user = format!("visitor_{}", database.name);
        let password = &database.password;
        let visitor = Visitor { cluster, database: Database { user: user.clone(), ..database.clone() } };
        visitor.sql(&format!("CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{password}'"));
        visitor
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.database.name, sql).unwrap()
    }

    /// From now on no connection succeeds; the ones that exist stay.
    fn lock_out(&self) {
        self.sql(&format!("ALTER ROLE {} NOLOGIN", self.database.user));
    }

    fn throw_out(&self) {
        let user = &self.database.user;
        self.sql(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'"));
    }

    fn let_in(&self) {
        self.sql(&format!("ALTER ROLE {} LOGIN", self.database.user));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_stopped_reads_are_outdated_and_writes_fail() {
    let mut cluster = postgres::Postgres::start().unwrap();
    let database = cluster.create_database("mesh").unwrap();
    let store = connect(&database).await;
    create(&store, "before").await;
    let mut changes = store.changes();

    cluster.stop().unwrap();
    eventually(&store, "reads are marked as outdated", |shown| shown.is_err()).await;
    let outage = store.outage().unwrap();
    assert!(outage.reason.contains("PostgreSQL"), "{outage:?}");
    assert!(store.snapshot().unwrap().get(&key("before")).is_some(), "what was read stays readable");
    unavailable(store.write(vec![Write::Create(secret("meanwhile"))]).await);
    unavailable(store.probe().await);
    // However often it is tried to connect again.
    unavailable(store.caught_up(std::time::Duration::from_secs(1)).await);
    assert_eq!(store.outage().unwrap().since, outage.since);

    cluster.start_again().unwrap();
    eventually(&store, "reads work again", |shown| shown.is_ok()).await;
    assert_eq!(changes.try_next(), None, "nothing happened meanwhile");
    create(&store, "after").await;
    reported(&mut changes, &["after"]).await;
    let names: Vec<String> = contents(&store).iter().map(|r| r.name().to_owned()).collect();
    assert_eq!(names, ["after", "before"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_across_an_outage_misses_nothing_others_wrote_meanwhile() {
    let mut cluster = postgres::Postgres::start().unwrap();
    let database = cluster.create_database("mesh").unwrap();
    let user = {
        let visitor = Visitor::of(&cluster, &database);
        visitor.database.clone()
    };
    let store = connect(&user).await;
    let mut changes = store.changes();
    for name in ["kept", "changed", "deleted"] {
        create(&store, name).await;
    }
    reported(&mut changes, &["kept", "changed", "deleted"]).await;

    Visitor { cluster: &cluster, database: user.clone() }.lock_out();
    cluster.stop().unwrap();
    cluster.start_again().unwrap();
    let visitor = Visitor { cluster: &cluster, database: user };
    let other = connect(&database).await;
    let expected = other.snapshot().unwrap().get(&key("changed")).unwrap().version;
    other.write(vec![Write::Update { resource: secret("changed"), expected }]).await.unwrap();
    delete(&other, "deleted").await;
    create(&other, "created").await;
    eventually(&store, "the store is locked out", |shown| shown.is_err()).await;
    assert_eq!(changes.try_next(), None, "the store cannot know yet");

    visitor.let_in();
    reported(&mut changes, &["changed", "deleted", "created"]).await;
    eventually(&store, "the store serves again", |shown| shown.is_ok()).await;
    assert_eq!(contents(&store), contents(&other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_log_makes_everything_dirty() {
    let database = fresh_database().unwrap();
    let visitor = Visitor::of(shared().unwrap(), &database);
    let store = connect(&visitor.database).await;
    let other = connect(&database).await;
    create(&store, "kept").await;
    let mut changes = store.changes();
    visitor.lock_out();
    visitor.throw_out();
    eventually(&store, "the store is locked out", |shown| shown.is_err()).await;
    create(&other, "created").await;
    visitor.sql("DELETE FROM kuma_rs.changes; UPDATE kuma_rs.revision SET trimmed = value");

    visitor.let_in();
    assert_eq!(next(&mut changes).await, Dirty::Everything);
    eventually(&store, "the store serves again", |shown| shown.is_ok()).await;
    assert_eq!(contents(&store), contents(&other));
}

/// Asks until the answer is this one.
async fn probed(store: &Postgres, is_expected: impl Fn(&Result<(), store::Error>) -> bool) {
    let asked = async {
        while !is_expected(&store.probe().await) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.expect("the store answers so");
}

/// Stands for a full disk, or an administrator who stops all writers: connections stay, and can be read from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_can_only_be_read_is_not_ready() {
    let cluster = postgres::Postgres::start().unwrap();
    let database = cluster.create_database("mesh").unwrap();
    let store = connect(&database).await;
    create(&store, "before").await;
    store.probe().await.unwrap();
    let mut changes = store.changes();
    let set = |sql: &str| {
        cluster.sql("mesh", sql).unwrap();
        cluster.sql("mesh", "SELECT pg_reload_conf()").unwrap();
    };
    set("ALTER SYSTEM SET default_transaction_read_only = on");
    probed(&store, Result::is_err).await;
    assert!(store.outage().is_none(), "what is shown is current");
    unavailable(store.write(vec![Write::Create(secret("meanwhile"))]).await);

    set("ALTER SYSTEM RESET default_transaction_read_only");
    probed(&store, Result::is_ok).await;
    assert_eq!(changes.try_next(), None, "asking changes nothing");
    create(&store, "after").await;
    reported(&mut changes, &["after"]).await;
}

/// Stands for a failover to a replica that lags behind, or a backup put back in place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_lost_commits_is_read_again() {
    for another_history in [false, true] {
        let database = fresh_database().unwrap();
        let visitor = Visitor::of(shared().unwrap(), &database);
        let store = connect(&visitor.database).await;
        create(&store, "kept").await;
        create(&store, "lost").await;
        let mut changes = store.changes();
        let seen = store.snapshot().unwrap().revision();
        visitor.lock_out();
        visitor.throw_out();
        eventually(&store, "the store is locked out", |shown| shown.is_err()).await;
        visitor.sql("DELETE FROM kuma_rs.resources WHERE name = 'lost'");
        visitor.sql("DELETE FROM kuma_rs.changes WHERE revision = 2");
        visitor.sql("UPDATE kuma_rs.revision SET value = 1");
        if another_history {
            // Another store wrote as much as was lost before the store came back.
            visitor.sql("UPDATE kuma_rs.revision SET history = 'another'");
            create(&connect(&database).await, "instead").await;
        }

        visitor.let_in();
        assert_eq!(next(&mut changes).await, Dirty::Everything);
        eventually(&store, "the store serves again", |shown| shown.is_ok()).await;
        let other = connect(&database).await;
        assert_eq!(contents(&store), contents(&other));
        assert_eq!(store.snapshot().unwrap().get(&key("lost")), None);
        assert!(store.snapshot().unwrap().revision() > seen, "revisions only grow");
        create(&other, "next").await;
        reported(&mut changes, &["next"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_lost_commits_refuses_writes_until_it_was_read_again() {
    let database = fresh_database().unwrap();
    let store = connect(&database).await;
    create(&store, "kept").await;
    create(&store, "lost").await;
    let mut changes = store.changes();
    let lose = "DELETE FROM kuma_rs.resources WHERE name = 'lost'; UPDATE kuma_rs.revision SET value = 1";
    shared().unwrap().sql(&database.name, lose).unwrap();

    let why = unavailable(store.write(vec![Write::Create(secret("next"))]).await);
    assert!(why.contains("revision 1") && why.contains("lost commits"), "{why}");
    assert_eq!(next(&mut changes).await, Dirty::Everything);
    eventually(&store, "the store serves again", |shown| shown.is_ok()).await;
    create(&store, "next").await;
    let names: Vec<String> = contents(&store).iter().map(|r| r.name().to_owned()).collect();
    assert_eq!(names, ["kept", "next"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_during_a_commit_leaves_the_outcome_open() {
    let database = fresh_database().unwrap();
    let proxy = TcpProxy::start(database.port).await;
    let store = Postgres::connect(PostgresConfig { port: proxy.port, ..config(&database) }).await.unwrap();
    create(&store, "before").await;
    let mut changes = store.changes();
    proxy.cut_at_the_next_commit();
    let why = unavailable(store.write(vec![Write::Create(secret("open"))]).await);
    assert!(why.contains("unknown"), "{why}");
    // In this case it did happen, and the store shows it like any other write.
    reported(&mut changes, &["open"]).await;
    create(&store, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_crashes_of_the_server() {
    let mut cluster = postgres::Postgres::start().unwrap();
    let database = cluster.create_database("mesh").unwrap();
    let store = Arc::new(connect(&database).await);
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            let done = done.clone();
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for n in 0.. {
                    if done.load(Ordering::SeqCst) {
                        break;
                    }
                    let secret = secret(&format!("{writer}-{n}"));
                    let key = secret.key.clone();
                    match store.write(vec![Write::Create(secret)]).await {
                        Ok(_) => acknowledged.push(key),
                        Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                    }
                }
                acknowledged
            })
        })
        .collect();
    for _ in 0..5 {
        let revision = loop {
            if let Ok(snapshot) = vouched_for(&store) {
                break snapshot.revision();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let grown =
            |shown: Result<Arc<store::Snapshot>, _>| shown.is_ok_and(|s| s.revision() > revision + 20);
        eventually(&store, "writes go on", grown).await;
        cluster.stop().unwrap();
        cluster.start_again().unwrap();
    }
    done.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    eventually(&store, "the store serves again", |shown| shown.is_ok()).await;
    let fresh = connect(&database).await;
    for key in &acknowledged {
        assert!(fresh.snapshot().unwrap().get(key).is_some(), "{key} was acknowledged and is lost");
    }
    assert_eq!(contents(&store), contents(&fresh));
}
