//! Services that talk through real Envoys, configured by a real control plane.

use e2e::{
    Setup, eventually,
    proxy::{Options, RunningProxy, own_address},
    service::{call, call_tcp, dataplane},
};
use serde_json::json;

use crate::world::{World, answered_by, by_reference, by_tags, client, load, mesh};

#[test]
fn http_reaches_a_service_by_reference_and_by_tags() {
    let world = World::start(Setup::default());
    let (_app, _proxy, _) = world.service("web-1", "web", "http");
    let (proxy, address) = client(&world, "client", &[by_reference("web"), by_tags("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    assert_eq!(answered_by(address, 10002), "web-1");
    let handshakes = proxy.admin("/stats?filter=ssl.handshake").unwrap();
    assert!(handshakes.lines().any(|line| !line.ends_with(": 0")), "no mutual TLS: {handshakes}");
}

#[test]
fn tcp_reaches_a_service() {
    let world = World::start(Setup::default());
    let (_app, _proxy, _) = world.service("queue-1", "queue", "tcp");
    let (_client, address) = client(&world, "client", &[by_reference("queue")]);
    eventually("a line to come back", || {
        call_tcp(address, 10001, "hello").is_ok_and(|line| line.contains("queue-1") && line.contains("hello"))
    })
    .unwrap();
}

#[test]
fn plain_traffic_is_refused_when_strict_and_let_in_when_permissive() {
    let world = World::start(Setup::default());
    let (_app, _proxy, address) = world.service("web-1", "web", "http");
    assert!(call(address, 8080).is_err(), "plain traffic got through");
    world.put("/meshes/default", &mesh("PERMISSIVE"));
    eventually("plain traffic to be let in", || call(address, 8080).is_ok_and(|answer| answer.status == 200))
        .unwrap();
}

#[test]
fn a_token_of_somebody_else_is_refused_and_the_agent_says_so() {
    let world = World::start(Setup::default());
    let request = json!({"mesh": "default", "name": "somebody-else", "validFor": "1h"});
    let token = world.control_plane.client().post("/tokens/dataplane", &request).unwrap().body;
    let own = dataplane("web-1", "web", own_address(), "http", (own_address(), 9000).into());
    let options = Options { token: Some(token), ..Options::default() };
    let mut proxy = RunningProxy::spawn(&world.control_plane, &own, &options).unwrap();
    assert!(!proxy.ended().unwrap().success());
    assert!(proxy.log().contains("token"), "{}", proxy.log());
}

#[test]
fn replicas_come_and_go_without_a_failed_request() {
    let world = World::start(Setup::default());
    let (_app, _proxy, _) = world.service("web-1", "web", "http");
    let (_client, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let (calls, failures) = load(address, 10001, || {
        let second = world.service("web-2", "web", "http");
        eventually("the second replica to answer", || {
            call(address, 10001).is_ok_and(|answer| answer.json()["name"] == "web-2")
        })
        .unwrap();
        second.1.terminate().unwrap();
        let (_app, mut proxy, _) = second;
        assert!(proxy.ended().unwrap().success());
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
}

#[test]
fn a_control_plane_that_dies_and_returns_is_not_noticed() {
    let mut world = World::start(Setup::default());
    let (_app, _proxy, _) = world.service("web-1", "web", "http");
    let (proxy, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    let updates = |proxy: &RunningProxy| {
        ["cluster_manager.cds.update_success", "listener_manager.lds.update_success"]
            .map(|name| proxy.stat(name).unwrap())
    };
    let before = updates(&proxy);
    let control_plane = &mut world.control_plane;
    let (calls, failures) = load(address, 10001, || {
        control_plane.kill().unwrap();
        control_plane.start_again().unwrap();
        eventually("the proxy to be connected again", || {
            proxy.stat("control_plane.connected_state").is_ok_and(|connected| connected == 1)
        })
        .unwrap();
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    let reloaded: Vec<_> = ["cluster_manager.cluster_modified", "listener_manager.listener_modified"]
        .iter()
        .map(|name| proxy.stat(name).unwrap())
        .collect();
    assert_eq!(reloaded, [0, 0], "nothing changed, so nothing is replaced (updates before: {before:?})");
}
