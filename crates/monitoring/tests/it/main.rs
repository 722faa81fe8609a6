//! Discovery of pages of metrics, as a Prometheus sees it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod assignments;
mod groups;
mod world;
