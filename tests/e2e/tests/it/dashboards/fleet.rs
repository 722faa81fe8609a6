//! Two zones with proxies of every sort of names: sidecars for HTTP, gRPC and TCP, an ingress and an egress; a service
//! that refuses its callers, one whose application is down, and names that no resolver knows.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use e2e::{
    ControlPlane, eventually, grpc,
    proxy::{RunningProxy, own_address},
    service::{Service, call, call_tcp, dataplane, with_outbound},
};
use resources::naming::kds::hashed_name;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::ports::own_port;

use crate::{
    federated::{Federation, of_zone},
    world::{UNIFIED, answered_by, by_tags},
};

/// Port of the page of metrics that the MeshMetric gives every sidecar.
const PAGE: u16 = 5670;

const RETRY: &str = "mesh-retry-all-default";

/// Callees of every sidecar, in the order of its outbounds: each has a port from 10001 on.
pub const CALLEES: [&str; 7] = ["http", "dead", "vault", "far", "ledger", "line", "lost"];

/// A sidecar that serves and calls.
pub struct Sidecar {
    /// Name of the Dataplane, and of its first service.
    pub name: &'static str,
    pub address: Ipv4Addr,
    pub proxy: RunningProxy,
    dns: u16,
}

pub struct Fleet {
    pub federation: Federation,
    pub sidecars: Vec<Sidecar>,
    _far: (Service, RunningProxy),
    zone_proxies: Vec<(&'static str, &'static str, &'static str, RunningProxy)>,
    far_address: Ipv4Addr,
    _apps: Vec<Service>,
    _files: TempDir,
}

fn mesh_metric() -> Value {
    json!({"type": "MeshMetric", "mesh": "default", "name": "all", "spec": {"default": {
        "backends": [{"type": "Prometheus", "prometheus": {"port": PAGE, "path": "/metrics"}}]}}})
}

/// No client may call the service `vault`.
fn closed() -> Value {
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "vault-closed", "spec": {
        "targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "vault"}},
        "from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Deny"}}]}})
}

/// Failed calls of `dead` are sent again once, others never: the policy takes the place of the one of every new mesh.
fn retry() -> Value {
    let dead = json!({"kind": "MeshService", "labels": {"kuma.io/display-name": "dead"}});
    json!({"type": "MeshRetry", "mesh": "default", "name": RETRY, "spec": {"to": [{"targetRef": dead, "default": {
        "http": {"numRetries": 1, "retryOn": ["5xx"], "backOff": {"baseInterval": "1ms"}}}}]}})
}

/// A policy for proxies that are not there: a finding.
fn useless() -> Value {
    json!({"type": "MeshTimeout", "mesh": "default", "name": "useless", "labels": {"kuma.io/origin": "zone"},
        "spec": {"targetRef": {"kind": "Dataplane", "labels": {"app": "absent"}},
            "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "9s"}}]}})
}

fn reference(service: &str, port: u16) -> Value {
    json!({"backendRef": {"kind": "MeshService", "name": service, "port": port}})
}

/// A further inbound of a Dataplane; nothing answers at port 1 of the machine.
fn with_inbound(mut own: Value, service: &str, port: u16, protocol: &str, app: SocketAddr) -> Value {
    let inbound = json!({"port": port, "name": service, "servicePort": app.port(),
        "serviceAddress": app.ip().to_string(),
        "tags": {"kuma.io/service": service, "kuma.io/protocol": protocol}});
    own["networking"]["inbound"].as_array_mut().unwrap().push(inbound);
    own
}

impl Fleet {
    pub fn start() -> Fleet {
        let mut federation = Federation::start(&["east", "west"], true);
        federation.global.put("/meshes/default/meshmetrics/all", &mesh_metric());
        federation.global.put("/meshes/default/meshtrafficpermissions/vault-closed", &closed());
        federation.global.put(&format!("/meshes/default/meshretries/{RETRY}"), &retry());
        for zone in ["east", "west"] {
            for (path, name) in
                [("meshmetrics", "all"), ("meshtrafficpermissions", "vault-closed"), ("meshretries", RETRY)]
            {
                let known = hashed_name("default", name, None, None);
                federation.arrives(zone, &format!("/meshes/default/{path}/{known}"));
            }
        }
        federation.zone("east").put("/meshes/default/meshtimeouts/useless", &useless());
        let apps = own_address();
        let running = [("app", "http", 9001), ("ledger", "grpc", 9002), ("line", "tcp", 9003)]
            .map(|(name, protocol, port)| Service::start(name, protocol, (apps, port).into()).unwrap());
        let app = Service::start("far", "http", (own_address(), 9000).into()).unwrap();
        let far_address = own_address();
        let definition = dataplane("far", "far", far_address, "http", app.address);
        let proxy = federation.zone("west").proxy_with(&definition, &[UNIFIED]);
        let ingress = federation.ingress("west").0;
        // The egress has older names, the ingress unified ones.
        federation.unified = false;
        let egress = federation.egress("east");
        federation.knows("east", "far", "west");
        let files = tempfile::tempdir().unwrap();
        // No resolver is there.
        let resolvers = files.path().join("resolv.conf");
        fs::write(&resolvers, format!("nameserver {}\noptions timeout:1 attempts:1\n", own_address()))
            .unwrap();
        let mut fleet = Fleet {
            federation,
            sidecars: Vec::new(),
            _far: (app, proxy),
            far_address,
            zone_proxies: vec![
                ("gate-west", "west", "zone-ingress", ingress),
                ("exit-east", "east", "zone-egress", egress),
            ],
            _apps: running.into(),
            _files: files,
        };
        let resolvers = resolvers.display().to_string();
        for (name, next, variables) in [
            ("older", "newer", &[][..]),
            ("newer", "mixed", &[UNIFIED][..]),
            ("mixed", "older", &[UNIFIED][..]),
        ] {
            let http = if name == "mixed" { by_tags(next) } else { reference(next, 8080) };
            fleet.add(name, apps, http, variables, &resolvers);
        }
        fleet
    }

    fn add(
        &mut self,
        name: &'static str,
        apps: Ipv4Addr,
        http: Value,
        variables: &[(&str, &str)],
        resolvers: &str,
    ) {
        let address = own_address();
        let mut own = dataplane(name, name, address, "http", (apps, 9001).into());
        own = match name {
            "older" => with_inbound(own, "dead", 8081, "http", (apps, 1).into()),
            "newer" => with_inbound(own, "vault", 8082, "http", (apps, 9001).into()),
            _ => {
                own = with_inbound(own, "ledger", 8083, "grpc", (apps, 9002).into());
                own = with_inbound(own, "line", 8084, "tcp", (apps, 9003).into());
                with_inbound(own, "lost", 8085, "grpc", (apps, 1).into())
            }
        };
        let outbounds = [
            http,
            reference("dead", 8081),
            reference("vault", 8082),
            of_zone("far", "west"),
            reference("ledger", 8083),
            reference("line", 8084),
            reference("lost", 8085),
        ];
        for (port, target) in (10001..).zip(outbounds) {
            own = with_outbound(own, address, port, target);
        }
        let dns = own_port().unwrap();
        let port = dns.to_string();
        let mut all = vec![("KUMA_DNS_PROXY_PORT", port.as_str()), ("KUMA_DNS_RESOLV_CONF", resolvers)];
        all.extend(variables);
        let proxy = self.federation.zone("east").proxy_with(&own, &all);
        self.sidecars.push(Sidecar { name, address, proxy, dns });
    }

    /// Makes one call of each sort succeed or fail as it should, so that what follows can be counted.
    pub fn warm_up(&self) {
        for sidecar in &self.sidecars {
            sidecar.ask_for_name("nowhere.example");
            assert_eq!(answered_by(sidecar.address, 10001), "app");
            assert_eq!(answered_by(sidecar.address, 10004), "far");
            for (port, status) in [(10002, 503), (10003, 403)] {
                let mut last = String::new();
                eventually(&format!("{status} at {port} of {}", sidecar.name), || {
                    let answer = call(sidecar.address, port);
                    last = format!("{answer:?}");
                    answer.is_ok_and(|answer| answer.status == status)
                })
                .unwrap_or_else(|error| panic!("{error}: {last}\n{}", sidecar.proxy.log()));
            }
            eventually("gRPC", || {
                let answer = grpc::unary(sidecar.address, 10005, "/ledger.Book/Append", b"x");
                answer.is_ok_and(|answer| answer.trailers.contains_key("grpc-status"))
            })
            .unwrap();
            eventually("gRPC that fails", || {
                let answer = grpc::unary(sidecar.address, 10007, "/ledger.Book/Append", b"x");
                answer.is_ok_and(|answer| {
                    answer.headers.get("grpc-status").is_some_and(|status| status == "14")
                })
            })
            .unwrap();
            eventually("a line", || {
                call_tcp(sidecar.address, 10006, "hello").is_ok_and(|line| line.contains("line"))
            })
            .unwrap();
        }
    }

    /// Calls everything so often from each sidecar; the count of calls by caller and callee.
    pub fn load(&self, times: u32) -> BTreeMap<(&'static str, &'static str), u32> {
        let mut counted = BTreeMap::new();
        for sidecar in &self.sidecars {
            for (port, callee) in (10001..).zip(CALLEES) {
                // Denied and failing calls are fewer, so that no number is another one's by chance.
                let times = match callee {
                    "dead" => times / 4,
                    "vault" => times / 5,
                    "lost" => times / 2,
                    _ => times,
                };
                for _ in 0..times {
                    match callee {
                        "ledger" | "lost" => {
                            drop(grpc::unary(sidecar.address, port, "/ledger.Book/Append", b"x").unwrap())
                        }
                        "line" => drop(call_tcp(sidecar.address, port, "hello").unwrap()),
                        _ => drop(call(sidecar.address, port).unwrap()),
                    }
                }
                counted.insert((sidecar.name, callee), times);
            }
            sidecar.ask_for_name("nowhere.example");
        }
        counted
    }

    /// Jobs of Prometheus for everything here, with the labels that service discovery gives to its targets.
    pub fn jobs(&self) -> Value {
        let target = |at: SocketAddr, zone: &str, name: &str, role: &str| {
            json!({"targets": [at.to_string()], "labels": {"mesh": "default", "zone": zone, "dataplane": name,
                "service": name, "kuma_workload": name, "kuma_proxy_role": role}})
        };
        let page = |address: Ipv4Addr| SocketAddr::from((address, PAGE));
        let mut proxies: Vec<Value> = Vec::new();
        for sidecar in &self.sidecars {
            proxies.push(target(page(sidecar.address), "east", sidecar.name, "sidecar"));
        }
        proxies.push(target(page(self.far_address), "west", "far", "sidecar"));
        for (name, zone, role, proxy) in &self.zone_proxies {
            let at = SocketAddr::from(([127, 0, 0, 1], proxy.readiness_port()));
            let mut target = target(at, zone, name, role);
            // A zone proxy serves no service.
            target["labels"].as_object_mut().unwrap().retain(|label, _| label != "service");
            proxies.push(target);
        }
        let planes: Vec<String> = self.control_planes().map(|plane| diagnostics(plane).to_string()).into();
        json!([
            {"job_name": "kuma-dataplanes", "static_configs": proxies},
            {"job_name": "kuma-cp", "static_configs": [{"targets": planes}]},
        ])
    }

    /// The number of targets of [`Fleet::jobs`].
    pub fn targets(&self) -> usize {
        // And the proxy of `far`.
        self.sidecars.len() + 1 + self.zone_proxies.len() + self.control_planes().len()
    }

    fn control_planes(&self) -> [&ControlPlane; 3] {
        let zone = |name| &self.federation.zone(name).control_plane;
        [&self.federation.global.control_plane, zone("east"), zone("west")]
    }
}

fn diagnostics(control_plane: &ControlPlane) -> SocketAddr {
    ([127, 0, 0, 1], control_plane.ports()[1]).into()
}

impl Sidecar {
    /// Asks the agent for an address, and waits for its answer.
    fn ask_for_name(&self, name: &str) {
        let mut packet = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for part in name.split('.') {
            packet.push(u8::try_from(part.len()).unwrap());
            packet.extend(part.as_bytes());
        }
        packet.extend([0, 0, 1, 0, 1]);
        eventually(&format!("an answer about {name}"), || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket.send_to(&packet, ("127.0.0.1", self.dns)).unwrap();
            socket.recv(&mut [0; 512]).is_ok()
        })
        .unwrap();
    }
}
