//! Hostnames of services: made by HostnameGenerators, and given to one service each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::{Key, Kind, Resource, Status, kinds::service_status::Condition};
use serde_json::{Value, json};
use topology::services::{Generator, ServiceChange};

use crate::fixtures::{labelled, mesh, multi_zone, resource, service};

/// Stored resources, and a control plane of the zone `east` that writes the statuses.
struct World {
    stored: BTreeMap<Key, Arc<Resource>>,
    generator: Generator,
}

impl World {
    fn of(resources: impl IntoIterator<Item = Resource>) -> World {
        let generator = Generator::new("east", Duration::from_secs(3600));
        let mut world = World { stored: BTreeMap::new(), generator };
        world.put(mesh(""));
        resources.into_iter().for_each(|resource| world.put(resource));
        world.settle();
        world
    }

    fn put(&mut self, resource: Resource) {
        let version = self.stored.get(&resource.key).map_or(1, |stored| stored.version + 1);
        let resource = Arc::new(Resource { version, ..resource });
        self.stored.insert(resource.key.clone(), resource.clone());
        self.generator.apply(&resource.key.clone(), Some(resource));
    }

    fn delete(&mut self, key: &Key) {
        self.stored.remove(key);
        self.generator.apply(key, None);
        self.settle();
    }

    /// The writes, made.
    fn settle(&mut self) -> Vec<Key> {
        let desired = self.generator.desired(Timestamp::UNIX_EPOCH);
        let keys = desired.changes.iter().map(|change| change.key().clone()).collect();
        for change in desired.record.into_iter().chain(desired.changes) {
            let resource = match change {
                ServiceChange::Create(resource) | ServiceChange::Update { resource, .. } => resource,
                ServiceChange::Status { key, status, .. } => {
                    Resource { status: Some(status), ..Resource::clone(&self.stored[&key]) }
                }
                ServiceChange::Delete { key, .. } => panic!("{key:?} is deleted"),
            };
            self.put(resource);
        }
        assert_eq!(self.generator.desired(Timestamp::UNIX_EPOCH).changes, [], "asking again");
        keys
    }

    fn status(&self, kind: Kind, name: &str) -> Value {
        self.stored[&Key::new(kind, "default", name)].status.as_ref().map(Status::to_json).unwrap()
    }

    /// `hostname by generator` of each address.
    fn hostnames(&self, kind: Kind, name: &str) -> Vec<String> {
        let status = self.status(kind, name);
        let addresses = status["addresses"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of = |a: &Value| {
            format!("{} by {}", text(&a["hostname"]), text(&a["hostnameGeneratorRef"]["coreName"]))
        };
        addresses.iter().map(of).collect()
    }

    /// `generator: status reason message` of each generator that selects the service.
    fn conditions(&self, name: &str) -> Vec<String> {
        let status = self.status(Kind::MeshService, name);
        let generators = status["hostnameGenerators"].as_array().cloned().unwrap_or_default();
        let of = |generator: &Value| {
            let conditions: Vec<Condition> = serde_json::from_value(generator["conditions"].clone()).unwrap();
            let [Condition { type_, status, reason, message }] = &conditions[..] else {
                panic!("{conditions:?}")
            };
            assert_eq!(type_, "Generated");
            let name = generator["hostnameGeneratorRef"]["coreName"].as_str().unwrap();
            format!("{name}: {status} {reason} {message}")
        };
        generators.iter().map(of).collect()
    }
}

fn generator(name: &str, selector: Value, template: &str) -> Resource {
    let spec = json!({ "selector": selector, "template": template });
    let labels = [("kuma.io/origin", "zone")];
    Resource {
        key: Key::global(Kind::HostnameGenerator, name),
        ..resource(Kind::HostnameGenerator, name, &labels, spec)
    }
}

fn for_services(name: &str, labels: Value, template: &str) -> Resource {
    generator(name, json!({ "meshService": { "matchLabels": labels } }), template)
}

fn aged(resource: Resource, second: i64) -> Resource {
    Resource { created: Timestamp::from_second(second).unwrap(), ..resource }
}

fn external(name: &str) -> Resource {
    resource(Kind::MeshExternalService, name, &[], json!({ "match": { "port": 1 } }))
}

#[test]
fn each_kind_of_service_gets_its_hostnames_in_its_status() {
    let everything = |kind: &str| json!({ kind: {} });
    let mut world = World::of([
        generator("of-external", everything("meshExternalService"), "{{ .Name }}.extsvc.mesh.local"),
        generator("of-multi", everything("meshMultiZoneService"), "{{ .DisplayName }}.mzsvc.mesh.local"),
        generator("of-services", everything("meshService"), "{{ .DisplayName }}.svc.{{ .Zone }}.mesh.local"),
        for_services("app", json!({ "app": "web" }), "{{ label \"app\" }}.{{ .Mesh }}.mesh"),
        labelled(service("backend"), &[("app", "web"), ("kuma.io/display-name", "shown")]),
        service("plain"),
        external("ext"),
        multi_zone("multi", "web", json!([{ "port": 80 }])),
    ]);
    assert_eq!(
        world.hostnames(Kind::MeshService, "backend"),
        ["web.default.mesh by app", "shown.svc.east.mesh.local by of-services"]
    );
    assert_eq!(world.hostnames(Kind::MeshService, "plain"), ["plain.svc.east.mesh.local by of-services"]);
    assert_eq!(world.hostnames(Kind::MeshExternalService, "ext"), ["ext.extsvc.mesh.local by of-external"]);
    assert_eq!(world.hostnames(Kind::MeshMultiZoneService, "multi"), ["multi.mzsvc.mesh.local by of-multi"]);
    assert_eq!(world.status(Kind::MeshService, "backend")["addresses"][0]["origin"], "HostnameGenerator");
    assert_eq!(world.conditions("backend"), ["app: True Generated ", "of-services: True Generated "]);

    world.put(for_services("app", json!({ "app": "web" }), "{{ label \"other\" }}.mesh"));
    world.settle();
    let [error, _] = &world.conditions("backend")[..] else { panic!("two generators") };
    assert!(error.starts_with("app: False TemplateError pre evaluation of template"), "{error}");

    world.delete(&Key::global(Kind::HostnameGenerator, "app"));
    assert_eq!(world.conditions("backend"), ["of-services: True Generated "]);
    assert_eq!(world.hostnames(Kind::MeshService, "backend").len(), 1);
}

#[test]
fn the_oldest_service_has_a_hostname_and_the_others_say_who() {
    let app = |name: &str, second: i64| aged(labelled(service(name), &[("app", "web")]), second);
    let by_app = for_services("by-app", json!({ "app": "web" }), "{{ label \"app\" }}.mesh");
    let mut world = World::of([by_app.clone(), app("b", 1), app("a", 2), app("c", 2)]);
    let collision =
        |winner: &str| vec![format!("by-app: False Collision Hostname collision with MeshService: {winner}")];
    assert_eq!(world.hostnames(Kind::MeshService, "b"), ["web.mesh by by-app"]);
    assert_eq!((world.conditions("a"), world.conditions("c")), (collision("b"), collision("b")));
    let conflicts: Vec<_> = world.generator.hostname_conflicts().collect();
    assert_eq!(conflicts.len(), 1);
    assert_eq!(
        (&*conflicts[0].hostname, &*conflicts[0].winner, conflicts[0].losers.len()),
        ("web.mesh", "b", 2)
    );

    world.delete(&Key::new(Kind::MeshService, "default", "b"));
    assert_eq!(world.hostnames(Kind::MeshService, "a"), ["web.mesh by by-app"], "the first by name");
    assert_eq!(world.conditions("c"), collision("a"));

    world.put(labelled(service("a"), &[]));
    world.settle();
    assert_eq!(world.hostnames(Kind::MeshService, "c"), ["web.mesh by by-app"]);
    assert_eq!(world.generator.hostname_conflicts().count(), 0);
    assert_eq!(world.hostnames(Kind::MeshService, "a"), [""; 0]);
}

#[test]
fn generators_of_the_zone_come_first_and_older_before_younger() {
    let of = |name: &str, service: &str, second: i64| {
        let wanted = json!({ "name": service });
        aged(for_services(name, wanted, "same.mesh"), second)
    };
    let named = |name: &str, second: i64| aged(labelled(service(name), &[("name", name)]), second);
    let synced = |generator: Resource| labelled(generator, &[("kuma.io/origin", "global")]);
    let services = [named("a", 1), named("b", 2), named("c", 3)];
    let has_it = |generators: [Resource; 3]| {
        let world = World::of(generators.into_iter().chain(services.clone()));
        ["a", "b", "c"].into_iter().find(|name| !world.hostnames(Kind::MeshService, name).is_empty())
    };
    assert_eq!(has_it([synced(of("g-1", "a", 1)), of("g-2", "b", 5), of("g-3", "c", 4)]), Some("c"));
    assert_eq!(has_it([of("g-2", "a", 1), of("g-1", "b", 1), of("g-3", "c", 1)]), Some("b"), "by name");
    // Two generators that make one name for one service do not collide.
    let world = World::of([of("g-1", "a", 1), of("g-2", "a", 2), named("a", 1)]);
    assert_eq!(world.conditions("a"), ["g-1: True Generated ", "g-2: True Generated "]);
}

#[test]
fn a_hostname_of_another_kind_does_not_collide() {
    let same = |name: &str, kind: &str| generator(name, json!({ kind: {} }), "same.mesh");
    let world =
        World::of([same("s", "meshService"), same("e", "meshExternalService"), service("a"), external("a")]);
    assert_eq!(world.hostnames(Kind::MeshService, "a"), ["same.mesh by s"]);
    assert_eq!(world.hostnames(Kind::MeshExternalService, "a"), ["same.mesh by e"]);
}

#[test]
fn a_change_makes_hostnames_for_what_it_belongs_to_among_a_thousand() {
    let app = |i: usize| if i.is_multiple_of(100) { "few" } else { "many" };
    let services = (0..1000).map(|i| labelled(service(&format!("s-{i}")), &[("app", app(i))]));
    let few = |template: &str| for_services("few", json!({ "app": "few" }), template);
    let all = for_services("all", json!({}), "{{ .Name }}.all.mesh");
    let mut world = World::of(services.chain([few("{{ .Name }}.mesh"), all]));
    let mut check = |what: &str, change: Resource, writes: usize, most: u64| {
        let before = world.generator.visits();
        world.put(change);
        assert_eq!(world.settle().len(), writes, "{what}");
        let visits = world.generator.visits() - before;
        assert!(visits <= most, "{what}: {visits} visits");
    };
    // Each service is made a hostname, is looked at, and is looked at again when it was written.
    check("a generator of ten services", few("{{ .Name }}.few.mesh"), 10, 30);
    check("the same again", few("{{ .Name }}.few.mesh"), 0, 0);
    check("a service", labelled(service("s-1"), &[("app", "few")]), 1, 4);
    check("one that wants the name of another", labelled(service("s-x"), &[("kuma.io/zone", "x")]), 1, 3);
}
