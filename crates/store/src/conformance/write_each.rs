//! Independent writes with an outcome each, and waiting for a revision.

use std::{collections::BTreeSet, time::Duration};

use resources::Key;

use super::{Fixture, create, everything, mesh, owned, secret, tagged, write};
use crate::{Bookmark, Dirty, Error, Write};

/// Longest time a test waits for what must come before it calls it missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes of which the second, the fourth and the sixth are refused, for three reasons.
fn mixed(stored: u64) -> Vec<Write> {
    vec![
        Write::Create(secret("first")),
        Write::Create(secret("stored")),
        Write::Update { resource: tagged(secret("stored"), "changed"), expected: stored },
        Write::Update { resource: tagged(secret("stored"), "stale"), expected: stored },
        Write::Delete { key: secret("gone").key, expected: None },
        Write::Create(owned(secret("orphan"), &mesh("absent").key)),
        Write::Create(secret("last")),
    ]
}

pub async fn each_write_has_an_outcome_of_its_own(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let stored = create(store, secret("stored")).await;
    create(store, secret("gone")).await;

    let outcomes = store.write_each(mixed(stored.version)).await;

    let [first, exists, changed, stale, gone, orphan, last] = &outcomes[..] else { panic!("{outcomes:?}") };
    let snapshot = store.snapshot().unwrap();
    for (outcome, name) in [(first, "first"), (changed, "stored"), (last, "last")] {
        let key = secret(name).key;
        let committed = outcome.as_ref().expect("the write is sound");
        assert_eq!(committed.get(&key), snapshot.get(&key), "what is reported written is visible");
        assert_eq!(store.reached(&committed.at, Duration::ZERO).await, Ok(()));
    }
    assert_eq!(gone.as_ref().unwrap().changed, vec![(secret("gone").key, None)]);
    assert_eq!(exists, &Err(Error::AlreadyExists(stored.key.clone())));
    let found = snapshot.get(&stored.key).unwrap().version;
    assert_eq!(stale, &Err(Error::Conflict { key: stored.key.clone(), expected: stored.version, found }));
    assert!(matches!(orphan, Err(Error::OwnerMissing { .. })), "{orphan:?}");
    let names: Vec<_> = everything(store).iter().map(|r| r.name().to_owned()).collect();
    assert_eq!(names, ["first", "last", "stored"], "what was refused left no trace");
    assert_eq!(snapshot.get(&stored.key).unwrap().label("tag"), Some("changed"));
}

pub async fn only_those_of_each_that_were_written_are_reported(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let stored = create(store, secret("stored")).await;
    create(store, secret("gone")).await;
    let mut changes = store.changes();

    store.write_each(mixed(stored.version)).await;

    let written: BTreeSet<Key> = ["first", "stored", "gone", "last"].map(|name| secret(name).key).into();
    let mut reported = BTreeSet::new();
    while reported != written {
        let dirty = tokio::time::timeout(PATIENCE, changes.next()).await.expect("a change was missed");
        let Some(Dirty::Keys(keys)) = dirty else { panic!("{dirty:?}") };
        reported.extend(keys);
        assert!(reported.is_subset(&written), "{reported:?}");
    }
    assert_eq!(changes.try_next(), None);
}

pub async fn each_write_sees_those_before_it(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let owner = mesh("default");
    let writes = vec![
        Write::Create(owner.clone()),
        Write::Create(owned(secret("child"), &owner.key)),
        Write::Delete { key: owner.key.clone(), expected: None },
        Write::Create(owned(secret("late"), &owner.key)),
        Write::Create(secret("child")),
    ];
    let outcomes = store.write_each(writes).await;
    let accepted: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, true, false, true]);
    let taken_along = outcomes[2].as_ref().unwrap();
    assert_eq!(taken_along.changed, vec![(secret("child").key, None), (owner.key, None)]);
    assert_eq!(everything(store).len(), 1, "the child that came back");
}

pub async fn when_each_write_is_refused_nothing_happens(fixture: Fixture) {
    let store = fixture.store.as_ref();
    create(store, secret("a")).await;
    let before = store.snapshot().unwrap();
    let mut changes = store.changes();
    let outcomes = store.write_each(vec![Write::Create(secret("a")), Write::Create(secret("a"))]).await;
    assert_eq!(outcomes, vec![Err(Error::AlreadyExists(secret("a").key)); 2]);
    assert_eq!(store.write_each(Vec::new()).await, []);
    assert_eq!(store.snapshot().unwrap().revision(), before.revision());
    assert_eq!(changes.try_next(), None);
}

pub async fn a_revision_can_be_waited_for(fixture: Fixture) {
    let store = fixture.store.clone();
    let now = store.snapshot().unwrap().revision();
    let changes = store.changes();
    changes.until(now, Duration::ZERO).await.expect("what is there need not be waited for");

    let waiting = {
        let store = store.clone();
        let changes = changes.clone();
        tokio::spawn(async move {
            changes.until(now + 2, PATIENCE).await.unwrap();
            store.snapshot().unwrap().revision()
        })
    };
    create(store.as_ref(), secret("a")).await;
    let mut after_one = changes.clone();
    assert!(changes.until(now + 2, Duration::from_millis(1)).await.is_err(), "one of two writes was made");
    assert!(after_one.try_next().is_some(), "waiting moves no cursor");
    // A commit that changes nothing is one too: others may wait for its number.
    write(store.as_ref(), Vec::new()).await;
    let seen = waiting.await.unwrap();
    assert!(seen >= now + 2, "the snapshot is at {seen} when {} was waited for", now + 2);
}

pub async fn what_a_bookmark_marks_can_be_waited_for(fixture: Fixture) {
    let store = fixture.store.clone();
    let mut bookmarks = Vec::new();
    for name in ["a", "b"] {
        bookmarks.push((name, write(store.as_ref(), vec![Write::Create(secret(name))]).await.at));
    }
    assert_eq!(store.latest().await.unwrap(), bookmarks[1].1, "the newest write is the last one");
    for (name, bookmark) in &bookmarks {
        store.reached(bookmark, PATIENCE).await.unwrap();
        assert!(store.snapshot().unwrap().get(&secret(name).key).is_some(), "{name} is shown");
    }
    let foreign = store.reached(&Bookmark::new("of/another"), PATIENCE).await.unwrap_err();
    assert!(foreign.to_string().contains("of/another"), "{foreign}");
    // Without anything written there is nothing to wait for either.
    let empty = write(store.as_ref(), Vec::new()).await.at;
    store.reached(&empty, PATIENCE).await.unwrap();
}

pub async fn waiting_for_a_revision_ends_with_the_store(fixture: Fixture) {
    let changes = fixture.store.changes();
    let next = fixture.store.snapshot().unwrap().revision() + 1;
    let waiting = tokio::spawn(async move { changes.until(next, PATIENCE).await });
    drop(fixture);
    let error = waiting.await.unwrap().expect_err("the revision never came");
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
}

pub async fn a_store_that_has_caught_up_shows_every_write(fixture: Fixture) {
    let store = fixture.store.as_ref();
    for name in ["a", "b", "c"] {
        let created = create(store, secret(name)).await;
        store.reached(&store.latest().await.unwrap(), PATIENCE).await.unwrap();
        assert!(store.snapshot().unwrap().revision() >= created.version);
        let snapshot = store.caught_up(PATIENCE).await.unwrap();
        assert_eq!(snapshot.get(&created.key), Some(&created));
    }
}
