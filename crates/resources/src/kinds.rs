//! One file per kind: spec, defaults, validation, tests. Twins share one: [`secret`] and
//! [`zone_proxy_insight`].

pub(crate) mod checks;
pub mod config;
pub mod dataplane;
pub mod dataplane_insight;
mod directions;
pub mod entry;
pub(crate) mod go_template;
pub(crate) mod header_value;
pub mod host_port;
pub mod hostname_generator;
pub mod int_or_string;
pub mod mesh;
pub mod mesh_access_log;
pub mod mesh_circuit_breaker;
pub mod mesh_external_service;
pub mod mesh_fault_injection;
pub mod mesh_health_check;
pub mod mesh_http_route;
pub mod mesh_identity;
pub mod mesh_insight;
pub mod mesh_load_balancing_strategy;
pub mod mesh_metric;
pub mod mesh_multi_zone_service;
pub mod mesh_open_telemetry_backend;
pub mod mesh_passthrough;
pub mod mesh_proxy_patch;
pub mod mesh_rate_limit;
pub mod mesh_retry;
pub mod mesh_service;
pub mod mesh_tcp_route;
pub mod mesh_timeout;
pub mod mesh_tls;
pub mod mesh_trace;
pub mod mesh_traffic_permission;
pub mod mesh_trust;
pub mod mesh_zone_address;
pub mod open_enum;
pub mod proto;
pub mod protocol;
pub(crate) mod regex;
pub mod secret;
pub mod service_insight;
pub mod service_status;
pub mod tags;
pub mod target_ref;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
pub(crate) mod testing;
pub mod tls;
pub mod virtual_outbound;
pub mod workload;
pub mod zone;
pub mod zone_egress;
pub mod zone_ingress;
pub mod zone_insight;
pub mod zone_proxy_insight;
