use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshRateLimit, resource(spec), expect);
}

/// A policy for sidecars with one rule.
fn rule(rule: Value) -> Value {
    json!({"targetRef": {"kind": "Dataplane"}, "rules": [rule]})
}

fn default(local: Value) -> Value {
    rule(json!({"default": {"local": local}}))
}

fn limits() -> Value {
    json!({"local": {
        "http": {"disabled": false, "requestRate": {"num": 100, "interval": "10s"},
                 "onRateLimit": {"status": 423, "headers": {
                     "set": [{"name": "x-kuma-rate-limited", "value": "true"}],
                     "add": [{"name": "retry-after", "value": "10"}]}}},
        "tcp": {"disabled": false, "connectionRate": {"num": 100, "interval": "100ms"}}
    }})
}

#[test]
fn full_examples_are_valid_and_survive_a_round_trip() {
    let entry = json!([{"targetRef": {"kind": "Mesh"}, "default": limits()}]);
    let of_client = json!({"local": {"http": {"disabled": true}}});
    for spec in [
        json!({"targetRef": {"kind": "MeshService", "name": "web"}, "from": entry}),
        json!({"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}, "from": entry}),
        json!({"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": entry}),
        json!({"targetRef": {"kind": "MeshHTTPRoute", "name": "r"}, "to": entry}),
        json!({"targetRef": {"kind": "Dataplane", "labels": {"app": "web"}, "sectionName": "http"}, "rules": [
            {"matches": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/a"}}], "default": of_client},
            {"matches": [{"sni": {"type": "Exact", "value": "backend.mesh"}}], "default": limits()},
            {"default": limits()}]}),
    ] {
        valid(Kind::MeshRateLimit, resource(spec.clone()));
        round_trips(Kind::MeshRateLimit, spec);
    }
}

#[test]
fn limits_of_clients_are_for_sidecars_and_to_is_for_gateways() {
    let entry = json!([{"targetRef": {"kind": "Mesh"}, "default": limits()}]);
    let from_of_gateways = "must not be defined when the scope includes a Gateway, select only proxyType Sidecar \
        or select only gateways and use spec.to";
    violations(json!({"from": entry}), &[("spec.from", from_of_gateways)]);
    violations(json!({"rules": [{"default": limits()}]}), &[("spec.rules", "must not be defined")]);
    violations(json!({"to": entry}), &[]);
    violations(
        json!({"targetRef": {"kind": "Dataplane", "sectionName": "test"},
               "to": [{"targetRef": {"kind": "Mesh"}, "default": {}}]}),
        &[
            ("spec.targetRef.sectionName", "can only be used with inbound policies"),
            ("spec.to", "must not be defined"),
        ],
    );
    violations(
        json!({"targetRef": {"kind": "Mesh"}, "from": entry, "rules": [{"default": limits()}]}),
        &[
            ("spec", "fields 'to' and 'from' must be empty when 'rules' is defined"),
            ("spec.rules", "must not be defined"),
            ("spec.from", from_of_gateways),
        ],
    );
}

#[test]
fn kinds_are_checked_per_place() {
    violations(
        json!({"targetRef": {"kind": "MeshExternalService", "name": "x"},
               "from": [{"targetRef": {"kind": "MeshService", "name": "a"}, "default": limits()}]}),
        &[
            ("spec.targetRef.kind", "value 'MeshExternalService' is not supported"),
            ("spec.from[0].targetRef.kind", "value 'MeshService' is not supported"),
        ],
    );
    let mut owned = resource(json!({"targetRef": {"kind": "MeshHTTPRoute", "name": "x"}}));
    owned["labels"] = json!({"kuma.io/policy-role": "workload-owner"});
    check(Kind::MeshRateLimit, owned, &[("spec.targetRef.kind", "value 'MeshHTTPRoute' is not supported")]);
}

#[test]
fn some_limit_is_given() {
    let local = "spec.rules[0].default.local";
    violations(rule(json!({"default": {}})), &[(local, "must be defined")]);
    violations(default(json!({})), &[(local, "must have at least one defined: tcp, http")]);
    violations(
        default(json!({"http": {}, "tcp": {}})),
        &[
            (
                "spec.rules[0].default.local.http",
                "must have at least one defined: disabled, requestRate, onRateLimit",
            ),
            ("spec.rules[0].default.local.tcp", "must have at least one defined: disabled, connectionRate"),
        ],
    );
}

#[test]
fn every_violation_of_a_limit_is_reported() {
    let rate = json!({"num": 0, "interval": "50ms"});
    violations(
        default(json!({"http": {"requestRate": rate, "onRateLimit": {"status": 0}},
                       "tcp": {"connectionRate": rate}})),
        &[
            ("spec.rules[0].default.local.http.requestRate.num", "must be greater than 0"),
            ("spec.rules[0].default.local.http.requestRate.interval", "must be greater than: 50ms"),
            ("spec.rules[0].default.local.http.onRateLimit.status", "must be greater than 0"),
            ("spec.rules[0].default.local.tcp.connectionRate.num", "must be greater than 0"),
            ("spec.rules[0].default.local.tcp.connectionRate.interval", "must be greater than: 50ms"),
        ],
    );
    let answer = |answer: Value| default(json!({"http": {"onRateLimit": answer}}));
    let field = "spec.rules[0].default.local.http.onRateLimit";
    for status in [418, 444, 499, 509, 512, 600] {
        violations(
            answer(json!({ "status": status })),
            &[(&format!("{field}.status"), "must be a status that proxies know, such as 429 or 503")],
        );
    }
    let header = |name: &str, value: &str| json!({"name": name, "value": value});
    violations(
        answer(json!({"headers": {"add": [header("a", "1"), header("a", "x\r\ny: z")]}})),
        &[
            (&format!("{field}.headers.add[1].name"), "duplicate header name"),
            (&format!("{field}.headers.add[1].value"), "must not contain line breaks or zero bytes"),
        ],
    );
    let many = |count: usize| (0..count).map(|i| header(&format!("h{i}"), "1")).collect::<Vec<_>>();
    violations(answer(json!({"headers": {"set": many(5), "add": many(5)}})), &[]);
    violations(
        answer(json!({"headers": {"set": many(5), "add": many(6)}})),
        &[(&format!("{field}.headers"), "must have at most 10 items in 'set' and 'add' together")],
    );
}

#[test]
fn a_rule_for_an_identity_says_nothing_of_connections() {
    let client = json!({"spiffeID": {"type": "Exact", "value": "spiffe://default/client"}});
    violations(
        rule(json!({"matches": [client, {}], "default": limits()})),
        &[
            ("spec.rules[0].matches[1]", "must specify at least one of 'spiffeID' or 'sni'"),
            (
                "spec.rules[0].default.local.tcp",
                "can't be specified when matches contain spiffeID because this field cannot be conditioned on \
                 source identity",
            ),
        ],
    );
}

#[test]
fn from_and_statuses_of_success_are_warned_about() {
    let conf = json!({"local": {"http": {"onRateLimit": {"status": 399}}}});
    let warnings = |spec: Value| draft(Kind::MeshRateLimit, resource(spec)).spec.warnings();
    let status = |place: &str| {
        format!(
            "'spec.{place}.default.local.http.onRateLimit.status' must be 400 or higher. \
             Please update your configuration."
        )
    };
    let from = json!({"targetRef": {"kind": "Dataplane"}, "from": [
        {"targetRef": {"kind": "Mesh"}, "default": limits()}, {"targetRef": {"kind": "Mesh"}, "default": conf}]});
    assert_eq!(
        warnings(from),
        ["'from' field is deprecated, use 'rules' instead".to_owned(), status("from[1]")]
    );
    assert_eq!(warnings(rule(json!({ "default": conf }))), [status("rules[0]")]);
    let to = json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]});
    assert_eq!(warnings(to), [status("to[0]")]);
}
