//! The version of a resource that a caller means to replace or delete.

use std::sync::Arc;

use resources::{Key, Resource};
use store::Snapshot;

use super::Refusal;

/// Condition on what is stored for a write to be made. The version that is looked at is the one that the write replaces: a store
/// that has another one by then refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Expected {
    /// Any version, or nothing.
    #[default]
    Anything,
    /// Any version.
    Existing,
    /// One of these versions.
    OneOf(Vec<u64>),
}

impl Expected {
    pub fn check(&self, key: &Key, snapshot: &Snapshot) -> Result<(), Refusal> {
        let found = snapshot.get(key);
        let holds = match self {
            Expected::Anything => true,
            Expected::Existing => found.is_some(),
            Expected::OneOf(versions) => found.is_some_and(|found| versions.contains(&found.version)),
        };
        if holds {
            return Ok(());
        }
        Err(Refusal::Changed(VersionConflict {
            key: key.clone(),
            expected: self.clone(),
            found: found.cloned(),
        }))
    }
}

/// A resource that is not what the caller expects.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionConflict {
    pub key: Key,
    pub expected: Expected,
    /// The stored resource.
    pub found: Option<Arc<Resource>>,
}
