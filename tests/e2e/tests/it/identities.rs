//! Identities by MeshIdentity: a mesh moves to them, and their authority is replaced, while everybody talks.

use base64::{Engine, prelude::BASE64_STANDARD};
use e2e::{
    Setup, eventually,
    proxy::{Proxy, own_address},
    service::{Service, dataplane, with_outbound},
};
use serde_json::{Value, json};

use crate::world::{World, answered_by, by_reference, load};

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

/// Whose certificate a proxy shows now.
fn shows(proxy: &Proxy, what: &str) -> bool {
    proxy.admin("/certs").is_ok_and(|certs| certs.contains(what))
}

#[test]
fn a_mesh_moves_to_identities_and_their_authority_is_replaced_without_a_failed_request() {
    let world = World::start(Setup::default());
    let (at, app) = (own_address(), Service::start("web-1", "http", (own_address(), 9000).into()).unwrap());
    let server = world.proxy(&labelled(dataplane("web-1", "web", at, "http", app.address), "web"));
    let address = own_address();
    let own =
        labelled(dataplane("client", "client", address, "http", (own_address(), 9000).into()), "client");
    let client = world.proxy(&with_outbound(own, address, 10001, by_reference("web")));
    assert_eq!(answered_by(address, 10001), "web-1");
    let show = |proxy: &Proxy, id: &str| {
        eventually(&format!("a certificate of {id}"), || shows(proxy, id)).unwrap_or_else(|error| {
            panic!("{error}: {}\n{}", proxy.admin("/certs").unwrap(), world.control_plane.log())
        });
    };
    let put = |identity: &Value| {
        let name = identity["name"].as_str().unwrap();
        world.put(&format!("/meshes/default/meshidentities/{name}"), identity);
    };
    let ready = |name: &str| {
        let path = format!("/meshes/default/meshidentities/{name}");
        let mut last = Value::Null;
        eventually(&format!("{name} to be ready"), || {
            last = world.control_plane.client().get(&path).map(|answer| answer.json()).unwrap_or_default();
            let mut conditions = last["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
    };
    let tls = json!({"type": "MeshTLS", "mesh": "default", "name": "newest",
        "spec": {"rules": [{"default": {"tlsVersion": {"min": "TLS13"}}}]}});
    world.put("/meshes/default/meshtlses/newest", &tls);
    let newest = || {
        let stats = server.admin("/stats?filter=ssl.versions.TLSv1.3").unwrap_or_default();
        answered_by(address, 10001) == "web-1" && stats.contains("ssl.versions.TLSv1.3")
    };
    eventually("the newest version of TLS", newest).unwrap();
    let (calls, failures) = load(address, 10001, || {
        // The one that is called gets an identity first, then everybody.
        put(&identity("first", json!({"kuma.io/workload": "web"})));
        ready("first");
        show(&server, "spiffe://shop.example/workload/web");
        put(&identity("first", json!({})));
        show(&client, "spiffe://shop.example/workload/client");
        // Another authority of the same trust domain: it is believed before it signs.
        put(&identity("second", json!({"nobody": "yet"})));
        ready("second");
        eventually("both authorities to be believed", || {
            [&server, &client].iter().all(|proxy| believed(proxy) == 2)
        })
        .unwrap_or_else(|error| panic!("{error}: {} {}", believed(&server), believed(&client)));
        put(&identity("second", json!({"kuma.io/workload": "web"})));
        world.insight("web-1", |insight| {
            insight["mTLS"]["issuedBackend"].as_str().is_some_and(|kri| kri.ends_with("_second_"))
        });
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
}

/// How many authorities a proxy believes about the trust domain of the identities.
fn believed(proxy: &Proxy) -> usize {
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
