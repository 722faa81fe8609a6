use serde_json::{Value, json};

use super::{Tcp, request::Http};
use crate::{
    Kind,
    kinds::{
        checks,
        testing::{check, draft, resource, round_trips, valid},
    },
};

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshHealthCheck, resource(spec), expect);
}

fn to(conf: Value) -> Value {
    json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]})
}

#[test]
fn full_examples_are_valid_and_survive_a_round_trip() {
    let full = json!({
        "targetRef": {"kind": "Mesh"},
        "to": [{"targetRef": {"kind": "MeshService", "labels": {"kuma.io/display-name": "backend"}}, "default": {
            "interval": "10s", "timeout": "2s", "unhealthyThreshold": 3, "healthyThreshold": 1,
            "initialJitter": "5s", "intervalJitter": "6s", "intervalJitterPercent": 10,
            "healthyPanicThreshold": "62.9", "failTrafficOnPanic": true, "eventLogPath": "/tmp/health-check.log",
            "alwaysLogHealthCheckFailures": true, "noTrafficInterval": "10s",
            "tcp": {"disabled": true, "send": "Zm9v", "receive": ["YmFy", "YmF6"]},
            "http": {"disabled": true, "path": "/health", "expectedStatuses": [200, 201], "requestHeadersToAdd": {
                "set": [{"name": "content-type", "value": "application/json"}],
                "add": [{"name": "accept", "value": "application/json"}]}},
            "grpc": {"disabled": false, "serviceName": "", "authority": ""},
            "reuseConnection": false
        }}]
    });
    let external = json!({"targetRef": {"kind": "Mesh"}, "to": [
        {"targetRef": {"kind": "MeshExternalService", "name": "shop"}, "default": {"tcp": {}}},
        {"targetRef": {"kind": "MeshMultiZoneService", "name": "all"}, "default": {"grpc": {}}}]});
    // Without entries it checks nothing, and is legal.
    for spec in [full, external, json!({"targetRef": {"kind": "Dataplane"}})] {
        valid(Kind::MeshHealthCheck, resource(spec.clone()));
        round_trips(Kind::MeshHealthCheck, spec);
    }
}

#[test]
fn kinds_are_checked_per_place() {
    let entry = |kind: &str| json!({"targetRef": {"kind": kind, "name": "a"}, "default": {"tcp": {}}});
    violations(
        json!({"targetRef": {"kind": "MeshHTTPRoute", "name": "a"}, "to": [entry("MeshHTTPRoute")]}),
        &[
            ("spec.targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
            ("spec.to[0].targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
        ],
    );
    let external = entry("MeshExternalService");
    violations(
        json!({"targetRef": {"kind": "Dataplane", "sectionName": "x"}, "to": [external]}),
        &[("spec.targetRef.sectionName", "can only be used with inbound policies")],
    );
    violations(
        json!({"targetRef": {"kind": "MeshSubset"}, "to": [external]}),
        &[("spec.to[0].targetRef.kind", checks::EXTERNAL_FOR_ALL)],
    );
}

#[test]
fn something_is_checked() {
    violations(to(json!({})), &[("spec.to[0].default", "must have at least one defined: http, tcp, grpc")]);
}

#[test]
fn times_numbers_and_paths_are_in_range() {
    let zero = "must be greater than zero when defined";
    violations(
        to(json!({"interval": "-10s", "timeout": "0s", "unhealthyThreshold": -3, "healthyThreshold": 0,
                  "initialJitter": "-5s", "intervalJitter": "0s", "intervalJitterPercent": 110,
                  "healthyPanicThreshold": -10, "noTrafficInterval": "-1s", "eventLogPath": "#not_valid_path",
                  "grpc": {}})),
        &[
            ("spec.to[0].default.interval", zero),
            ("spec.to[0].default.timeout", zero),
            ("spec.to[0].default.unhealthyThreshold", zero),
            ("spec.to[0].default.healthyThreshold", zero),
            ("spec.to[0].default.initialJitter", zero),
            ("spec.to[0].default.intervalJitter", zero),
            ("spec.to[0].default.intervalJitterPercent", "must be in inclusive range [0, 100]"),
            ("spec.to[0].default.healthyPanicThreshold", "must be in inclusive range [0.0, 100.0]"),
            ("spec.to[0].default.noTrafficInterval", zero),
            ("spec.to[0].default.eventLogPath", "must be a valid path when defined"),
        ],
    );
    violations(
        to(
            json!({"healthyPanicThreshold": "many", "eventLogPath": "/a\u{0}b", "grpc": {"authority": "a\nb"}}),
        ),
        &[
            ("spec.to[0].default.healthyPanicThreshold", "string must be a valid number"),
            ("spec.to[0].default.eventLogPath", "must be a valid path when defined"),
            ("spec.to[0].default.grpc.authority", "must not contain control characters"),
        ],
    );
}

#[test]
fn requests_are_ones_that_envoy_can_send() {
    let header = |name: &str, value: &str| json!({"name": name, "value": value});
    let many: Vec<Value> = (0..17).map(|i| header(&format!("x-{i}"), "")).collect();
    violations(
        to(json!({"http": {"path": "", "expectedStatuses": [99, 200, 600], "requestHeadersToAdd": {
            "set": [header("x-a", "1"), header("X-B", "2"), header("x-a", "a\r\nb")], "add": many}}})),
        &[
            ("spec.to[0].default.http.path", "must be defined"),
            ("spec.to[0].default.http.expectedStatuses[0]", "must be in inclusive range [100, 599]"),
            ("spec.to[0].default.http.expectedStatuses[2]", "must be in inclusive range [100, 599]"),
            (
                "spec.to[0].default.http.requestHeadersToAdd.set[1].name",
                "must be a header name in lower case",
            ),
            ("spec.to[0].default.http.requestHeadersToAdd.set[2].name", "duplicate header name"),
            (
                "spec.to[0].default.http.requestHeadersToAdd.set[2].value",
                "must not contain control characters",
            ),
            ("spec.to[0].default.http.requestHeadersToAdd.add", "must have at most 16 items"),
        ],
    );
}

#[test]
fn bytes_are_written_in_base64() {
    violations(
        to(json!({"tcp": {"send": "foo!", "receive": ["YmFy", "b"]}})),
        &[
            ("spec.to[0].default.tcp.send", "must be valid base64"),
            ("spec.to[0].default.tcp.receive[1]", "must be valid base64"),
        ],
    );
    let tcp = Tcp {
        send: Some("cGluZwo=".to_owned()),
        receive: Some(vec![String::new(), "cG9uZw==".to_owned()]),
        ..Tcp::default()
    };
    assert_eq!(tcp.sent().as_deref(), Some(b"ping\n".as_slice()));
    assert_eq!(tcp.received().collect::<Vec<_>>(), [b"pong"]);
    assert_eq!(Tcp { send: Some(String::new()), ..Tcp::default() }.sent(), None);
    assert_eq!(Http::default().path(), "/");
}

#[test]
fn the_panic_threshold_is_said_to_have_moved() {
    let spec = to(json!({"tcp": {}, "healthyPanicThreshold": 5}));
    let warnings = draft(Kind::MeshHealthCheck, resource(spec)).spec.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("healthyPanicThreshold for 'to[].default' is deprecated."),
        "{warnings:?}"
    );
}
