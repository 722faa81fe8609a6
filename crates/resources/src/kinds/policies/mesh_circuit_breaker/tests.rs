use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshCircuitBreaker, resource(spec), expect);
}

fn to(conf: Value) -> Value {
    json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]})
}

#[test]
fn full_examples_are_valid_and_survive_a_round_trip() {
    let conf = json!({
        "connectionLimits": {"maxConnections": 2, "maxConnectionPools": 5, "maxPendingRequests": 10,
                             "maxRetries": 2, "maxRequests": 2},
        "outlierDetection": {
            "disabled": false, "interval": "5s", "baseEjectionTime": "30s", "maxEjectionPercent": 90,
            "splitExternalAndLocalErrors": true, "healthyPanicThreshold": "51.5",
            "detectors": {
                "totalFailures": {"consecutive": 10}, "gatewayFailures": {"consecutive": 10},
                "localOriginFailures": {"consecutive": 10},
                "successRate": {"minimumHosts": 5, "requestVolume": 10, "standardDeviationFactor": "1.9"},
                "failurePercentage": {"minimumHosts": 5, "requestVolume": 10, "threshold": 85}}}
    });
    let entry = json!([{"targetRef": {"kind": "Mesh"}, "default": conf}]);
    for spec in [
        json!({"targetRef": {"kind": "MeshSubset", "tags": {"a": "b"}}, "to": entry, "from": entry}),
        json!({"targetRef": {"kind": "Dataplane", "sectionName": "http"}, "rules": [{"default": conf}]}),
        json!({"to": [{"targetRef": {"kind": "MeshExternalService", "name": "pay"}, "default": conf}]}),
    ] {
        valid(Kind::MeshCircuitBreaker, resource(spec.clone()));
        round_trips(Kind::MeshCircuitBreaker, spec);
    }
}

#[test]
fn one_direction_is_given_and_rules_stand_alone() {
    violations(json!({}), &[("spec", "at least one of 'from', 'to' or 'rules' has to be defined")]);
    let limits = json!({"connectionLimits": {"maxRetries": 1}});
    let mut both = to(limits.clone());
    both["rules"] = json!([{"default": limits}]);
    violations(both, &[("spec", "fields 'to' and 'from' must be empty when 'rules' is defined")]);
}

#[test]
fn kinds_are_checked_per_place() {
    let limits = json!({"connectionLimits": {"maxRetries": 1}});
    let entry = |kind: &str| json!({"targetRef": {"kind": kind, "name": "a"}, "default": limits});
    violations(
        json!({
            "targetRef": {"kind": "MeshHTTPRoute", "name": "a"},
            "from": [entry("MeshService")],
            "to": [entry("MeshHTTPRoute")]
        }),
        &[
            ("spec.targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
            ("spec.from[0].targetRef.kind", "value 'MeshService' is not supported"),
            ("spec.to[0].targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
        ],
    );
    let external = |top: &str| json!({"targetRef": {"kind": top}, "to": [entry("MeshExternalService")]});
    violations(external("Dataplane"), &[]);
    violations(
        external("MeshSubset"),
        &[(
            "spec.to[0].targetRef.kind",
            "kind MeshExternalService is only allowed with targetRef.kind: Mesh as it is configured on the \
             Zone Egress and shared by all clients in the mesh",
        )],
    );
}

#[test]
fn something_is_limited_and_no_limit_is_zero() {
    violations(
        to(json!({})),
        &[(
            "spec.to[0].default",
            "at least one of: 'connectionLimits' or 'outlierDetection' should be configured",
        )],
    );
    let message = "must be greater than 0";
    violations(
        to(
            json!({"connectionLimits": {"maxConnections": 0, "maxConnectionPools": 0, "maxPendingRequests": 0,
                                       "maxRetries": 0, "maxRequests": 0}}),
        ),
        &["maxConnections", "maxConnectionPools", "maxPendingRequests", "maxRetries", "maxRequests"]
            .map(|field| format!("spec.to[0].default.connectionLimits.{field}"))
            .each_ref()
            .map(|field| (field.as_str(), message)),
    );
}

#[test]
fn detectors_are_required_even_when_they_are_disabled() {
    let detection = "spec.to[0].default.outlierDetection";
    let at = |field: &str| format!("{detection}.{field}");
    violations(to(json!({"outlierDetection": {"disabled": true}})), &[(&at("detectors"), "must be defined")]);
    violations(
        to(json!({"outlierDetection": {"detectors": {}}})),
        &[(
            &at("detectors"),
            "must have at least one defined: totalFailures, gatewayFailures, localOriginFailures, \
             successRate, failurePercentage",
        )],
    );
    let positive = "must be greater than 0";
    let longer = "must be greater than zero when defined";
    violations(
        to(json!({"outlierDetection": {
            "interval": "0s", "baseEjectionTime": "-1s", "maxEjectionPercent": 101, "healthyPanicThreshold": 101,
            "detectors": {
                "totalFailures": {"consecutive": 0},
                "successRate": {"minimumHosts": 0, "standardDeviationFactor": "x"},
                "failurePercentage": {"requestVolume": 0, "threshold": 101}}}})),
        &[
            (&at("interval"), longer),
            (&at("baseEjectionTime"), longer),
            (&at("maxEjectionPercent"), "must be in inclusive range [0, 100]"),
            (&at("healthyPanicThreshold"), "must be in inclusive range [0.0, 100.0]"),
            (&at("detectors.totalFailures.consecutive"), positive),
            (&at("detectors.successRate.minimumHosts"), positive),
            (&at("detectors.successRate.standardDeviationFactor"), "invalid number"),
            (&at("detectors.failurePercentage.requestVolume"), positive),
            (&at("detectors.failurePercentage.threshold"), "must be in inclusive range [0, 100]"),
        ],
    );
}

#[test]
fn from_is_deprecated() {
    let mut spec = to(json!({"connectionLimits": {"maxRetries": 1}}));
    spec["from"] = spec["to"].clone();
    assert_eq!(
        draft(Kind::MeshCircuitBreaker, resource(spec)).spec.warnings(),
        ["'from' field is deprecated, use 'rules' instead"]
    );
}
