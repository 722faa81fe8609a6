//! What control planes write down about connections, and counts of what there is.

pub mod dataplane_insight;
pub mod mesh_insight;
pub mod service_insight;
pub mod zone_insight;
pub mod zone_proxy_insight;
