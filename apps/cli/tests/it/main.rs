#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
//! Runs the real binary against the REST API of a control plane, and where that never answers so, against a server that
//! repeats what a test taught it.

mod access;
mod analyze;
mod apply;
mod apply_input;
mod apply_names;
mod apply_preflight;
mod apply_selects;
mod check;
mod config;
mod control_plane;
mod delete;
mod describe;
mod diff;
mod edit;
mod explain;
mod export;
mod forged;
mod generate;
mod get;
mod graph;
mod hostile;
mod inspect;
mod inspect_dataplane;
mod inspect_zone_proxies;
mod install;
mod install_observability;
mod migrate;
mod migrate_permissions;
mod names;
mod observed_mesh;
mod policies;
mod program;
mod proxy;
mod proxy_admin;
mod prune;
mod reachability;
mod selector;
mod server;
mod status;
mod strange;
mod suggest;
mod types;
mod wait;
