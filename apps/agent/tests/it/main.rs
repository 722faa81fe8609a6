#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! Runs the real binary with a real Envoy against a control plane that a test wrote.

mod agent;
mod confinement;
mod control_plane;
mod dns;
mod input;
mod kuma;
mod life;
mod metrics;
mod readiness;
mod reference;
mod refusals;
