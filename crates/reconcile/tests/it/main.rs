//! Reconcilers on stores in memory, with a clock that tests step.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod driver;
mod meshes;
mod schedule;
mod support;
