//! Calls to destinations that permissions trimmed from a proxy, and permissions that open and close under load.
//!
//! Virtual addresses are of this machine here, and proxies bind them: nothing needs to be redirected.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::dataplane,
};
use serde_json::{Value, json};
use testkit::build;

use crate::{
    observed::few_statistics,
    world::{self, UNIFIED, World},
};

pub const BIND: (&str, &str) = ("KUMA_DATAPLANE_RUNTIME_BIND_OUTBOUNDS", "true");
/// The mesh decides where no rule is about a client.
const MESH: &str = "kri_m____default_";

/// End of a request.
#[derive(Debug, Clone, PartialEq)]
enum CallEnd {
    Answered,
    /// By the server: its permissions say so.
    Refused,
    /// By the client's own proxy, in the name of this.
    Trimmed(String),
    Failed(String),
}

fn ask(to: SocketAddr) -> CallEnd {
    let say = || {
        let mut socket = TcpStream::connect(to)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.write_all(b"GET / HTTP/1.1\r\nhost: backend\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map(|_| answer)
    };
    let answer: String = match say() {
        Ok(answer) => answer,
        Err(error) => return CallEnd::Failed(format!("{:?}", error.kind())),
    };
    let trimmed_by = answer.lines().find_map(|line| line.strip_prefix("x-kuma-trimmed-by: "));
    match (answer.split(' ').nth(1), trimmed_by) {
        (Some("200"), _) => CallEnd::Answered,
        (Some("403"), Some(by)) => CallEnd::Trimmed(by.to_owned()),
        (Some("403"), None) => CallEnd::Refused,
        _ => CallEnd::Failed(answer),
    }
}

/// The mesh, with trimming.
fn trimming(stub: &str) -> Value {
    let mesh = build::mesh("default").services("Exclusive").authority("ca-1", "STRICT");
    mesh.labels(&[("reachability.kuma.io/mode", "enforce"), ("reachability.kuma.io/stub", stub)]).json()
}

/// Allows or denies `client` at the proxies of a service.
fn permission(name: &str, service: &str, client: &str, action: &str) -> Value {
    let from = json!([{"targetRef": {"kind": "MeshService", "name": client}, "default": {"action": action}}]);
    let top = json!({"kind": "MeshSubset", "tags": {"kuma.io/service": service}});
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": {"targetRef": top, "from": from}})
}

fn permit(world: &World, name: &str, service: &str, client: &str, action: &str) {
    let path = format!("/meshes/default/meshtrafficpermissions/{name}");
    world.put(&path, &permission(name, service, client, action));
}

/// A mesh with these virtual addresses.
fn start(addresses: &str, hold: &str) -> World {
    let setup = Setup::default()
        .with("KUMA_IPAM_MESH_SERVICE_CIDR", addresses)
        .with("KUMA_XDS_SERVER_PERMISSIONS_HOLD", hold)
        .with("KUMA_XDS_SERVER_PERMISSIONS_DRAIN", hold);
    let world = World::join(setup);
    world.put("/meshes/default", &world::mesh("STRICT"));
    permit(&world, "backend", "backend", "somebody", "Allow");
    world.put("/meshes/default", &trimming("true"));
    world
}

/// A proxy that offers what it may call at its virtual address.
fn client(world: &World) -> RunningProxy {
    let own = dataplane("web", "web", own_address(), "http", (own_address(), 9000).into());
    world.proxy_with(&own, &[BIND, UNIFIED])
}

/// Virtual address of a service.
pub fn address(world: &World, service: &str) -> SocketAddr {
    let mut found = None;
    eventually(&format!("a virtual address of {service}"), || {
        let path = format!("/meshes/default/meshservices/{service}");
        let resource =
            world.control_plane.client().get(&path).map(|answer| answer.json()).unwrap_or_default();
        let ip = resource["status"]["vips"][0]["ip"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
        found = ip.map(|ip| SocketAddr::new(ip, 8080));
        found.is_some()
    })
    .unwrap();
    found.unwrap()
}

#[track_caller]
fn becomes(to: SocketAddr, expected: &CallEnd) {
    let mut last = CallEnd::Answered;
    eventually("the answer to a call", || {
        last = ask(to);
        last == *expected
    })
    .unwrap_or_else(|error| panic!("{error}: {last:?} instead of {expected:?}"));
}

#[test]
fn a_trimmed_call_is_counted_by_a_stub_and_finds_nothing_elsewhere() {
    let world = start("127.241.0.0/16", "100ms");
    let (_backend, _backend_proxy, _) = world.service("backend", "backend", "http");
    let (_line, _line_proxy, _) = world.service("line", "line", "tcp");
    permit(&world, "line", "line", "web", "Deny");
    // Attempts are counted whatever else is left out.
    world.put("/meshes/default/meshmetrics/few", &few_statistics());
    let proxy = client(&world);
    let backend = address(&world, "backend");
    let line = address(&world, "line");
    becomes(backend, &CallEnd::Trimmed(MESH.to_owned()));
    becomes(line, &CallEnd::Trimmed("kri_mtp_default_default__line_".to_owned()));

    let count = |name: &str| proxy.stat(name).unwrap();
    let requests = "http.system_trimmed_outbound.downstream_rq_4xx";
    let connections = "listener.system_trimmed_outbound.no_filter_chain_match";
    let before = (count(requests), count(connections));
    assert_eq!(ask(backend), CallEnd::Trimmed(MESH.to_owned()));
    let mut socket = TcpStream::connect(line).unwrap();
    socket.write_all(b"hello\n").unwrap();
    let ended = socket.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    assert_eq!((count(requests), count(connections)), (before.0 + 1, before.1 + 1));

    // What is allowed is there, and what is not stays answered.
    permit(&world, "backend", "backend", "web", "Allow");
    becomes(backend, &CallEnd::Answered);
    assert!(matches!(ask(line), CallEnd::Trimmed(_)));

    world.put("/meshes/default", &trimming("false"));
    becomes(line, &CallEnd::Failed("ConnectionRefused".to_owned()));
    assert_eq!(ask(backend), CallEnd::Answered);
}

/// Requests one after the other, each with the phase in which it began.
#[derive(Default)]
struct Load {
    phase: AtomicUsize,
    over: AtomicBool,
    outcomes: Mutex<Vec<(usize, CallEnd)>>,
}

impl Load {
    fn run(&self, to: SocketAddr) {
        while !self.over.load(Ordering::Relaxed) {
            let phase = self.phase.load(Ordering::SeqCst);
            let outcome = ask(to);
            self.outcomes.lock().unwrap().push((phase, outcome));
        }
    }

    /// Waits for so many outcomes of a phase that are like this.
    fn wait(&self, phase: usize, count: usize, wanted: impl Fn(&CallEnd) -> bool) {
        let seen = || self.of(phase).iter().filter(|outcome| wanted(outcome)).count();
        eventually("requests", || seen() >= count).unwrap_or_else(|error| {
            panic!("{error}: in phase {phase} there were {:?}", summary(&self.of(phase)))
        });
    }

    fn of(&self, phase: usize) -> Vec<CallEnd> {
        let outcomes = self.outcomes.lock().unwrap();
        let from = outcomes.partition_point(|(of, _)| *of < phase);
        outcomes[from..]
            .iter()
            .take_while(|(of, _)| *of == phase)
            .map(|(_, outcome)| outcome.clone())
            .collect()
    }
}

/// Outcomes without repetitions, with how many there were of each.
fn summary(outcomes: &[CallEnd]) -> Vec<(usize, CallEnd)> {
    let mut summary: Vec<(usize, CallEnd)> = Vec::new();
    for outcome in outcomes {
        match summary.last_mut() {
            Some((count, last)) if last == outcome => *count += 1,
            _ => summary.push((1, outcome.clone())),
        }
    }
    summary
}

/// True for a connection lost while one listener took over a bound address from another.
fn handed_over(outcome: &CallEnd) -> bool {
    matches!(outcome, CallEnd::Failed(kind) if kind == "ConnectionReset" || kind == "ConnectionRefused")
}

/// Rounds of opening and closing a permission under load.
const ROUNDS: usize = 6;

#[test]
fn permissions_open_and_close_under_load_without_an_unexplained_failure() {
    let world = start("127.242.0.0/16", "100ms");
    let (_backend, _backend_proxy, _) = world.service("backend", "backend", "http");
    let _proxy = client(&world);
    let backend = address(&world, "backend");
    becomes(backend, &CallEnd::Trimmed(MESH.to_owned()));

    let load = Load::default();
    let trimmed = |outcome: &CallEnd| matches!(outcome, CallEnd::Trimmed(_));
    thread::scope(|scope| {
        scope.spawn(|| load.run(backend));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..ROUNDS {
                let open = 2 * round + 1;
                let closed = 2 * round + 2;
                load.phase.store(open, Ordering::SeqCst);
                permit(&world, "backend", "backend", "web", "Allow");
                load.wait(open, 20, |outcome| *outcome == CallEnd::Answered);
                load.phase.store(closed, Ordering::SeqCst);
                permit(&world, "backend", "backend", "somebody", "Allow");
                load.wait(closed, 3, trimmed);
            }
        }));
        load.over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    for round in 0..ROUNDS {
        let opening = load.of(2 * round + 1);
        let first = opening.iter().position(|outcome| *outcome == CallEnd::Answered).unwrap();
        let (before, after) = opening.split_at(first);
        assert!(
            before.iter().all(|o| trimmed(o) || handed_over(o)),
            "opening, {round}: {:?}",
            summary(&opening)
        );
        assert!(after.iter().all(|o| *o == CallEnd::Answered), "opening, {round}: {:?}", summary(&opening));
        let closing = load.of(2 * round + 2);
        let first = closing.iter().position(|outcome| *outcome != CallEnd::Answered).unwrap();
        let explained = |o: &CallEnd| *o == CallEnd::Refused || trimmed(o) || handed_over(o);
        assert!(closing[first..].iter().all(explained), "closing, {round}: {:?}", summary(&closing));
    }
}

#[test]
fn a_server_refuses_before_its_clients_lose_it() {
    // So long that no client loses it while the test runs.
    let world = start("127.243.0.0/16", "10m");
    let (_backend, _backend_proxy, _) = world.service("backend", "backend", "http");
    permit(&world, "backend", "backend", "web", "Allow");
    let proxy = client(&world);
    let backend = address(&world, "backend");
    // The client's proxy has a connection that the server keeps until the old listener is drained.
    becomes(backend, &CallEnd::Answered);
    permit(&world, "backend", "backend", "somebody", "Allow");
    becomes(backend, &CallEnd::Refused);
    assert_eq!(ask(backend), CallEnd::Refused);
    let clusters = proxy.admin("/clusters").unwrap();
    assert!(clusters.contains("kri_msvc_default_default__backend_"), "the client still has it: {clusters}");
}
