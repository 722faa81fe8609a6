//! Permissions, enforced by real Envoys and counted under the names of either scheme.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call, dataplane},
};
use serde_json::{Value, json};

use crate::world::{UNIFIED, World, client};

fn permission(name: &str, spec: Value) -> Value {
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": spec})
}

/// A server with an HTTP and a TCP port, and how its permissions are called in statistics.
struct Server {
    proxy: RunningProxy,
    http: String,
    tcp: String,
}

impl Server {
    fn start(world: &World, name: &str, apps: Ipv4Addr, variables: &[(&str, &str)]) -> Server {
        let address = own_address();
        let mut own = dataplane(name, name, address, "http", (apps, 9001).into());
        let line = json!({
            "port": 8081, "name": "line", "servicePort": 9002, "serviceAddress": apps.to_string(),
            "tags": {"kuma.io/service": format!("{name}-line"), "kuma.io/protocol": "tcp"}
        });
        own["networking"]["inbound"].as_array_mut().unwrap().push(line);
        let proxy = world.proxy_with(&own, variables);
        let (http, tcp) = if variables.is_empty() {
            let at = format!("inbound_{}", address.to_string().replace('.', "_"));
            (format!("http.localhost_9001.rbac.{at}_8080."), format!("{at}_8081.rbac."))
        } else {
            ("http.self_main.rbac.self_main.".to_owned(), "self_line.rbac.".to_owned())
        };
        Server { proxy, http, tcp }
    }

    /// `allowed`, `denied`, `shadow_allowed` and `shadow_denied` of both ports.
    fn counts(&self) -> [[u64; 4]; 2] {
        let of = |prefix: &str| {
            ["allowed", "denied", "shadow_allowed", "shadow_denied"]
                .map(|count| self.proxy.stat(&format!("{prefix}{count}")).unwrap())
        };
        [of(&self.http), of(&self.tcp)]
    }
}

/// An application that sends lines back, and how many it was sent.
///
/// Lines are what counts: Envoy connects to the application before a client has said anything, and decides
/// about the client when it does.
struct Line(Arc<AtomicUsize>);

impl Line {
    fn start(address: Ipv4Addr, port: u16) -> Line {
        let listener = TcpListener::bind((address, port)).unwrap();
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = count.clone();
                thread::spawn(move || answer(stream, &count));
            }
        });
        Line(heard)
    }

    fn heard(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn answer(stream: TcpStream, heard: &AtomicUsize) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|length| length > 0) {
        heard.fetch_add(1, Ordering::SeqCst);
        // A client that hangs up early asks again.
        let _ = stream.get_mut().write_all(line.as_bytes());
        line.clear();
    }
}

/// Right of a client at both ports of a server, as it is counted for one call each.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CountedRight {
    Allowed,
    Denied,
    AllowedWithShadowDeny,
}

struct Scene {
    world: World,
    servers: [Server; 2],
    clients: Vec<(&'static str, RunningProxy, Ipv4Addr)>,
    line: Line,
    _web: Service,
}

impl Scene {
    fn set() -> Scene {
        let world = World::start(Setup::default());
        let apps = own_address();
        let web = Service::start("web", "http", (apps, 9001).into()).unwrap();
        let line = Line::start(apps, 9002);
        let servers =
            [Server::start(&world, "older", apps, &[]), Server::start(&world, "newer", apps, &[UNIFIED])];
        let target = |service: &str, port: u16| json!({"backendRef": {"kind": "MeshService", "name": service, "port": port}});
        let targets = [
            target("older", 8080),
            target("older-line", 8081),
            target("newer", 8080),
            target("newer-line", 8081),
        ];
        let start = |name| {
            let (proxy, address) = client(&world, name, &targets);
            (name, proxy, address)
        };
        let clients = ["friend", "foe", "shady"].map(start).into();
        let scene = Scene { world, servers, clients, line, _web: web };
        // Every service may call every other, so that what is refused afterwards is refused by permissions.
        scene.become_as(&[
            ("friend", CountedRight::Allowed),
            ("foe", CountedRight::Allowed),
            ("shady", CountedRight::Allowed),
        ]);
        scene
    }

    fn permit(&self, name: &str, spec: Value) {
        self.world.put(&format!("/meshes/default/meshtrafficpermissions/{name}"), &permission(name, spec));
    }

    fn http_status(address: Ipv4Addr, server: usize) -> Option<u16> {
        call(address, if server == 0 { 10001 } else { 10003 }).ok().map(|answer| answer.status)
    }

    /// `Some(true)` if a line comes back, `Some(false)` if the connection is cut before a single byte does;
    /// `None` when it is merely silent, or something else comes back.
    ///
    /// The server's Envoy cuts the connection between the proxies. As Envoy has read everything by then, it
    /// closes with FIN, and so does the client's proxy towards its application: that sees the end of the
    /// stream instead of an answer. A reset in the strict sense is the same refusal. That nothing was passed
    /// on, the server's application says, see [`Scene::counted`].
    fn line_passes(address: Ipv4Addr, server: usize) -> Option<bool> {
        let mut stream = TcpStream::connect((address, if server == 0 { 10002 } else { 10004 })).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        writeln!(stream, "hello").ok()?;
        let mut stream = BufReader::new(stream);
        match stream.fill_buf() {
            Ok([]) => return Some(false),
            Ok(_) => {}
            Err(error) => return (error.kind() == io::ErrorKind::ConnectionReset).then_some(false),
        }
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        (line == "hello\n").then_some(true)
    }

    /// Waits until the verdicts hold, then makes one call each and looks at what was counted.
    fn become_as(&self, verdicts: &[(&str, CountedRight)]) {
        for (name, verdict) in verdicts {
            let (_, _, address) = self.clients.iter().find(|(client, ..)| client == name).unwrap();
            let status = if *verdict == CountedRight::Denied { 403 } else { 200 };
            for (index, server) in self.servers.iter().enumerate() {
                let what = format!("{name} to be {verdict:?} by server {index}");
                let holds = || {
                    Scene::http_status(*address, index) == Some(status)
                        && Scene::line_passes(*address, index) == Some(status == 200)
                };
                eventually(&what, holds).unwrap_or_else(|error| {
                    panic!("{error}: {:?} {:?}", Scene::http_status(*address, index), server.counts())
                });
                // The shadow of a verdict cannot be waited for by calling.
                eventually(&format!("{what}, counted"), || self.counted(*address, index) == Some(*verdict))
                    .unwrap_or_else(|error| panic!("{error}: {:?}", server.counts()));
            }
        }
    }

    /// Verdict that one call of each kind is counted as, if both count the same and the application heard of
    /// it exactly when it was let in.
    fn counted(&self, address: Ipv4Addr, index: usize) -> Option<CountedRight> {
        let server = &self.servers[index];
        let before = server.counts();
        let heard = self.line.heard();
        Scene::http_status(address, index)?;
        Scene::line_passes(address, index)?;
        let after = server.counts();
        let heard = self.line.heard() - heard;
        let [http, tcp] = [0, 1].map(|port: usize| {
            let grown: Vec<u64> = (0..4).map(|count| after[port][count] - before[port][count]).collect();
            match grown[..] {
                [1, 0, _, 0] => Some(CountedRight::Allowed),
                [0, 1, _, _] => Some(CountedRight::Denied),
                [1, 0, 0, 1] => Some(CountedRight::AllowedWithShadowDeny),
                _ => None,
            }
        });
        let passed_on = usize::from(tcp != Some(CountedRight::Denied));
        http.filter(|http| Some(*http) == tcp && heard == passed_on)
    }
}

fn from(entries: &[(Value, &str)]) -> Value {
    let entry =
        |(target, action): &(Value, &str)| json!({"targetRef": target, "default": {"action": action}});
    json!({"targetRef": {"kind": "Mesh"}, "from": entries.iter().map(entry).collect::<Vec<_>>()})
}

fn service(name: &str) -> Value {
    json!({"kind": "MeshSubset", "tags": {"kuma.io/service": name}})
}

#[test]
fn denied_calls_fail_shadow_denied_ones_pass_and_both_are_counted() {
    use CountedRight::{Allowed, AllowedWithShadowDeny, Denied};
    let scene = Scene::set();
    let any_client = json!({"kind": "Mesh"});
    scene.permit(
        "every-client",
        from(&[
            (any_client.clone(), "Deny"),
            (service("friend"), "Allow"),
            (service("shady"), "AllowWithShadowDeny"),
        ]),
    );
    scene.become_as(&[("foe", Denied), ("friend", Allowed), ("shady", AllowedWithShadowDeny)]);

    // The last entry that matches decides.
    scene.permit("every-client", from(&[(service("friend"), "Deny"), (any_client, "Allow")]));
    scene.become_as(&[("friend", Allowed), ("foe", Allowed), ("shady", Allowed)]);

    // By identity: deny wins over shadow deny, which wins over allow, in whichever order they come.
    let id =
        |name: &str| json!([{"spiffeID": {"type": "Exact", "value": format!("spiffe://default/{name}")}}]);
    let all = json!([{"spiffeID": {"type": "Prefix", "value": "spiffe://default/"}}]);
    scene.permit(
        "every-client",
        json!({"targetRef": {"kind": "Mesh"}, "rules": [{"default": {
            "allow": all, "allowWithShadowDeny": id("shady"), "deny": id("foe")
        }}]}),
    );
    scene.become_as(&[("foe", Denied), ("friend", Allowed), ("shady", AllowedWithShadowDeny)]);

    // By zone, which none of the Dataplanes says: the control plane puts it on their inbounds, so certificates have it.
    let zone = |name: &str| json!({"kind": "MeshSubset", "tags": {"kuma.io/zone": name}});
    scene.permit("every-client", from(&[(zone("default"), "Allow")]));
    scene.become_as(&[("friend", Allowed), ("foe", Allowed), ("shady", Allowed)]);
    scene.permit("every-client", from(&[(zone("another"), "Allow")]));
    scene.become_as(&[("friend", Denied), ("foe", Denied), ("shady", Denied)]);

    // Nothing is allowed by default.
    let gone =
        scene.world.control_plane.client().delete("/meshes/default/meshtrafficpermissions/every-client");
    assert_eq!(gone.unwrap().status, 200);
    scene.become_as(&[("friend", Denied), ("foe", Denied), ("shady", Denied)]);
}
