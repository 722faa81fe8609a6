//! Destinations of SNI values.

use resources::{Draft, Key, Kind, Spec};
use serde_json::{Value, json};

use crate::world::World;

const BACKEND: &str = "a601e0c00295a9fbe.backend.80.default.ms";

async fn world() -> World {
    let world = World::new().await;
    world.store(Kind::Mesh, "", "other", json!({})).await;
    for mesh in ["default", "other"] {
        let service = json!({"type": "MeshService", "mesh": mesh, "name": "backend",
                             "spec": {"ports": [{"port": 80, "name": "http"}]}});
        world.put(&format!("/meshes/{mesh}/meshservices/backend"), &service).await.expect(201);
    }
    let payments = json!({"type": "MeshExternalService", "mesh": "default", "name": "payments", "spec": {
        "match": {"port": 443, "snis": [{"value": "new.example"}, {"value": "old.example"}]},
        "endpoints": [{"address": "example.com", "port": 443}]}});
    world.put("/meshes/default/meshexternalservices/payments", &payments).await.expect(201);
    // From another zone, without a list.
    let spec = Spec::from_json(Kind::MeshService, json!({"ports": [{"port": 80}]}), &mut Vec::new()).unwrap();
    let labels =
        [("kuma.io/origin", "global"), ("kuma.io/zone", "west"), ("kuma.io/display-name", "backend")];
    let mut draft = Draft::new(Key::new(Kind::MeshService, "default", "backend-x2w4"), spec);
    draft.labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    world.store_draft(draft).await;
    world
}

fn destination(kri: &str, port: u32, dialled: bool, listed: bool) -> Value {
    json!({"kri": kri, "port": port, "dialled": dialled, "listed": listed})
}

#[tokio::test]
async fn a_value_is_looked_up() {
    let world = world().await;
    let look_up = async |value: &str| {
        let answer = world.get(&format!("/meshes/default/_sni?value={value}")).await.expect(200).json();
        assert_eq!(answer["total"], answer["items"].as_array().unwrap().len());
        assert_eq!(answer["next"], Value::Null);
        answer["items"].clone()
    };
    let both = json!([
        destination("kri_msvc_default_east__backend_http", 80, true, true),
        destination("kri_msvc_default_west__backend_80", 80, true, false),
    ]);
    assert_eq!(look_up(BACKEND).await, json!([{"value": BACKEND, "destinations": both}]));
    let kri = "sni.msvc.default.east.backend.http";
    let implied = json!([destination("kri_msvc_default_east__backend_http", 80, false, false)]);
    assert_eq!(look_up(kri).await, json!([{"value": kri, "destinations": implied}]));
    let old = json!([destination("kri_extsvc_default_east__payments_443", 443, false, true)]);
    assert_eq!(look_up("old.example").await, json!([{"value": "old.example", "destinations": old}]));
    assert_eq!(look_up("a601e0c00295a9fbe.backend.81.default.ms").await, json!([]));
    // What leads into another mesh is asked there.
    let of_other = "sni.msvc.other.east.backend.http";
    assert_eq!(look_up(of_other).await, json!([]));
    let answer = world.get(&format!("/meshes/other/_sni?value={of_other}")).await.expect(200).json();
    assert_eq!(answer["total"], 1);
    world.get("/meshes/nowhere/_sni").await.expect(404);
}

#[tokio::test]
async fn all_values_are_listed_page_by_page() {
    let world = world().await;
    let all = world.get("/meshes/default/_sni").await.expect(200).json();
    let values = |answer: &Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item["value"].as_str().unwrap().to_owned()).collect()
    };
    let expected = [
        BACKEND,
        "ad55bfd9a68e03831.payments.443.default.mes",
        "new.example",
        "old.example",
        "sni.extsvc.default.east.payments.443",
        "sni.msvc.default.east.backend.http",
        "sni.msvc.default.west.backend.80",
    ];
    assert_eq!((values(&all), &all["total"]), (expected.map(str::to_owned).into(), &json!(7)));
    let mut paged = Vec::new();
    let mut path = "/meshes/default/_sni?size=3".to_owned();
    loop {
        let page = world.get(&path).await.expect(200).json();
        assert_eq!(page["total"], 7);
        paged.extend(values(&page));
        let Some(next) = page["next"].as_str() else { break };
        path = next.split_once("/meshes").map(|(_, rest)| format!("/meshes{rest}")).unwrap();
    }
    assert_eq!(paged, expected);
}
