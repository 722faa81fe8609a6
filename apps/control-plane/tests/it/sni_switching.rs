//! In a zone among others, clients dial a new SNI when the zone proxies of the zone have acknowledged it.

use std::{sync::Arc, time::Duration};

use plan::{ProxyKind, ProxyTraits};
use reconcilers::snis;
use resources::{Key, Kind, Resource};
use serde_json::json;
use tokio::time::sleep;
use xds::{Counters, Rejection, Type};

use crate::world::{
    ConnectedProxy, SOON, World, eventually, mesh, registrar_of, resource, rewritten, runner, traits,
};

const HASH: &str = "a601e0c00295a9fbe.backend.80.default.ms";
/// Time for which a zone proxy that is away is waited for.
const ABSENCE: Duration = Duration::from_secs(60);

/// A zone that takes over from a control plane which writes no lists, with an ingress of this name.
async fn replaced(ingresses: &[&str]) -> World {
    let world = World::new();
    let labels = [("kuma.io/origin", "zone"), ("kuma.io/zone", "default")];
    let backend = Key::new(Kind::MeshService, "default", "backend");
    let backend = resource(backend, &labels, json!({ "ports": [{ "port": 80, "targetPort": 80 }] }));
    let gates = ingresses.iter().map(|name| ingress(name));
    world.put([mesh("default", "STRICT"), backend].into_iter().chain(gates)).await;
    let registrar = Arc::new(registrar_of(world.store.clone(), true));
    snis::start(&registrar, &world.push, &runner(&world.store, &world.shutdown)).await;
    world
}

fn ingress(name: &str) -> Resource {
    let networking = json!({
        "address": "127.0.0.7", "port": 10001, "advertisedAddress": "192.168.0.9", "advertisedPort": 10001
    });
    let spec = json!({ "zone": "default", "networking": networking });
    resource(Key::global(Kind::ZoneIngress, name), &[], spec)
}

fn listed(world: &World) -> Vec<String> {
    let snapshot = world.store.snapshot().unwrap();
    let spec = snapshot.get(&Key::new(Kind::MeshService, "default", "backend")).unwrap().spec.to_json();
    let snis = spec["ports"][0]["snis"].as_array().cloned().unwrap_or_default();
    snis.iter().map(|sni| sni["value"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the hash of the zone is listed; returns it.
async fn announced(world: &World) -> String {
    eventually("the new value is listed", || listed(world).len() == 2).await;
    world.push.caught_up().await;
    let listed = listed(world);
    assert_eq!(listed[0], HASH, "clients dial what they dialled");
    listed[1].clone()
}

async fn connected(world: &World, name: &str) -> ConnectedProxy {
    let traits = ProxyTraits { kind: ProxyKind::INGRESS, ..traits("", name) };
    let mut gate = ConnectedProxy::connect(world, traits);
    gate.turn().await;
    gate
}

/// The zone proxy takes in what it has to, and answers.
async fn answer(gate: &mut ConnectedProxy, rejected: Option<&str>) {
    gate.turn().await;
    let status = |kind: Type| xds::Status {
        kind,
        requested: true,
        pending: 0,
        rejected: rejected
            .iter()
            .filter(|_| kind == Type::Listener)
            .map(|name| Rejection {
                name: (*name).into(),
                version: 1,
                message: String::new(),
                has_another: true,
            })
            .collect(),
        counters: Counters::default(),
    };
    gate.connected.look(&Type::ALL.map(status), 0);
}

fn accepts(gate: &ConnectedProxy, value: &str) -> bool {
    let received = gate.received().unwrap();
    let mut listeners = received.iter().filter(|(kind, ..)| *kind == Type::Listener);
    listeners.any(|(_, _, body)| String::from_utf8_lossy(body).contains(value))
}

async fn is_dialled(world: &World, value: &str) {
    let deadline = tokio::time::Instant::now() + SOON;
    while listed(world) != [value, HASH] {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", listed(world));
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_value_is_dialled_when_the_ingress_has_acknowledged_it() {
    let world = replaced(&["gate"]).await;
    let new = announced(&world).await;
    let mut gate = connected(&world, "gate").await;
    assert!(accepts(&gate, &new), "the ingress is told at once");
    sleep(10 * ABSENCE).await;
    assert_eq!(listed(&world), [HASH, &new], "it has not answered");
    answer(&mut gate, Some("self_10001")).await;
    sleep(ABSENCE).await;
    assert_eq!(listed(&world), [HASH, &new], "it has rejected that");
    answer(&mut gate, None).await;
    is_dialled(&world, &new).await;

    // A write does not take it back, and neither does a start.
    let registrar = registrar_of(world.store.clone(), true);
    assert_eq!(rewritten(&registrar).await, 0);
    assert_eq!(listed(&world), [&new, HASH]);
}

#[tokio::test(start_paused = true)]
async fn a_start_has_written_the_lists_before_an_ingress_can_connect() {
    // Other zones dial the new value: the control plane before this one had put it first.
    let world = replaced(&["gate"]).await;
    let [hash, new] = &listed(&world)[..] else { panic!("{:?}", listed(&world)) };
    assert_eq!(hash, HASH);
    let gate = connected(&world, "gate").await;
    assert!(accepts(&gate, new));
}

#[tokio::test(start_paused = true)]
async fn what_an_ingress_acknowledged_before_it_knew_a_value_does_not_count() {
    let world = World::new();
    world.put([mesh("default", "STRICT"), ingress("gate")]).await;
    let mut gate = connected(&world, "gate").await;
    answer(&mut gate, None).await;
    let registrar = Arc::new(registrar_of(world.store.clone(), true));
    snis::start(&registrar, &world.push, &runner(&world.store, &world.shutdown)).await;
    let spec = json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
    let spec = resources::Spec::from_json(Kind::MeshService, spec, &mut Vec::new()).unwrap();
    let backend = Key::new(Kind::MeshService, "default", "backend");
    let mut draft = resources::Draft::new(backend, spec);
    draft.labels.insert("kuma.io/origin".to_owned(), "zone".to_owned());
    registrar.put(draft).await.unwrap();
    let new = announced(&world).await;
    sleep(ABSENCE).await;
    assert_eq!(listed(&world), [HASH, &new]);
    answer(&mut gate, None).await;
    is_dialled(&world, &new).await;
}

#[tokio::test(start_paused = true)]
async fn every_ingress_is_waited_for_and_one_that_is_away_for_a_minute() {
    let world = replaced(&["gate", "other", "dead"]).await;
    let new = announced(&world).await;
    let mut gate = connected(&world, "gate").await;
    answer(&mut gate, None).await;
    sleep(ABSENCE / 2).await;
    let mut other = connected(&world, "other").await;
    sleep(ABSENCE).await;
    assert_eq!(listed(&world), [HASH, &new], "one is connected and has not answered");
    answer(&mut other, None).await;
    is_dialled(&world, &new).await;
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn without_an_ingress_nobody_has_acknowledged_anything() {
    let world = replaced(&[]).await;
    let new = announced(&world).await;
    sleep(10 * ABSENCE).await;
    assert_eq!(listed(&world), [HASH, &new]);
    // The first one that comes is enough.
    world.put([ingress("gate")]).await;
    let mut gate = connected(&world, "gate").await;
    answer(&mut gate, None).await;
    is_dialled(&world, &new).await;
}
