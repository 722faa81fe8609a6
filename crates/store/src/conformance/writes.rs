//! Creating, updating, deleting, restoring; batches and ownership.

use std::sync::Arc;

use resources::{Key, Kind};

use super::{
    Fixture, create, delete, everything, exists, mesh, owned, refused, resource, secret, tagged, write,
};
use crate::{Error, Write};

pub async fn created_resources_are_found(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let given = resource(Kind::MeshService, "default", "backend", "one");
    let stored = create(store, given.clone()).await;
    let snapshot = store.snapshot().unwrap();

    assert_eq!(snapshot.get(&given.key), Some(&stored));
    assert_eq!(stored.version, snapshot.revision());
    let mut expected = given;
    expected.version = stored.version;
    assert_eq!(*stored, expected, "what is stored is what was given, but for the version");
}

pub async fn updates_replace_and_raise_the_version(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let first = create(store, resource(Kind::MeshService, "default", "backend", "one")).await;
    let mut changed = resource(Kind::MeshService, "default", "backend", "two");
    changed.created = "2001-01-01T00:00:00Z".parse().unwrap();
    changed.status = None;
    let update = Write::Update { resource: changed.clone(), expected: first.version };
    let committed = write(store, vec![update]).await;

    let second = store.snapshot().unwrap().get(&first.key).unwrap().clone();
    assert_eq!(committed.changed, vec![(first.key.clone(), Some(second.clone()))]);
    assert!(second.version > first.version);
    changed.version = second.version;
    assert_eq!(*second, changed);
}

pub async fn deleted_resources_are_gone(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let kept = create(store, secret("kept")).await;
    let gone = create(store, secret("gone")).await;
    let committed =
        write(store, vec![Write::Delete { key: gone.key.clone(), expected: Some(gone.version) }]).await;

    assert_eq!(committed.changed, vec![(gone.key.clone(), None)]);
    assert_eq!(everything(store), vec![kept]);
    let deleted = store.snapshot().unwrap().revision();
    let again = create(store, secret("gone")).await;
    assert!(again.version > deleted, "a name that comes back has a later version");
}

pub async fn deletions_are_refused_while_something_is_owned(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let parent = create(store, mesh("parent")).await;
    let key = Key::new(Kind::Dataplane, "parent", "proxy");
    let child = owned(resource(key.kind, &key.mesh, &key.name, "one"), &parent.key);
    let delete =
        |expected| Write::DeleteUnlessOwner { key: parent.key.clone(), expected, of: Kind::Dataplane };
    let other = owned(resource(Kind::Secret, "parent", "s", "one"), &parent.key);
    write(store, vec![Write::Create(child.clone()), Write::Create(other.clone())]).await;
    let before = everything(store);
    let in_use = Error::InUse { key: parent.key.clone(), owned: key.clone() };
    assert_eq!(refused(store, vec![delete(None)]).await, in_use);
    let gone = Write::Delete { key: key.clone(), expected: None };
    assert_eq!(refused(store, vec![gone.clone(), Write::Create(child), delete(None)]).await, in_use);
    assert_eq!(everything(store), before, "what was refused left no trace");
    let stale = refused(store, vec![delete(Some(parent.version + 1000))]).await;
    assert!(matches!(stale, Error::Conflict { .. }), "{stale}");
    // Resources of other kinds go with their owner, and so may those that the batch has deleted before.
    write(store, vec![gone, delete(Some(parent.version))]).await;
    assert!(!exists(store, &parent.key) && !exists(store, &other.key));
}

pub async fn no_owned_resource_is_lost_by_a_deletion_that_races_with_it(fixture: Fixture) {
    let store = fixture.store.as_ref();
    for round in 0..20 {
        let parent = mesh("parent");
        let key = Key::new(Kind::Dataplane, "parent", &format!("proxy-{round}"));
        let child = owned(resource(key.kind, &key.mesh, &key.name, "one"), &parent.key);
        create(store, parent.clone()).await;
        let delete =
            Write::DeleteUnlessOwner { key: parent.key.clone(), expected: None, of: Kind::Dataplane };
        let (created, deleted) =
            tokio::join!(store.write(vec![Write::Create(child)]), store.write(vec![delete]));
        assert_ne!(created.is_ok(), deleted.is_ok(), "{created:?} {deleted:?}");
        store.caught_up(std::time::Duration::from_secs(30)).await.unwrap();
        assert_eq!(exists(store, &key), created.is_ok());
        if created.is_ok() {
            write(store, vec![Write::Delete { key: parent.key, expected: None }]).await;
        }
    }
}

pub async fn stale_versions_conflict(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let first = create(store, secret("a")).await;
    let update = |tag: &str, expected| Write::Update { resource: tagged(secret("a"), tag), expected };
    let second = write(store, vec![update("second", first.version)]).await;
    let second = second.get(&first.key).unwrap().clone();
    let before = everything(store);

    let delete = Write::Delete { key: first.key.clone(), expected: Some(first.version) };
    for stale in [update("third", first.version), delete] {
        match refused(store, vec![stale]).await {
            Error::Conflict { key, expected, found } => {
                assert_eq!((key, expected, found), (first.key.clone(), first.version, second.version));
            }
            other => panic!("not a conflict: {other}"),
        }
    }
    assert_eq!(everything(store), before);
}

pub async fn existing_names_are_refused(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let stored = create(store, secret("a")).await;
    for twice in [Write::Create(tagged(secret("a"), "other")), Write::Restore(tagged(secret("a"), "other"))] {
        let error = refused(store, vec![twice]).await;
        assert!(matches!(&error, Error::AlreadyExists(key) if *key == stored.key), "{error}");
    }
    let in_one_batch = vec![Write::Create(secret("b")), Write::Create(secret("b"))];
    assert!(matches!(refused(store, in_one_batch).await, Error::AlreadyExists(_)));
    assert_eq!(everything(store), vec![stored]);
    // The same name in another mesh, or of another kind, is another resource.
    create(store, resource(Kind::Secret, "other", "a", "x")).await;
    create(store, resource(Kind::GlobalSecret, "", "a", "x")).await;
}

pub async fn missing_resources_are_not_found(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let key = secret("a").key;
    for write in [
        Write::Update { resource: secret("a"), expected: 1 },
        Write::Delete { key: key.clone(), expected: None },
        Write::Delete { key: key.clone(), expected: Some(1) },
    ] {
        let error = refused(store, vec![write]).await;
        assert!(matches!(&error, Error::NotFound(missing) if *missing == key), "{error}");
    }
}

pub async fn failed_batches_leave_no_trace(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let stored = create(store, secret("stored")).await;
    let before = store.snapshot().unwrap();
    let batch = vec![
        Write::Create(secret("first")),
        Write::Update { resource: tagged(secret("stored"), "changed"), expected: stored.version },
        Write::Delete { key: secret("missing").key, expected: None },
    ];
    assert!(matches!(refused(store, batch).await, Error::NotFound(_)));

    assert_eq!(everything(store), vec![stored]);
    assert_eq!(store.snapshot().unwrap().revision(), before.revision());
    create(store, secret("first")).await;
}

pub async fn batches_see_their_own_steps(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let owner = mesh("default");
    let batch = vec![
        Write::Create(owner.clone()),
        Write::Create(owned(secret("child"), &owner.key)),
        Write::Create(secret("twice")),
        Write::Delete { key: secret("twice").key, expected: None },
        Write::Create(tagged(secret("twice"), "second")),
        Write::Create(secret("fleeting")),
        Write::Delete { key: secret("fleeting").key, expected: None },
    ];
    let committed = write(store, batch).await;

    let names: Vec<_> = everything(store).iter().map(|r| r.name().to_owned()).collect();
    assert_eq!(names, ["default", "child", "twice"]);
    let twice = store.snapshot().unwrap().get(&secret("twice").key).unwrap().clone();
    assert_eq!(twice.label("tag"), Some("second"));
    assert_eq!(committed.get(&twice.key), Some(&twice));
    assert!(everything(store).iter().all(|r| r.version == twice.version), "one batch, one version");
}

pub async fn owners_take_what_they_own_with_them(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let grandparent = create(store, mesh("default")).await;
    let parent = create(store, owned(secret("parent"), &grandparent.key)).await;
    let child = create(store, owned(secret("child"), &parent.key)).await;
    let other = create(store, mesh("other")).await;
    let orphan = create(store, secret("unowned")).await;

    let committed = delete(store, &grandparent.key).await;

    assert_eq!(everything(store), vec![other, orphan]);
    let mut gone: Vec<Key> = committed.changed.iter().map(|(key, _)| key.clone()).collect();
    gone.sort();
    let mut expected = vec![grandparent.key.clone(), parent.key.clone(), child.key.clone()];
    expected.sort();
    assert_eq!(gone, expected, "the outcome lists what went with the owner");
    assert!(committed.changed.iter().all(|(_, value)| value.is_none()));
}

pub async fn owners_must_exist(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let owner = mesh("absent").key;
    let child = owned(secret("child"), &owner);
    let stored = create(store, secret("stored")).await;
    let update = Write::Update { resource: owned(secret("stored"), &owner), expected: stored.version };
    for write in [Write::Create(child.clone()), update] {
        let error = refused(store, vec![write]).await;
        assert!(matches!(&error, Error::OwnerMissing { owner: missing, .. } if *missing == owner), "{error}");
    }
    let deleted_before = vec![
        Write::Create(mesh("absent")),
        Write::Delete { key: owner.clone(), expected: None },
        Write::Create(child),
    ];
    assert!(matches!(refused(store, deleted_before).await, Error::OwnerMissing { .. }));
    assert_eq!(everything(store), vec![stored]);
}

pub async fn owned_resources_follow_their_last_owner(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let first = create(store, mesh("first")).await;
    let second = create(store, mesh("second")).await;
    let child = create(store, owned(secret("child"), &first.key)).await;
    let moved = Write::Update { resource: owned(secret("child"), &second.key), expected: child.version };
    write(store, vec![moved]).await;

    delete(store, &first.key).await;
    assert!(exists(store, &child.key), "its owner is another one now");
    delete(store, &second.key).await;
    assert!(!exists(store, &child.key));
}

pub async fn circular_ownership_ends(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let a = create(store, secret("a")).await;
    let b = create(store, owned(secret("b"), &a.key)).await;
    let circle = Write::Update { resource: owned(secret("a"), &b.key), expected: a.version };
    write(store, vec![circle]).await;
    let own = create(store, secret("own")).await;
    let itself = Write::Update { resource: owned(secret("own"), &own.key), expected: own.version };
    write(store, vec![itself]).await;

    delete(store, &a.key).await;
    delete(store, &own.key).await;
    assert!(everything(store).is_empty());
}

pub async fn restored_resources_keep_everything(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let mut parent = mesh("default");
    parent.version = 1000;
    let mut child = owned(resource(Kind::MeshService, "default", "backend", "one"), &parent.key);
    child.version = 7;
    child.modified = "2025-12-31T23:59:59.000000001Z".parse().unwrap();
    write(store, vec![Write::Restore(parent.clone()), Write::Restore(child.clone())]).await;

    assert_eq!(everything(store), vec![Arc::new(parent.clone()), Arc::new(child.clone())]);
    let later = create(store, secret("later")).await;
    assert!(later.version > parent.version, "new versions are later than restored ones");
    delete(store, &parent.key).await;
    assert!(!exists(store, &child.key), "restored ownership counts");
}
