#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod authorities;
mod bad_input;
mod control_planes;
mod crash;
mod demo;
mod documents;
mod examples;
mod hogs;
mod import;
mod insight;
mod kumactl;
mod logs;
mod mesh;
mod metrics;
mod migration;
mod names;
mod naming;
mod operator;
mod permissions;
mod processes;
mod protocols;
mod rejection;
mod routes;
mod validation;
mod world;
