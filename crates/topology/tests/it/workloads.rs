//! Workloads that come from the labels of Dataplanes.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use resources::{Key, Kind, Resource, Status, kinds::workload::Proxies};
use serde_json::json;
use topology::{services::ServiceChange, workloads::Generator};

use crate::fixtures::{dataplane, insight, mesh, resource};

/// A store of one mesh, and the generator that follows it.
struct World {
    generator: Generator,
    workloads: BTreeMap<String, Resource>,
}

fn of(name: &str, workload: &str, states: &[&str]) -> Resource {
    let inbound = |(i, state): (usize, &&str)| json!({ "port": 80 + i, "state": state });
    let inbounds: Vec<_> = states.iter().enumerate().map(inbound).collect();
    let labels = [("kuma.io/workload".to_owned(), workload.to_owned())].into();
    Resource { labels, ..dataplane(name, "10.0.0.1", json!(inbounds)) }
}

fn counts(connected: u32, healthy: u32, total: u32) -> Proxies {
    Proxies { connected, healthy, total }
}

impl World {
    fn new() -> World {
        let mut world = World {
            generator: Generator::new("east", &resources::Environment::Universal),
            workloads: BTreeMap::new(),
        };
        world.put(mesh(""));
        world
    }

    fn put(&mut self, resource: Resource) {
        let key = resource.key.clone();
        self.generator.apply(&key, Some(Arc::new(resource)));
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        self.generator.apply(&Key::new(kind, "default", name), None);
    }

    /// Writes what is desired, checks that then nothing is left to do, and says what is stored.
    fn settle(&mut self) -> Vec<(&str, Proxies)> {
        for change in self.generator.desired(Timestamp::UNIX_EPOCH) {
            let name = change.key().name.to_string();
            match &change {
                ServiceChange::Create(resource) => drop(self.workloads.insert(name, resource.clone())),
                ServiceChange::Update { resource, expected } => {
                    let version = expected + 1;
                    let before = self.workloads.insert(name, Resource { version, ..resource.clone() });
                    assert_eq!(before.unwrap().version, *expected);
                }
                ServiceChange::Status { status, expected, .. } => {
                    let before = self.workloads.get_mut(&name).unwrap();
                    assert_eq!(before.version, *expected);
                    (before.version, before.status) = (expected + 1, Some(status.clone()));
                }
                ServiceChange::Delete { expected, .. } => {
                    assert_eq!(self.workloads.remove(&name).unwrap().version, *expected);
                }
            }
            let stored = self.workloads.get(&*change.key().name).cloned().map(Arc::new);
            self.generator.apply(change.key(), stored);
        }
        assert_eq!(self.generator.desired(Timestamp::UNIX_EPOCH), [], "asking again after the writes");
        self.workloads.iter().map(|(name, stored)| (name.as_str(), status(stored))).collect()
    }
}

fn status(workload: &Resource) -> Proxies {
    match &workload.status {
        Some(Status::Workload(status)) => status.dataplane_proxies,
        other => panic!("{other:?}"),
    }
}

#[test]
fn there_is_a_workload_for_each_label_that_can_be_a_name() {
    let mut world = World::new();
    for (name, workload) in [("a", "web"), ("b", "web"), ("c", "api"), ("d", "Not-A-Name"), ("e", "")] {
        world.put(of(name, workload, &[]));
    }
    world.put(dataplane("f", "10.0.0.2", json!([])));
    assert_eq!(world.settle(), [("api", counts(0, 0, 1)), ("web", counts(0, 0, 2))]);
    let web = &world.workloads["web"];
    let expect = [
        ("kuma.io/display-name", "web"),
        ("kuma.io/env", "universal"),
        ("kuma.io/managed-by", "workload-generator"),
        ("kuma.io/mesh", "default"),
        ("kuma.io/origin", "zone"),
        ("kuma.io/zone", "east"),
    ];
    assert!(web.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expect), "{:?}", web.labels);
    assert_eq!(web.owner.as_ref().map(|owner| owner.kind), Some(Kind::Mesh), "it goes with its mesh");
}

#[test]
fn connected_and_healthy_proxies_are_counted_as_they_change() {
    let mut world = World::new();
    world.put(of("a", "web", &["Ready", "NotReady"]));
    world.put(of("b", "web", &["NotReady"]));
    world.put(insight("b", ""));
    assert_eq!(world.settle(), [("web", counts(1, 1, 2))]);
    world.put(of("b", "web", &["Ready"]));
    world.remove(Kind::DataplaneInsight, "b");
    world.put(insight("a", ""));
    assert_eq!(world.settle(), [("web", counts(1, 2, 2))]);
    world.put(of("a", "api", &["Ready"]));
    assert_eq!(world.settle(), [("api", counts(1, 1, 1)), ("web", counts(0, 1, 1))]);
}

#[test]
fn a_workload_goes_with_its_last_dataplane_unless_a_user_wrote_it() {
    let mut world = World::new();
    let mine = resource(Kind::Workload, "mine", &[], json!({}));
    world.workloads.insert("mine".to_owned(), mine.clone());
    world.put(mine);
    world.put(of("a", "web", &[]));
    world.put(of("b", "mine", &[]));
    assert_eq!(world.settle(), [("mine", counts(0, 0, 1)), ("web", counts(0, 0, 1))]);
    world.remove(Kind::Dataplane, "a");
    world.remove(Kind::Dataplane, "b");
    assert_eq!(world.settle(), [("mine", counts(0, 0, 0))]);
}

#[test]
fn a_workload_of_another_zone_is_left_alone() {
    let mut world = World::new();
    world.put(resource(Kind::Workload, "web", &[("kuma.io/origin", "global")], json!({})));
    world.put(of("a", "web", &[]));
    assert_eq!(world.settle(), []);
}

#[test]
fn a_change_costs_the_workload_it_belongs_to() {
    let mut world = World::new();
    for i in 0..100 {
        world.put(of(&format!("dp-{i}"), &format!("w-{}", i % 10), &["Ready"]));
    }
    world.settle();
    let before = world.generator.visits();
    world.put(insight("dp-7", ""));
    assert_eq!(world.settle()[7], ("w-7", counts(1, 10, 10)));
    assert_eq!(world.generator.visits() - before, 2, "once for the change and once for what was written");
    world.put(insight("dp-7", "another-certificate"));
    assert!(!world.generator.is_dirty(), "what does not count changes nothing");
}
