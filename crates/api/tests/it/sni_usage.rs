//! Values of SNI that zone proxies saw.

use resources::{Draft, Key, Kind, Spec};
use serde_json::{Value, json};

use crate::world::World;

const BACKEND: &str = "a601e0c00295a9fbe.backend.80.default.ms";
const BY_KRI: &str = "sni.msvc.default.east.backend.http";

/// Statistics of the zone proxies called `gate`.
pub const SAID: &str =
    "connection_limit.system_sni_a601e0c00295a9fbe_backend_80_default_ms.active_connections: 2
connection_limit.system_sni_a601e0c00295a9fbe_backend_80_default_ms.limited_connections: 0
cluster.system_sni_of_somebody.upstream_cx_total: 4
listener.10.0.0.1_10001.no_filter_chain_match: 3
listener.admin.no_filter_chain_match: 8
server.uptime: 60
system_sni_a601e0c00295a9fbe_backend_80_default_ms.rbac.shadow_allowed: 7
system_sni_sni_msvc_default_east_backend_http.rbac.shadow_allowed: 1
";

fn proxy(kind: &str, name: &str) -> Value {
    let mut networking = json!({"address": "10.0.0.1", "port": 10001});
    if kind == "ZoneIngress" {
        networking["advertisedAddress"] = json!("192.0.2.1");
        networking["advertisedPort"] = json!(10001);
    }
    json!({"type": kind, "name": name, "networking": networking})
}

async fn world() -> World {
    let world = World::new().await;
    let service = json!({"type": "MeshService", "mesh": "default", "name": "backend",
                         "spec": {"ports": [{"port": 80, "name": "http"}]}});
    world.put("/meshes/default/meshservices/backend", &service).await.expect(201);
    for (kind, path, name) in [
        ("ZoneIngress", "zoneingresses", "gate"),
        ("ZoneIngress", "zoneingresses", "gone"),
        ("ZoneEgress", "zoneegresses", "gate"),
    ] {
        world.put(&format!("/{path}/{name}"), &proxy(kind, name)).await.expect(201);
    }
    world
}

#[tokio::test]
async fn what_zone_proxies_saw_is_told_by_value_and_who_could_not_be_asked() {
    let world = world().await;
    // Of another zone: asked there.
    let mut spec = proxy("ZoneIngress", "far");
    spec.as_object_mut().unwrap().retain(|name, _| name == "networking");
    let spec = Spec::from_json(Kind::ZoneIngress, spec, &mut Vec::new()).unwrap();
    let mut draft = Draft::new(Key::global(Kind::ZoneIngress, "far"), spec);
    draft.labels = [("kuma.io/origin", "global"), ("kuma.io/zone", "west")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    world.store_draft(draft).await;

    let answer = world.get("/meshes/default/_sni-usage").await.expect(200).json();
    assert_eq!((&answer["total"], &answer["next"]), (&json!(2), &Value::Null));
    let kri = |kind: &str| format!("kri_{kind}____gate_");
    let seen = |connections: u64, active: u64| {
        json!([{"kri": kri("ze"), "connections": connections, "active": active},
               {"kri": kri("zi"), "connections": connections, "active": active}])
    };
    let of = |dialled: bool| json!([{"kri": "kri_msvc_default_east__backend_http", "port": 80, "dialled": dialled, "listed": dialled}]);
    assert_eq!(
        answer["items"],
        json!([
            {"value": BACKEND, "destinations": of(true), "connections": 14, "active": 4, "seenBy": seen(7, 2)},
            {"value": BY_KRI, "destinations": of(false), "connections": 2, "active": 0, "seenBy": seen(1, 0)},
        ])
    );
    let asked = |kind: &str, short: &str| json!({"kri": kri(short), "type": kind, "name": "gate", "zone": "east", "uptimeSeconds": 60, "unknown": 3});
    assert_eq!(
        answer["proxies"],
        json!([
            asked("ZoneEgress", "ze"),
            asked("ZoneIngress", "zi"),
            {"kri": "kri_zi____gone_", "type": "ZoneIngress", "name": "gone", "zone": "east",
             "error": "nobody at 192.0.2.1:9901: start kuma-dp"},
        ])
    );
}

#[tokio::test]
async fn the_values_that_are_not_dialled_can_be_asked_for_alone() {
    let world = world().await;
    let values = async |query: &str| -> Vec<String> {
        let answer = world.get(&format!("/meshes/default/_sni-usage?{query}")).await.expect(200).json();
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item["value"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(values("dialled=false").await, [BY_KRI]);
    assert_eq!(values("dialled=true").await, [BACKEND]);
    assert_eq!(values(&format!("value={BACKEND}")).await, [BACKEND]);
    assert_eq!(values("size=1").await, [BACKEND]);
    world.get("/meshes/default/_sni-usage?dialled=perhaps").await.expect(400);
    world.get("/meshes/nowhere/_sni-usage").await.expect(404);
}
