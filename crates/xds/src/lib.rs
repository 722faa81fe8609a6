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

pub use action::{Action, Counters, EVERYTHING, Error, Rejection, State, Status};
pub use encoded::Encoded;
pub use own::Own;
pub use target::{Layer, Resources, Target, Type};
