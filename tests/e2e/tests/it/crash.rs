//! Nothing acknowledged is lost, nothing is torn, whenever the process dies.
//!
//! Writers change secrets whose content repeats one number, and create meshes, which come with
//! companions. After every `kill -9` each secret must hold a number between the last one
//! acknowledged and the last one attempted, whole; and a mesh must be there with all its companions
//! or not at all.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use e2e::{Client, ControlPlane, Setup, eventually};
use rand::Rng;
use serde_json::json;
use testkit::postgres::Postgres;

const WRITERS: usize = 4;
const SECRETS_EACH: usize = 6;

/// Values that a writer knows of one of its secrets.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    attempted: u64,
}

#[derive(Debug, Default)]
struct Ledger {
    secrets: BTreeMap<String, Known>,
    meshes: BTreeMap<String, bool>,
}

#[test]
fn two_hundred_kills_lose_nothing_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(dir.path(), Setup::default()).unwrap();
    survive(control_plane, 200);
}

#[test]
fn fifty_kills_lose_nothing_on_postgresql() {
    let postgres = Postgres::start().unwrap();
    let database = postgres.create_database("crash").unwrap();
    let setup = Setup::default().on_postgres(&database);
    let dir = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(dir.path(), setup).unwrap();
    survive(control_plane, 50);
}

fn survive(mut control_plane: ControlPlane, kills: usize) {
    let ledgers: Vec<_> = (0..WRITERS).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
    let mut written = 0;
    for round in 0..kills {
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = ledgers
            .iter()
            .enumerate()
            .map(|(writer, ledger)| {
                let client = control_plane.client();
                let ledger = ledger.clone();
                let acknowledged = acknowledged.clone();
                let stop = stop.clone();
                thread::spawn(move || write(&client, writer, round, &ledger, &acknowledged, &stop))
            })
            .collect();
        eventually("the first acknowledged write", || acknowledged.load(Ordering::Relaxed) > 0)
            .unwrap_or_else(|error| panic!("round {round}: {error}\n{}", control_plane.log()));
        thread::sleep(Duration::from_micros(rand::rng().random_range(0..60_000)));
        control_plane.kill().unwrap();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
        written += acknowledged.load(Ordering::Relaxed);
        control_plane.start_again().unwrap();
        let client = control_plane.client();
        for ledger in &ledgers {
            verify(&client, &mut ledger.lock().unwrap(), round);
        }
    }
    assert!(written >= kills, "only {written} writes in {kills} rounds prove nothing");
}

/// Writes until stopped or until the control plane is gone.
fn write(
    client: &Client,
    writer: usize,
    round: usize,
    ledger: &Mutex<Ledger>,
    acknowledged: &AtomicUsize,
    stop: &AtomicBool,
) {
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("crash-{writer}-{}", turn % SECRETS_EACH);
        let number = {
            let mut ledger = ledger.lock().unwrap();
            let known = ledger.secrets.entry(name.clone()).or_default();
            known.attempted += 1;
            known.attempted
        };
        let Ok(answer) = client.put(&format!("/global-secrets/{name}"), &secret(&name, number)) else {
            return;
        };
        assert!(matches!(answer.status, 200 | 201), "{name}: {} {}", answer.status, answer.body);
        ledger.lock().unwrap().secrets.get_mut(&name).unwrap().acknowledged = number;
        acknowledged.fetch_add(1, Ordering::Relaxed);
        turn += 1;
        if turn == 2 && writer == 0 {
            let mesh = format!("crash-{round}");
            ledger.lock().unwrap().meshes.insert(mesh.clone(), false);
            let Ok(answer) = client.put(&format!("/meshes/{mesh}"), &json!({"type": "Mesh", "name": mesh}))
            else {
                return;
            };
            assert_eq!(answer.status, 201, "{}", answer.body);
            ledger.lock().unwrap().meshes.insert(mesh, true);
        }
    }
}

/// About 4 KB that say the same number all over.
fn secret(name: &str, number: u64) -> serde_json::Value {
    let data = BASE64_STANDARD.encode(format!("{number:016}").repeat(192));
    json!({"type": "GlobalSecret", "name": name, "data": data})
}

fn verify(client: &Client, ledger: &mut Ledger, round: usize) {
    for (name, known) in &mut ledger.secrets {
        let answer = client.get(&format!("/global-secrets/{name}")).unwrap();
        if answer.status == 404 {
            assert_eq!(known.acknowledged, 0, "round {round}: {name} was acknowledged and is gone");
            continue;
        }
        let stored = answer.json();
        let data = stored["data"].as_str().unwrap_or_default();
        let text = String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap();
        let number: u64 = text[..16].parse().unwrap();
        assert_eq!(text, format!("{number:016}").repeat(192), "round {round}: {name} is torn");
        assert!(
            (known.acknowledged..=known.attempted).contains(&number),
            "round {round}: {name} holds {number}, acknowledged {known:?}"
        );
        *known = Known { acknowledged: number, attempted: known.attempted };
    }
    for (mesh, acknowledged) in &mut ledger.meshes {
        let stored = client.get(&format!("/meshes/{mesh}")).unwrap().status == 200;
        assert!(stored || !*acknowledged, "round {round}: mesh {mesh} was acknowledged and is gone");
        if stored {
            for companion in [
                format!("/meshes/{mesh}/secrets/dataplane-token-signing-key-{mesh}-1"),
                format!("/meshes/{mesh}/meshtimeouts/mesh-timeout-all-{mesh}"),
            ] {
                assert_eq!(
                    client.get(&companion).unwrap().status,
                    200,
                    "round {round}: {companion} is missing"
                );
            }
        }
    }
    // One look at each mesh is enough: later rounds do not touch it.
    ledger.meshes.clear();
}
