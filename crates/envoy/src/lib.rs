//! The plan as Envoy's configuration: the only crate that names Envoy's protobuf types.
//!
//! ```text
//!   plan::{OwnPlan, SharedPlan} ──parts──▶ fingerprint ──known──▶ the resource that all share
//!                                              └───────new────▶ built, encoded once, remembered while in use
//! ```
//!
//! Patches of users act on encoded resources. Health checks, statistics and bootstrap configurations are made here as
//! well, because they are in Envoy's words.
//!
//! A part of a plan holds exactly what its resource is made of, so a change re-encodes only the resources
//! that look different afterwards.
//!
//! Invariant: the same plan gives the same bytes, on every control plane and after every restart.

mod access_log;
mod agent;
mod balancing;
pub mod bootstrap;
mod breaker;
mod chain;
mod client;
mod cluster;
mod encoder;
mod endpoint;
mod fault;
mod filter;
pub mod health;
mod health_check;
pub mod json;
pub mod kafka;
mod listener;
mod matching;
mod metrics;
mod part;
mod passthrough;
pub mod patch;
mod permission;
mod proto;
mod rate_limit;
mod retry;
mod route;
mod secret;
pub mod stats;
mod stub;
mod telemetry;
mod tls;
mod zone_proxy;

pub use agent::Documents;
pub use encoder::{ClassPart, Encoder};
