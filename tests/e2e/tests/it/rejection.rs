//! Rejections by a proxy are seen by the operator, with Envoy's words and the resource to blame, and stop
//! nothing else.

use std::net::{Ipv4Addr, TcpListener};

use e2e::{
    Client, Kumactl, Setup, eventually,
    proxy::own_address,
    service::{Service, dataplane, with_outbound},
};
use serde_json::{Value, json};

use crate::world::{UNIFIED, World, answered_by, by_reference, client_with, every_client};

/// A service outside the mesh whose certificate is verified with this authority.
fn outside(address: Ipv4Addr, authority: Option<&str>) -> Value {
    let mut spec = json!({
        "match": {"type": "HostnameGenerator", "port": 9010, "protocol": "http"},
        "endpoints": [{"address": address.to_string(), "port": 9000}]
    });
    if let Some(authority) = authority {
        spec["tls"] = json!({"enabled": true, "verification": {"caCert": {"inlineString": authority}}});
    }
    json!({"type": "MeshExternalService", "mesh": "default", "name": "outside", "spec": spec})
}

/// Exit code and output of `kumactl proxy status` for one proxy.
fn status(kumactl: &Kumactl, proxy: &str) -> (Option<i32>, String) {
    let output = kumactl.run(&["proxy", "status", proxy]).unwrap();
    let words = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&words).into_owned())
}

#[test]
fn what_envoy_refuses_is_told_with_its_reason_and_stops_no_other_change() {
    let world = World::start(Setup::default());
    let kumactl = Kumactl::of(&world.control_plane).unwrap();
    let external = own_address();
    let _external = Service::start("outside", "http", (external, 9000).into()).unwrap();
    let path = "/meshes/default/meshexternalservices/outside";
    let target = json!({"kind": "MeshExternalService", "name": "outside"});
    let slow = json!({"type": "MeshTimeout", "mesh": "default", "name": "slow", "spec": {
        "to": [{"targetRef": target, "default": {"connectionTimeout": "4s"}}]}});
    world.put("/meshes/default/meshtimeouts/slow", &slow);
    let targets = [
        json!({"backendRef": {"kind": "MeshExternalService", "name": "outside", "port": 9010}}),
        by_reference("late"),
    ];
    let clients = [("older", &[][..]), ("newer", &[UNIFIED][..])]
        .map(|(name, variables)| (name, client_with(&world, name, &targets, variables)));
    let mut late = Vec::new();
    for (name, (_proxy, address)) in &clients {
        world.put(path, &outside(external, None));
        assert_eq!(answered_by(*address, 10001), "outside");
        let synced = || status(&kumactl, name).0 == Some(0);
        eventually("everything to be synced", synced)
            .unwrap_or_else(|error| panic!("{error}: {:?}", status(&kumactl, name)));

        let nonsense = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n";
        world.put(path, &outside(external, Some(nonsense)));
        let blames = |(code, words): &(Option<i32>, String)| {
            *code == Some(3)
                && words.contains("rejected")
                && words.contains("kri_extsvc_default_default__outside_")
                && words.contains("Failed to load trusted CA certificates")
                && words.contains("kri_mt_default_default__slow_")
        };
        eventually("the refusal to be told", || blames(&status(&kumactl, name)))
            .unwrap_or_else(|error| panic!("{error}: {:?}", status(&kumactl, name)));
        world.insight(name, |insight| {
            let last =
                insight["subscriptions"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
            let refused = &last["status"]["rejections"][0];
            refused["type"] == "cds"
                && refused["kri"] == "kri_extsvc_default_default__outside_9010"
                && refused["policies"]
                    .as_array()
                    .is_some_and(|policies| policies.contains(&json!("kri_mt_default_default__slow_")))
                && refused["message"].as_str().is_some_and(|words| words.contains("trusted CA"))
        });

        // Another cluster, other endpoints, another listener: all of them arrive at the same proxy.
        let service = format!("late-{name}");
        late.push(world.service(&service, "late", "http"));
        eventually("what came later to be called", || answered_by(*address, 10002) == service).unwrap();
        // What was accepted before is still in effect.
        assert_eq!(answered_by(*address, 10001), "outside");
        assert!(blames(&status(&kumactl, name)), "{:?}", status(&kumactl, name));

        world.put(path, &outside(external, None));
        eventually("everything to be synced again", synced)
            .unwrap_or_else(|error| panic!("{error}: {:?}", status(&kumactl, name)));
    }
}

#[test]
fn a_listener_that_cannot_open_is_reported_and_the_others_work() {
    let world = World::start(Setup::default());
    let kumactl = Kumactl::of(&world.control_plane).unwrap();
    let _servers = [world.service("web-1", "web", "http"), world.service("blocked-1", "blocked", "http")];
    for (name, variables) in [("older", &[][..]), ("newer", &[UNIFIED][..])] {
        let address = own_address();
        let mut own = dataplane(name, name, address, "http", (own_address(), 9000).into());
        own = with_outbound(own, address, 10001, by_reference("web"));
        own = with_outbound(own, address, 10002, by_reference("blocked"));
        // Somebody on the proxy's machine has the port already.
        let somebody = TcpListener::bind((address, 10002)).unwrap();
        let _proxy = world.proxy_with(&own, variables);
        assert_eq!(answered_by(address, 10001), "web-1");
        let blames = |(code, words): &(Option<i32>, String)| {
            *code == Some(3)
                && words.contains("kri_msvc_default_default__blocked_main")
                && words.contains(&format!("{address}:10002"))
                && !words.contains("kri_msvc_default_default__web_main")
        };
        eventually("the refusal to be told", || blames(&status(&kumactl, name)))
            .unwrap_or_else(|error| panic!("{error}: {:?}", status(&kumactl, name)));
        drop(somebody);
    }
}

#[test]
fn an_inbound_whose_port_is_taken_is_not_ready_and_not_called() {
    let world = World::start(Setup::default());
    let _served = world.service("web-1", "web", "http");
    let address = own_address();
    let app = own_address();
    let _app = Service::start("web-2", "http", (app, 9000).into()).unwrap();
    let somebody = TcpListener::bind((address, 8080)).unwrap();
    let blocked = world.proxy(&dataplane("web-2", "web", address, "http", (app, 9000).into()));
    let health = Client::new(format!("http://127.0.0.1:{}", blocked.readiness_port()));
    let ready = || health.get("/ready").unwrap();
    eventually("the agent to know", || ready().status == 503 && ready().body.contains("rejected"))
        .unwrap_or_else(|error| panic!("{error}: {:?}", ready()));
    let healthy = || {
        let service = world.control_plane.client().get("/meshes/default/meshservices/web").unwrap().json();
        service["status"]["dataplaneProxies"]["healthy"].as_u64()
    };
    let (_caller, calls) = client_with(&world, "caller", &[by_reference("web")], &[]);
    for _ in 0..20 {
        assert_eq!(answered_by(calls, 10001), "web-1");
    }
    assert_eq!(healthy(), Some(1), "a proxy that listens nowhere is not healthy");

    drop(somebody);
    // A listener that changes is sent at once, one that was refused only after a pause.
    world.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("AllowWithShadowDeny"));
    eventually("the second one to answer", || answered_by(calls, 10001) == "web-2").unwrap();
    eventually("both to be healthy", || healthy() == Some(2) && ready().status == 200).unwrap();
}

#[test]
fn of_what_envoy_quotes_nothing_is_told_and_the_policy_is_blamed() {
    let world = World::start(Setup::default());
    let kumactl = Kumactl::of(&world.control_plane).unwrap();
    let _servers = [world.service("web-1", "web", "http"), world.service("other-1", "other", "http")];
    // A listener that Envoy refuses, with something in it that is secret.
    let value = "maxConnectionsToAcceptPerSocketEvent: 0\nstatPrefix: hidden";
    let listener = json!({"operation": "Patch", "value": value,
        "match": {"tags": {"kuma.io/unified-name": "kri_msvc_default_default__web_main"}}});
    let spec = json!({"default": {"appendModifications": [{"listener": listener}]}});
    let patch = json!({"type": "MeshProxyPatch", "mesh": "default", "name": "bad", "spec": spec});
    world.put("/meshes/default/meshproxypatches/bad", &patch);
    for (name, variables) in [("older", &[][..]), ("newer", &[UNIFIED][..])] {
        let targets = [by_reference("web"), by_reference("other")];
        let (_proxy, address) = client_with(&world, name, &targets, variables);
        eventually("the other destination", || answered_by(address, 10002) == "other-1").unwrap();
        world.insight(name, |insight| {
            let last = insight["subscriptions"].as_array().and_then(|all| all.last()).cloned();
            let refused = last.unwrap_or_default()["status"]["rejections"].clone();
            let message = refused[0]["message"].as_str().unwrap_or_default();
            refused.as_array().is_some_and(|all| all.len() == 1)
                && refused[0]["kri"] == "kri_msvc_default_default__web_main"
                && refused[0]["policies"].to_string().contains("kri_mpp_default_default__bad_")
                && message.contains("Proto constraint validation failed")
                && message.contains("ListenerValidationError")
                && !message.contains("hidden")
        });
        assert_eq!(status(&kumactl, name).0, Some(3));
    }
    assert!(!world.control_plane.log().contains("goo.gle"), "{}", world.control_plane.log());
}
