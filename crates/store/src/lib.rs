//! The stores of resources.
//!
//! Every store is an immutable in-memory [`Snapshot`] in front of something durable. Reads never
//! touch the disk or the network: they look at a snapshot. What a write acknowledges is durable and
//! visible in the next snapshot. [`Changes`] tells subscribers which keys are dirty since they last
//! looked: it may coalesce, it never drops, it never blocks a writer.
//!
//! ```text
//!   Store::write ──▶ durable ──▶ Snapshot (swapped) ──▶ Changes (dirty keys)
//! ```
//!
//! Invariants: every reader holds a snapshot, and no snapshot ever changes. No caller depends on
//! several resources being written together; see [`Store::write`] for what a caller may rely on.

pub mod backup;
mod bookmark;
pub mod changes;
#[cfg(feature = "conformance")]
pub mod conformance;
mod memory;
pub mod record;
pub mod snapshot;
pub mod staging;
mod update;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use jiff::Timestamp;
use resources::{Key, Kind, Resource, Status};

pub use bookmark::Bookmark;
pub use changes::{Changes, Cursor, Dirty, Feed};
pub use memory::Memory;
pub use record::Record;
pub use snapshot::{Page, Snapshot};
pub use update::{update, update_with};

/// One step of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Stores a resource that must not exist yet. Its `version` is assigned by the store.
    Create(Resource),
    /// Replaces a resource whose stored version must be `expected`. Creation time and owner are
    /// taken from the new value, so that what is written is what was given.
    Update { resource: Resource, expected: u64 },
    /// Replaces the status of a resource and nothing else of it: spec, labels, owner and times stay as they are
    /// stored. It makes a version, as every write does. Without `expected` any version will do, so that a status
    /// does not get in the way of one who writes the spec at the same time; that one's version is outdated then.
    Status { key: Key, status: Status, expected: Option<u64> },
    /// Removes a resource and everything it owns. Without `expected` any version will do.
    Delete { key: Key, expected: Option<u64> },
    /// As `Delete`, unless it owns a resource of this kind.
    DeleteUnlessOwner { key: Key, expected: Option<u64>, of: Kind },
    /// Stores a resource exactly as given, version included: restoring a backup.
    Restore(Resource),
}

impl Write {
    pub fn key(&self) -> &Key {
        match self {
            Write::Create(resource) | Write::Update { resource, .. } | Write::Restore(resource) => {
                &resource.key
            }
            Write::Status { key, .. } | Write::Delete { key, .. } | Write::DeleteUnlessOwner { key, .. } => {
                key
            }
        }
    }
}

/// A batch that was made: a bookmark of it and every key it touched, with the new value or `None` for
/// keys that are gone (owned resources included), in the order of the batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    pub at: Bookmark,
    pub changed: Vec<(Key, Option<Arc<Resource>>)>,
}

impl Committed {
    /// The stored form of a resource this batch wrote.
    pub fn get(&self, key: &Key) -> Option<&Arc<Resource>> {
        self.changed.iter().rev().find(|(k, _)| k == key).and_then(|(_, r)| r.as_ref())
    }
}

/// Keeps resources; see the crate's documentation for what it promises.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Everything, as of the last acknowledged write this store has seen. During an [`Outage`] it may lack writes of
    /// others.
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error>;

    /// Outage because of which snapshots may be outdated at the moment, if there is one.
    fn outage(&self) -> Option<Outage> {
        None
    }

    /// Makes dependent writes, in order; stops at the first that is refused and reports why.
    ///
    /// On success everything is written. After an error a caller may rely on one thing only: nothing
    /// after the refused write was made. Memory, SQLite and PostgreSQL write nothing at all then; a
    /// store without transactions across resources, such as Kubernetes, has written what came before.
    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error>;

    /// Makes independent writes, in order, each as if it were alone: one that is refused does not stop
    /// the others. Exactly one outcome per write, in the same order.
    ///
    /// Stores with transactions make all of them durable at once, at the cost of a single write.
    async fn write_each(&self, writes: Vec<Write>) -> Vec<Result<Committed, Error>> {
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            outcomes.push(self.write(vec![write]).await);
        }
        outcomes
    }

    /// Asks what makes writes durable whether a write would be durable now: the thread or server that
    /// writes, and its disk. It costs about as much as a write, so callers ask now and then only.
    async fn probe(&self) -> Result<(), Error> {
        self.snapshot().map(drop)
    }

    /// Waits until nothing can be written any more as long as this process lives, and says why.
    async fn ended(&self) -> Error {
        std::future::pending().await
    }

    /// A feed of dirty keys, starting now.
    fn changes(&self) -> Changes;

    /// A bookmark of the newest write of any process to this store. The snapshot may still be behind.
    async fn latest(&self) -> Result<Bookmark, Error> {
        Ok(Bookmark::of_revision(self.snapshot()?.revision()))
    }

    /// Waits until the snapshot shows what a bookmark of this store marks, and everything before it. Fails when that
    /// takes longer than `patience`, when the store is gone, or for a bookmark of another store.
    async fn reached(&self, bookmark: &Bookmark, patience: Duration) -> Result<(), Error> {
        let revision = bookmark.revision().ok_or_else(|| bookmark.foreign())?;
        self.changes().until(revision, patience).await
    }

    /// A snapshot with every write that any process had acknowledged before this call: what to look at
    /// after a write was refused because of something that is not in the snapshot yet
    /// ([`Error::is_outdated`]).
    async fn caught_up(&self, patience: Duration) -> Result<Arc<Snapshot>, Error> {
        let begun = Instant::now();
        let newest = tokio::time::timeout(patience, self.latest())
            .await
            .map_err(|_| Error::Unavailable(format!("it did not say its revision within {patience:?}")))??;
        self.reached(&newest, patience.saturating_sub(begun.elapsed())).await?;
        self.snapshot()
    }
}

/// Outage of the part that makes writes durable: nothing is written, and what others write is not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Time at which it was noticed.
    pub since: Timestamp,
    pub reason: String,
}

/// Reasons why a store refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{0} not found")]
    NotFound(Key),
    #[error("{0} already exists")]
    AlreadyExists(Key),
    #[error("{key} was changed by another writer: expected version {expected}, found {found}")]
    Conflict { key: Key, expected: u64, found: u64 },
    #[error("cannot delete {key}: {owned} belongs to it")]
    InUse { key: Key, owned: Key },
    #[error("the owner of {owned}, {owner}, does not exist")]
    OwnerMissing { owned: Key, owner: Key },
    /// The same request may succeed later. Nothing was written, unless the text says that the outcome is
    /// unknown: then the connection was lost while the write was being made durable.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Stored data cannot be read: a human must look.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

impl Error {
    /// True if the write was refused because of what is stored: the caller decided on a snapshot that another writer,
    /// here or on another control plane, has made outdated. Look again with [`Store::caught_up`] and decide anew.
    pub fn is_outdated(&self) -> bool {
        match self {
            Error::NotFound(_)
            | Error::AlreadyExists(_)
            | Error::Conflict { .. }
            | Error::InUse { .. }
            | Error::OwnerMissing { .. } => true,
            Error::Unavailable(_) | Error::Damaged(_) => false,
        }
    }
}
