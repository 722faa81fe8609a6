//! Resources that Envoy is sent, as seen from outside: the parts asked for, as JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod agent;
mod balancing;
mod bootstrap;
mod bytes;
mod clusters;
mod enforcement;
mod faults;
mod health_checks;
mod listeners;
mod live;
mod localities;
mod metrics;
mod migration_guide;
mod naming_reference;
#[path = "../../../policy/tests/it/outbound_reference.rs"]
mod outbound_reference;
mod pair;
mod passthrough;
mod patches;
mod permissions;
mod random_outbounds;
mod random_permissions;
mod random_routes;
mod rate_limits;
mod real_envoy;
mod redirected;
#[path = "../../../policy/tests/it/reference.rs"]
mod reference;
mod resilience;
mod route_filters;
mod routes;
mod stats;
mod stats_live;
mod stub;
#[path = "../../../plan/tests/it/support.rs"]
mod support;
mod telemetry;
mod telemetry_live;
mod tls;
mod traffic;
mod view;
mod zone_proxies;
