//! A zone whose global control plane was replaced by one that does not have its data.

use kds::guard::ConfirmedKinds;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use testkit::build::mesh;

use crate::{
    codec::resource,
    world::{Plane, World},
};

const SIGNING_KEY: &str = "dataplane-token-signing-key-default-1";
const AUTHORITY: &str = "default.ca-builtin-key-ca";

fn id(value: &str) -> Resource {
    resource(Kind::Config, "", "kuma-cluster-id", &[], json!({ "config": value }))
}

fn secured() -> Resource {
    mesh("default").authority("ca", "STRICT").build()
}

fn secret(name: &str, data: &str) -> Resource {
    resource(Kind::Secret, "default", name, &[], json!({ "data": data }))
}

fn identity(name: &str) -> Resource {
    let spec = json!({ "selector": { "dataplane": {} }, "provider": { "type": "Bundled",
        "bundled": { "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true } } });
    resource(Kind::MeshIdentity, "default", name, &[], spec)
}

fn proxy() -> Resource {
    let spec = json!({ "networking": { "address": "10.0.0.1", "inbound": [
        { "port": 80, "tags": { "kuma.io/service": "web" } }] } });
    resource(Kind::Dataplane, "default", "web", &[], spec)
}

/// A zone with a proxy, connected to a global control plane with this identifier and mutual TLS.
fn world(name: &str) -> World {
    let mut world = World::new(&["east"]);
    world.global = of_id(name);
    [secured(), secret(SIGNING_KEY, "b25l"), secret(AUTHORITY, "Y2E="), identity("all")]
        .into_iter()
        .for_each(|resource| world.global.put(resource));
    world.connect(0);
    world.settle();
    world.zones[0].plane.put(proxy());
    world.settle();
    assert!(is_mutual(&world));
    world
}

fn of_id(name: &str) -> Plane {
    let plane = Plane::new();
    plane.put(resource(Kind::Zone, "", "east", &[], json!({ "enabled": true })));
    plane.put(id(name));
    plane
}

/// Replaces the global control plane by one that has made the mesh and its key anew.
fn replace(world: &mut World, by: &str) {
    world.cut(0);
    world.global = of_id(by);
    world.global.put(mesh("default").build());
    world.global.put(secret(SIGNING_KEY, "dHdv"));
    world.global.put(secret("new", "bmV3"));
    world.connect(0);
    world.settle();
}

fn spec(world: &World, key: &Key) -> Value {
    world.zones[0].plane.snapshot().get(key).map(|stored| stored.spec.to_json()).unwrap_or_default()
}

fn is_mutual(world: &World) -> bool {
    !spec(world, &Key::global(Kind::Mesh, "default"))["mtls"].is_null()
}

fn data(world: &World, name: &str) -> Value {
    spec(world, &Key::new(Kind::Secret, "default", name))["data"].clone()
}

fn known(world: &World) -> Value {
    spec(world, &Key::global(Kind::Config, "kuma-cluster-id"))["config"].clone()
}

fn complaint(world: &World, kind: Kind) -> String {
    world.zones[0].link.as_ref().unwrap().to_zone.complaints.get(&kind).cloned().unwrap_or_default()
}

fn accept(world: &mut World, label: &str) {
    let member = &mut world.zones[0];
    let half = &mut member.link.as_mut().unwrap().to_zone;
    half.accept(&member.plane, &mut member.guard, ConfirmedKinds::of(Some(label)));
}

fn assert_kept(world: &World, when: &str) {
    assert!(is_mutual(world), "{when}");
    assert_eq!(data(world, SIGNING_KEY), "b25l", "{when}");
    assert_eq!(data(world, AUTHORITY), "Y2E=", "{when}");
    assert_eq!(world.zones[0].plane.names(Kind::MeshIdentity).len(), 1, "{when}");
    assert_eq!(known(world), "a", "{when}");
}

#[test]
fn another_global_replaces_nothing_in_use_on_any_connection() {
    let mut world = world("a");
    replace(&mut world, "b");
    for connection in 0..3 {
        assert_kept(&world, &format!("connection {connection}"));
        assert_eq!(data(&world, "new"), "bmV3", "what replaces nothing comes in");
        let told = complaint(&world, Kind::Mesh);
        for part in
            ["1 changes are held back (default.)", "\"b\" instead of \"a\"", "kuma.io/accept-deletions"]
        {
            assert!(told.contains(part), "{part:?} is not in {told}");
        }
        assert!(complaint(&world, Kind::Secret).contains(SIGNING_KEY));
        // A change or a deletion on the way is the same.
        world.global.put(secret(SIGNING_KEY, "dGhyZWU="));
        world.settle();
        world.global.delete(&Key::new(Kind::Secret, "default", SIGNING_KEY));
        world.settle();
        assert_kept(&world, "after a deletion by name");
        world.global.put(secret(SIGNING_KEY, "dHdv"));
        world.settle();
        world.connect(0);
        world.settle();
    }
}

#[test]
fn accepted_changes_of_another_global_are_made_and_others_wait() {
    let mut world = world("a");
    replace(&mut world, "b");
    accept(&mut world, "Mesh");
    assert!(!is_mutual(&world));
    assert_eq!(data(&world, SIGNING_KEY), "b25l");
    assert_eq!(known(&world), "a", "not yet");
    accept(&mut world, "all");
    assert_eq!(data(&world, SIGNING_KEY), "dHdv");
    assert_eq!(data(&world, AUTHORITY), Value::Null, "it is deleted");
    assert_eq!(known(&world), "b");
    // From now on it is the zone's own, also without the label.
    accept(&mut world, "MeshTimeout");
    world.global.put(secured());
    world.global.put(secret(SIGNING_KEY, "Zm91cg=="));
    world.settle();
    assert!(is_mutual(&world));
    assert_eq!(data(&world, SIGNING_KEY), "Zm91cg==");
}

#[test]
fn the_same_global_turns_mutual_tls_off_also_from_an_older_backup() {
    let mut world = world("a");
    world.global.put(mesh("default").build());
    world.settle();
    assert!(!is_mutual(&world), "at once");
    replace(&mut world, "a");
    assert_eq!(data(&world, SIGNING_KEY), "dHdv");
    world.cut(0);
    world.global.put(secured());
    world.connect(0);
    world.settle();
    assert!(is_mutual(&world), "in the first response");
    assert_eq!(data(&world, AUTHORITY), "Y2E=", "missing keys are held back as before");
}

#[test]
fn another_global_with_the_same_data_is_the_zones_own_from_then_on() {
    let mut world = world("a");
    world.cut(0);
    world.global = of_id("b");
    [secured(), secret(SIGNING_KEY, "b25l"), secret(AUTHORITY, "Y2E="), identity("all")]
        .into_iter()
        .for_each(|resource| world.global.put(resource));
    world.connect(0);
    world.settle();
    assert_eq!(known(&world), "b");
    world.global.put(mesh("default").build());
    world.settle();
    assert!(!is_mutual(&world));
}

#[test]
fn where_no_proxy_needs_it_another_global_replaces_everything() {
    let mut world = world("a");
    world.zones[0].plane.delete(&proxy().key);
    world.settle();
    replace(&mut world, "b");
    assert!(!is_mutual(&world));
    assert_eq!(data(&world, SIGNING_KEY), "dHdv");
    assert_eq!(known(&world), "b");
}

#[test]
fn a_global_without_an_identifier_waits_until_it_names_one() {
    let mut world = world("a");
    replace(&mut world, "");
    assert_kept(&world, "it names none");
    assert!(complaint(&world, Kind::Mesh).contains("names no kuma-cluster-id"));
    world.global.delete(&id("").key);
    world.settle();
    assert_kept(&world, "the identifier is not deleted");
    world.global.put(id("b"));
    world.settle();
    assert_kept(&world, "another one");
    world.global.put(id("a"));
    world.settle();
    assert!(!is_mutual(&world), "the zone's own");
    assert_eq!(data(&world, SIGNING_KEY), "dHdv");
}

#[test]
fn a_zone_that_joins_its_first_global_gets_everything() {
    let mut world = World::new(&["east"]);
    world.zones[0].plane.put(id("its-own"));
    world.zones[0].plane.put(secured());
    world.zones[0].plane.put(proxy());
    replace(&mut world, "a");
    assert!(!is_mutual(&world));
    assert_eq!(known(&world), "a");
}

#[test]
fn the_former_global_comes_back_and_changes_are_made_at_once_again() {
    let mut world = world("a");
    let former = std::mem::replace(&mut world.global, Plane::new());
    replace(&mut world, "b");
    world.cut(0);
    world.global = former;
    world.global.put(mesh("default").build());
    world.connect(0);
    world.settle();
    assert!(!is_mutual(&world));
    assert_eq!(data(&world, SIGNING_KEY), "b25l");
    let held: Vec<_> = world.zones[0].guard.held().collect();
    assert_eq!(held, [(Kind::Secret, 1)], "only the key that the other one brought");
}
