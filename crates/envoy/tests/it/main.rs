//! What Envoy is told, as seen from outside: the parts asked for, as JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bootstrap;
mod bytes;
mod clusters;
mod enforcement;
mod listeners;
mod live;
mod migration_guide;
mod naming_reference;
mod permissions;
mod random_permissions;
mod random_routes;
mod real_envoy;
#[path = "../../../policy/tests/it/reference.rs"]
mod reference;
mod resilience;
mod route_filters;
mod routes;
mod stats;
mod stats_live;
#[path = "../../../plan/tests/it/support.rs"]
mod support;
mod traffic;
mod view;
