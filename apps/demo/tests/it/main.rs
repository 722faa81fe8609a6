//! The program as the demo and the end-to-end tests run it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod echo;
mod faults;
mod load;
mod program;
mod web;
