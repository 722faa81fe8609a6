//! Effects of writes: asked with the rights of the writes, refused in their words, and nothing is written.

use admission::ControlPlaneRole;
use api::{AccessRights, Allowed, Authn, Settings};
use axum::body::Body;
use http::Method;
use resources::{Key, Kind};
use serde_json::{Value, json};

use crate::world::{World, remote, zone};

const PATH: &str = "/meshes/default/_what-if";

fn timeout(name: &str, spec: Value) -> Value {
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": spec })
}

fn to_all(conf: Value) -> Value {
    json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": conf }] })
}

#[tokio::test]
async fn nothing_is_written_and_the_answer_says_what_would_be() {
    let world = World::new().await;
    let stored = timeout("stored", to_all(json!({ "idleTimeout": "1s" })));
    world.put("/meshes/default/meshtimeouts/stored", &stored).await.expect(201);
    let revision = world.registrar.store().snapshot().unwrap().revision();

    let in_kubernetes = json!({
        "apiVersion": "kuma.io/v1alpha1", "kind": "MeshTimeout",
        "metadata": { "name": "k", "namespace": "kuma-system", "labels": { "kuma.io/mesh": "default" } },
        "spec": to_all(json!({ "idleTimeout": "1s" })),
    });
    let body = json!({
        "resources": [
            stored,
            // Neither the mesh of the path nor that of another resource needs to be there.
            { "type": "MeshTimeout", "name": "new", "spec": to_all(json!({ "idleTimeout": "2s" })), "odd": 1 },
            in_kubernetes,
            { "type": "MeshTimeout", "mesh": "fresh", "name": "t", "spec": to_all(json!({ "idleTimeout": "2s" })) },
            { "type": "Mesh", "name": "fresh" },
        ],
        "delete": [],
    });
    let answer = world.post(PATH, &body).await.expect(200).json();
    let changes: Vec<String> = answer["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            let text = |field: &str| change[field].as_str().unwrap().to_owned();
            format!("{} {}/{} {}", text("type"), text("mesh"), text("name"), text("action"))
        })
        .collect();
    assert_eq!(
        changes,
        [
            "Mesh /fresh create",
            "MeshTimeout default/stored unchanged",
            "MeshTimeout default/new create",
            "MeshTimeout default/k create",
            "MeshTimeout fresh/t create",
        ]
    );
    assert_eq!(answer["changes"][2]["warnings"], json!(["odd: unknown field, ignored"]));
    assert_eq!((&answer["refused"], &answer["proxies"]["affected"]), (&json!([]), &json!(4)));

    let gone = json!({ "delete": [{ "type": "MeshTimeout", "name": "stored" }] });
    let answer = world.post(PATH, &gone).await.expect(200).json();
    assert_eq!(
        answer["changes"],
        json!([
            { "type": "MeshTimeout", "mesh": "default", "name": "stored", "action": "delete" },
        ])
    );
    let snapshot = world.registrar.store().snapshot().unwrap();
    assert_eq!(snapshot.revision(), revision);
    assert!(snapshot.get(&Key::new(Kind::MeshTimeout, "default", "stored")).is_some());
}

#[tokio::test]
async fn what_a_write_would_be_refused_for_is_told_in_the_same_words() {
    let world = World::new().await;
    for (path, bad) in [
        (
            "meshtimeouts/t",
            timeout("t", json!({ "to": [{ "targetRef": { "kind": "MeshSubset" }, "default": {} }] })),
        ),
        ("meshtimeouts/t", timeout("t", json!({ "to": 7 }))),
        ("meshtimeouts/Not_A_Name", timeout("Not_A_Name", to_all(json!({ "idleTimeout": "1s" })))),
        ("dataplanes/d", json!({ "type": "Dataplane", "mesh": "default", "name": "d", "networking": {} })),
        ("meshinsights/m", json!({ "type": "MeshInsight", "name": "m" })),
    ] {
        let path = match bad["type"].as_str() {
            Some("MeshInsight") => "/mesh-insights/m".to_owned(),
            _ => format!("/meshes/default/{path}"),
        };
        let written = world.put(&path, &bad).await;
        let good = timeout("good", to_all(json!({ "idleTimeout": "1s" })));
        let asked = world.post(PATH, &json!({ "resources": [good, bad] })).await.expect(200).json();
        let refused = asked["refused"].as_array().unwrap();
        assert_eq!(refused.len(), 1, "{asked:#}");
        assert_eq!((&refused[0]["place"], &refused[0]["problem"]), (&json!("resources[1]"), &written.json()));
        // Nothing is worked out of a set that could not be applied.
        assert_eq!((&asked["changes"], &asked["proxies"]["affected"]), (&json!([]), &json!(0)));
    }
    let none = json!({ "type": "MeshTimeout", "name": "none" });
    let asked = world.post(PATH, &json!({ "delete": [none] })).await.expect(200).json();
    let problem = world.delete("/meshes/default/meshtimeouts/none").await.json();
    assert_eq!(
        (&asked["refused"][0]["problem"], &asked["refused"][0]["place"]),
        (&problem, &json!("delete[0]"))
    );
    let unknown = json!({ "resources": [{ "type": "MeshTimeot", "name": "x" }] });
    let asked = world.post(PATH, &unknown).await.expect(200).json();
    assert_eq!(asked["refused"][0]["type"], "MeshTimeot");
}

#[tokio::test]
async fn a_question_that_is_none_is_refused() {
    let world = World::new().await;
    for body in [json!([]), json!({ "resource": [] }), json!({ "delete": [{ "type": "Mesh" }] })] {
        let problem = world.post(PATH, &body).await.expect_problem_titled(400, "Bad Request");
        assert!(problem["detail"].as_str().unwrap().contains("`resources`"), "{problem}");
    }
    let one = timeout("t", to_all(json!({ "idleTimeout": "1s" })));
    let twice = json!({ "resources": [one, one] });
    world.post(PATH, &twice).await.expect_problem_titled(400, "Bad Request");
    let both = json!({ "resources": [one], "delete": [{ "type": "MeshTimeout", "name": "t" }] });
    world.post(PATH, &both).await.expect_problem_titled(400, "Bad Request");
    let many: Vec<Value> =
        (0..1001).map(|i| json!({ "type": "MeshTimeout", "name": format!("t-{i}") })).collect();
    world.post(PATH, &json!({ "delete": many })).await.expect_problem_titled(400, "Bad Request");
    let path = "/meshes/none/_what-if";
    world.post(path, &json!({})).await.expect_problem(404, "Failed to retrieve Mesh", "Not found");
    let large = json!({ "resources": [{ "type": "x".repeat(api::MAX_BODY) }] });
    world.post(PATH, &large).await.expect(413);
}

#[tokio::test]
async fn a_user_who_may_not_write_may_not_ask() {
    let ask = async |world: &World, path: &str, body: Value| {
        world.send(remote(Method::POST, path, Body::from(body.to_string()))).await
    };
    let secret =
        json!({ "resources": [{ "type": "Secret", "mesh": "default", "name": "s", "data": "c2VjcmV0" }] });
    let world = World::new().await;
    ask(&world, PATH, secret.clone()).await.expect_problem_titled(403, "Access Denied");
    let gone = json!({ "delete": [{ "type": "Secret", "name": "s" }] });
    ask(&world, PATH, gone).await.expect_problem_titled(403, "Access Denied");
    let shown = world.post(PATH, &secret).await.expect(200);
    assert!(!shown.body.contains("c2VjcmV0"), "{}", shown.body);
    let authorities = json!({ "resources": [{ "type": "Mesh", "name": "default", "mtls": {
        "enabledBackend": "ca-1", "backends": [{ "name": "ca-1", "type": "builtin" }] } }] });
    ask(&world, PATH, authorities).await.expect_problem_titled(403, "Access Denied");

    let authn = Authn { require_for_writes: true, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    ask(&world, PATH, json!({})).await.expect_problem_titled(403, "Access Denied");

    // A diff shows what a dump shows.
    let access = AccessRights { view_config_dump: Allowed::admins(), ..AccessRights::default() };
    let world = World::with(zone(), Settings { access, ..Settings::default() }).await;
    ask(&world, PATH, json!({})).await.expect(200);
    ask(&world, &format!("{PATH}?diff=a"), json!({})).await.expect_problem_titled(403, "Access Denied");
    for (query, told) in [("diff=a&diff=b", 2), ("diff=*", 3), ("diff=", 0)] {
        let answer = world.post(&format!("{PATH}?{query}"), &json!({})).await.expect(200).json();
        assert_eq!(answer["proxies"]["connected"], told, "{query}");
    }
}

#[tokio::test]
async fn what_cannot_be_written_here_is_refused_as_a_write_is() {
    let world =
        World::with(ControlPlaneRole::Zone { name: "east".into(), federated: true }, Settings::default())
            .await;
    let mesh = json!({ "resources": [{ "type": "Mesh", "name": "more" }] });
    let asked = world.post(PATH, &mesh).await.expect(200).json();
    let written = world.put("/meshes/more", &mesh["resources"][0]).await;
    assert_eq!(asked["refused"][0]["problem"], written.json());
}

#[tokio::test]
async fn a_question_about_admission_looks_at_no_proxy_and_needs_no_mesh() {
    let world = World::new().await;
    let in_none = json!({ "type": "MeshTimeout", "mesh": "none", "name": "t", "spec": to_all(json!({ "idleTimeout": "1s" })) });
    let good = timeout("t", to_all(json!({ "idleTimeout": "1s" })));
    let path = "/meshes/none/_what-if?only=admission";
    let asked = world.post(path, &json!({ "resources": [good, in_none] })).await.expect(200).json();
    assert_eq!(asked["refused"][0]["place"], "resources[1]", "{asked:#}");
    let asked = world.post(path, &json!({ "resources": [good] })).await.expect(200).json();
    assert_eq!((&asked["changes"][0]["action"], &asked["refused"]), (&json!("create"), &json!([])));
    assert_eq!(asked["proxies"]["affected"], 0, "proxies were looked at: {asked:#}");
    let unknown = world.post(&format!("{PATH}?only=proxies"), &json!({})).await;
    unknown.expect_problem_titled(400, "Bad Request");
}
