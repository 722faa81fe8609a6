//! Feed of the keys that are dirty since a subscriber last looked.
//!
//! The feed remembers, for every key, the revision of its last change only. A subscriber holds a
//! cursor (a revision); what it gets is the set of keys that changed after it. However slow it is,
//! it costs the feed nothing and the writer never waits: many changes of one key become one.
//! Deletions are remembered for the last [`TOMBSTONES`]; a subscriber with an older cursor has to
//! look at everything again, which is always correct.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use resources::Key;
use tokio::sync::watch;

use crate::Error;

/// Number of deletions that are remembered for subscribers that fall behind.
pub const TOMBSTONES: usize = 100_000;

/// A place in the feed. Keep it to resume later, also from another subscription of the same feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(u64);

/// Keys that changed since a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dirty {
    Keys(BTreeSet<Key>),
    /// More was forgotten than can be listed: compare with a snapshot.
    Everything,
}

/// The writer's side: one per store.
#[derive(Debug)]
pub struct Feed {
    log: Arc<Mutex<Log>>,
    /// The revision of the last change that subscribers see.
    latest: watch::Sender<u64>,
    /// The revision of the snapshot: commits that changed nothing count too.
    reached: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Log {
    /// Last change of each key, by revision; several keys may share one.
    by_revision: BTreeMap<u64, BTreeSet<Key>>,
    last: HashMap<Key, u64>,
    /// Deleted keys, oldest first, with the revision of their deletion.
    tombstones: VecDeque<(u64, Key)>,
    /// Cursors before this revision cannot be answered key by key.
    complete_from: u64,
}

impl Feed {
    /// A feed that starts after `revision`: what changed before is not known.
    pub fn new(revision: u64) -> Feed {
        let log = Log { complete_from: revision, ..Log::default() };
        Feed {
            log: Arc::new(Mutex::new(log)),
            latest: watch::Sender::new(revision),
            reached: watch::Sender::new(revision),
        }
    }

    /// Records a commit that is in the snapshot. `changed` lists each key with whether it still exists.
    /// A commit that changed nothing moves no cursor: no subscriber would report it, so a caller that
    /// waits for a cursor would wait forever.
    pub fn publish(&self, revision: u64, changed: impl IntoIterator<Item = (Key, bool)>) {
        let mut changed = changed.into_iter().peekable();
        if changed.peek().is_some() {
            {
                let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                for (key, exists) in changed {
                    log.record(revision, key, exists);
                }
            }
            raise(&self.latest, revision);
        }
        raise(&self.reached, revision);
    }

    /// A subscription that reports what changes from now on.
    pub fn subscribe(&self) -> Changes {
        let latest = self.latest.subscribe();
        let cursor = Cursor(*latest.borrow());
        Changes { log: self.log.clone(), latest, reached: self.reached.subscribe(), cursor }
    }

    /// Tells every subscriber to look at everything: the past is unknown, as after a lost connection
    /// whose changes cannot be listed.
    pub fn forget(&self, revision: u64) {
        {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            *log = Log { complete_from: revision, ..Log::default() };
        }
        self.latest.send_modify(|latest| *latest = revision.max(*latest));
        raise(&self.reached, revision);
    }
}

/// Revisions only grow; subscribers wake when one did.
fn raise(sender: &watch::Sender<u64>, revision: u64) {
    sender.send_if_modified(|known| {
        let newer = revision > *known;
        *known = revision.max(*known);
        newer
    });
}

impl Log {
    fn record(&mut self, revision: u64, key: Key, exists: bool) {
        if let Some(previous) = self.last.insert(key.clone(), revision)
            && let Some(keys) = self.by_revision.get_mut(&previous)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_revision.remove(&previous);
            }
        }
        self.by_revision.entry(revision).or_default().insert(key.clone());
        if !exists {
            self.tombstones.push_back((revision, key));
            if self.tombstones.len() > TOMBSTONES {
                self.drop_oldest_tombstone();
            }
        }
    }

    fn drop_oldest_tombstone(&mut self) {
        let Some((revision, key)) = self.tombstones.pop_front() else { return };
        // A key that was created again is remembered by its newer change.
        if self.last.get(&key) == Some(&revision) {
            self.last.remove(&key);
            if let Some(keys) = self.by_revision.get_mut(&revision) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.by_revision.remove(&revision);
                }
            }
            self.complete_from = self.complete_from.max(revision);
        }
    }

    fn since(&self, cursor: Cursor) -> Dirty {
        if cursor.0 < self.complete_from {
            return Dirty::Everything;
        }
        Dirty::Keys(
            self.by_revision.range(cursor.0 + 1..).flat_map(|(_, keys)| keys.iter().cloned()).collect(),
        )
    }
}

/// A subscriber's side.
#[derive(Debug, Clone)]
pub struct Changes {
    log: Arc<Mutex<Log>>,
    latest: watch::Receiver<u64>,
    reached: watch::Receiver<u64>,
    cursor: Cursor,
}

impl Changes {
    /// Cursor of this subscription: everything up to here was reported.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Continues from a cursor of the same feed.
    #[must_use]
    pub fn resume(mut self, cursor: Cursor) -> Changes {
        self.cursor = cursor;
        self
    }

    /// Continues after a revision of this store's snapshots.
    #[must_use]
    pub fn after(self, revision: u64) -> Changes {
        self.resume(Cursor(revision))
    }

    /// A subscription that reports everything first: for subscribers that start with nothing.
    #[must_use]
    pub fn from_the_beginning(self) -> Changes {
        self.resume(Cursor(0))
    }

    /// True while a change waits that was not reported yet.
    pub fn are_waiting(&self) -> bool {
        *self.latest.borrow() > self.cursor.0
    }

    /// Changes since the last call, without waiting; `None` if there are none.
    pub fn try_next(&mut self) -> Option<Dirty> {
        let latest = *self.latest.borrow_and_update();
        if latest <= self.cursor.0 {
            return None;
        }
        let dirty = {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.since(self.cursor)
        };
        self.cursor = Cursor(latest);
        match dirty {
            Dirty::Keys(keys) if keys.is_empty() => None,
            dirty => Some(dirty),
        }
    }

    /// Waits for the next change; `None` when the store is gone.
    pub async fn next(&mut self) -> Option<Dirty> {
        loop {
            if let Some(dirty) = self.try_next() {
                return Some(dirty);
            }
            self.latest.changed().await.ok()?;
        }
    }
    /// Waits until the snapshot has reached a revision, however many commits that takes; the cursor
    /// stays where it is. Fails when that takes longer than `patience`, or when the store is gone.
    pub async fn until(&self, revision: u64, patience: Duration) -> Result<(), Error> {
        let mut reached = self.reached.clone();
        let arrival = async { reached.wait_for(|reached| *reached >= revision).await.map(drop) };
        let why = match tokio::time::timeout(patience, arrival).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(_)) => format!("it was closed before revision {revision} arrived"),
            Err(_) => format!(
                "revision {revision} did not arrive within {patience:?}, it shows revision {}",
                *self.reached.borrow()
            ),
        };
        Err(Error::Unavailable(why))
    }
}
