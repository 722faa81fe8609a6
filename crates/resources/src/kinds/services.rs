//! Destinations of proxies, and their names.

pub mod hostname_generator;
pub mod mesh_external_service;
pub mod mesh_multi_zone_service;
pub mod mesh_service;
pub mod service_status;
pub mod virtual_outbound;
