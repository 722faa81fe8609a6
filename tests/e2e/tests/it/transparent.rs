//! Unmodified applications call by name: each workload has a network namespace of its own, with real firewall rules,
//! a real Envoy and the agent's DNS server.
//!
//! Agents are root here, which the rules take for the user of kuma-dp; applications are `curl` and `getent` of another
//! user.

use std::{net::Ipv4Addr, os::unix::process::CommandExt, process::Command, thread};

use e2e::{
    Kumactl, Setup, eventually, kumactl,
    proxy::{Options, Proxy, dataplane_token},
    service::Service,
};
use serde_json::{Value, json};
use testkit::netns::{Network, Workload};

use crate::world::World;

/// The user of an application.
const APPLICATION: u32 = 61_234;

/// A mesh whose control plane is at the hub of a network.
struct Mesh {
    network: Network,
    world: World,
    files: tempfile::TempDir,
}

/// A machine with an application behind a proxy.
struct Machine {
    workload: Workload,
    _application: Service,
    _proxy: Proxy,
}

impl Mesh {
    /// `None` where this machine has no namespaces.
    fn start() -> Option<Mesh> {
        if !testkit::netns::available().unwrap() {
            return None;
        }
        let network = Network::new().unwrap();
        let files = tempfile::tempdir().unwrap();
        let resolver = format!("nameserver {}\n", network.gateway().0);
        std::fs::write(files.path().join("resolv.conf"), resolver).unwrap();
        let world = network.hub().enter(|| World::start(Setup::default())).unwrap();
        Some(Mesh { network, world, files })
    }

    fn at_hub<T: Send>(&self, action: impl FnOnce(&World) -> T + Send) -> T {
        self.network.hub().enter(|| action(&self.world)).unwrap()
    }

    /// Applies a file with `kumactl`.
    fn apply(&self, yaml: &str) {
        let file = self.files.path().join("applied.yaml");
        std::fs::write(&file, yaml).unwrap();
        self.at_hub(|world| {
            let kumactl = Kumactl::of(&world.control_plane).unwrap();
            kumactl.ok(&["apply", "-f", file.to_str().unwrap()]).unwrap();
        });
    }

    /// A machine whose traffic is redirected, with a service that says its name at port 80.
    fn machine(&mut self, name: &str, tags: &Value) -> Machine {
        let mut workload = self.network.workload().unwrap();
        workload.namespace = workload.namespace.with_resolv_conf(&self.files.path().join("resolv.conf"));
        let dataplane = json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": {
            "address": workload.v4.to_string(), "inbound": [{"port": 80, "name": "main", "tags": tags}]}});
        let token = self.at_hub(|world| dataplane_token(&world.control_plane, "default", name).unwrap());
        let [_, _, port] = self.world.control_plane.ports();
        let options = Options {
            token: Some(token),
            control_plane: Some(format!("https://{}:{port}", self.network.gateway().0)),
            arguments: vec!["--transparent-proxy".to_owned()],
            // Each machine has its own ports, so names are answered where the rules send queries.
            environment: vec![("KUMA_DNS_CORE_DNS_PORT".to_owned(), "0".to_owned())],
            ..Options::default()
        };
        let protocol = tags["kuma.io/protocol"].as_str().unwrap();
        let started = workload.namespace.enter(|| {
            let application = Service::start(name, protocol, (workload.v4, 80).into()).unwrap();
            let rules = ["install", "transparent-proxy", "--kuma-dp-user", "0", "--redirect-dns"];
            let installed = kumactl(self.files.path(), &rules).unwrap();
            assert!(installed.status.success(), "{installed:?}");
            let proxy = Proxy::start(&self.world.control_plane, &dataplane, &options)
                .unwrap_or_else(|error| panic!("{error:#}\n{}", self.world.control_plane.log()));
            (application, proxy)
        });
        let (application, proxy) = started.unwrap();
        Machine { workload, _application: application, _proxy: proxy }
    }
}

impl Machine {
    /// What a program of the application's user prints, and whether it succeeded.
    fn run(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(program);
        command.args(arguments).uid(APPLICATION).gid(APPLICATION).env_clear().env("PATH", "/usr/bin:/bin");
        let output = self.workload.namespace.output(&mut command).unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn curl(&self, version: &str, url: &str) -> (bool, String) {
        self.run("curl", &[version, "--silent", "--show-error", "--fail", "--max-time", "5", url])
    }

    /// Waits until the service that answers at a URL is this one.
    fn reaches(&self, version: &str, url: &str, expected: &str) {
        let mut last = String::new();
        eventually(&format!("{url} to be answered ({version})"), || {
            let (done, said) = self.curl(version, url);
            last = said;
            done && serde_json::from_str(&last).is_ok_and(|answer: Value| {
                answer["name"].as_str().is_some_and(|name| name.starts_with(expected))
            })
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
    }

    fn addresses(&self, database: &str, name: &str) -> (bool, String) {
        self.run("getent", &[database, name])
    }
}

fn http(service: &str) -> Value {
    json!({"kuma.io/service": service, "kuma.io/protocol": "http"})
}

/// The examples of the design document, as they are written there.
const EXAMPLES: &str = r#"
type: VirtualOutbound
mesh: default
name: my-service
selectors:
  - match:
    kuma.io/service: my-service
conf:
  host: httpbin.mesh
  port: 8080
---
type: VirtualOutbound
mesh: default
name: my-service-by-version
selectors:
  - match:
    kuma.io/service: "*"
    version: "*"
conf:
  host: "{{version}}.{{service}}.mesh"
  port: 8080
  tags:
    "kuma.io/service": service
    "version": version
---
type: VirtualOutbound
mesh: default
name: default
selectors:
  - match:
    kuma.io/service: "*"
conf:
  host: "{{service}}.mesh"
  port: 80
  tags:
    "kuma.io/service": service
---
type: VirtualOutbound
mesh: default
name: service-by-zone
selectors:
  - match:
    kuma.io/service: "*"
conf:
  host: "{{service}}.{{zone}}.mesh"
  port: 80
  tags:
    "kuma.io/service": service
    "kuma.io/zone": zone
"#;

#[test]
fn every_example_of_the_document_is_called_by_name() {
    let Some(mut mesh) = Mesh::start() else { return };
    let versioned = |version: &str| {
        let mut tags = http("backend");
        tags["version"] = version.into();
        tags
    };
    let _backends =
        [mesh.machine("backend-1", &versioned("v1")), mesh.machine("backend-2", &versioned("v2"))];
    let _httpbin = mesh.machine("my-service-1", &http("my-service"));
    let tcp = json!({"kuma.io/service": "queue", "kuma.io/protocol": "tcp"});
    let _queue = mesh.machine("queue-1", &tcp);
    let client = mesh.machine("client-1", &http("client"));
    mesh.apply(EXAMPLES);
    for version in ["-4", "-6"] {
        client.reaches(version, "http://v1.backend.mesh:8080/", "backend-1");
        client.reaches(version, "http://v2.backend.mesh:8080/", "backend-2");
        client.reaches(version, "http://backend.mesh/", "backend-");
        client.reaches(version, "http://backend.default.mesh:80/", "backend-");
        client.reaches(version, "http://httpbin.mesh:8080/", "my-service-1");
        client.reaches(version, "http://my-service.svc.mesh.local/", "my-service-1");
    }
    let line = "exec 3<>/dev/tcp/queue.mesh/80 && echo hello >&3 && head --lines 1 <&3";
    eventually("a line over TCP", || client.run("bash", &["-c", line]).1.contains("queue-1")).unwrap();
    let (found, said) = client.addresses("ahostsv4", "backend.mesh");
    assert!(found && said.starts_with("240."), "{said}");
    let (found, said) = client.addresses("ahostsv4", "backend.svc.mesh.local");
    assert!(found && said.starts_with("241."), "{said}");
    let (found, said) = client.addresses("ahosts", "v3.backend.mesh");
    assert!(!found, "there is no such version: {said}");
}

#[test]
fn traffic_that_is_not_the_meshs_passes_through_until_the_mesh_forbids_it() {
    let Some(mut mesh) = Mesh::start() else { return };
    let client = mesh.machine("client-1", &http("client"));
    let outside = mesh.network.workload().unwrap();
    let address: Ipv4Addr = outside.v4;
    let _service = outside
        .namespace
        .enter(|| Service::start("outside", "http", (address, 8000).into()).unwrap())
        .unwrap();
    let url = format!("http://{address}:8000/");
    client.reaches("-4", &url, "outside");
    let mut closed = crate::world::mesh("STRICT");
    closed["networking"] = json!({"outbound": {"passthrough": false}});
    mesh.at_hub(|world| world.put("/meshes/default", &closed));
    eventually("the way out to be shut", || !client.curl("-4", &url).0).unwrap();
}

/// Every service has a name at port 80.
const BY_SERVICE: &str = r#"
type: VirtualOutbound
mesh: default
name: by-service
selectors: [{ match: { kuma.io/service: "*" } }]
conf:
  host: "{{.service}}.mesh"
  port: "80"
  parameters: [{ name: service, tagKey: kuma.io/service }]
"#;

#[test]
fn a_name_that_resolves_is_answered_by_its_service_while_others_come_and_go() {
    let Some(mut mesh) = Mesh::start() else { return };
    mesh.apply(BY_SERVICE);
    let _stable = mesh.machine("stable-1", &http("stable"));
    let client = mesh.machine("client-1", &http("client"));
    client.reaches("-4", "http://stable.mesh/", "stable-1");
    for round in 1..=3 {
        let (name, service) = (format!("guest-{round}"), format!("guest{round}"));
        let host = format!("{service}.mesh");
        assert!(!client.addresses("ahostsv4", &host).0, "{host} is not there yet");
        let calls = || {
            eventually(&format!("{host} to resolve"), || client.addresses("ahostsv4", &host).0).unwrap();
            for _ in 0..20 {
                for (host, expected) in [(&*host, &*name), ("stable.mesh", "stable-1")] {
                    let (done, said) = client.curl("-4", &format!("http://{host}/"));
                    assert!(done && said.contains(expected), "{host} in round {round}: {said}");
                }
            }
        };
        // The client calls from the moment the name is there, however far the other machine has come.
        let guest = thread::scope(|scope| {
            let called = scope.spawn(calls);
            let guest = mesh.machine(&name, &http(&service));
            called.join().unwrap();
            guest
        });
        drop(guest);
        let (done, said) = client.curl("-4", "http://stable.mesh/");
        assert!(done && said.contains("stable-1"), "{said}");
    }
}
