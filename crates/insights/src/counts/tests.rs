//! Tests of the counts, and that following changes counts the same as counting anew.

use std::collections::BTreeMap;

use proptest::prelude::*;
use resources::{Key, Spec};
use serde_json::{Value, json};

use super::*;

fn resource(key: Key, spec: Value) -> Arc<Resource> {
    Arc::new(testkit::resource::stored(key, &[("kuma.io/zone", "east")], spec))
}

fn of_kind(kind: Kind, name: &str, spec: Value) -> Arc<Resource> {
    resource(Key::new(kind, "default", name), spec)
}

/// Services with whether their inbound is ready.
fn dataplane(name: &str, inbounds: &[(&str, &str)]) -> Arc<Resource> {
    let inbound = |(index, (service, state)): (usize, &(&str, &str))| json!({ "port": 80 + index, "state": state, "tags": { "kuma.io/service": service } });
    let inbounds: Vec<Value> = inbounds.iter().enumerate().map(inbound).collect();
    of_kind(Kind::Dataplane, name, json!({ "networking": { "address": "10.0.0.1", "inbound": inbounds } }))
}

fn connected(name: &str, connected: bool, more: Value) -> Arc<Resource> {
    let mut subscription = json!({
        "id": "1", "connectTime": "2024-05-01T10:00:00Z",
        "version": { "kumaDp": { "version": "2.14.3" }, "envoy": { "version": "1.40.0" } }
    });
    if !connected {
        subscription["disconnectTime"] = json!("2024-05-01T11:00:00Z");
    }
    let mut spec = json!({ "subscriptions": [subscription] });
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    of_kind(Kind::DataplaneInsight, name, spec)
}

fn counted(resources: impl IntoIterator<Item = Arc<Resource>>) -> (Value, Value) {
    counted_in("Everywhere", resources)
}

/// The MeshInsight and the services of the ServiceInsight.
fn counted_in(mode: &str, resources: impl IntoIterator<Item = Arc<Resource>>) -> (Value, Value) {
    let mesh = resource(Key::global(Kind::Mesh, "default"), json!({ "meshServices": { "mode": mode } }));
    let snapshot = Snapshot::load(1, resources.into_iter().chain([mesh]));
    let counts = Counts::read(&snapshot, "default");
    let services = Spec::from(counts.services().clone()).to_json()["services"].clone();
    (Spec::from(counts.mesh(&snapshot, "default")).to_json(), services)
}

#[test]
fn proxies_are_counted_by_how_they_fare() {
    let mtls = json!({ "mTLS": { "issuedBackend": "ca-1", "supportedBackends": ["ca-1", "ca-2"] } });
    let (mesh, _) = counted([
        dataplane("ready", &[("web", "Ready")]),
        connected("ready", true, mtls.clone()),
        dataplane("partly", &[("web", "Ready"), ("web-admin", "NotReady")]),
        connected("partly", true, mtls),
        dataplane("unready", &[("web", "NotReady")]),
        connected("unready", true, json!({})),
        dataplane("gone", &[("web", "Ready")]),
        connected("gone", false, json!({})),
        dataplane("never", &[("web", "Ready")]),
        dataplane("client", &[]),
        connected("client", true, json!({})),
    ]);
    let all = json!({ "total": 6, "online": 2, "offline": 3, "partiallyDegraded": 1 });
    assert_eq!(mesh["dataplanes"], all);
    assert_eq!(
        mesh["dataplanesByType"],
        json!({ "standard": all, "gateway": {}, "gatewayBuiltin": {}, "gatewayDelegated": {} })
    );
    let told = json!({ "total": 5, "online": 2, "offline": 2, "partiallyDegraded": 1 });
    let untold = json!({ "total": 1, "offline": 1 });
    assert_eq!(
        mesh["dpVersions"],
        json!({
            "kumaDp": { "2.14.3": told, "unknown": untold },
            "envoy": { "1.40.0": told, "unknown": untold }
        })
    );
    let with_mtls = json!({ "total": 2, "online": 1, "partiallyDegraded": 1 });
    assert_eq!(
        mesh["mTLS"],
        json!({ "issuedBackends": { "ca-1": with_mtls }, "supportedBackends": { "ca-1": with_mtls, "ca-2": with_mtls } })
    );
}

#[test]
fn gateways_are_counted_apart() {
    let gateway = |name: &str, kind: &str| {
        let gateway = json!({ "type": kind, "tags": { "kuma.io/service": name } });
        of_kind(Kind::Dataplane, name, json!({ "networking": { "address": "10.0.0.1", "gateway": gateway } }))
    };
    let (mesh, services) = counted([
        gateway("edge", "BUILTIN"),
        connected("edge", true, json!({})),
        gateway("nginx", "DELEGATED"),
    ]);
    let online = json!({ "total": 1, "online": 1 });
    let offline = json!({ "total": 1, "offline": 1 });
    assert_eq!(
        mesh["dataplanesByType"],
        json!({
            "standard": {}, "gateway": { "total": 2, "online": 1, "offline": 1 },
            "gatewayBuiltin": online, "gatewayDelegated": offline
        })
    );
    assert_eq!(services["edge"]["serviceType"], "gateway_builtin");
    assert_eq!(services["edge"]["status"], "online");
    assert_eq!(services["nginx"]["serviceType"], "gateway_delegated");
}

#[test]
fn in_exclusive_meshes_delegated_gateways_are_counted_by_their_tags() {
    let gateway = |name: &str, kind: &str| {
        let gateway = json!({ "type": kind, "tags": { "kuma.io/service": name } });
        of_kind(Kind::Dataplane, name, json!({ "networking": { "address": "10.0.0.1", "gateway": gateway } }))
    };
    let external = json!({
        "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tls" },
        "endpoints": [{ "address": "example.com", "port": 443 }]
    });
    let resources = || {
        [
            gateway("nginx", "DELEGATED"),
            connected("nginx", true, json!({})),
            gateway("edge", "BUILTIN"),
            dataplane("one", &[("web", "Ready")]),
            of_kind(Kind::MeshExternalService, "example", external.clone()),
        ]
    };
    let (mesh, services) = counted_in("Exclusive", resources());
    assert_eq!(
        services,
        json!({ "nginx": {
            "status": "online", "serviceType": "gateway_delegated", "dataplanes": { "total": 1, "online": 1 },
            "zones": ["east"]
        } })
    );
    assert_eq!(mesh["services"], Value::Null);
    assert_eq!(mesh["resources"]["MeshExternalService"], json!({ "total": 1 }));
    let (mesh, services) = counted_in("Everywhere", resources());
    assert_eq!(services.as_object().unwrap().len(), 4);
    assert_eq!(mesh["services"], json!({ "total": 4, "internal": 3, "external": 1 }));
}

#[test]
fn what_is_listed_follows_the_mode_of_the_mesh() {
    let key = Key::global(Kind::Mesh, "default");
    let mesh = |mode: &str| resource(key.clone(), json!({ "meshServices": { "mode": mode } }));
    let mut counts = Counts::default();
    let web = dataplane("one", &[("web", "Ready")]);
    counts.replace(&web.key, Some(&web));
    for (mode, listed) in [("Exclusive", 0), ("Everywhere", 1), ("Exclusive", 0)] {
        counts.replace(&key, Some(&mesh(mode)));
        assert_eq!(counts.services().services.len(), listed, "{mode}");
    }
}

#[test]
fn services_fare_as_the_proxies_that_serve_them() {
    let mtls = json!({ "mTLS": { "issuedBackend": "ca-1" } });
    let external = json!({
        "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tls" },
        "endpoints": [{ "address": "example.com", "port": 443 }]
    });
    let (mesh, services) = counted([
        dataplane("one", &[("web", "Ready"), ("admin", "NotReady")]),
        connected("one", true, mtls),
        dataplane("two", &[("web", "Ready"), ("web", "NotReady")]),
        connected("two", false, json!({})),
        dataplane("three", &[("api", "Ready")]),
        connected("three", true, json!({})),
        of_kind(Kind::MeshExternalService, "example", external.clone()),
        of_kind(Kind::MeshExternalService, "api", external),
    ]);
    assert_eq!(
        services,
        json!({
            "admin": {
                "status": "offline", "dataplanes": { "total": 1, "offline": 1 },
                "issuedBackends": { "ca-1": 1 }, "zones": ["east"]
            },
            "api": { "status": "online", "dataplanes": { "total": 1, "online": 1 }, "zones": ["east"] },
            "example": { "serviceType": "external", "dataplanes": {}, "addressPort": "example.com:443" },
            "web": {
                "status": "partially_degraded", "dataplanes": { "total": 2, "online": 1, "offline": 1 },
                "issuedBackends": { "ca-1": 1 }, "zones": ["east"]
            }
        })
    );
    assert_eq!(mesh["services"], json!({ "total": 5, "internal": 3, "external": 2 }));
}

#[test]
fn resources_of_the_mesh_are_counted_by_kind() {
    let policy = |name| of_kind(Kind::MeshTimeout, name, json!({ "targetRef": { "kind": "Mesh" } }));
    let elsewhere = resource(Key::new(Kind::MeshTimeout, "elsewhere", "a"), json!({}));
    let (mesh, _) = counted([
        policy("a"),
        policy("b"),
        elsewhere,
        dataplane("web", &[]),
        connected("web", true, json!({})),
        of_kind(Kind::Secret, "s", json!({ "data": "" })),
    ]);
    assert_eq!(mesh["policies"], json!({ "MeshTimeout": { "total": 2 } }));
    assert_eq!(
        mesh["resources"],
        json!({ "Dataplane": { "total": 1 }, "MeshTimeout": { "total": 2 }, "Secret": { "total": 1 } })
    );
}

/// A history in small numbers: which resource, and what is in it (`None` deletes it).
type Step = (u8, u8, Option<[u8; 3]>);

fn build(kind: u8, name: u8, [a, b, c]: [u8; 3]) -> Arc<Resource> {
    let service = |seed: u8| ["web", "api", "e-0", "e-1"][usize::from(seed)];
    let state = |seed: u8| ["Ready", "NotReady", "Ignored", "Ready"][usize::from(seed)];
    match kind {
        0 | 1 if a == 3 => {
            let kind = if b > 1 { "BUILTIN" } else { "DELEGATED" };
            let gateway = json!({ "type": kind, "tags": { "kuma.io/service": service(c) } });
            let networking = json!({ "address": "10.0.0.1", "gateway": gateway });
            of_kind(Kind::Dataplane, &format!("dp-{name}"), json!({ "networking": networking }))
        }
        0 | 1 => dataplane(&format!("dp-{name}"), &[(service(a), state(b)), (service(b), state(c))]),
        2 | 3 => {
            let backends: Vec<&str> = ["ca-1", "ca-2"][..usize::from(c % 3)].to_vec();
            let issued = ["", "ca-1", "ca-2", "ca-2"][usize::from(b)];
            let mtls = json!({ "mTLS": { "issuedBackend": issued, "supportedBackends": backends } });
            connected(&format!("dp-{name}"), a > 0, if b == 3 { json!({}) } else { mtls })
        }
        4 => {
            let endpoints = json!([{ "address": format!("{a}.example.com"), "port": 443 }]);
            let spec = json!({ "match": { "port": 443, "protocol": "tls" }, "endpoints": endpoints });
            of_kind(Kind::MeshExternalService, &format!("e-{name}"), spec)
        }
        5 => {
            let mode = ["Disabled", "Everywhere", "Exclusive", "Exclusive"][usize::from(a)];
            resource(Key::global(Kind::Mesh, "default"), json!({ "meshServices": { "mode": mode } }))
        }
        _ => of_kind(Kind::MeshTimeout, &format!("t-{name}"), json!({ "targetRef": { "kind": "Mesh" } })),
    }
}

fn follow(history: &[Step]) {
    let mut stored: BTreeMap<Key, Arc<Resource>> = BTreeMap::new();
    let mut counts = Counts::default();
    for &(kind, name, content) in history {
        let built = build(kind, name, content.unwrap_or_default());
        let present = content.map(|_| built.clone());
        match &present {
            Some(built) => stored.insert(built.key.clone(), built.clone()),
            None => stored.remove(&built.key),
        };
        counts.replace(&built.key, present.as_ref());
        let snapshot = Snapshot::load(1, stored.values().cloned());
        let anew = Counts::read(&snapshot, "default");
        assert_eq!(counts.services(), anew.services());
        assert_eq!(counts.mesh(&snapshot, "default"), anew.mesh(&snapshot, "default"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_that_follow_changes_are_those_counted_anew(
        history in prop::collection::vec(
            (0u8..7, 0u8..3, prop::option::weighted(0.75, prop::array::uniform3(0u8..4))), 1..40,
        )
    ) {
        follow(&history);
    }
}

#[test]
fn a_proxy_that_comes_online_counts_for_its_own_services_only() {
    let mut counts = Counts::default();
    for i in 0..1000 {
        let dataplane = dataplane(&format!("dp-{i}"), &[(&format!("s-{i}"), "Ready")]);
        counts.replace(&dataplane.key, Some(&dataplane));
    }
    let before = counts.visits();
    let insight = connected("dp-500", true, json!({}));
    counts.replace(&insight.key, Some(&insight));
    assert_eq!(counts.visits() - before, 1);
    assert_eq!(counts.services().services["s-500"].status, ServiceStatus::Online);
    counts.replace(&insight.key, Some(&insight));
    assert_eq!(counts.visits() - before, 1, "it says what it said before");
}
