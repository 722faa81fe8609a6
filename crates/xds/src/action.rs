//! Actions that a stream requests, and its state.

use std::sync::Arc;

use crate::target::Type;

/// Something to do or to know after an event; `R` is the response of the protocol in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<R> {
    /// Send this response.
    Send(R),
    /// The proxy took a response with this many resources, removed ones included.
    Acked { kind: Type, nonce: String, resources: usize },
    /// The proxy refused a response. `names` are those known to be at fault: none while the search goes on.
    Rejected { kind: Type, nonce: String, names: Vec<Arc<str>>, message: String },
    /// The request, or its acknowledgement, has no effect; worth a line in the log.
    Ignored { reason: String },
    /// End the stream with this error. Later events do nothing.
    Close(Error),
}

/// A violation of the protocol that ends a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the first discovery request has no node id; set node.id in the proxy's bootstrap")]
    NodeMissing,
    #[error("the node id changed from {was:?} to {is:?} within one stream; open a stream per proxy")]
    NodeChanged { was: String, is: String },
    #[error("the proxy subscribes to {count} resources of type {kind:?}; at most {limit} are allowed")]
    TooManyNames { kind: Type, count: usize, limit: usize },
}

/// Counts of responses of a type on a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub sent: u64,
    pub acked: u64,
    pub rejected: u64,
    /// Resources in all responses sent, removed ones not included.
    pub resources: u64,
}

/// The name for all resources of a type: what a proxy subscribes to, or refuses without saying which is wrong.
pub const EVERYTHING: &str = "*";

/// A resource the proxy refused, in the words of the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub name: Arc<str>,
    pub version: u128,
    pub message: String,
    /// The proxy keeps another accepted version of the resource and uses it.
    pub has_another: bool,
}

/// State of a type on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    /// The proxy did not ask for this type.
    NotRequested,
    /// The proxy has what it should have.
    InSync,
    /// Something is to be sent or to be acknowledged.
    Pending,
    /// The proxy refused something it should have, and has the rest.
    Rejected,
}

/// Status of one type on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub kind: Type,
    pub requested: bool,
    /// Number of resources to send, to remove, or awaiting an ACK.
    pub pending: usize,
    /// Resources of the target that the proxy rejected.
    pub rejected: Vec<Rejection>,
    pub counters: Counters,
}

impl Status {
    pub fn state(&self) -> SyncState {
        match self {
            Status { requested: false, .. } => SyncState::NotRequested,
            Status { pending, .. } if *pending > 0 => SyncState::Pending,
            Status { rejected, .. } if !rejected.is_empty() => SyncState::Rejected,
            _ => SyncState::InSync,
        }
    }
}
