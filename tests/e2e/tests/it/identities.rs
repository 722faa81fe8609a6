//! Identities by MeshIdentity: a mesh moves to them, and their authority is replaced, while all services call each other.

use base64::{Engine, prelude::BASE64_STANDARD};
use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call, dataplane, with_outbound},
};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P384_SHA384,
    PKCS_ECDSA_P521_SHA512, PKCS_ED25519, SignatureAlgorithm,
};
use serde_json::{Value, json};

use crate::world::{World, answered_by, by_reference, by_tags, every_client, load};

fn identity(name: &str, labels: Value) -> Value {
    let bundled = json!({"autogenerate": {"enabled": true}, "insecureAllowSelfSigned": true});
    json!({"type": "MeshIdentity", "mesh": "default", "name": name, "spec": {
        "selector": {"dataplane": {"matchLabels": labels}},
        "spiffeID": {"trustDomain": "shop.example"},
        "provider": {"type": "Bundled", "bundled": bundled}}})
}

fn labelled(mut dataplane: Value, workload: &str) -> Value {
    dataplane["labels"] = json!({"kuma.io/workload": workload});
    dataplane
}

/// True if the certificates that a proxy shows contain `what`.
fn shows(proxy: &RunningProxy, what: &str) -> bool {
    proxy.admin("/certs").is_ok_and(|certs| certs.contains(what))
}

/// Waits until an identity is in effect.
fn ready(world: &World, name: &str) {
    let path = format!("/meshes/default/meshidentities/{name}");
    let mut last = Value::Null;
    eventually(&format!("{name} to be ready"), || {
        last = world.control_plane.client().get(&path).map(|answer| answer.json()).unwrap_or_default();
        let mut conditions = last["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
    })
    .unwrap_or_else(|error| panic!("{error}: {last}"));
}

#[test]
fn a_mesh_moves_to_identities_and_a_new_authority_without_a_failure() {
    let world = World::start(Setup::default());
    let at = own_address();
    let app = Service::start("web-1", "http", (own_address(), 9000).into()).unwrap();
    let server = world.proxy(&labelled(dataplane("web-1", "web", at, "http", app.address), "web"));
    let address = own_address();
    let own =
        labelled(dataplane("client", "client", address, "http", (own_address(), 9000).into()), "client");
    let own = with_outbound(own, address, 10001, by_reference("web"));
    let client = world.proxy(&with_outbound(own, address, 10002, by_tags("web")));
    for port in [10001, 10002] {
        assert_eq!(answered_by(address, port), "web-1");
    }
    let show = |proxy: &RunningProxy, id: &str| {
        eventually(&format!("a certificate of {id}"), || shows(proxy, id)).unwrap_or_else(|error| {
            panic!("{error}: {}\n{}", proxy.admin("/certs").unwrap(), world.control_plane.log())
        });
    };
    let put = |identity: &Value| {
        let name = identity["name"].as_str().unwrap();
        world.put(&format!("/meshes/default/meshidentities/{name}"), identity);
    };
    let ready = |name: &str| ready(&world, name);
    let tls = json!({"type": "MeshTLS", "mesh": "default", "name": "newest",
        "spec": {"rules": [{"default": {"tlsVersion": {"min": "TLS13"}}}]}});
    world.put("/meshes/default/meshtlses/newest", &tls);
    let newest = || {
        let stats = server.admin("/stats?filter=ssl.versions.TLSv1.3").unwrap_or_default();
        answered_by(address, 10001) == "web-1" && stats.contains("ssl.versions.TLSv1.3")
    };
    eventually("the newest version of TLS", newest).unwrap();
    let change = || {
        // The one that is called gets an identity first, then all others.
        put(&identity("first", json!({"kuma.io/workload": "web"})));
        ready("first");
        show(&server, "spiffe://shop.example/workload/web");
        put(&identity("first", json!({})));
        show(&client, "spiffe://shop.example/workload/client");
        // Another authority of the same trust domain: it is trusted before it signs.
        put(&identity("second", json!({"selects": "nothing"})));
        ready("second");
        eventually("both authorities to be trusted", || {
            [&server, &client].iter().all(|proxy| trusted(proxy) == 2)
        })
        .unwrap_or_else(|error| panic!("{error}: {} {}", trusted(&server), trusted(&client)));
        put(&identity("second", json!({"kuma.io/workload": "web"})));
        world.insight("web-1", |insight| {
            insight["mTLS"]["issuedBackend"].as_str().is_some_and(|kri| kri.ends_with("_second_"))
        });
    };
    let mut by_tags = (0, Vec::new());
    let by_reference = load(address, 10001, || by_tags = load(address, 10002, change));
    for (calls, failures) in [by_reference, by_tags] {
        assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    }
}

#[test]
fn services_are_called_by_tags_where_identities_are_the_only_certificates() {
    let world = World::join(Setup::default());
    let mesh = json!({"type": "Mesh", "name": "default", "meshServices": {"mode": "Exclusive"}});
    world.put("/meshes/default", &mesh);
    world.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("Allow"));
    world.put("/meshes/default/meshidentities/all", &identity("all", json!({})));
    ready(&world, "all");
    let at = own_address();
    let app = Service::start("web-1", "http", (own_address(), 9000).into()).unwrap();
    let server = world.proxy(&labelled(dataplane("web-1", "web", at, "http", app.address), "web"));
    let address = own_address();
    let own =
        labelled(dataplane("client", "client", address, "http", (own_address(), 9000).into()), "client");
    let _client = world.proxy(&with_outbound(own, address, 10001, by_tags("web")));
    eventually("a certificate", || shows(&server, "spiffe://shop.example/workload/web")).unwrap();
    assert_eq!(answered_by(address, 10001), "web-1");
    assert!(call(at, 8080).is_err(), "plain clients are refused");
}

#[test]
fn permissions_by_spiffe_id_let_in_the_workloads_they_name_and_no_others() {
    let world = World::start(Setup::default());
    let at = own_address();
    let app = Service::start("web-1", "http", (own_address(), 9000).into()).unwrap();
    let server = world.proxy(&labelled(dataplane("web-1", "web", at, "http", app.address), "web"));
    let clients = ["shop", "batch"].map(|name| {
        let address = own_address();
        let own = labelled(dataplane(name, name, address, "http", (own_address(), 9000).into()), name);
        (name, world.proxy(&with_outbound(own, address, 10001, by_reference("web"))), address)
    });
    world.put("/meshes/default/meshidentities/all", &identity("all", json!({})));
    ready(&world, "all");
    for (name, proxy) in [("web", &server)].into_iter().chain(clients.iter().map(|(n, p, _)| (*n, p))) {
        let id = format!("spiffe://shop.example/workload/{name}");
        eventually(&format!("a certificate of {id}"), || shows(proxy, &id)).unwrap();
    }
    let allow = |matches: Value| {
        let rules = json!([{"default": {"allow": [{"spiffeID": matches}]}}]);
        let permission = json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "every-client",
            "spec": {"targetRef": {"kind": "Mesh"}, "rules": rules}});
        world.put("/meshes/default/meshtrafficpermissions/every-client", &permission);
    };
    let answered = |expected: [u16; 2]| {
        let mut last = Vec::new();
        eventually(&format!("answers {expected:?}"), || {
            let status = |address| call(address, 10001).map(|answer| answer.status).unwrap_or_default();
            last = clients.iter().map(|(_, _, address)| status(*address)).collect();
            last == expected
        })
        .unwrap_or_else(|error| panic!("{error}: {last:?}\n{}", world.control_plane.log()));
    };
    allow(json!({"type": "Exact", "value": "spiffe://shop.example/workload/shop"}));
    answered([200, 403]);
    allow(json!({"type": "Exact", "value": "spiffe://shop.example/workload/batch"}));
    answered([403, 200]);
    allow(json!({"type": "Prefix", "value": "spiffe://shop.example/workload/"}));
    answered([200, 200]);
    allow(json!({"type": "Prefix", "value": "spiffe://default/"}));
    answered([403, 403]);
}

/// An authority with a key of this kind, as a provider of identities.
fn given(algorithm: &'static SignatureAlgorithm) -> Value {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(&key).unwrap().pem();
    let inline = |text: &str| json!({"type": "InsecureInline", "insecureInline": {"value": text}});
    let ca = json!({"certificate": inline(&certificate), "privateKey": inline(&key.serialize_pem())});
    json!({"type": "Bundled", "bundled": {"ca": ca, "insecureAllowSelfSigned": true}})
}

#[test]
fn proxies_whose_authority_has_another_kind_of_key_call_each_other() {
    let world = World::start(Setup::default());
    let at = own_address();
    let app = Service::start("web-1", "http", (own_address(), 9000).into()).unwrap();
    let server = world.proxy(&labelled(dataplane("web-1", "web", at, "http", app.address), "web"));
    // Of equal selectors the first name decides.
    let kinds = [("c", &PKCS_ECDSA_P384_SHA384), ("b", &PKCS_ECDSA_P521_SHA512), ("a", &PKCS_ED25519)];
    for (name, algorithm) in kinds {
        let mut own = identity(name, json!({}));
        own["spec"]["spiffeID"]["trustDomain"] = json!(format!("{name}.example"));
        own["spec"]["provider"] = given(algorithm);
        world.put(&format!("/meshes/default/meshidentities/{name}"), &own);
        ready(&world, name);
        let id = |workload: &str| format!("spiffe://{name}.example/workload/{workload}");
        eventually(&format!("a certificate of {}", id("web")), || shows(&server, &id("web"))).unwrap();
        // One that is new has no connection from before.
        let address = own_address();
        let called = format!("client-{name}");
        let own = dataplane(&called, &called, address, "http", (own_address(), 9000).into());
        let own = with_outbound(labelled(own, &called), address, 10001, by_reference("web"));
        let client = world.proxy(&own);
        assert_eq!(answered_by(address, 10001), "web-1", "{name}");
        assert!(shows(&client, &id(&called)), "{}", client.admin("/certs").unwrap());
    }
}

/// Number of authorities that a proxy trusts for the trust domain of the identities.
fn trusted(proxy: &RunningProxy) -> usize {
    let dump = proxy.admin("/config_dump?resource=dynamic_active_secrets").unwrap();
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let secrets = dump["configs"].as_array().into_iter().flatten();
    let domains = secrets.flat_map(|secret| {
        let validator = &secret["secret"]["validation_context"]["custom_validator_config"]["typed_config"];
        validator["trust_domains"].as_array().cloned().unwrap_or_default()
    });
    let of_identities = domains.filter(|domain| domain["name"] == "shop.example");
    let pems = of_identities.filter_map(|domain| {
        let bytes = BASE64_STANDARD.decode(domain["trust_bundle"]["inline_bytes"].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    });
    pems.map(|pem| pem.matches("BEGIN CERTIFICATE").count()).sum()
}
