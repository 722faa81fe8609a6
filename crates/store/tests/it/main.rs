//! The store in memory against the conformance suite; snapshots and backups.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod backup;
mod memory;
mod snapshot;
