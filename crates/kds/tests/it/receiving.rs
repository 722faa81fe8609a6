//! Results of responses: stored, kept, rejected and held resources.

use kds::{
    Synced,
    guard::{self, Guard},
    receiver::{Arrival, Batch, Receiver, RefusedResource, Role},
};
use resources::{
    Key, Kind, Labels, Resource, Spec, kinds::dataplane::Dataplane, kinds::zone_ingress::ZoneIngress, labels,
    naming::kds::hashed_name,
};
use serde_json::{Value, json};
use testkit::{build::mesh, spec};

use crate::{
    codec::resource,
    world::{Plane, World},
};

fn service(name: &str) -> Resource {
    resource(Kind::MeshService, "default", name, &[], json!({}))
}

fn timeout(name: &str) -> Resource {
    let spec = spec::to_all(json!({ "connectionTimeout": "1s" }));
    resource(Kind::MeshTimeout, "default", name, &[], spec)
}

/// A global control plane with a mesh, and zones that are connected.
fn world(zones: &[&str]) -> World {
    let mut world = World::new(zones);
    world.global.put(mesh("default").build());
    world.reconnect_all();
    world.settle();
    world
}

/// The reasons for which what a peer sends is refused.
pub fn arrives(
    plane: &Plane,
    role: Role,
    kind: Kind,
    mesh: &str,
    name: &str,
    labels: &[(&str, &str)],
    spec: Value,
) -> Vec<String> {
    let sent = resource(kind, mesh, name, labels, spec);
    let synced = Synced { key: sent.key, labels: sent.labels, spec: sent.spec, status: None };
    let arrival =
        Arrival { kind, resources: vec![synced], removed: Vec::new(), refused: Vec::new(), more: false };
    let mut receiver = Receiver::new(role);
    let mut guard = guard::Guard::default();
    let batch = receiver.receive(arrival, &plane.snapshot(), &mut guard);
    let plan = receiver.plan(&batch, &plane.snapshot(), jiff::Timestamp::UNIX_EPOCH);
    plan.writes.into_iter().for_each(|write| drop(plane.try_write(write).unwrap()));
    plan.refused.into_iter().map(|refused| refused.reason).collect()
}

#[test]
fn a_mesh_and_a_policy_go_down_and_a_service_goes_up_and_across() {
    let mut world = world(&["east", "west"]);
    world.global.put(timeout("t"));
    world.zones[0].plane.put(service("backend"));
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::MeshTimeout).len(), 1);
    let stored = world.global.snapshot().of_kind(Kind::MeshService).next().unwrap().clone();
    assert_eq!(stored.label(labels::ZONE), Some("east"));
    assert_eq!(stored.display_name(), "backend");
    assert_eq!(stored.owner, Some(Key::global(Kind::Zone, "east")));
    let across = world.zones[1].plane.snapshot().of_kind(Kind::MeshService).next().unwrap().clone();
    assert_eq!((across.label(labels::ZONE), across.label(labels::ORIGIN)), (Some("east"), Some("global")));
    assert_eq!(world.zones[0].plane.names(Kind::MeshService), ["backend"], "it does not come home");
}

#[test]
fn a_cut_link_deletes_nothing_and_a_restored_one_brings_what_changed() {
    let mut world = world(&["east"]);
    (0..20).for_each(|n| world.global.put(timeout(&format!("t{n}"))));
    world.settle();
    let before = world.zones[0].plane.snapshot().revision();
    world.cut(0);
    world.settle();
    assert_eq!(world.zones[0].plane.snapshot().revision(), before);
    world.global.delete(&timeout("t0").key);
    world.connect(0);
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::MeshTimeout).len(), 19);
}

#[test]
fn a_peer_that_lost_its_memory_deletes_nothing_until_it_says_so_twice() {
    let mut world = world(&["east"]);
    (0..20).for_each(|n| world.global.put(timeout(&format!("t{n}"))));
    world.settle();
    (0..20).for_each(|n| {
        world.cut(0);
        world.global.delete(&timeout(&format!("t{n}")).key);
    });
    world.connect(0);
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::MeshTimeout).len(), 20);
    assert_eq!(world.zones[0].guard.held().collect::<Vec<_>>(), [(Kind::MeshTimeout, 20)]);
    world.global.put(timeout("new"));
    world.settle();
    let told = world.zones[0].link.as_ref().unwrap().to_zone.complaint.clone().unwrap();
    assert!(told.contains("20 deletions are held back"), "it is said as long as it holds: {told}");
    world.global.delete(&timeout("new").key);
    world.settle();
    world.connect(0);
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::MeshTimeout).len(), 0);
}

#[test]
fn a_global_that_comes_back_empty_takes_no_keys_from_meshes_with_proxies() {
    let mut world = world(&["east"]);
    let data = || json!({ "data": "a2V5" });
    let keys = ["ca-builtin-key-ca-1", "dataplane-token-signing-key-default-1"];
    keys.iter().for_each(|name| world.global.put(resource(Kind::Secret, "default", name, &[], data())));
    world.global.put(mesh("unused").build());
    world.global.put(resource(Kind::Secret, "unused", "dataplane-token-signing-key-unused-1", &[], data()));
    world.global.put(resource(Kind::GlobalSecret, "", "zone-token-signing-key-1", &[], data()));
    world.settle();
    let networking = json!({ "networking": { "address": "10.0.0.1", "inbound": [
        { "port": 80, "tags": { "kuma.io/service": "web" } }] } });
    world.zones[0].plane.put(resource(Kind::Dataplane, "default", "web", &[], networking));
    world.settle();
    world.cut(0);
    world.global = Plane::new();
    for connection in 0..4 {
        world.connect(0);
        world.settle();
        let zone = &world.zones[0];
        assert_eq!(zone.plane.names(Kind::Secret), keys, "connection {connection}");
        assert_eq!(zone.plane.names(Kind::GlobalSecret), ["zone-token-signing-public-key-1"]);
        assert_eq!(zone.plane.names(Kind::Mesh), ["default"], "one without proxies is not in use");
        let held: Vec<_> = zone.guard.held().collect();
        for kind in [(Kind::Mesh, 1), (Kind::Secret, 2), (Kind::GlobalSecret, 1)] {
            assert!(held.contains(&kind), "{kind:?} is not in {held:?}");
        }
    }
}

#[test]
fn a_zone_that_lost_its_memory_is_not_emptied_on_global_at_once_either() {
    let mut world = world(&["east", "west"]);
    (0..20).for_each(|n| world.zones[0].plane.put(service(&format!("s{n}"))));
    world.settle();
    world.zones[0].plane = Plane::new();
    world.connect(0);
    world.settle();
    assert_eq!(world.global.names(Kind::MeshService).len(), 20);
    assert_eq!(world.zones[1].plane.names(Kind::MeshService).len(), 20);
    // It finds its memory again: nothing is held back any more.
    (0..20).for_each(|n| world.zones[0].plane.put(service(&format!("s{n}"))));
    world.settle();
    assert_eq!(world.zones[0].guard_on_global.held().count(), 0);
    world.connect(0);
    world.settle();
    assert_eq!(world.global.names(Kind::MeshService).len(), 20);
}

#[test]
fn what_is_written_in_a_zone_is_not_deleted_by_global() {
    let mut world = world(&["east"]);
    let mut own = timeout("own");
    own.labels.insert(labels::ORIGIN.to_owned(), "zone".to_owned());
    world.zones[0].plane.put(own);
    world.zones[0].plane.put(mesh("only-here").build());
    world.connect(0);
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::MeshTimeout), ["own"]);
    assert_eq!(world.zones[0].plane.names(Kind::Mesh), ["default", "only-here"]);
}

#[test]
fn a_zone_keeps_what_it_found_out_about_a_resource_of_global() {
    let mut world = world(&["east"]);
    let service = |port: u32| {
        let spec = json!({ "match": { "type": "HostnameGenerator", "port": port, "protocol": "tcp" },
            "endpoints": [{ "address": "example.com", "port": port }] });
        resource(Kind::MeshExternalService, "default", "a", &[], spec)
    };
    world.global.put(service(80));
    world.settle();
    let zone = &world.zones[0].plane;
    let mut stored = Resource::clone(zone.snapshot().of_kind(Kind::MeshExternalService).next().unwrap());
    let status = json!({ "vip": { "ip": "242.0.0.7" } });
    stored.status = Some(resources::Status::from_json(Kind::MeshExternalService, status).unwrap());
    zone.put(stored.clone());
    world.global.put(service(81));
    world.settle();
    let after = world.zones[0].plane.snapshot().get(&stored.key).unwrap().clone();
    assert_ne!(after.spec, stored.spec);
    assert_eq!(after.status, stored.status);
}

#[test]
fn a_policy_that_comes_before_its_mesh_waits_for_it() {
    let plane = Plane::new();
    let synced = |of: Resource| Synced { key: of.key, labels: of.labels, spec: of.spec, status: None };
    let mut receiver = Receiver::new(Role::Zone("east".into()));
    let mut guard = guard::Guard::default();
    let first = timeout("t");
    let arrival = |kind, resource| Arrival {
        kind,
        resources: vec![resource],
        removed: vec![],
        refused: vec![],
        more: false,
    };
    let batch = receiver.receive(arrival(Kind::MeshTimeout, synced(first)), &plane.snapshot(), &mut guard);
    let plan = receiver.plan(&batch, &plane.snapshot(), jiff::Timestamp::UNIX_EPOCH);
    assert_eq!((plan.writes.len(), plan.refused.len(), plan.orphans.len()), (0, 0, 1));
    assert_eq!(receiver.wait(plan.orphans), []);
    assert!(receiver.no_longer_waiting(&plane.snapshot(), &mut Guard::default()).is_empty());
    plane.put(mesh("default").build());
    let ready = receiver.no_longer_waiting(&plane.snapshot(), &mut Guard::default());
    assert_eq!(receiver.plan(&ready[0], &plane.snapshot(), jiff::Timestamp::UNIX_EPOCH).writes.len(), 1);
}

#[test]
fn a_mesh_is_not_deleted_from_under_its_proxies() {
    let mut world = world(&["east"]);
    world.global.put(mesh("demo").build());
    world.settle();
    let networking = json!({ "networking": { "address": "10.0.0.1", "inbound": [{ "port": 80 }] } });
    let mut dataplane = resource(Kind::Dataplane, "demo", "web", &[], networking);
    dataplane.owner = Some(Key::global(Kind::Mesh, "demo"));
    world.zones[0].plane.put(dataplane);
    world.global.delete(&Key::global(Kind::Mesh, "demo"));
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::Mesh), ["default", "demo"]);
    world.zones[0].plane.delete(&Key::new(Kind::Dataplane, "demo", "web"));
    world.connect(0);
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::Mesh), ["default"]);
}

#[test]
fn a_refused_resource_keeps_out_no_others_and_its_reason_is_reported() {
    let mut world = world(&["east"]);
    let zone = &world.zones[0].plane;
    // The name under which global's policy arrives is taken by one of the zone's own.
    let name = resources::naming::kds::hashed_name("default", "taken", None, None);
    let mut own = timeout(&name);
    own.labels.insert(labels::ORIGIN.to_owned(), "zone".to_owned());
    own.spec = resource(Kind::MeshTimeout, "default", "x", &[], json!({})).spec;
    zone.put(own);
    world.global.put(timeout("taken"));
    world.global.put(timeout("fine"));
    world.settle();
    assert_eq!(world.zones[0].plane.names(Kind::MeshTimeout).len(), 2);
    let reason = |world: &World| world.zones[0].link.as_ref().unwrap().to_zone.complaint.clone();
    let expected = "zone \"east\" has a resource of its own with this name";
    assert!(reason(&world).unwrap().contains(expected), "{:?}", reason(&world));
    world.global.put(timeout("later"));
    world.settle();
    assert!(reason(&world).unwrap().contains(expected), "it is said until it is in order");
    world.global.delete(&timeout("taken").key);
    world.settle();
    assert_eq!(reason(&world), None);
}

#[test]
fn a_zone_cannot_speak_for_another_one_or_for_global() {
    let global = Plane::new();
    global.put(mesh("default").build());
    for zone in ["east", "west"] {
        global.put(resource(Kind::Zone, "", zone, &[], json!({})));
    }
    let role = || Role::Global("west".into());
    let of_east = |name| [(labels::ORIGIN, "zone"), (labels::ZONE, "east"), (labels::DISPLAY_NAME, name)];
    let called = |name: &str| hashed_name("default", name, Some("west"), None);
    let kv = hashed_name("default", "kv", Some("east"), None);
    global.put(resource(Kind::MeshService, "default", &kv, &of_east("kv"), json!({})));
    let everywhere = called("everywhere");
    global.put(timeout(&everywhere));
    let spec = json!({ "ports": [{ "port": 80, "targetPort": 80 }] });
    let refused = arrives(&global, role(), Kind::MeshService, "default", &kv, &of_east("kv"), spec);
    assert!(refused[0].contains("a resource of zone \"west\" with this display name"), "{refused:?}");
    let labels = [(labels::DISPLAY_NAME, "everywhere")];
    let refused = arrives(&global, role(), Kind::MeshTimeout, "default", &everywhere, &labels, json!({}));
    assert!(refused[0].contains("of the global control plane has this name"), "{refused:?}");

    let tags = json!({ "kuma.io/service": "web", "kuma.io/zone": "east" });
    let dataplane =
        json!({ "networking": { "address": "10.0.0.1", "inbound": [{ "port": 80, "tags": tags }] } });
    let web = called("web");
    let accepted = arrives(&global, role(), Kind::Dataplane, "default", &web, &of_east("web"), dataplane);
    assert_eq!(accepted, Vec::<String>::new());
    let stored = global.snapshot().get(&Key::new(Kind::Dataplane, "default", &web)).unwrap().clone();
    assert_eq!(stored.label(labels::ZONE), Some("west"));
    let dataplane = stored.spec.get::<Dataplane>().unwrap();
    assert_eq!(dataplane.inbounds()[0].tags.get("kuma.io/zone").unwrap(), "west");

    let ingress = json!({ "zone": "east", "networking": { "address": "10.0.0.1", "port": 10001 } });
    let name = hashed_name("", "in", Some("west"), None);
    let labels = [(labels::DISPLAY_NAME, "in")];
    let accepted = arrives(&global, role(), Kind::ZoneIngress, "", &name, &labels, ingress);
    assert_eq!(accepted, Vec::<String>::new());
    let stored = global.snapshot().get(&Key::global(Kind::ZoneIngress, &name)).unwrap().clone();
    assert_eq!(stored.spec.get::<ZoneIngress>().unwrap().zone, "west");
}

#[test]
fn secrets_that_are_named_after_the_longest_mesh_arrive() {
    let zone = Plane::new();
    let longest = "m".repeat(253);
    zone.put(mesh(&longest).build());
    let data = || json!({ "data": "aGk=" });
    let role = || Role::Zone("east".into());
    let key = format!("dataplane-token-signing-key-{longest}-1");
    let refused = arrives(&zone, role(), Kind::Secret, &longest, &key, &[], data());
    assert_eq!(refused, Vec::<String>::new());
    assert_eq!(zone.names(Kind::Secret).len(), 1);
    let endless = "k".repeat(400);
    let refused = arrives(&zone, role(), Kind::Secret, &longest, &endless, &[], data());
    assert_eq!(refused, [format!("{endless:?} is not a name")]);
}

#[test]
fn what_has_no_mesh_no_name_or_no_sense_is_refused_with_the_reason() {
    let global = Plane::new();
    global.put(mesh("default").build());
    global.put(resource(Kind::Zone, "", "west", &[], json!({})));
    let role = || Role::Global("west".into());
    let a = [(labels::DISPLAY_NAME, "a")];
    let web = [(labels::DISPLAY_NAME, "web")];
    let called = |mesh: &str, name: &str| hashed_name(mesh, name, Some("west"), None);
    let refused = arrives(&global, role(), Kind::MeshService, "gone", &called("gone", "a"), &a, json!({}));
    assert_eq!(refused, ["mesh \"gone\" is not found"]);
    let refused = arrives(&global, role(), Kind::MeshService, "default", "../a b", &[], json!({}));
    assert_eq!(refused, ["\"../a b\" is not a name"]);
    let nowhere = json!({ "networking": { "address": "", "inbound": [{ "port": 80 }] } });
    let refused =
        arrives(&global, role(), Kind::Dataplane, "default", &called("default", "web"), &web, nowhere);
    assert!(refused[0].contains("networking.address"), "{refused:?}");
    assert_eq!(global.names(Kind::Dataplane).len() + global.names(Kind::MeshService).len(), 0);
    let zone = Plane::new();
    zone.put(mesh("default").build());
    let own = [(labels::ZONE, "east")];
    let refused =
        arrives(&zone, Role::Zone("east".into()), Kind::MeshService, "default", "a", &own, json!({}));
    assert_eq!(refused, ["it is zone \"east\"'s own and cannot come from elsewhere"]);
}

#[test]
fn a_complaint_names_a_few_reasons_and_counts_the_rest() {
    assert_eq!(complaint(0), None);
    let text = complaint(9).unwrap();
    assert!(text.contains("r0.default: é") && text.ends_with("and 4 more"), "{text}");
    assert!(text.len() < 2000, "{}", text.len());
    let text = complaint(100_000).unwrap();
    assert!(text.ends_with("and at least 995 more"), "{text}");
}

/// Returns the complaint about this many rejected resources.
fn complaint(count: usize) -> Option<String> {
    let batch = Batch::of_deletions(Kind::MeshService, Vec::new());
    let refused = |n| RefusedResource { name: format!("r{n}.default"), reason: "é".repeat(1000) };
    let mut receiver = Receiver::new(Role::Global("east".into()));
    receiver.complaint(&batch, (0..count).map(refused).collect(), &Guard::default())
}

#[test]
fn what_waits_for_meshes_has_a_bound() {
    let spec = json!({ "networking": { "address": "10.0.0.1", "inbound": [{ "port": 80, "tags": {
        "kuma.io/service": "a".repeat(1 << 20) } }] } });
    let spec = Spec::from_json(Kind::Dataplane, spec, &mut Vec::new()).unwrap();
    let orphan = |n: usize| Synced {
        key: Key::new(Kind::Dataplane, "nowhere", &format!("d-{n}")),
        labels: Labels::new(),
        spec: spec.clone(),
        status: None,
    };
    let mut receiver = Receiver::new(Role::Global("east".into()));
    let refused = receiver.wait((0..20).map(orphan).collect());
    assert_eq!(refused.len(), 5);
    assert!(refused[0].reason.contains("is not found"), "{refused:?}");
    // The same ones take no more room.
    assert_eq!(receiver.wait((0..15).map(orphan).collect()), []);
    let plane = Plane::new();
    plane.put(mesh("nowhere").build());
    let ready = receiver.no_longer_waiting(&plane.snapshot(), &mut Guard::default());
    assert_eq!(ready[0].resources.len(), 15);
    assert_eq!(ready[0].resources[0].spec, spec);
    assert_eq!(receiver.wait((0..15).map(orphan).collect()), []);
}

#[test]
fn numbers_of_an_external_service_are_sent_although_they_are_zero() {
    let spec = json!({ "services": { "example": { "serviceType": "external", "dataplanes": {} } } });
    let sent = resource(Kind::ServiceInsight, "default", "all-services-default", &[], spec.clone());
    let synced = Synced { key: sent.key, labels: sent.labels, spec: sent.spec, status: None };
    let bytes = kds::wire::encode(&synced).unwrap();
    let read = kds::wire::decode(Kind::ServiceInsight, &bytes).unwrap();
    assert_eq!(read.spec.to_json(), spec);
}
