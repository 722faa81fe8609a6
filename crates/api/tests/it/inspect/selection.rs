//! The Dataplanes that a policy or a service selects.

use resources::Kind;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn the_dataplanes_of_a_policy_or_a_service_come_in_pages_and_by_name() {
    let world = World::new().await;
    let to = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } }]);
    world.store(Kind::MeshTimeout, "default", "slow", json!({ "to": to })).await;
    for (query, total, expect, next) in [
        ("", 3, &["one", "other", "three"][..], None),
        ("?name=o", 2, &["one", "other"], None),
        ("?size=2", 3, &["one", "other"], Some("after=default%2Fother&offset=2&size=2")),
        ("?size=2&offset=2", 3, &["three"], None),
        ("?offset=7", 3, &[], None),
    ] {
        let path = format!("/meshes/default/meshtimeouts/slow/_resources/dataplanes{query}");
        let answer = world.get(&path).await.expect(200).json();
        let items = answer["items"].as_array().unwrap();
        let names: Vec<&str> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!((&answer["total"], names.as_slice()), (&json!(total), expect), "{query}");
        let found = answer["next"].as_str().and_then(|next| next.split_once('?')).map(|(_, query)| query);
        assert_eq!(found, next, "{query}");
    }
    let first = world.get("/meshes/default/meshtimeouts/slow/_resources/dataplanes?size=1").await.json();
    let meta = json!({ "type": "Dataplane", "mesh": "default", "name": "one", "labels": { "app": "one" } });
    assert_eq!(first["items"], json!([meta]));
    world.store(Kind::MeshService, "default", "web", json!({})).await;
    for path in ["_resources/dataplanes", "_dataplanes"] {
        let answer = world.get(&format!("/meshes/default/meshservices/web/{path}")).await.expect(200).json();
        assert_eq!((&answer["total"], &answer["items"][0]), (&json!(3), &meta), "{path}");
        let missing = world.get(&format!("/meshes/default/meshservices/none/{path}")).await;
        missing.expect_problem(404, "Could not retrieve a resource", "Not found");
    }
    let path = "/meshes/default/meshtimeouts/slow/_resources/dataplanes?size=0";
    world.get(path).await.expect_problem(400, "Could not retrieve resources", "Invalid page size");
}
