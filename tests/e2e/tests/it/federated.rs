//! Several zones under one global control plane, as processes of their own that are synchronised.

use std::{collections::BTreeMap, net::Ipv4Addr};

use e2e::{
    ControlPlane, Setup, eventually, own_port,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, dataplane},
};
use resources::naming::kds::hashed_name;
use serde_json::{Value, json};

use crate::world::{UNIFIED, World, client_with, every_client, mesh};

/// The ports of zone proxies, each at an address of its own.
pub const INGRESS: u16 = 10001;
pub const EGRESS: u16 = 10002;

/// A global control plane and its zones. Their mesh `default` has mutual TLS, and every service may call every other.
pub struct Federation {
    pub global: World,
    zones: BTreeMap<&'static str, World>,
    /// Gives unified names to the proxies that it starts.
    pub unified: bool,
}

impl Federation {
    /// Starts all of them, and waits until every zone has the mesh, its authority and its permission.
    pub fn start(zones: &[&'static str], unified: bool) -> Federation {
        Federation::start_with(zones, unified, |_, setup| setup)
    }

    /// The same with more settings: `setup` gets `global` or the name of the zone.
    pub fn start_with(
        zones: &[&'static str],
        unified: bool,
        setup: impl Fn(&str, Setup) -> Setup,
    ) -> Federation {
        let port = own_port().unwrap();
        let of_global = Setup::default()
            .with("KUMA_MODE", "global")
            .with("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", port.to_string());
        let global = World::join(setup("global", of_global));
        global.put("/meshes/default", &mesh("STRICT"));
        global.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("Allow"));
        let zone = |&name: &&'static str| {
            let joining = setup(name, joining(name, &global.control_plane, port));
            (name, World::join(joining))
        };
        let zones = zones.iter().map(zone).collect();
        let federation = Federation { global, zones, unified };
        for zone in federation.zones.keys() {
            federation.arrives(zone, "/meshes/default/secrets/default.ca-builtin-cert-ca-1");
            federation.arrives(zone, "/meshes/default/secrets/default.ca-builtin-key-ca-1");
            let permission = hashed_name("default", "every-client", None, None);
            federation.arrives(zone, &format!("/meshes/default/meshtrafficpermissions/{permission}"));
        }
        federation
    }

    pub fn zone(&self, name: &str) -> &World {
        &self.zones[name]
    }

    pub fn zone_mut(&mut self, name: &str) -> &mut World {
        self.zones.get_mut(name).unwrap()
    }

    /// Waits until a zone has a resource.
    pub fn arrives(&self, zone: &str, path: &str) {
        let control_plane = &self.zone(zone).control_plane;
        let client = control_plane.client();
        eventually(&format!("{path} in {zone}"), || {
            client.get(path).is_ok_and(|answer| answer.status == 200)
        })
        .unwrap_or_else(|error| {
            panic!("{error}\n{}\n{}", self.global.control_plane.log(), control_plane.log())
        });
    }

    /// Waits until a zone knows a MeshService of another one.
    pub fn knows(&self, zone: &str, service: &str, of: &str) {
        let name = hashed_name("default", service, Some(of), None);
        self.arrives(zone, &format!("/meshes/default/meshservices/{name}"));
    }

    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        if self.unified { vec![UNIFIED] } else { Vec::new() }
    }

    /// An instance of a service in a zone.
    pub fn serve(&self, zone: &str, name: &str, service: &str) -> (Service, RunningProxy) {
        let app = Service::start(name, "http", (own_address(), 9000).into()).unwrap();
        let definition = dataplane(name, service, own_address(), "http", app.address);
        let proxy = self.zone(zone).proxy_with(&definition, &self.variables());
        (app, proxy)
    }

    /// A proxy in a zone that only calls others: its outbounds are at ports 10001, 10002, … of its address.
    pub fn client(&self, zone: &str, name: &str, targets: &[Value]) -> (RunningProxy, Ipv4Addr) {
        client_with(self.zone(zone), name, targets, &self.variables())
    }

    /// Starts a zone's ingress, and waits until every other zone knows it.
    pub fn ingress(&self, zone: &str) -> (RunningProxy, Ipv4Addr) {
        let address = own_address();
        let networking = json!({
            "address": address, "port": INGRESS, "advertisedAddress": address, "advertisedPort": INGRESS
        });
        let definition =
            json!({"type": "ZoneIngress", "name": format!("gate-{zone}"), "networking": networking});
        let proxy =
            zone_proxy(&self.global, self.zone(zone), (zone, "ingress"), &definition, &self.variables());
        let known = hashed_name("", &format!("gate-{zone}"), Some(zone), None);
        for other in self.zones.keys().filter(|other| **other != zone) {
            self.arrives(other, &format!("/zoneingresses/{known}"));
        }
        (proxy, address)
    }

    pub fn egress(&self, zone: &str) -> RunningProxy {
        self.egress_at(zone).0
    }

    /// A zone's egress and where it listens.
    pub fn egress_at(&self, zone: &str) -> (RunningProxy, Ipv4Addr) {
        let address = own_address();
        let definition = json!({"type": "ZoneEgress", "name": format!("exit-{zone}"),
            "networking": {"address": address, "port": EGRESS}});
        let proxy =
            zone_proxy(&self.global, self.zone(zone), (zone, "egress"), &definition, &self.variables());
        (proxy, address)
    }

    /// A name in the scheme of these proxies.
    pub fn named<'n>(&self, unified: &'n str, legacy: &'n str) -> &'n str {
        if self.unified { unified } else { legacy }
    }
}

/// Settings with which a zone joins a global control plane.
pub fn joining(zone: &str, global: &ControlPlane, port: u16) -> Setup {
    let certificate = global.work_dir().join("kuma-cp.crt");
    Setup::default()
        .with("KUMA_MULTIZONE_ZONE_NAME", zone)
        .with("KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS", format!("grpcs://localhost:{port}"))
        .with("KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE", certificate.display().to_string())
        .with("KUMA_GENERAL_RESILIENT_COMPONENT_BASE_BACKOFF", "100ms")
        .with("KUMA_GENERAL_RESILIENT_COMPONENT_MAX_BACKOFF", "500ms")
}

/// Starts a zone proxy with a token for what it is. `issuer` signs it: the global control plane, where there is one.
pub fn zone_proxy(
    issuer: &World,
    world: &World,
    (zone, kind): (&str, &str),
    definition: &Value,
    variables: &[(&str, &str)],
) -> RunningProxy {
    let request = json!({"zone": zone, "scope": [kind], "validFor": "1h"});
    let token = issuer.control_plane.client().post("/tokens/zone", &request).unwrap();
    assert_eq!(token.status, 200, "{}", token.body);
    let options = Options {
        environment: variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        token: Some(token.body),
        arguments: vec![format!("--proxy-type={kind}")],
        ..Options::default()
    };
    RunningProxy::start(&world.control_plane, definition, &options)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", world.control_plane.log()))
}

/// A MeshService of another zone, as an outbound names it.
pub fn of_zone(service: &str, zone: &str) -> Value {
    let labels = json!({"kuma.io/display-name": service, "kuma.io/zone": zone});
    json!({"backendRef": {"kind": "MeshService", "labels": labels, "port": 8080}})
}

pub fn by_name(kind: &str, name: &str, port: u16) -> Value {
    json!({"backendRef": {"kind": kind, "name": name, "port": port}})
}
