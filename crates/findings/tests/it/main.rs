//! Findings as seen from outside: what is said about a mesh written as users write it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod comparing;
mod following;
mod hostnames;
mod members;
mod policies;
mod proxies;
mod support;
