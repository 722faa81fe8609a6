#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! Runs the real binary against a control plane that only repeats what a test taught it.

mod access;
mod analyze;
mod apply;
mod apply_input;
mod apply_names;
mod apply_selects;
mod config;
mod delete;
mod diff;
mod export;
mod generate;
mod get;
mod graph;
mod hostile;
mod inspect;
mod inspect_zone_proxies;
mod install;
mod migrate;
mod names;
mod policies;
mod program;
mod proxy;
mod prune;
mod reachability;
mod selector;
mod server;
mod status;
mod suggest;
mod types;
