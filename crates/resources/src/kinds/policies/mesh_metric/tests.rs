use serde_json::{Value, json};

use super::{ProfileName, Profiles};
use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

fn violations(conf: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshMetric, resource(json!({ "default": conf })), expect);
}

fn violations_of_collector(collector: Value, expect: &[(&str, &str)]) {
    violations(json!({"backends": [{"type": "OpenTelemetry", "openTelemetry": collector}]}), expect);
}

#[test]
fn a_full_policy_is_valid_and_survives_a_round_trip() {
    let spec = json!({
        "targetRef": {"kind": "MeshService", "name": "svc-1"},
        "default": {
            "sidecar": {
                "profiles": {
                    "appendProfiles": [{"name": "None"}, {"name": "Basic"}],
                    "exclude": [{"type": "Regex", "match": "my_match.*"}],
                    "include": [{"type": "Prefix", "match": "my_match"}, {"type": "Contains", "match": "x"},
                                {"type": "Exact", "match": "y"}],
                },
                "includeUnused": true,
            },
            "applications": [{"name": "shop", "path": "metrics/prometheus", "address": "127.0.0.1", "port": 8888},
                             {"path": "/metrics", "port": 8000}],
            "backends": [
                {"type": "Prometheus", "prometheus": {"clientId": "main-backend", "port": 5670, "path": "/metrics",
                                                      "tls": {"mode": "ProvidedTLS"}}},
                {"type": "OpenTelemetry", "openTelemetry": {"endpoint": "otel-collector:4778"}},
                {"type": "OpenTelemetry", "openTelemetry": {
                    "backendRef": {"kind": "MeshOpenTelemetryBackend", "labels": {"kuma.io/display-name": "otel"}},
                    "refreshInterval": "30s"}},
            ],
        },
    });
    valid(Kind::MeshMetric, resource(spec.clone()));
    round_trips(Kind::MeshMetric, spec);
    valid(Kind::MeshMetric, resource(json!({})));
}

#[test]
fn what_is_left_out_is_filled_in() {
    let spec = json!({"default": {
        "sidecar": {}, "applications": [{"port": 80}],
        "backends": [{"type": "Prometheus", "prometheus": {"tls": {}}}],
    }});
    let filled = draft(Kind::MeshMetric, resource(spec)).spec.to_json();
    assert_eq!(
        filled["default"],
        json!({
            "sidecar": {"includeUnused": false}, "applications": [{"path": "/metrics", "port": 80}],
            "backends": [{"type": "Prometheus", "prometheus": {
                "port": 5670, "path": "/metrics", "tls": {"mode": "Disabled"},
            }}],
        })
    );
}

#[test]
fn profiles_and_selectors_are_known_and_expressions_can_be_read() {
    violations(
        json!({"sidecar": {"profiles": {
            "appendProfiles": [{"name": "not_supported"}],
            "exclude": [{"type": "Regex", "match": "())(!("}],
            "include": [{"type": "not_supported"}],
        }}}),
        &[
            ("spec.default.sidecar.profiles.exclude[0].match", "invalid regex"),
            (
                "spec.default.sidecar.profiles.include[0].type",
                "unrecognized type 'not_supported' - 'Regex', 'Prefix', 'Exact' are supported",
            ),
            (
                "spec.default.sidecar.profiles.appendProfiles[0].name",
                "unrecognized profile name 'not_supported' - 'All', 'None', 'Basic' are supported",
            ),
        ],
    );
}

#[test]
fn ports_are_ports() {
    let port = "port must be a valid (1-65535)";
    violations(
        json!({"applications": [{"port": 80}, {"port": 95599}],
               "backends": [{"type": "Prometheus", "prometheus": {"port": 95599}}]}),
        &[
            ("spec.default.applications.application[1]", port),
            ("spec.default.backends.backend[0].port", port),
        ],
    );
}

#[test]
fn a_backend_is_of_a_known_type_and_has_what_it_needs() {
    violations(
        json!({"backends": [{"type": "Prometheus"}, {"type": "OpenTelemetry", "prometheus": {"port": 5670}},
                            {"type": "Statsd"}]}),
        &[
            ("spec.default.backends.backend[0].prometheus", "must be defined"),
            ("spec.default.backends.backend[1].openTelemetry", "must be defined"),
            ("spec.default.backends.backend[2]", "unrecognized type"),
        ],
    );
    let path = "spec.default.backends.backend[0].openTelemetry";
    violations_of_collector(
        json!({}),
        &[(path, "openTelemetry must have exactly one defined: endpoint, backendRef")],
    );
    let reference = json!({"kind": "MeshOpenTelemetryBackend", "labels": {"a": "b"}});
    violations_of_collector(
        json!({"endpoint": "otel-collector:4778", "backendRef": reference}),
        &[(path, "openTelemetry must have only one type defined: endpoint, backendRef")],
    );
    violations_of_collector(
        json!({"backendRef": {"kind": "MeshService"}, "refreshInterval": "0s"}),
        &[
            (&format!("{path}.backendRef.kind"), "\"kind\" must be one of [\"MeshOpenTelemetryBackend\"]"),
            (&format!("{path}.backendRef"), "backendRef must have exactly one defined: labels"),
            (&format!("{path}.refreshInterval"), "must be greater than zero when defined"),
        ],
    );
}

#[test]
fn an_endpoint_is_a_host_and_a_port() {
    let path = "spec.default.backends.backend[0].openTelemetry.endpoint";
    let refused = |endpoint: &str, message: &str| {
        violations_of_collector(json!({ "endpoint": endpoint }), &[(path, message)]);
    };
    refused("http://endpoint:8023", "must be in host:port format, not a URL");
    for endpoint in ["asdasd123", "", ":1", "host:", "host:0", "host:65536", "::1:80", "a/b:1", "a b:1"] {
        refused(endpoint, "must be in host:port format");
    }
    for endpoint in ["[::1]:4317", "otel.svc:4317", "otel_collector:4317", "127.0.0.1:1"] {
        violations_of_collector(json!({ "endpoint": endpoint }), &[]);
    }
}

#[test]
fn the_widest_profile_counts_and_basic_is_the_default() {
    let effective = |profiles: Value| serde_json::from_value::<Profiles>(profiles).unwrap().effective();
    assert_eq!(effective(json!({})), ProfileName::Basic);
    let append = |names: &[&str]| {
        let profiles: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        effective(json!({ "appendProfiles": profiles }))
    };
    assert_eq!(append(&["None", "All", "Basic"]), ProfileName::All);
    assert_eq!(append(&["None", "Basic"]), ProfileName::Basic);
    assert_eq!(append(&["None"]), ProfileName::None);
}

#[test]
fn an_endpoint_and_an_old_reference_at_the_top_are_deprecated() {
    let spec = json!({
        "targetRef": {"kind": "MeshService", "name": "web"},
        "default": {"backends": [{"type": "OpenTelemetry", "openTelemetry": {"endpoint": "otel:4317"}}]},
    });
    let warnings = draft(Kind::MeshMetric, resource(spec)).spec.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("openTelemetry.endpoint is deprecated"), "{warnings:?}");
}
