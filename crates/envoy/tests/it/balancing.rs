//! Choice of the next endpoint.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use xds::Type;

use crate::{
    pair::ServiceOfTwo,
    real_envoy,
    support::{BACKEND, PLAIN, plan, unified, web},
    view::{check, shown, target},
};

const HTTP: &str = "kri_msvc_default_east__backend_http";
const TCP: &str = "kri_msvc_default_east__backend_9000";
const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }";
/// More than all of them can be alike by chance.
const MANY: usize = 40;

fn strategy(conf: &str) -> String {
    format!(
        "type: MeshLoadBalancingStrategy\nmesh: default\nname: s\n\
         spec: {{ to: [{{ targetRef: {{ kind: Mesh }}, default: {conf} }}] }}\n"
    )
}

fn shown_for(policies: &str, kind: Type, name: &str) -> Value {
    shown(&target(&[PLAIN, BACKEND, policies, &web(CALLS)], &unified("web")), kind, name)
}

#[test]
fn every_algorithm_is_put_in_envoys_words() {
    for (conf, policy, field, config) in [
        ("{ type: RoundRobin }", Value::Null, "roundRobinLbConfig", Value::Null),
        ("{ type: Random }", json!("RANDOM"), "lbConfig", Value::Null),
        ("{ type: LeastRequest }", json!("LEAST_REQUEST"), "leastRequestLbConfig", Value::Null),
        (
            "{ type: LeastRequest, leastRequest: { choiceCount: 4, activeRequestBias: '1.3' } }",
            json!("LEAST_REQUEST"),
            "leastRequestLbConfig",
            json!({"choiceCount": 4, "activeRequestBias":
                {"defaultValue": 1.3, "runtimeKey": "load_balancing.active_request_bias"}}),
        ),
        (
            "{ type: RingHash, ringHash: { hashFunction: MurmurHash2, minRingSize: 64, maxRingSize: 1024 } }",
            json!("RING_HASH"),
            "ringHashLbConfig",
            json!({"hashFunction": "MURMUR_HASH_2", "minimumRingSize": "64", "maximumRingSize": "1024"}),
        ),
        // Envoy's own minimum is above this maximum.
        (
            "{ type: RingHash, ringHash: { maxRingSize: 10 } }",
            json!("RING_HASH"),
            "ringHashLbConfig",
            json!({"minimumRingSize": "10", "maximumRingSize": "10"}),
        ),
        ("{ type: Maglev }", json!("MAGLEV"), "maglevLbConfig", Value::Null),
        (
            "{ type: Maglev, maglev: { tableSize: 65537 } }",
            json!("MAGLEV"),
            "maglevLbConfig",
            json!({"tableSize": "65537"}),
        ),
    ] {
        let policies = strategy(&format!("{{ loadBalancer: {conf} }}"));
        let cluster = shown_for(&policies, Type::Cluster, HTTP);
        check(&cluster, &[("/lbPolicy", policy), (&format!("/{field}"), config)]);
        real_envoy::check(&plan(&[PLAIN, BACKEND, &policies, &web(CALLS)], &unified("web")));
    }
}

const EVERYTHING: &str = "[{ type: Header, terminal: true, header: { name: x-user } }, \
    { type: Cookie, cookie: { name: session, ttl: 1m0s, path: /api } }, \
    { type: Connection, connection: { sourceIP: true } }, { type: SourceIP, connection: {} }, \
    { type: QueryParameter, queryParameter: { name: id } }, { type: FilterState, filterState: { key: state } }]";

fn hashed(policies: &str, route: usize) -> Value {
    let listener = shown_for(policies, Type::Listener, HTTP);
    let route = format!(
        "/filterChains/0/filters/0/typedConfig/routeConfig/virtualHosts/0/routes/{route}/route/hashPolicy"
    );
    listener.pointer(&route).cloned().unwrap_or_default()
}

#[test]
fn every_word_about_hashing_is_put_in_envoys() {
    let by_address = json!({"connectionProperties": {"sourceIp": true}});
    let expected = json!([
        {"header": {"headerName": "x-user"}, "terminal": true},
        {"cookie": {"name": "session", "ttl": "60s", "path": "/api"}},
        by_address, by_address,
        {"queryParameter": {"name": "id"}},
        {"filterState": {"key": "state"}},
    ]);
    // Where they stand, and where they stood before they moved up.
    for conf in [
        format!("{{ loadBalancer: {{ type: Maglev }}, hashPolicies: {EVERYTHING} }}"),
        format!("{{ loadBalancer: {{ type: RingHash, ringHash: {{ hashPolicies: {EVERYTHING} }} }} }}"),
        format!("{{ loadBalancer: {{ type: Maglev, maglev: {{ hashPolicies: {EVERYTHING} }} }} }}"),
    ] {
        let policies = strategy(&conf);
        assert_eq!(hashed(&policies, 0), expected, "{conf}");
        check(
            &shown_for(&policies, Type::Listener, TCP),
            &[("/filterChains/0/filters/0/typedConfig/hashPolicy", json!([{"sourceIp": {}}]))],
        );
        real_envoy::check(&plan(&[PLAIN, BACKEND, &policies, &web(CALLS)], &unified("web")));
    }
    let unused =
        format!("{{ loadBalancer: {{ type: Random, ringHash: {{ hashPolicies: {EVERYTHING} }} }} }}");
    assert_eq!(hashed(&strategy(&unused), 0), Value::Null);
}

const ROUTES: &str = "
type: MeshHTTPRoute
mesh: default
name: by-path
labels: { kuma.io/zone: east }
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      rules: [{ matches: [{ path: { type: Exact, value: /items } }], default: {} }]
---
type: MeshLoadBalancingStrategy
mesh: default
name: of-route
labels: { kuma.io/zone: east }
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      default: { hashPolicies: [{ type: Header, header: { name: x-service } }] }
    - targetRef: { kind: MeshHTTPRoute, name: by-path }
      default: { hashPolicies: [{ type: QueryParameter, queryParameter: { name: item } }] }
";

#[test]
fn requests_of_a_route_are_hashed_as_the_route_says() {
    let routes = format!("{ROUTES}---\n{}", strategy("{ loadBalancer: { type: RingHash } }"));
    assert_eq!(hashed(&routes, 0), json!([{"queryParameter": {"name": "item"}}]));
    assert_eq!(hashed(&routes, 1), json!([{"header": {"headerName": "x-service"}}]));
}

/// Returns the endpoints that answer when the same is asked many times, for each of many different questions.
fn answers<'a>(
    pair: &'a ServiceOfTwo,
    ask: impl Fn(&ServiceOfTwo, usize) -> &'static str + 'a,
) -> Vec<BTreeSet<&'static str>> {
    (0..MANY).map(|question| (0..3).map(|_| ask(pair, question)).collect()).collect()
}

#[track_caller]
fn same_question_same_endpoint(answers: &[BTreeSet<&str>]) {
    assert!(answers.iter().all(|by| by.len() == 1), "{answers:?}");
    assert_eq!(answers.iter().flatten().copied().collect::<BTreeSet<_>>(), BTreeSet::from(["one", "two"]));
}

#[test]
fn requests_with_the_same_header_or_parameter_go_to_the_same_endpoint() {
    for balancer in ["RingHash", "Maglev"] {
        let hashing = "{ type: Header, terminal: true, header: { name: x-user } }, \
            { type: QueryParameter, queryParameter: { name: id } }";
        let policies =
            strategy(&format!("{{ loadBalancer: {{ type: {balancer} }}, hashPolicies: [{hashing}] }}"));
        let pair = ServiceOfTwo::start("http", &policies);
        same_question_same_endpoint(&answers(&pair, |pair, n| pair.who("/", &format!("x-user: {n}\r\n"))));
        same_question_same_endpoint(&answers(&pair, |pair, n| pair.who(&format!("/?id={n}"), "")));
    }
}

#[test]
fn a_cookie_leads_back_to_the_endpoint_that_was_met_first() {
    let cookie = "{ type: Cookie, cookie: { name: session, ttl: 1h, path: / } }";
    let policies = strategy(&format!("{{ loadBalancer: {{ type: RingHash }}, hashPolicies: [{cookie}] }}"));
    let pair = ServiceOfTwo::start("http", &policies);
    let met: BTreeSet<String> = (0..MANY)
        .map(|_| {
            let first = pair.ask("/", "");
            let given = first.lines().find_map(|line| line.strip_prefix("set-cookie: "));
            let given = given.unwrap_or_else(|| panic!("no cookie: {first}")).split(';').next().unwrap();
            let by = if first.contains("by one") { "one" } else { "two" };
            assert_eq!(pair.who("/", &format!("cookie: {given}\r\n")), by);
            by.to_owned()
        })
        .collect();
    assert_eq!(met, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
}

#[test]
fn connections_from_the_same_address_go_to_the_same_endpoint() {
    let source = "{ type: Connection, connection: { sourceIP: true } }";
    for protocol in ["tcp", "http"] {
        let policies = strategy(&format!("{{ loadBalancer: {{ type: Maglev }}, hashPolicies: [{source}] }}"));
        let pair = ServiceOfTwo::start(protocol, &policies);
        let by: BTreeSet<&str> = (0..MANY).map(|_| pair.who("/", "")).collect();
        assert_eq!(by.len(), 1, "{protocol}: {by:?}");
        assert!(!by.contains(""), "{protocol}: there is no answer");
    }
}

#[test]
fn the_other_algorithms_use_every_endpoint() {
    for balancer in ["RoundRobin", "LeastRequest", "Random"] {
        let pair =
            ServiceOfTwo::start("http", &strategy(&format!("{{ loadBalancer: {{ type: {balancer} }} }}")));
        let by: Vec<&str> = (0..MANY).map(|_| pair.who("/", "")).collect();
        assert_eq!(by.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from(["one", "two"]), "{balancer}");
        if balancer == "RoundRobin" {
            assert!(by.windows(2).all(|pair| pair[0] != pair[1]), "{by:?}");
        }
    }
}
