//! A global control plane and a zone as processes of their own: what arrives, and what survives `kill -9`.

use e2e::{
    ControlPlane, Kumactl, Setup, eventually, own_port,
    proxy::{Options, RunningProxy, own_address},
    service::{self, Service, call, with_outbound},
};
use resources::naming::kds::hashed_name;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use testkit::build::{dataplane, mesh};

use crate::{federated::joining, world::by_reference};

struct Zones {
    global: ControlPlane,
    east: ControlPlane,
    _dirs: [TempDir; 2],
}

impl Zones {
    fn start() -> Zones {
        let dirs = [tempdir().unwrap(), tempdir().unwrap()];
        let port = own_port().unwrap();
        let setup = Setup::default()
            .with("KUMA_MODE", "global")
            .with("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", port.to_string());
        let global = ControlPlane::start(dirs[0].path(), setup).unwrap();
        let east = ControlPlane::start(dirs[1].path(), joining("east", &global, port)).unwrap();
        let zones = Zones { global, east, _dirs: dirs };
        zones.arrives(&zones.east, "/meshes/default/secrets/dataplane-token-signing-key-default-1");
        // Of what comes with the mesh this is sent last.
        let last = hashed_name("default", "mesh-timeout-all-default", None, None);
        zones.arrives(&zones.east, &format!("/meshes/default/meshtimeouts/{last}"));
        zones
    }

    fn arrives(&self, control_plane: &ControlPlane, path: &str) {
        let client = control_plane.client();
        eventually(path, || client.get(path).is_ok_and(|answer| answer.status == 200))
            .unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.global.log(), self.east.log()));
    }

    fn put(&self, control_plane: &ControlPlane, path: &str, body: &Value) {
        let answer = control_plane.client().put(path, body).unwrap();
        assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.body);
    }
}

fn names(control_plane: &ControlPlane, path: &str) -> Vec<String> {
    let list = control_plane.client().get(path).unwrap().json();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn web() -> Value {
    let web = dataplane("web").address(&own_address().to_string());
    web.inbound(8080).service("web").tag("kuma.io/protocol", "http").json()
}

fn on_global(name: &str) -> String {
    hashed_name("default", name, Some("east"), None)
}

#[test]
fn a_mesh_comes_to_the_zone_and_global_sees_and_asks_its_proxies() {
    let zones = Zones::start();
    let mesh = mesh("default").services("Exclusive").authority("ca", "STRICT");
    zones.put(&zones.global, "/meshes/default", &mesh.json());
    // The authority is made once, for all zones.
    zones.arrives(&zones.east, "/meshes/default/secrets/default.ca-builtin-cert-ca");
    let web = RunningProxy::start(&zones.east, &web(), &Options::default()).unwrap();

    let there = format!("/meshes/default/dataplanes/{}", on_global("web"));
    zones.arrives(&zones.global, &there);
    let service = format!("/meshes/default/meshservices/{}", on_global("web"));
    zones.arrives(&zones.global, &service);
    let global = zones.global.client();
    let stored = global.get(&service).unwrap().json();
    assert_eq!(stored["labels"]["kuma.io/zone"], "east");
    assert_eq!(stored["labels"]["kuma.io/display-name"], "web");
    eventually("global sees that the proxy is connected", || {
        let overview = global.get(&format!("{there}/_overview")).unwrap().json();
        let latest =
            overview["dataplaneInsight"]["subscriptions"].as_array().and_then(|all| all.last().cloned());
        latest.is_some_and(|latest| latest["connectTime"].is_string() && latest["disconnectTime"].is_null())
    })
    .unwrap();
    for (view, expected) in [("xds", "configs"), ("stats", "server.live: 1"), ("clusters", "::")] {
        let answer = global.get(&format!("{there}/{view}")).unwrap();
        assert_eq!(answer.status, 200, "{view}: {}", answer.body);
        assert!(answer.body.contains(expected), "{view}: {}", answer.body);
    }
    let kumactl = Kumactl::of(&zones.global).unwrap();
    let shown = kumactl.run(&["inspect", "zones"]).unwrap();
    let table = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(table.contains("east") && table.contains("Online"), "{table}");
    drop(web);
}

#[test]
fn kills_of_either_control_plane_delete_nothing_and_both_come_back() {
    let mut zones = Zones::start();
    zones.put(&zones.east, "/meshes/default/dataplanes/web", &web());
    zones.arrives(&zones.global, &format!("/meshes/default/dataplanes/{}", on_global("web")));
    let seen = |zones: &Zones| {
        let lists = [
            "/meshes",
            "/meshtimeouts",
            "/meshretries",
            "/meshcircuitbreakers",
            "/dataplanes",
            "/meshservices",
        ];
        lists.map(|list| (names(&zones.global, list), names(&zones.east, list)))
    };
    zones.arrives(&zones.global, &format!("/meshes/default/meshservices/{}", on_global("web")));
    let before = seen(&zones);

    zones.global.kill().unwrap();
    zones.east.kill().unwrap();
    zones.east.start_again().unwrap();
    let alone: Vec<_> = before.iter().map(|(_, east)| east.clone()).collect();
    let lists =
        ["/meshes", "/meshtimeouts", "/meshretries", "/meshcircuitbreakers", "/dataplanes", "/meshservices"];
    assert_eq!(lists.map(|list| names(&zones.east, list)).to_vec(), alone, "without global");

    zones.global.start_again().unwrap();
    let path = "/meshes/default/meshtimeouts/after";
    let policy = json!({ "type": "MeshTimeout", "mesh": "default", "name": "after",
        "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "7s" } }] } });
    zones.put(&zones.global, path, &policy);
    let there = hashed_name("default", "after", None, None);
    zones.arrives(&zones.east, &format!("/meshes/default/meshtimeouts/{there}"));
    assert_eq!(zones.global.client().delete(path).unwrap().status, 200);
    let east = zones.east.client();
    eventually("the policy is gone again", || {
        east.get(&format!("/meshes/default/meshtimeouts/{there}")).is_ok_and(|answer| answer.status == 404)
    })
    .unwrap();
    assert_eq!(seen(&zones), before);

    zones.east.kill().unwrap();
    zones.east.start_again().unwrap();
    let kumactl = Kumactl::of(&zones.global).unwrap();
    eventually("the zone is online again", || {
        let shown = kumactl.run(&["inspect", "zones"]).unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("Online")
    })
    .unwrap();
    assert_eq!(seen(&zones), before);
}

#[test]
fn an_identity_of_global_holds_in_its_zone_and_refuses_plain_clients() {
    let zones = Zones::start();
    let bundled = json!({ "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true });
    let identity = |provider: Value| {
        json!({ "type": "MeshIdentity", "mesh": "default", "name": "all",
            "spec": { "selector": { "dataplane": {} }, "provider": provider } })
    };
    let labelled = |mut dataplane: Value| {
        dataplane["labels"] = json!({ "kuma.io/workload": dataplane["name"] });
        dataplane
    };
    let app = Service::start("web", "http", (own_address(), 9000).into()).unwrap();
    let at = own_address();
    let address = own_address();
    let web = service::dataplane("web", "web", at, "http", app.address);
    let web = RunningProxy::start(&zones.east, &labelled(web), &Options::default()).unwrap();
    let own = service::dataplane("client", "client", address, "http", (own_address(), 9000).into());
    let own = labelled(with_outbound(own, address, 10001, by_reference("web")));
    let client = RunningProxy::start(&zones.east, &own, &Options::default()).unwrap();
    let plain = || call(at, 8080).map(|answer| answer.status);
    eventually("the mesh has no TLS", || plain().is_ok_and(|status| status == 200)).unwrap();

    // Nothing signs: the server cannot show a certificate, and does not go on without one.
    let path = "/meshes/default/meshidentities/all";
    zones.put(&zones.global, path, &identity(json!({ "type": "Spire", "spire": {} })));
    eventually("plain clients are refused meanwhile", || plain().is_err()).unwrap();
    zones.put(&zones.global, path, &identity(json!({ "type": "Bundled", "bundled": bundled })));
    let allow = json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": "clients", "spec": {
        "targetRef": { "kind": "Mesh" },
        "rules": [{ "default": { "allow": [{ "spiffeID":
            { "type": "Exact", "value": "spiffe://default.east.mesh.local/workload/client" } }] } }] } });
    zones.put(&zones.global, "/meshes/default/meshtrafficpermissions/clients", &allow);
    let shows = |proxy: &RunningProxy, name: &str| {
        let id = format!("spiffe://default.east.mesh.local/workload/{name}");
        eventually(&id, || proxy.admin("/certs").is_ok_and(|certs| certs.contains(&id)))
            .unwrap_or_else(|error| panic!("{error}\n{}", zones.east.log()));
    };
    shows(&web, "web");
    shows(&client, "client");
    eventually("a client with an identity is let in", || {
        call(address, 10001).is_ok_and(|answer| answer.status == 200)
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", zones.east.log()));
    assert!(plain().is_err(), "and one without still is not");
}
