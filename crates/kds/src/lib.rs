//! Synchronisation between a global control plane and its zones (KDS).
//!
//! Invariant: no clock, no task, no socket; streams and timers belong to the program.

pub mod wire;
