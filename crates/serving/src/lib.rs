//! Serves proxies: bootstrap, discovery, registration, secrets, health, and the push of changes to those they affect.
//!
//! ```text
//!   kuma-dp ─▶ dp_server ─▶ registration ─▶ store ─▶ push ─▶ the stream of each proxy that a change affects
//! ```
//!
//! Invariant: a change visits the proxies whose plans read what changed, and no others; what a proxy says is bounded and
//! authenticated before it is kept.

pub mod admin;
pub mod config;
pub mod dp_server;
pub mod observed;
pub mod push;

pub use config::Config;
