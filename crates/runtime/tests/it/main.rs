#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! Listeners seen from a client's side of real sockets.

mod client;
mod hogs;
mod limits;
mod listen;
