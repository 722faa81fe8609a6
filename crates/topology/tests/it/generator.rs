//! A generator that follows changes says what one says that sees the result only, and looks at no more
//! services than a change belongs to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use topology::services::{Desired, Generator, ServiceChange};

use crate::fixtures::{dataplane, insight, mesh, multi_zone, resource, serving, with_status};

const HOUR: Duration = Duration::from_secs(3600);

/// Resources stored in a mesh, and a generator that follows them.
struct Followed {
    stored: BTreeMap<Key, Arc<Resource>>,
    generator: Generator,
    now: Timestamp,
    versions: u64,
}

impl Followed {
    fn new() -> Followed {
        let mut followed = Followed {
            stored: BTreeMap::new(),
            generator: Generator::new("east", HOUR),
            now: Timestamp::UNIX_EPOCH,
            versions: 0,
        };
        followed.put(mesh("STRICT"));
        followed
    }

    fn put(&mut self, resource: Resource) {
        self.versions += 1;
        let resource = Arc::new(Resource { version: self.versions, ..resource });
        self.stored.insert(resource.key.clone(), resource.clone());
        self.generator.apply(&resource.key.clone(), Some(resource));
    }

    fn delete(&mut self, key: &Key) {
        self.stored.remove(key);
        self.generator.apply(key, None);
    }

    /// Returns the desired writes, and asserts that a generator without history wants the same.
    fn desired(&mut self) -> Desired {
        let mut scratch = self.generator.clone().anew();
        for (key, resource) in &self.stored {
            scratch.apply(key, Some(resource.clone()));
        }
        let expect = scratch.desired(self.now);
        let found = self.generator.desired(self.now);
        assert_eq!((&found.changes, found.look_again), (&expect.changes, expect.look_again));
        assert_eq!((&found.record, &found.given), (&expect.record, &expect.given));
        let said_again = found.conflicts.iter().all(|conflict| expect.conflicts.contains(conflict));
        assert!(said_again, "{:?} of {:?}", found.conflicts, expect.conflicts);
        found
    }

    fn write(&mut self, changes: Vec<ServiceChange>) {
        for change in changes {
            let stored = self.stored.get(change.key()).map(|stored| stored.version);
            match change {
                ServiceChange::Create(resource) => {
                    assert_eq!(stored, None);
                    self.put(resource);
                }
                ServiceChange::Update { resource, expected } => {
                    assert_eq!(stored, Some(expected));
                    self.put(resource);
                }
                ServiceChange::Status { key, status, expected } => {
                    assert_eq!(stored, Some(expected));
                    let before = Resource::clone(&self.stored[&key]);
                    self.put(Resource { status: Some(status), ..before });
                }
                ServiceChange::Delete { key, expected } => {
                    assert_eq!(stored, Some(expected));
                    self.delete(&key);
                }
            }
        }
    }

    fn settle(&mut self) {
        let Desired { changes, record, .. } = self.desired();
        self.write(record.into_iter().chain(changes).collect());
        let again = self.desired();
        assert_eq!((again.changes, again.record), (Vec::new(), None), "asking again after the writes");
        assert!(!self.generator.is_dirty());
    }
}

/// One step: writes (which resource, and what is in it; `None` deletes it), minutes that pass, and whether
/// the store takes what the generator wants to write.
type Step = (Vec<(u8, u8, Option<[u8; 3]>)>, u8, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content = prop::option::weighted(0.75, prop::array::uniform3(0u8..4));
    // Dataplanes are what matters most, so most writes are theirs.
    let writes = prop::collection::vec((0u8..14, 0u8..4, content), 0..4);
    prop::collection::vec((writes, 0u8..70, prop::bool::weighted(0.8)), 1..25)
}

fn build(kind: u8, name: u8, content: [u8; 3]) -> Resource {
    let [a, b, c] = content.map(usize::from);
    let built = match kind {
        0 if a == 0 => resource(Kind::Mesh, "default", &[], json!({})),
        0 => mesh(["", "STRICT", "PERMISSIVE", "STRICT"][b]),
        1..=4 => some_dataplane(name, content),
        5 | 6 => insight(&format!("dp-{name}"), if a < 2 { "ca-1" } else { "" }),
        7 | 8 => some_service(name, content),
        9 => {
            let status = [json!({}), json!({ "vip": { "ip": format!("242.0.0.{b}") } })];
            let external = resource(
                Kind::MeshExternalService,
                &format!("e-{name}"),
                &[],
                json!({ "match": { "port": 1 } }),
            );
            with_status(external, status[a % 2].clone())
        }
        12 | 13 => some_hostname_generator(name, content),
        _ => {
            let app = ["x", "y", "x", "z"][a];
            let built = multi_zone(&format!("m-{name}"), app, json!([{ "port": 80 }]));
            let status = [json!({}), json!({ "vips": [{ "ip": format!("243.0.0.{b}") }] })];
            with_status(built, status[c % 2].clone())
        }
    };
    // Services of the same age, and of others.
    Resource { created: Timestamp::from_second(i64::from(content[2])).unwrap(), ..built }
}

fn some_dataplane(name: u8, [first, second, labels]: [u8; 3]) -> Resource {
    let tags = |seed: u8| match seed {
        0 => json!({ "kuma.io/service": "a" }),
        1 => json!({ "kuma.io/service": "b", "kuma.io/protocol": "http" }),
        2 => json!({ "kuma.io/service": "c", "version": "1" }),
        _ => json!({ "kuma.io/service": "no_name", "version": "1" }),
    };
    let state = ["Ready", "NotReady"][usize::from(labels % 2)];
    let inbounds = json!([
        { "port": 80 + u32::from(labels / 2), "tags": tags(first), "state": state },
        { "port": 90, "tags": tags(second) },
    ]);
    let built = dataplane(&format!("dp-{name}"), "10.0.0.1", inbounds);
    let labels: &[(&str, &str)] = if labels > 1 { &[("app", "x"), ("kuma.io/workload", "w")] } else { &[] };
    Resource { labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(), ..built }
}

fn some_hostname_generator(name: u8, [selector, template, origin]: [u8; 3]) -> Resource {
    let labels = [json!({}), json!({ "app": "x" }), json!({ "kuma.io/origin": "zone" })];
    let labels = json!({ "matchLabels": labels[usize::from(selector % 3)] });
    let selector = match selector {
        3 => json!({ "meshExternalService": {} }),
        2 => json!({ "meshMultiZoneService": labels }),
        _ => json!({ "meshService": labels }),
    };
    let templates = ["{{ .Name }}.mesh", "same.mesh", "{{ label \"app\" }}.mesh", "{{ .DisplayName }}.mesh"];
    let spec = json!({ "selector": selector, "template": templates[usize::from(template)] });
    let labels: &[(&str, &str)] = if origin > 1 { &[("kuma.io/origin", "zone")] } else { &[] };
    let built = resource(Kind::HostnameGenerator, "", labels, spec);
    Resource { key: Key::global(Kind::HostnameGenerator, &format!("g-{name}")), ..built }
}

fn some_service(name: u8, [selector, vip, labels]: [u8; 3]) -> Resource {
    let name = ["a", "b", "x", "y"][usize::from(name)];
    let selector = match selector {
        0 => json!({ "dataplaneTags": { "kuma.io/service": "a" } }),
        1 => json!({ "dataplaneTags": { "version": "*" } }),
        2 => json!({ "dataplaneRef": { "name": "dp-1" } }),
        _ => json!({ "dataplaneLabels": { "matchLabels": { "app": "x" } } }),
    };
    let labels: &[(&str, &str)] = match labels {
        0 => &[("app", "y")],
        1 => &[("kuma.io/managed-by", "meshservice-generator"), ("app", "x")],
        2 => &[("kuma.io/managed-by", "meshservice-generator"), ("kuma.io/origin", "global"), ("app", "x")],
        _ => &[("kuma.io/display-name", "shown"), ("app", "x")],
    };
    let spec = json!({ "selector": selector, "ports": [{ "port": 80, "targetPort": 80 }] });
    let status = match vip {
        0 => json!({}),
        1 => json!({ "tls": { "status": "Ready" } }),
        vip => json!({ "vips": [{ "ip": format!("241.0.0.{}", vip - 2) }] }),
    };
    with_status(resource(Kind::MeshService, name, labels, spec), status)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn following_changes_ends_at_the_same_writes_as_seeing_the_result_only(steps in steps()) {
        let mut followed = Followed::new();
        for (writes, minutes, taken) in steps {
            // Changes come as sets: each resource is seen as it is in the end.
            let writes: BTreeMap<(u8, u8), _> = writes.into_iter().map(|(k, n, c)| ((k, n), c)).collect();
            for ((kind, name), content) in writes {
                let built = build(kind, name, content.unwrap_or_default());
                match content {
                    Some(_) => followed.put(built),
                    None => followed.delete(&built.key),
                }
            }
            followed.now += SignedDuration::from_mins(i64::from(minutes));
            let desired = followed.desired();
            if taken {
                followed.write(desired.record.into_iter().chain(desired.changes).collect());
            }
        }
    }
}

/// A thousand services of one Dataplane each, all of them settled; every tenth is called by one that spans
/// zones.
fn thousand() -> Followed {
    let mut followed = Followed::new();
    for i in 0..1000 {
        let name = format!("dp-{i}");
        let service = format!("s-{i}");
        followed.put(serving(&name, "10.0.0.1", &service));
        if i % 10 == 0 {
            let wanted = json!({ "meshService": { "matchLabels": { "kuma.io/display-name": service } } });
            let spec = json!({ "selector": wanted, "ports": [{ "port": 80 }] });
            followed.put(resource(Kind::MeshMultiZoneService, &format!("m-{i}"), &[], spec));
        }
    }
    followed.settle();
    followed
}

fn check_visits(what: &str, change: impl FnOnce(&mut Followed), writes: usize, most: u64) {
    let mut followed = thousand();
    let before = followed.generator.visits();
    change(&mut followed);
    let desired = followed.generator.desired(followed.now);
    assert_eq!(desired.changes.len(), writes, "{what}: {:?}", desired.changes);
    followed.write(desired.record.into_iter().chain(desired.changes).collect());
    assert_eq!(followed.generator.desired(followed.now).changes, [], "{what}");
    let visits = followed.generator.visits() - before;
    assert!(visits <= most, "{what}: {visits} services looked at");
}

#[test]
fn a_change_looks_at_the_services_it_belongs_to_among_a_thousand() {
    check_visits("an insight that turns online", |f| f.put(insight("dp-500", "ca-1")), 1, 2);
    check_visits("an insight of no Dataplane", |f| f.put(insight("elsewhere", "ca-1")), 0, 0);
    check_visits("one more Dataplane", |f| f.put(serving("more", "10.0.0.2", "s-7")), 1, 2);
    check_visits("one Dataplane less", |f| f.delete(&Key::new(Kind::Dataplane, "default", "dp-7")), 1, 2);
    check_visits("a new service", |f| f.put(serving("more", "10.0.0.2", "new")), 1, 2);
    check_visits("the same mesh again", |f| f.put(mesh("STRICT")), 0, 0);
    let app = |followed: &mut Followed| {
        let key = Key::new(Kind::MeshService, "default", "s-10");
        let mut labelled = Resource::clone(&followed.stored[&key]);
        labelled.labels.insert("kuma.io/display-name".into(), "other".into());
        followed.put(labelled);
    };
    check_visits("a service that another one consists of", app, 1, 3);
}

#[test]
fn a_grace_period_that_ends_looks_at_its_service_only() {
    let mut followed = thousand();
    followed.delete(&Key::new(Kind::Dataplane, "default", "dp-3"));
    followed.settle();
    let before = followed.generator.visits();
    let Some(ends) = followed.generator.desired(followed.now).look_again else { panic!("no deadline") };
    let desired = followed.generator.desired(ends);
    let [ServiceChange::Delete { key, .. }] = &desired.changes[..] else { panic!("{desired:?}") };
    assert_eq!((&*key.name, desired.look_again), ("s-3", None));
    assert_eq!(followed.generator.visits() - before, 1);
}

#[test]
fn conflicts_of_ports_are_said_once() {
    let mut followed = Followed::new();
    let with_port = |name: &str, port: u32| -> Resource {
        let inbound: Value = json!([{ "port": port, "tags": { "kuma.io/service": "backend" } }]);
        dataplane(name, "10.0.0.1", inbound)
    };
    followed.put(with_port("dp-1", 80));
    followed.put(with_port("dp-2", 81));
    let desired = followed.desired();
    assert_eq!(desired.conflicts.len(), 1);
    followed.write(desired.changes);
    assert_eq!(followed.desired().conflicts, []);
    followed.put(with_port("dp-3", 82));
    let names: Vec<_> = followed.desired().conflicts.into_iter().flat_map(|c| c.dataplanes).collect();
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["dp-2", "dp-3"]);
}
