//! The discovery protocol on bytes: which resources a proxy has, which it should have, what to send next.
//!
//! A stream is a state machine without I/O: requests and new targets go in, actions come out.
//! Resources are encoded elsewhere, once, and shared by all streams; this crate looks only at their
//! names and versions.
//!
//! Invariant: knows no mesh and no Envoy configuration; has no clock, no task, no socket.

pub mod target;

pub use target::{Encoded, Target, Type};
