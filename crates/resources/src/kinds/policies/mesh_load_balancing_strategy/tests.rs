use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
};

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshLoadBalancingStrategy, resource(spec), expect);
}

fn to_mesh(conf: Value) -> Value {
    json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]})
}

#[test]
fn a_full_strategy_is_valid_and_survives_a_round_trip() {
    let spec = json!({
        "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
        "to": [
            {"targetRef": {"kind": "MeshMultiZoneService", "name": "backend"}, "default": {
                "localityAwareness": {
                    "disabled": false,
                    "localZone": {"affinityTags": [
                        {"key": "k8s.io/node", "weight": 9000}, {"key": "k8s.io/az", "weight": 900}]},
                    "crossZone": {
                        "failover": [
                            {"from": {"zones": ["east"]}, "to": {"type": "Only", "zones": ["west"]}},
                            {"to": {"type": "AnyExcept", "zones": ["north"]}},
                            {"to": {"type": "Any"}},
                            {"to": {"type": "None"}}
                        ],
                        "failoverThreshold": {"percentage": "70.5"}
                    }
                },
                "loadBalancer": {
                    "type": "RingHash",
                    "ringHash": {"hashFunction": "MurmurHash2", "minRingSize": 64, "maxRingSize": 1024}
                },
                "hashPolicies": [
                    {"type": "Header", "terminal": true, "header": {"name": "x-user"}},
                    {"type": "Cookie", "cookie": {"name": "session", "ttl": "1m0s", "path": "/api"}},
                    {"type": "Connection", "connection": {"sourceIP": true}},
                    {"type": "SourceIP", "connection": {"sourceIP": true}},
                    {"type": "QueryParameter", "queryParameter": {"name": "id"}},
                    {"type": "FilterState", "filterState": {"key": "state"}}
                ]
            }},
            {"targetRef": {"kind": "MeshService", "name": "a"}, "default": {"loadBalancer": {
                "type": "LeastRequest", "leastRequest": {"choiceCount": 4, "activeRequestBias": "1.3"}}}},
            {"targetRef": {"kind": "Mesh"}, "default": {"loadBalancer": {"type": "RoundRobin", "roundRobin": {}}}},
            {"targetRef": {"kind": "Mesh"}, "default": {"loadBalancer": {"type": "Random", "random": {}}}},
            {"targetRef": {"kind": "Mesh"}, "default": {"loadBalancer": {"type": "Maglev", "maglev": {
                "tableSize": 65537, "hashPolicies": [{"type": "Header", "header": {"name": "x"}}]}}}},
            {"targetRef": {"kind": "MeshHTTPRoute", "name": "r"}, "default": {
                "hashPolicies": [{"type": "Header", "header": {"name": "x"}}]}}
        ]
    });
    valid(Kind::MeshLoadBalancingStrategy, resource(spec.clone()));
    round_trips(Kind::MeshLoadBalancingStrategy, spec);
}

#[test]
fn kinds_are_checked_per_place() {
    // Without entries a policy switches off what less specific ones say.
    violations(json!({}), &[]);
    violations(json!({"to": []}), &[]);
    violations(
        json!({"targetRef": {"kind": "Dataplane", "sectionName": "http"},
               "to": [{"targetRef": {"kind": "MeshExternalService", "name": "x"}, "default": {}}]}),
        &[
            ("spec.targetRef.sectionName", "can only be used with inbound policies"),
            ("spec.to[0].targetRef.kind", "value 'MeshExternalService' is not supported"),
        ],
    );
    violations(
        json!({"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [
            {"targetRef": {"kind": "MeshService", "name": "x"}, "default": {"loadBalancer": {"type": "Random"}}},
            {"targetRef": {"kind": "MeshService", "name": "x"}, "default": {}},
            {"targetRef": {"kind": "MeshHTTPRoute", "name": "x"}, "default": {}}
        ]}),
        &[
            (
                "spec.to[0].targetRef.kind",
                "value 'MeshGateway' is not supported, only Mesh is allowed if loadBalancer is set",
            ),
            ("spec.to[2].targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
        ],
    );
}

#[test]
fn a_route_takes_only_hash_policies() {
    let message = "field is not allowed when targetRef.kind is MeshHTTPRoute, only hashPolicies is supported";
    violations(
        json!({"to": [{"targetRef": {"kind": "MeshHTTPRoute", "name": "r"}, "default": {
            "loadBalancer": {"type": "Random"}, "localityAwareness": {}, "hashPolicies": [{"type": "Header"}]}}]}),
        &[
            ("spec.to[0].default.hashPolicies[0].header", "must be defined"),
            ("spec.to[0].default.loadBalancer", message),
            ("spec.to[0].default.localityAwareness", message),
        ],
    );
}

#[test]
fn every_violation_of_localities_is_reported() {
    violations(
        to_mesh(json!({"localityAwareness": {
            "localZone": {"affinityTags": [{"key": ""}, {"key": "a", "weight": 0}]},
            "crossZone": {
                "failover": [
                    {"from": {"zones": []}, "to": {"type": "Any", "zones": ["a"]}},
                    {"from": {"zones": [""]}, "to": {"type": "Only"}},
                    {"to": {"type": "None", "zones": ["a"]}},
                    {"to": {"type": "AnyExcept", "zones": []}},
                    {"to": {"type": "Some"}}
                ],
                "failoverThreshold": {"percentage": 0}
            }
        }})),
        &[
            ("spec.to[0].default.localityAwareness.localZone.affinityTags[0].key", "must not be empty"),
            (
                "spec.to[0].default.localityAwareness.localZone.affinityTags[1].weight",
                "must be greater than 0",
            ),
            (
                "spec.to[0].default.localityAwareness.localZone.affinityTags",
                "all or none affinity tags should have weight",
            ),
            ("spec.to[0].default.localityAwareness.crossZone.failover[0].from.zones", "must not be empty"),
            (
                "spec.to[0].default.localityAwareness.crossZone.failover[0].to.zones",
                "must be empty when type is Any",
            ),
            ("spec.to[0].default.localityAwareness.crossZone.failover[1].from.zones[0]", "must not be empty"),
            (
                "spec.to[0].default.localityAwareness.crossZone.failover[1].to.zones",
                "must not be empty when type is Only",
            ),
            (
                "spec.to[0].default.localityAwareness.crossZone.failover[2].to.zones",
                "must be empty when type is None",
            ),
            (
                "spec.to[0].default.localityAwareness.crossZone.failover[3].to.zones",
                "must not be empty when type is AnyExcept",
            ),
            ("spec.to[0].default.localityAwareness.crossZone.failover[4].to.type", "unrecognized type"),
            (
                "spec.to[0].default.localityAwareness.crossZone.failoverThreshold.percentage",
                "must be greater than 0",
            ),
        ],
    );
    violations(
        to_mesh(json!({"localityAwareness": {"crossZone": {"failoverThreshold": {}}}})),
        &[("spec.to[0].default.localityAwareness.crossZone.failoverThreshold.percentage", "must be defined")],
    );
}

#[test]
fn a_service_of_one_zone_has_no_other_zones() {
    let crossing = |target: Value| json!({"to": [{"targetRef": target, "default": {"localityAwareness": {"crossZone": {}}}}]});
    let expect: &[_] = &[(
        "spec.to[0].default.localityAwareness.crossZone",
        "must not be set: MeshService traffic is local",
    )];
    violations(crossing(json!({"kind": "MeshService", "name": "a", "sectionName": "http"})), expect);
    violations(crossing(json!({"kind": "MeshService", "labels": {"a": "b"}})), expect);
    violations(crossing(json!({"kind": "MeshService", "name": "a"})), &[]);
}

#[test]
fn every_violation_of_an_algorithm_is_reported() {
    violations(
        to_mesh(json!({"loadBalancer": {
            "type": "Best",
            "leastRequest": {"choiceCount": 1, "activeRequestBias": "-0.1"},
            "ringHash": {"hashFunction": "MD5", "minRingSize": 0, "maxRingSize": 8_000_001},
            "maglev": {"tableSize": 5_000_012}
        }})),
        &[
            (
                "spec.to[0].default.loadBalancer.type",
                r#""type" must be one of ["RoundRobin", "LeastRequest", "RingHash", "Random", "Maglev"]"#,
            ),
            ("spec.to[0].default.loadBalancer.leastRequest.choiceCount", "must be greater or equal then: 2"),
            (
                "spec.to[0].default.loadBalancer.leastRequest.activeRequestBias",
                "must be greater or equal then: 0",
            ),
            (
                "spec.to[0].default.loadBalancer.ringHash.hashFunction",
                r#""hashFunction" must be one of ["XXHash", "MurmurHash2"]"#,
            ),
            (
                "spec.to[0].default.loadBalancer.ringHash.minRingSize",
                "must be in inclusive range [1, 8000000]",
            ),
            (
                "spec.to[0].default.loadBalancer.ringHash.maxRingSize",
                "must be in inclusive range [1, 8000000]",
            ),
            ("spec.to[0].default.loadBalancer.maglev.tableSize", "must be in inclusive range [1, 5000011]"),
        ],
    );
    violations(
        to_mesh(
            json!({"loadBalancer": {"type": "LeastRequest", "leastRequest": {"activeRequestBias": "x"}}}),
        ),
        &[(
            "spec.to[0].default.loadBalancer.leastRequest.activeRequestBias",
            "string must be a valid number",
        )],
    );
}

#[test]
fn every_violation_of_a_hash_policy_is_reported() {
    violations(
        to_mesh(json!({"hashPolicies": [
            {"type": "Header"}, {"type": "Cookie"}, {"type": "Connection"}, {"type": "SourceIP"},
            {"type": "QueryParameter"}, {"type": "FilterState"}, {"type": "Moon"},
            {"type": "Header", "header": {"name": ""}},
            {"type": "Cookie", "cookie": {"name": "", "path": "relative"}},
            {"type": "QueryParameter", "queryParameter": {}},
            {"type": "FilterState", "filterState": {}}
        ]})),
        &[
            ("spec.to[0].default.hashPolicies[0].header", "must be defined"),
            ("spec.to[0].default.hashPolicies[1].cookie", "must be defined"),
            ("spec.to[0].default.hashPolicies[2].connection", "must be defined"),
            ("spec.to[0].default.hashPolicies[3].connection", "must be defined"),
            ("spec.to[0].default.hashPolicies[4].queryParameter", "must be defined"),
            ("spec.to[0].default.hashPolicies[5].filterState", "must be defined"),
            (
                "spec.to[0].default.hashPolicies[6].type",
                r#""type" must be one of ["Header", "Cookie", "Connection", "SourceIP", "QueryParameter", "FilterState"]"#,
            ),
            ("spec.to[0].default.hashPolicies[7].header.name", "must not be empty"),
            ("spec.to[0].default.hashPolicies[8].cookie.name", "must not be empty"),
            ("spec.to[0].default.hashPolicies[8].cookie.path", "must be an absolute path"),
            ("spec.to[0].default.hashPolicies[9].queryParameter.name", "must not be empty"),
            ("spec.to[0].default.hashPolicies[10].filterState.key", "must not be empty"),
        ],
    );
}

#[test]
fn hash_policies_stand_in_one_place_and_preferably_on_top() {
    let policies = json!([{"type": "Header", "header": {"name": "x"}}]);
    let nested = json!({"type": "RingHash", "ringHash": {"hashPolicies": policies}, "maglev": {"hashPolicies": policies}});
    violations(
        to_mesh(json!({"loadBalancer": nested, "hashPolicies": policies})),
        &[
            (
                "spec.to[0].default.loadBalancer.ringHash.hashPolicies",
                "hashPolicies already specified in the root level",
            ),
            (
                "spec.to[0].default.loadBalancer.maglev.hashPolicies",
                "hashPolicies already specified in the root level",
            ),
        ],
    );
    let policy = draft(Kind::MeshLoadBalancingStrategy, resource(to_mesh(json!({"loadBalancer": nested}))));
    assert_eq!(
        policy.spec.warnings(),
        [
            "'hashPolicies' in 'to[0].default.loadBalancer.ringHash' is deprecated, \
             use 'to[0].default.hashPolicies' instead",
            "'hashPolicies' in 'to[0].default.loadBalancer.maglev' is deprecated, \
             use 'to[0].default.hashPolicies' instead",
        ]
    );
}
