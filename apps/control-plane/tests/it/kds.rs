//! A global control plane and a zone in one process, over real sockets that a test cuts.

mod events;
mod instances;
mod keys;
mod kuma_global;
mod presence;
mod strangers;
mod views;

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use control_plane::{
    boot::Running,
    config::{
        Config,
        setting::{Mode, StoreType},
    },
};
use resources::{duration::GoDuration, naming::kds::hashed_name};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::client::{agent, config, get, get_with, names, post, put, start};

/// Waits for a condition that is looked at again and again.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A wire between a zone and the global control plane.
struct Wire {
    addr: SocketAddr,
    target: watch::Sender<Option<SocketAddr>>,
}

impl Wire {
    async fn to(target: SocketAddr) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, receiver) = watch::channel(Some(target));
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut target = receiver.clone();
                let Some(to) = *target.borrow_and_update() else { continue };
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = target.changed() => {}
                    }
                });
            }
        });
        Wire { addr, target: sender }
    }

    fn cut(&self) {
        self.target.send_replace(None);
    }

    fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(Some(target));
    }
}

/// The port on loopback.
fn local(addr: Option<SocketAddr>) -> SocketAddr {
    ([127, 0, 0, 1], addr.unwrap().port()).into()
}

fn global_config(dir: &Path) -> Config {
    let mut config = config(dir, StoreType::Sqlite);
    config.mode = Mode::Global;
    config.synchronisation.multizone.global.kds.grpc_port = 0;
    config
}

fn zone_config(dir: &Path, name: &str, global: SocketAddr, ca: &Path) -> Config {
    let mut config = config(dir, StoreType::Sqlite);
    config.synchronisation.multizone.zone.name = name.to_owned();
    config.synchronisation.multizone.zone.global_address = format!("grpcs://localhost:{}", global.port());
    config.synchronisation.multizone.zone.kds.root_ca_file =
        ca.join("kuma-cp.crt").to_str().unwrap().to_owned();
    config.general.resilient_component_base_backoff = GoDuration::from_millis(20);
    config.general.resilient_component_max_backoff = GoDuration::from_millis(100);
    config
}

struct World {
    global_dir: TempDir,
    zone_dir: TempDir,
    global: Running,
    zone: Running,
    wire: Wire,
}

impl World {
    async fn new() -> World {
        let global_dir = tempdir().unwrap();
        let zone_dir = tempdir().unwrap();
        let global = start(global_config(global_dir.path())).await;
        let wire = Wire::to(local(global.kds)).await;
        let zone = start(zone_config(zone_dir.path(), "east", wire.addr, global_dir.path())).await;
        let world = World { global_dir, zone_dir, global, zone, wire };
        world.connected().await;
        world
    }

    async fn connected(&self) {
        eventually("the zone has what comes with the mesh", || async {
            names(&self.zone, "/meshtimeouts").await.len() >= 2
                && names(&self.zone, "/meshretries").await.len() == 1
        })
        .await;
        eventually("the zone is online", || async {
            let insight = self.insight().await;
            insight["absence"].is_null() && online(&insight)
        })
        .await;
    }

    async fn insight(&self) -> Value {
        get(&self.global, "/zones/_overview").await["items"][0]["zoneInsight"].clone()
    }
}

fn online(insight: &Value) -> bool {
    let subscriptions = insight["subscriptions"].as_array();
    subscriptions.into_iter().flatten().any(|subscription| subscription["disconnectTime"].is_null())
}

async fn has(running: &Running, path: &str) -> bool {
    let (status, _) = get_with(agent(None, None), format!("http://{}{path}", running.http.unwrap())).await;
    status == 200
}

fn timeout(name: &str, labels: Value) -> Value {
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "labels": labels,
        "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "7s" } }] } })
}

fn dataplane(name: &str) -> Value {
    json!({ "type": "Dataplane", "mesh": "default", "name": name, "networking": { "address": "10.0.0.1",
        "inbound": [{ "port": 80, "tags": { "kuma.io/service": name, "kuma.io/protocol": "http" } }] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_global_come_to_the_zone_and_those_of_the_zone_to_global() {
    let world = World::new().await;
    let path = "/meshes/default/meshtimeouts/patience";
    assert_eq!(put(&world.global, path, timeout("patience", json!({ "team": "a" }))).await, 201);
    let hashed = hashed_name("default", "patience", None, None);
    let there = format!("/meshes/default/meshtimeouts/{hashed}");
    eventually("the policy is in the zone", || async { has(&world.zone, &there).await }).await;
    let synced = get(&world.zone, &there).await;
    assert_eq!(synced["labels"]["kuma.io/display-name"], "patience");
    assert_eq!(synced["labels"]["kuma.io/origin"], "global");
    assert_eq!(synced["labels"]["team"], "a");
    assert_eq!(synced["spec"]["to"][0]["default"]["connectionTimeout"], "7s");

    assert_eq!(put(&world.zone, "/meshes/default/dataplanes/web", dataplane("web")).await, 201);
    let hashed = hashed_name("default", "web", Some("east"), None);
    let there = format!("/meshes/default/dataplanes/{hashed}");
    eventually("the Dataplane is on global", || async { has(&world.global, &there).await }).await;
    let synced = get(&world.global, &there).await;
    assert_eq!(synced["labels"]["kuma.io/zone"], "east");
    assert_eq!(synced["labels"]["kuma.io/display-name"], "web");
    assert_eq!(synced["networking"]["inbound"][0]["tags"]["kuma.io/zone"], "east");

    eventually("the insight is complete", || async {
        let insight = world.insight().await;
        insight["healthCheck"]["time"].is_string() && insight["kdsStreams"]["clusters"].is_object()
    })
    .await;
    let insight = world.insight().await;
    let subscription = &insight["subscriptions"][0];
    assert_eq!(subscription["version"]["kumaCp"]["version"], "2.14.3");
    let config: Value = serde_json::from_str(subscription["config"].as_str().unwrap()).unwrap();
    assert_eq!(config["store"]["type"], "sqlite");
    for stream in ["globalToZone", "zoneToGlobal", "configDump", "stats", "clusters"] {
        assert!(insight["kdsStreams"][stream]["connectTime"].is_string(), "{stream}: {insight}");
    }
    assert!(insight["healthCheck"]["time"].is_string(), "{insight}");
    assert_eq!(insight["problems"], Value::Null, "{insight}");

    let keys = names(&world.zone, "/global-secrets").await;
    assert!(keys.contains(&"zone-token-signing-public-key-1".to_owned()), "{keys:?}");
    let secret = names(&world.zone, "/meshes/default/secrets").await;
    assert_eq!(secret, ["dataplane-token-signing-key-default-1"]);
    world.zone.finish().await;
    world.global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_cut_and_restored_deletes_nothing_and_brings_missed_changes() {
    let world = World::new().await;
    assert_eq!(put(&world.zone, "/meshes/default/dataplanes/web", dataplane("web")).await, 201);
    let of_zone = format!("/meshes/default/dataplanes/{}", hashed_name("default", "web", Some("east"), None));
    eventually("the Dataplane is on global", || async { has(&world.global, &of_zone).await }).await;
    let lists = ["/meshtimeouts", "/meshcircuitbreakers", "/meshretries", "/meshes", "/dataplanes"];
    let seen = async |running: &Running| {
        let mut all = Vec::new();
        for list in lists {
            all.push(names(running, list).await);
        }
        all
    };
    let before = (seen(&world.global).await, seen(&world.zone).await);
    for round in 0..3 {
        world.wire.cut();
        eventually("global notices", || async { !world.insight().await["absence"].is_null() }).await;
        assert_eq!((seen(&world.global).await, seen(&world.zone).await), before, "round {round}");
        world.wire.lead_to(local(world.global.kds));
        world.connected().await;
        assert_eq!((seen(&world.global).await, seen(&world.zone).await), before, "round {round}");
    }
    world.wire.cut();
    let path = "/meshes/default/meshtimeouts/later";
    assert_eq!(put(&world.global, path, timeout("later", json!({}))).await, 201);
    world.wire.lead_to(local(world.global.kds));
    let there = format!("/meshes/default/meshtimeouts/{}", hashed_name("default", "later", None, None));
    eventually("what was missed is there", || async { has(&world.zone, &there).await }).await;
    world.zone.finish().await;
    world.global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_without_its_global_serves_its_store_until_both_are_back() {
    let world = World::new().await;
    let World { global_dir, zone_dir, global, zone, wire } = world;
    assert_eq!(put(&zone, "/meshes/default/dataplanes/web", dataplane("web")).await, 201);
    let of_zone = format!("/meshes/default/dataplanes/{}", hashed_name("default", "web", Some("east"), None));
    eventually("the Dataplane is on global", || async { has(&global, &of_zone).await }).await;
    let meshes = names(&zone, "/meshes/default/meshtimeouts").await;
    global.finish().await;
    zone.finish().await;

    let zone = start(zone_config(zone_dir.path(), "east", wire.addr, global_dir.path())).await;
    assert_eq!(names(&zone, "/meshes/default/meshtimeouts").await, meshes);
    assert!(has(&zone, "/meshes/default/dataplanes/web").await);
    assert_eq!(put(&zone, "/meshes/default/dataplanes/later", dataplane("later")).await, 201);

    let global = start(global_config(global_dir.path())).await;
    wire.lead_to(local(global.kds));
    let later = format!("/meshes/default/dataplanes/{}", hashed_name("default", "later", Some("east"), None));
    eventually("what the zone did meanwhile is on global", || async { has(&global, &later).await }).await;
    assert!(has(&global, &of_zone).await);
    zone.finish().await;
    global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tokens_required_only_zones_with_a_token_of_their_own_are_let_in() {
    let global_dir = tempdir().unwrap();
    let zone_dir = tempdir().unwrap();
    let mut config = global_config(global_dir.path());
    config.synchronisation.multizone.global.kds.zone_token_required = true;
    // Only to look at it without TLS; the program does not start so.
    config.synchronisation.multizone.global.kds.tls_enabled = false;
    let global = start(config).await;
    let token = async |zone: &str, scope: &str| {
        let request = json!({ "zone": zone, "scope": [scope], "validFor": "1h" });
        let (status, token) = post(&global, "/tokens/zone", request).await;
        assert_eq!(status, 200, "{token}");
        token.as_str().unwrap().to_owned()
    };
    let other = token("west", "cp").await;
    let ingress = token("east", "ingress").await;
    for (token, code, reason) in [
        (None, "16", "no%20zone%20token"),
        (Some("nonsense"), "16", "is%20refused"),
        (Some(&*other), "7", "is%20for%20zone"),
        (Some(&*ingress), "7", "no%20scope"),
    ] {
        let mut headers = vec![("client-id", "east")];
        headers.extend(token.map(|token| ("authorization", token)));
        let (status, message) = called(&global, &headers).await;
        assert_eq!((status.as_str(), message.contains(reason)), (code, true), "{message}");
    }
    assert_eq!(names(&global, "/zones").await, Vec::<String>::new());
    let metrics = format!("http://{}/metrics", global.diagnostics.unwrap());
    let (_, counted) = get_with(agent(None, None), metrics).await;
    assert!(counted.contains("kds_server_rejected_total{reason=\"unauthenticated\"} 4"), "{counted}");

    let token_file = zone_dir.path().join("token");
    std::fs::write(&token_file, token("east", "cp").await).unwrap();
    let mut config = zone_config(zone_dir.path(), "east", local(global.kds), global_dir.path());
    config.synchronisation.multizone.zone.global_address = format!("grpc://{}", local(global.kds));
    config.synchronisation.multizone.zone.kds.token_file = token_file.to_str().unwrap().to_owned();
    let zone = start(config).await;
    eventually("the zone has the mesh", || async { has(&zone, "/meshes/default").await }).await;
    eventually("the insight says that there was a token", || async {
        let overview = get(&global, "/zones/_overview").await;
        overview["items"][0]["zoneInsight"]["subscriptions"][0]["authTokenProvided"] == true
    })
    .await;
    zone.finish().await;
    global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_refused_by_a_zone_is_shown_and_keeps_no_other_out() {
    let world = World::new().await;
    let name = hashed_name("default", "taken", None, None);
    let mut own = timeout(&name, json!({ "kuma.io/origin": "zone" }));
    own["spec"]["to"][0]["default"]["connectionTimeout"] = json!("1s");
    assert_eq!(put(&world.zone, &format!("/meshes/default/meshtimeouts/{name}"), own).await, 201);
    for name in ["taken", "welcome"] {
        let path = format!("/meshes/default/meshtimeouts/{name}");
        assert_eq!(put(&world.global, &path, timeout(name, json!({}))).await, 201);
    }
    let welcome = format!("/meshes/default/meshtimeouts/{}", hashed_name("default", "welcome", None, None));
    eventually("the other policy is in the zone", || async { has(&world.zone, &welcome).await }).await;
    eventually("the reason is shown", || async {
        let problems = world.insight().await["problems"].to_string();
        problems.contains("MeshTimeout") && problems.contains("has a resource of its own with this name")
    })
    .await;
    eventually("the rejection is counted", || async {
        let total = world.insight().await["subscriptions"][0]["status"]["total"].clone();
        total["responsesRejected"].is_string()
    })
    .await;
    world.zone.finish().await;
    world.global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_that_lost_its_store_deletes_nothing_until_accepted() {
    let world = World::new().await;
    let policies = |n: usize| format!("/meshes/default/meshtimeouts/t{n}");
    for n in 0..20 {
        assert_eq!(put(&world.global, &policies(n), timeout(&format!("t{n}"), json!({}))).await, 201);
    }
    eventually("all are in the zone", || async { names(&world.zone, "/meshtimeouts").await.len() == 22 })
        .await;
    world.wire.cut();
    for n in 0..20 {
        delete(&world.global, &policies(n)).await;
    }
    world.wire.lead_to(local(world.global.kds));
    eventually("global shows that the zone does not believe it", || async {
        let problems = world.insight().await["problems"].to_string();
        problems.contains("MeshTimeout") && problems.contains("20 deletions are held back")
    })
    .await;
    assert_eq!(names(&world.zone, "/meshtimeouts").await.len(), 22);
    let accept =
        json!({ "type": "Zone", "name": "east", "labels": { "kuma.io/accept-deletions": "MeshTimeout" } });
    assert_eq!(put(&world.zone, "/zones/east", accept).await, 200);
    eventually("they are deleted", || async { names(&world.zone, "/meshtimeouts").await.len() == 2 }).await;
    world.zone.finish().await;
    world.global.finish().await;
}

async fn delete(running: &Running, path: &str) {
    let url = format!("http://{}{path}", running.http.unwrap());
    let call = move || agent(None, None).delete(&url).call().unwrap().status().as_u16();
    assert_eq!(tokio::task::spawn_blocking(call).await.unwrap(), 200);
}

/// The status that a call of a zone ends with.
async fn called(global: &Running, headers: &[(&str, &str)]) -> (String, String) {
    let stream = TcpStream::connect(local(global.kds)).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, axum::body::Body>(executor, io).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::post("http://global/kuma.mesh.v1alpha1.GlobalKDSService/HealthCheck")
        .header("content-type", "application/grpc");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer =
        sender.send_request(request.body(axum::body::Body::from(vec![0; 5])).unwrap()).await.unwrap();
    let text = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_told_what_is_missing_and_cannot_make_zones_without_end() {
    let directory = tempdir().unwrap();
    let mut config = global_config(directory.path());
    config.synchronisation.multizone.global.kds.tls_enabled = false;
    config.synchronisation.multizone.global.kds.max_zones = 2;
    let global = start(config).await;
    let (status, message) = called(&global, &[]).await;
    assert_eq!((status.as_str(), message.contains("client-id")), ("3", true), "{message}");
    let (status, message) = called(&global, &[("client-id", "no zone")]).await;
    assert_eq!((status.as_str(), message.contains("name%20of%20a%20zone")), ("3", true), "{message}");
    for zone in ["a", "b", "a"] {
        assert_eq!(called(&global, &[("client-id", zone)]).await.0, "", "{zone}");
    }
    let (status, message) = called(&global, &[("client-id", "c")]).await;
    assert_eq!((status.as_str(), message.contains("maxZones")), ("8", true), "{message}");
    assert_eq!(names(&global, "/zones").await, ["a", "b"]);
    global.finish().await;
}

#[tokio::test]
async fn an_identity_of_global_gets_a_zones_authority_and_global_its_trust() {
    let world = World::new().await;
    let bundled = json!({ "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true });
    let spec =
        json!({ "selector": { "dataplane": {} }, "provider": { "type": "Bundled", "bundled": bundled } });
    let identity = json!({ "type": "MeshIdentity", "mesh": "default", "name": "all", "spec": spec });
    assert_eq!(put(&world.global, "/meshes/default/meshidentities/all", identity).await, 201);
    let name = hashed_name("default", "all", None, None);
    let at = format!("/meshes/default/meshidentities/{name}");
    let is_ready = |shown: &Value| {
        let conditions = shown["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    eventually("it is in the zone", || async {
        names(&world.zone, "/meshes/default/meshidentities").await.contains(&name)
    })
    .await;
    eventually("it is ready in the zone", || async { is_ready(&get(&world.zone, &at).await) }).await;
    let trust = hashed_name("default", &name, Some("east"), None);
    let on_global = format!("/meshes/default/meshtrusts/{trust}");
    eventually("global has the trust of the zone", || async {
        names(&world.global, "/meshes/default/meshtrusts").await.contains(&trust)
    })
    .await;
    let seen = get(&world.global, &on_global).await;
    assert_eq!(seen["labels"]["kuma.io/zone"], "east");
    assert_eq!(seen["spec"]["trustDomain"], "default.east.mesh.local");
    assert!(seen["spec"]["caBundles"][0]["pem"]["value"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
    // The key stays where it was made.
    let key = format!("{name}-private-key");
    assert!(names(&world.zone, "/meshes/default/secrets").await.contains(&key));
    let kept = names(&world.global, "/meshes/default/secrets").await;
    assert!(kept.iter().all(|secret| !secret.contains("all-")), "{kept:?}");
    // A change keeps the authority, and what goes on global goes in the zone.
    let before = get(&world.zone, &format!("/meshes/default/meshtrusts/{name}")).await;
    let spec = json!({ "selector": { "dataplane": { "matchLabels": { "app": "web" } } },
        "provider": { "type": "Bundled", "bundled": bundled } });
    let changed = json!({ "type": "MeshIdentity", "mesh": "default", "name": "all", "spec": spec });
    assert_eq!(put(&world.global, "/meshes/default/meshidentities/all", changed).await, 200);
    eventually("the change is in the zone", || async {
        let shown = get(&world.zone, &at).await;
        shown["spec"]["selector"]["dataplane"]["matchLabels"]["app"] == "web" && is_ready(&shown)
    })
    .await;
    assert_eq!(get(&world.zone, &format!("/meshes/default/meshtrusts/{name}")).await["spec"], before["spec"]);
}
