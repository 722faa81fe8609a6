//! Services come and go by the thousand, while two control planes on one PostgreSQL give them addresses.

mod hostnames;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use reconcilers::mesh_services;
use resources::{Key, Kind, Resource, Status};
use runtime::Shutdown;
use serde_json::json;
use store::{Dirty, Error, Store, Write};
use store_postgres::Postgres;
use testkit::postgres::{Database, fresh_database, shared};

use crate::world::{mesh, registrar, resource, runner};

const ROUNDS: usize = 50;
/// Number of services that come in a round, while those of the round before go.
const BATCH: usize = 200;
const QUARANTINE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(database: &Database) -> Arc<dyn Store> {
    let config = store_postgres::PostgresConfig {
        host: database.host.clone(),
        port: database.port,
        user: database.user.clone(),
        password: database.password.clone(),
        db_name: database.name.clone(),
        ..store_postgres::PostgresConfig::default()
    };
    Arc::new(Postgres::connect(config).await.unwrap())
}

/// A control plane that gives addresses of a range that is used up several times over.
struct ControlPlane {
    store: Arc<dyn Store>,
    shutdown: Shutdown,
}

impl ControlPlane {
    fn start(store: Arc<dyn Store>) -> ControlPlane {
        let mut config = reconcilers::Config::default();
        config.ipam.mesh_service.cidr = "241.0.0.0/21".parse().unwrap();
        config.ipam.quarantine = "1s".parse().unwrap();
        let shutdown = Shutdown::default();
        mesh_services::start(
            &registrar(store.clone()),
            Arc::default(),
            &config,
            "default",
            &runner(&store, &shutdown),
        );
        ControlPlane { store, shutdown }
    }

    /// Begins again with what is stored, as a new process.
    fn restart(&mut self) {
        self.shutdown.begin();
        *self = ControlPlane::start(self.store.clone());
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

/// Addresses that were seen, and anything wrong with them.
#[derive(Default)]
struct Seen {
    /// By service that is there.
    vips: BTreeMap<Arc<str>, String>,
    holders: HashMap<String, Arc<str>>,
    /// By service, when its deletion was asked for.
    deleted: HashMap<Arc<str>, Timestamp>,
    /// By address, the last service that had it.
    last: HashMap<String, Arc<str>>,
    reused: usize,
    wrong: Vec<String>,
}

impl Seen {
    fn look(&mut self, name: &Arc<str>, service: Option<&Arc<Resource>>) {
        let vip = service.and_then(|service| match &service.status {
            Some(Status::MeshService(status)) => status.vips.first().map(|vip| vip.ip.clone()),
            _ => None,
        });
        let before = self.vips.get(name).cloned();
        match (before, vip, service) {
            (Some(before), _, None) => {
                self.vips.remove(name);
                self.holders.remove(&before);
            }
            (Some(before), vip, Some(_)) if vip.as_ref() != Some(&before) => {
                self.wrong.push(format!("{name} had {before} and has {vip:?}"));
            }
            // A status does not say when it was written.
            (None, Some(vip), Some(_)) => self.given(name, &vip, Timestamp::now()),
            _ => {}
        }
    }

    fn given(&mut self, name: &Arc<str>, vip: &str, at: Timestamp) {
        if let Some(last) = self.last.insert(vip.to_owned(), name.clone()) {
            self.reused += 1;
            match self.deleted.get(&last) {
                Some(deleted) if *deleted + QUARANTINE <= at => {}
                deleted => {
                    self.wrong
                        .push(format!("{vip} of {last}, deleted {deleted:?}, is given to {name} at {at}"));
                }
            }
        }
        if let Some(other) = self.holders.insert(vip.to_owned(), name.clone()) {
            // What is gone may be seen later than what came.
            if !self.deleted.contains_key(&other) {
                self.wrong.push(format!("{other} and {name} have {vip}"));
            }
        }
        self.vips.insert(name.clone(), vip.to_owned());
    }
}

/// Follows every change of services.
async fn observe(store: Arc<dyn Store>, seen: Arc<Mutex<Seen>>) {
    let mut changes = store.changes();
    while let Some(dirty) = changes.next().await {
        let Ok(snapshot) = store.snapshot() else { continue };
        let mut seen = seen.lock().unwrap();
        let names: BTreeSet<Arc<str>> = match dirty {
            Dirty::Keys(keys) => {
                keys.iter().filter(|key| key.kind == Kind::MeshService).map(|key| key.name.clone()).collect()
            }
            Dirty::Everything => {
                let stored = snapshot.in_mesh(Kind::MeshService, "default").map(|s| s.key.name.clone());
                stored.chain(seen.vips.keys().cloned()).collect()
            }
        };
        for name in names {
            seen.look(&name, snapshot.get(&Key::new(Kind::MeshService, "default", &name)));
        }
    }
}

/// Makes writes until each is made: the connection may be lost in between.
async fn insist(store: &dyn Store, mut writes: Vec<Write>) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !writes.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "{} writes are not made", writes.len());
        let outcomes = store.write_each(writes.clone()).await;
        let failed = |outcome: &Result<_, Error>| outcome.as_ref().is_err_and(|error| !error.is_outdated());
        let failed: Vec<bool> = outcomes.iter().map(failed).collect();
        writes =
            writes.into_iter().zip(failed).filter_map(|(write, failed)| failed.then_some(write)).collect();
        if !writes.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn name(round: usize, i: usize) -> Arc<str> {
    format!("s-{round}-{i}").into()
}

fn created(name: &str) -> Write {
    let spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": name } },
        "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }],
    });
    let now = Timestamp::now();
    let service = resource(Key::new(Kind::MeshService, "default", name), &[], spec);
    Write::Create(Resource { created: now, modified: now, ..service })
}

/// Breaks every connection: followers of the store read everything again.
fn break_connections(database: &Database) {
    let all = format!("datname = '{}' AND pid <> pg_backend_pid()", database.name);
    let end = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {all}");
    shared().unwrap().sql(&database.name, &end).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_address_of_ten_thousand_services_changes_or_returns_too_soon() {
    let database = fresh_database().unwrap();
    let user = connect(&database).await;
    insist(user.as_ref(), vec![Write::Create(mesh("default", ""))]).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let observer = tokio::spawn(observe(user.clone(), seen.clone()));
    let mut control_planes = Vec::new();
    for _ in 0..2 {
        control_planes.push(ControlPlane::start(connect(&database).await));
    }
    for round in 0..ROUNDS {
        insist(user.as_ref(), (0..BATCH).map(|i| created(&name(round, i))).collect()).await;
        until("every service has an address", || {
            let seen = seen.lock().unwrap();
            (0..BATCH).all(|i| seen.vips.contains_key(&name(round, i)))
        })
        .await;
        match round % 20 {
            3 | 13 => control_planes[0].restart(),
            6 | 16 => control_planes[1].restart(),
            9 => break_connections(&database),
            _ => {}
        }
        if let Some(before) = round.checked_sub(1) {
            let now = Timestamp::now();
            let gone = (0..BATCH).map(|i| (name(before, i), now));
            seen.lock().unwrap().deleted.extend(gone);
            let delete = |i| Write::Delete {
                key: Key::new(Kind::MeshService, "default", &name(before, i)),
                expected: None,
            };
            insist(user.as_ref(), (0..BATCH).map(delete).collect()).await;
        }
    }
    until("the deletions are seen", || seen.lock().unwrap().vips.len() == BATCH).await;
    observer.abort();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.wrong, [""; 0]);
    let distinct: BTreeSet<&String> = seen.vips.values().collect();
    assert_eq!(distinct.len(), BATCH, "one address each");
    assert!(seen.reused > ROUNDS * BATCH / 2, "{} addresses were given again", seen.reused);
}
