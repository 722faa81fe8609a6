//! Resources by their identifiers.

use api::Settings;
use resources::{Kind, Labels, Spec};
use serde_json::json;

use super::{SERVICE, exclusive, with_dataplanes};
use crate::world::{World, zone};

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

#[tokio::test]
async fn views_by_identifier_need_a_mesh_of_meshservices() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    let views = [
        ("_layout", "_layout"),
        ("_policies", "_policies"),
        ("_inbounds/kri_dp_default_east__web_80/_policies", "_policies"),
        ("_outbounds/kri_msvc_default_east__http_80/_policies", "_policies"),
        ("_outbounds/kri_msvc_default_east__http_80/_routes", "_policies"),
        ("_outbounds/kri_msvc_default_east__http_80/_routes/kri_mhttpr_default___r_/_policies", "_policies"),
    ];
    let path = |view| format!("/meshes/default/dataplanes/web/{view}");
    for (view, called) in views {
        let detail = format!("bad request: can't use {called} endpoint without meshService enabled");
        world.get(&path(view)).await.expect_problem(400, "Bad Request", &detail);
    }
    world.get(&path("_rules")).await.expect(200);
    exclusive(&world).await;
    for (view, _) in views {
        world.get(&path(view)).await.expect(200);
    }
}

#[tokio::test]
async fn policies_are_asked_for_by_identifier() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    exclusive(&world).await;
    for (view, expect) in [
        ("_policies".to_owned(), "proxy".to_owned()),
        (
            "_inbounds/kri_dp_default_east__web_http.admin/_policies".to_owned(),
            "inbound http.admin".to_owned(),
        ),
        (format!("_outbounds/{SERVICE}/_policies"), format!("outbound {SERVICE}")),
        (
            format!("_outbounds/{SERVICE}/_routes/kri_mhttpr_default___slow_rule_0/_policies"),
            "route slow to http".to_owned(),
        ),
    ] {
        let answer = world.get(&format!("/meshes/default/dataplanes/web/{view}")).await.expect(200).json();
        assert_eq!(answer["policies"][0]["conf"], expect, "{view}");
    }
    let routes = world.get(&format!("/meshes/default/dataplanes/web/_outbounds/{SERVICE}/_routes")).await;
    assert_eq!(routes.expect(200).json()["routes"][0]["kind"], "MeshHTTPRoute");
}

#[tokio::test]
async fn what_is_no_identifier_is_refused() {
    let world = with_dataplanes(zone(), Settings::default()).await;
    exclusive(&world).await;
    let id = "id_dp_default_test-zone__dp-1_main-port";
    for (view, detail) in [
        (
            format!("_inbounds/{id}/_policies"),
            format!("bad request: identifier must start with 'kri': {id:?}"),
        ),
        ("_outbounds/x/_policies".to_owned(), "bad request: invalid identifier string: \"x\"".to_owned()),
        ("_outbounds/x/_routes".to_owned(), "bad request: invalid identifier string: \"x\"".to_owned()),
        (
            format!("_outbounds/{SERVICE}/_routes/y/_policies"),
            "bad request: invalid identifier string: \"y\"".to_owned(),
        ),
    ] {
        let answer = world.get(&format!("/meshes/default/dataplanes/web/{view}")).await;
        answer.expect_problem(400, "Bad Request", &detail);
    }
}
