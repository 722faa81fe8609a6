//! Content and time of responses.

use std::collections::BTreeSet;

use kds::{
    provider::{NonceMatch, Provider, Response},
    select::Direction,
};
use resources::{Key, Kind, Resource};
use serde_json::json;
use store::{Dirty, Store};
use testkit::spec;

use crate::{
    codec::{self, resource},
    world::{LIMIT, Plane, selection},
};

fn timeout(name: &str, seconds: u32) -> Resource {
    let spec = spec::to_all(json!({ "connectionTimeout": format!("{seconds}s") }));
    resource(Kind::MeshTimeout, "default", name, &[], spec)
}

fn provider(limit: usize) -> Provider {
    Provider::new(selection(Direction::ToZone("west".into())), codec::encode, limit)
}

fn global() -> Plane {
    let plane = Plane::new();
    plane.put(resource(Kind::Mesh, "", "default", &[], json!({})));
    plane
}

/// Everything that is due, each response answered at once.
fn drain(provider: &mut Provider, plane: &Plane) -> Vec<Response> {
    std::iter::from_fn(|| {
        let response = provider.next(&plane.snapshot())?;
        assert_eq!(provider.answered(response.kind, &response.nonce), NonceMatch::Current);
        Some(response)
    })
    .collect()
}

fn dirty(keys: &[Key]) -> Dirty {
    Dirty::Keys(keys.iter().cloned().collect::<BTreeSet<_>>())
}

#[test]
fn the_first_response_is_complete_and_comes_also_when_there_is_nothing() {
    let plane = global();
    let mut provider = provider(LIMIT);
    plane.put(timeout("a", 1));
    plane.put(timeout("b", 1));
    assert!(provider.subscribe(Kind::MeshTimeout) && provider.subscribe(Kind::MeshRetry));
    let sent: Vec<_> = drain(&mut provider, &plane).iter().map(|r| (r.kind, r.resources.len())).collect();
    assert_eq!(sent, [(Kind::MeshRetry, 0), (Kind::MeshTimeout, 2)]);
    assert_eq!(drain(&mut provider, &plane), []);
}

#[test]
fn a_kind_that_does_not_go_this_way_is_not_answered() {
    let mut provider = provider(LIMIT);
    assert!(!provider.subscribe(Kind::Dataplane));
    assert_eq!(drain(&mut provider, &global()), []);
}

#[test]
fn one_response_of_a_kind_is_in_flight_and_later_changes_follow_it() {
    let plane = global();
    let mut provider = provider(LIMIT);
    provider.subscribe(Kind::MeshTimeout);
    let first = provider.next(&plane.snapshot()).unwrap();
    for seconds in 1..4 {
        plane.put(timeout("a", seconds));
        provider.changed(&dirty(&[timeout("a", 0).key]), &plane.snapshot());
        assert_eq!(provider.next(&plane.snapshot()), None);
    }
    assert_eq!(provider.answered(Kind::MeshTimeout, "other"), NonceMatch::Stale);
    assert_eq!(provider.next(&plane.snapshot()), None);
    assert_eq!(provider.answered(Kind::MeshTimeout, &first.nonce), NonceMatch::Current);
    let second = drain(&mut provider, &plane);
    assert_eq!((second.len(), second[0].resources.len()), (1, 1), "three changes of one resource are one");
}

#[test]
fn what_did_not_change_for_the_peer_is_not_sent() {
    let plane = global();
    let mut provider = provider(LIMIT);
    let mut service = resource(Kind::MeshExternalService, "default", "a", &[], json!({}));
    plane.put(service.clone());
    provider.subscribe(Kind::MeshExternalService);
    drain(&mut provider, &plane);
    let status = json!({ "vip": { "ip": "242.0.0.1" } });
    service.status = Some(resources::Status::from_json(Kind::MeshExternalService, status).unwrap());
    plane.put(service.clone());
    provider.changed(&dirty(&[service.key]), &plane.snapshot());
    assert_eq!(drain(&mut provider, &plane), [], "zones do not get its status");
    provider.changed(&Dirty::Everything, &plane.snapshot());
    assert_eq!(drain(&mut provider, &plane), []);
}

#[test]
fn a_deleted_or_deselected_resource_is_removed_by_the_peers_name() {
    let plane = global();
    let mut provider = provider(LIMIT);
    plane.put(timeout("a", 1));
    plane.put(timeout("b", 1));
    provider.subscribe(Kind::MeshTimeout);
    let names: Vec<String> =
        drain(&mut provider, &plane)[0].resources.iter().map(|sent| sent.name.clone()).collect();
    plane.delete(&timeout("a", 1).key);
    let mut hidden = timeout("b", 1);
    hidden.labels.insert("kuma.io/kds-sync".to_owned(), "disabled".to_owned());
    plane.put(hidden);
    provider.changed(&dirty(&[timeout("a", 1).key, timeout("b", 1).key]), &plane.snapshot());
    let sent = drain(&mut provider, &plane);
    assert_eq!((sent.len(), &sent[0].removed, sent[0].resources.len()), (1, &names, 0));
}

#[test]
fn a_zone_that_is_switched_off_is_withdrawn_and_comes_back_when_it_is_on() {
    let plane = global();
    let mut provider = provider(LIMIT);
    let zone = |enabled: bool| resource(Kind::Zone, "", "east", &[], json!({ "enabled": enabled }));
    let labels = [("kuma.io/origin", "zone"), ("kuma.io/zone", "east"), ("kuma.io/display-name", "a")];
    plane.put(zone(true));
    plane.put(resource(Kind::MeshService, "default", "a-hash", &labels, json!({})));
    provider.subscribe(Kind::MeshService);
    assert_eq!(drain(&mut provider, &plane)[0].resources.len(), 1);
    plane.put(zone(false));
    provider.changed(&dirty(&[zone(true).key]), &plane.snapshot());
    assert_eq!(drain(&mut provider, &plane)[0].removed.len(), 1);
    plane.put(zone(true));
    provider.changed(&dirty(&[zone(true).key]), &plane.snapshot());
    assert_eq!(drain(&mut provider, &plane)[0].resources.len(), 1);
}

#[test]
fn increments_are_cut_to_the_limit_and_no_long_first_response_is_sent() {
    let plane = global();
    let mut small = provider(4 << 10);
    small.subscribe(Kind::MeshTimeout);
    drain(&mut small, &plane);
    let names: Vec<String> = (0..50).map(|n| format!("t{n}")).collect();
    names.iter().for_each(|name| plane.put(timeout(name, 1)));
    let keys: Vec<Key> = names.iter().map(|name| timeout(name, 1).key).collect();
    small.changed(&dirty(&keys), &plane.snapshot());
    let sent = drain(&mut small, &plane);
    assert!(sent.len() > 2, "{}", sent.len());
    assert_eq!(sent.iter().map(|response| response.resources.len()).sum::<usize>(), 50);

    let mut stuck = provider(4 << 10);
    stuck.subscribe(Kind::MeshTimeout);
    stuck.subscribe(Kind::MeshRetry);
    let sent: Vec<Kind> = drain(&mut stuck, &plane).iter().map(|response| response.kind).collect();
    assert_eq!(sent, [Kind::MeshRetry], "an incomplete set would delete the rest; other kinds go on");
    let problems: Vec<_> = stuck.incomplete_kinds().collect();
    assert!(problems[0].0 == Kind::MeshTimeout && problems[0].1.contains("maxMsgSize"), "{problems:?}");

    names.iter().skip(3).for_each(|name| plane.delete(&timeout(name, 1).key));
    stuck.changed(&dirty(&keys), &plane.snapshot());
    assert_eq!(drain(&mut stuck, &plane)[0].resources.len(), 3);
    assert_eq!(stuck.incomplete_kinds().count(), 0);
}

fn in_parts(limit: usize) -> Provider {
    let mut provider = provider(limit);
    provider.understands_parts(true);
    provider.subscribe(Kind::MeshTimeout);
    provider
}

fn summary(responses: &[Response]) -> (usize, usize, Vec<bool>) {
    let resources = responses.iter().map(|response| response.resources.len()).sum();
    let removed = responses.iter().map(|response| response.removed.len()).sum();
    (resources, removed, responses.iter().map(|response| response.more).collect())
}

#[test]
fn a_peer_that_takes_parts_gets_a_complete_set_of_any_size() {
    let plane = global();
    let mut provider = in_parts(4 << 10);
    assert_eq!(summary(&drain(&mut provider, &plane)), (0, 0, vec![false]), "an empty set is one part");
    let mut provider = in_parts(4 << 10);
    (0..50).for_each(|n| plane.put(timeout(&format!("t{n}"), 1)));
    let first = provider.next(&plane.snapshot()).unwrap();
    assert!(first.more && !first.resources.is_empty());
    assert_eq!(provider.next(&plane.snapshot()), None, "one part is in flight at a time");
    let sent = first.resources[0].name.clone();

    // What changes meanwhile is part of it.
    let gone = Key::new(Kind::MeshTimeout, "default", "t0");
    let added = timeout("t99", 1);
    plane.delete(&gone);
    plane.put(added.clone());
    provider.changed(&dirty(&[gone, added.key]), &plane.snapshot());
    provider.answered(Kind::MeshTimeout, &first.nonce);
    let rest = drain(&mut provider, &plane);
    let (resources, removed, more) = summary(&rest);
    assert_eq!((first.resources.len() + resources, removed), (51, 1));
    assert!(rest.iter().any(|response| response.removed.contains(&sent)), "{sent}");
    assert!(more.len() > 2 && more[..more.len() - 1].iter().all(|more| *more) && !more[more.len() - 1]);
    assert_eq!(drain(&mut provider, &plane), []);
}

#[test]
fn a_complete_set_in_parts_ends_once_all_of_it_can_be_sent() {
    let plane = global();
    let mut provider = in_parts(4 << 10);
    let huge = "x".repeat(5 << 10);
    let mut large = timeout("large", 1);
    large.labels.insert("note".to_owned(), huge);
    plane.put(large.clone());
    plane.put(timeout("small", 1));
    assert_eq!(summary(&drain(&mut provider, &plane)), (1, 0, vec![true]), "the rest waits");
    assert!(provider.incomplete_kinds().next().unwrap().1.contains("the limit of a message"));
    plane.put(timeout("large", 1));
    provider.changed(&dirty(&[large.key]), &plane.snapshot());
    assert_eq!(summary(&drain(&mut provider, &plane)), (1, 0, vec![false]));
    assert_eq!(provider.incomplete_kinds().count(), 0);
}

#[test]
fn a_change_costs_what_it_changes() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static ENCODED: AtomicUsize = AtomicUsize::new(0);
    let counting = |synced: &kds::Synced| {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        codec::encode(synced)
    };
    let plane = global();
    (0..1000).for_each(|n| plane.put(timeout(&format!("t{n}"), 1)));
    let mut provider = Provider::new(selection(Direction::ToZone("west".into())), counting, 10 << 20);
    provider.subscribe(Kind::MeshTimeout);
    drain(&mut provider, &plane);
    let before = ENCODED.load(Ordering::Relaxed);
    let mut changes = plane.store.changes();
    plane.put(timeout("t7", 2));
    provider.changed(&changes.try_next().unwrap(), &plane.snapshot());
    assert_eq!(drain(&mut provider, &plane)[0].resources.len(), 1);
    assert_eq!(ENCODED.load(Ordering::Relaxed) - before, 1);
}

/// Number of visits and encodings of resources.
static ENCODED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn counted(synced: &kds::Synced) -> Result<bytes::Bytes, String> {
    ENCODED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    codec::encode(synced)
}

#[test]
fn a_change_costs_one_resource_whatever_is_there() {
    let plane = global();
    for number in 0..500 {
        plane.put(timeout(&format!("t-{number}"), 1));
    }
    let mut provider = Provider::new(selection(Direction::ToZone("west".into())), counted, 64 << 20);
    provider.subscribe(Kind::MeshTimeout);
    let mut changes = plane.store.changes();
    drain(&mut provider, &plane);
    let encoded = || ENCODED.swap(0, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(encoded(), 500, "each once");
    for (change, looks) in [(Some(timeout("t-7", 2)), 1), (Some(timeout("new", 1)), 1), (None, 0)] {
        match change {
            Some(change) => plane.put(change),
            None => plane.delete(&timeout("t-8", 0).key),
        }
        provider.changed(&changes.try_next().unwrap(), &plane.snapshot());
        let sent = drain(&mut provider, &plane);
        assert_eq!((sent.len(), sent[0].resources.len() + sent[0].removed.len()), (1, 1));
        assert_eq!(encoded(), looks);
    }
    // Insights of zones do not go to zones.
    plane.put(resource(Kind::ZoneInsight, "", "west", &[], json!({})));
    provider.changed(&changes.try_next().unwrap(), &plane.snapshot());
    assert_eq!((drain(&mut provider, &plane).len(), encoded()), (0, 0));
}
