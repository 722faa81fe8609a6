//! Random meshes: proxies of several inbounds, every kind of service, and permissions of every form, bad ones among
//! them. The same seed gives the same mesh.

use std::{collections::BTreeMap, sync::Arc};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use resources::{Key, Kind, Resource, Status};
use serde_json::{Value, json};
use topology::{AllMeshes, ClientTls, MeshSnapshot, ResourceChange, virtual_hosts::vips};

const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
const TEAMS: [&str; 3] = ["x", "y", "z"];
const SECTIONS: [&str; 5] = ["web", "admin", "80", "81", "absent"];
/// The zone of the control plane.
pub const ZONE: &str = "east";

/// A mesh, and the resources it was made of.
pub struct World {
    pub snapshot: Arc<MeshSnapshot>,
    pub resources: BTreeMap<Key, Arc<Resource>>,
    pub rng: StdRng,
    pub seed: u64,
}

struct Maker {
    rng: StdRng,
    /// Number of different services that tags name.
    services: usize,
    resources: BTreeMap<Key, Arc<Resource>>,
}

pub fn made(kind: Kind, name: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    let key = match kind.descriptor().scope {
        resources::Scope::Mesh => Key::new(kind, "default", name),
        resources::Scope::Global => Key::global(kind, name),
    };
    testkit::resource::complete(key, labels, spec)
}

/// A mesh of so many proxies.
pub fn world(seed: u64, proxies: usize) -> World {
    let services = 3 + proxies / 2;
    let mut maker = Maker { rng: StdRng::seed_from_u64(seed), services, resources: BTreeMap::new() };
    maker.mesh();
    for number in 0..proxies {
        maker.dataplane(number);
    }
    for number in 0..services {
        maker.service(number);
    }
    maker.others();
    let mut state = AllMeshes::in_zone(ZONE);
    let apply = |state: &mut AllMeshes, resources: &BTreeMap<Key, Arc<Resource>>| {
        let changes: Vec<ResourceChange> =
            resources.iter().map(|(key, r)| (key.clone(), Some(r.clone()))).collect();
        state.apply(&changes);
    };
    apply(&mut state, &maker.resources);
    let mut later = maker.addresses(state.mesh("default").unwrap());
    let snis = server_names(state.mesh("default").unwrap());
    for number in 0..maker.rng.random_range(1..=2 + services) {
        let policy = maker.permission(number, &snis);
        later.insert(policy.key.clone(), Arc::new(policy));
    }
    apply(&mut state, &later);
    maker.resources.extend(later);
    let snapshot = state.mesh("default").unwrap().clone();
    World { snapshot, resources: maker.resources, rng: maker.rng, seed }
}

/// The names that clients dial, as rules may ask for them.
fn server_names(snapshot: &MeshSnapshot) -> Vec<String> {
    let dialled = snapshot.destinations.values().filter_map(|destination| match &destination.tls {
        ClientTls::Mesh { sni, .. } => Some(sni.clone()),
        ClientTls::Off => None,
    });
    let accepted = snapshot.destinations.values().flat_map(|destination| destination.server_names.to_vec());
    dialled.chain(accepted).filter(|name| !name.contains('{')).collect()
}

impl Maker {
    fn add(&mut self, resource: Resource) {
        self.resources.insert(resource.key.clone(), Arc::new(resource));
    }

    fn chance(&mut self, likelihood: f64) -> bool {
        self.rng.random_bool(likelihood)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.choose(&mut self.rng).unwrap()
    }

    /// A service, which may be one that no proxy has.
    fn service_name(&mut self) -> String {
        format!("svc-{}", self.rng.random_range(0..=self.services))
    }

    fn mesh(&mut self) {
        let mode = ["STRICT", "STRICT", "STRICT", "PERMISSIVE"].choose(&mut self.rng).unwrap();
        let backend = json!({ "name": "ca", "type": "builtin", "mode": mode });
        let mut spec = json!({
            "meshServices": { "mode": "Everywhere" },
            "routing": { "zoneEgress": self.chance(0.5), "defaultForbidMeshExternalServiceAccess": self.chance(0.3) }
        });
        let with_mtls = self.chance(0.8);
        if with_mtls {
            spec["mtls"] = json!({ "enabledBackend": "ca", "backends": [backend] });
        }
        self.add(made(Kind::Mesh, "default", &[("reachability.kuma.io/mode", "enforce")], spec));
        // Without mTLS, those without an identity have no certificate; without either everyone may call everyone.
        if self.chance(if with_mtls { 0.4 } else { 0.8 }) {
            self.identity();
        }
        for number in 0..self.rng.random_range(0..3) {
            self.tls(number);
        }
    }

    /// Adds a policy that makes some inbounds take clients without TLS, or require it.
    fn tls(&mut self, number: usize) {
        let top = match self.rng.random_range(0..3) {
            0 => json!({ "kind": "Mesh" }),
            1 => json!({ "kind": "Dataplane", "labels": { "team": self.one(&TEAMS) } }),
            _ => json!({ "kind": "Dataplane", "sectionName": self.one(&SECTIONS) }),
        };
        let mode = self.one(&["Permissive", "Permissive", "Strict"]);
        let spec = json!({ "targetRef": top, "rules": [{ "default": { "mode": mode } }] });
        self.add(made(Kind::MeshTLS, &format!("t-{number}"), &[], spec));
    }

    /// Some proxies have an identity, which counts instead of their tags.
    fn identity(&mut self) {
        let selector = json!({ "dataplane": { "matchLabels": { "team": self.one(&TEAMS) } } });
        let provider = json!({ "type": "Bundled", "bundled": { "autogenerate": { "enabled": true } } });
        let id = json!({ "trustDomain": "td", "path": "/{{ label \"app\" }}" });
        let spec = json!({ "selector": selector, "spiffeID": id, "provider": provider });
        let mut identity = made(Kind::MeshIdentity, "identity", &[], spec);
        let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        identity.status = Some(Status::from_json(Kind::MeshIdentity, status).unwrap());
        self.add(identity);
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let bundle = json!({ "type": "Pem", "pem": { "value": pem } });
        self.add(made(Kind::MeshTrust, "trust", &[], json!({ "trustDomain": "td", "caBundles": [bundle] })));
    }

    fn tags(&mut self, service: &str) -> Value {
        let mut tags = json!({ "kuma.io/service": service });
        if self.chance(0.6) {
            tags["version"] = json!(self.one(&VERSIONS));
        }
        if self.chance(0.3) {
            tags["team"] = json!(self.one(&TEAMS));
        }
        tags
    }

    fn dataplane(&mut self, number: usize) {
        let name = format!("dp-{number}");
        let service = format!("svc-{}", self.rng.random_range(0..self.services));
        let mut networking = json!({ "address": format!("10.{}.{}.1", number / 250, number % 250) });
        if self.chance(0.05) {
            networking["gateway"] = json!({ "tags": self.tags(&service) });
        } else {
            networking["inbound"] = self.inbounds(&service);
        }
        networking["transparentProxying"] =
            json!({ "redirectPortInbound": 15006, "redirectPortOutbound": 15001 });
        let app = format!("app-{}", self.rng.random_range(0..self.services));
        let team = self.one(&TEAMS);
        let labels = [("app", app.as_str()), ("team", team), ("kuma.io/workload", "worker")];
        let with = if self.chance(0.9) { 3 } else { 2 };
        self.add(made(Kind::Dataplane, &name, &labels[..with], json!({ "networking": networking })));
    }

    fn inbounds(&mut self, service: &str) -> Value {
        let mut inbounds = Vec::new();
        for (port, name) in [(80, "web"), (81, "admin"), (82, "")] {
            if port > 80 && self.chance(0.7) {
                break;
            }
            // Some serve several services, and some say none.
            let other = self.service_name();
            let tags = match self.rng.random_range(0..20) {
                0 => json!({}),
                1..4 => self.tags(&other),
                _ => self.tags(service),
            };
            let state = if self.chance(0.1) { "NotReady" } else { "Ready" };
            inbounds.push(json!({ "port": port, "name": name, "tags": tags, "state": state }));
        }
        json!(inbounds)
    }

    fn service(&mut self, number: usize) {
        let selector = match self.rng.random_range(0..10) {
            0 => json!({ "dataplaneLabels": { "matchLabels": { "app": format!("app-{number}") } } }),
            1 => json!({ "dataplaneRef": { "name": format!("dp-{number}") } }),
            2 => json!({ "dataplaneTags": { "kuma.io/service": format!("svc-{number}"), "version": "v1" } }),
            3 => json!({ "dataplaneTags": { "version": "*", "kuma.io/service": format!("svc-{number}") } }),
            _ => json!({ "dataplaneTags": { "kuma.io/service": format!("svc-{number}") } }),
        };
        let ports = match self.rng.random_range(0..3) {
            0 => json!([{ "port": 80, "targetPort": "web" }, { "port": 81, "targetPort": "admin" }]),
            1 => {
                json!([{ "port": 80, "targetPort": 80, "appProtocol": "http" }, { "port": 82, "targetPort": 82 }])
            }
            _ => json!([{ "port": 80, "targetPort": 80, "appProtocol": "http" }]),
        };
        let team = self.one(&TEAMS);
        let remote = self.chance(0.08);
        let zone = [("kuma.io/origin", "global"), ("kuma.io/zone", "west")];
        let made_of_inbounds = if self.chance(0.3) { &[("kuma.io/managed-by", "test")][..] } else { &[] };
        let labels = [&[("team", team)][..], if remote { &zone } else { &[] }, made_of_inbounds].concat();
        let spec = json!({ "state": "Available", "selector": selector, "ports": ports });
        let mut service = made(Kind::MeshService, &format!("s-{number}"), &labels, spec);
        let tls = if self.chance(0.6) { "Ready" } else { "NotReady" };
        let vip = format!("241.{}.{}.1", number / 250, number % 250);
        let status = json!({ "vips": [{ "ip": vip }], "tls": { "status": tls } });
        service.status = Some(Status::from_json(Kind::MeshService, status).unwrap());
        self.add(service);
    }

    /// Adds services that span zones, services outside and the ways out, hostnames by tags, and a route or
    /// two.
    fn others(&mut self) {
        for (number, team) in TEAMS.into_iter().enumerate() {
            let spec = json!({ "selector": { "meshService": { "matchLabels": { "team": team } } },
                "ports": [{ "port": 80, "appProtocol": "http" }, { "port": 82 }] });
            let mut service = made(Kind::MeshMultiZoneService, &format!("m-{number}"), &[], spec);
            let status = json!({ "vips": [{ "ip": format!("243.0.0.{number}") }] });
            service.status = Some(Status::from_json(Kind::MeshMultiZoneService, status).unwrap());
            self.add(service);
            let spec =
                json!({ "match": { "port": 443 }, "endpoints": [{ "address": "example.com", "port": 443 }] });
            let mut outside = made(Kind::MeshExternalService, &format!("e-{number}"), &[], spec);
            let status = json!({ "vip": { "ip": format!("242.0.0.{number}") } });
            outside.status = Some(Status::from_json(Kind::MeshExternalService, status).unwrap());
            self.add(outside);
        }
        let networking = json!({ "address": "10.255.0.1", "port": 10002 });
        self.add(made(Kind::ZoneEgress, "exit", &[], json!({ "zone": ZONE, "networking": networking })));
        let conf = json!({ "host": "{{.service}}.vo", "port": "80",
            "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }] });
        let spec = json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": conf });
        self.add(made(Kind::VirtualOutbound, "all", &[], spec));
        let conf = json!({ "host": "{{.version}}.{{.service}}.vo", "port": "80", "parameters": [
            { "name": "service", "tagKey": "kuma.io/service" }, { "name": "version", "tagKey": "version" }] });
        let spec =
            json!({ "selectors": [{ "match": { "kuma.io/service": "*", "version": "*" } }], "conf": conf });
        self.add(made(Kind::VirtualOutbound, "versions", &[], spec));
        for number in 0..self.rng.random_range(0..3) {
            self.route(number);
        }
    }

    fn route(&mut self, number: usize) {
        let mut service = || format!("s-{}", self.rng.random_range(0..self.services));
        let to = service();
        let backend = service();
        let backends = json!([{ "kind": "MeshService", "name": backend, "port": 80 }]);
        let rule = json!({ "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
            "default": { "backendRefs": backends } });
        let spec = json!({ "to": [{ "targetRef": { "kind": "MeshService", "name": to }, "rules": [rule] }] });
        self.add(made(Kind::MeshHTTPRoute, &format!("r-{number}"), &[], spec));
    }

    /// Addresses for the hostnames of VirtualOutbounds.
    fn addresses(&self, snapshot: &MeshSnapshot) -> BTreeMap<Key, Arc<Resource>> {
        let mut shards: BTreeMap<u8, Value> = BTreeMap::new();
        for (number, host) in snapshot.virtual_hosts.by_name.keys().enumerate() {
            let shard = shards.entry(vips::shard_of(host)).or_insert_with(|| json!({}));
            shard[&**host] = json!({ "address": format!("240.0.{}.{}", number / 250, 1 + number % 250) });
        }
        let made = shards.into_iter().map(|(shard, hosts)| {
            let name = vips::config_name("default", shard);
            made(Kind::Config, &name, &[], json!({ "config": hosts.to_string() }))
        });
        made.map(|config| (config.key.clone(), Arc::new(config))).collect()
    }

    fn permission(&mut self, number: usize, snis: &[String]) -> Resource {
        let mut spec = json!({});
        if let Some(top) = self.top() {
            spec["targetRef"] = top;
        }
        let entries = self.rng.random_range(1..6);
        if self.chance(0.5) {
            let entries = (0..entries).map(|_| {
                let action = ["Allow", "Allow", "Allow", "AllowWithShadowDeny", "Deny", "Maybe"];
                json!({ "targetRef": self.from(), "default": { "action": self.one(&action) } })
            });
            spec["from"] = entries.collect();
        } else {
            let entries = (0..entries).map(|_| {
                let list = self.one(&["allow", "allow", "allow", "allowWithShadowDeny", "deny"]);
                json!({ "default": { list: [self.matched(snis)] } })
            });
            spec["rules"] = entries.collect();
        }
        let labels: &[(&str, &str)] = match self.rng.random_range(0..20) {
            0 => &[("kuma.io/effect", "shadow")],
            1 => &[("kuma.io/origin", "global")],
            2 => &[("kuma.io/origin", "zone"), ("kuma.io/zone", ZONE)],
            _ => &[],
        };
        made(Kind::MeshTrafficPermission, &format!("p-{number}"), labels, spec)
    }

    /// Returns a selection for a policy; mostly a small one, because a policy that selects all leaves nothing
    /// to find.
    fn top(&mut self) -> Option<Value> {
        let service = self.service_name();
        Some(match self.rng.random_range(0..16) {
            0 => return None,
            1 => json!({ "kind": "Mesh" }),
            2 => json!({ "kind": "MeshSubset", "tags": { "version": self.one(&VERSIONS) } }),
            3 => json!({ "kind": "MeshSubset", "tags": { "team": self.one(&["x", "*", "absent"]) } }),
            4..8 => json!({ "kind": "MeshService", "name": service }),
            8..10 => {
                json!({ "kind": "MeshServiceSubset", "name": service, "tags": { "version": self.one(&VERSIONS) } })
            }
            kind => {
                let mut target = json!({ "kind": "Dataplane" });
                let number = self.rng.random_range(0..=self.services);
                match kind {
                    10 => target["name"] = json!(format!("dp-{number}")),
                    11..13 => target["labels"] = json!({ "app": format!("app-{number}") }),
                    13 => {
                        target["labels"] = json!({ "team": self.one(&TEAMS), "app": format!("app-{number}") })
                    }
                    14 => target["labels"] = json!({ "absent": "yes" }),
                    _ => target["labels"] = json!({ "team": self.one(&TEAMS) }),
                }
                if self.chance(0.3) {
                    target["sectionName"] = json!(self.one(&SECTIONS));
                }
                target
            }
        })
    }

    fn from(&mut self) -> Value {
        let service = self.service_name();
        match self.rng.random_range(0..12) {
            0 => json!({ "kind": "Mesh" }),
            1 => json!({ "kind": "MeshSubset", "tags": { "version": self.one(&VERSIONS) } }),
            2 => json!({ "kind": "MeshSubset", "tags": { "team": self.one(&["x", "y", "*", "absent"]) } }),
            3..5 => {
                json!({ "kind": "MeshServiceSubset", "name": service, "tags": { "version": self.one(&VERSIONS) } })
            }
            _ => json!({ "kind": "MeshService", "name": service }),
        }
    }

    fn matched(&mut self, snis: &[String]) -> Value {
        let number = self.rng.random_range(0..=self.services);
        let id = match self.rng.random_range(0..12) {
            0 => json!({ "type": "Prefix", "value": "spiffe://default/" }),
            1 => json!({ "type": "Prefix", "value": format!("spiffe://default/svc-{}", number % 10) }),
            2 => json!({ "type": "Prefix", "value": "spiffe://td/app-1" }),
            3 => json!({ "type": "Exact", "value": "spiffe://default/worker" }),
            4..6 => json!({ "type": "Exact", "value": format!("spiffe://td/app-{number}") }),
            _ => json!({ "type": "Exact", "value": format!("spiffe://default/svc-{number}") }),
        };
        let sni = snis.choose(&mut self.rng).cloned();
        match (sni, self.rng.random_range(0..12)) {
            (Some(sni), 0) => json!({ "spiffeID": id, "sni": { "type": "Exact", "value": sni } }),
            (Some(sni), 1) => json!({ "sni": { "type": "Exact", "value": sni } }),
            _ => json!({ "spiffeID": id }),
        }
    }
}
