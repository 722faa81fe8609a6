//! Putting and deleting one resource, and every way it is refused.

use admission::ControlPlaneRole;
use api::Settings;
use axum::body::Body;
use http::Method;
use resources::{Draft, Key, Kind, Spec};
use serde_json::json;
use testkit::body::timeout;

use crate::world::{World, request, resource, zone};

const TIMEOUTS: &str = "/meshes/default/meshtimeouts/one";

#[tokio::test]
async fn a_resource_is_shown_with_its_fields_in_order_indented_by_one_space() {
    let world = World::new().await;
    world.store(Kind::Zone, "", "west", json!({ "enabled": true })).await;
    let answer = world.get("/zones/west").await.expect(200);
    let expect = "{\n \"type\": \"Zone\",\n \"name\": \"west\",\n \"creationTime\": \"2026-01-02T03:04:05Z\",\n \
                  \"modificationTime\": \"2026-01-02T03:04:05Z\",\n \"kri\": \"kri_z____west_\",\n \"enabled\": true\n}\n";
    assert_eq!(answer.body, expect);
    assert_eq!(answer.header("content-type"), "application/json");
}

#[tokio::test]
async fn creating_answers_201_updating_200_and_both_say_what_happened() {
    let world = World::new().await;
    for (body, status, outcome) in [
        (timeout("one", "1s"), 201, "created"),
        (timeout("one", "2s"), 200, "updated"),
        (timeout("one", "2s"), 200, "unchanged"),
    ] {
        let answer = world.put(TIMEOUTS, &body).await.expect(status);
        assert_eq!((answer.body.as_str(), answer.header("x-kuma-outcome")), ("{}\n", outcome));
    }
}

#[tokio::test]
async fn one_of_several_simultaneous_writers_creates_and_the_others_update() {
    let world = World::new().await;
    for round in 0..20 {
        let name = format!("t{round}");
        let path = format!("/meshes/default/meshtimeouts/{name}");
        let first = timeout(&name, "1s");
        let second = timeout(&name, "2s");
        let (first, second) = tokio::join!(world.put(&path, &first), world.put(&path, &second));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses.map(|status| status.as_u16()), [200, 201], "{} {}", first.body, second.body);
    }
}

#[tokio::test]
async fn unknown_fields_are_dropped_and_each_is_named_in_a_warning() {
    let world = World::new().await;
    let mut body = timeout("one", "1s");
    body["surprise"] = json!(1);
    body["spec"]["to"][0]["default"]["conectionTimeout"] = json!("2s");
    let answer = world.put(TIMEOUTS, &body).await.expect(201).json();
    let [first, second] = answer["warnings"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!(first, "surprise: unknown field, ignored");
    let second = second.as_str().unwrap();
    assert!(
        second.starts_with("spec.to") && second.ends_with("conectionTimeout: unknown field, ignored"),
        "{second}"
    );
    let read = world.get(TIMEOUTS).await.expect(200);
    assert!(!read.body.contains("surprise") && !read.body.contains("conectionTimeout"), "{}", read.body);
}

#[tokio::test]
async fn a_slip_is_named_before_what_is_missing_because_of_it() {
    let world = World::new().await;
    let mut body = timeout("one", "1s");
    body["spec"]["to"][0]["default"] = json!({ "conectionTimeout": "2s" });
    let path = "spec.to[0].default";
    let slip = (
        "spec.to[0].default.conectionTimeout",
        "unknown field, it has no effect; did you mean \"connectionTimeout\"?",
    );
    let consequence = (path, "at least one timeout should be configured");
    let put = world.put(TIMEOUTS, &body).await;
    put.expect_fields("Could not process a resource", &[slip, consequence]);
    // A slip that the schema refuses for what is missing, too.
    body["spec"]["to"][0] =
        json!({ "targetRfe": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } });
    let refused = world.put(TIMEOUTS, &body).await.expect_problem_titled(400, "Could not process a resource");
    let first = &refused["invalid_parameters"][0];
    assert_eq!(first["field"], "spec.to[0].targetRfe", "{refused}");
    assert!(first["reason"].as_str().unwrap().ends_with("did you mean \"targetRef\"?"), "{refused}");
}

#[tokio::test]
async fn what_only_the_control_plane_sets_is_ignored_on_put() {
    let world = World::new().await;
    let mut body = timeout("one", "1s");
    body["creationTime"] = json!("1999-01-01T00:00:00Z");
    body["kri"] = json!("kri_mt_x___y_");
    world.put(TIMEOUTS, &body).await.expect(201);
    let read = world.get(TIMEOUTS).await.expect(200).json();
    assert_eq!(read["kri"], "kri_mt_default_east__one_");
    assert!(!read["creationTime"].as_str().unwrap().starts_with("1999"));
}

#[tokio::test]
async fn a_body_that_contradicts_the_path_is_refused_field_by_field() {
    let world = World::new().await;
    let mut body = json!({ "type": "MeshTimeout", "mesh": "other", "name": "two", "spec": timeout("one", "1s")["spec"] });
    world.put(TIMEOUTS, &body).await.expect_fields(
        "Could not process a resource",
        &[
            ("name", "name from the URL has to be the same as in body"),
            ("mesh", "mesh from the URL has to be the same as in body"),
        ],
    );
    // What is wrong with the spec is said first, and alone.
    body["spec"] = timeout("one", "-1s")["spec"].clone();
    let problem = world.put(TIMEOUTS, &body).await.expect_problem_titled(400, "Could not process a resource");
    let fields = problem["invalid_parameters"].as_array().unwrap();
    assert!(fields.iter().all(|found| found["field"].as_str().unwrap().starts_with("spec.")), "{problem}");
    let zone = json!({ "type": "Mesh", "name": "two" });
    world.put("/zones/one", &zone).await.expect_fields(
        "Could not process a resource",
        &[
            ("name", "name from the URL has to be the same as in body"),
            ("type", "type from the URL has to be the same as in body"),
        ],
    );
}

#[tokio::test]
async fn a_body_without_a_mesh_means_the_default_mesh_where_the_schema_says_so() {
    let world = World::new().await;
    world.store(Kind::Mesh, "", "other", json!({})).await;
    let body = json!({ "type": "MeshTimeout", "name": "one", "spec": timeout("one", "1s")["spec"] });
    world.put(TIMEOUTS, &body).await.expect(201);
    assert_eq!(world.get(TIMEOUTS).await.json()["mesh"], "default");
    let mismatch = ("mesh", "mesh from the URL has to be the same as in body");
    let elsewhere = world.put("/meshes/other/meshtimeouts/one", &body).await;
    elsewhere.expect_fields("Could not process a resource", &[mismatch]);
    // The older kinds have no such default.
    let dataplane = json!({ "type": "Dataplane", "name": "one", "networking": { "address": "10.0.0.1" } });
    world
        .put("/meshes/default/dataplanes/one", &dataplane)
        .await
        .expect_fields("Could not process a resource", &[mismatch, ("mesh", "cannot be empty")]);
}

#[tokio::test]
async fn a_name_in_the_body_that_is_another_and_no_name_is_told_as_both() {
    let world = World::new().await;
    let mismatch = ("name", "name from the URL has to be the same as in body");
    let mut body = timeout("No_Name", "1s");
    let no_name = "invalid characters. A lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                   characters, '-' or '.', and must start and end with an alphanumeric character";
    let title = "Could not process a resource";
    world.put(TIMEOUTS, &body).await.expect_fields(title, &[mismatch, ("name", no_name)]);
    // A resource that exists may have a name of older versions.
    world.put(TIMEOUTS, &timeout("one", "1s")).await.expect(201);
    let no_name = "invalid characters. Valid characters are numbers, lowercase latin letters and '-', '_', '.' symbols.";
    world.put(TIMEOUTS, &body).await.expect_fields(title, &[mismatch, ("name", no_name)]);
    body["name"] = json!("");
    world.put(TIMEOUTS, &body).await.expect_fields(title, &[mismatch, ("name", "cannot be empty")]);
}

#[tokio::test]
async fn labels_that_never_change_are_refused_as_a_change() {
    let world = World::new().await;
    world.put(TIMEOUTS, &timeout("one", "1s")).await.expect(201);
    let mut body = timeout("one", "2s");
    body["labels"] = json!({ "kuma.io/origin": "global" });
    let origin = r#"labels["kuma.io/origin"]"#;
    let zone = r#"labels["kuma.io/zone"]"#;
    world.put(TIMEOUTS, &body).await.expect_fields(
        "Could not update a resource",
        &[
            (origin, r#"is immutable, cannot be changed from "zone" to "global""#),
            (zone, r#"is immutable, cannot be removed (was "east")"#),
        ],
    );
}

#[tokio::test]
async fn names_that_no_hostname_can_have_are_warned_about() {
    let world = World::new().await;
    let selector = json!({ "meshService": { "matchLabels": { "app": "a" } } });
    for (kind, path, spec) in [
        ("Mesh", "/meshes/7up", json!(null)),
        ("MeshService", "/meshes/default/meshservices/7up", json!({})),
        (
            "MeshExternalService",
            "/meshes/default/meshexternalservices/7up",
            json!({ "match": { "port": 80 },
            "endpoints": [{ "address": "10.0.0.1", "port": 80 }] }),
        ),
        (
            "MeshMultiZoneService",
            "/meshes/default/meshmultizoneservices/7up",
            json!({ "selector": selector, "ports": [{ "port": 80 }] }),
        ),
    ] {
        let mut body = json!({ "type": kind, "mesh": "default", "name": "7up" });
        if !spec.is_null() {
            body["spec"] = spec;
        }
        let answer = world.put(path, &body).await.expect(201).json();
        let warnings = answer["warnings"].as_array().unwrap();
        let expect = format!(
            "Invalid {kind} resource name: '7up'. It does not conform to the DNS format (RFC 1035). This is deprecated. \
             Errors: a DNS-1035 label must consist of"
        );
        assert!(warnings.iter().any(|warning| warning.as_str().unwrap().starts_with(&expect)), "{answer}");
    }
    let body = resource(Kind::MeshService, "default", "up7", json!({}));
    assert_eq!(world.put("/meshes/default/meshservices/up7", &body).await.expect(201).body, "{}\n");
}

#[tokio::test]
async fn every_violation_of_the_spec_and_of_the_name_is_reported_at_once() {
    let world = World::new().await;
    let body = json!({ "type": "MeshTimeout", "mesh": "default", "name": "No_Such", "spec": {
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "-1s" } }],
    } });
    let answer = world.put("/meshes/default/meshtimeouts/No_Such", &body).await;
    let problem = answer.expect_problem(400, "Could not process a resource", "Resource is not valid");
    let fields: Vec<&str> = problem["invalid_parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["field"].as_str().unwrap())
        .collect();
    assert!(fields.iter().any(|field| field.starts_with("spec.to[0].default")), "{fields:?}");
    assert!(fields.contains(&"name"), "{fields:?}");
    world.get("/meshes/default/meshtimeouts").await.expect(200);
    assert_eq!(world.get("/meshes/default/meshtimeouts").await.json()["total"], 0);
}

#[tokio::test]
async fn malformed_bodies_are_bad_requests_that_say_where() {
    let world = World::new().await;
    let bomb = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let object_bomb = r#"{"a":"#.repeat(50_000);
    for (body, part) in [
        (b"{".to_vec(), "EOF while parsing"),
        (b"".to_vec(), "EOF while parsing"),
        (b"[]".to_vec(), "expected a JSON object"),
        (b"null".to_vec(), "expected a JSON object"),
        (b"{\"name\": \"\xff\"}".to_vec(), "invalid unicode"),
        (bomb.into_bytes(), "recursion limit"),
        (object_bomb.into_bytes(), "recursion limit"),
    ] {
        let answer = world.send(request(Method::PUT, TIMEOUTS, Body::from(body))).await;
        let problem = answer.expect_problem_titled(400, "Bad Request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with("invalid MeshTimeout object: \"") && detail.contains(part), "{detail}");
    }
}

#[tokio::test]
async fn what_a_policys_schema_refuses_is_told_with_its_field_and_alone() {
    let world = World::new().await;
    for (body, expect) in [
        (
            json!({}),
            &[
                ("", ".name in body is required"),
                ("", ".spec in body is required"),
                ("", ".type in body is required"),
            ][..],
        ),
        (
            json!({ "type": "Mesh", "name": "one", "spec": {} }),
            &[("", "type in body should be one of [MeshTimeout]")],
        ),
        (
            json!({ "type": "MeshTimeout", "name": "two", "spec": "x" }),
            &[("", "spec in body must be of type object: \"string\"")],
        ),
        (
            json!({ "type": "MeshTimeout", "name": "two", "spec": { "to": [{ "targetRef": { "kind": "Mesh", "name": 1 },
                "default": {} }], "rules": null } }),
            &[
                ("spec.rules", "in body must be of type array: \"null\""),
                ("spec.to[0].targetRef.name", "in body must be of type string: \"number\""),
            ],
        ),
    ] {
        world.put(TIMEOUTS, &body).await.expect_fields("Could not process a resource", expect);
    }
    let body = json!({ "type": "Dataplane", "mesh": "default", "name": "web", "networking": [] });
    let answer = world.put("/meshes/default/dataplanes/web", &body).await;
    let problem = answer.expect_problem_titled(400, "Bad Request");
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(detail, "invalid Dataplane object: \"networking: invalid type: array, expected object\"");
}

#[tokio::test]
async fn the_constraints_of_a_mesh_keep_a_dataplane_out() {
    const WEB: &str = "/meshes/default/dataplanes/web";
    let world = World::new().await;
    let mesh = json!({ "type": "Mesh", "name": "default", "constraints": { "dataplaneProxy": {
        "requirements": [{ "tags": { "team": "*" } }] } } });
    world.put("/meshes/default", &mesh).await.expect(200);
    let body = |inbounds: serde_json::Value| {
        json!({ "type": "Dataplane", "mesh": "default", "name": "web",
                "networking": { "address": "10.0.0.1", "inbound": inbounds } })
    };
    let answer = world.put(WEB, &body(json!([{ "port": 80, "tags": { "kuma.io/service": "web" } }]))).await;
    answer.expect_problem(
        400,
        "Bad Request",
        "bad request: dataplane cannot be a member of mesh \"default\" because its tags \"kuma.io/service=web \
         kuma.io/zone=east\" does not fulfill any requirements defined on the Mesh",
    );
    // A Dataplane without inbounds only calls others.
    world.put(WEB, &body(json!([]))).await.expect(201);
}

#[tokio::test]
async fn an_explicit_null_in_a_json_patch_survives_a_stay_in_the_store() {
    const PATCH: &str = "/meshes/default/meshproxypatches/p";
    let world = World::new().await;
    let patches = json!([{ "op": "add", "path": "/a", "value": null }, { "op": "add", "path": "/b", "value": { "c": null } }]);
    let body = json!({ "type": "MeshProxyPatch", "mesh": "default", "name": "p", "spec": { "default": {
        "appendModifications": [{ "cluster": { "operation": "Patch", "jsonPatches": patches } }] } } });
    world.put(PATCH, &body).await.expect(201);
    let read = world.get(PATCH).await.expect(200).json();
    assert_eq!(read["spec"]["default"]["appendModifications"][0]["cluster"]["jsonPatches"], patches);
}

#[tokio::test]
async fn a_missing_mesh_is_said_before_anything_else() {
    let world = World::new().await;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = world.send(request(method, "/meshes/none/meshtimeouts/one", Body::from("{"))).await;
        answer.expect_problem(404, "Failed to retrieve Mesh", "Not found");
    }
    for path in ["/meshes/none/meshtimeouts", "/meshes/none/dataplanes/_overview", "/meshes/none/secrets"] {
        world.get(path).await.expect_problem(404, "Failed to retrieve Mesh", "Not found");
    }
    world.get("/meshes/none").await.expect_problem(404, "Could not retrieve a resource", "Not found");
}

#[tokio::test]
async fn deleting_answers_an_empty_object_and_twice_not_found() {
    let world = World::new().await;
    world.put(TIMEOUTS, &timeout("one", "1s")).await.expect(201);
    assert_eq!(world.delete(TIMEOUTS).await.expect(200).body, "{}\n");
    world.delete(TIMEOUTS).await.expect_problem(404, "Could not delete a resource", "Not found");
}

#[tokio::test]
async fn a_mesh_with_dataplanes_stays() {
    let world = World::new().await;
    let spec = json!({ "networking": { "address": "10.0.0.1", "inbound": [
        { "port": 80, "tags": { "kuma.io/service": "web" } },
    ] } });
    world.store(Kind::Dataplane, "default", "web-1", spec).await;
    let problem = world.delete("/meshes/default").await;
    problem.expect_problem(400, "Could not delete a resource", "Resource is not valid");
    world.get("/meshes/default").await.expect(200);
}

#[tokio::test]
async fn kinds_that_belong_elsewhere_are_read_only_here() {
    let dataplane = resource(Kind::Dataplane, "default", "one", json!({}));
    let mesh = json!({ "type": "Mesh", "name": "one" });
    let federated = ControlPlaneRole::Zone { name: "east".into(), federated: true };
    let part = |text: &'static str| text;
    for (mode, path, body, said) in [
        (
            ControlPlaneRole::Global,
            "/meshes/default/dataplanes/one",
            &dataplane,
            part("On global control plane"),
        ),
        (federated, "/meshes/one", &mesh, part("On zone control plane")),
        (
            zone(),
            "/meshes/default/dataplane-insights/one",
            &dataplane,
            part("On zone control plane you can only modify zone resources"),
        ),
    ] {
        let world = World::with(mode, Settings::default()).await;
        for answer in [world.put(path, body).await, world.delete(path).await] {
            let problem = answer.expect_problem_titled(405, "Method not allowed");
            assert!(problem["detail"].as_str().unwrap().starts_with(said), "{problem}");
        }
    }
}

#[tokio::test]
async fn a_read_only_api_refuses_every_write_of_users_and_serves_reads() {
    let world = World::with(zone(), Settings { read_only: true, ..Settings::default() }).await;
    world.put(TIMEOUTS, &timeout("one", "1s")).await.expect_problem_titled(405, "Method not allowed");
    world.delete(TIMEOUTS).await.expect_problem_titled(405, "Method not allowed");
    // A proxy that registers is not a user of the API.
    let spec = json!({ "networking": { "address": "192.0.2.1", "inbound": [
        { "port": 80, "tags": { "kuma.io/service": "web" } },
    ] } });
    let spec = Spec::from_json(Kind::Dataplane, spec, &mut Vec::new()).unwrap();
    let own = Draft::new(Key::new(Kind::Dataplane, "default", "web"), spec);
    world.registrar.put(own).await.unwrap();
    world.get("/meshes/default/dataplanes/web").await.expect(200);
    world.get("/meshes/default").await.expect(200);
}

#[tokio::test]
async fn one_resource_is_shown_in_the_form_that_is_asked_for() {
    let world = World::new().await;
    world.put(TIMEOUTS, &timeout("one", "1s")).await.expect(201);
    for form in ["k8s", "kubernetes"] {
        let shown =
            world.get(&format!("{TIMEOUTS}?format={form}&namespace=mesh-ns")).await.expect(200).json();
        assert_eq!(
            (&shown["kind"], &shown["metadata"]["namespace"]),
            (&json!("MeshTimeout"), &json!("mesh-ns"))
        );
    }
    let universal = world.get(&format!("{TIMEOUTS}?format=universal")).await.expect(200).json();
    assert_eq!(universal["type"], "MeshTimeout");
    let choices = "must be one of \"k8s\", \"kubernetes\", \"universal\"";
    world
        .get(&format!("{TIMEOUTS}?format=toml"))
        .await
        .expect_fields("invalid format", &[("format", choices)]);
}

#[tokio::test]
async fn the_older_spelling_of_a_collection_is_the_same_collection() {
    let world = World::new().await;
    let secret = json!({ "type": "GlobalSecret", "name": "one", "data": "c2VjcmV0" });
    world.put("/global-secrets/one", &secret).await.expect(201);
    assert_eq!(world.get("/globalsecrets/one").await.expect(200).json()["data"], "c2VjcmV0");
    assert_eq!(world.get("/global-secrets").await.expect(200).json()["total"], 1);
}

#[tokio::test]
async fn a_proposed_virtual_outbound_reads_back_and_its_meaning_is_shown() {
    let world = World::new().await;
    let text = include_str!("../../../resources/tests/proposal/my-service-by-version.yaml");
    let body = resources::format::yaml::documents(text).unwrap().remove(0).value;
    let path = "/meshes/default/virtual-outbounds/my-service-by-version";
    let answer = world.put(path, &body).await.expect(201).json();
    assert_eq!(
        answer["warnings"],
        json!([
            "selectors[0]: the tags are beside \"match\" and are read as if they were under it; write \
             {\"match\":{\"kuma.io/service\":\"*\",\"version\":\"*\"}}",
            "conf.tags: is read as \"parameters\"; write {\"parameters\":[{\"name\":\"service\",\"tagKey\":\
             \"kuma.io/service\"},{\"name\":\"version\",\"tagKey\":\"version\"}]}",
            "conf.host: variables without a dot are read as if they had one; write \
             \"{{.version}}.{{.service}}.mesh\"",
        ])
    );
    let stored = world.get(path).await.expect(200).json();
    assert_eq!(stored["selectors"], json!([{ "match": { "kuma.io/service": "*", "version": "*" } }]));
    assert_eq!(
        stored["conf"],
        json!({
            "host": "{{version}}.{{service}}.mesh", "port": 8080,
            "tags": { "kuma.io/service": "service", "version": "version" }
        })
    );
    assert_eq!(world.put(path, &stored).await.expect(200).header("x-kuma-outcome"), "unchanged");
    assert_eq!(world.put(path, &body).await.expect(200).header("x-kuma-outcome"), "unchanged");
    // What Kuma ships reads back so, too, and needs no advice.
    let mut shipped = stored;
    shipped["conf"] = json!({
        "host": "{{.version}}.{{.service}}.mesh", "port": "8080",
        "parameters": [
            { "name": "service", "tagKey": "kuma.io/service" }, { "name": "version", "tagKey": "version" }
        ]
    });
    assert_eq!(world.put(path, &shipped).await.expect(200).body.as_str(), "{}\n");
    assert_eq!(world.get(path).await.expect(200).json()["conf"], shipped["conf"]);
}
