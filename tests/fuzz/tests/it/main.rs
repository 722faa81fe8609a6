#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! Almost valid inputs at every door of a control plane: it answers each, with a reason if it refuses.
//!
//! `FUZZ_MINUTES` makes each test run that long instead of a fixed number of inputs, `FUZZ_SEED` starts elsewhere.

mod bootstrap;
mod discovery;
mod rest;
mod target;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
