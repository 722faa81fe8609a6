//! Backends that go without a word: their callers do not notice.

use std::net::Ipv4Addr;

use e2e::{Setup, eventually, proxy::RunningProxy, service::Service};

use crate::world::{World, answered_by, by_reference, by_tags, client, load};

/// A world whose Dataplanes outlive their proxies by far: that an endpoint goes can only be because its
/// proxy is no longer ready.
fn world() -> World {
    World::start(Setup::default().with("KUMA_XDS_DATAPLANE_DEREGISTRATION_DELAY", "1h"))
}

/// Two replicas, and a client that has had an answer of each.
struct Replicas {
    world: World,
    leaving: (Service, RunningProxy, Ipv4Addr),
    _staying: (Service, RunningProxy, Ipv4Addr),
    caller: RunningProxy,
    address: Ipv4Addr,
}

fn replicas() -> Replicas {
    let world = world();
    let leaving = world.service("web-1", "web", "http");
    let staying = world.service("web-2", "web", "http");
    let (caller, address) = client(&world, "client", &[by_reference("web"), by_tags("web")]);
    for port in [10001, 10002] {
        for replica in ["web-1", "web-2"] {
            eventually("each replica to answer", || answered_by(address, port) == replica).unwrap();
        }
    }
    Replicas { world, leaving, _staying: staying, caller, address }
}

/// Waits until the caller's Envoy no longer knows the endpoint.
fn is_forgotten(caller: &RunningProxy, endpoint: Ipv4Addr) {
    let endpoint = format!("::{endpoint}:");
    eventually("the endpoint to go", || {
        caller.admin("/clusters").is_ok_and(|clusters| !clusters.contains(&endpoint))
    })
    .unwrap();
}

/// The Dataplane is still there: what took its endpoint away is that its proxy is not ready.
fn is_stored(world: &World, dataplane: &str) {
    let answer =
        world.control_plane.client().get(&format!("/meshes/default/dataplanes/{dataplane}")).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn a_backend_that_is_killed_fails_no_call() {
    for port in [10001, 10002] {
        let Replicas { world, leaving, _staying, caller, address } = replicas();
        let (calls, failures) = load(address, port, || {
            let (app, mut proxy, endpoint) = leaving;
            proxy.kill().unwrap();
            drop(app);
            is_forgotten(&caller, endpoint);
            is_stored(&world, "web-1");
        });
        assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    }
}

#[test]
fn an_agent_that_stops_without_a_drain_notice_fails_no_call() {
    let Replicas { world, leaving, _staying, caller, address } = replicas();
    let (calls, failures) = load(address, 10001, || {
        let (_app, proxy, endpoint) = leaving;
        proxy.freeze().unwrap();
        proxy.admin_post("/healthcheck/fail").unwrap();
        proxy.admin_post("/drain_listeners?graceful").unwrap();
        proxy.terminate_envoy().unwrap();
        is_forgotten(&caller, endpoint);
        is_stored(&world, "web-1");
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
}
