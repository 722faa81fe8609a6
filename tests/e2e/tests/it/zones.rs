//! Traffic between zones through real zone proxies, in both schemes of names. The zones are not connected here: what
//! one knows of the other is written as synchronisation writes it.

use std::net::Ipv4Addr;

use e2e::{
    Setup, eventually,
    proxy::{Proxy, own_address},
    service::{Service, call},
};
use serde_json::{Value, json};

use crate::federated::{by_name, zone_proxy};
use crate::world::{UNIFIED, World, answered_by, client_with, everybody, mesh};

const PORT: u16 = 10001;

/// Two zones with one mesh and one authority. `east` calls, and `west` serves `backend`.
struct Zones {
    east: World,
    west: World,
    unified: bool,
    /// What runs in them.
    _running: Vec<(Option<Service>, Proxy)>,
}

fn zone(name: &str) -> Setup {
    Setup::default().with("KUMA_MULTIZONE_ZONE_NAME", name)
}

/// The mesh of both zones; traffic leaves through an egress where that is said.
fn of_zones(egress: bool) -> Value {
    let mut mesh = mesh("STRICT");
    mesh["routing"] = json!({"zoneEgress": egress});
    mesh
}

impl Zones {
    fn start(unified: bool, egress: bool) -> Zones {
        let (west, east) = (World::join(zone("west")), World::join(zone("east")));
        let mut zones = Zones { east, west, unified, _running: Vec::new() };
        zones.west.put("/meshes/default", &of_zones(egress));
        zones.west.put("/meshes/default/meshtrafficpermissions/everybody", &everybody("Allow"));
        zones.serve(true, "backend-west");
        zones.east.put("/meshes/default", &of_zones(egress));
        zones.east.put("/meshes/default/meshtrafficpermissions/everybody", &everybody("Allow"));
        for secret in get(&zones.west, "/meshes/default/secrets")["items"].as_array().unwrap() {
            let (name, data) = (secret["name"].as_str().unwrap(), &secret["data"]);
            if name.contains("ca-builtin") {
                let copy = json!({"type": "Secret", "mesh": "default", "name": name, "data": data});
                zones.east.put(&format!("/meshes/default/secrets/{name}"), &copy);
            }
        }
        let ingress = zones.ingress();
        zones.east.put("/zoneingresses/gate-west", &ingress);
        zones.synchronise();
        zones
    }

    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        if self.unified { vec![UNIFIED] } else { Vec::new() }
    }

    /// An instance of `backend` in one of the zones.
    fn serve(&mut self, west: bool, name: &str) {
        let world = if west { &self.west } else { &self.east };
        let (app, proxy, _) = world.service(name, "backend", "http");
        self._running.push((Some(app), proxy));
    }

    /// The ingress of `west`, as other zones know it.
    fn ingress(&mut self) -> Value {
        let address = own_address();
        let definition = json!({
            "type": "ZoneIngress", "name": "gate",
            "networking": {
                "address": address, "port": PORT, "advertisedAddress": address, "advertisedPort": PORT
            }
        });
        let proxy = zone_proxy(&self.west, &self.west, ("west", "ingress"), &definition, &self.variables());
        self._running.push((None, proxy));
        let mut known = definition;
        known["zone"] = json!("west");
        known["name"] = json!("gate-west");
        known
    }

    fn egress(&mut self) -> usize {
        let definition = json!({
            "type": "ZoneEgress", "name": "exit", "networking": {"address": own_address(), "port": PORT + 1}
        });
        let proxy = zone_proxy(&self.east, &self.east, ("east", "egress"), &definition, &self.variables());
        self._running.push((None, proxy));
        self._running.len() - 1
    }

    /// Lets `east` know one more zone that has `backend`, and whose ingress does not answer.
    fn lose(&self, zone: &str) {
        let address = own_address();
        let networking = json!({
            "address": address, "port": PORT, "advertisedAddress": address, "advertisedPort": PORT
        });
        let ingress = json!({"type": "ZoneIngress", "name": format!("gate-{zone}"), "zone": zone,
            "networking": networking});
        self.east.put(&format!("/zoneingresses/gate-{zone}"), &ingress);
        let mut service = get(&self.east, "/meshes/default/meshservices/backend-of-west");
        let name = format!("backend-of-{zone}");
        service["name"] = json!(name);
        service["labels"]["kuma.io/zone"] = json!(zone);
        for computed in ["status", "kri", "snis", "creationTime", "modificationTime"] {
            service.as_object_mut().unwrap().remove(computed);
        }
        for port in service["spec"]["ports"].as_array_mut().unwrap() {
            // A name of its own, as a federated zone gives one.
            port["snis"] = json!([{"value": format!("{zone}.example")}]);
        }
        self.east.put(&format!("/meshes/default/meshservices/{name}"), &service);
    }

    /// Copies `backend` of `west` to `east` as it comes there.
    fn synchronise(&self) {
        let path = "/meshes/default/meshservices/backend";
        let mut service = Value::Null;
        eventually("the service of the other zone", || {
            let Ok(answer) = self.west.control_plane.client().get(path) else { return false };
            service = answer.json();
            service["spec"]["identities"].as_array().is_some_and(|identities| !identities.is_empty())
        })
        .unwrap();
        service["name"] = json!("backend-of-west");
        service["labels"]["kuma.io/origin"] = json!("global");
        service["labels"]["kuma.io/display-name"] = json!("backend");
        service["labels"]["kuma.io/zone"] = json!("west");
        for computed in ["status", "kri", "snis", "creationTime", "modificationTime"] {
            service.as_object_mut().unwrap().remove(computed);
        }
        self.east.put("/meshes/default/meshservices/backend-of-west", &service);
    }

    fn client(&self, targets: &[Value]) -> (Proxy, Ipv4Addr) {
        client_with(&self.east, "client", targets, &self.variables())
    }

    /// The name of a destination's cluster in the scheme of these proxies.
    fn cluster<'n>(&self, unified: &'n str, legacy: &'n str) -> &'n str {
        if self.unified { unified } else { legacy }
    }
}

fn get(world: &World, path: &str) -> Value {
    world.control_plane.client().get(path).unwrap().json()
}

fn of_west() -> Value {
    let labels = json!({"kuma.io/display-name": "backend", "kuma.io/zone": "west"});
    json!({"backendRef": {"kind": "MeshService", "labels": labels, "port": 8080}})
}

fn everywhere() -> Value {
    json!({"type": "MeshMultiZoneService", "mesh": "default", "name": "everywhere", "spec": {
        "selector": {"meshService": {"matchLabels": {"kuma.io/display-name": "backend"}}},
        "ports": [{"name": "main", "port": 8080, "appProtocol": "http"}]}})
}

/// Policies by which `everywhere` is called in all zones alike.
fn all_zones_alike() -> Value {
    let to = json!([{"targetRef": {"kind": "MeshMultiZoneService", "name": "everywhere"},
        "default": {"localityAwareness": {"disabled": true}}}]);
    // As one that comes from a global control plane, where the service comes from.
    json!({"type": "MeshLoadBalancingStrategy", "mesh": "default", "name": "alike",
        "labels": {"kuma.io/origin": "global"}, "spec": {"targetRef": {"kind": "Mesh"}, "to": to}})
}

/// Connections are made anew all the time.
fn short() -> Value {
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"http": {"maxConnectionDuration": "20ms"}}}]);
    json!({"type": "MeshTimeout", "mesh": "default", "name": "short", "spec": {"to": to}})
}

/// One failure is enough to call an endpoint no more, also if none is left.
fn strict() -> Value {
    let detection = json!({"interval": "1s", "baseEjectionTime": "60s", "maxEjectionPercent": 100,
        "healthyPanicThreshold": 0, "detectors": {"totalFailures": {"consecutive": 1}}});
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"outlierDetection": detection}}]);
    json!({"type": "MeshCircuitBreaker", "mesh": "default", "name": "strict", "spec": {"to": to}})
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
        last = names.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        last == expected
    })
    .unwrap_or_else(|error| panic!("{error}: {last:?}"));
}

fn through_an_ingress(unified: bool) {
    let mut zones = Zones::start(unified, false);
    for world in [&zones.east, &zones.west] {
        world.put("/meshes/default/meshmultizoneservices/everywhere", &everywhere());
    }
    let (web, address) = zones.client(&[of_west(), by_name("MeshMultiZoneService", "everywhere", 8080)]);
    assert_eq!(answered_by(address, 10001), "backend-west");
    let cluster = zones.cluster("kri_msvc_default_west__backend_main", "default_backend__west_msvc_8080");
    assert!(web.stat(&format!("cluster.{cluster}.upstream_cx_total")).unwrap() > 0);
    let (_, gate) = &zones._running[1];
    assert!(gate.stat(&format!("cluster.{cluster}.upstream_cx_total")).unwrap() > 0);
    assert!(gate.stat(&format!("tcp.{cluster}.downstream_cx_total")).unwrap() > 0);

    // Where it is served in another zone only, it is called there; once it is here, here.
    assert_eq!(answered_by(address, 10002), "backend-west");
    let everywhere = zones.cluster("kri_mzsvc_default___everywhere_main", "default_everywhere___mzsvc_8080");
    assert!(gate.stat(&format!("cluster.{everywhere}.upstream_cx_total")).unwrap() > 0);
    zones.serve(false, "backend-east");
    answered_by_all(address, 10002, &["backend-east"]);
    zones.east.put("/meshes/default/meshloadbalancingstrategies/alike", &all_zones_alike());
    answered_by_all(address, 10002, &["backend-east", "backend-west"]);
    assert_eq!(answered_by(address, 10001), "backend-west");
}

#[test]
fn another_zone_is_called_through_its_ingress_with_older_names() {
    through_an_ingress(false);
}

#[test]
fn another_zone_is_called_through_its_ingress_with_unified_names() {
    through_an_ingress(true);
}

fn through_an_egress(unified: bool) {
    let mut zones = Zones::start(unified, true);
    let exit = zones.egress();
    zones.east.put("/meshes/default/meshmultizoneservices/everywhere", &everywhere());
    zones.west.put("/meshes/default/meshmultizoneservices/everywhere", &everywhere());
    let outside = Service::start("outside", "http", (own_address(), 9000).into()).unwrap();
    let external = json!({"type": "MeshExternalService", "mesh": "default", "name": "outside", "spec": {
        "match": {"type": "HostnameGenerator", "port": 9000, "protocol": "http"},
        "endpoints": [{"address": outside.address.ip().to_string(), "port": 9000}]}});
    zones.east.put("/meshes/default/meshexternalservices/outside", &external);
    let (_web, address) = zones.client(&[
        of_west(),
        by_name("MeshMultiZoneService", "everywhere", 8080),
        by_name("MeshExternalService", "outside", 9000),
    ]);
    assert_eq!(answered_by(address, 10001), "backend-west");
    assert_eq!(answered_by(address, 10002), "backend-west");
    assert_eq!(answered_by(address, 10003), "outside");
    for cluster in [
        zones.cluster("kri_msvc_default_west__backend_main", "default_backend__west_msvc_8080"),
        zones.cluster("kri_mzsvc_default___everywhere_main", "default_everywhere___mzsvc_8080"),
        zones.cluster("kri_extsvc_default_east__outside_9000", "default_outside__east_extsvc_9000"),
    ] {
        let (_, exit) = &zones._running[exit];
        let stat = format!("cluster.{cluster}.upstream_cx_total");
        assert!(exit.stat(&stat).unwrap() > 0, "{stat}: {}", exit.admin("/stats?usedonly").unwrap());
    }

    zones.serve(false, "backend-east");
    answered_by_all(address, 10002, &["backend-east"]);
    zones.east.put("/meshes/default/meshloadbalancingstrategies/alike", &all_zones_alike());
    answered_by_all(address, 10002, &["backend-east", "backend-west"]);

    // A zone that is lost takes no other one along, however little failing is tolerated.
    zones.lose("north");
    zones.east.put("/meshes/default/meshcircuitbreakers/strict", &strict());
    zones.east.put("/meshes/default/meshtimeouts/short", &short());
    let (_, exit) = &zones._running[exit];
    let everywhere = zones.cluster("kri_mzsvc_default___everywhere_main", "default_everywhere___mzsvc_8080");
    let failures = format!("cluster.{everywhere}.upstream_cx_connect_fail");
    eventually("the lost zone to be tried", || {
        let answer = call(address, 10002);
        assert!(answer.as_ref().is_ok_and(|answer| answer.status == 200), "{answer:?}");
        exit.stat(&failures).is_ok_and(|count| count > 0)
    })
    .unwrap();
    answered_by_all(address, 10002, &["backend-east", "backend-west"]);

    let mut forbidding = of_zones(true);
    forbidding["routing"]["defaultForbidMeshExternalServiceAccess"] = json!(true);
    zones.east.put("/meshes/default", &forbidding);
    eventually("what is outside to be forbidden", || {
        call(address, 10003).is_ok_and(|answer| answer.status == 403)
    })
    .unwrap();
    assert_eq!(answered_by(address, 10001), "backend-west");
}

#[test]
fn what_leaves_a_zone_goes_through_its_egress_with_older_names() {
    through_an_egress(false);
}

#[test]
fn what_leaves_a_zone_goes_through_its_egress_with_unified_names() {
    through_an_egress(true);
}
