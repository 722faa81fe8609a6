//! The certificate authorities of meshes: who may change them, and what is shown of them.

use api::Settings;
use axum::body::Body;
use http::Method;
use identity::ca::Files;
use serde_json::{Value, json};

use crate::world::{World, remote, zone};

/// A certificate authority: certificate and key.
fn authority() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn mesh(backend: Value) -> Value {
    let mtls = json!({ "enabledBackend": backend["name"], "backends": [backend] });
    json!({ "type": "Mesh", "name": "one", "mtls": mtls })
}

fn builtin() -> Value {
    mesh(json!({ "name": "ca-1", "type": "builtin" }))
}

fn provided(cert: Value, key: Value) -> Value {
    mesh(json!({ "name": "own", "type": "provided", "conf": { "cert": cert, "key": key } }))
}

async fn put_by_stranger(world: &World, body: &Value) -> crate::world::Answer {
    world.send(remote(Method::PUT, "/meshes/one", Body::from(body.to_string()))).await
}

#[tokio::test]
async fn mtls_settings_are_changed_by_administrators_only() {
    let world = World::new().await;
    let user = "mesh-system:anonymous/mesh-system:unauthenticated";
    let detail = format!("user {user:?} cannot change the mTLS settings of a mesh");
    put_by_stranger(&world, &builtin()).await.expect_problem(403, "Access Denied", &detail);
    let plain = json!({ "type": "Mesh", "name": "one" });
    put_by_stranger(&world, &plain).await.expect(201);
    put_by_stranger(&world, &builtin()).await.expect_problem(403, "Access Denied", &detail);
    world.put("/meshes/one", &builtin()).await.expect(200);

    // Neither off, nor another way, nor away with the mesh; what else the mesh says is open.
    put_by_stranger(&world, &plain).await.expect_problem(403, "Access Denied", &detail);
    let mut permissive = builtin();
    permissive["mtls"]["backends"][0]["mode"] = "PERMISSIVE".into();
    put_by_stranger(&world, &permissive).await.expect_problem(403, "Access Denied", &detail);
    let delete = remote(Method::DELETE, "/meshes/one", Body::empty());
    world.send(delete).await.expect_problem(403, "Access Denied", &detail);
    let mut other = builtin();
    other["routing"] = json!({ "localityAwareLoadBalancing": true });
    put_by_stranger(&world, &other).await.expect(200);
    let stored = world.get("/meshes/one").await.expect(200).json();
    assert_eq!((&stored["mtls"], &stored["routing"]), (&other["mtls"], &other["routing"]));
}

#[tokio::test]
async fn keys_are_masked_in_every_way_of_reading_and_survive_being_put_back() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let (cert, key) = authority();
    let encoded = STANDARD.encode(&key);
    for (place, written) in [("inlineString", &key), ("inline", &encoded)] {
        let world = World::new().await;
        let body = provided(json!({ "inlineString": cert }), json!({ place: written }));
        world.put("/meshes/one", &body).await.expect(201);
        let paths = ["/meshes/one", "/meshes", "/meshes/one?format=k8s", "/_kri/kri_m____one_"];
        for path in paths {
            let shown = world.get(path).await.expect(200).body;
            assert!(shown.contains("*****") && shown.contains("BEGIN CERTIFICATE"), "{path}: {shown}");
            assert!(!shown.contains(&written[30..60]), "{path}: {shown}");
        }
        let read = world.get("/meshes/one").await.expect(200).json();
        let again = world.put("/meshes/one", &read).await.expect(200);
        assert_eq!(again.header("x-kuma-outcome"), "unchanged");
        // Not even an administrator is asked for what does not change.
        put_by_stranger(&world, &read).await.expect(200);
        let stored = world.registrar.store().snapshot().unwrap();
        let stored = stored.get(&resources::Key::global(resources::Kind::Mesh, "one")).unwrap();
        assert_eq!(stored.spec.to_json()["mtls"], body["mtls"]);

        let mut renamed = read;
        renamed["mtls"]["backends"][0]["name"] = "other".into();
        renamed["mtls"]["enabledBackend"] = "other".into();
        let field = format!("mtls.backends[0].conf.key.{place}");
        let text = "***** stands for a key that is not stored: write the key itself";
        let refused = world.put("/meshes/one", &renamed).await;
        refused.expect_fields("Could not process a resource", &[(&field, text)]);
    }
}

#[tokio::test]
async fn an_authority_that_cannot_sign_is_refused_when_it_is_written() {
    let world = World::new().await;
    let (cert, key) = authority();
    let (_, other) = authority();
    let inline = |text: &str| json!({ "inlineString": text });
    let mut body = provided(inline(&cert), inline(&other));
    let text = "the key does not belong to the certificate";
    world
        .put("/meshes/one", &body)
        .await
        .expect_fields("Could not process a resource", &[("mtls.backends[0].conf.key", text)]);
    body["mtls"]["skipValidation"] = true.into();
    world.put("/meshes/one", &body).await.expect(201);
    world.put("/meshes/one", &provided(inline(&cert), inline(&key))).await.expect(200);
}

#[tokio::test]
async fn a_failing_authority_is_refused_with_its_field_and_leaves_no_mesh() {
    let world = World::new().await;
    for wrong in [json!("5x"), json!("-1s"), json!(7)] {
        let conf = json!({ "caCert": { "expiration": wrong } });
        let backend = json!({ "name": "ca-1", "type": "builtin", "conf": conf });
        let body = json!({ "type": "Mesh", "name": "one", "mtls": { "enabledBackend": "ca-1", "backends": [backend] } });
        let field = "mtls.backends[0].conf.caCert.expiration";
        let refused = world.put("/meshes/one", &body).await;
        refused.expect_fields("Could not process a resource", &[(field, "has to be a valid format")]);
        world.get("/meshes/one").await.expect(404);
    }
}

#[tokio::test]
async fn files_of_an_authority_are_in_the_folder_that_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = authority();
    std::fs::write(folder.path().join("cert.pem"), &cert).unwrap();
    std::fs::write(folder.path().join("key.pem"), &key).unwrap();
    let settings = Settings { data_sources: Files::within(folder.path()), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    let file = |path: &str| json!({ "file": path });
    world.put("/meshes/one", &provided(file("cert.pem"), file("key.pem"))).await.expect(201);
    let refused = world.put("/meshes/one", &provided(file("/etc/passwd"), file("key.pem"))).await;
    let problem = refused.expect_problem_titled(400, "Could not process a resource");
    let said = problem["invalid_parameters"][0]["reason"].as_str().unwrap();
    assert!(said.contains("there is no such file in"), "{said}");
}

#[tokio::test]
async fn keys_in_identities_and_external_services_are_masked_and_survive() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let (cert, key) = authority();
    let encoded = STANDARD.encode(&key);
    let inline = |text: &str| json!({ "type": "InsecureInline", "insecureInline": { "value": text } });
    let ca = json!({ "certificate": inline(&cert), "privateKey": inline(&key) });
    let provider = json!({ "type": "Bundled", "bundled": { "ca": ca, "insecureAllowSelfSigned": true } });
    let identity = json!({ "selector": { "dataplane": {} }, "provider": provider });
    let service = |place: &str, key: &str| {
        let client = json!({ "clientCert": { "inlineString": cert }, "clientKey": { place: key } });
        let endpoints = json!([{ "address": "192.0.2.1", "port": 443 }]);
        json!({ "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tcp" },
            "endpoints": endpoints, "tls": { "enabled": true, "verification": client } })
    };
    let in_identity = "/spec/provider/bundled/ca/privateKey/insecureInline/value";
    for (kind, path, place, spec) in [
        ("MeshIdentity", "meshidentities", in_identity, identity),
        (
            "MeshExternalService",
            "meshexternalservices",
            "/spec/tls/verification/clientKey/inlineString",
            service("inlineString", &key),
        ),
        (
            "MeshExternalService",
            "meshexternalservices",
            "/spec/tls/verification/clientKey/inline",
            service("inline", &encoded),
        ),
    ] {
        let world = World::new().await;
        let at = format!("/meshes/default/{path}/one");
        let body = json!({ "type": kind, "mesh": "default", "name": "one", "spec": spec });
        let written = body.pointer(place).unwrap().as_str().unwrap();
        world.put(&at, &body).await.expect(201);
        for path in
            [at.clone(), format!("/meshes/default/{path}"), format!("/{path}"), format!("{at}?format=k8s")]
        {
            let shown = world.get(&path).await.expect(200).body;
            assert!(shown.contains("*****") && shown.contains("BEGIN CERTIFICATE"), "{path}: {shown}");
            assert!(!shown.contains(&written[30..60]), "{path}: {shown}");
        }
        let read = world.get(&at).await.expect(200).json();
        assert_eq!(read.pointer(place), Some(&json!("*****")));
        let again = world.put(&at, &read).await.expect(200);
        assert_eq!(again.header("x-kuma-outcome"), "unchanged");
        let what_if = json!({ "resources": [read] });
        let answer = world.post("/meshes/default/_what-if?only=admission", &what_if).await.expect(200).body;
        assert!(!answer.contains(&written[30..60]), "{answer}");
        let mut other = read.clone();
        other["name"] = "two".into();
        let refused = world.put(&format!("/meshes/default/{path}/two"), &other).await;
        let field = place.trim_start_matches('/').replace('/', ".");
        let text = "***** stands for a key that is not stored: write the key itself";
        refused.expect_fields("Could not process a resource", &[(&field, text)]);
        let kind = resources::Kind::by_name(kind).unwrap();
        let stored = world.registrar.store().snapshot().unwrap();
        let stored = stored.get(&resources::Key::new(kind, "default", "one")).unwrap().spec.to_json();
        assert_eq!(stored.pointer(place.trim_start_matches("/spec")), Some(&json!(written)));
    }
}
