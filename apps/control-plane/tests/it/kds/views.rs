//! Answers of a global control plane about the proxies of a zone are those of the zone.

use super::*;

/// A proxy whose application calls by hostnames.
fn redirected(name: &str) -> Value {
    let mut dataplane = dataplane(name);
    dataplane["networking"]["transparentProxying"] =
        json!({ "redirectPortInbound": 15_006, "redirectPortOutbound": 15_001 });
    dataplane
}

fn bank() -> Value {
    json!({ "type": "MeshExternalService", "mesh": "default", "name": "bank", "spec": {
        "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tcp" },
        "endpoints": [{ "address": "bank.example.com", "port": 443 }] } })
}

fn everywhere() -> Value {
    json!({ "type": "MeshMultiZoneService", "mesh": "default", "name": "everywhere", "spec": {
        "selector": { "meshService": { "matchLabels": { "kuma.io/display-name": "web" } } },
        "ports": [{ "port": 80, "appProtocol": "http" }] } })
}

async fn answer(running: &Running, path: &str) -> (u16, Value) {
    let (status, body) = get_with(agent(None, None), format!("http://{}{path}", running.http.unwrap())).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

fn hostnames(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|item| item["hostname"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn global_asks_the_zone_of_a_proxy_for_what_only_the_zone_sees() {
    let world = World::new().await;
    assert_eq!(put(&world.zone, "/meshes/default/dataplanes/web", redirected("web")).await, 201);
    assert_eq!(put(&world.global, "/meshes/default/meshexternalservices/bank", bank()).await, 201);
    let path = "/meshes/default/meshmultizoneservices/everywhere";
    assert_eq!(put(&world.global, path, everywhere()).await, 201);
    let there = "/meshes/default/dataplanes/web";
    let wanted = ["web.svc.mesh.local", "bank.extsvc.mesh.local", "everywhere.mzsvc.mesh.local"];
    eventually("the zone has given hostnames to all services", || async {
        let (_, list) = answer(&world.zone, &format!("{there}/_hostnames")).await;
        wanted.iter().all(|name| hostnames(&list).contains(name))
    })
    .await;
    let name = hashed_name("default", "web", Some("east"), None);
    let here = format!("/meshes/default/dataplanes/{name}");
    eventually("the Dataplane is on global", || async { has(&world.global, &here).await }).await;

    for view in ["_hostnames", "_reachability"] {
        let seen = get(&world.zone, &format!("{there}/{view}")).await;
        assert_eq!(get(&world.global, &format!("{here}/{view}")).await, seen, "{view}");
    }
    let mut seen = get(&world.zone, &format!("{there}/_layout")).await;
    let mut told = get(&world.global, &format!("{here}/_layout")).await;
    assert_eq!(told["kri"], seen["kri"]);
    assert_eq!(told["labels"]["kuma.io/zone"], "east");
    for layout in [&mut seen, &mut told] {
        layout["labels"] = Value::Null;
    }
    assert_eq!(told, seen);
    assert!(seen["outbounds"].as_array().unwrap().len() >= wanted.len(), "{seen}");
    let overview = get(&world.global, &format!("{here}/_overview")).await;
    let offered = overview["dataplane"]["networking"]["outbound"].to_string();
    assert!(wanted.iter().all(|name| offered.contains(name)), "{offered}");

    // The proxy does not run, which the zone says.
    let (status, text) = answer(&world.global, &format!("{here}/_config")).await;
    let text = text.to_string();
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("east") && text.contains("is not connected"), "{text}");
    let observed = get(&world.global, "/meshes/default/_observed").await;
    assert_eq!(observed["zones"], json!([{ "name": "east" }]), "{observed}");
    let measured = get(&world.global, "/meshes/default/_reachability").await;
    assert_eq!(
        (&measured["total"], &measured["items"][0]["zone"]),
        (&json!(1), &json!("east")),
        "{measured}"
    );

    // A service of the zone consists of the proxies of that zone.
    let service = hashed_name("default", "web", Some("east"), None);
    let selected = format!("/meshes/default/meshservices/{service}/_resources/dataplanes");
    eventually("the service is on global", || async { has(&world.global, &selected).await }).await;
    assert_eq!(get(&world.global, &selected).await["items"][0]["name"], name);

    world.wire.cut();
    eventually("global says that the zone is away", || async {
        let (status, text) = answer(&world.global, &format!("{here}/_hostnames")).await;
        status == 503 && text.to_string().contains("is not connected to this control plane")
    })
    .await;
    world.zone.finish().await;
    world.global.finish().await;
}
