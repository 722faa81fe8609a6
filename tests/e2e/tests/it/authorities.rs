//! Whose certificates are believed, and how they are replaced while everybody talks.

use e2e::{
    Setup, eventually,
    proxy::{Proxy, own_address},
    service::{call, dataplane, with_outbound},
};
use serde_json::{Value, json};

use crate::world::{World, answered_by, by_reference, by_tags, client, load};

fn mesh(name: &str, enabled: &str, backends: &[Value]) -> Value {
    json!({"type": "Mesh", "name": name, "meshServices": {"mode": "Exclusive"},
        "mtls": {"enabledBackend": enabled, "backends": backends}})
}

fn builtin(name: &str) -> Value {
    json!({"name": name, "type": "builtin", "mode": "STRICT"})
}

#[test]
fn a_certificate_of_another_mesh_is_refused() {
    let world = World::start(Setup::default());
    let (_app, server, inbound) = world.service("web-1", "web", "http");
    let (_bystander, allowed) = client(&world, "bystander", &[by_reference("web")]);
    assert_eq!(answered_by(allowed, 10001), "web-1");

    world.put("/meshes/other", &mesh("other", "ca-1", &[builtin("ca-1")]));
    // The other mesh claims the server as its own, so its proxies do call it.
    let mut claimed = dataplane("web-1", "web", inbound, "http", (own_address(), 9000).into());
    claimed["mesh"] = json!("other");
    world.put("/meshes/other/dataplanes/web-1", &claimed);
    let address = own_address();
    let stranger = dataplane("stranger", "stranger", address, "http", (own_address(), 9000).into());
    let mut stranger = with_outbound(stranger, address, 10001, by_tags("web"));
    stranger["mesh"] = json!("other");
    let _stranger = world.proxy(&stranger);

    let refused = || server.stat(&format!("listener.{inbound}_8080.ssl.connection_error")).unwrap();
    let before = refused();
    let mut last = String::new();
    eventually("the stranger to be refused", || {
        let answer = call(address, 10001);
        assert!(!answer.as_ref().is_ok_and(|answer| answer.status == 200), "let in: {answer:?}");
        last = format!("{answer:?}");
        answer.is_ok_and(|answer| answer.status == 503) && refused() > before
    })
    .unwrap_or_else(|error| {
        panic!("{error}: {last} {}", server.admin("/stats?usedonly&filter=ssl").unwrap())
    });
    assert_eq!(answered_by(allowed, 10001), "web-1");
}

#[test]
fn the_authority_of_a_mesh_is_replaced_without_a_failed_request() {
    let world = World::start(Setup::default());
    let (_app, server, _) = world.service("web-1", "web", "http");
    let (caller, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let issued_by = |backend: &str| {
        for proxy in ["web-1", "client"] {
            world.insight(proxy, |insight| insight["mTLS"]["issuedBackend"] == backend);
        }
    };
    let trusted_roots = |count: usize| {
        eventually(&format!("{count} trusted roots"), || {
            [&server, &caller].iter().all(|proxy| roots(proxy) == count)
        })
        .unwrap_or_else(|error| panic!("{error}: {} {}", roots(&server), roots(&caller)));
    };
    let (calls, failures) = load(address, 10001, || {
        issued_by("ca-1");
        world.put("/meshes/default", &mesh("default", "ca-1", &[builtin("ca-1"), builtin("ca-2")]));
        trusted_roots(2);
        world.put("/meshes/default", &mesh("default", "ca-2", &[builtin("ca-1"), builtin("ca-2")]));
        issued_by("ca-2");
        world.put("/meshes/default", &mesh("default", "ca-2", &[builtin("ca-2")]));
        trusted_roots(1);
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
}

/// How many roots of its mesh a proxy believes.
fn roots(proxy: &Proxy) -> usize {
    let dump = proxy.admin("/config_dump?resource=dynamic_active_secrets").unwrap();
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let secrets = dump["configs"].as_array().into_iter().flatten();
    let bundles = secrets
        .filter_map(|secret| secret["secret"]["validation_context"]["trusted_ca"]["inline_string"].as_str());
    bundles.map(|bundle| bundle.matches("BEGIN CERTIFICATE").count()).max().unwrap_or_default()
}

#[test]
fn certificates_are_replaced_before_they_end_without_a_failed_request() {
    let world = World::start(Setup::default());
    let mut short = builtin("ca-1");
    short["dpCert"] = json!({"rotation": {"expiration": "5s"}});
    world.put("/meshes/default", &mesh("default", "ca-1", &[short]));
    let (_app, _server, _) = world.service("web-1", "web", "http");
    let (_client, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let (calls, failures) = load(address, 10001, || {
        for proxy in ["web-1", "client"] {
            world.insight(proxy, |insight| {
                insight["mTLS"]["certificateRegenerations"].as_u64().is_some_and(|count| count >= 4)
            });
        }
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
}
