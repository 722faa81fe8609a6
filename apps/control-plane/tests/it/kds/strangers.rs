//! A zone whose global control plane was replaced by one that made its meshes and keys anew.

use std::fs;

use testkit::peers::{HostileGlobal, synced};

use super::{
    keys::{forget, held, mesh, web, with_proxy},
    *,
};
use resources::{Key, Kind};

const MESH: &str = "/meshes/shop";
const SIGNING_KEY: &str = "/meshes/shop/secrets/dataplane-token-signing-key-shop-1";

fn plain() -> Value {
    json!({ "type": "Mesh", "name": "shop" })
}

async fn is_mutual(running: &Running) -> bool {
    !get(running, MESH).await["mtls"].is_null()
}

async fn key(running: &Running) -> Value {
    get(running, SIGNING_KEY).await["data"].clone()
}

async fn accept(zone: &Running, kinds: &str) {
    let labels = json!({ "kuma.io/accept-deletions": kinds });
    assert_eq!(
        put(zone, "/zones/east", json!({ "type": "Zone", "name": "east", "labels": labels })).await,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_made_anew_replaces_meshes_in_use_once_accepted() {
    let World { global_dir, zone_dir, global, zone, wire } = with_proxy().await;
    let before = key(&zone).await;
    wire.cut();
    global.finish().await;
    forget(global_dir.path());
    let global = start(global_config(global_dir.path())).await;
    assert_eq!(put(&global, MESH, plain()).await, 201);
    eventually("the new mesh has a key", || async { has(&global, SIGNING_KEY).await }).await;
    assert_ne!(key(&global).await, before);
    // What is written after the connection was made is no different.
    wire.lead_to(local(global.kds));
    let is_told = async |zone: &Running| {
        let problems = held(zone).await;
        let reasons = ["shop.", "dataplane-token-signing-key-shop-1.shop", "another global control plane"];
        reasons.iter().all(|reason| problems.contains(reason))
    };
    eventually("the zone says what is held back", || async { is_told(&zone).await }).await;
    eventually("global says so, too", || async {
        let insight = get(&global, "/zones/_overview").await["items"][0]["zoneInsight"].clone();
        insight["problems"].to_string().contains("another global control plane")
    })
    .await;
    let path = "/meshes/shop/meshtimeouts/welcome";
    let mut welcome = timeout("welcome", json!({}));
    welcome["mesh"] = json!("shop");
    assert_eq!(put(&global, path, welcome).await, 201);
    let there = format!("/meshes/shop/meshtimeouts/{}", hashed_name("shop", "welcome", None, None));
    eventually("what replaces nothing comes in", || async { has(&zone, &there).await }).await;
    assert!(is_mutual(&zone).await);
    assert_eq!(key(&zone).await, before);

    zone.finish().await;
    let zone = start(zone_config(zone_dir.path(), "east", wire.addr, global_dir.path())).await;
    eventually("the zone remembers it after a restart", || async { is_told(&zone).await }).await;
    assert!(is_mutual(&zone).await);
    assert_eq!(key(&zone).await, before);

    accept(&zone, "Mesh").await;
    eventually("the mesh is replaced", || async { !is_mutual(&zone).await }).await;
    assert_eq!(key(&zone).await, before, "the key waits");
    accept(&zone, "all").await;
    let now = key(&global).await;
    eventually("the key is replaced", || async { key(&zone).await == now }).await;
    eventually("nothing is held back any more", || async { !held(&zone).await.contains("held back") }).await;
    accept(&zone, "MeshTimeout").await;
    assert_eq!(put(&global, MESH, mesh()).await, 200);
    eventually("it is the zone's own now", || async { is_mutual(&zone).await }).await;
    zone.finish().await;
    global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls_turned_off_on_purpose_is_off_and_back_with_a_backup() {
    let World { global_dir, zone_dir: _zone_dir, global, zone, wire } = with_proxy().await;
    wire.cut();
    global.finish().await;
    let backup = tempdir().unwrap();
    let copy = |from: &Path, to: &Path| {
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with("kuma.db") {
                fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    };
    copy(global_dir.path(), backup.path());
    let global = start(global_config(global_dir.path())).await;
    wire.lead_to(local(global.kds));
    assert_eq!(put(&global, MESH, plain()).await, 200);
    eventually("it is off in the zone", || async { !is_mutual(&zone).await }).await;
    wire.cut();
    global.finish().await;
    forget(global_dir.path());
    copy(backup.path(), global_dir.path());
    let global = start(global_config(global_dir.path())).await;
    wire.lead_to(local(global.kds));
    eventually("it is on again", || async { is_mutual(&zone).await }).await;
    assert!(!held(&zone).await.contains("another global control plane"));
    zone.finish().await;
    global.finish().await;
}

/// A zone of a global control plane that says what it likes.
fn zone_of(directory: &Path, global: &HostileGlobal) -> Config {
    let mut config = zone_config(directory, "east", global.address, directory);
    config.synchronisation.multizone.zone.global_address = format!("grpc://{}", global.address);
    config.synchronisation.multizone.zone.kds.root_ca_file = String::new();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_with_no_or_another_identifier_takes_no_key() {
    let directory = tempdir().unwrap();
    let mesh = |spec: &Value| synced(Key::new(Kind::Mesh, "", "shop"), &[], spec.clone()).unwrap();
    let id = |id: &str| {
        synced(Key::new(Kind::Config, "", "kuma-cluster-id"), &[], json!({ "config": id })).unwrap()
    };
    let key_of = |data: &str| {
        let key = Key::new(Kind::Secret, "shop", "dataplane-token-signing-key-shop-1");
        synced(key, &[], json!({ "data": data })).unwrap()
    };
    let first = HostileGlobal::start().await.unwrap();
    let zone = start(zone_of(directory.path(), &first)).await;
    assert_eq!(first.say("Config", vec![id("a")]).await.unwrap(), None);
    assert_eq!(first.say("Mesh", vec![mesh(&super::keys::mesh())]).await.unwrap(), None);
    assert_eq!(first.say("Secret", vec![key_of("b25l")]).await.unwrap(), None);
    assert_eq!(put(&zone, "/meshes/shop/dataplanes/web", web()).await, 201);
    zone.finish().await;

    let second = HostileGlobal::start().await.unwrap();
    let zone = start(zone_of(directory.path(), &second)).await;
    for named in [None, Some("b")] {
        if let Some(named) = named {
            assert_eq!(second.say("Config", vec![id(named)]).await.unwrap(), None);
        }
        for resource in [mesh(&json!({})), key_of("dHdv")] {
            let kind = resource.key.kind.name();
            let refused = second.say(kind, vec![resource]).await.unwrap().unwrap_or_default();
            assert!(refused.contains("1 changes are held back"), "{named:?}: {kind}: {refused}");
        }
        assert!(is_mutual(&zone).await, "{named:?}");
        assert_eq!(key(&zone).await, "b25l", "{named:?}");
    }
    // The zone's own comes back, and what it has said meanwhile is made.
    assert_eq!(second.say("Config", vec![id("a")]).await.unwrap(), None);
    eventually("the mesh is replaced", || async { !is_mutual(&zone).await }).await;
    eventually("the key is replaced", || async { key(&zone).await == "dHdv" }).await;
    zone.finish().await;
}
