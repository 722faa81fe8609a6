//! One file per kind: spec, defaults, validation, tests. Twins share one: [`secret`] and
//! [`zone_proxy_insight`].
//!
//! Kinds lie in folders by what they are about, and are named without them (`kinds::mesh_service`); what they are
//! made of lies in `parts`.

mod insights;
mod meshes;
mod parts;
mod policies;
mod proxies;
mod services;
mod settings;
mod zones;

pub use insights::{dataplane_insight, mesh_insight, service_insight, zone_insight, zone_proxy_insight};
pub use meshes::{mesh, mesh_identity, mesh_trust};
#[cfg(test)]
pub(crate) use parts::testing;
pub(crate) use parts::{checks, go_template, header_value, regex};
pub use parts::{host_port, int_or_string, open_enum, proto, protocol, tags, target_ref, tls};
use policies::directions;
pub use policies::{
    entry, mesh_access_log, mesh_circuit_breaker, mesh_fault_injection, mesh_health_check, mesh_http_route,
    mesh_load_balancing_strategy, mesh_metric, mesh_open_telemetry_backend, mesh_passthrough,
    mesh_proxy_patch, mesh_rate_limit, mesh_retry, mesh_tcp_route, mesh_timeout, mesh_tls, mesh_trace,
    mesh_traffic_permission,
};
pub use proxies::{dataplane, workload, zone_egress, zone_ingress};
pub use services::{
    hostname_generator, mesh_external_service, mesh_multi_zone_service, mesh_service, service_status,
    virtual_outbound,
};
pub use settings::{config, secret};
pub use zones::{mesh_zone_address, zone};
