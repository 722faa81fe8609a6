//! A mesh to try things in: a control plane, services with their proxies, clients, and load.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use e2e::{
    ControlPlane, Setup, eventually,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, call, dataplane, with_outbound},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::build;

/// Setting that turns unified names on, and the name that later versions of Kuma give it.
pub const UNIFIED: (&str, &str) =
    ("KUMA_DATAPLANE_RUNTIME_UNIFIED_PROXY_RESOURCES_AND_STATS_NAMING_ENABLED", "true");
pub const UNIFIED_ALIAS: (&str, &str) = ("KUMA_DATAPLANE_RUNTIME_UNIFIED_RESOURCE_NAMING_ENABLED", "true");

/// A control plane whose mesh has mutual TLS, and every service may call every other.
pub struct World {
    pub control_plane: ControlPlane,
    _work_dir: TempDir,
}

pub fn mesh(mode: &str) -> Value {
    build::mesh("default").services("Exclusive").authority("ca-1", mode).json()
}

/// Applies one action to all clients.
pub fn every_client(action: &str) -> Value {
    let from = json!([{"targetRef": {"kind": "Mesh"}, "default": {"action": action}}]);
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "every-client", "spec": {"from": from}})
}

impl World {
    pub fn start(setup: Setup) -> World {
        let world = World::join(setup);
        world.put("/meshes/default", &mesh("STRICT"));
        world.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("Allow"));
        world
    }

    /// Another control plane on a store that has everything already.
    pub fn join(setup: Setup) -> World {
        let work_dir = tempfile::tempdir().unwrap();
        let control_plane = ControlPlane::start(work_dir.path(), setup).unwrap();
        World { control_plane, _work_dir: work_dir }
    }

    pub fn put(&self, path: &str, body: &Value) {
        let answer = self.control_plane.client().put(path, body).unwrap();
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.body);
    }

    /// Waits until a proxy's insight says what it should.
    pub fn insight(&self, proxy: &str, holds: impl Fn(&Value) -> bool) {
        let path = format!("/meshes/default/dataplanes/{proxy}/_overview");
        let mut last = Value::Null;
        let done = eventually(&format!("the insight of {proxy}"), || {
            last = self.control_plane.client().get(&path).map(|answer| answer.json()).unwrap_or_default();
            holds(&last["dataplaneInsight"])
        });
        done.unwrap_or_else(|error| panic!("{error}: {last}"));
    }

    pub fn proxy(&self, dataplane: &Value) -> RunningProxy {
        self.proxy_with(dataplane, &[])
    }

    /// A proxy whose agent has these variables.
    pub fn proxy_with(&self, dataplane: &Value, variables: &[(&str, &str)]) -> RunningProxy {
        let environment =
            variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = Options { environment, ..Options::default() };
        RunningProxy::start(&self.control_plane, dataplane, &options)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", self.control_plane.log()))
    }

    /// A service with a proxy in front of it.
    pub fn service(&self, name: &str, service: &str, protocol: &str) -> (Service, RunningProxy, Ipv4Addr) {
        let address = own_address();
        let app = Service::start(name, protocol, (own_address(), 9000).into()).unwrap();
        let proxy = self.proxy(&dataplane(name, service, address, protocol, app.address));
        (app, proxy, address)
    }
}

pub fn by_reference(service: &str) -> Value {
    json!({"backendRef": {"kind": "MeshService", "name": service, "port": 8080}})
}

pub fn by_tags(service: &str) -> Value {
    json!({"tags": {"kuma.io/service": service}})
}

/// A proxy that only calls others: its outbounds are at ports 10001, 10002, … of its address.
pub fn client(world: &World, name: &str, targets: &[Value]) -> (RunningProxy, Ipv4Addr) {
    client_with(world, name, targets, &[])
}

/// The same where the agent has these variables.
pub fn client_with(
    world: &World,
    name: &str,
    targets: &[Value],
    variables: &[(&str, &str)],
) -> (RunningProxy, Ipv4Addr) {
    let address = own_address();
    let mut own = dataplane(name, name, address, "http", (own_address(), 9000).into());
    for (port, target) in (10001..).zip(targets) {
        own = with_outbound(own, address, port, target.clone());
    }
    (world.proxy_with(&own, variables), address)
}

pub fn answered_by(address: Ipv4Addr, port: u16) -> String {
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

/// Stops load when a test panics.
pub struct StopWhenDropped<'s>(pub &'s AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls without pause until stopped; returns how many calls there were and which failed.
pub fn load(address: Ipv4Addr, port: u16, during: impl FnOnce()) -> (usize, Vec<String>) {
    load_answered(200, address, port, during)
}

/// The same where every call must be answered with this status.
pub fn load_answered(
    status: u16,
    address: Ipv4Addr,
    port: u16,
    during: impl FnOnce(),
) -> (usize, Vec<String>) {
    let stop = AtomicBool::new(false);
    let calls = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        match call(address, port) {
                            Ok(answer) if answer.status == status => {}
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
        // A panic must end the workers too: the scope waits for them.
        let _ending = StopWhenDropped(&stop);
        during();
        let before = calls.load(Ordering::Relaxed);
        eventually("traffic after the change", || calls.load(Ordering::Relaxed) > before + 50).unwrap();
        stop.store(true, Ordering::Relaxed);
        let failures = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        (calls.load(Ordering::Relaxed), failures)
    })
}
