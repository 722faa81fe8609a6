use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

fn violations(matches: Value, expect: &[(&str, &str)]) {
    let found: Vec<(String, &str)> = expect
        .iter()
        .map(|(field, message)| (format!("spec.default.appendMatch{field}"), *message))
        .collect();
    let expect: Vec<(&str, &str)> = found.iter().map(|(field, message)| (field.as_str(), *message)).collect();
    check(Kind::MeshPassthrough, resource(json!({"default": {"appendMatch": matches}})), &expect);
}

#[test]
fn a_full_policy_is_valid_and_survives_a_round_trip() {
    let spec = json!({
        "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
        "default": {"passthroughMode": "Matched", "appendMatch": [
            {"type": "Domain", "value": "api.example.com", "port": 443, "protocol": "tls"},
            {"type": "Domain", "value": "*.example.com", "protocol": "tls"},
            {"type": "Domain", "value": "*", "port": 80, "protocol": "http"},
            {"type": "Domain", "value": "plain.example.com", "protocol": "http"},
            {"type": "IP", "value": "10.0.0.1", "port": 80, "protocol": "tcp"},
            {"type": "IP", "value": "2001:db8::1", "port": 9000, "protocol": "grpc"},
            {"type": "CIDR", "value": "10.0.0.1/8", "protocol": "http2"},
            {"type": "CIDR", "value": "10.0.0.0/8", "port": 3306, "protocol": "mysql"}
        ]}
    });
    valid(Kind::MeshPassthrough, resource(spec.clone()));
    round_trips(Kind::MeshPassthrough, spec);
    for mode in ["All", "None"] {
        valid(Kind::MeshPassthrough, resource(json!({"default": {"passthroughMode": mode}})));
    }
    valid(Kind::MeshPassthrough, resource(json!({})));
}

#[test]
fn bytes_are_let_through_unless_a_protocol_is_given() {
    let given = draft(
        Kind::MeshPassthrough,
        resource(json!({"default": {"appendMatch": [{"type": "IP", "value": "10.0.0.1"}]}})),
    );
    assert_eq!(
        given.spec.to_json(),
        json!({"default": {"appendMatch": [{"type": "IP", "value": "10.0.0.1", "protocol": "tcp"}]}})
    );
}

#[test]
fn the_target_selects_proxies() {
    for kind in ["MeshService", "MeshGateway", "MeshServiceSubset", "MeshHTTPRoute"] {
        check(
            Kind::MeshPassthrough,
            resource(json!({"targetRef": {"kind": kind, "name": "a"}})),
            &[("spec.targetRef.kind", &format!("value '{kind}' is not supported"))],
        );
    }
    check(
        Kind::MeshPassthrough,
        resource(json!({"targetRef": {"kind": "Dataplane", "sectionName": "http"}})),
        &[("spec.targetRef.sectionName", "can only be used with inbound policies")],
    );
    let old = draft(Kind::MeshPassthrough, resource(json!({"targetRef": {"kind": "MeshSubset"}})));
    assert_eq!(
        old.spec.warnings(),
        ["MeshSubset value for 'targetRef.kind' is deprecated, use Dataplane with labels instead"]
    );
}

#[test]
fn every_violation_of_a_match_is_reported() {
    violations(
        json!([
            {"type": "test", "value": "1.2.3.4", "port": 0, "protocol": "1"},
            {"type": "Domain", "value": "1.2.3.4", "port": 1, "protocol": "tcp"},
            {"type": "IP", "value": "example.com", "port": 1, "protocol": "tls"},
            {"type": "CIDR", "value": "1.2.3.4", "port": 65536, "protocol": "tcp"},
            {"type": "CIDR", "value": "1.2.3.4/33", "protocol": "tcp"},
            {"type": "Domain", "value": "*w.example.com", "port": 9090, "protocol": "http2"},
            {"type": "Domain", "value": "*.example.com", "protocol": "http"},
            {"type": "IP", "value": "10.0.0.1", "protocol": "mysql"},
            {"type": "Domain", "value": "db.example.com", "port": 3306, "protocol": "mysql"},
            {"type": "Domain", "value": "-.example.com", "port": 443, "protocol": "tls"},
            {}
        ]),
        &[
            ("[0].port", "port must be a valid (1-65535)"),
            ("[0].protocol", r#""protocol" must be one of ["tcp", "tls", "grpc", "http", "http2", "mysql"]"#),
            ("[0].type", "provided type test is not supported, one of Domain, IP, or CIDR is supported"),
            ("[1].protocol", "protocol tcp is not supported for a domain"),
            ("[1].value", "provided DNS has incorrect value"),
            ("[2].value", "provided IP has incorrect value"),
            ("[3].port", "port must be a valid (1-65535)"),
            ("[3].value", "provided CIDR has incorrect value"),
            ("[4].value", "provided CIDR has incorrect value"),
            ("[5].value", "provided DNS has incorrect value, partial wildcard is currently not supported"),
            ("[6].port", "wildcard domains doesn't work for all ports and layer 7 protocol"),
            ("[7].port", "port must be defined for Mysql protocol"),
            ("[8].protocol", "protocol mysql is not supported for a domain"),
            ("[9].value", "provided DNS has incorrect value"),
            ("[10].type", "provided type  is not supported, one of Domain, IP, or CIDR is supported"),
        ],
    );
}

#[test]
fn one_port_has_one_version_of_http_and_no_match_twice() {
    let at = |value: &str, port: u32, protocol: &str| json!({"type": "Domain", "value": value, "port": port, "protocol": protocol});
    violations(
        json!([
            at("a.com", 8080, "http"),
            at("a.com", 8080, "http2"),
            at("a.com", 8080, "tls"),
            at("b.com", 8080, "http"),
            at("b.com", 8080, "grpc"),
            at("a.com", 8080, "http"),
            at("a.com", 8081, "http2"),
            {"type": "IP", "value": "10.0.0.1", "port": 8080, "protocol": "tcp"}
        ]),
        &[
            (
                "[1].port",
                "using the same port in multiple matches requires the same protocol for the following protocols: [grpc http http2]",
            ),
            (
                "[4].port",
                "using the same port in multiple matches requires the same protocol for the following protocols: [grpc http http2]",
            ),
            ("[5].value", "value a.com is already defiend for this port and protocol"),
        ],
    );
}
