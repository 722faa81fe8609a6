//! A hostile zone and a hostile global control plane, row by row of the table in `docs/reference/kds.md`.

use kds::{
    Synced,
    receiver::Role,
    select::{Direction, WithdrawnZones},
};
use resources::{Kind, labels, naming::kds::hashed_name};
use serde_json::{Value, json};

use crate::{
    codec::resource,
    receiving::{arrives, mesh},
    world::{Plane, selection},
};

const PRODUCER: (&str, &str) = (labels::POLICY_ROLE, "producer");
const FROM_WEST: [(&str, &str); 2] = [(labels::ORIGIN, "zone"), (labels::ZONE, "west")];

fn global() -> Plane {
    let global = Plane::new();
    global.put(mesh("default"));
    global.put(resource(Kind::Zone, "", "west", &[], json!({})));
    global
}

/// The refusal of a policy that zone west sends to global under its right name.
fn zone_sends(kind: Kind, labels: &[(&str, &str)], spec: Value) -> Vec<String> {
    let name = hashed_name("default", "p", Some("west"), None);
    let labels: Vec<_> = labels.iter().copied().chain([(labels::DISPLAY_NAME, "p")]).collect();
    arrives(&global(), Role::Global("west".into()), kind, "default", &name, &labels, spec)
}

/// The refusal of a policy of zone west that global sends to zone east.
fn global_sends(kind: Kind, labels: &[(&str, &str)], spec: Value) -> Vec<String> {
    let east = Plane::new();
    east.put(mesh("default"));
    let labels: Vec<_> = FROM_WEST.iter().chain(labels).copied().collect();
    arrives(&east, Role::Zone("east".into()), kind, "default", "p", &labels, spec)
}

/// An honest global that stores it does not pass it on either.
fn goes_on(kind: Kind, labels: &[(&str, &str)], spec: Value) -> Option<Synced> {
    let labels: Vec<_> = FROM_WEST.iter().chain(labels).copied().collect();
    let stored = resource(kind, "default", "p", &labels, spec);
    selection(Direction::ToZone("east".into())).outgoing(&stored, &WithdrawnZones::default())
}

fn timeout_to(target: Value) -> Value {
    json!({ "to": [{ "targetRef": target, "default": { "idleTimeout": "1s" } }] })
}

fn route(rule: Value) -> Value {
    let matches = json!([{ "path": { "type": "PathPrefix", "value": "/" } }]);
    let target = json!({ "kind": "MeshService", "name": "kv" });
    json!({ "to": [{ "targetRef": target, "rules": [{ "matches": matches, "default": rule }] }] })
}

/// Every policy of a producer that reaches further than the calls to services of its zone.
fn too_far() -> Vec<(Kind, Value, &'static str)> {
    let own = || json!({ "kind": "MeshService", "name": "kv" });
    let mesh = json!({ "kind": "Mesh" });
    let allow = json!({ "action": "Allow" });
    let by_labels = |zone: &str| {
        timeout_to(json!({ "kind": "MeshService", "labels": { "kuma.io/zone": zone, "app": "kv" } }))
    };
    let no_zone = timeout_to(json!({ "kind": "MeshService", "labels": { "app": "kv" } }));
    let both = json!({
        "to": [
            { "targetRef": own(), "default": { "idleTimeout": "1s" } },
            { "targetRef": mesh, "default": { "idleTimeout": "1s" } },
        ],
    });
    let with_rules = json!({
        "to": [{ "targetRef": own(), "default": { "idleTimeout": "1s" } }],
        "rules": [{ "default": { "idleTimeout": "1s" } }],
    });
    let lua = json!({
        "default": { "appendModifications": [{ "cluster": { "operation": "Remove" } }] },
    });
    let log = json!({
        "to": [{ "targetRef": own(), "default": { "backends": [{ "type": "File", "file": { "path": "/tmp/x" } }] } }],
    });
    let elsewhere =
        json!({ "kind": "MeshService", "labels": { "kuma.io/zone": "east" }, "weight": 1, "port": 80 });
    let mirror = json!({
        "filters": [{
            "type": "RequestMirror",
            "requestMirror": { "backendRef": { "kind": "MeshExternalService", "name": "thief" } },
        }],
    });
    let environment = json!({
        "filters": [{
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": { "set": [{ "name": "x", "value": "%ENVIRONMENT(SECRET)%" }] },
        }],
    });
    vec![
        (
            Kind::MeshTrafficPermission,
            json!({ "from": [{ "targetRef": mesh, "default": allow }] }),
            "is for callers",
        ),
        (Kind::MeshTrafficPermission, json!({ "rules": [{ "default": { "allow": [] } }] }), "is for callers"),
        (Kind::MeshTLS, json!({ "rules": [{ "default": { "mode": "Permissive" } }] }), "is for callers"),
        (Kind::MeshProxyPatch, lua, "is for callers"),
        (Kind::MeshMetric, json!({ "default": {} }), "is for callers"),
        (Kind::MeshAccessLog, log, "is for callers"),
        (Kind::MeshTimeout, json!({}), "has entries in `to`"),
        (Kind::MeshTimeout, timeout_to(mesh.clone()), "MeshServices of its own zone"),
        (Kind::MeshTimeout, both, "to[1]"),
        (Kind::MeshTimeout, with_rules, "has no `rules`"),
        (Kind::MeshTimeout, no_zone, "MeshServices of its own zone"),
        (Kind::MeshTimeout, by_labels("east"), "MeshServices of its own zone"),
        (Kind::MeshHTTPRoute, route(json!({ "backendRefs": [elsewhere] })), "MeshServices of its own zone"),
        (Kind::MeshHTTPRoute, route(mirror), "MeshServices of its own zone"),
        (Kind::MeshHTTPRoute, route(environment), "command of Envoy's formatter"),
    ]
}

#[test]
fn a_producer_reaches_other_zones_by_calls_to_its_own_services_only() {
    for (kind, spec, reason) in too_far() {
        let refused = zone_sends(kind, &[PRODUCER], spec.clone());
        assert!(refused.len() == 1 && refused[0].contains(reason), "zone, {kind}: {refused:?}");
        let refused = global_sends(kind, &[PRODUCER], spec.clone());
        assert!(refused.len() == 1 && refused[0].contains(reason), "global, {kind}: {refused:?}");
        assert_eq!(goes_on(kind, &[PRODUCER], spec), None, "{kind}");
    }
    let by_name = timeout_to(json!({ "kind": "MeshService", "name": "kv" }));
    let by_labels = timeout_to(json!({ "kind": "MeshService", "labels": { "kuma.io/zone": "west" } }));
    let path = json!({ "filters": [{
        "type": "URLRewrite",
        "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/a%20b%20c" } },
    }] });
    let allowed =
        [(Kind::MeshTimeout, by_name), (Kind::MeshTimeout, by_labels), (Kind::MeshHTTPRoute, route(path))];
    for (kind, spec) in allowed {
        assert_eq!(zone_sends(kind, &[PRODUCER], spec.clone()), Vec::<String>::new(), "{spec}");
        assert_eq!(global_sends(kind, &[PRODUCER], spec.clone()), Vec::<String>::new(), "{spec}");
        assert!(goes_on(kind, &[PRODUCER], spec).is_some());
    }
}

#[test]
fn other_policies_of_a_zone_reach_global_and_no_other_zone() {
    let spec = || timeout_to(json!({ "kind": "Mesh" }));
    for role in ["system", "consumer", "workload-owner", "PRODUCER", ""] {
        let role = [(labels::POLICY_ROLE, role)];
        assert_eq!(zone_sends(Kind::MeshTimeout, &role, spec()), Vec::<String>::new());
        let refused = global_sends(Kind::MeshTimeout, &role, spec());
        assert_eq!(refused, ["it is a policy of zone \"west\" for its own proxies"]);
        assert_eq!(goes_on(Kind::MeshTimeout, &role, spec()), None);
    }
}

#[test]
fn kinds_that_do_not_go_across_come_from_no_other_zone() {
    let trust =
        json!({ "trustDomain": "default", "caBundles": [{ "type": "Pem", "pem": { "value": "x" } }] });
    for kind in [Kind::MeshTrust, Kind::MeshIdentity, Kind::HostnameGenerator, Kind::MeshExternalService] {
        let spec = if kind == Kind::MeshTrust { trust.clone() } else { json!({}) };
        let refused = global_sends(kind, &[], spec.clone());
        assert_eq!(refused, [format!("no {kind} of a zone is for other zones")]);
        assert_eq!(goes_on(kind, &[], spec), None, "{kind}");
    }
}

#[test]
fn a_zone_has_the_names_of_its_own_resources_only() {
    let good = hashed_name("default", "pay", Some("good"), None);
    assert_eq!(good, "pay-77b64w297x477b9z");
    let role = || Role::Global("west".into());
    let spec = || json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
    let tries: [&[(&str, &str)]; 4] = [
        &[(labels::DISPLAY_NAME, "pay")],
        &[(labels::DISPLAY_NAME, "pay"), (labels::ZONE, "good")],
        &[],
        &[(labels::DISPLAY_NAME, &good)],
    ];
    for labels in tries {
        let refused = arrives(&global(), role(), Kind::MeshService, "default", &good, labels, spec());
        assert!(refused.len() == 1 && refused[0].contains("is called"), "{labels:?}: {refused:?}");
    }
    let namespace = [(labels::DISPLAY_NAME, "pay"), (labels::K8S_NAMESPACE, "shop")];
    let own = hashed_name("default", "pay", Some("west"), Some("shop"));
    let accepted = arrives(&global(), role(), Kind::MeshService, "default", &own, &namespace, spec());
    assert_eq!(accepted, Vec::<String>::new());
}

#[test]
fn a_global_gives_a_zone_no_keys_of_users_and_no_settings() {
    let zone = Plane::new();
    zone.put(mesh("default"));
    let send = |kind: Kind, name: &str, spec: Value| {
        let labels = [(labels::KDS_SYNC, "enabled")];
        arrives(&zone, Role::Zone("east".into()), kind, "", name, &labels, spec)
    };
    let secrets = [
        "user-token-signing-key-1",
        "user-token-signing-key-2",
        "user-token-revocations",
        "admin-user-token",
        "envoy-admin-ca",
        "inter-cp-ca",
        "inter-cp-certificate",
        "zone-token-signing-key-1",
    ];
    for name in secrets {
        let refused = send(Kind::GlobalSecret, name, json!({ "data": "aGk=" }));
        assert_eq!(refused, [format!("no global control plane sends GlobalSecret {name:?} to a zone")]);
    }
    let refused = send(Kind::Config, "kuma-default-dns-vips", json!({ "config": "{}" }));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(zone.names(Kind::GlobalSecret).len() + zone.names(Kind::Config).len(), 0);
    let public = send(Kind::GlobalSecret, "zone-token-signing-public-key-1", json!({ "data": "aGk=" }));
    assert_eq!(public, Vec::<String>::new());
}
