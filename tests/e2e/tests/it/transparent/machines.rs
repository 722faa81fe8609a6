//! Machines of a mesh, each in a network namespace of its own, and others beside them.
//!
//! Agents are root here, which the rules take for the user of kuma-dp; applications are `curl` and `getent` of another
//! user.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt,
    process::Command,
};

use e2e::{
    Kumactl, Setup, eventually, kumactl,
    proxy::{Options, RunningProxy, dataplane_token},
    service::Service,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::netns::{Namespace, Network, Workload};

use crate::world::{UNIFIED, World};

/// The user of an application.
pub const APPLICATION: u32 = 61_234;

/// A mesh whose control plane is at the hub of a network.
pub struct Mesh {
    pub network: Network,
    pub world: World,
    pub files: TempDir,
}

/// A machine with an application behind a proxy.
pub struct Machine {
    pub workload: Workload,
    pub proxy: RunningProxy,
    _application: Service,
}

/// A machine that is not in the mesh, with a service at some of its ports.
pub struct Outside {
    pub workload: Workload,
    _services: Vec<Service>,
}

/// Differences of a machine from others.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The mesh, its control plane and its resolver know it by its IPv6 address alone.
    pub by_ipv6: bool,
    /// It has no IPv4 address, not even that of the loopback interface.
    pub without_ipv4: bool,
    /// It reaches its own network alone by IPv6.
    pub no_ipv6_route: bool,
    /// More flags for the installation of rules.
    pub flags: Vec<String>,
    /// Configuration of redirection that the agent is given, instead of `--transparent-proxy`.
    pub told: Option<String>,
}

impl Mesh {
    /// `None` where this machine has no namespaces.
    pub fn start() -> Option<Mesh> {
        Mesh::start_with(Setup::default())
    }

    pub fn start_with(setup: Setup) -> Option<Mesh> {
        if !testkit::netns::available().unwrap() {
            return None;
        }
        let network = Network::new().unwrap();
        let files = tempfile::tempdir().unwrap();
        let (v4, v6) = network.gateway();
        for (name, resolver) in [("resolv.conf", IpAddr::from(v4)), ("resolv6.conf", v6.into())] {
            std::fs::write(files.path().join(name), format!("nameserver {resolver}\n")).unwrap();
        }
        let world = network.hub().enter(|| World::start(setup)).unwrap();
        Some(Mesh { network, world, files })
    }

    pub fn at_hub<T: Send>(&self, action: impl FnOnce(&World) -> T + Send) -> T {
        self.network.hub().enter(|| action(&self.world)).unwrap()
    }

    pub fn put(&self, path: &str, body: &Value) {
        self.at_hub(|world| world.put(path, body));
    }

    /// Applies a file with `kumactl`.
    pub fn apply(&self, yaml: &str) {
        let file = self.files.path().join("applied.yaml");
        std::fs::write(&file, yaml).unwrap();
        self.at_hub(|world| {
            let kumactl = Kumactl::of(&world.control_plane).unwrap();
            kumactl.ok(&["apply", "-f", file.to_str().unwrap()]).unwrap();
        });
    }

    /// A machine whose traffic is redirected, with a service that says its name at port 80.
    pub fn machine(&mut self, name: &str, tags: &Value) -> Machine {
        self.machine_with(name, tags, &Wishes::default())
    }

    pub fn machine_with(&mut self, name: &str, tags: &Value, wishes: &Wishes) -> Machine {
        let mut workload = self.network.workload().unwrap();
        if wishes.without_ipv4 {
            for device in ["lo", "eth0"] {
                workload.namespace.ip(&format!("-4 addr flush dev {device}")).unwrap();
            }
        }
        if wishes.no_ipv6_route {
            workload.namespace.ip("-6 route del default").unwrap();
        }
        let resolv_conf = if wishes.by_ipv6 { "resolv6.conf" } else { "resolv.conf" };
        workload.namespace = workload.namespace.with_resolv_conf(&self.files.path().join(resolv_conf));
        let address = if wishes.by_ipv6 { workload.v6.into() } else { IpAddr::from(workload.v4) };
        let dataplane = json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": {
            "address": address.to_string(), "inbound": [{"port": 80, "name": "main", "tags": tags}]}});
        let options = self.options(name, wishes);
        let protocol = tags["kuma.io/protocol"].as_str().unwrap();
        let application = workload.namespace.enter(|| Service::start(name, protocol, (address, 80).into()));
        let application = application.unwrap().unwrap();
        self.install(&workload.namespace, &wishes.flags);
        let proxy = workload
            .namespace
            .enter(|| RunningProxy::start(&self.world.control_plane, &dataplane, &options))
            .unwrap()
            .unwrap_or_else(|error| panic!("{error:#}\n{}", self.world.control_plane.log()));
        Machine { workload, proxy, _application: application }
    }

    fn options(&self, name: &str, wishes: &Wishes) -> Options {
        let token = self.at_hub(|world| dataplane_token(&world.control_plane, "default", name).unwrap());
        let [_, _, port] = self.world.control_plane.ports();
        let (v4, v6) = self.network.gateway();
        let control_plane = if wishes.by_ipv6 { v6.into() } else { IpAddr::from(v4) };
        let told = match &wishes.told {
            Some(config) => vec!["--transparent-proxy-config".to_owned(), config.clone()],
            None => vec!["--transparent-proxy".to_owned()],
        };
        Options {
            token: Some(token),
            control_plane: Some(format!("https://{}", SocketAddr::new(control_plane, port))),
            arguments: told,
            environment: vec![
                // Each machine has its own ports, so names are answered where the rules send queries.
                ("KUMA_DNS_CORE_DNS_PORT".to_owned(), "0".to_owned()),
                (UNIFIED.0.to_owned(), UNIFIED.1.to_owned()),
            ],
            ..Options::default()
        }
    }

    /// Installs rules in place of those that are there.
    pub fn install(&self, namespace: &Namespace, flags: &[String]) {
        let mut rules = vec!["install", "transparent-proxy", "--kuma-dp-user", "0", "--redirect-dns"];
        rules.extend(flags.iter().map(String::as_str));
        let installed = namespace.enter(|| kumactl(self.files.path(), &rules)).unwrap().unwrap();
        assert!(installed.status.success(), "{installed:?}");
    }

    /// A machine that is not in the mesh, with services at these ports of its addresses of both families.
    pub fn outside(&mut self, name: &str, ports: &[u16]) -> Outside {
        let workload = self.network.workload().unwrap();
        let both = [IpAddr::from(workload.v4), workload.v6.into()];
        let at: Vec<_> = both.iter().flat_map(|&ip| ports.iter().map(move |&port| (ip, port))).collect();
        let services = serve(&workload.namespace, name, &at);
        Outside { workload, _services: services }
    }
}

/// Services at these addresses of a machine.
pub fn serve(namespace: &Namespace, name: &str, at: &[(IpAddr, u16)]) -> Vec<Service> {
    let start = |&at: &(IpAddr, u16)| namespace.enter(|| Service::start(name, "http", at.into()).unwrap());
    at.iter().map(|at| start(at).unwrap()).collect()
}

/// Output of a program run as a user, and whether it succeeded.
fn run(namespace: &Namespace, user: u32, program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).uid(user).gid(user).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    let output = namespace.output(&mut command).unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Answer of a URL, by `-4` or `-6`.
pub fn curl(namespace: &Namespace, user: u32, version: &str, url: &str) -> (bool, String) {
    let flags = [version, "--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "5", url];
    run(namespace, user, "curl", &flags)
}

/// Waits until the service that answers at a URL is this one.
pub fn reaches(namespace: &Namespace, version: &str, url: &str, expected: &str) {
    let mut last = String::new();
    eventually(&format!("{url} to be answered ({version})"), || {
        let (done, said) = curl(namespace, APPLICATION, version, url);
        last = said;
        done && is_from(&last, expected)
    })
    .unwrap_or_else(|error| panic!("{error}: {last}"));
}

/// True if the answer is that of a service with such a name.
pub fn is_from(said: &str, expected: &str) -> bool {
    serde_json::from_str(said)
        .is_ok_and(|answer: Value| answer["name"].as_str().is_some_and(|name| name.starts_with(expected)))
}

impl Machine {
    pub fn run(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        run(&self.workload.namespace, APPLICATION, program, arguments)
    }

    pub fn curl(&self, version: &str, url: &str) -> (bool, String) {
        curl(&self.workload.namespace, APPLICATION, version, url)
    }

    pub fn reaches(&self, version: &str, url: &str, expected: &str) {
        reaches(&self.workload.namespace, version, url, expected);
    }

    pub fn addresses(&self, database: &str, name: &str) -> (bool, String) {
        self.run("getent", &[database, name])
    }

    /// Waits until the service at a name repeats a line that is sent to it over TCP, by `-4` or `-6`.
    pub fn sends_line(&self, version: &str, name: &str, port: u16, expected: &str) {
        let family = if version == "-4" { "grep --invert-match" } else { "grep" };
        let script = format!(
            "address=$(getent ahosts {name} | {family} :) && exec 3<>/dev/tcp/${{address%% *}}/{port} && \
             echo hello >&3 && timeout 5 head --lines 1 <&3"
        );
        let mut last = String::new();
        eventually(&format!("a line over TCP from {name} ({version})"), || {
            last = self.run("bash", &["-c", &script]).1;
            last.contains(expected) && last.contains("hello")
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
    }

    /// Connections that passed through one of Envoy's passthrough clusters.
    pub fn passed(&self, way: &str) -> u64 {
        self.proxy.stat(&format!("cluster.self_passthrough_{way}.upstream_cx_total")).unwrap()
    }
}

impl Outside {
    /// Calls as a client without a proxy.
    pub fn curl(&self, url: &str) -> (bool, String) {
        curl(&self.workload.namespace, APPLICATION, if url.contains('[') { "-6" } else { "-4" }, url)
    }
}

pub fn http(service: &str) -> Value {
    json!({"kuma.io/service": service, "kuma.io/protocol": "http"})
}

pub fn tcp(service: &str) -> Value {
    json!({"kuma.io/service": service, "kuma.io/protocol": "tcp"})
}

/// `-4` or `-6`.
pub fn version(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "-4" } else { "-6" }
}

/// The URL of a service at an address.
pub fn url(ip: IpAddr, port: u16) -> String {
    format!("http://{}/", SocketAddr::new(ip, port))
}

/// Every service has a name at port 80.
pub const BY_SERVICE: &str = r#"
type: VirtualOutbound
mesh: default
name: by-service
selectors: [{ match: { kuma.io/service: "*" } }]
conf:
  host: "{{.service}}.mesh"
  port: "80"
  parameters: [{ name: service, tagKey: kuma.io/service }]
"#;
