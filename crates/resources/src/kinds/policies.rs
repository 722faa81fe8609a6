//! Policies with a `targetRef`, what their entries share, and the collectors they refer to.

pub(super) mod directions;
pub mod entry;
pub mod mesh_access_log;
pub mod mesh_circuit_breaker;
pub mod mesh_fault_injection;
pub mod mesh_health_check;
pub mod mesh_http_route;
pub mod mesh_load_balancing_strategy;
pub mod mesh_metric;
pub mod mesh_open_telemetry_backend;
pub mod mesh_passthrough;
pub mod mesh_proxy_patch;
pub mod mesh_rate_limit;
pub mod mesh_retry;
pub mod mesh_tcp_route;
pub mod mesh_timeout;
pub mod mesh_tls;
pub mod mesh_trace;
pub mod mesh_traffic_permission;
