//! The scenarios of several zones that consistent naming is complete with: zones that are synchronised, real zone
//! proxies, names read from live configuration and statistics, in both schemes.
//!
//! The topologies follow each other in one federation: ingresses only, an egress in one of the zones, egresses in both.

mod failover;
pub mod live;
mod lost_zone;
mod multi_zone;

use std::{collections::BTreeSet, net::Ipv4Addr};

use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call},
};
use serde_json::{Value, json};

use crate::{
    federated::{EGRESS, Federation, INGRESS, by_name, of_zone, zone_proxy},
    scenarios::live::{NamedDestination, ProxyListener, Scheme},
    world::{UNIFIED, World, answered_by, client_with, mesh},
};

const BACKEND_EAST: NamedDestination = NamedDestination {
    unified: "kri_msvc_default_east__backend_main",
    legacy: "default_backend__east_msvc_8080",
    sni: "a1d9f6e8b5930fbfd.backend.8080.default.ms",
};
const BACKEND_WEST: NamedDestination = NamedDestination {
    unified: "kri_msvc_default_west__backend_main",
    legacy: "default_backend__west_msvc_8080",
    sni: "ae69492141aad8ba7.backend.8080.default.ms",
};
const EVERYWHERE: NamedDestination = NamedDestination {
    unified: "kri_mzsvc_default___everywhere_main",
    legacy: "default_everywhere___mzsvc_8080",
    sni: "a6dbd24d8cbf197be.everywhere.8080.default.mzms",
};
const OUTSIDE: NamedDestination = NamedDestination {
    unified: "kri_extsvc_default___outside_9000",
    legacy: "default_outside___extsvc_9000",
    sni: "ac055664892d2a7e7.outside.9000.default.mes",
};
/// The same in a zone that has no global control plane.
const OUTSIDE_OF_EAST: NamedDestination = NamedDestination {
    unified: "kri_extsvc_default_east__outside_9000",
    legacy: "default_outside__east_extsvc_9000",
    ..OUTSIDE
};

/// All services called `backend`, as one.
fn everywhere() -> Value {
    json!({"type": "MeshMultiZoneService", "mesh": "default", "name": "everywhere", "spec": {
        "selector": {"meshService": {"matchLabels": {"kuma.io/display-name": "backend"}}},
        "ports": [{"name": "main", "port": 8080, "appProtocol": "http"}]}})
}

/// Load balancing of `everywhere`.
fn balanced(locality: &Value) -> Value {
    let to = json!([{"targetRef": {"kind": "MeshMultiZoneService", "name": "everywhere"},
        "default": {"localityAwareness": locality}}]);
    json!({"type": "MeshLoadBalancingStrategy", "mesh": "default", "name": "balance",
        "spec": {"targetRef": {"kind": "Mesh"}, "to": to}})
}

fn outside(app: &Service) -> Value {
    json!({"type": "MeshExternalService", "mesh": "default", "name": "outside", "spec": {
        "match": {"type": "HostnameGenerator", "port": 9000, "protocol": "http"},
        "endpoints": [{"address": app.address.ip().to_string(), "port": 9000}]}})
}

fn routed(routing: &Value) -> Value {
    let mut mesh = mesh("STRICT");
    mesh["routing"] = routing.clone();
    mesh
}

/// Waits until all of these answer, and no others.
fn answered_by_all(address: Ipv4Addr, port: u16, expected: &[&str]) {
    let mut last = Vec::new();
    eventually("all of them to answer", || {
        let names = (0..30).map(|_| match call(address, port) {
            Ok(answer) if answer.status == 200 => {
                answer.json()["name"].as_str().unwrap_or_default().to_owned()
            }
            other => format!("{other:?}"),
        });
        last = names.collect::<BTreeSet<_>>().into_iter().collect();
        last == expected
    })
    .unwrap_or_else(|error| panic!("{error}: {last:?}, not {expected:?}"));
}

/// Calls until a proxy in between has seen it under this name.
fn passes(address: Ipv4Addr, port: u16, through: &RunningProxy, statistic: &str) {
    let before = through.stat(statistic).unwrap();
    eventually(&format!("traffic at {address}:{port} to be counted as {statistic}"), || {
        answered_by(address, port);
        through.stat(statistic).unwrap() > before
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", through.admin("/stats?usedonly").unwrap()));
}

/// Two zones with an instance of `backend` and an ingress each, and a client that calls what there is.
struct Zones {
    federation: Federation,
    scheme: Scheme,
    east: Zone,
    west: Zone,
}

struct Zone {
    backend: Option<(Service, RunningProxy)>,
    gate: (RunningProxy, Ipv4Addr),
    /// Ports of the client: 10001 is the other zone's `backend`, 10002 `everywhere`, 10003 `outside`.
    client: (RunningProxy, Ipv4Addr),
}

impl Zone {
    fn start(federation: &Federation, name: &str, other: &str) -> Zone {
        let targets = [
            of_zone("backend", other),
            by_name("MeshMultiZoneService", "everywhere", 8080),
            by_name("MeshExternalService", "outside", 9000),
        ];
        Zone {
            backend: Some(federation.serve(name, &format!("backend-{name}"), "backend")),
            gate: federation.ingress(name),
            // What it calls comes later.
            client: federation.client(name, &format!("client-{name}"), &targets),
        }
    }

    fn at(&self) -> Ipv4Addr {
        self.client.1
    }
}

impl Zones {
    fn start(unified: bool) -> Zones {
        let federation = Federation::start(&["east", "west"], unified);
        let (east, west) =
            (Zone::start(&federation, "east", "west"), Zone::start(&federation, "west", "east"));
        federation.global.put("/meshes/default/meshmultizoneservices/everywhere", &everywhere());
        Zones { federation, scheme: Scheme { unified }, east, west }
    }

    /// The statistic that grows whenever a destination answers.
    fn answers_of(&self, target: NamedDestination) -> String {
        format!("cluster.{}.upstream_cx_rx_bytes_total", self.federation.named(target.unified, target.legacy))
    }

    fn mesh(&self, routing: &Value) {
        self.federation.global.put("/meshes/default", &routed(routing));
    }

    /// `everywhere` is called in the client's zone; where a policy says so, in all zones alike.
    fn everywhere_is_near_and_where_wanted_everywhere(&self) {
        let east = self.east.at();
        let west = self.west.at();
        answered_by_all(east, 10002, &["backend-east"]);
        answered_by_all(west, 10002, &["backend-west"]);
        let path = "/meshes/default/meshloadbalancingstrategies/balance";
        self.federation.global.put(path, &balanced(&json!({"disabled": true})));
        answered_by_all(east, 10002, &["backend-east", "backend-west"]);
        answered_by_all(west, 10002, &["backend-east", "backend-west"]);
        assert_eq!(self.federation.global.control_plane.client().delete(path).unwrap().status, 200);
        answered_by_all(east, 10002, &["backend-east"]);
        answered_by_all(west, 10002, &["backend-west"]);
    }

    fn ingresses_only(&self) {
        let Zones { scheme, east, west, .. } = self;
        assert_eq!(answered_by(east.at(), 10001), "backend-west");
        assert_eq!(answered_by(west.at(), 10001), "backend-east");
        self.everywhere_is_near_and_where_wanted_everywhere();

        let client = ProxyListener::client(&east.client.0, east.at());
        scheme.calls(client, 10001, BACKEND_WEST);
        scheme.calls(client, 10002, EVERYWHERE);
        let gate = ProxyListener::zone_proxy(&west.gate.0, west.gate.1, INGRESS);
        scheme.passes_on(gate, BACKEND_WEST);
        scheme.passes_on(gate, EVERYWHERE);
        scheme.has_no_other_names(client.proxy);
        scheme.has_no_other_names(gate.proxy);
    }

    /// The zone with the egress leaves through it; the other one goes on calling ingresses itself, as there is no
    /// other way for it.
    fn an_egress_in_one_zone(&self, exit: &RunningProxy, app: &Service) {
        let Zones { east, west, federation, .. } = self;
        federation.global.put("/meshes/default/meshexternalservices/outside", &outside(app));
        self.mesh(&json!({"zoneEgress": true}));
        passes(east.at(), 10001, exit, &self.answers_of(BACKEND_WEST));
        assert_eq!(answered_by(east.at(), 10003), "outside");
        eventually("what is outside not to be called without an egress", || {
            call(west.at(), 10003).is_ok_and(|answer| answer.status == 503)
        })
        .unwrap();
        passes(west.at(), 10001, &east.gate.0, &self.answers_of(BACKEND_EAST));
        self.everywhere_is_near_and_where_wanted_everywhere();
    }

    fn egresses_in_both_zones(&mut self, exit: ProxyListener<'_>, exit_west: &RunningProxy) {
        let west = self.west.at();
        passes(west, 10001, exit_west, &self.answers_of(BACKEND_EAST));
        assert_eq!(answered_by(west, 10003), "outside");
        self.everywhere_is_near_and_where_wanted_everywhere();

        let Zones { scheme, east, .. } = self;
        let client = ProxyListener::client(&east.client.0, east.at());
        for (port, target) in [(10001, BACKEND_WEST), (10002, EVERYWHERE), (10003, OUTSIDE)] {
            scheme.calls(client, port, target);
        }
        scheme.passes_on(exit, BACKEND_WEST);
        scheme.passes_on(exit, EVERYWHERE);
        scheme.leads_out(exit, OUTSIDE);
        scheme.has_no_other_names(exit.proxy);

        // The only instance is in the other zone now.
        self.east.backend = None;
        answered_by_all(self.east.at(), 10002, &["backend-west"]);
        self.mesh(&json!({"zoneEgress": true, "defaultForbidMeshExternalServiceAccess": true}));
        eventually("what is outside to be forbidden", || {
            call(self.east.at(), 10003).is_ok_and(|answer| answer.status == 403)
        })
        .unwrap();
        assert_eq!(answered_by(self.east.at(), 10001), "backend-west");
    }
}

fn two_zones(unified: bool) {
    let mut zones = Zones::start(unified);
    zones.ingresses_only();
    let app = Service::start("outside", "http", (own_address(), 9000).into()).unwrap();
    let east = zones.federation.egress_at("east");
    zones.an_egress_in_one_zone(&east.0, &app);
    let west = zones.federation.egress("west");
    zones.egresses_in_both_zones(ProxyListener::zone_proxy(&east.0, east.1, EGRESS), &west);
}

#[test]
fn two_zones_call_through_ingresses_and_egresses_with_legacy_names() {
    two_zones(false);
}

#[test]
fn two_zones_call_through_ingresses_and_egresses_with_unified_names() {
    two_zones(true);
}

/// A zone without a global control plane: services are called directly, and what is outside through the egress.
fn one_zone(unified: bool) {
    let scheme = Scheme { unified };
    let variables = if unified { vec![UNIFIED] } else { Vec::new() };
    let world = World::start(Setup::default().with("KUMA_MULTIZONE_ZONE_NAME", "east"));
    world.put("/meshes/default", &routed(&json!({"zoneEgress": true})));
    let (_app, _backend, _) = world.service("backend-east", "backend", "http");
    let app = Service::start("outside", "http", (own_address(), 9000).into()).unwrap();
    world.put("/meshes/default/meshexternalservices/outside", &outside(&app));
    let address = own_address();
    let definition = json!({"type": "ZoneEgress", "name": "exit",
        "networking": {"address": address, "port": EGRESS}});
    let exit = zone_proxy(&world, &world, ("east", "egress"), &definition, &variables);
    let targets = [by_name("MeshService", "backend", 8080), by_name("MeshExternalService", "outside", 9000)];
    let (client, at) = client_with(&world, "client", &targets, &variables);
    assert_eq!(answered_by(at, 10001), "backend-east");
    assert_eq!(answered_by(at, 10002), "outside");

    let client = ProxyListener::client(&client, at);
    scheme.calls(
        client,
        10001,
        NamedDestination { sni: "a601e0c00295a9fbe.backend.8080.default.ms", ..BACKEND_EAST },
    );
    scheme.calls(client, 10002, OUTSIDE_OF_EAST);
    scheme.leads_out(ProxyListener::zone_proxy(&exit, address, EGRESS), OUTSIDE_OF_EAST);
    scheme.has_no_other_names(client.proxy);
    scheme.has_no_other_names(&exit);
}

#[test]
fn one_zone_calls_its_services_and_what_is_outside_with_older_names() {
    one_zone(false);
}

#[test]
fn one_zone_calls_its_services_and_what_is_outside_with_unified_names() {
    one_zone(true);
}
