//! Every store against the conformance suite, and SQLite against what happens to files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod backup;
mod memory;
mod snapshot;
mod sqlite;
