//! Policies with the role `producer`: those that other zones get, and those that are refused.

use resources::{Kind, labels};
use serde_json::{Value, json};

use crate::rights::{global_sends, goes_on, zone_sends};

const PRODUCER: (&str, &str) = (labels::POLICY_ROLE, "producer");

pub fn timeout_to(target: Value) -> Value {
    json!({ "to": [{ "targetRef": target, "default": { "idleTimeout": "1s" } }] })
}

fn route(rule: Value) -> Value {
    let matches = json!([{ "path": { "type": "PathPrefix", "value": "/" } }]);
    let target = json!({ "kind": "MeshService", "name": "kv" });
    json!({ "to": [{ "targetRef": target, "rules": [{ "matches": matches, "default": rule }] }] })
}

/// Kinds that no producer writes for callers, each with a spec that would reach far.
fn other_kinds() -> Vec<(Kind, Value)> {
    let mesh = json!({ "kind": "Mesh" });
    let own = json!({ "kind": "MeshService", "name": "kv" });
    let allow = json!({ "action": "Allow" });
    let lua = json!({ "default": { "appendModifications": [{ "cluster": { "operation": "Remove" } }] } });
    let log = json!({
        "to": [{ "targetRef": own, "default": { "backends": [{ "type": "File", "file": { "path": "/tmp/x" } }] } }],
    });
    vec![
        (Kind::MeshTrafficPermission, json!({ "from": [{ "targetRef": mesh, "default": allow }] })),
        (Kind::MeshTrafficPermission, json!({ "rules": [{ "default": { "allow": [] } }] })),
        (Kind::MeshTLS, json!({ "rules": [{ "default": { "mode": "Permissive" } }] })),
        (Kind::MeshProxyPatch, lua),
        (Kind::MeshMetric, json!({ "default": {} })),
        (Kind::MeshAccessLog, log),
    ]
}

/// Policies that are about something else than calls to services of the zone.
fn other_targets() -> Vec<(Kind, Value, &'static str)> {
    let own = || json!({ "kind": "MeshService", "name": "kv" });
    let mesh = json!({ "kind": "Mesh" });
    let by_labels = |labels: Value| timeout_to(json!({ "kind": "MeshService", "labels": labels }));
    let conf = || json!({ "idleTimeout": "1s" });
    let both = json!({ "to": [{ "targetRef": own(), "default": conf() }, { "targetRef": mesh, "default": conf() }] });
    let with_rules =
        json!({ "to": [{ "targetRef": own(), "default": conf() }], "rules": [{ "default": conf() }] });
    let by_tag = json!({ "kind": "MeshService", "name": "pay_shop_svc_80" });
    let abort = json!({ "http": [{ "abort": { "httpStatus": 500, "percentage": 100 } }] });
    let of_its_own = "MeshServices of its own zone";
    vec![
        (Kind::MeshTimeout, json!({}), "has entries in `to`"),
        (Kind::MeshTimeout, timeout_to(mesh.clone()), of_its_own),
        (Kind::MeshTimeout, both, "to[1]"),
        (Kind::MeshTimeout, with_rules, "has no `rules`"),
        (Kind::MeshTimeout, by_labels(json!({ "app": "kv" })), of_its_own),
        (Kind::MeshTimeout, by_labels(json!({ "kuma.io/zone": "east", "app": "kv" })), of_its_own),
        (Kind::MeshTimeout, timeout_to(by_tag), of_its_own),
        (Kind::MeshFaultInjection, json!({ "to": [{ "targetRef": mesh, "default": abort }] }), of_its_own),
    ]
}

/// Routes to services of the zone that lead elsewhere.
fn other_backends() -> Vec<(Kind, Value, &'static str)> {
    let of_its_own = "MeshServices of its own zone";
    let east =
        json!({ "kind": "MeshService", "labels": { "kuma.io/zone": "east" }, "weight": 1, "port": 80 });
    let thief = json!({ "kind": "MeshExternalService", "name": "thief" });
    let mirror =
        json!({ "filters": [{ "type": "RequestMirror", "requestMirror": { "backendRef": thief } }] });
    let mut routes = vec![
        (Kind::MeshHTTPRoute, route(json!({ "backendRefs": [east] })), of_its_own),
        (Kind::MeshHTTPRoute, route(mirror), of_its_own),
    ];
    let backends = [
        json!({ "kind": "MeshService", "name": "a_b_svc_80" }),
        json!({ "kind": "MeshServiceSubset", "name": "kv", "tags": { "version": "1" } }),
        json!({ "kind": "MeshMultiZoneService", "name": "kv" }),
    ];
    routes.extend(backends.map(|backend| (Kind::MeshTCPRoute, tcp_route(backend), of_its_own)));
    routes
}

/// Policies about calls to services of the zone that take something of the callers' proxies.
fn other_costs() -> Vec<(Kind, Value, &'static str)> {
    let command = "command of Envoy's formatter";
    vec![
        (Kind::MeshHTTPRoute, route(header("%ENVIRONMENT(SECRET)%")), command),
        (Kind::MeshHTTPRoute, route(header("%TLS_JA3_FINGERPRINT%")), command),
        (Kind::MeshHealthCheck, checks(json!({ "eventLogPath": "/tmp/x", "tcp": {} })), "eventLogPath"),
        (Kind::MeshHealthCheck, checks(json!({ "interval": "1ms", "tcp": {} })), "default.interval"),
        (
            Kind::MeshHealthCheck,
            checks(json!({ "noTrafficInterval": "10ms", "tcp": {} })),
            "default.noTrafficInterval",
        ),
    ]
}

fn header(value: &str) -> Value {
    json!({ "filters": [{
        "type": "ResponseHeaderModifier",
        "responseHeaderModifier": { "add": [{ "name": "x", "value": value }] },
    }] })
}

fn tcp_route(backend: Value) -> Value {
    let target = json!({ "kind": "MeshService", "name": "kv" });
    json!({ "to": [{ "targetRef": target, "rules": [{ "default": { "backendRefs": [backend] } }] }] })
}

fn checks(conf: Value) -> Value {
    json!({ "to": [{ "targetRef": { "kind": "MeshService", "name": "kv" }, "default": conf }] })
}

#[test]
fn a_producer_reaches_other_zones_by_calls_to_its_own_services_only() {
    let kinds = other_kinds().into_iter().map(|(kind, spec)| (kind, spec, "is for callers"));
    let all = kinds.chain(other_targets()).chain(other_backends()).chain(other_costs());
    for (kind, spec, reason) in all {
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
        "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/a%20b%A4B%20c" } },
    }] });
    let allowed = [
        (Kind::MeshTimeout, by_name),
        (Kind::MeshTimeout, by_labels),
        (Kind::MeshHTTPRoute, route(path)),
        (Kind::MeshTCPRoute, tcp_route(json!({ "kind": "MeshService", "name": "kv-2", "port": 80 }))),
        (Kind::MeshHealthCheck, checks(json!({ "interval": "1s", "tcp": {} }))),
    ];
    for (kind, spec) in allowed {
        assert_eq!(zone_sends(kind, &[PRODUCER], spec.clone()), Vec::<String>::new(), "{spec}");
        assert_eq!(global_sends(kind, &[PRODUCER], spec.clone()), Vec::<String>::new(), "{spec}");
        assert!(goes_on(kind, &[PRODUCER], spec).is_some());
    }
}
