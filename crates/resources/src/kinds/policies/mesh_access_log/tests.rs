use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

const KIND: Kind = Kind::MeshAccessLog;

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(KIND, resource(spec), expect);
}

fn to(backend: Value) -> Value {
    json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": {"backends": [backend]}}]})
}

const BACKEND: &str = "spec.to[0].default.backends[0]";

fn about_backend(backend: Value, expect: &[(&str, &str)]) {
    let expect: Vec<(String, &str)> =
        expect.iter().map(|(field, message)| (format!("{BACKEND}{field}"), *message)).collect();
    let expect: Vec<(&str, &str)> =
        expect.iter().map(|(field, message)| (field.as_str(), *message)).collect();
    violations(to(backend), &expect);
}

#[test]
fn full_examples_are_valid_and_survive_a_round_trip() {
    let plain = json!({"type": "Plain", "plain": "%KUMA_MESH% 100%%", "omitEmptyValues": true});
    let fields =
        json!({"type": "Json", "json": [{"key": "m", "value": "%REQ(:METHOD)%"}], "omitEmptyValues": false});
    let reference = json!({"kind": "MeshOpenTelemetryBackend", "labels": {"team": "obs"}});
    let body = json!({"kvlistValue": {"values": [
        {"key": "mesh", "value": {"stringValue": "%KUMA_MESH%"}},
        {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}}]}});
    let backends = json!([
        {"type": "Tcp", "tcp": {"format": fields, "address": "127.0.0.1:5000"}},
        {"type": "File", "file": {"format": plain, "path": "/tmp/access.log"}},
        {"type": "OpenTelemetry", "openTelemetry": {
            "attributes": [{"key": "service.name", "value": "%KUMA_SOURCE_SERVICE%"}], "body": body,
            "backendRef": reference}},
        {"type": "OpenTelemetry", "openTelemetry": {"body": "%PROTOCOL%", "endpoint": "otel:4317"}},
    ]);
    let entry = json!([{"targetRef": {"kind": "Mesh"}, "default": {"backends": backends}}]);
    for spec in [
        json!({"targetRef": {"kind": "MeshSubset", "tags": {"a": "b"}}, "to": entry, "from": entry}),
        json!({"targetRef": {"kind": "Dataplane", "sectionName": "http"}, "rules": [
            {"matches": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/web"},
                          "sni": {"type": "Exact", "value": "backend.mesh"}}], "default": {"backends": backends}},
            {"default": {"backends": []}}]}),
        json!({"to": [{"targetRef": {"kind": "MeshHTTPRoute", "name": "r"}, "default": {"backends": []}}]}),
    ] {
        valid(KIND, resource(spec.clone()));
        round_trips(KIND, spec);
    }
}

#[test]
fn one_direction_is_given_and_rules_stand_alone() {
    violations(json!({}), &[("spec", "at least one of 'from', 'to' or 'rules' has to be defined")]);
    let mut both = to(json!({"type": "File", "file": {"path": "/a"}}));
    both["rules"] = json!([{"default": {"backends": []}}]);
    violations(both, &[("spec", "fields 'to' and 'from' must be empty when 'rules' is defined")]);
}

#[test]
fn kinds_and_matches_are_checked_per_place() {
    let entry = |kind: &str| json!({"targetRef": {"kind": kind, "name": "a"}, "default": {"backends": []}});
    violations(
        json!({"targetRef": {"kind": "MeshHTTPRoute", "name": "a"},
               "to": [entry("MeshSubset")], "from": [entry("MeshService")]}),
        &[
            ("spec.targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
            ("spec.to[0].targetRef.kind", "value 'MeshSubset' is not supported"),
            ("spec.from[0].targetRef.kind", "value 'MeshService' is not supported"),
        ],
    );
    violations(
        json!({"targetRef": {"kind": "MeshGateway", "name": "a"}, "to": [entry("MeshService")]}),
        &[("spec.to[0].targetRef.kind", "value 'MeshService' is not supported")],
    );
    violations(
        json!({"rules": [{"matches": [{}], "default": {}}]}),
        &[
            ("spec.rules[0].matches[0]", "must specify at least one of 'spiffeID' or 'sni'"),
            ("spec.rules[0].default.backends", "must be defined"),
        ],
    );
}

#[test]
fn the_backend_of_the_type_is_required() {
    about_backend(json!({"type": "File"}), &[(".file", "must be defined")]);
    about_backend(json!({"type": "Tcp", "file": {"path": "/a"}}), &[(".tcp", "must be defined")]);
    about_backend(json!({"type": "OpenTelemetry"}), &[(".openTelemetry", "must be defined")]);
    about_backend(
        json!({"type": "Syslog"}),
        &[(".type", r#""type" must be one of ["Tcp", "File", "OpenTelemetry"]"#)],
    );
}

#[test]
fn addresses_and_paths_are_those_of_something_that_can_be_written_to() {
    for path in ["", "access.log", "/tmp/", "/tmp/\0"] {
        about_backend(
            json!({"type": "File", "file": {"path": path}}),
            &[(".file.path", "file backend requires a valid path")],
        );
    }
    for address in ["", "logs", "logs:0", "http://logs:80", "a b:1"] {
        about_backend(
            json!({"type": "Tcp", "tcp": {"address": address}}),
            &[(".tcp.address", "tcp backend requires valid address")],
        );
    }
    let one = "openTelemetry must have exactly one defined: endpoint, backendRef";
    about_backend(json!({"type": "OpenTelemetry", "openTelemetry": {}}), &[(".openTelemetry", one)]);
    about_backend(
        json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": "otel:a"}}),
        &[(".openTelemetry.endpoint", "must be a valid host and port")],
    );
    about_backend(
        json!({"type": "OpenTelemetry", "openTelemetry": {"backendRef": {"kind": "Mesh"}}}),
        &[
            (".openTelemetry.backendRef.kind", r#""kind" must be one of ["MeshOpenTelemetryBackend"]"#),
            (".openTelemetry.backendRef.labels", "must not be empty"),
        ],
    );
}

#[test]
fn formats_that_envoy_would_refuse_are_refused() {
    let of = |format: Value| json!({"type": "File", "file": {"path": "/a", "format": format}});
    about_backend(of(json!({"type": "Plain"})), &[(".file.format.plain", "must be defined")]);
    about_backend(of(json!({"type": "Plain", "plain": ""})), &[(".file.format.plain", "must not be empty")]);
    about_backend(
        of(json!({"type": "Plain", "plain": "%KUMA_MESH% %FOO%"})),
        &[(".file.format.plain", "unknown command operator %FOO%")],
    );
    about_backend(of(json!({"type": "Json"})), &[(".file.format.json", "must be defined")]);
    about_backend(of(json!({"type": "Json", "json": []})), &[(".file.format.json", "must not be empty")]);
    about_backend(
        of(json!({"type": "Json", "json": [{"key": "", "value": ""}, {"key": "a\"", "value": "%REQ%"}]})),
        &[
            (".file.format.json[0].key", "key cannot be empty"),
            (".file.format.json[0].value", "value cannot be empty"),
            (".file.format.json[1]", "is not a valid JSON object"),
            (".file.format.json[1].value", "command operator %REQ% needs arguments: %REQ(…)%"),
        ],
    );
    about_backend(
        of(json!({"type": "Xml"})),
        &[(".file.format.type", r#""type" must be one of ["Plain", "Json"]"#)],
    );
    about_backend(
        json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": "otel",
               "attributes": [{"key": "otel.name", "value": "%FOO%"}], "body": {"intValue": 1}}}),
        &[
            (".openTelemetry.attributes[0].key", "must not be in the namespace otel, which is reserved"),
            (".openTelemetry.attributes[0].value", "unknown command operator %FOO%"),
            (
                ".openTelemetry.body.intValue",
                "must be text, or an object with one of stringValue, arrayValue, kvlistValue",
            ),
        ],
    );
}

#[test]
fn what_is_deprecated_is_warned_about_and_defaults_are_filled_in() {
    let spec = json!({"from": [{"targetRef": {"kind": "Mesh"}, "default": {"backends": [
        {"type": "OpenTelemetry", "openTelemetry": {"endpoint": "otel"}},
        {"type": "File", "file": {"path": "/a", "format": {"type": "Plain", "plain": "x"}}}]}}]});
    let draft = draft(KIND, resource(spec));
    assert_eq!(
        draft.spec.warnings(),
        [
            "'from' field is deprecated, use 'rules' instead",
            "'openTelemetry.endpoint' field is deprecated, use 'openTelemetry.backendRef' instead",
        ]
    );
    let written = draft.spec.to_json();
    let format = written.pointer("/from/0/default/backends/1/file/format/omitEmptyValues");
    assert_eq!(format, Some(&json!(false)));
}
