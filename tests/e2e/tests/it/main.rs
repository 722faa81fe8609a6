#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod crash;
mod documents;
mod examples;
mod kumactl;
mod operator;
