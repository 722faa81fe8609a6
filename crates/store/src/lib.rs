//! Where resources are kept.
//!
//! Every store is an immutable in-memory [`Snapshot`] in front of something durable. Reads never
//! touch the disk or the network: they look at a snapshot. A write is an atomic batch; when it is
//! acknowledged it is durable and visible in the next snapshot. [`Changes`] tells subscribers which
//! keys are dirty since they last looked: it may coalesce, it never drops, it never blocks a writer.
//!
//! ```text
//!   Registrar ──▶ Store::write(batch) ──▶ durable ──▶ Snapshot (swapped) ──▶ Changes (dirty keys)
//! ```
//!
//! Invariant: whoever reads holds a snapshot, and no snapshot ever changes.

pub mod backup;
pub mod changes;
#[cfg(feature = "conformance")]
pub mod conformance;
mod memory;
pub mod record;
pub mod registrar;
pub mod snapshot;
pub mod sqlite;
pub mod staging;

use std::sync::Arc;

use async_trait::async_trait;
use resources::{Key, Resource};

pub use changes::{Changes, Cursor, Dirty, Feed};
pub use memory::Memory;
pub use record::Record;
pub use registrar::Registrar;
pub use snapshot::{Page, Snapshot};
pub use sqlite::Sqlite;

/// One step of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Stores a resource that must not exist yet. Its `version` is assigned by the store.
    Create(Resource),
    /// Replaces a resource whose stored version must be `expected`. Creation time and owner are
    /// taken from the new value, so that what is written is what was given.
    Update { resource: Resource, expected: u64 },
    /// Removes a resource and everything it owns. Without `expected` any version will do.
    Delete { key: Key, expected: Option<u64> },
    /// Stores a resource exactly as given, version included: restoring a backup.
    Restore(Resource),
}

impl Write {
    pub fn key(&self) -> &Key {
        match self {
            Write::Create(resource) | Write::Update { resource, .. } | Write::Restore(resource) => {
                &resource.key
            }
            Write::Delete { key, .. } => key,
        }
    }
}

/// What a batch did: the revision it got and every key it touched, with the new value or `None` for
/// keys that are gone (owned resources included), in the order of the batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    pub revision: u64,
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
    /// Everything, as of the last acknowledged write this store has seen.
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error>;

    /// Applies the whole batch or nothing of it.
    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error>;

    /// A feed of dirty keys, starting now.
    fn changes(&self) -> Changes;
}

/// Why a store refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0} not found")]
    NotFound(Key),
    #[error("{0} already exists")]
    AlreadyExists(Key),
    #[error("{key} was changed by somebody else: expected version {expected}, found {found}")]
    Conflict { key: Key, expected: u64, found: u64 },
    #[error("the owner of {owned}, {owner}, does not exist")]
    OwnerMissing { owned: Key, owner: Key },
    /// The same request may succeed later. Nothing was written, unless the text says that the outcome is
    /// unknown: then the connection was lost while the write was being made durable.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// What is stored cannot be read: a human must look.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}
