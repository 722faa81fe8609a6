//! SQLite against the conformance suite, and against what happens to files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod backup;
mod sqlite;
