//! A real Envoy lets through what limits let through, and answers the rest as they say.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use envoy::bootstrap::ClusterNames;
use envoy_types::pb::envoy::r#type::v3::StatusCode;
use plan::ProxyTraits;
use resources::kinds::mesh_rate_limit::{SMALLEST_STATUS, is_known};
use serde_json::{Value, json};
use xds::Type;

use crate::{
    enforcement::{GREETING, LET_IN, NOBODY, Running, everyone, free_port, greeting_application},
    faults::{Caller, backend, inbound, stat},
    live::Live,
    support::{PLAIN, SECURED, plan, unified},
    view::{check, shown, target},
};

const PATIENCE: Duration = Duration::from_secs(20);
const LIMITED: &str = "HTTP/1.1 429 Too Many Requests";

/// No bucket is filled twice while a test runs.
fn limit(section: &str, rules: &str) -> String {
    format!(
        "type: MeshRateLimit\nmesh: default\nname: limit-{section}\nspec:\n\
         \x20 targetRef: {{ kind: Dataplane, sectionName: {section} }}\n\x20 rules: [{rules}]\n"
    )
}

fn started(policies: &[&str], inbounds: &Value) -> Live {
    let proxy = backend(inbounds);
    let documents: Vec<&str> = [PLAIN].into_iter().chain(policies.iter().copied()).chain([&*proxy]).collect();
    let plan = plan(&documents, &ProxyTraits { admin_port: 0, ..unified("web") });
    assert_eq!(plan.findings(), []);
    Live::start(&plan, ClusterNames::UNIFIED)
}

#[test]
fn requests_over_the_limit_get_the_status_and_the_headers_of_the_policy() {
    let usual = free_port();
    let own = free_port();
    let free = free_port();
    let rate = "requestRate: { num: 3, interval: 1h }";
    let answer = "onRateLimit: { status: 423, headers: { set: [{ name: x-limited, value: 100% }], \
        add: [{ name: x-added, value: 'a, b' }, { name: retry-after, value: '10' }] } }";
    let envoy = started(
        &[
            &limit("usual", &format!("{{ default: {{ local: {{ http: {{ {rate} }} }} }} }}")),
            &limit("own", &format!("{{ default: {{ local: {{ http: {{ {rate}, {answer} }} }} }} }}")),
            &limit("free", &format!("{{ default: {{ local: {{ http: {{ {rate}, disabled: true }} }} }} }}")),
        ],
        &json!([
            inbound("usual", usual, NOBODY, "http"),
            inbound("own", own, NOBODY, "http2"),
            inbound("free", free, NOBODY, "http")
        ]),
    );
    let statuses = |port: u16| {
        // What is counted is the same for every connection.
        let mut one = Caller::of(port);
        let mut two = Caller::of(port);
        [one.get(), two.get(), one.get(), two.get()].map(|answer| answer.status)
    };
    assert_eq!(statuses(usual), ["503", "503", "503", "429"]);
    assert_eq!(statuses(own), ["503", "503", "503", "423"]);
    assert_eq!(statuses(free), ["503"; 4]);
    let limited = Caller::of(own).get();
    assert_eq!(limited.status, "423");
    assert_eq!(limited.header("x-limited"), ["100%"]);
    assert_eq!(limited.header("x-added"), ["a, b"]);
    assert_eq!(limited.header("retry-after"), ["10"]);
    assert_eq!(stat(&envoy, "rate_limit.http_local_rate_limit.rate_limited"), 3);
    assert_eq!(stat(&envoy, "rate_limit.http_local_rate_limit.ok"), 6);
}

#[test]
fn connections_over_the_limit_are_closed() {
    let tcp = free_port();
    let http = free_port();
    let rule = "{ default: { local: { tcp: { connectionRate: { num: 2, interval: 1h } } } } }";
    let application = greeting_application();
    let envoy = started(
        &[&limit("tcp", rule), &limit("http", rule)],
        &json!([inbound("tcp", tcp, application, "tcp"), inbound("http", http, NOBODY, "http")]),
    );
    let greeted = |port: u16| {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // A connection that was closed already may say so when it is written to.
        let _ = client.write_all(b"hello\n");
        let mut answer = String::new();
        let _ = BufReader::new(client).read_line(&mut answer);
        answer.trim_end() == GREETING
    };
    assert_eq!([greeted(tcp), greeted(tcp), greeted(tcp)], [true, true, false]);
    // Connections with requests are counted, too, and requests are not.
    let mut two = [Caller::of(http), Caller::of(http)];
    two.iter_mut().for_each(|caller| assert_eq!([caller.get().status, caller.get().status], ["503", "503"]));
    assert!(!greeted(http));
    assert_eq!(stat(&envoy, "local_rate_limit.tcp_rate_limit.rate_limited"), 2);
}

#[test]
fn clients_have_the_limits_of_the_most_specific_rule_about_them() {
    let rate = |number: u32| format!("requestRate: {{ num: {number}, interval: 1h }}");
    let rules = format!(
        "{{ default: {{ local: {{ http: {{ {}, onRateLimit: {{ status: 503 }} }} }} }} }}, \
         {{ matches: [{{ spiffeID: {{ type: Prefix, value: 'spiffe://default/ns/' }} }}], \
           default: {{ local: {{ http: {{ {}, onRateLimit: {{ status: 429 }} }} }} }} }}, \
         {{ matches: [{{ spiffeID: {{ type: Exact, value: 'spiffe://default/ns/big' }} }}], \
           default: {{ local: {{ http: {{ {} }} }} }} }}, \
         {{ matches: [{{ spiffeID: {{ type: Exact, value: 'spiffe://default/ns/free' }} }}], \
           default: {{ local: {{ http: {{ disabled: true }} }} }} }}",
        rate(0x7fff),
        rate(1),
        rate(3)
    );
    let envoy = Running::under(&[&limit("main", &rules)], "http", NOBODY, everyone());
    let call = |uris: &[&str]| envoy.call(uris).unwrap();
    // Clients of one rule share its bucket, and no other.
    assert_eq!(call(&["spiffe://default/ns/a"]), LET_IN);
    assert_eq!(call(&["spiffe://default/ns/b"]), LIMITED);
    assert_eq!(call(&["kuma://team/a", "spiffe://default/ns/c"]), LIMITED);
    assert_eq!(call(&["spiffe://default/other"]), LET_IN);
    for _ in 0..3 {
        assert_eq!(call(&["spiffe://default/ns/big"]), LET_IN);
    }
    // The answer is that of the wider rule, which it says nothing about.
    assert_eq!(call(&["spiffe://default/ns/big"]), LIMITED);
    for _ in 0..5 {
        assert_eq!(call(&["spiffe://default/ns/free"]), LET_IN);
    }
}

#[test]
fn limits_and_timeouts_tell_clients_apart_by_their_own_matches() {
    let timeouts = "type: MeshTimeout\nmesh: default\nname: t\nspec:\n  rules:\n\
        \x20   - { default: { http: { requestTimeout: 0s, streamIdleTimeout: 0s } } }\n\
        \x20   - { matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/hasty' } }], \
                default: { http: { requestTimeout: 100ms } } }\n";
    let rules = "{ matches: [{ sni: { type: Exact, value: a.mesh } }], \
        default: { local: { http: { requestRate: { num: 1, interval: 1h } } } } }";
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let envoy = Running::under(&[timeouts, &limit("main", rules)], "http", port, everyone());
    let hasty = envoy.authority.sign(&["spiffe://default/hasty"]);
    let ask = |sni: &str| envoy.ask(envoy.inbound, &hasty, sni).unwrap();
    let late = "HTTP/1.1 504 Gateway Timeout";
    assert_eq!([ask("a.mesh"), ask("a.mesh"), ask("b.mesh"), ask("b.mesh")], [late, LIMITED, late, late]);
}

#[test]
fn limits_stand_where_kuma_puts_them() {
    let rules = "{ default: { local: { http: { requestRate: { num: 100, interval: 10s } }, \
        tcp: { connectionRate: { num: 5, interval: 100ms } } } } }, \
        { matches: [{ sni: { type: Exact, value: a.mesh } }], default: { local: { http: { disabled: true } } } }";
    let proxy = backend(&json!([inbound("main", 80, 81, "http")]));
    let permissive = SECURED.replace("type: builtin }", "type: builtin, mode: PERMISSIVE }");
    let listener = shown(
        &target(&[&permissive, &limit("main", rules), &proxy], &unified("web")),
        Type::Listener,
        "self_main",
    );
    let connections = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit";
    for (chain, handler) in [
        (0, "envoy.filters.network.http_connection_manager"),
        (1, "envoy.filters.network.tcp_proxy"),
        (2, "envoy.filters.network.http_connection_manager"),
    ] {
        let at = |rest: &str| format!("/filterChains/{chain}/filters/{rest}");
        check(
            &listener,
            &[
                (&at("0/name"), json!(connections)),
                (
                    &at("0/typedConfig/tokenBucket"),
                    json!({"maxTokens": 5, "tokensPerFill": 5, "fillInterval": "0.100s"}),
                ),
                // Chains of one listener count together.
                (&at("0/typedConfig/shareKey"), json!("self_main")),
                (&at("1/name"), json!(handler)),
                (&at("2"), Value::Null),
            ],
        );
    }
    let always = |key: &str| json!({"defaultValue": {"numerator": 100}, "runtimeKey": key});
    let filter = |rest: &str| format!("/filterChains/0/filters/1/typedConfig/httpFilters/0/{rest}");
    check(
        &listener,
        &[
            (&filter("name"), json!("envoy.filters.http.local_ratelimit")),
            (&filter("typedConfig/statPrefix"), json!("rate_limit")),
            (
                &filter("typedConfig/tokenBucket"),
                json!({"maxTokens": 100, "tokensPerFill": 100, "fillInterval": "10s"}),
            ),
            (&filter("typedConfig/filterEnabled"), always("local_rate_limit_enabled")),
            (&filter("typedConfig/filterEnforced"), always("local_rate_limit_enforced")),
            (
                "/filterChains/2/filters/1/typedConfig/httpFilters/1/name",
                json!("envoy.filters.http.local_ratelimit"),
            ),
        ],
    );
}

#[test]
fn the_statuses_that_policies_may_have_are_those_that_envoy_takes() {
    for status in SMALLEST_STATUS..1000 {
        let taken = StatusCode::try_from(i32::try_from(status).unwrap()).is_ok();
        assert_eq!(is_known(status), taken, "{status}");
    }
}
