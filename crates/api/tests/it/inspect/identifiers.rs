//! Resources by their identifiers.

use resources::{Kind, Labels, Spec};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn an_identifier_with_a_section_leads_to_its_resource() {
    let world = World::new().await;
    let zone = Labels::from([("kuma.io/zone".to_owned(), "east".to_owned())]);
    for (kind, spec) in [
        (Kind::Dataplane, json!({ "networking": { "address": "192.0.2.1" } })),
        (Kind::MeshService, json!({ "ports": [{ "port": 80 }] })),
        (Kind::MeshTrafficPermission, json!({ "from": [] })),
    ] {
        let spec = Spec::from_json(kind, spec, &mut Vec::new()).unwrap();
        world.store_resource(kind, "default", "web", zone.clone(), spec).await;
    }
    for (kri, kind) in [
        ("kri_dp_default_east__web_", "Dataplane"),
        ("kri_dp_default_east__web_80", "Dataplane"),
        ("kri_dp_default_east__web_http.admin", "Dataplane"),
        ("kri_msvc_default_east__web_80", "MeshService"),
        ("kri_mtp_default_east__web_rule_0", "MeshTrafficPermission"),
    ] {
        let found = world.get(&format!("/_kri/{kri}")).await.expect(200).json();
        assert_eq!((&found["type"], &found["name"]), (&json!(kind), &json!("web")), "{kri}");
    }
}
