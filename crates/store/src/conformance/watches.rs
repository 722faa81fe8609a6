//! Changes as subscribers see them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use resources::{Key, Kind};

use super::{Fixture, create, delete, mesh, owned, refused, resource, secret, tagged, write};
use crate::{Changes, Dirty, Error, Store, Write};

/// Longest time a test waits for what must come before it calls it missing.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

async fn next(changes: &mut Changes) -> BTreeSet<Key> {
    let dirty = tokio::time::timeout(PATIENCE, changes.next()).await.expect("a change was missed");
    keys(dirty.expect("the store is there"))
}

fn keys(dirty: Dirty) -> BTreeSet<Key> {
    match dirty {
        Dirty::Keys(keys) => keys,
        Dirty::Everything => panic!("nothing was forgotten, yet everything is dirty"),
    }
}

/// Collects until all of `expected` were reported; nothing else may be.
async fn collect(changes: &mut Changes, expected: &BTreeSet<Key>) {
    let mut seen = BTreeSet::new();
    while seen != *expected {
        let dirty = next(changes).await;
        assert!(
            dirty.is_subset(expected),
            "{:?} was never written",
            dirty.difference(expected).collect::<Vec<_>>()
        );
        seen.extend(dirty);
    }
}

pub async fn concurrent_writers_are_all_reported(fixture: Fixture) {
    const WRITERS: usize = 8;
    const WRITES: usize = 25;
    let name = |writer: usize, n: usize| format!("{writer}-{n}");
    let expected: BTreeSet<Key> =
        (0..WRITERS).flat_map(|w| (0..WRITES).map(move |n| secret(&name(w, n)).key)).collect();
    let subscribers: Vec<_> = (0..3)
        .map(|_| {
            let mut changes = fixture.store.changes();
            let expected = expected.clone();
            tokio::spawn(async move { collect(&mut changes, &expected).await })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = fixture.store.clone();
            tokio::spawn(async move {
                for n in 0..WRITES {
                    create(store.as_ref(), secret(&name(writer, n))).await;
                }
            })
        })
        .collect();
    for task in writers.into_iter().chain(subscribers) {
        task.await.unwrap();
    }
    assert_eq!(fixture.store.snapshot().unwrap().count(Kind::Secret, None), expected.len());
}

pub async fn concurrent_updates_of_one_key_lose_none(fixture: Fixture) {
    const WRITERS: usize = 6;
    const ROUNDS: usize = 15;
    create(fixture.store.as_ref(), tagged(secret("counter"), "0")).await;
    let tasks: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = fixture.store.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    increment(store.as_ref()).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let stored = fixture.store.snapshot().unwrap().get(&secret("counter").key).unwrap().clone();
    assert_eq!(stored.label("tag"), Some((WRITERS * ROUNDS).to_string().as_str()));
}

/// Reads, adds one, writes; again when another writer was faster.
async fn increment(store: &dyn Store) {
    loop {
        let now = store.snapshot().unwrap().get(&secret("counter").key).unwrap().clone();
        let count: usize = now.label("tag").unwrap().parse().unwrap();
        let resource = tagged(now.as_ref().clone(), &(count + 1).to_string());
        match store.write(vec![Write::Update { resource, expected: now.version }]).await {
            Ok(_) => return,
            Err(Error::Conflict { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

pub async fn changes_are_in_the_snapshot_before_they_are_reported(fixture: Fixture) {
    const COUNT: usize = 60;
    let mut changes = fixture.store.changes();
    let reader = {
        let store = fixture.store.clone();
        tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            while seen.len() < COUNT {
                for key in next(&mut changes).await {
                    assert!(store.snapshot().unwrap().get(&key).is_some(), "{key} was reported too early");
                    seen.insert(key);
                }
            }
        })
    };
    for n in 0..COUNT {
        create(fixture.store.as_ref(), secret(&n.to_string())).await;
    }
    reader.await.unwrap();
}

pub async fn many_changes_of_a_key_become_one(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let mut changes = store.changes();
    assert_eq!(changes.try_next(), None, "a subscription starts now");
    let mut stored = create(store, secret("a")).await;
    for n in 0..20 {
        let update =
            Write::Update { resource: tagged(secret("a"), &n.to_string()), expected: stored.version };
        stored = write(store, vec![update]).await.get(&stored.key).unwrap().clone();
    }
    let parent = create(store, mesh("default")).await;
    let child = create(store, owned(secret("child"), &parent.key)).await;
    delete(store, &parent.key).await;

    let expected = BTreeSet::from([stored.key.clone(), parent.key.clone(), child.key.clone()]);
    assert_eq!(next(&mut changes).await, expected, "one report, deletions and what went with them included");
    assert_eq!(changes.try_next(), None);
}

pub async fn failed_writes_are_not_reported(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let mut changes = store.changes();
    let batch =
        vec![Write::Create(secret("a")), Write::Delete { key: secret("missing").key, expected: None }];
    refused(store, batch).await;
    assert_eq!(changes.try_next(), None);
    create(store, secret("b")).await;
    assert_eq!(next(&mut changes).await, BTreeSet::from([secret("b").key]));
}

/// Waiting until a subscriber has seen everything up to now must not wait for writes that no subscriber sees.
pub async fn empty_batches_move_no_cursor(fixture: Fixture) {
    let store = &*fixture.store;
    let mut changes = store.changes();
    create(store, secret("a")).await;
    next(&mut changes).await;
    store.write(Vec::new()).await.expect("nothing to write is written");
    assert_eq!(store.changes().cursor(), changes.cursor());
}

pub async fn subscriptions_resume_from_a_cursor(fixture: Fixture) {
    let store = fixture.store.as_ref();
    let mut changes = store.changes();
    create(store, secret("a")).await;
    next(&mut changes).await;
    let cursor = changes.cursor();
    drop(changes);
    create(store, secret("b")).await;
    delete(store, &secret("a").key).await;

    let mut resumed = store.changes().resume(cursor);
    assert_eq!(next(&mut resumed).await, BTreeSet::from([secret("a").key, secret("b").key]));
    assert_eq!(resumed.try_next(), None);
    // A subscriber that knows nothing sees everything, key by key or at once.
    match store.changes().from_the_beginning().next().await {
        Some(Dirty::Keys(keys)) => assert!(keys.contains(&secret("b").key)),
        Some(Dirty::Everything) => {}
        None => panic!("the store is there"),
    }
}

pub async fn slow_subscribers_hold_nobody_up(fixture: Fixture) {
    const COUNT: usize = 300;
    let store = fixture.store.as_ref();
    let mut slow: Vec<Changes> = (0..10).map(|_| store.changes()).collect();
    let name = |n: usize| resource(Kind::Secret, "default", &format!("{n}"), "x");
    for batch in 0..COUNT / 10 {
        let creates = (batch * 10..(batch + 1) * 10).map(|n| Write::Create(name(n)));
        tokio::time::timeout(PATIENCE, write(store, creates.collect()))
            .await
            .expect("no writer waits for readers");
    }
    let expected: BTreeSet<Key> = (0..COUNT).map(|n| name(n).key).collect();
    for changes in &mut slow {
        collect(changes, &expected).await;
    }
}

pub async fn subscribers_learn_that_the_store_is_gone(fixture: Fixture) {
    let mut changes = fixture.store.changes();
    create(fixture.store.as_ref(), secret("last")).await;
    assert_eq!(Arc::strong_count(&fixture.store), 1, "the store has no other owner");
    drop(fixture);
    assert_eq!(next(&mut changes).await, BTreeSet::from([secret("last").key]), "no change is lost");
    let end = tokio::time::timeout(PATIENCE, changes.next()).await.expect("the feed must end");
    assert_eq!(end, None);
}
