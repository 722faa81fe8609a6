//! The discovery protocol on bytes: which resources a proxy has, which it should have, what to send next.
//!
//! A stream is a state machine without I/O: requests and targets go in, actions come out.
//! Resources are encoded elsewhere, once, and shared by all streams; this crate looks only at their
//! names and versions.
//!
//! ```text
//!   request ──▶ delta::Stream ──▶ Action::{Send, Acked, Rejected, Ignored, Close}
//!   target  ──▶ sotw::Stream  ──▶
//! ```
//!
//! A target is a proxy's own layer over one that it shares with its class ([`Layer`]); two layers share what is equal in
//! both. A stream keeps one pointer for each resource that the proxy acknowledged, and a queue of what is to be sent. A
//! cold start looks at each name a constant number of times, a change at the names that changed; a test counts.
//!
//! The crate depends on no other one, so that `envoy` produces what streams send without a copy.
//!
//! Invariant: knows no mesh and no Envoy configuration; has no clock, no task, no socket.

pub mod action;
mod blame;
pub mod delta;
mod encoded;
pub mod identify;
pub mod message;
mod nack_message;
mod own;
pub mod sotw;
pub mod target;

pub use action::{Action, Counters, EVERYTHING, Error, Rejection, Status, SyncState};
pub use encoded::Encoded;
pub use own::OwnResources;
pub use target::{Layer, Resources, Target, Type};
