//! Records of connections to control planes, and counts of resources.

pub mod dataplane_insight;
pub mod mesh_insight;
pub mod service_insight;
pub mod zone_insight;
pub mod zone_proxy_insight;
