use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshRetry, resource(spec), expect);
}

fn to(conf: Value) -> Value {
    json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]})
}

#[test]
fn full_examples_are_valid_and_survive_a_round_trip() {
    let limited =
        json!({"resetHeaders": [{"name": "retry-after", "format": "Seconds"}], "maxInterval": "1s"});
    let full = json!({
        "targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]},
        "to": [{"targetRef": {"kind": "MeshHTTPRoute", "name": "route-1"}, "default": {
            "tcp": {"maxConnectAttempt": 3},
            "http": {
                "numRetries": 5, "perTryTimeout": "0s", "backOff": {"baseInterval": "25ms", "maxInterval": "250ms"},
                "rateLimitedBackOff": limited,
                "retryOn": ["5xx", "GatewayError", "HttpMethodGet", "429"],
                "retriableResponseHeaders": [{"type": "Exact", "name": "x-again", "value": "yes"}],
                "retriableRequestHeaders": [{"type": "Present", "name": "x-safe"}],
                "hostSelection": [
                    {"predicate": "OmitPreviousHosts", "updateFrequency": 2},
                    {"predicate": "OmitHostsWithTags", "tags": {"version": "v1"}, "updateFrequency": 2},
                    {"predicate": "OmitPreviousPriorities", "updateFrequency": 3}],
                "hostSelectionMaxAttempts": 3},
            "grpc": {"numRetries": 5, "perTryTimeout": "16s", "backOff": {"maxInterval": "1s"},
                     "rateLimitedBackOff": limited,
                     "retryOn": ["Canceled", "DeadlineExceeded", "Internal", "ResourceExhausted", "Unavailable"]}
        }}]
    });
    // Without entries it changes nothing, and is legal.
    for spec in [full, json!({"targetRef": {"kind": "Mesh"}})] {
        valid(Kind::MeshRetry, resource(spec.clone()));
        round_trips(Kind::MeshRetry, spec);
    }
}

#[test]
fn what_is_left_out_is_filled_in() {
    let mut draft = draft(
        Kind::MeshRetry,
        resource(to(json!({"http": {
            "hostSelection": [{"predicate": "OmitPreviousPriorities"}],
            "retriableRequestHeaders": [{"name": "x-safe", "value": "yes"}]}}))),
    );
    draft.spec.apply_defaults();
    let http = &draft.spec.to_json()["to"][0]["default"]["http"];
    assert_eq!(http["hostSelection"][0]["updateFrequency"], 2);
    assert_eq!(http["retriableRequestHeaders"][0]["type"], "Exact");
}

#[test]
fn kinds_are_checked_per_place() {
    let retries = json!({"tcp": {"maxConnectAttempt": 1}});
    let entry = |kind: &str| json!({"targetRef": {"kind": kind, "name": "a"}, "default": retries});
    violations(
        json!({"targetRef": {"kind": "Dataplane", "sectionName": "x"}, "to": [entry("MeshServiceSubset")]}),
        &[
            ("spec.targetRef.sectionName", "can only be used with inbound policies"),
            ("spec.to[0].targetRef.kind", "value 'MeshServiceSubset' is not supported"),
        ],
    );
    violations(
        json!({"targetRef": {"kind": "MeshHTTPRoute", "name": "a"}, "to": [entry("MeshService")]}),
        &[("spec.to[0].targetRef.kind", "value 'MeshService' is not supported")],
    );
}

#[test]
fn each_part_says_something() {
    violations(
        to(json!({})),
        &[("spec.to[0].default.conf", "at least one of the 'tcp', 'http', 'grpc' must be specified")],
    );
    violations(
        to(json!({"tcp": {}, "http": {"hostSelectionMaxAttempts": 3}, "grpc": {}})),
        &[
            ("spec.to[0].default.conf.tcp", "must not be empty"),
            ("spec.to[0].default.conf.http", "must not be empty"),
            ("spec.to[0].default.conf.grpc", "must not be empty"),
        ],
    );
    violations(
        to(json!({"tcp": {"maxConnectAttempt": 0}, "http": {"backOff": {}, "rateLimitedBackOff": {}},
                  "grpc": {"rateLimitedBackOff": {"maxInterval": "0s", "resetHeaders": [{"name": "", "format": "Seconds"}]}}})),
        &[
            ("spec.to[0].default.conf.tcp.maxConnectAttempt", "must be greater than 0"),
            ("spec.to[0].default.conf.http.backOff", "must not be empty"),
            ("spec.to[0].default.conf.http.rateLimitedBackOff.resetHeaders", "must be defined"),
            (
                "spec.to[0].default.conf.grpc.rateLimitedBackOff.maxInterval",
                "must be defined and greater than zero",
            ),
            ("spec.to[0].default.conf.grpc.rateLimitedBackOff.resetHeaders[0].name", "must be defined"),
        ],
    );
}

#[test]
fn conditions_are_words_methods_or_status_codes() {
    violations(
        to(json!({"http": {"retryOn": ["5xx", "503", "HttpMethodPut", "599", "HttpMethod", "5XX"]},
                  "grpc": {"retryOn": ["Canceled", "cancelled"]}})),
        &[
            ("spec.to[0].default.conf.http.retryOn[3]", "unknown item '599'"),
            ("spec.to[0].default.conf.http.retryOn[4]", "unknown item 'HttpMethod'"),
            ("spec.to[0].default.conf.http.retryOn[5]", "unknown item '5XX'"),
            ("spec.to[0].default.conf.grpc.retryOn[1]", "unknown item 'cancelled'"),
        ],
    );
}

#[test]
fn hosts_are_chosen_by_known_predicates() {
    violations(
        to(json!({"http": {"hostSelection": [
            {"predicate": "OmitHostsWithTags"}, {"predicate": "OmitPreviousPriorities", "updateFrequency": 0},
            {"predicate": "OmitPreviousPriorities"}, {"predicate": "None"}],
            "retriableResponseHeaders": [{"name": "X"}]}})),
        &[
            ("spec.to[0].default.conf.http.hostSelection[0].tags", "must be defined"),
            (
                "spec.to[0].default.conf.http.hostSelection[1].updateFrequency",
                "must be defined and greater than zero",
            ),
            (
                "spec.to[0].default.conf.http.hostSelection[2].predicate",
                "OmitPreviousPriorities must only be specified once",
            ),
            ("spec.to[0].default.conf.http.hostSelection[3].predicate", "unknown predicate type 'None'"),
            (
                "spec.to[0].default.http.retriableResponseHeaders[0].name",
                "must be a header name in lower case",
            ),
        ],
    );
}
