#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod conversation;
mod cost;
mod delta;
mod order;
mod property;
mod proxy;
mod refusal;
mod sotw;
mod sotw_property;
mod wire;
