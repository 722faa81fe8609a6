//! Modifications that cannot be made.

use resources::kinds::mesh_proxy_patch::JsonPatchOp;

use super::json_patch::DEPTH;
use crate::json;

/// Reason that a modification leaves a resource as it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModificationError {
    #[error("the value cannot be read: {0}")]
    Value(String),
    #[error("it would be called {0:?} then; a patch does not change a name")]
    Renamed(String),
    #[error("the filter {filter} has no configuration")]
    NoConfiguration { filter: String },
    #[error("the configuration of the filter {filter} is of type {is:?} and not of {given:?}")]
    OtherType { filter: String, is: String, given: String },
    #[error("the type of the filter {filter} is not known")]
    UnknownType { filter: String },
    #[error("jsonPatches[{at}]: {cause}")]
    Step { at: usize, cause: JsonPatchError },
    /// The result is no message of the type that was patched.
    #[error(transparent)]
    Message(#[from] json::Error),
}

/// Reason that a step of a JSON patch cannot be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonPatchError {
    #[error("there is nothing at {0}")]
    PathMissing(String),
    #[error("the path {0:?} does not begin with /")]
    PathMalformed(String),
    #[error("there is no value to {0}")]
    NoValue(JsonPatchOp),
    #[error("{0:?} is no operation")]
    NoOperation(String),
    #[error("the steps copy too much")]
    CopiesTooMuch,
    #[error("the document would be deeper than {DEPTH}")]
    TooDeep,
}
