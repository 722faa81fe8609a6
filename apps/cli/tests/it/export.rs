//! What `export` prints, in which order, and what it changes on the way.

use serde_json::{Value, json};

use crate::{program::Program, server::Server};

fn list(items: &[Value]) -> Value {
    json!({"total": items.len(), "items": items, "next": null})
}

/// A control plane with one mesh and one resource of some types.
fn server() -> Server {
    let server = Server::start();
    let kind = |name: &str, path: &str, scope: &str, federation: bool, policy: Value| json!({"name": name, "path": path, "scope": scope, "includeInFederation": federation, "policy": policy});
    let policy = json!({"isTargetRef": true});
    let kinds = [
        kind("GlobalSecret", "globalsecrets", "Global", true, Value::Null),
        kind("Dataplane", "dataplanes", "Mesh", false, Value::Null),
        kind("DataplaneInsight", "dataplane-insights", "Mesh", false, Value::Null),
        kind("MeshAccessLog", "meshaccesslogs", "Mesh", true, policy.clone()),
        kind("MeshGateway", "meshgateways", "Mesh", true, Value::Null),
        kind("Mesh", "meshes", "Global", true, Value::Null),
        kind("Zone", "zones", "Global", false, Value::Null),
        kind("Secret", "secrets", "Mesh", true, Value::Null),
        kind("Sidecar", "sidecars", "Mesh", true, Value::Null),
    ];
    server.on("GET", "/_resources", 200, json!({"resources": kinds}));
    let mesh = json!({"type": "Mesh", "name": "shop", "mtls": {"enabledBackend": "ca-1", "backends": [
        {"name": "ca-1", "type": "builtin", "conf": {"caCert": {"expiration": "10d"}}},
        {"name": "own", "type": "provided", "conf": {"cert": {"secret": "x"}}}]}});
    let item = |kind: &str, name: &str| {
        json!({"type": kind, "mesh": "shop", "name": name,
            "labels": {"kuma.io/origin": "zone", "kuma.io/mesh": "shop"}})
    };
    let global = |name: &str| json!({"type": "GlobalSecret", "name": name, "data": "eA=="});
    let collections = [
        ("/meshes", vec![mesh]),
        (
            "/globalsecrets",
            vec![
                global("envoy-admin-ca"),
                global("inter-cp-ca"),
                global("user-token-signing-key-1"),
                global("zone-token-signing-key-1"),
            ],
        ),
        ("/zones", vec![json!({"type": "Zone", "name": "east"})]),
        ("/meshes/shop/dataplanes", vec![item("Dataplane", "web-1")]),
        ("/meshes/shop/dataplane-insights", vec![item("DataplaneInsight", "web-1")]),
        ("/meshes/shop/meshaccesslogs", vec![item("MeshAccessLog", "logs")]),
        ("/meshes/shop/meshgateways", vec![item("MeshGateway", "edge")]),
        ("/meshes/shop/secrets", vec![item("Secret", "key")]),
    ];
    for (path, items) in collections {
        server.on("GET", &format!("{path}?size=1000"), 200, list(&items));
    }
    server
}

fn exported(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let program = Program::of(server);
    let ran = program.run(&[&["export"], arguments].concat()).ok();
    assert!(ran.err.contains("no such types are known: Sidecar"), "{ran:#?}");
    assert!(ran.out.starts_with("# Product: Kuma, Version: 2.14.3, Hostname: cp,"), "{ran:#?}");
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
fn profiles_say_which_types_are_exported_and_the_order_is_that_of_applying() {
    let server = server();
    let check = |arguments: &[&str], expect: &[&str]| {
        assert_eq!(names(&exported(&server, arguments)), expect, "{arguments:?}");
    };
    let keys = ["GlobalSecret/zone-token-signing-key-1", "GlobalSecret/user-token-signing-key-1"];
    let federation = [&["Mesh/shop", "Secret/key"][..], &keys].concat();
    check(&[], &federation);
    check(&["--profile", "federation"], &federation);
    let policies = ["Mesh/shop", "Secret/key", "MeshAccessLog/logs", "MeshGateway/edge"];
    check(&["-p", "federation-with-policies"], &[&policies[..], &keys].concat());
    let rest = ["MeshAccessLog/logs", "MeshGateway/edge", "Zone/east"];
    check(&["-p", "no-dataplanes"], &[&["Mesh/shop"], &rest[..]].concat());
    let all = [&["Dataplane/web-1", "DataplaneInsight/web-1"], &rest[..]].concat();
    check(&["-p", "all"], &[&["Mesh/shop"], &all[..]].concat());
    check(&["-p", "all", "-a"], &[&["Mesh/shop", "Secret/key"], &all[..], &keys].concat());
}

#[test]
fn a_mesh_brings_its_authority_along_and_gets_no_policies_of_its_own() {
    let server = server();
    let mesh = exported(&server, &["-p", "all"]).remove(0);
    assert_eq!(mesh["skipCreatingInitialPolicies"], json!(["*"]));
    assert_eq!(mesh["mtls"]["skipValidation"], true);
    let backends = &mesh["mtls"]["backends"];
    let conf = json!({"cert": {"secret": "shop.ca-builtin-cert-ca-1"}, "key": {"secret": "shop.ca-builtin-key-ca-1"}});
    assert_eq!((&backends[0]["type"], &backends[0]["conf"]), (&json!("provided"), &conf));
    assert_eq!(backends[1]["conf"], json!({"cert": {"secret": "x"}}));
}

#[test]
fn the_origin_of_resources_is_left_out_for_federation_only() {
    let server = server();
    let labels = |arguments: &[&str]| {
        let all = exported(&server, arguments);
        all.into_iter().find(|d| d["type"] == "Secret").unwrap()["labels"].clone()
    };
    assert_eq!(labels(&[]), json!({"kuma.io/mesh": "shop"}));
    assert_eq!(labels(&["-p", "all", "-a"]), json!({"kuma.io/origin": "zone", "kuma.io/mesh": "shop"}));
}

#[test]
fn kubernetes_objects_are_those_of_the_control_planes_namespace_without_what_the_cluster_wrote() {
    let server = server();
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
    let objects = exported(&server, &["-f", "kubernetes"]);
    assert_eq!(objects.len(), 2, "{objects:#?}");
    assert_eq!(objects[0]["spec"]["skipCreatingInitialPolicies"], json!(["*"]));
    assert!(objects[0]["spec"].get("old").is_none() && objects[0]["spec"].get("type").is_none());
    let metadata = json!({"name": "key", "namespace": "kuma-system", "labels": {"a": "b"}});
    assert_eq!(objects[1]["metadata"], metadata);
    let elsewhere = exported(&server, &["-f", "kubernetes", "-n", "elsewhere"]);
    assert_eq!(elsewhere.len(), 3, "{elsewhere:#?}");
}
