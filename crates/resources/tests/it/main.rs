#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod naming;
mod policy;
mod round_trip;
