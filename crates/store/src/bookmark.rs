//! Points in the history of a store.

use std::{fmt, sync::Arc};

use crate::Error;

/// A point in the history of one store, which gave it: a write that it acknowledged, or its newest. Only that store can
/// read it, and tell when its snapshot shows it ([`Store::reached`](crate::Store::reached)): to one it is the number of
/// a write, to another the newest version of each kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bookmark(Arc<str>);

impl Bookmark {
    /// A bookmark in the words of the store that gives it.
    pub fn new(text: impl fmt::Display) -> Bookmark {
        Bookmark(text.to_string().into())
    }

    /// A bookmark of a store that counts its writes.
    pub fn of_revision(revision: u64) -> Bookmark {
        Bookmark::new(revision)
    }

    /// The words of the store that gave it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The revision, for stores that count their writes.
    pub fn revision(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// The refusal of a store that did not give it.
    pub(crate) fn foreign(&self) -> Error {
        Error::Unavailable(format!("{:?} is no revision: it is a bookmark of another store", self.0))
    }
}
