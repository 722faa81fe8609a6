use serde_json::{Value, json};

use crate::{
    Kind,
    kinds::testing::{check, draft, resource, round_trips, valid},
    naming::dns,
};

fn violations(spec: Value, expect: &[(&str, &str)]) {
    check(Kind::MeshHTTPRoute, resource(spec), expect);
}

/// A route with one rule.
fn rule(matches: Value, default: Value) -> Value {
    json!({"to": [{"targetRef": {"kind": "MeshService", "name": "backend"},
                   "rules": [{"matches": matches, "default": default}]}]})
}

fn filters(filters: Value) -> Value {
    rule(json!([{"path": {"value": "/", "type": "PathPrefix"}}]), json!({"filters": filters}))
}

#[test]
fn a_full_route_is_valid_and_survives_a_round_trip() {
    let spec = json!({
        "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
        "to": [{
            "targetRef": {"kind": "MeshMultiZoneService", "name": "backend"},
            "rules": [{
                "matches": [
                    {"path": {"value": "/v1", "type": "PathPrefix"}, "method": "GET",
                     "queryParams": [{"type": "Exact", "name": "a", "value": "b"},
                                     {"type": "RegularExpression", "name": "b", "value": ".*"}],
                     "headers": [{"type": "Exact", "name": "x-a", "value": "b"}, {"type": "Present", "name": "x-b"},
                                 {"type": "RegularExpression", "name": "x-c", "value": ".*"},
                                 {"type": "Absent", "name": "x-d"}, {"type": "Prefix", "name": "x-e", "value": "p"}]},
                    {"path": {"value": "/", "type": "PathPrefix"}}
                ],
                "default": {
                    "filters": [
                        {"type": "RequestHeaderModifier", "requestHeaderModifier": {
                            "set": [{"name": "x-a", "value": "1"}], "add": [{"name": "x-b", "value": "1,2"}],
                            "remove": ["x-c"]}},
                        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["x-c"]}},
                        {"type": "RequestRedirect", "requestRedirect": {
                            "scheme": "https", "hostname": "example.com",
                            "path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"},
                            "port": 8443, "statusCode": 308}},
                        {"type": "URLRewrite", "urlRewrite": {"hostname": "example.com",
                            "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2"}}},
                        {"type": "RequestMirror", "requestMirror": {"percentage": "0.5",
                            "backendRef": {"kind": "MeshService", "name": "shadow", "weight": 1, "port": 80}}}
                    ],
                    "backendRefs": [
                        {"kind": "MeshService", "name": "a", "sectionName": "http", "weight": 90},
                        {"kind": "MeshServiceSubset", "name": "a", "tags": {"version": "v1"}, "weight": 10},
                        {"kind": "MeshExternalService", "name": "ext", "weight": 0},
                        {"kind": "MeshMultiZoneService", "labels": {"a": "b"}, "weight": 1, "port": 80}
                    ]
                }
            }]
        }]
    });
    valid(Kind::MeshHTTPRoute, resource(spec.clone()));
    round_trips(Kind::MeshHTTPRoute, spec);
}

#[test]
fn header_types_redirect_codes_and_weights_have_defaults() {
    let spec = rule(
        json!([{"headers": [{"name": "x", "value": "y"}]}]),
        json!({
            "filters": [
                {"type": "RequestRedirect", "requestRedirect": {}},
                {"type": "RequestMirror", "requestMirror": {"backendRef": {"kind": "MeshService", "name": "m"}}}
            ],
            "backendRefs": [{"kind": "MeshService", "name": "b"}]
        }),
    );
    let stored = draft(Kind::MeshHTTPRoute, resource(spec)).spec.to_json();
    let rule = &stored["to"][0]["rules"][0];
    assert_eq!(rule["matches"][0]["headers"][0], json!({"type": "Exact", "name": "x", "value": "y"}));
    assert_eq!(rule["default"]["filters"][0]["requestRedirect"], json!({"statusCode": 302}));
    assert_eq!(rule["default"]["filters"][1]["requestMirror"]["backendRef"]["weight"], json!(1));
    assert_eq!(rule["default"]["backendRefs"][0]["weight"], json!(1));
}

#[test]
fn kinds_are_checked_per_place() {
    violations(
        json!({
            "targetRef": {"kind": "MeshExternalService", "name": "x"},
            "to": [{
                "hostnames": ["example.com"],
                "targetRef": {"kind": "Mesh"},
                "rules": [{"matches": [], "default": {"backendRefs": [
                    {"kind": "MeshGateway", "name": "g"}, {"kind": "MeshMultiZoneService", "name": "m"}]}}]
            }]
        }),
        &[
            ("spec.targetRef.kind", "value 'MeshExternalService' is not supported"),
            ("spec.to[0].targetRef.kind", "value 'Mesh' is not supported"),
            ("spec.to[0].rules[0].matches", "must not be empty"),
            ("spec.to[0].rules[0].default.backendRefs[0].kind", "value 'MeshGateway' is not supported"),
            (
                "spec.to[0].rules[0].default.backendRefs[1].port",
                "must be defined with kind MeshMultiZoneService",
            ),
            ("spec.to[0].hostnames", "must not be defined"),
        ],
    );
}

#[test]
fn a_gateway_needs_a_backend_or_a_redirect() {
    let gateway = |default: Value| {
        json!({"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [
            {"hostnames": ["example.com"], "targetRef": {"kind": "Mesh"},
             "rules": [{"matches": [{"path": {"value": "/", "type": "PathPrefix"}}], "default": default}]}]})
    };
    violations(gateway(json!({})), &[("spec.to[0].rules[0].default.backendRefs", "must not be empty")]);
    violations(gateway(json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {}}]})), &[]);
    violations(
        gateway(json!({"filters": [{"type": "URLRewrite", "urlRewrite": {"hostToBackendHostname": true}}],
                       "backendRefs": [{"kind": "MeshService", "name": "a"}]})),
        &[],
    );
}

#[test]
fn every_violation_of_a_match_is_reported() {
    let at = |rest: &str| format!("spec.to[0].rules[0].matches{rest}");
    violations(
        rule(
            json!([
                {"path": {"value": "relative/", "type": "PathPrefix"}},
                {"path": {"value": "relative", "type": "Exact"}},
                {"path": {"value": "", "type": "Regex"}},
                {"method": "BREW"},
                {"queryParams": [{"type": "Exact", "name": "a", "value": "1"},
                                 {"type": "Exact", "name": "a", "value": "2"}, {"value": "3"}]},
                {"headers": [{"type": "Present", "name": "x", "value": "y"},
                             {"type": "Absent", "name": "x", "value": "y"},
                             {"type": "Like", "name": "X-Upper", "value": "y"}, {"value": "y"}]}
            ]),
            json!({}),
        ),
        &[
            (
                &at("[0].path.value"),
                "does not need a trailing slash because only a `/`-separated prefix or an entire path is matched",
            ),
            (&at("[0].path.value"), "must be an absolute path"),
            (&at("[1].path.value"), "must be an absolute path"),
            (&at("[2].path.type"), r#""type" must be one of ["Exact", "PathPrefix", "RegularExpression"]"#),
            (&at("[2].path.value"), "must not be empty"),
            (
                &at("[3].method"),
                r#""method" must be one of ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"]"#,
            ),
            (&at("[4].queryParams[1].name"), "multiple entries for name a"),
            (&at("[4].queryParams[2].type"), r#""type" must be one of ["Exact", "RegularExpression"]"#),
            (&at("[4].queryParams[2].name"), "must not be empty"),
            (&at("[5].headers[0].value"), "must not be defined"),
            (&at("[5].headers[1].value"), "must not be defined"),
            (
                &at("[5].headers[2].type"),
                r#""type" must be one of ["Exact", "Present", "RegularExpression", "Absent", "Prefix"]"#,
            ),
            (&at("[5].headers[2].name"), "must be a header name in lower case"),
            (&at("[5].headers[3].name"), "must not be empty"),
        ],
    );
}

#[test]
fn a_filter_carries_what_its_type_says() {
    let at = |rest: &str| format!("spec.to[0].rules[0].default.filters{rest}");
    violations(
        filters(json!([
            {"type": "RequestHeaderModifier"}, {"type": "ResponseHeaderModifier"}, {"type": "RequestRedirect"},
            {"type": "URLRewrite"}, {"type": "RequestMirror"}, {"type": "Compress"}
        ])),
        &[
            (&at("[0].requestHeaderModifier"), "must be defined"),
            (&at("[1].responseHeaderModifier"), "must be defined"),
            (&at("[2].requestRedirect"), "must be defined"),
            (&at("[3].urlRewrite"), "must be defined"),
            (&at("[4].requestMirror"), "must be defined"),
            (
                &at("[5].type"),
                r#""type" must be one of ["RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "RequestMirror"]"#,
            ),
        ],
    );
}

#[test]
fn every_violation_of_a_header_modifier_is_reported() {
    for (type_, field) in [
        ("RequestHeaderModifier", "requestHeaderModifier"),
        ("ResponseHeaderModifier", "responseHeaderModifier"),
    ] {
        let at = |rest: &str| format!("spec.to[0].rules[0].default.filters[0].{field}{rest}");
        let modifier = |modifier: Value| filters(json!([{"type": type_, field: modifier}]));
        violations(modifier(json!({})), &[(&at(""), "must have at least one defined: set, add, remove")]);
        violations(
            modifier(json!({"set": [{"name": "a", "value": "1"}], "add": [{"name": "a", "value": "1"}],
                            "remove": ["a", "B", "", "c\n"]})),
            &[
                (&at(".add[0].name"), "duplicate header name"),
                (&at(".remove[0].name"), "duplicate header name"),
                (&at(".remove[2].name"), "must be a header name"),
                (&at(".remove[3].name"), "must be a header name"),
            ],
        );
        let many: Vec<String> = (0..17).map(|i| format!("x-{i}")).collect();
        violations(modifier(json!({"remove": many})), &[(&at(".remove"), "must have at most 16 items")]);
    }
}

#[test]
fn headers_that_envoy_would_not_write_are_refused() {
    let at = |i: usize, rest: &str| format!("spec.to[0].rules[0].default.filters[{i}].{rest}");
    let modifier = json!({"set": [{"name": "host", "value": "%FOO%"}, {"name": "a", "value": "5%"}],
                          "add": [{"name": "b", "value": "a\r\nb"}, {"name": "c", "value": "%REQ(x)%"}],
                          "remove": ["Host", ":path"]});
    let none = "% begins a command operator of Envoy, such as %REQ(x-name)%, and there is none at \"%\"; write %% for a percent sign";
    let unknown = "\"%FOO%\" cannot be read by Envoy: there is no such operator; write %% for a percent sign";
    violations(
        filters(json!([
            {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier},
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [{"name": "host", "value": "a"}]}},
            {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a\nb"}}}
        ])),
        &[
            (&at(0, "requestHeaderModifier.set[1].value"), none),
            (&at(0, "requestHeaderModifier.add[0].value"), "must not contain control characters"),
            (
                &at(0, "requestHeaderModifier.remove[0].name"),
                "the host of a request can only be set, in set or by a URLRewrite",
            ),
            (&at(0, "requestHeaderModifier.remove[1].name"), "must be a header name"),
            (&at(1, "responseHeaderModifier.set[0].name"), "responses have no host"),
            (&at(1, "responseHeaderModifier.set[0].value"), unknown),
            (&at(1, "responseHeaderModifier.set[1].value"), none),
            (&at(1, "responseHeaderModifier.add[0].value"), "must not contain control characters"),
            (&at(1, "responseHeaderModifier.remove[0].name"), "responses have no host"),
            (&at(1, "responseHeaderModifier.remove[1].name"), "must be a header name"),
            (
                &at(2, "requestHeaderModifier.add[0].name"),
                "the host of a request can only be set, in set or by a URLRewrite",
            ),
            (&at(3, "urlRewrite.path.replaceFullPath"), "must not contain control characters"),
        ],
    );
}

#[test]
fn expressions_that_envoy_would_not_read_are_refused() {
    let at = |rest: &str| format!("spec.to[0].rules[0].matches[0].{rest}");
    let bad = "must be a regular expression of RE2: missing closing )";
    violations(
        rule(
            json!([{"path": {"type": "RegularExpression", "value": "/(a"},
                    "queryParams": [{"type": "RegularExpression", "name": "q", "value": "(a"},
                                    {"type": "Exact", "name": "p".repeat(1025), "value": "(a"}],
                    "headers": [{"type": "RegularExpression", "name": "x", "value": "(a"},
                                {"type": "RegularExpression", "name": "y"}, {"name": "z", "value": "(a"}]}]),
            json!({}),
        ),
        &[
            (&at("path.value"), bad),
            (&at("queryParams[0].value"), bad),
            (&at("queryParams[1].name"), "must not be longer than 1024 bytes"),
            (&at("headers[0].value"), bad),
        ],
    );
}

#[test]
fn every_violation_of_redirects_and_rewrites_is_reported() {
    let at = |rest: &str| format!("spec.to[0].rules[0].default.filters{rest}");
    let subdomain = dns::rfc1123_subdomain_errors("Not_Valid").remove(0);
    violations(
        filters(json!([
            {"type": "RequestRedirect", "requestRedirect": {"scheme": "ftp", "hostname": "10.0.0.1",
                "path": {"type": "ReplaceFullPath"}, "port": 0, "statusCode": 404}},
            {"type": "URLRewrite", "urlRewrite": {"hostname": "Not_Valid", "path": {"type": "Cut"},
                "hostToBackendHostname": true}},
            {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch"}}}
        ])),
        &[
            (&at("[0].requestRedirect.scheme"), r#""scheme" must be one of ["http", "https"]"#),
            (&at("[0].requestRedirect.path.replaceFullPath"), "must be defined"),
            (&at("[0].requestRedirect.hostname"), "cannot be an IP address"),
            (&at("[0].requestRedirect.port"), "port must be a valid (1-65535)"),
            (&at("[0].requestRedirect.statusCode"), "must be one of 301, 302, 303, 307, 308"),
            (
                &at("[1].urlRewrite.path.type"),
                r#""type" must be one of ["ReplaceFullPath", "ReplacePrefixMatch"]"#,
            ),
            (&at("[1].urlRewrite.hostname"), &subdomain),
            (&at("[1].urlRewrite.hostToBackendHostname"), "can only be set with MeshGateway"),
            (&at("[1].urlRewrite.hostToBackendHostname"), "cannot be set together with hostname"),
            (&at("[2].urlRewrite.path.replacePrefixMatch"), "must be defined"),
        ],
    );
}

#[test]
fn a_prefix_is_replaced_only_where_every_match_has_one() {
    let path = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2"});
    let spec = |matches: Value| {
        rule(
            matches,
            json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {"path": path}},
                               {"type": "URLRewrite", "urlRewrite": {"path": path}}]}),
        )
    };
    let message = "can only appear if all matches match a path prefix";
    let prefix = json!({"path": {"value": "/v1", "type": "PathPrefix"}});
    violations(spec(json!([prefix])), &[]);
    for other in [json!({"path": {"value": "/v1", "type": "Exact"}}), json!({"method": "GET"})] {
        violations(
            spec(json!([prefix, other])),
            &[
                ("spec.to[0].rules[0].default.filters[0].requestRedirect.path.replacePrefixMatch", message),
                ("spec.to[0].rules[0].default.filters[1].urlRewrite.path.replacePrefixMatch", message),
            ],
        );
    }
}

#[test]
fn a_mirror_is_a_service_of_the_mesh() {
    violations(
        filters(json!([{"type": "RequestMirror", "requestMirror": {"percentage": "much",
            "backendRef": {"kind": "MeshExternalService", "name": "x"}}}])),
        &[
            (
                "spec.to[0].rules[0].default.filters[0].requestMirror.percentage",
                "string must be a valid number",
            ),
            (
                "spec.to[0].rules[0].default.filters[0].requestMirror.backendRef.kind",
                "value 'MeshExternalService' is not supported",
            ),
        ],
    );
}

#[test]
fn deprecated_targets_are_warned_about() {
    let old =
        draft(Kind::MeshHTTPRoute, resource(json!({"targetRef": {"kind": "MeshService", "name": "a"}})));
    assert_eq!(
        old.spec.warnings(),
        ["MeshService value for 'targetRef.kind' is deprecated, use Dataplane with labels instead"]
    );
}

#[test]
fn a_rule_is_named_by_what_it_matches() {
    use crate::{kinds::mesh_http_route::MeshHTTPRoute, naming::legacy};

    let name = |matches: Value| {
        let route = draft(Kind::MeshHTTPRoute, resource(rule(matches, json!({}))));
        route.spec.get::<MeshHTTPRoute>().unwrap().to[0].rules[0].name_by_matches()
    };
    let everything = json!([{"path": {"type": "PathPrefix", "value": "/"}}]);
    assert_eq!(name(everything), "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=");
    let special = json!([{"headers": [{"name": "a", "value": "<&>"}]}]);
    let written = r#"[{"headers":[{"type":"Exact","name":"a","value":"\u003c\u0026\u003e"}]}]"#;
    assert_eq!(name(special), legacy::route_of_matches(written));
}
