//! Which policy applies to what, in which order, merged how, and where each value came from.
//!
//! Invariant: pure, and linear in the number of policies and rules: no partition of clients is ever
//! enumerated.

pub mod permission;

pub use permission::{ClientMatch, Effect, Permissions, Rule};
