//! Real rules in network namespaces, seen by clients and servers in them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod firewall;
mod networks;
mod redirect;
mod replacing;
mod world;
