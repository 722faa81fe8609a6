//! Statuses, which are written apart from what they are about.

use std::sync::Arc;

use resources::{Kind, Resource, Status};

use super::{Fixture, create, everything, refused, resource, tagged, write};
use crate::{Dirty, Error, Store, Write};

const ROUNDS: usize = 25;

fn service(tag: &str) -> Resource {
    resource(Kind::MeshService, "default", "backend", tag)
}

fn status(tag: &str) -> Status {
    service(tag).status.expect("services have a status")
}

fn told(tag: &str, expected: Option<u64>) -> Write {
    Write::Status { key: service("any").key, status: status(tag), expected }
}

fn stored(store: &dyn Store) -> Arc<Resource> {
    store.snapshot().unwrap().get(&service("any").key).unwrap().clone()
}

pub async fn a_status_is_written_and_nothing_else(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let owner = create(store, super::mesh("default")).await;
    let before = create(store, super::owned(service("one"), &owner.key)).await;
    let other = create(store, resource(Kind::MeshService, "default", "other", "one")).await;
    let mut changes = store.changes();
    let committed = write(store, vec![told("two", Some(before.version))]).await;

    let after = stored(store);
    assert!(after.version > before.version, "a status that is written makes a version");
    let mut expected = Resource::clone(&before);
    expected.version = after.version;
    expected.status = Some(status("two"));
    assert_eq!(*after, expected, "spec, labels, owner and times are those that were stored");
    assert_eq!(committed.changed, vec![(after.key.clone(), Some(after.clone()))]);
    assert_eq!(changes.next().await, Some(Dirty::Keys([after.key.clone()].into())));
    assert!(everything(store).contains(&other));
    // Who owns it still takes it along.
    super::delete(store, &owner.key).await;
    assert_eq!(everything(store), vec![other]);
}

pub async fn a_status_is_refused_for_another_version_or_nothing(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let key = service("any").key;
    for expected in [None, Some(1)] {
        assert_eq!(refused(store, vec![told("one", expected)]).await, Error::NotFound(key.clone()));
    }
    let first = create(store, service("one")).await;
    let second = write(store, vec![told("two", None)]).await;
    let expected = first.version;
    let found = stored(store).version;
    assert!(found > expected && second.get(&key).is_some());
    let conflict = Error::Conflict { key: key.clone(), expected, found };
    assert_eq!(refused(store, vec![told("three", Some(expected))]).await, conflict);
    // A spec that was decided on before the status was written is not written either.
    let late = Write::Update { resource: tagged(service("late"), "late"), expected };
    assert_eq!(refused(store, vec![late]).await, conflict);
    assert_eq!(stored(store).status, Some(status("two")));
}

pub async fn a_batch_may_write_a_resource_and_its_status(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let bare = Resource { status: None, ..service("one") };
    write(store, vec![Write::Create(bare.clone()), told("two", None)]).await;
    let first = stored(store);
    assert_eq!((&first.spec, &first.status), (&bare.spec, &Some(status("two"))));

    let changed = Resource { status: first.status.clone(), ..service("three") };
    let outcomes = store
        .write_each(vec![
            Write::Update { resource: changed.clone(), expected: first.version },
            told("late", Some(first.version)),
            told("four", None),
        ])
        .await;
    assert!(matches!(&outcomes[..], [Ok(_), Err(Error::Conflict { .. }), Ok(_)]), "{outcomes:?}");
    let second = stored(store);
    assert_eq!((&second.spec, &second.status), (&changed.spec, &Some(status("four"))));
}

/// Updates the tag of the stored service, again when another writer was faster.
async fn update_tag(store: &dyn Store, tag: &str) {
    loop {
        let now = stored(store);
        let resource = tagged(Resource::clone(&now), tag);
        match store.write(vec![Write::Update { resource, expected: now.version }]).await {
            Ok(_) => return,
            Err(Error::Conflict { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

pub async fn a_spec_and_a_status_written_at_once_are_both_kept(fixture: Fixture) {
    let store = fixture.store.as_ref();
    create(store, service("first")).await;
    for round in 0..ROUNDS {
        let tag = format!("round-{round}");
        let other_store = fixture.store.clone();
        let other_tag = tag.clone();
        // Without a version: whatever was decided about it meanwhile, the status is about the resource.
        let reporting = tokio::spawn(async move { other_store.write(vec![told(&other_tag, None)]).await });
        update_tag(store, &tag).await;
        reporting.await.unwrap().unwrap();
        store.caught_up(super::watches::PATIENCE).await.unwrap();
        let now = stored(store);
        assert_eq!((now.label("tag"), &now.status), (Some(&*tag), &Some(status(&tag))));
    }
}
