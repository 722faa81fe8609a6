//! The topology as its users see it: resources in, snapshots and changes of services out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod access;
mod affected;
mod destinations;
mod explain;
mod fixtures;
mod generation;
mod generator;
mod graph;
mod hostnames;
mod identities;
mod incremental;
mod matching;
mod multi_zone;
mod observation;
mod of_zones;
mod secrets;
mod served;
mod service_hosts;
mod suggest;
mod vips;
mod virtual_hosts;
mod workloads;
mod zones;
