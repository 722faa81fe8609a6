//! Signals of real Envoys: rates, success and latencies are those of the calls that were made.

use std::fs;

use e2e::{
    Kumactl, Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call, call_tcp, dataplane},
};
use serde_json::Value;

use crate::{
    documents::{check_output, root},
    observed::few_statistics,
    world::{UNIFIED, World, answered_by, by_reference, client_with},
};

const EVERY: (&str, &str) = ("KUMA_DATAPLANE_RUNTIME_OBSERVED_CALLS_INTERVAL", "1s");

/// The items of a list of signals of the last quarter of an hour.
fn signals(world: &World, query: &str) -> Vec<Value> {
    let path = format!("/meshes/default/_signals?window=15m&{query}");
    world.control_plane.client().get(&path).unwrap().json()["items"].as_array().unwrap().clone()
}

/// Waits for the signals of an edge, and returns its traffic.
fn wait_for(world: &World, server: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = Vec::new();
    let mut found = Value::Null;
    let done = eventually(&format!("signals of calls to {server}"), || {
        last = signals(world, &format!("by=edges&client=client&server={server}"));
        found = last.first().map_or(Value::Null, |edge| edge["traffic"].clone());
        holds(&found)
    });
    done.unwrap_or_else(|error| panic!("{error}: {last:?}\n{}", world.control_plane.log()));
    found
}

fn count(traffic: &Value, name: &str) -> u64 {
    traffic["counts"][name].as_u64().unwrap_or_default()
}

/// Calls of a client with names of one scheme are counted as they were made, also with few statistics.
fn calls_are_counted(scheme: &[(&str, &str)]) {
    let world = World::start(Setup::default());
    world.put("/meshes/default/meshmetrics/few", &few_statistics());
    let (web, _web_proxy) = served(&world, "web", "http", scheme);
    let (_queue, _queue_proxy) = served(&world, "queue", "tcp", scheme);
    let targets = [by_reference("web"), by_reference("queue")];
    let variables: Vec<_> = scheme.iter().copied().chain([EVERY]).collect();
    let (_client, address) = client_with(&world, "client", &targets, &variables);
    answered_by(address, 10001);
    eventually("a line to come back", || call_tcp(address, 10002, "hello").is_ok()).unwrap();

    let before = wait_for(&world, "web", |traffic| count(traffic, "requests") > 0);
    let made = 40;
    (0..made).for_each(|_| assert_eq!(call(address, 10001).unwrap().status, 200));
    let all = count(&before, "requests") + made;
    let traffic = wait_for(&world, "web", |traffic| count(traffic, "requests") >= all);
    assert_eq!(count(&traffic, "requests"), all, "{traffic}");
    let latencies = |traffic: &Value| {
        let buckets = traffic["counts"]["latency"].as_array().cloned().unwrap_or_default();
        buckets.iter().filter_map(|bucket| bucket["count"].as_u64()).sum::<u64>()
    };
    // Envoy adds latencies up every few seconds.
    let traffic = wait_for(&world, "web", |traffic| latencies(traffic) >= all);
    assert!(traffic["latency"]["p50"].as_f64() <= traffic["latency"]["p99"].as_f64(), "{traffic}");
    wait_for(&world, "queue", |traffic| count(traffic, "requests") > 0 && traffic["success"] == 1.0);

    // Without its application every call fails, and says so on both sides.
    drop(web);
    let failed = 10;
    (0..failed).for_each(|_| assert_eq!(call(address, 10001).unwrap().status, 503));
    let traffic = wait_for(&world, "web", |traffic| count(traffic, "responses5xx") >= failed);
    assert!(traffic["success"].as_f64().unwrap() < 1.0, "{traffic}");
    let served = || {
        let workloads = signals(&world, "by=workloads&client=web");
        workloads.first().map(|web| count(&web["served"], "connectFailures")).unwrap_or_default()
    };
    eventually("the server to say why", || served() > 0).unwrap();
}

/// A service and its proxy, which reports every second.
fn served(world: &World, name: &str, protocol: &str, scheme: &[(&str, &str)]) -> (Service, RunningProxy) {
    let address = own_address();
    let service = Service::start(name, protocol, (own_address(), 9000).into()).unwrap();
    let own = dataplane(name, name, address, protocol, service.address);
    let variables: Vec<_> = scheme.iter().copied().chain([EVERY]).collect();
    let proxy = world.proxy_with(&own, &variables);
    (service, proxy)
}

#[test]
fn calls_between_proxies_with_older_names_are_counted() {
    calls_are_counted(&[]);
}

#[test]
fn calls_between_proxies_with_unified_names_are_counted() {
    calls_are_counted(&[UNIFIED]);
}

#[test]
fn the_guide_says_what_stat_prints() {
    let world = World::start(Setup::default());
    let (_kv, _kv_proxy) = served(&world, "kv", "http", &[]);
    let (_web, address) = client_with(&world, "web", &[by_reference("kv")], &[EVERY]);
    answered_by(address, 10001);
    let good = |edges: Vec<Value>| edges.first().is_some_and(|edge| edge["traffic"]["success"] == 1.0);
    let made = || {
        answered_by(address, 10001);
        good(signals(&world, "by=edges&client=web&window=1m"))
    };
    eventually("calls that all succeed", made).unwrap();
    let guide = fs::read_to_string(root().join("docs/guide/signals.md")).unwrap();
    let output = Kumactl::of(&world.control_plane).unwrap().run(&["stat", "edges"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    check_output(&guide, "kumactl stat edges", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn calls_that_permissions_deny_are_denied_on_both_sides() {
    let world = World::start(Setup::default());
    let (_web, _web_proxy) = served(&world, "web", "http", &[UNIFIED]);
    let (_client, address) = client_with(&world, "client", &[by_reference("web")], &[UNIFIED, EVERY]);
    answered_by(address, 10001);
    let deny = serde_json::json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "nobody",
        "spec": {"rules": [{"default": {"deny": [{"spiffeID": {"type": "Prefix", "value": "spiffe://default/"}}]}}]}});
    world.put("/meshes/default/meshtrafficpermissions/nobody", &deny);
    eventually("calls to be denied", || call(address, 10001).is_ok_and(|answer| answer.status == 403))
        .unwrap();
    let traffic = wait_for(&world, "web", |traffic| count(traffic, "denied") > 0);
    assert!(traffic["success"].as_f64().unwrap() < 1.0, "{traffic}");
    let denied = || {
        let workloads = signals(&world, "by=workloads&client=web");
        workloads.first().map(|web| count(&web["served"], "denied")).unwrap_or_default()
    };
    eventually("the server to count what it refused", || denied() > 0).unwrap();
}
