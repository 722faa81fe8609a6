//! Names that the application behind a proxy can call.

use api::Inspect;
use contract::hostnames::OfferedOutbound;
use plan::ProxyTraits;
use resources::{Key, Kind, Resource, Status};
use serde_json::{Value, json};

use super::{Inspected, layout::exclusive};
use crate::world::{resource, service, traits};

/// The service with this address and hostname.
pub fn named(name: &str, vip: &str, hostname: &str) -> Resource {
    let status = json!({
        "vips": [{ "ip": vip }],
        "addresses": [{
            "hostname": hostname, "origin": "HostnameGenerator",
            "hostnameGeneratorRef": { "coreName": "local-mesh-service" },
        }],
    });
    let service = service("default", name, &[("kuma.io/zone", "default")]);
    Resource { status: Some(Status::from_json(Kind::MeshService, status).unwrap()), ..service }
}

/// A proxy that traffic is redirected to.
pub fn redirected(name: &str, transparent: Value) -> Resource {
    let networking = json!({
        "address": "127.0.0.2",
        "inbound": [{ "port": 8080, "tags": { "kuma.io/service": "web" } }],
        "transparentProxying": transparent,
    });
    testkit::resource::dataplane(name, &[], networking)
}

#[tokio::test]
async fn hostnames_are_listed_with_addresses_origins_and_destinations() {
    let inspected = Inspected::new().await;
    let redirect = json!({ "redirectPortInbound": 15006, "redirectPortOutbound": 15001 });
    let services = [
        named("backend", "241.0.0.1", "backend.svc.mesh.local"),
        named("other", "241.0.0.2", "other.svc.mesh.local"),
        // It has no address yet.
        service("default", "pending", &[]),
    ];
    inspected.world.put(services.into_iter().chain([exclusive(""), redirected("web", redirect)])).await;
    let web = Key::new(Kind::Dataplane, "default", "web");
    let item = |name: &str, addresses: Value| {
        let origin =
            json!({ "kind": "MeshService", "name": name, "hostnameGenerator": "local-mesh-service" });
        let kri = format!("kri_msvc_default_default__{name}_80");
        json!({
            "hostname": format!("{name}.svc.mesh.local"), "addresses": addresses,
            "ports": [{ "port": 80, "origin": origin, "kri": kri }],
        })
    };
    for (resolver, ipv6) in [(true, true), (false, false)] {
        let traits = traits("default", "web");
        let work_dir = "/tmp/kuma-dp".to_owned();
        let _proxy = inspected.world.push.connect(ProxyTraits { resolver, ipv6, work_dir, ..traits });
        let with_twin =
            |address: &str, twin: &str| if ipv6 { json!([address, twin]) } else { json!([address]) };
        let expected = json!({
            "total": 2, "resolver": resolver, "conflicts": [],
            "items": [
                item("backend", with_twin("241.0.0.1", "::ffff:f100:1")),
                item("other", with_twin("241.0.0.2", "::ffff:f100:2")),
            ],
        });
        let found = inspected.proxies.hostnames(&web).await.unwrap();
        assert_eq!(serde_json::to_value(found).unwrap(), expected);
    }
    let layout = inspected.proxies.layout(&web).await.unwrap();
    let outbounds: Vec<_> = layout.outbounds.iter().map(|outbound| outbound.hostnames.join(" ")).collect();
    assert_eq!(outbounds, ["backend.svc.mesh.local:80", "other.svc.mesh.local:80"]);
}

#[tokio::test]
async fn hostnames_are_those_that_the_dataplane_can_reach() {
    let inspected = Inspected::new().await;
    let refs = json!([{ "kind": "MeshService", "name": "other" }]);
    let services = [
        named("backend", "241.0.0.1", "backend.svc.mesh.local"),
        named("other", "241.0.0.2", "other.svc.mesh.local"),
    ];
    let chosen = redirected("chosen", json!({ "reachableBackends": { "refs": refs } }));
    let plain = resource(
        Key::new(Kind::Dataplane, "default", "plain"),
        &[],
        json!({ "networking": { "address": "127.0.0.3", "inbound": [{ "port": 80 }] } }),
    );
    inspected.world.put(services.into_iter().chain([exclusive(""), chosen, plain])).await;
    for (proxy, expected) in [("chosen", &["other.svc.mesh.local"][..]), ("plain", &[])] {
        let found = inspected.proxies.hostnames(&Key::new(Kind::Dataplane, "default", proxy)).await.unwrap();
        let names: Vec<_> = found.items.iter().map(|item| item.hostname.as_str()).collect();
        assert_eq!(names, expected, "{proxy}");
    }
}

#[tokio::test]
async fn a_hostname_that_the_dataplane_lists_is_shown_as_its_own_and_wins() {
    let inspected = Inspected::new().await;
    let networking = |transparent: Value| {
        let mut networking = json!({
            "address": "127.0.0.2",
            "inbound": [{ "port": 8080, "tags": { "kuma.io/service": "web" } }],
            "outbound": [{
                "address": "127.0.0.9", "port": 5050, "hostname": "backend.svc.mesh.local",
                "backendRef": { "kind": "MeshService", "name": "other", "port": 80 },
            }],
        });
        if !transparent.is_null() {
            networking["transparentProxying"] = transparent;
        }
        json!({ "networking": networking })
    };
    let reach = json!({ "reachableBackends": { "refs": [{ "kind": "MeshService", "name": "backend" }] } });
    let dataplane = |name: &str, transparent: Value| {
        resource(Key::new(Kind::Dataplane, "default", name), &[], networking(transparent))
    };
    let services = [
        named("backend", "241.0.0.1", "backend.svc.mesh.local"),
        named("other", "241.0.0.2", "other.svc.mesh.local"),
    ];
    let proxies = [dataplane("plain", Value::Null), dataplane("transparent", reach)];
    inspected.world.put(services.into_iter().chain(proxies).chain([exclusive("")])).await;
    for (name, claimed_twice) in [("plain", false), ("transparent", true)] {
        let found = inspected.proxies.hostnames(&Key::new(Kind::Dataplane, "default", name)).await.unwrap();
        let claim = json!({
            "origin": { "kind": "Dataplane", "name": name }, "kri": "kri_msvc_default_default__other_80",
        });
        let mut at_port = claim.clone();
        at_port["port"] = json!(5050);
        let shown = serde_json::to_value(&found).unwrap();
        assert_eq!(shown["items"][0]["hostname"], "backend.svc.mesh.local");
        assert_eq!(shown["items"][0]["ports"], json!([at_port]), "{name}");
        assert_eq!(shown["items"][0]["addresses"][0], "127.0.0.9");
        assert_eq!(shown["conflicts"].as_array().unwrap().len(), usize::from(claimed_twice), "{shown:#}");
        if claimed_twice {
            assert_eq!(shown["conflicts"][0]["winner"], claim);
            assert_eq!(shown["conflicts"][0]["loser"]["origin"]["name"], "backend");
        }
        // The overview shows it once, where the Dataplane lists it.
        assert_eq!(api::inspect::hostnames::outbounds(&found), Vec::<OfferedOutbound>::new(), "{name}");
    }
    let layout = inspected.proxies.layout(&Key::new(Kind::Dataplane, "default", "plain")).await.unwrap();
    let outbounds: Vec<_> = layout.outbounds.iter().map(|outbound| outbound.hostnames.join(" ")).collect();
    assert_eq!(outbounds, ["backend.svc.mesh.local:5050"]);
}
