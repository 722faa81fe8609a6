#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! A small cell, with real TLS: counts and bytes, never time.
//!
//! The control plane runs in this process, so that what it allocates can be counted; the proxies run in
//! another.

mod cell;
mod changes;
mod command;
mod departed;
mod floor;
mod memory;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
