//! Output of `export`: its order, and the changes on the way.

use resources::Kind;
use serde_json::{Value, json};

use crate::{
    control_plane::{ZoneControlPlane, synced},
    program::Program,
    server::Server,
};

/// A mesh whose authority the control plane made, and one resource of some types.
fn filled() -> ZoneControlPlane {
    let control_plane = ZoneControlPlane::start();
    control_plane.delete(Kind::Mesh, "", "default");
    let in_mesh = |kind: &str, name: &str, mut fields: Value| {
        fields["type"] = kind.into();
        (fields["mesh"], fields["name"]) = ("shop".into(), name.into());
        fields["labels"] = json!({"kuma.io/origin": "zone", "kuma.io/mesh": "shop"});
        fields
    };
    let global = |name: &str| json!({"type": "GlobalSecret", "name": name, "data": "eA=="});
    let backend = json!({"file": {"path": "/tmp/log"}, "type": "File"});
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"backends": [backend]}}]);
    let networking =
        json!({"address": "10.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]});
    for resource in [
        json!({"type": "Mesh", "name": "shop", "mtls": {"enabledBackend": "ca-1", "backends": [
            {"name": "ca-1", "type": "builtin", "conf": {"caCert": {"expiration": "10d"}}},
            {"name": "spare", "type": "builtin", "conf": {"caCert": {"expiration": "20d"}}},
            {"name": "own", "type": "provided", "conf": {"cert": {"secret": "x"}, "key": {"secret": "y"}}}]}}),
        global("envoy-admin-ca"),
        global("inter-cp-ca"),
        global("user-token-signing-key-1"),
        global("zone-token-signing-key-1"),
        json!({"type": "Zone", "name": "east"}),
        in_mesh("Dataplane", "web-1", json!({"networking": networking})),
        in_mesh("DataplaneInsight", "web-1", synced()),
        in_mesh("MeshAccessLog", "logs", json!({"spec": {"to": to}})),
        in_mesh("Secret", "key", json!({"data": "eA=="})),
        in_mesh("Secret", "shop.ca-builtin-cert-ca-1", json!({"data": "eA=="})),
        in_mesh("Secret", "shop.ca-builtin-key-ca-1", json!({"data": "eA=="})),
    ] {
        control_plane.store(resource);
    }
    control_plane
}

fn exported(url: &str, arguments: &[&str]) -> Vec<Value> {
    let ran = Program::at(url).run(&[&["export"], arguments].concat()).ok();
    assert!(ran.out.starts_with("# Product: Kuma, Version: 2.14.3, Hostname: "), "{ran:#?}");
    assert!(ran.out.lines().nth(1) == Some("---"), "{ran:#?}");
    let documents = resources::format::yaml::documents(&ran.out).unwrap();
    documents.into_iter().map(|document| document.value).filter(|value| !value.is_null()).collect()
}

fn names(documents: &[Value]) -> Vec<String> {
    documents
        .iter()
        .map(|d| format!("{}/{}", d["type"].as_str().unwrap(), d["name"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_profile_selects_types_and_the_order_is_that_of_applying() {
    let control_plane = filled();
    let check = |arguments: &[&str], expect: &[&str]| {
        assert_eq!(names(&exported(&control_plane.url, arguments)), expect, "{arguments:?}");
    };
    let keys = ["GlobalSecret/zone-token-signing-key-1", "GlobalSecret/user-token-signing-key-1"];
    let secrets = ["Secret/key", "Secret/shop.ca-builtin-cert-ca-1", "Secret/shop.ca-builtin-key-ca-1"];
    let federation = [&["Mesh/shop"], &secrets[..], &keys].concat();
    check(&[], &federation);
    check(&["--profile", "federation"], &federation);
    let policies = [&["Mesh/shop"], &secrets[..], &["MeshAccessLog/logs"]].concat();
    check(&["-p", "federation-with-policies"], &[&policies[..], &keys].concat());
    let rest = ["MeshAccessLog/logs", "Zone/east"];
    check(&["-p", "no-dataplanes"], &[&["Mesh/shop"], &rest[..]].concat());
    let all = [&["Dataplane/web-1", "DataplaneInsight/web-1"], &rest[..]].concat();
    check(&["-p", "all"], &[&["Mesh/shop"], &all[..]].concat());
    check(&["-p", "all", "-a"], &[&["Mesh/shop"], &secrets[..], &all[..], &keys].concat());
}

#[test]
fn a_mesh_brings_its_authority_along_and_gets_no_policies_of_its_own() {
    let control_plane = filled();
    let mesh = exported(&control_plane.url, &["-p", "all"]).remove(0);
    assert_eq!(mesh["skipCreatingInitialPolicies"], json!(["*"]));
    assert_eq!(mesh["mtls"]["skipValidation"], true);
    let backends = &mesh["mtls"]["backends"];
    let conf = json!({"cert": {"secret": "shop.ca-builtin-cert-ca-1"}, "key": {"secret": "shop.ca-builtin-key-ca-1"}});
    assert_eq!((&backends[0]["type"], &backends[0]["conf"]), (&json!("provided"), &conf));
    assert_eq!(backends[2]["conf"], json!({"cert": {"secret": "x"}, "key": {"secret": "y"}}));
}

#[test]
fn an_authority_never_made_is_left_to_the_other_control_plane() {
    let control_plane = filled();
    for profile in ["federation", "all"] {
        let mesh = exported(&control_plane.url, &["-p", profile]).remove(0);
        let spare = json!({"name": "spare", "type": "builtin", "conf": {"caCert": {"expiration": "20d"}}});
        assert_eq!(mesh["mtls"]["backends"][1], spare, "{profile}");
    }
    let text = Program::at(&control_plane.url).run(&["export"]).ok().out;
    assert!(!text.contains("ca-builtin-cert-spare"), "{text}");
}

#[test]
fn the_origin_of_resources_is_left_out_for_federation_only() {
    let control_plane = filled();
    let labels = |arguments: &[&str]| {
        let all = exported(&control_plane.url, arguments);
        all.into_iter().find(|d| d["type"] == "Secret").unwrap()["labels"].clone()
    };
    let mut stored = control_plane.get("/meshes/shop/secrets/key")["labels"].clone();
    assert_eq!(labels(&["-p", "all", "-a"]), stored);
    assert_eq!(stored["kuma.io/origin"], "zone");
    stored.as_object_mut().unwrap().remove("kuma.io/origin");
    assert_eq!(labels(&[]), stored);
}

#[test]
fn another_control_plane_takes_what_was_exported() {
    let control_plane = filled();
    let other = ZoneControlPlane::global();
    let ran = Program::at(&control_plane.url).run(&["export", "-p", "federation-with-policies"]).ok();
    Program::at(&other.url).run_with_stdin(&["apply"], &ran.out).ok();
    let log = |of: &ZoneControlPlane| of.get("/meshes/shop/meshaccesslogs/logs")["spec"].clone();
    assert_eq!(log(&other), log(&control_plane));
    assert_eq!(other.get("/globalsecrets/user-token-signing-key-1")["data"], "eA==");
}

/// A control plane in a cluster, which ours is not: its objects have what the cluster wrote, and its types are Kuma's.
fn in_a_cluster() -> Server {
    let server = Server::start();
    let kind = |name: &str, path: &str, scope: &str| json!({"name": name, "path": path, "scope": scope, "includeInFederation": true, "policy": null});
    let kinds = [
        kind("GlobalSecret", "globalsecrets", "Global"),
        kind("MeshGateway", "meshgateways", "Mesh"),
        kind("Mesh", "meshes", "Global"),
        kind("Secret", "secrets", "Mesh"),
        kind("Sidecar", "sidecars", "Mesh"),
    ];
    server.on("GET", "/_resources", 200, json!({"resources": kinds}));
    let item = |kind: &str, name: &str| json!({"type": kind, "mesh": "shop", "name": name});
    let global = |name: &str| json!({"type": "GlobalSecret", "name": name, "data": "eA=="});
    for (path, items) in [
        ("/meshes", vec![json!({"type": "Mesh", "name": "shop"})]),
        ("/globalsecrets", vec![global("user-token-signing-key-1"), global("zone-token-signing-key-1")]),
        ("/meshes/shop/meshgateways", vec![item("MeshGateway", "edge")]),
        ("/meshes/shop/secrets", vec![item("Secret", "key")]),
    ] {
        let list = json!({"total": items.len(), "items": items, "next": null});
        server.on("GET", &format!("{path}?size=1000"), 200, list);
    }
    server
}

#[test]
fn types_of_kuma_alone_are_exported_and_unknown_ones_are_named() {
    let server = in_a_cluster();
    let all = names(&exported(&server.url, &["-p", "federation-with-policies"]));
    assert!(all.contains(&"MeshGateway/edge".to_owned()), "{all:?}");
    let ran = Program::of(&server).run(&["export"]).ok();
    ran.says("no such types are known: Sidecar");
}

#[test]
fn kubernetes_objects_are_of_one_namespace_without_cluster_fields() {
    let server = in_a_cluster();
    let object = |kind: &str, name: &str, namespace: Option<&str>| {
        let metadata = json!({"name": name, "namespace": namespace, "uid": "1", "resourceVersion": "2", "generation": 3,
            "managedFields": [], "ownerReferences": [], "annotations": {"kuma.io/origin": "zone"},
            "labels": {"kuma.io/origin": "zone", "a": "b"}});
        json!({"apiVersion": "kuma.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": {"old": true}})
    };
    for (path, object) in [
        ("/meshes/shop", object("Mesh", "shop", None)),
        ("/meshes/shop/secrets/key", object("Secret", "key", Some("kuma-system"))),
        ("/globalsecrets/zone-token-signing-key-1", object("Secret", "zone", Some("elsewhere"))),
        ("/globalsecrets/user-token-signing-key-1", object("Secret", "user", Some("elsewhere"))),
    ] {
        server.on("GET", &format!("{path}?format=kubernetes"), 200, object);
    }
    let objects = exported(&server.url, &["-f", "kubernetes"]);
    assert_eq!(objects.len(), 2, "{objects:#?}");
    assert_eq!(objects[0]["spec"]["skipCreatingInitialPolicies"], json!(["*"]));
    assert!(objects[0]["spec"].get("old").is_none() && objects[0]["spec"].get("type").is_none());
    let metadata = json!({"name": "key", "namespace": "kuma-system", "labels": {"a": "b"}});
    assert_eq!(objects[1]["metadata"], metadata);
    let elsewhere = exported(&server.url, &["-f", "kubernetes", "-n", "elsewhere"]);
    assert_eq!(elsewhere.len(), 3, "{elsewhere:#?}");
}
