//! Violations of schemas, kind by kind: a document of a kind in spec form is compared with the kind's schema before
//! the kind's own rules are looked at.

use resources::{
    Kind,
    format::{Error, parse, yaml},
};
use serde_json::{Value, json};
use testkit::spec;

/// Violations of a spec, found by its schema or else by its own rules.
fn told(kind: Kind, spec: Value) -> Vec<(String, String)> {
    told_about(json!({ "type": kind.name(), "mesh": "default", "name": "example", "spec": spec }))
}

fn told_about(document: Value) -> Vec<(String, String)> {
    let text = document.to_string();
    let violations = match parse(document) {
        Ok(parsed) => parsed.draft.validate(),
        Err(Error::Violations { violations, .. }) => violations,
        Err(error) => panic!("{text}: {error}"),
    };
    violations.into_vec().into_iter().map(|violation| (violation.field, violation.message)).collect()
}

#[track_caller]
fn check(kind: Kind, spec: Value, expect: &[(&str, &str)]) {
    let text = spec.to_string();
    let told = told(kind, spec);
    let told: Vec<(&str, &str)> = told.iter().map(|(field, message)| (&**field, &**message)).collect();
    assert_eq!(told, expect, "{kind} {text}");
}

const REQUIRED: &str = "in body is required";
const KINDS: &str = "in body should be one of [Mesh MeshSubset MeshGateway MeshService MeshExternalService \
     MeshMultiZoneService MeshServiceSubset MeshHTTPRoute Dataplane]";

#[test]
fn only_the_schemas_violations_are_told_when_there_are_any() {
    check(
        Kind::MeshTimeout,
        json!({"targetRef": {"kind": "MeshGateway"}, "to": [{"targetRef": {"kind": "Nobody"}, "default": {}}]}),
        &[("spec.to[0].targetRef.kind", KINDS)],
    );
    check(
        Kind::MeshTimeout,
        json!({"to": [{"targetRef": {"kind": "MeshSubset"}, "default": {"idleTimeout": "1s"}}]}),
        &[("spec.to[0].targetRef.kind", "value 'MeshSubset' is not supported")],
    );
}

#[test]
fn the_document_around_the_spec_has_a_schema_too() {
    let fine = json!({"type": "MeshTimeout", "name": "t", "mesh": "default", "spec": {}});
    let with = |field: &str, value: Option<Value>| {
        let mut document = fine.clone();
        let fields = document.as_object_mut().unwrap();
        fields.shift_remove(field);
        if let Some(value) = value {
            fields.insert(field.to_owned(), value);
        }
        resources::format::universal::parse_as(Kind::MeshTimeout, fields.clone())
    };
    for (field, value, expect) in [
        ("type", Some(json!("Mesh")), "type in body should be one of [MeshTimeout]"),
        ("spec", Some(json!("x")), "spec in body must be of type object: \"string\""),
        ("spec", Some(json!([])), "spec in body must be of type object: \"array\""),
    ] {
        let Err(Error::Violations { violations, .. }) = with(field, value) else {
            panic!("{field} {expect}")
        };
        let told: Vec<_> = violations.iter().map(|v| (v.field.as_str(), v.message.as_str())).collect();
        assert_eq!(told, [("", expect)]);
    }
}

#[test]
fn a_value_of_another_type_is_named_with_its_field() {
    check(
        Kind::MeshTimeout,
        json!({"targetRef": {"kind": 1, "name": 5, "tags": {"a": true}}, "to": {},
               "rules": [{"default": {"idleTimeout": 10}}]}),
        &[
            ("spec.rules[0].default.idleTimeout", "in body must be of type string: \"number\""),
            ("spec.targetRef.kind", "in body must be of type string: \"number\""),
            ("spec.targetRef.kind", KINDS),
            ("spec.targetRef.name", "in body must be of type string: \"number\""),
            ("spec.targetRef.tags.a", "in body must be of type string: \"boolean\""),
            ("spec.to", "in body must be of type array: \"object\""),
        ],
    );
}

#[test]
fn a_null_is_refused_because_dropping_it_would_select_more_than_was_meant() {
    let documents = yaml::documents(
        "type: MeshTrafficPermission\nmesh: default\nname: p\nspec:\n  from:\n  - targetRef:\n      kind: MeshSubset\n      \
         tags:\n        team:\n    default: {action: Allow}\n",
    )
    .unwrap();
    let told = told_about(documents[0].value.clone());
    let tag = "spec.from[0].targetRef.tags.team";
    assert_eq!(told, [(tag.to_owned(), "in body must be of type string: \"null\"".to_owned())]);
    check(
        Kind::MeshTrafficPermission,
        json!({"targetRef": null, "rules": [{"default": {"allow": [null], "deny": null}}]}),
        &[
            ("spec.rules[0].default.allow[0]", "in body must be of type object: \"null\""),
            ("spec.rules[0].default.deny", "in body must be of type array: \"null\""),
            ("spec.targetRef", "in body must be of type object: \"null\""),
        ],
    );
    for (kind, spec, field) in [
        (
            Kind::MeshService,
            json!({"selector": {"dataplaneTags": {"app": null}}}),
            "spec.selector.dataplaneTags.app",
        ),
        (
            Kind::MeshMultiZoneService,
            json!({"selector": {"meshService": {"matchLabels": {"app": null}}}}),
            "spec.selector.meshService.matchLabels.app",
        ),
        (
            Kind::HostnameGenerator,
            json!({"selector": {"meshService": {"matchLabels": {"app": null}}}, "template": "a"}),
            "spec.selector.meshService.matchLabels.app",
        ),
    ] {
        check(kind, spec, &[(field, "in body must be of type string: \"null\"")]);
    }
}

#[test]
fn a_list_is_no_object() {
    check(
        Kind::MeshTrafficPermission,
        json!({"targetRef": [], "from": [{"targetRef": ["Mesh"], "default": []}]}),
        &[
            ("spec.from[0].default", "in body must be of type object: \"array\""),
            ("spec.from[0].targetRef", "in body must be of type object: \"array\""),
            ("spec.targetRef", "in body must be of type object: \"array\""),
        ],
    );
    check(
        Kind::MeshService,
        json!({"selector": [], "ports": {}}),
        &[
            ("spec.ports", "in body must be of type array: \"object\""),
            ("spec.selector", "in body must be of type object: \"array\""),
        ],
    );
}

#[test]
fn references_need_a_kind_and_proxy_types_are_not_an_empty_list() {
    check(
        Kind::MeshTimeout,
        json!({"targetRef": {"proxyTypes": []}, "to": [{"default": {}}]}),
        &[
            ("spec.targetRef.kind", REQUIRED),
            ("spec.targetRef.proxyTypes", "in body should have at least 1 items"),
            ("spec.to[0].targetRef", REQUIRED),
        ],
    );
}

#[test]
fn an_http_route_has_rules_with_matches_and_a_default() {
    let service = json!({"kind": "MeshService", "name": "a"});
    check(Kind::MeshHTTPRoute, json!({"to": [{"targetRef": service}]}), &[("spec.to[0].rules", REQUIRED)]);
    check(
        Kind::MeshHTTPRoute,
        json!({"to": [{"targetRef": service, "rules": [
            {}, {"matches": [], "default": {}},
            {"matches": [{"path": {}, "headers": [{"value": "x"}, {"name": "A"}], "queryParams": [{}]}], "default": {}}]}]}),
        &[
            ("spec.to[0].rules[0].default", REQUIRED),
            ("spec.to[0].rules[0].matches", REQUIRED),
            ("spec.to[0].rules[1].matches", "in body should have at least 1 items"),
            ("spec.to[0].rules[2].matches[0].headers[0].name", REQUIRED),
            (
                "spec.to[0].rules[2].matches[0].headers[1].name",
                r"in body should match '^[a-z0-9!#$%&'*+\-.^_\x60|~]+$'",
            ),
            ("spec.to[0].rules[2].matches[0].path.type", REQUIRED),
            ("spec.to[0].rules[2].matches[0].path.value", REQUIRED),
            ("spec.to[0].rules[2].matches[0].queryParams[0].name", REQUIRED),
            ("spec.to[0].rules[2].matches[0].queryParams[0].type", REQUIRED),
            ("spec.to[0].rules[2].matches[0].queryParams[0].value", REQUIRED),
        ],
    );
}

#[test]
fn the_filters_of_an_http_route_are_checked() {
    let rules = json!([{"matches": [{"path": {"type": "Exact", "value": "/"}}], "default": {"filters": [
        {"type": "RequestRedirect", "requestRedirect":
            {"hostname": "Up.Case", "port": 65536, "statusCode": 300, "scheme": "ftp", "path": {}}},
        {"type": "URLRewrite", "urlRewrite": {"hostname": ""}},
        {"type": "RequestMirror", "requestMirror": {"percentage": true}},
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "a"}]}}]}}]);
    let hostname =
        r"in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'";
    let path = |field: &str| format!("spec.to[0].rules[0].default.filters{field}");
    let expect = [
        ("[0].requestRedirect.hostname", hostname),
        ("[0].requestRedirect.path.type", REQUIRED),
        ("[0].requestRedirect.port", "in body should be less than or equal to 65535"),
        ("[0].requestRedirect.scheme", "in body should be one of [http https]"),
        ("[0].requestRedirect.statusCode", "in body should be one of [301 302 303 307 308]"),
        ("[1].urlRewrite.hostname", "in body should be at least 1 chars long"),
        ("[1].urlRewrite.hostname", hostname),
        ("[2].requestMirror.backendRef", REQUIRED),
        ("[2].requestMirror.percentage", "in body must be of type integer,string: \"boolean\""),
        ("[3].requestHeaderModifier.set[0].value", REQUIRED),
    ];
    let expect: Vec<(String, &str)> = expect.iter().map(|(field, message)| (path(field), *message)).collect();
    let expect: Vec<(&str, &str)> = expect.iter().map(|(field, message)| (&**field, *message)).collect();
    let to = json!([{"targetRef": {"kind": "MeshService", "name": "a"}, "rules": rules}]);
    check(Kind::MeshHTTPRoute, json!({ "to": to }), &expect);
}

#[test]
fn a_tcp_route_has_destinations_and_at_most_one_rule_for_each() {
    let service = json!({"kind": "MeshService", "name": "a"});
    check(Kind::MeshTCPRoute, json!({"to": []}), &[("spec.to", "in body should have at least 1 items")]);
    check(
        Kind::MeshTCPRoute,
        json!({"to": [{"targetRef": service}, {"targetRef": service, "rules": [{}, {"default": {"backendRefs": [{}]}}]}]}),
        &[
            ("spec.to[0].rules", REQUIRED),
            ("spec.to[1].rules", "in body should have at most 1 items"),
            ("spec.to[1].rules[0].default", REQUIRED),
            ("spec.to[1].rules[1].default.backendRefs[0].kind", REQUIRED),
        ],
    );
}

#[test]
fn the_parts_of_a_fault_are_complete() {
    let rule = "spec.rules[1].default.http[0]";
    let field = |field: &str| format!("{rule}.{field}");
    check(
        Kind::MeshFaultInjection,
        json!({"rules": [{}, {"default": {"http": [
            {"abort": {}, "delay": {}, "responseBandwidth": {"limit": 5}}]}}]}),
        &[
            ("spec.rules[0].default", REQUIRED),
            (&field("abort.httpStatus"), REQUIRED),
            (&field("abort.percentage"), REQUIRED),
            (&field("delay.percentage"), REQUIRED),
            (&field("delay.value"), REQUIRED),
            (&field("responseBandwidth.limit"), "in body must be of type string: \"number\""),
            (&field("responseBandwidth.percentage"), REQUIRED),
        ],
    );
}

#[test]
fn a_rate_has_a_number_and_an_interval() {
    let local = "spec.rules[1].default.local";
    check(
        Kind::MeshRateLimit,
        json!({"rules": [{}, {"default": {"local": {"http": {"requestRate": {}, "onRateLimit": {"status": "x",
            "headers": {"add": [{}], "set": [{"name": "Upper", "value": "1"}]}}},
            "tcp": {"connectionRate": {"num": "5"}}}}}]}),
        &[
            ("spec.rules[0].default", REQUIRED),
            (&format!("{local}.http.onRateLimit.headers.add[0].name"), REQUIRED),
            (&format!("{local}.http.onRateLimit.headers.add[0].value"), REQUIRED),
            (
                &format!("{local}.http.onRateLimit.headers.set[0].name"),
                r"in body should match '^[a-z0-9!#$%&'*+\-.^_\x60|~]+$'",
            ),
            (&format!("{local}.http.onRateLimit.status"), "in body must be of type integer: \"string\""),
            (&format!("{local}.http.requestRate.interval"), REQUIRED),
            (&format!("{local}.http.requestRate.num"), REQUIRED),
            (&format!("{local}.tcp.connectionRate.interval"), REQUIRED),
            (&format!("{local}.tcp.connectionRate.num"), "in body must be of type integer: \"string\""),
        ],
    );
}

#[test]
fn a_proxy_patch_has_a_default_and_operations_that_fit() {
    check(Kind::MeshProxyPatch, json!({}), &[("spec.default", REQUIRED)]);
    let resources = "in body should be one of [Add Remove Patch]";
    let filters = "in body should be one of [Remove Patch AddFirst AddBefore AddAfter AddLast]";
    let modification = |field: &str| format!("spec.default.appendModifications{field}");
    check(
        Kind::MeshProxyPatch,
        json!({"default": {"appendModifications": [
            {"cluster": {"operation": "AddFirst"}}, {"listener": {}}, {"networkFilter": {"operation": "Add"}},
            {"httpFilter": {"operation": "Patch", "jsonPatches": [{"op": "test"}]}},
            {"virtualHost": {"operation": "AddLast"}}]}}),
        &[
            (&modification("[0].cluster.operation"), resources),
            (&modification("[1].listener.operation"), REQUIRED),
            (&modification("[2].networkFilter.operation"), filters),
            (
                &modification("[3].httpFilter.jsonPatches[0].op"),
                "in body should be one of [add remove replace move copy]",
            ),
            (&modification("[3].httpFilter.jsonPatches[0].path"), REQUIRED),
            (&modification("[4].virtualHost.match"), REQUIRED),
            (&modification("[4].virtualHost.operation"), resources),
        ],
    );
}

#[test]
fn the_identities_of_a_permission_are_complete() {
    check(
        Kind::MeshTrafficPermission,
        json!({"rules": [{"default": {"allow": [{"sni": {"type": "Exact"}}, {"spiffeID": {}}]}}],
               "from": [{"targetRef": spec::all(), "default": {"action": "ALLOW"}}]}),
        &[
            ("spec.from[0].default.action", "in body should be one of [Allow Deny AllowWithShadowDeny]"),
            ("spec.rules[0].default.allow[0].sni.value", REQUIRED),
            ("spec.rules[0].default.allow[1].spiffeID.type", REQUIRED),
            ("spec.rules[0].default.allow[1].spiffeID.value", REQUIRED),
        ],
    );
}

#[test]
fn the_headers_and_predicates_of_a_retry_are_complete() {
    let back_off = |headers: Value| json!({"rateLimitedBackOff": {"resetHeaders": headers}});
    let mut http = back_off(json!([{}, {"name": "", "format": "Minutes"}]));
    http["hostSelection"] = json!([{"tags": {"a": "b"}}]);
    let grpc = back_off(json!([{"name": "Retry-After", "format": "Seconds"}]));
    let headers = |protocol: &str, field: &str| {
        format!("spec.to[0].default.{protocol}.rateLimitedBackOff.resetHeaders{field}")
    };
    let pattern = r"in body should match '^[a-z0-9!#$%&'*+\-.^_\x60|~]+$'";
    check(
        Kind::MeshRetry,
        json!({"to": [{"targetRef": spec::all(), "default": {"http": http, "grpc": grpc}}]}),
        &[
            (&headers("grpc", "[0].name"), pattern),
            ("spec.to[0].default.http.hostSelection[0].predicate", REQUIRED),
            (&headers("http", "[0].format"), REQUIRED),
            (&headers("http", "[0].name"), REQUIRED),
            (&headers("http", "[1].format"), "in body should be one of [Seconds UnixTimestamp]"),
            (&headers("http", "[1].name"), "in body should be at least 1 chars long"),
            (&headers("http", "[1].name"), pattern),
        ],
    );
}

#[test]
fn the_headers_of_a_health_check_are_complete() {
    let headers = |field: &str| format!("spec.to[0].default.http.requestHeadersToAdd.{field}");
    let many: Vec<Value> = (0..17).map(|i| json!({"name": format!("x-{i}"), "value": ""})).collect();
    check(
        Kind::MeshHealthCheck,
        json!({"to": [{"targetRef": spec::all(), "default": {
            "unhealthyThreshold": "3",
            "http": {"requestHeadersToAdd": {"add": many, "set": [{"name": "X"}]}}}}]}),
        &[
            (&headers("add"), "in body should have at most 16 items"),
            (&headers("set[0].name"), r"in body should match '^[a-z0-9!#$%&'*+\-.^_\x60|~]+$'"),
            (&headers("set[0].value"), REQUIRED),
            ("spec.to[0].default.unhealthyThreshold", "in body must be of type integer: \"string\""),
        ],
    );
}

#[test]
fn what_leaves_the_mesh_is_told_by_known_words() {
    check(
        Kind::MeshPassthrough,
        json!({"default": {"passthroughMode": "Some", "appendMatch": [{"type": "Host", "protocol": "udp"}]}}),
        &[
            (
                "spec.default.appendMatch[0].protocol",
                "in body should be one of [tcp tls grpc http http2 mysql]",
            ),
            ("spec.default.appendMatch[0].type", "in body should be one of [Domain IP CIDR]"),
            ("spec.default.passthroughMode", "in body should be one of [All Matched None]"),
        ],
    );
}

#[test]
fn load_balancing_is_within_its_limits() {
    let balancer = |field: &str| format!("spec.to[0].default.loadBalancer.{field}");
    check(
        Kind::MeshLoadBalancingStrategy,
        json!({"to": [{"targetRef": spec::all(), "default": {
            "loadBalancer": {"leastRequest": {"choiceCount": 1},
                             "ringHash": {"minRingSize": 0, "maxRingSize": 8_000_001, "hashFunction": "MD5"},
                             "maglev": {"tableSize": 5_000_012, "hashPolicies": [{"header": {"name": ""}}]}},
            "localityAwareness": {"localZone": {"affinityTags": [{}]},
                                  "crossZone": {"failover": [{"from": {}}], "failoverThreshold": {}}}}}]}),
        &[
            (&balancer("leastRequest.choiceCount"), "in body should be greater than or equal to 2"),
            (&balancer("maglev.hashPolicies[0].header.name"), "in body should be at least 1 chars long"),
            (&balancer("maglev.hashPolicies[0].type"), REQUIRED),
            (&balancer("maglev.tableSize"), "in body should be less than or equal to 5000011"),
            (&balancer("ringHash.hashFunction"), "in body should be one of [XXHash MurmurHash2]"),
            (&balancer("ringHash.maxRingSize"), "in body should be less than or equal to 8000000"),
            (&balancer("ringHash.minRingSize"), "in body should be greater than or equal to 1"),
            (&balancer("type"), REQUIRED),
            ("spec.to[0].default.localityAwareness.crossZone.failoverThreshold.percentage", REQUIRED),
            ("spec.to[0].default.localityAwareness.crossZone.failover[0].from.zones", REQUIRED),
            ("spec.to[0].default.localityAwareness.crossZone.failover[0].to", REQUIRED),
            ("spec.to[0].default.localityAwareness.localZone.affinityTags[0].key", REQUIRED),
        ],
    );
    check(Kind::MeshLoadBalancingStrategy, json!({"to": []}), &[]);
}

#[test]
fn an_external_service_says_where_it_is() {
    check(Kind::MeshExternalService, json!({}), &[("spec.match", REQUIRED)]);
    check(
        Kind::MeshExternalService,
        json!({"match": {"type": "", "protocol": ""}, "endpoints": [{}, {"address": "", "port": 0, "priority": 129}],
               "extension": {}, "tls": {"verification": {"subjectAltNames": [{"type": "Exact"}], "mode": "None"}}}),
        &[
            ("spec.endpoints[0].address", REQUIRED),
            ("spec.endpoints[0].port", REQUIRED),
            ("spec.endpoints[1].address", "in body should be at least 1 chars long"),
            ("spec.endpoints[1].port", "in body should be greater than or equal to 1"),
            ("spec.endpoints[1].priority", "in body should be less than or equal to 128"),
            ("spec.extension.type", REQUIRED),
            ("spec.match.port", REQUIRED),
            ("spec.match.protocol", "in body should be one of [tcp grpc http http2]"),
            ("spec.match.type", "in body should be one of [HostnameGenerator]"),
            ("spec.tls.verification.mode", "in body should be one of [SkipSAN SkipCA Secured SkipAll]"),
            ("spec.tls.verification.subjectAltNames[0].value", REQUIRED),
        ],
    );
}

#[test]
fn logs_and_traces_say_where_they_go() {
    let telemetry = json!({"endpoint": "", "attributes": [{"key": "A", "value": "x"}, {}], "backendRef": {}});
    let backend = json!({"type": "Syslog", "tcp": {}, "file": {"path": ""}, "openTelemetry": telemetry});
    let short = "in body should be at least 1 chars long";
    check(
        Kind::MeshAccessLog,
        json!({"to": [{"targetRef": spec::all(), "default": {"backends": [{}, backend]}}]}),
        &[
            ("spec.to[0].default.backends[0].type", REQUIRED),
            ("spec.to[0].default.backends[1].file.path", short),
            (
                "spec.to[0].default.backends[1].openTelemetry.attributes[0].key",
                "in body should match '^[a-z]([a-z0-9]|[._][a-z0-9])*$'",
            ),
            ("spec.to[0].default.backends[1].openTelemetry.attributes[1].key", REQUIRED),
            ("spec.to[0].default.backends[1].openTelemetry.attributes[1].value", REQUIRED),
            ("spec.to[0].default.backends[1].openTelemetry.backendRef.kind", REQUIRED),
            ("spec.to[0].default.backends[1].openTelemetry.endpoint", short),
            ("spec.to[0].default.backends[1].tcp.address", REQUIRED),
            ("spec.to[0].default.backends[1].type", "in body should be one of [Tcp File OpenTelemetry]"),
        ],
    );
    check(
        Kind::MeshTrace,
        json!({"default": {"backends": [{"type": "Zipkin", "zipkin": {}}], "tags": [{}]}}),
        &[("spec.default.backends[0].zipkin.url", REQUIRED), ("spec.default.tags[0].name", REQUIRED)],
    );
}
