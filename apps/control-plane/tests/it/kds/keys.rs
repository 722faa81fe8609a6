//! Keys and meshes of proxies, when the global control plane has lost its memory.

use std::{fs, path::Path};

use identity::ca::Authority;
use jiff::Timestamp;
use store::Store;
use store_sqlite::Sqlite;

use super::*;

const MESH: &str = "/meshes/shop";
const SECRETS: &str = "/meshes/shop/secrets";

pub fn mesh() -> Value {
    json!({ "type": "Mesh", "name": "shop", "mtls": { "enabledBackend": "ca",
        "backends": [{ "name": "ca", "type": "builtin" }] } })
}

/// Deletes the database; the certificate stays, so that the zone connects.
pub fn forget(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("kuma.db") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Problems that the zone reports of itself, which name what is held back.
pub async fn held(zone: &Running) -> String {
    get(zone, "/zones/east/_overview").await["zoneInsight"]["problems"].to_string()
}

pub fn web() -> Value {
    json!({ "type": "Dataplane", "mesh": "shop", "name": "web", "networking": { "address": "10.0.0.1",
        "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } }] } })
}

/// A zone with a proxy in the mesh `shop`, which has mutual TLS.
pub async fn with_proxy() -> World {
    let world = World::new().await;
    assert_eq!(put(&world.global, MESH, mesh()).await, 201);
    let keys = ["dataplane-token-signing-key-shop-1", "shop.ca-builtin-cert-ca", "shop.ca-builtin-key-ca"];
    eventually("the keys are in the zone", || async {
        let there = names(&world.zone, "/secrets").await;
        keys.iter().all(|key| there.iter().any(|name| name == key))
    })
    .await;
    assert_eq!(put(&world.zone, "/meshes/shop/dataplanes/web", web()).await, 201);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_global_takes_neither_mesh_nor_keys_from_proxies() {
    let world = with_proxy().await;
    let before = get(&world.zone, SECRETS).await;
    let World { global_dir, zone_dir, global, zone, wire } = world;
    wire.cut();
    global.finish().await;
    forget(global_dir.path());
    let global = start(global_config(global_dir.path())).await;
    assert!(!has(&global, MESH).await);
    for connection in 0..4 {
        wire.lead_to(local(global.kds));
        eventually("the zone was told what global has", || async {
            let insight = get(&global, "/zones/_overview").await["items"][0]["zoneInsight"].clone();
            let problems = insight["problems"].to_string();
            online(&insight) && problems.contains("Secret") && problems.contains("held back")
        })
        .await;
        assert!(held(&zone).await.contains("held back"), "connection {connection}");
        assert!(has(&zone, MESH).await, "connection {connection}");
        assert_eq!(get(&zone, SECRETS).await["items"], before["items"], "connection {connection}");
        wire.cut();
        eventually("global notices", || async {
            !online(&get(&global, "/zones/_overview").await["items"][0]["zoneInsight"])
        })
        .await;
    }
    let request = json!({ "name": "web", "mesh": "shop", "type": "dataplane", "validFor": "1h" });
    assert_eq!(post(&zone, "/tokens/dataplane", request).await.0, 200, "proxies get tokens");
    zone.finish().await;
    global.finish().await;
    let stored = Sqlite::open(zone_dir.path().join("kuma.db")).unwrap();
    let snapshot = stored.snapshot().unwrap();
    let authority = Authority::load(&*snapshot, "shop", "ca", Timestamp::now());
    assert!(authority.is_ok(), "and certificates: {authority:?}");
}
