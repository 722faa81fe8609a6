//! MeshServices that come from Dataplanes, and their virtual addresses.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{
    Environment, Key, Kind, Resource, Status,
    kinds::{mesh_service::MeshService, mesh_service::MeshServiceStatus},
    naming::sni,
};
use serde_json::{Value, json};
use topology::services::{Desired, Generator, MOST_YOUNG, ServiceChange};

use crate::fixtures::{dataplane, mesh, resource, service, serving, with_status};

const HOUR: Duration = Duration::from_secs(3600);

/// A store of one mesh, and the control plane that looks after its services.
pub struct World {
    pub mesh: Resource,
    pub dataplanes: Vec<Arc<Resource>>,
    pub insights: Vec<Arc<Resource>>,
    pub services: Vec<Arc<Resource>>,
    pub external: Vec<Arc<Resource>>,
    pub multi_zone: Vec<Arc<Resource>>,
    /// Record of the addresses that were given.
    pub record: Vec<Arc<Resource>>,
    pub now: Timestamp,
    generator: Generator,
    /// Resources that the generator has seen.
    seen: BTreeMap<Key, Arc<Resource>>,
}

impl World {
    pub fn of(mesh: Resource, dataplanes: impl IntoIterator<Item = Resource>) -> World {
        World {
            mesh,
            dataplanes: dataplanes.into_iter().map(Arc::new).collect(),
            insights: Vec::new(),
            services: Vec::new(),
            external: Vec::new(),
            multi_zone: Vec::new(),
            record: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            generator: Generator::new("east", HOUR),
            seen: BTreeMap::new(),
        }
    }

    /// Shows the generator what is different now, and asks it.
    pub fn desired(&mut self) -> Desired {
        let services = [&self.services, &self.external, &self.multi_zone, &self.record];
        let of_mesh = [&self.dataplanes, &self.insights].into_iter().chain(services);
        let all = of_mesh.flatten().cloned().chain([Arc::new(self.mesh.clone())]);
        let all: BTreeMap<Key, Arc<Resource>> = all.map(|r| (r.key.clone(), r)).collect();
        for key in self.seen.keys().filter(|key| !all.contains_key(key)) {
            self.generator.apply(key, None);
        }
        for (key, resource) in all.iter().filter(|(key, resource)| self.seen.get(key) != Some(resource)) {
            self.generator.apply(key, Some(resource.clone()));
        }
        self.seen = all;
        self.generator.desired(self.now)
    }

    /// Writes what is desired, and checks that then nothing is left to do.
    pub fn settle(&mut self) -> Desired {
        let first = self.desired();
        self.write(first.record.as_slice());
        self.write(&first.changes);
        let second = self.desired();
        assert_eq!((second.changes, second.record), (Vec::new(), None), "asking again after the writes");
        first
    }

    pub fn write(&mut self, changes: &[ServiceChange]) {
        for change in changes {
            let of_kind = match change.key().kind {
                Kind::MeshService => &mut self.services,
                Kind::MeshMultiZoneService => &mut self.multi_zone,
                Kind::Config => &mut self.record,
                _ => &mut self.external,
            };
            let stored = of_kind.iter().position(|r| r.key == *change.key());
            match (change, stored) {
                (ServiceChange::Create(resource), None) => of_kind.push(Arc::new(resource.clone())),
                (ServiceChange::Update { resource, expected }, Some(at)) => {
                    assert_eq!(of_kind[at].version, *expected);
                    of_kind[at] = Arc::new(Resource { version: expected + 1, ..resource.clone() });
                }
                (ServiceChange::Status { status, expected, .. }, Some(at)) => {
                    assert_eq!(of_kind[at].version, *expected);
                    let mut written = Resource::clone(&of_kind[at]);
                    written.version += 1;
                    written.status = Some(status.clone());
                    of_kind[at] = Arc::new(written);
                }
                (ServiceChange::Delete { expected, .. }, Some(at)) => {
                    assert_eq!(of_kind[at].version, *expected);
                    of_kind.remove(at);
                }
                (change, stored) => panic!("{change:?} of {stored:?}"),
            }
        }
    }

    pub fn service(&self, name: &str) -> &Arc<Resource> {
        self.services.iter().find(|service| service.name() == name).unwrap()
    }

    pub fn spec(&self, name: &str) -> &MeshService {
        self.service(name).spec.get::<MeshService>().unwrap()
    }

    pub fn status(&self, name: &str) -> MeshServiceStatus {
        match &self.service(name).status {
            Some(Status::MeshService(status)) => MeshServiceStatus::clone(status),
            other => panic!("status of {name}: {other:?}"),
        }
    }

    fn vips(&self) -> Vec<(String, String)> {
        let of = |r: &Arc<Resource>| (r.name().to_owned(), self.status(r.name()).vips[0].ip.clone());
        self.services.iter().map(of).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.services.iter().map(|service| service.name()).collect()
    }

    fn ports(&self, name: &str) -> Vec<u32> {
        self.spec(name).ports.iter().map(|port| port.port).collect()
    }
}

fn with_ports(name: &str, ports: &[u32]) -> Resource {
    let inbound = |port: &u32| json!({ "port": port, "tags": { "kuma.io/service": "backend" } });
    dataplane(name, "10.0.0.1", Value::Array(ports.iter().map(inbound).collect()))
}

#[test]
fn a_service_tag_becomes_a_mesh_service() {
    let inbounds = json!([
        { "port": 80, "name": "web", "tags": { "kuma.io/service": "backend", "kuma.io/protocol": "http" } },
        { "port": 81, "tags": { "kuma.io/service": "backend" }, "protocol": "grpc" },
        { "port": 82, "tags": { "kuma.io/service": "other", "kuma.io/protocol": "mqtt" } },
    ]);
    let mut world = World::of(mesh(""), [dataplane("dp", "10.0.0.1", inbounds)]);
    world.settle();
    assert_eq!(world.names(), ["backend", "other"]);
    let backend = world.service("backend");
    assert_eq!(
        serde_json::to_value(&backend.labels).unwrap(),
        json!({
            "kuma.io/display-name": "backend",
            "kuma.io/env": "universal",
            "kuma.io/managed-by": "meshservice-generator",
            "kuma.io/mesh": "default",
            "kuma.io/origin": "zone",
            "kuma.io/zone": "east"
        })
    );
    let sni = |sni: &str| json!([{ "value": sni }]);
    assert_eq!(
        backend.spec.to_json(),
        json!({
            "state": "Available",
            "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
            "ports": [
                {
                    "name": "web", "port": 80, "targetPort": 80, "appProtocol": "http",
                    "snis": sni("a601e0c00295a9fbe.backend.80.default.ms")
                },
                {
                    "name": "81", "port": 81, "targetPort": 81, "appProtocol": "grpc",
                    "snis": sni("a601e0c00295a9fbe.backend.81.default.ms")
                }
            ],
            "identities": [
                { "type": "ServiceTag", "value": "backend" },
                { "type": "ServiceTag", "value": "other" }
            ]
        })
    );
    assert_eq!(backend.owner, Some(world.mesh.key.clone()));
    assert_eq!(world.spec("other").ports[0].app_protocol.as_str(), "tcp");
}

#[test]
fn ports_of_a_service_have_different_names() {
    let tags = json!({ "kuma.io/service": "backend" });
    for (inbounds, expect) in [
        (
            json!([{ "port": 80, "tags": tags }, { "port": 80, "address": "10.0.0.2", "tags": tags }]),
            &[("80", 80)][..],
        ),
        // Stored before names were compared with ports.
        (json!([{ "port": 80, "tags": tags }, { "port": 81, "name": "80", "tags": tags }]), &[("80", 80)]),
        (
            json!([{ "port": 80, "name": "a", "tags": tags }, { "port": 80, "address": "10.0.0.2", "tags": tags }]),
            &[("a", 80), ("80", 80)],
        ),
    ] {
        let mut world = World::of(mesh(""), [dataplane("dp", "10.0.0.1", inbounds)]);
        let desired = world.settle();
        assert_eq!(desired.conflicts, []);
        let spec = world.spec("backend");
        let ports: Vec<_> =
            spec.ports.iter().map(|port| (port.name.as_deref().unwrap(), port.port)).collect();
        assert_eq!(ports, expect);
    }
}

#[test]
fn tags_that_are_no_names_make_no_services() {
    let names = ["backend_kuma-demo_svc_80", "1st", "Web", "a.b", ""];
    let dataplanes = names.iter().enumerate().map(|(i, name)| serving(&format!("dp-{i}"), "10.0.0.1", name));
    let mut world = World::of(mesh(""), dataplanes);
    assert_eq!(world.settle().changes, []);
}

#[test]
fn a_mesh_without_mesh_services_generates_none_and_removes_those_it_had() {
    let mut world = World::of(mesh(""), [serving("dp", "10.0.0.1", "backend")]);
    world.services.push(Arc::new(service("by-hand")));
    world.settle();
    assert_eq!(world.names(), ["by-hand", "backend"]);
    world.mesh = resource(Kind::Mesh, "default", &[], json!({}));
    world.settle();
    assert_eq!(world.names(), ["by-hand"]);
}

#[test]
fn on_a_conflict_the_ports_that_exist_win_while_one_dataplane_agrees() {
    let mut world = World::of(mesh(""), [with_ports("dp-2", &[80]), with_ports("dp-1", &[81])]);
    let conflicts = world.settle().conflicts;
    assert_eq!(world.ports("backend"), [81], "the first by name");
    let names: Vec<_> = conflicts[0].dataplanes.iter().map(|name| &**name).collect();
    assert_eq!((conflicts[0].service.as_str(), names), ("backend", vec!["dp-2"]));

    world.dataplanes.push(Arc::new(with_ports("dp-0", &[79])));
    world.settle();
    assert_eq!(world.ports("backend"), [81], "dp-1 still agrees");

    world.dataplanes.retain(|dataplane| dataplane.name() != "dp-1");
    world.settle();
    assert_eq!(world.ports("backend"), [79], "nobody agrees any more");
}

#[test]
fn ports_keep_their_server_names() {
    let mut world = World::of(mesh(""), [with_ports("dp", &[80])]);
    world.settle();
    let mut kept = Resource::clone(world.service("backend"));
    let mut spec = world.spec("backend").clone();
    spec.ports[0].snis[0].value = "chosen.by.user".into();
    kept.spec = spec.into();
    world.services = vec![Arc::new(kept)];
    world.dataplanes = vec![Arc::new(with_ports("dp", &[80, 81]))];
    world.settle();
    let snis: Vec<_> = world.spec("backend").ports.iter().map(|port| port.snis[0].value.as_str()).collect();
    assert_eq!(snis, ["chosen.by.user", "a601e0c00295a9fbe.backend.81.default.ms"]);
}

#[test]
fn server_names_are_those_of_the_zone_and_its_formats() {
    let mut world = World::of(mesh(""), [with_ports("dp", &[80])]);
    let place = sni::OwnerLocation::Zone { name: "east".into(), federated: true };
    let formats = sni::Formats::named(["kri", "hashed"]).unwrap();
    let environment = Environment::Kubernetes { system_namespace: "kuma-system".into() };
    let owner = sni::Owner { place, formats, environment };
    world.generator = Generator::new("east", HOUR).with_snis(&owner).anew();
    world.settle();
    let all = |world: &World, port: usize| -> Vec<String> {
        world.spec("backend").ports[port].snis.iter().map(|sni| sni.value.clone()).collect()
    };
    assert_eq!(world.service("backend").label("kuma.io/env"), Some("kubernetes"));
    // Zone proxies accept them in this order, and then in that of the formats.
    let announced = [
        "a601e0c00295a9fbe.backend.80.default.ms",
        "sni.msvc.default.east.backend.80",
        "a1d9f6e8b5930fbfd.backend.80.default.ms",
    ];
    let switched = [announced[1], announced[2], announced[0]];
    assert_eq!(all(&world, 0), announced);
    let accepted = owner.switched(world.service("backend")).unwrap();
    world.services = vec![Arc::new(accepted)];
    world.dataplanes = vec![Arc::new(with_ports("dp", &[80, 81]))];
    world.settle();
    assert_eq!(all(&world, 0), switched, "what clients dial stays");
    assert_eq!(all(&world, 1), announced.map(|sni| sni.replace("80", "81")));
}

#[test]
fn a_service_without_dataplanes_is_deleted_after_the_grace_period() {
    let started_at = "kuma.io/deletion-grace-period-started-at";
    let mut world = World::of(mesh(""), [serving("dp", "10.0.0.1", "backend")]);
    assert_eq!(world.settle().look_again, None);
    let start = world.now;
    let dataplanes = std::mem::take(&mut world.dataplanes);
    assert_eq!(world.settle().look_again, Some(start + HOUR));
    assert_eq!(world.service("backend").label(started_at), Some("2026-01-01T00:00:00Z"));

    world.now = start + HOUR / 2;
    let later = world.settle();
    assert_eq!((later.changes.len(), later.look_again), (0, Some(start + HOUR)));

    world.dataplanes = dataplanes;
    assert_eq!(world.settle().look_again, None);
    assert_eq!(world.service("backend").label(started_at), None, "it came back in time");

    world.dataplanes.clear();
    world.settle();
    world.now += HOUR;
    world.settle();
    assert_eq!(world.names(), Vec::<&str>::new());
}

#[test]
fn a_grace_period_nobody_can_read_starts_again() {
    let mut world = World::of(mesh(""), [serving("dp", "10.0.0.1", "backend")]);
    world.settle();
    world.dataplanes.clear();
    let mut unreadable = Resource::clone(world.service("backend"));
    unreadable.labels.insert("kuma.io/deletion-grace-period-started-at".into(), "yesterday".into());
    world.services = vec![Arc::new(unreadable)];
    assert_eq!(world.settle().look_again, Some(world.now + HOUR));
}

#[test]
fn of_young_services_without_dataplanes_only_so_many_wait() {
    let mut world =
        World::of(mesh(""), (0..5).map(|i| serving(&format!("dp-{i}"), "10.0.0.1", &format!("old-{i}"))));
    world.settle();
    // They have been there for as long as they would be waited for.
    world.now += HOUR;
    let young = MOST_YOUNG + 3;
    let dataplanes = (0..young).map(|i| serving(&format!("new-{i}"), "10.0.0.2", &format!("s-{i:04}")));
    world.dataplanes.extend(dataplanes.map(Arc::new));
    assert_eq!(world.settle().crowded_out, 0);
    let names = |world: &World| world.names().iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let before = names(&world);

    world.dataplanes.clear();
    let desired = world.desired();
    assert_eq!(desired.crowded_out, 3);
    let mut restarted = World { services: world.services.clone(), ..World::of(mesh(""), []) };
    restarted.record.clone_from(&world.record);
    restarted.now = world.now;
    assert_eq!(restarted.desired().changes, desired.changes, "one that was restarted decides the same");
    world.settle();
    let expected: Vec<String> =
        before.into_iter().filter(|name| !(format!("s-{:04}", MOST_YOUNG)..).contains(name)).collect();
    assert_eq!(names(&world), expected, "the established ones and the first of the young ones wait");

    world.dataplanes = vec![Arc::new(serving("more", "10.0.0.3", "s-more"))];
    world.settle();
    world.dataplanes.clear();
    assert_eq!(world.settle().crowded_out, 1, "there is no room as long as they wait");
    assert_eq!(names(&world), expected);

    world.dataplanes = vec![Arc::new(serving("back", "10.0.0.2", "s-0007"))];
    world.settle();
    world.dataplanes.push(Arc::new(serving("more", "10.0.0.3", "s-more")));
    world.settle();
    world.dataplanes.pop();
    assert_eq!(world.settle().crowded_out, 0, "one that came back makes room");
    assert_eq!(names(&world).len(), expected.len() + 1);
}

#[test]
fn services_of_users_and_of_other_zones_are_neither_changed_nor_deleted() {
    let synced = Resource {
        labels: [("kuma.io/managed-by", "meshservice-generator"), ("kuma.io/origin", "global")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        ..service("backend-x")
    };
    let mut world = World::of(mesh(""), [with_ports("dp", &[81])]);
    world.services = vec![Arc::new(service("backend")), Arc::new(synced.clone())];
    world.settle();
    assert_eq!(world.ports("backend"), [80]);
    assert_eq!(world.service("backend-x").labels, synced.labels);
    assert_eq!(world.service("backend-x").spec, synced.spec);
}

#[test]
fn virtual_addresses_begin_at_the_network_address_and_are_unique() {
    let mut world = World::of(mesh(""), []);
    world.services = vec![Arc::new(service("backend"))];
    world.external =
        vec![Arc::new(resource(Kind::MeshExternalService, "ext", &[], json!({ "match": { "port": 1 } })))];
    world.settle();
    assert_eq!(world.vips(), [("backend".to_owned(), "241.0.0.0".to_owned())]);
    let Some(Status::MeshExternalService(status)) = &world.external[0].status else { panic!("no status") };
    assert_eq!(status.vip.ip, "242.0.0.0");

    world.services = vec![Arc::new(service("backend"))];
    world.settle();
    assert_eq!(world.vips()[0].1, "241.0.0.1", "deleted and created again");
}

#[test]
fn addresses_in_use_are_kept_and_left_out() {
    let taken =
        |name: &str, ip: &str| Arc::new(with_status(service(name), json!({ "vips": [{ "ip": ip }] })));
    let mut world = World::of(mesh(""), []);
    world.services = vec![taken("a", "241.0.0.1"), taken("b", "10.0.0.1")];
    world.services.extend(["c", "d"].map(|name| Arc::new(service(name))));
    world.settle();
    let vips: Vec<String> = world.vips().into_iter().map(|(_, vip)| vip).collect();
    assert_eq!(
        vips,
        ["241.0.0.1", "241.0.0.0", "241.0.0.2", "241.0.0.3"],
        "10.0.0.1 is outside of the range"
    );
}

#[test]
fn two_control_planes_end_at_the_same_resources() {
    let mut world = World::of(mesh(""), [serving("dp", "10.0.0.1", "a"), serving("dp-2", "10.0.0.2", "b")]);
    let Desired { changes: mut first, record, .. } = world.desired();
    world.write(record.as_slice());
    assert_eq!(
        first,
        World::of(mesh(""), world.dataplanes.iter().map(|d| Resource::clone(d))).desired().changes
    );

    // Each wrote one of the services, and both gave away the same address.
    for change in &mut first {
        let ServiceChange::Create(resource) = change else { panic!("{change:?}") };
        let Some(Status::MeshService(status)) = &mut resource.status else { panic!("no status") };
        Arc::make_mut(status).vips[0].ip = "241.0.0.0".into();
    }
    world.write(&first);
    world.settle();
    assert_eq!(
        world.vips(),
        [("a".to_owned(), "241.0.0.0".to_owned()), ("b".to_owned(), "241.0.0.2".to_owned())]
    );
}
