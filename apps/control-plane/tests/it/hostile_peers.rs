//! Effects of peers that mean harm in another zone: those that the table in `docs/reference/kds.md` allows, and nothing
//! else. Control planes are real, the peers are not.

use std::{net::SocketAddr, path::Path};

use control_plane::{
    boot::Running,
    config::{Config, setting::StoreType},
};
use kds::Synced;
use resources::{Key, Kind, duration::GoDuration, labels, naming::kds::hashed_name};
use serde_json::{Value, json};
use store::{Store, Write};
use store_sqlite::Sqlite;
use tempfile::tempdir;
use testkit::peers::{HostileGlobal, HostileZone, of_zone, synced};

use crate::{
    client::{config, get, names, start},
    hostile_zones::global_config,
    kds::eventually,
};

fn zone_config(dir: &Path, global: SocketAddr) -> Config {
    let mut config = config(dir, StoreType::Sqlite);
    config.synchronisation.multizone.zone.name = "east".to_owned();
    config.synchronisation.multizone.zone.global_address = format!("grpc://{global}");
    config.general.resilient_component_base_backoff = GoDuration::from_millis(20);
    config.general.resilient_component_max_backoff = GoDuration::from_millis(100);
    config
}

/// The three that were critical: everyone is let in, plaintext is accepted, code runs in Envoy.
fn attacks() -> Vec<Synced> {
    let lua = "function envoy_on_request(handle) handle:respond({[':status'] = '418'}, 'west') end";
    let filter = json!({ "name": "lua", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "inlineCode": lua } });
    let patch =
        json!({ "httpFilter": { "operation": "AddFirst", "jsonPatches": [], "value": filter.to_string() } });
    let mesh = json!({ "kind": "Mesh" });
    [
        (
            Kind::MeshTrafficPermission,
            json!({ "targetRef": mesh, "from": [
            { "targetRef": mesh, "default": { "action": "Allow" } }] }),
        ),
        (Kind::MeshTLS, json!({ "targetRef": mesh, "rules": [{ "default": { "mode": "Permissive" } }] })),
        (Kind::MeshProxyPatch, json!({ "targetRef": mesh, "default": { "appendModifications": [patch] } })),
        (Kind::MeshTimeout, timeout_to(&mesh)),
    ]
    .map(|(kind, spec)| of_zone(kind, "west", "attack", "producer", spec).unwrap())
    .into()
}

const LISTS: [&str; 4] = ["/meshtrafficpermissions", "/meshtlses", "/meshproxypatches", "/meshtimeouts"];

fn timeout_to(target: &Value) -> Value {
    json!({ "to": [{ "targetRef": target, "default": { "connectionTimeout": "7s" } }] })
}

fn lawful() -> Synced {
    let spec = timeout_to(&json!({ "kind": "MeshService", "name": "kv" }));
    of_zone(Kind::MeshTimeout, "west", "own", "producer", spec).unwrap()
}

/// The names of what a control plane has of zone west.
async fn of_west(running: &Running) -> Vec<String> {
    let mut found = Vec::new();
    for list in LISTS {
        let list = get(running, list).await;
        let of_west = |item: &&Value| item["labels"][labels::ZONE] == "west";
        let items = list["items"].as_array().unwrap().iter().filter(of_west);
        found.extend(items.map(|item| item["name"].as_str().unwrap().to_owned()));
    }
    found
}

fn named(synced: &Synced) -> String {
    synced.key.name.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_a_hostile_zone_reach_no_other_zone() {
    let dirs = [tempdir().unwrap(), tempdir().unwrap()];
    let global = start(global_config(dirs[0].path())).await;
    let kds = ([127, 0, 0, 1], global.kds.unwrap().port()).into();
    let east = start(zone_config(dirs[1].path(), kds)).await;
    let west = HostileZone::connect(kds.port(), "west").await.unwrap();
    let mut offer = west.offer();
    for attack in attacks() {
        let kind = attack.key.kind.name();
        let refused = offer.send(kind, std::slice::from_ref(&attack), &[]).await.unwrap().unwrap_or_default();
        assert!(refused.contains("of a producer"), "{kind}: {refused:?}");
        // Without the role it is a policy of the zone for itself.
        let mut own = attack;
        own.labels.remove(labels::POLICY_ROLE);
        assert_eq!(offer.send(kind, &[own], &[]).await.unwrap(), None, "{kind}");
    }
    assert_eq!(offer.send("MeshTimeout", &[lawful()], &[]).await.unwrap(), None);
    assert_eq!(of_west(&global).await.len(), attacks().len() + 1);
    let there = [named(&lawful())];
    eventually("the policy for callers is in the other zone", || async { of_west(&east).await == there })
        .await;
    let problems = get(&global, "/zones/west/_overview").await["zoneInsight"]["problems"].clone();
    assert_eq!(problems, Value::Null, "all refusals were followed by something in order");
    drop(west);
    east.finish().await;
    global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_stores_nothing_that_a_hostile_global_passes_on_beyond_the_table() {
    let directory = tempdir().unwrap();
    let global = HostileGlobal::start().await.unwrap();
    let key = |kind, name: &str| Key::new(kind, "", name);
    let mesh = synced(key(Kind::Mesh, "default"), &[], json!({})).unwrap();
    let keys = ["user-token-signing-key-2", "admin-user-token"]
        .map(|name| synced(key(Kind::GlobalSecret, name), &[], json!({ "data": "ZXZpbA==" })).unwrap());
    let east = start(zone_config(directory.path(), global.address)).await;
    assert_eq!(global.say("Mesh", vec![mesh]).await.unwrap(), None);
    let before = get(&east, "/global-secrets").await;
    for attack in attacks() {
        let kind = attack.key.kind;
        let refused = global.say(kind.name(), vec![attack]).await.unwrap().unwrap_or_default();
        assert!(refused.contains("of a producer"), "{kind}: {refused:?}");
    }
    let refused = global.say("GlobalSecret", keys.into()).await.unwrap().unwrap_or_default();
    assert!(refused.contains("no global control plane sends GlobalSecret"), "{refused}");
    assert_eq!(get(&east, "/global-secrets").await, before);
    assert_eq!(of_west(&east).await, Vec::<String>::new());
    let refused = global.say("MeshTimeout", vec![lawful()]).await.unwrap().unwrap_or_default();
    assert!(!refused.contains(&named(&lawful())), "only the other one still is: {refused}");
    assert_eq!(of_west(&east).await, [named(&lawful())]);
    let problems = get(&east, "/zones/east/_overview").await["zoneInsight"]["problems"].clone();
    let of_kind = |kind: &str| problems.as_array().into_iter().flatten().any(|it| it["type"] == kind);
    assert!(of_kind("MeshTLS") && of_kind("GlobalSecret") && !of_kind("Mesh"), "{problems}");
    east.finish().await;
}

/// Puts policies into a store as a version did that did not look at them.
async fn store_unseen(path: &Path, unseen: Vec<Synced>, origin: &str, owner: Option<Key>) {
    let store = Sqlite::open(path).unwrap();
    for synced in unseen {
        let Synced { key, mut labels, spec, .. } = synced;
        labels.insert(labels::ORIGIN.to_owned(), origin.to_owned());
        let mut resource = testkit::resource::stored(key, &[], spec.to_json());
        resource.labels = labels;
        resource.version = 0;
        resource.owner.clone_from(&owner);
        store.write(vec![Write::Create(resource)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_policies_of_an_older_zone_are_gone_before_it_serves_proxies() {
    let directory = tempdir().unwrap();
    let config = || zone_config(directory.path(), ([127, 0, 0, 1], 1).into());
    let global = HostileGlobal::start().await.unwrap();
    let running = start(zone_config(directory.path(), global.address)).await;
    let mesh = synced(Key::new(Kind::Mesh, "", "default"), &[], json!({})).unwrap();
    assert_eq!(global.say("Mesh", vec![mesh]).await.unwrap(), None);
    running.finish().await;
    let unseen = attacks().into_iter().chain([lawful()]).collect();
    store_unseen(&config().sqlite_path(), unseen, "global", None).await;
    // There is no global control plane at this address: nothing but the start changes what is stored.
    let running = start(config()).await;
    assert_eq!(of_west(&running).await, [named(&lawful())]);
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_policies_of_an_older_global_are_reported_and_go_nowhere() {
    let dirs = [tempdir().unwrap(), tempdir().unwrap()];
    let config = || {
        let mut config = global_config(dirs[0].path());
        config.store.kind = StoreType::Sqlite;
        config
    };
    let global = start(config()).await;
    let west = HostileZone::connect(global.kds.unwrap().port(), "west").await.unwrap();
    assert_eq!(west.offer().send("MeshTimeout", &[lawful()], &[]).await.unwrap(), None);
    drop(west);
    global.finish().await;
    store_unseen(&config().sqlite_path(), attacks(), "zone", Some(Key::global(Kind::Zone, "west"))).await;

    let global = start(config()).await;
    let problems = async || {
        let overview = get(&global, "/zones/west/_overview").await;
        let all = overview["zoneInsight"]["problems"].as_array().cloned().unwrap_or_default();
        let stored = all.into_iter().filter(|it| it["what"] == "stored on global, refused now");
        stored.map(|it| it["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("what is stored is reported", || async { problems().await.len() == attacks().len() }).await;
    let kds = ([127, 0, 0, 1], global.kds.unwrap().port()).into();
    let east = start(zone_config(dirs[1].path(), kds)).await;
    let there = [named(&lawful())];
    eventually("the lawful one is in the other zone", || async { of_west(&east).await == there }).await;
    // The zone takes one of them back.
    let west = HostileZone::connect(kds.port(), "west").await.unwrap();
    let removed = [format!("{}.default", named(&attacks()[1]))];
    let mut offer = west.offer();
    offer.send("MeshTLS", &[], &removed).await.unwrap();
    eventually("what is gone is reported no longer", || async {
        !problems().await.contains(&"MeshTLS".to_owned())
    })
    .await;
    east.finish().await;
    global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_is_limited_in_resources_of_a_kind_and_its_insight_says_so() {
    let directory = tempdir().unwrap();
    let mut config = global_config(directory.path());
    config.synchronisation.multizone.global.kds.max_resources_per_kind = 20;
    let global = start(config).await;
    let west = HostileZone::connect(global.kds.unwrap().port(), "west").await.unwrap();
    let service = |n: usize| {
        let display = format!("s{n}");
        let name = hashed_name("default", &display, Some("west"), None);
        let spec = json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
        synced(Key::new(Kind::MeshService, "default", &name), &[(labels::DISPLAY_NAME, &display)], spec)
    };
    let services: Vec<Synced> = (0..60).map(|n| service(n).unwrap()).collect();
    let mut offer = west.offer();
    let refused = offer.send("MeshService", &services, &[]).await.unwrap().unwrap_or_default();
    assert!(refused.contains("has 20 resources of kind MeshService"), "{refused}");
    assert!(refused.contains("raise multizone.global.kds.maxResourcesPerKind"), "{refused}");
    assert_eq!(names(&global, "/meshservices").await.len(), 20);
    eventually("the insight says so", || async {
        let overview = get(&global, "/zones/west/_overview").await;
        overview["zoneInsight"]["problems"].to_string().contains("maxResourcesPerKind")
    })
    .await;
    let counted = "kds_resources_refused_total{type=\"MeshService\"} 40";
    assert!(global.metrics.encode().contains(counted), "{}", global.metrics.encode());
    let removed: Vec<String> = (0..60).map(|n| format!("{}.default", named(&services[n]))).collect();
    offer.send("MeshService", &[], &removed).await.unwrap();
    assert_eq!(names(&global, "/meshservices").await.len(), 0);
    assert_eq!(offer.send("MeshService", &services[30..50], &[]).await.unwrap(), None, "there is room again");
    assert_eq!(names(&global, "/meshservices").await.len(), 20);
    drop(west);
    global.finish().await;
}
