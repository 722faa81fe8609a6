//! Virtual addresses: kept while a service lives, not given again soon after, whichever control plane gives them.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc, time::Duration};

use jiff::Timestamp;
use proptest::prelude::*;
use resources::{Key, Kind, Resource, Status};
use topology::services::{Addresses, Desired, Generator, ServiceChange};

use crate::fixtures::{mesh, service, with_status};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn addresses(range: &str) -> Addresses {
    Addresses { services: range.parse().unwrap(), quarantine: HOUR, ..Addresses::default() }
}

/// Store that several control planes share: every write, in order.
#[derive(Default)]
struct Store {
    now: Timestamp,
    log: Vec<(Key, Option<Arc<Resource>>)>,
    current: BTreeMap<Key, Arc<Resource>>,
    /// Times when addresses lost their service.
    released: BTreeMap<String, Timestamp>,
}

impl Store {
    fn new() -> Store {
        let mut store = Store::default();
        store.put(mesh(""));
        store
    }

    /// Writes a resource, and checks what must be true of addresses whichever writer it is.
    fn put(&mut self, resource: Resource) {
        let version = self.log.len() as u64 + 1;
        let resource = Arc::new(Resource { version, ..resource });
        let before = self.current.insert(resource.key.clone(), resource.clone());
        let old = before.as_ref().and_then(|old| vip(old));
        let new = vip(&resource);
        assert!(old.is_none() || old == new, "{} had {old:?} and has {new:?}", resource.key);
        if let (None, Some(new)) = (old, new) {
            let released = self.released.get(&new).copied();
            let rested = released.is_none_or(|released| released + HOUR <= self.now);
            assert!(rested, "{new} was released at {released:?} and is given at {}", self.now);
            let holders = self.current.values().filter(|other| vip(other).as_ref() == Some(&new));
            assert_eq!(holders.count(), 1, "{new} is given twice");
        }
        self.log.push((resource.key.clone(), Some(resource)));
    }

    fn delete(&mut self, key: &Key) {
        if let Some(before) = self.current.remove(key) {
            self.released.extend(vip(&before).map(|vip| (vip, self.now)));
            self.log.push((key.clone(), None));
        }
    }

    /// The write is not outdated.
    fn accepts(&self, change: &ServiceChange) -> bool {
        let stored = self.current.get(change.key()).map(|stored| stored.version);
        match change {
            ServiceChange::Create(_) => stored.is_none(),
            ServiceChange::Update { expected, .. }
            | ServiceChange::Status { expected, .. }
            | ServiceChange::Delete { expected, .. } => stored == Some(*expected),
        }
    }

    fn write(&mut self, change: ServiceChange) {
        match change {
            ServiceChange::Create(resource) | ServiceChange::Update { resource, .. } => self.put(resource),
            ServiceChange::Status { key, status, .. } => {
                let before = Resource::clone(&self.current[&key]);
                self.put(Resource { status: Some(status), ..before });
            }
            ServiceChange::Delete { key, .. } => self.delete(&key),
        }
    }

    fn vips(&self) -> BTreeMap<&str, String> {
        self.current.values().filter_map(|r| Some((r.name(), vip(r)?))).collect()
    }

    fn create(&mut self, name: &str) {
        let created = self.now;
        self.put(Resource { created, ..service(name) });
    }
}

fn vip(resource: &Resource) -> Option<String> {
    match &resource.status {
        Some(Status::MeshService(status)) => status.vips.first().map(|vip| vip.ip.clone()),
        _ => None,
    }
}

/// A control plane that has seen a part of what was written.
struct ControlPlane {
    generator: Generator,
    addresses: Addresses,
    seen: usize,
}

impl ControlPlane {
    fn new(range: &str) -> ControlPlane {
        let addresses = addresses(range);
        let generator = Generator::new("east", HOUR).with_addresses(&addresses);
        ControlPlane { generator, addresses, seen: 0 }
    }

    fn restart(&mut self, store: &Store) {
        self.generator = Generator::new("east", HOUR).with_addresses(&self.addresses);
        self.see_all_again(store);
    }

    /// Changes may have been missed, so everything is read again.
    fn resync(&mut self, store: &Store) {
        self.generator = self.generator.clone().anew();
        self.see_all_again(store);
    }

    fn see_all_again(&mut self, store: &Store) {
        let meshes_first = store.current.iter().filter(|(key, _)| key.kind == Kind::Mesh);
        let others = store.current.iter().filter(|(key, _)| key.kind != Kind::Mesh);
        for (key, resource) in meshes_first.chain(others) {
            self.generator.apply(key, Some(resource.clone()));
        }
        self.seen = store.log.len();
    }

    fn see(&mut self, store: &Store, count: usize) {
        for (key, resource) in store.log.iter().skip(self.seen).take(count) {
            self.generator.apply(key, resource.clone());
            self.seen += 1;
        }
    }

    /// Asks and writes as the control plane does: all at once, or the record and then each that is not outdated.
    fn settle(&mut self, store: &mut Store, lost: usize) -> Desired {
        let before = store.log.len();
        let desired = self.generator.desired(store.now);
        let record = desired.record.iter();
        let recorded = record.clone().all(|record| store.accepts(record));
        if recorded {
            record.cloned().for_each(|record| store.write(record));
        }
        for change in desired.changes.iter().skip(lost) {
            let given = desired.given.contains(change.key());
            match store.accepts(change) {
                true if recorded || !given => {
                    store.write(change.clone());
                    if given {
                        self.generator.was_written(change);
                    }
                }
                false if recorded && given => self.generator.was_refused(change),
                _ => {}
            }
        }
        // What a control plane wrote it sees, and what was written before.
        if store.log.len() > before {
            self.see(store, usize::MAX);
        }
        desired
    }

    fn catch_up(&mut self, store: &mut Store) {
        for _ in 0..3 {
            self.see(store, usize::MAX);
            self.settle(store, 0);
        }
        self.see(store, usize::MAX);
    }
}

#[test]
fn an_address_rests_an_hour_after_its_service_went_even_unobserved() {
    let mut store = Store::new();
    let mut control_plane = ControlPlane::new("241.0.0.0/28");
    for i in 0..16 {
        store.create(&format!("s-{i}"));
    }
    control_plane.catch_up(&mut store);
    assert_eq!(store.vips().len(), 16, "the network address is one of them");

    let released = store.vips()["s-3"].clone();
    // Deleted while no control plane runs.
    store.delete(&Key::new(Kind::MeshService, "default", "s-3"));
    store.create("late");
    store.now += MINUTE;
    control_plane.restart(&store);
    let desired = control_plane.settle(&mut store, 0);
    let exhausted: Vec<_> = control_plane.generator.exhausted().collect();
    assert_eq!(
        (exhausted[0].kind, exhausted[0].range.to_string()),
        (Kind::MeshService, "241.0.0.0/28".into())
    );
    assert_eq!(exhausted[0].services.iter().map(|name| &**name).collect::<Vec<_>>(), ["late"]);
    let again = desired.look_again.unwrap();
    assert!(store.now + HOUR <= again && again <= store.now + HOUR + 2 * MINUTE, "{again}");
    control_plane.catch_up(&mut store);

    // Restarts neither shorten nor prolong it.
    store.now += HOUR / 2;
    control_plane.restart(&store);
    assert_eq!(control_plane.settle(&mut store, 0).look_again, Some(again));
    store.now = again;
    control_plane.catch_up(&mut store);
    assert_eq!(store.vips()["late"], released);
    assert_eq!(control_plane.generator.exhausted().count(), 0);
    assert_eq!(control_plane.settle(&mut store, 0), Desired::default());
}

#[test]
fn an_address_whose_service_could_not_be_written_rests_and_is_given_again() {
    let mut store = Store::new();
    let mut control_plane = ControlPlane::new("241.0.0.0/28");
    for i in 0..16 {
        store.create(&format!("s-{i:02}"));
    }
    control_plane.see(&store, usize::MAX);
    // The record is written; one of the services is gone by then.
    store.delete(&Key::new(Kind::MeshService, "default", "s-03"));
    control_plane.settle(&mut store, 0);
    store.create("late");
    control_plane.catch_up(&mut store);
    assert_eq!(store.vips().get("late"), None);
    store.now += HOUR + 2 * MINUTE;
    control_plane.catch_up(&mut store);
    assert_eq!(store.vips()["late"], "241.0.0.3");
}

#[test]
fn the_address_of_a_service_gone_unseen_rests_and_is_given_again() {
    let mut store = Store::new();
    let mut control_plane = ControlPlane::new("241.0.0.0/28");
    for i in 0..16 {
        store.create(&format!("s-{i:02}"));
    }
    control_plane.see(&store, usize::MAX);
    let desired = control_plane.generator.desired(store.now);
    for change in desired.record.iter().chain(&desired.changes) {
        store.write(change.clone());
    }
    desired.changes.iter().for_each(|change| control_plane.generator.was_written(change));
    let key = Key::new(Kind::MeshService, "default", "s-03");
    store.delete(&key);
    // Only what is stored in the end is seen.
    let written = store.log.split_off(control_plane.seen);
    let gone = |(other, resource): &(Key, Option<Arc<Resource>>)| *other == key && resource.is_some();
    store.log.extend(written.into_iter().filter(|written| !gone(written)));
    store.create("late");
    control_plane.catch_up(&mut store);
    assert_eq!(store.vips().get("late"), None);
    store.now += HOUR + 2 * MINUTE;
    control_plane.catch_up(&mut store);
    assert_eq!(store.vips()["late"], "241.0.0.3");
}

#[test]
fn a_restart_does_not_give_an_address_again_while_there_are_others() {
    let mut store = Store::new();
    let mut control_plane = ControlPlane::new("241.0.0.0/8");
    for i in 0..5 {
        store.create(&format!("s-{i}"));
        control_plane.catch_up(&mut store);
        assert_eq!(store.vips()[format!("s-{i}").as_str()], format!("241.0.0.{i}"));
        store.delete(&Key::new(Kind::MeshService, "default", &format!("s-{i}")));
        store.now += 10 * HOUR;
        control_plane.restart(&store);
    }
    let record = store.current.values().find(|r| r.key.kind == Kind::Config).unwrap();
    assert_eq!(&*record.key.name, "kuma-default-service-vips");
    let text = record.spec.to_json()["config"].as_str().unwrap().to_owned();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({ "range": "241.0.0.0/8", "next": "241.0.0.5" });
    assert_eq!(record["meshService"], expected, "no list while there are plenty");
}

#[test]
fn another_range_gives_new_addresses_once_for_all_control_planes() {
    let mut store = Store::new();
    let mut old = ControlPlane::new("241.0.0.0/8");
    ["a", "b"].iter().for_each(|name| store.create(name));
    old.catch_up(&mut store);
    // The store's own check allows a service no second address, so these are new services.
    let reset = |store: &mut Store| {
        for name in ["a", "b"] {
            store.delete(&Key::new(Kind::MeshService, "default", name));
            store.create(name);
        }
    };
    reset(&mut store);
    let mut new = ControlPlane::new("10.1.0.0/16");
    new.restart(&store);
    new.catch_up(&mut store);
    let in_new_range = |store: &Store| store.vips().values().all(|vip| vip.starts_with("10.1."));
    assert!(in_new_range(&store), "{:?}", store.vips());
    let written = store.log.len();
    let vips = store.vips().len();
    old.catch_up(&mut store);
    new.catch_up(&mut store);
    assert_eq!((store.log.len(), vips), (written, 2), "the old one follows");
    store.create("c");
    old.catch_up(&mut store);
    assert!(in_new_range(&store), "{:?}", store.vips());
}

#[test]
fn an_address_outside_of_the_range_is_replaced() {
    let mut generator = Generator::new("east", HOUR).with_addresses(&addresses("10.1.0.0/16"));
    let with_vip = |vip: &str| with_status(service("a"), serde_json::json!({ "vips": [{ "ip": vip }] }));
    for resource in [mesh(""), with_vip("241.0.0.7")] {
        generator.apply(&resource.key.clone(), Some(Arc::new(resource)));
    }
    let desired = generator.desired(Timestamp::UNIX_EPOCH);
    let [ServiceChange::Update { resource, .. }] = &desired.changes[..] else { panic!("{desired:?}") };
    assert_eq!(vip(resource).as_deref(), Some("10.1.0.0"));
    assert!(desired.record.is_some() && desired.given.contains(&resource.key));
}

#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    Delete(u8),
    See(bool, u8),
    Settle(bool, u8),
    Restart(bool),
    Resync(bool),
    Pass(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..20).prop_map(Step::Create),
        3 => (0u8..20).prop_map(Step::Delete),
        4 => (any::<bool>(), 1u8..12).prop_map(|(who, count)| Step::See(who, count)),
        4 => (any::<bool>(), prop_oneof![4 => Just(0u8), 1 => 1u8..4]).prop_map(|(who, lost)| Step::Settle(who, lost)),
        1 => any::<bool>().prop_map(Step::Restart),
        1 => any::<bool>().prop_map(Step::Resync),
        2 => (1u8..50).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The store checks every write: no address changes, none is given twice or too soon.
    #[test]
    fn addresses_hold_whatever_two_control_planes_do(steps in prop::collection::vec(step(), 1..120)) {
        let mut store = Store::new();
        let mut control_planes = [ControlPlane::new("241.0.0.0/28"), ControlPlane::new("241.0.0.0/28")];
        for step in steps {
            let name = |n: u8| format!("s-{n}");
            match step {
                Step::Create(n) if !store.current.contains_key(&Key::new(Kind::MeshService, "default", &name(n))) => {
                    store.create(&name(n));
                }
                Step::Create(_) => {}
                Step::Delete(n) => store.delete(&Key::new(Kind::MeshService, "default", &name(n))),
                Step::See(who, count) => control_planes[usize::from(who)].see(&store, count.into()),
                Step::Settle(who, lost) => drop(control_planes[usize::from(who)].settle(&mut store, lost.into())),
                Step::Restart(who) => control_planes[usize::from(who)].restart(&store),
                Step::Resync(who) => control_planes[usize::from(who)].resync(&store),
                // No control plane is behind by as long as addresses rest.
                Step::Pass(minutes) => {
                    control_planes.iter_mut().for_each(|one| one.see(&store, usize::MAX));
                    store.now += MINUTE * u32::from(minutes);
                }
            }
        }
        // In the end every service has an address, if there are enough.
        for _ in 0..3 {
            control_planes.iter_mut().for_each(|one| one.catch_up(&mut store));
            store.now += HOUR + 3 * MINUTE;
        }
        control_planes[0].restart(&store);
        control_planes.iter_mut().for_each(|one| one.catch_up(&mut store));
        store.now += HOUR + 3 * MINUTE;
        control_planes.iter_mut().for_each(|one| one.catch_up(&mut store));
        let services = store.current.keys().filter(|key| key.kind == Kind::MeshService).count();
        prop_assert_eq!(store.vips().len(), services.min(16));
        let distinct: std::collections::BTreeSet<_> = store.vips().into_values().collect();
        prop_assert_eq!(distinct.len(), services.min(16));
        prop_assert!(distinct.iter().all(|vip| vip.parse::<Ipv4Addr>().is_ok()));
    }
}
