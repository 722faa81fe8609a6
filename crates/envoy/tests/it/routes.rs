//! Routes of requests and connections.

use serde_json::{Value, json};
use xds::{Target, Type};

use crate::{
    support::{BACKEND, PLAIN, traits, unified, web},
    view::{check, shown, target},
};

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }";
const HTTP: &str = "kri_msvc_default_east__backend_http";
const TCP: &str = "kri_msvc_default_east__backend_9000";
const MANAGER: &str = "/filterChains/0/filters/0/typedConfig";

const NEXT: &str = r#"
type: MeshService
mesh: default
name: next
labels: { kuma.io/zone: east }
spec:
  selector: { dataplaneTags: { kuma.io/service: next } }
  ports: [{ name: http, port: 80, targetPort: 8080, appProtocol: http }]
---
type: MeshExternalService
mesh: default
name: outside
labels: { kuma.io/zone: east }
spec:
  match: { type: HostnameGenerator, port: 80, protocol: http }
  endpoints: [{ address: example.com, port: 80 }]
"#;

fn policy(kind: &str, rules: &str) -> String {
    format!(
        "type: {kind}\nmesh: default\nname: shape\nlabels: {{ kuma.io/zone: east }}\nspec: {{ to: [\
         {{ targetRef: {{ kind: MeshService, name: backend }}, rules: [{rules}] }}] }}"
    )
}

fn with(policy: &str) -> Target {
    target(&[PLAIN, BACKEND, NEXT, policy, &web(CALLS)], &unified("web"))
}

/// The routes a rule becomes, in front of what is left to the destination.
#[track_caller]
fn routes(rule: &str) -> Vec<Value> {
    let listener = shown(&with(&policy("MeshHTTPRoute", rule)), Type::Listener, HTTP);
    let host = listener.pointer(MANAGER).unwrap().pointer("/routeConfig/virtualHosts/0").unwrap();
    let mut routes = host["routes"].as_array().unwrap().clone();
    let last = routes.pop().unwrap();
    check(&last, &[("/match", json!({"prefix": "/"})), ("/route/cluster", json!(HTTP))]);
    routes
}

#[track_caller]
fn check_match(condition: &str, expected: &[Value]) {
    let routes = routes(&format!("{{ matches: [{condition}], default: {{}} }}"));
    let found: Vec<&Value> = routes.iter().map(|route| &route["match"]).collect();
    assert_eq!(found, expected.iter().collect::<Vec<_>>());
    for route in &routes {
        assert_eq!(route["name"], "kri_mhttpr_default_east__shape_rule_0");
    }
}

#[test]
fn conditions_are_put_in_envoys_words() {
    check_match("{ path: { type: Exact, value: /x } }", &[json!({"path": "/x"})]);
    check_match(
        "{ path: { type: PathPrefix, value: /v1 } }",
        &[json!({"path": "/v1"}), json!({"prefix": "/v1/"})],
    );
    check_match(
        "{ path: { type: RegularExpression, value: '/v[0-9]+' } }",
        &[json!({"safeRegex": {"regex": "/v[0-9]+"}})],
    );
    check_match(
        "{ method: GET, headers: [{ name: a, value: b }, { type: Present, name: c }, { type: Absent, name: d }, \
         { type: Prefix, name: e, value: f }, { type: RegularExpression, name: g, value: 'h+' }], \
         queryParams: [{ type: Exact, name: i, value: j }, { type: RegularExpression, name: k, value: 'l+' }] }",
        &[json!({
            "prefix": "/",
            "headers": [
                {"name": ":method", "stringMatch": {"exact": "GET"}},
                {"name": "a", "stringMatch": {"exact": "b"}},
                {"name": "c", "presentMatch": true},
                {"name": "d", "presentMatch": false},
                {"name": "e", "stringMatch": {"prefix": "f"}},
                {"name": "g", "stringMatch": {"safeRegex": {"regex": "h+"}}},
            ],
            "queryParameters": [
                {"name": "i", "stringMatch": {"exact": "j"}},
                {"name": "k", "stringMatch": {"safeRegex": {"regex": "l+"}}},
            ],
        })],
    );
}

#[test]
fn conditions_that_envoy_would_refuse_are_put_in_other_words() {
    check_match(
        "{ headers: [{ type: Prefix, name: a }, { type: RegularExpression, name: b }], \
         queryParams: [{ type: RegularExpression, name: c, value: '' }] }",
        &[json!({
            "prefix": "/",
            "headers": [
                {"name": "a", "presentMatch": true},
                {"name": "b", "stringMatch": {"exact": ""}},
            ],
            "queryParameters": [{"name": "c", "stringMatch": {"exact": ""}}],
        })],
    );
}

#[track_caller]
fn check_filter(path: &str, filters: &str, expected: &[&[(&str, Value)]]) {
    let routes = routes(&format!("{{ matches: [{{ path: {path} }}], default: {{ filters: [{filters}] }} }}"));
    assert_eq!(routes.len(), expected.len());
    for (route, expected) in routes.iter().zip(expected) {
        check(route, expected);
    }
}

#[test]
fn headers_are_set_added_and_removed_as_written() {
    let modifier = "{ set: [{ name: a, value: 100%% }, { name: host, value: other.test }], \
                    add: [{ name: b, value: c }], remove: [d] }";
    let added = json!([
        {"header": {"key": "a", "value": "100%%"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"},
        {"header": {"key": "b", "value": "c"}},
    ]);
    check_filter(
        "{ type: Exact, value: /x }",
        &format!(
            "{{ type: RequestHeaderModifier, requestHeaderModifier: {modifier} }}, \
             {{ type: ResponseHeaderModifier, responseHeaderModifier: {modifier} }}"
        ),
        &[&[
            ("/requestHeadersToAdd", added.clone()),
            ("/requestHeadersToRemove", json!(["d"])),
            ("/responseHeadersToAdd", added),
            ("/responseHeadersToRemove", json!(["d"])),
            ("/route/hostRewriteLiteral", json!("other.test")),
        ]],
    );
}

#[test]
fn paths_and_hosts_are_rewritten() {
    let rewrite = |path: &str| {
        format!("{{ type: URLRewrite, urlRewrite: {{ hostname: other.test, path: {{ {path} }} }} }}")
    };
    let host = ("/route/hostRewriteLiteral", json!("other.test"));
    let v1 = "{ type: PathPrefix, value: /v1 }";
    check_filter(
        v1,
        &rewrite("type: ReplacePrefixMatch, replacePrefixMatch: /v2"),
        &[
            &[("/route/prefixRewrite", json!("/v2")), host.clone()],
            &[("/route/prefixRewrite", json!("/v2/")), host.clone()],
        ],
    );
    check_filter(
        v1,
        &rewrite("type: ReplacePrefixMatch, replacePrefixMatch: ''"),
        &[&[("/route/prefixRewrite", json!("/"))], &[("/route/prefixRewrite", json!("/"))]],
    );
    check_filter(
        "{ type: Exact, value: /x }",
        &rewrite(r"type: ReplaceFullPath, replaceFullPath: '/a\1'"),
        &[&[("/route/regexRewrite", json!({"pattern": {"regex": ".*"}, "substitution": r"/a\\1"})), host]],
    );
    // No request can have a path without a slash in front.
    for (given, path) in [("a", "/a"), ("''", "/")] {
        check_filter(
            "{ type: Exact, value: /x }",
            &rewrite(&format!("type: ReplaceFullPath, replaceFullPath: {given}")),
            &[&[("/route/regexRewrite/substitution", json!(path))]],
        );
    }
    check_filter(
        v1,
        &rewrite("type: ReplacePrefixMatch, replacePrefixMatch: v2"),
        &[&[("/route/prefixRewrite", json!("/v2"))], &[("/route/prefixRewrite", json!("/v2/"))]],
    );
    let whole = rewrite("type: ReplaceFullPath, replaceFullPath: /a");
    let matched = rewrite("type: ReplacePrefixMatch, replacePrefixMatch: /b");
    let none = Value::Null;
    check_filter(
        v1,
        &format!("{whole}, {matched}"),
        &[
            &[("/route/prefixRewrite", json!("/b")), ("/route/regexRewrite", none.clone())],
            &[("/route/prefixRewrite", json!("/b/")), ("/route/regexRewrite", none.clone())],
        ],
    );
    check_filter(
        v1,
        &format!("{matched}, {whole}"),
        &[&[("/route/prefixRewrite", none.clone())], &[("/route/prefixRewrite", none)]],
    );
}

#[test]
fn requests_are_redirected() {
    check_filter(
        "{ type: PathPrefix, value: /old }",
        "{ type: RequestRedirect, requestRedirect: { scheme: https, hostname: other.test, port: 8443, statusCode: 308, \
           path: { type: ReplacePrefixMatch, replacePrefixMatch: /new } } }",
        &[
            &[(
                "/redirect",
                json!({"schemeRedirect": "https", "hostRedirect": "other.test", "portRedirect": 8443,
                       "responseCode": "PERMANENT_REDIRECT", "prefixRewrite": "/new"}),
            )],
            &[("/redirect/prefixRewrite", json!("/new/"))],
        ],
    );
    check_filter(
        "{ type: Exact, value: /x }",
        "{ type: RequestRedirect, requestRedirect: { hostname: other.test } }",
        &[&[("/redirect/responseCode", json!("FOUND")), ("/route", Value::Null)]],
    );
}

#[test]
fn requests_are_spread_and_copied_to_clusters_that_are_sent_too() {
    let policy = policy(
        "MeshHTTPRoute",
        "{ matches: [{ path: { type: PathPrefix, value: / } }], default: { \
           filters: [{ type: RequestMirror, requestMirror: { percentage: 50, backendRef: { kind: MeshService, name: next, port: 80 } } }], \
           backendRefs: [{ kind: MeshService, name: backend, port: 80, weight: 3 }, \
                         { kind: MeshExternalService, name: outside }] } }",
    );
    let target = with(&policy);
    check(
        &shown(&target, Type::Listener, HTTP),
        &[(
            &format!("{MANAGER}/routeConfig/virtualHosts/0/routes"),
            json!([{
                "name": "kri_mhttpr_default_east__shape_rule_0",
                "match": {"prefix": "/"},
                "route": {
                    "weightedClusters": {"clusters": [
                        {"name": HTTP, "weight": 3},
                        {"name": "kri_extsvc_default_east__outside_80", "weight": 1},
                    ]},
                    "autoHostRewrite": true,
                    "timeout": "15s",
                    "idleTimeout": "1800s",
                    "requestMirrorPolicies": [{
                        "cluster": "kri_msvc_default_east__next_http",
                        "runtimeFraction": {"defaultValue": {"numerator": 500_000, "denominator": "MILLION"}},
                    }],
                },
            }]),
        )],
    );
    for cluster in ["kri_msvc_default_east__next_http", "kri_extsvc_default_east__outside_80"] {
        shown(&target, Type::Cluster, cluster);
    }
    shown(&target, Type::Endpoint, "kri_msvc_default_east__next_http");
}

#[test]
fn connections_are_spread() {
    let spread = "{ default: { backendRefs: [{ kind: MeshService, name: next, port: 80, weight: 3 }, \
                  { kind: MeshService, name: backend, port: 9000 }] } }";
    let target = with(&policy("MeshTCPRoute", spread));
    let clusters = json!({"clusters": [
        {"name": "kri_msvc_default_east__next_http", "weight": 3}, {"name": TCP, "weight": 1}]});
    for listener in [TCP, HTTP] {
        check(
            &shown(&target, Type::Listener, listener),
            &[
                ("/filterChains/0/filters/0/name", json!("envoy.filters.network.tcp_proxy")),
                (&format!("{MANAGER}/weightedClusters"), clusters.clone()),
            ],
        );
    }
}

#[test]
fn every_timeout_is_where_envoy_looks_for_it() {
    let timeouts = "type: MeshTimeout\nmesh: default\nname: t\nspec:\n\
        \x20 to: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 1s, idleTimeout: 2s, http: { requestTimeout: 3s, \
        streamIdleTimeout: 4s, maxStreamDuration: 5s, maxConnectionDuration: 6s, requestHeadersTimeout: 7s } } }]\n\
        \x20 from: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 11s, idleTimeout: 12s, http: { requestTimeout: 13s, \
        streamIdleTimeout: 14s, maxStreamDuration: 15s, maxConnectionDuration: 16s, requestHeadersTimeout: 17s } } }]";
    let web = web(&format!(
        "{CALLS}\ninbound: [{{ port: 80, servicePort: 8080, tags: {{ kuma.io/service: web, kuma.io/protocol: http }} }}, \
         {{ port: 81, servicePort: 8081, tags: {{ kuma.io/service: web }} }}]"
    ));
    let target = target(&[PLAIN, BACKEND, timeouts, &web], &traits("web"));
    let cluster = |name: &str, from: u32| {
        let common = "/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/commonHttpProtocolOptions";
        let second = |n: u32| format!("{}s", from + n);
        check(
            &shown(&target, Type::Cluster, name),
            &[
                ("/connectTimeout", json!(second(1))),
                (
                    common,
                    json!({"idleTimeout": second(2), "maxStreamDuration": second(5), "maxConnectionDuration": second(6)}),
                ),
            ],
        );
    };
    cluster("default_backend__east_msvc_80", 0);
    cluster("localhost:8080", 10);
    let manager = |name: &str, from: u32| {
        let second = |n: u32| format!("{}s", from + n);
        let route = format!("{MANAGER}/routeConfig/virtualHosts/0/routes/0/route");
        check(
            &shown(&target, Type::Listener, name),
            &[
                (&format!("{route}/timeout"), json!(second(3))),
                (&format!("{route}/idleTimeout"), json!(second(4))),
                (&format!("{MANAGER}/requestHeadersTimeout"), json!(second(7))),
                (&format!("{MANAGER}/commonHttpProtocolOptions/idleTimeout"), json!("0s")),
            ],
        );
    };
    manager("outbound:127.0.0.1:10001", 0);
    manager("inbound:127.0.0.2:80", 10);
    for (name, idle) in [("outbound:127.0.0.1:10002", "2s"), ("inbound:127.0.0.2:81", "12s")] {
        let pointer = format!("{MANAGER}/idleTimeout");
        check(&shown(&target, Type::Listener, name), &[(&pointer, json!(idle))]);
    }
}
