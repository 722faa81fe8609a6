//! `http_sd`: groups of targets.

use api::{InspectError, ScrapeTargets};
use resources::{Key, Kind};
use serde_json::{Value, json};
use store::Write;

use crate::world::{World, dataplane, everyone, mesh, metric, page};

async fn groups(world: &World, mesh: Option<&str>, client: &str) -> Value {
    let page = world.targets.listed(mesh, client).await.unwrap();
    serde_json::from_slice(&page.body).unwrap()
}

#[tokio::test]
async fn a_group_has_labels_of_its_own_and_those_of_kuma_sd() {
    let world = World::new();
    world.put([mesh("default"), mesh("other"), dataplane("web", "shop", "192.0.2.1")]).await;
    let own = json!({"type": "Prometheus", "prometheus": {"clientId": "main", "port": 1111}});
    world.put([metric("all", everyone(), json!([page(), own]))]).await;
    world.poll_until("any", |answer| answer.proxies() == ["web"]).await;
    assert_eq!(
        groups(&world, Some("default"), "").await,
        json!([{"targets": ["192.0.2.1:5670"], "labels": {
            "__meta_kuma_dataplane": "web",
            "__meta_kuma_label_dataplane": "web",
            "__meta_kuma_label_kuma_io_service": "shop",
            "__meta_kuma_label_kuma_io_services": ",shop,",
            "__meta_kuma_label_kuma_proxy_role": "sidecar",
            "__meta_kuma_label_kuma_workload": "shop",
            "__meta_kuma_label_mesh": "default",
            "__meta_kuma_label_service": "shop",
            "__meta_kuma_label_zone": "east",
            "__meta_kuma_mesh": "default",
            "__meta_kuma_service": "shop",
            "__metrics_path__": "/metrics",
            "__scheme__": "http",
            "dataplane": "web",
            "kuma_proxy_role": "sidecar",
            "kuma_workload": "shop",
            "mesh": "default",
            "service": "shop",
            "zone": "east",
        }}])
    );
    assert_eq!(groups(&world, None, "").await, groups(&world, Some("default"), "unknown").await);
    assert_eq!(groups(&world, None, "main").await[0]["targets"], json!(["192.0.2.1:1111"]));
    assert_eq!(groups(&world, Some("other"), "").await, json!([]));
    let missing = world.targets.listed(Some("missing"), "").await.unwrap_err();
    assert!(matches!(missing, InspectError::NotFound(text) if text.contains("missing")));
}

#[tokio::test]
async fn a_zone_proxy_is_a_target_where_its_agent_says_its_page_is() {
    let world = World::new();
    let stored = |kind: Kind, name: &str, spec: Value| {
        testkit::resource::stored(Key::global(kind, name), &[("kuma.io/zone", "east")], spec)
    };
    let networking = json!({"networking": {"address": "192.0.2.5", "port": 10001}});
    let insight = |address: &str| json!({"metadata": {"dynamicMetadata": {"METRICS_ADDRESS": address}}});
    world.put([mesh("default"), stored(Kind::ZoneIngress, "gate", networking.clone())]).await;
    assert_eq!(groups(&world, None, "").await, json!([]), "nothing is known of its page");
    let (before, examined) = (world.poll("any", "", "0s").await, world.targets.examined());
    world.put([stored(Kind::ZoneIngressInsight, "gate", insight("0.0.0.0:9100"))]).await;
    let answer = world.poll_until("any", |answer| answer.proxies() == ["gate"]).await;
    assert_ne!(answer.version(), before.version());
    assert_eq!(world.targets.examined(), examined, "no Dataplane was looked at");
    let labels = json!({
        "__meta_kuma_dataplane": "gate",
        "__meta_kuma_label_dataplane": "gate",
        "__meta_kuma_label_kuma_proxy_role": "zone-ingress",
        "__meta_kuma_label_zone": "east",
        "__metrics_path__": "/metrics",
        "__scheme__": "http",
        "dataplane": "gate",
        "kuma_proxy_role": "zone-ingress",
        "zone": "east",
    });
    let expected = json!([{"targets": ["192.0.2.5:9100"], "labels": labels}]);
    assert_eq!(groups(&world, None, "").await, expected);
    assert_eq!(groups(&world, Some("default"), "").await, json!([]), "it is in no mesh");

    // Another address, and an insight that says something else.
    world.put([stored(Kind::ZoneEgress, "exit", networking)]).await;
    world.put([stored(Kind::ZoneEgressInsight, "exit", insight("[2001:db8::5]:9100"))]).await;
    let both = world.poll_until("any", |answer| answer.proxies() == ["gate", "exit"]).await;
    assert!(both.body.contains("zone-egress") && both.body.contains("[2001:db8::5]:9100"), "{}", both.body);
    world.put([stored(Kind::ZoneEgressInsight, "exit", insight("nowhere"))]).await;
    world.poll_until("any", |answer| answer.proxies() == ["gate"]).await;
    let gate = Key::global(Kind::ZoneIngress, "gate");
    world.store.write(vec![Write::Delete { key: gate, expected: None }]).await.unwrap();
    world.poll_until("any", |answer| answer.proxies().is_empty()).await;
}

#[tokio::test]
async fn a_proxy_of_a_zone_says_which_and_has_no_workload() {
    let world = World::new();
    let listener = json!({"address": "192.0.2.4", "port": 10001, "type": "ZoneIngress"});
    let networking = json!({"address": "192.0.2.4", "listeners": [listener]});
    let spec = json!({ "networking": networking });
    let key = Key::new(Kind::Dataplane, "default", "gate");
    world.put([mesh("default"), testkit::resource::stored(key, &[], spec)]).await;
    world.put([metric("all", everyone(), json!([page()]))]).await;
    world.poll_until("any", |answer| answer.proxies() == ["gate"]).await;
    let labels = groups(&world, None, "").await[0]["labels"].clone();
    assert_eq!((&labels["kuma_proxy_role"], &labels["dataplane"]), (&json!("zone-ingress"), &json!("gate")));
    assert_eq!(labels["kuma_workload"], Value::Null, "{labels}");
}
