//! What Envoy is told, as seen from outside: the parts asked for, as JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bytes;
mod clusters;
mod enforcement;
mod listeners;
mod live;
mod permissions;
mod real_envoy;
mod stats;
mod stats_live;
#[path = "../../../plan/tests/it/support.rs"]
mod support;
mod view;
