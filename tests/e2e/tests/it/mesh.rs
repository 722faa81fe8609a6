//! Services that talk through real Envoys, configured by a real control plane.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use e2e::{
    ControlPlane, Setup, eventually,
    proxy::{Options, Proxy, own_address},
    service::{Service, call, call_tcp, dataplane, with_outbound},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A control plane whose mesh has mutual TLS, and everybody may call everybody.
struct World {
    control_plane: ControlPlane,
    _work_dir: TempDir,
}

fn mesh(mode: &str) -> Value {
    let backend = json!({"name": "ca-1", "type": "builtin", "mode": mode});
    json!({"type": "Mesh", "name": "default", "meshServices": {"mode": "Exclusive"},
        "mtls": {"enabledBackend": "ca-1", "backends": [backend]}})
}

impl World {
    fn start(setup: Setup) -> World {
        let work_dir = tempfile::tempdir().unwrap();
        let control_plane = ControlPlane::start(work_dir.path(), setup).unwrap();
        let world = World { control_plane, _work_dir: work_dir };
        world.put("/meshes/default", &mesh("STRICT"));
        let everybody = json!([{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]);
        world.put(
            "/meshes/default/meshtrafficpermissions/everybody",
            &json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "everybody", "spec": {"from": everybody}}),
        );
        world
    }

    fn put(&self, path: &str, body: &Value) {
        let answer = self.control_plane.client().put(path, body).unwrap();
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.body);
    }

    fn proxy(&self, dataplane: &Value) -> Proxy {
        Proxy::start(&self.control_plane, dataplane, &Options::default())
            .unwrap_or_else(|error| panic!("{error:#}\n{}", self.control_plane.log()))
    }

    /// A service with a proxy in front of it.
    fn service(&self, name: &str, service: &str, protocol: &str) -> (Service, Proxy, Ipv4Addr) {
        let address = own_address();
        let app = Service::start(name, protocol, (own_address(), 9000).into()).unwrap();
        let proxy = self.proxy(&dataplane(name, service, address, protocol, app.address));
        (app, proxy, address)
    }
}

fn by_reference(service: &str) -> Value {
    json!({"backendRef": {"kind": "MeshService", "name": service, "port": 8080}})
}

fn by_tags(service: &str) -> Value {
    json!({"tags": {"kuma.io/service": service}})
}

/// A proxy that only calls others: its outbounds are at ports 10001, 10002, … of its address.
fn client(world: &World, name: &str, targets: &[Value]) -> (Proxy, Ipv4Addr) {
    let address = own_address();
    let mut own = dataplane(name, name, address, "http", (own_address(), 9000).into());
    for (port, target) in (10001..).zip(targets) {
        own = with_outbound(own, address, port, target.clone());
    }
    (world.proxy(&own), address)
}

fn answered_by(address: Ipv4Addr, port: u16) -> String {
    let mut last = String::new();
    let done = eventually("an answer through the mesh", || match call(address, port) {
        Ok(answer) if answer.status == 200 => {
            last = answer.json()["name"].as_str().unwrap_or_default().to_owned();
            true
        }
        Ok(answer) => {
            last = format!("{} {}", answer.status, answer.body);
            false
        }
        Err(error) => {
            last = format!("{error:#}");
            false
        }
    });
    done.unwrap_or_else(|error| panic!("{error}: {last}"));
    last
}

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
    let mut proxy = Proxy::spawn(&world.control_plane, &own, &options).unwrap();
    assert!(!proxy.ended().unwrap().success());
    assert!(proxy.log().contains("token"), "{}", proxy.log());
}

/// Calls without pause until told to stop; returns how many calls there were and which failed.
fn load(address: Ipv4Addr, port: u16, during: impl FnOnce()) -> (usize, Vec<String>) {
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        match call(address, port) {
                            Ok(answer) if answer.status == 200 => {}
                            Ok(answer) => failures.push(format!("{} {}", answer.status, answer.body)),
                            Err(error) => failures.push(format!("{error:#}")),
                        }
                        calls.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(2));
                    }
                    failures
                })
            })
            .collect();
        during();
        let before = calls.load(Ordering::Relaxed);
        eventually("traffic after the change", || calls.load(Ordering::Relaxed) > before + 50).unwrap();
        stop.store(true, Ordering::Relaxed);
        let failures = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        (calls.load(Ordering::Relaxed), failures)
    })
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
    let updates = |proxy: &Proxy| {
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
