//! Proxies and workloads.

pub mod dataplane;
pub mod workload;
pub mod zone_egress;
pub mod zone_ingress;
