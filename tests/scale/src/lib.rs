//! The control plane under the load of thousands of simulated Envoys.

pub mod bench;
pub mod connection;
pub mod control_plane;
pub mod envoy;
pub mod fleet;
pub mod floor;
pub mod plan;
pub mod procfs;
mod recording;
pub mod remote;
pub mod report;
pub mod scan;
mod texts;
pub mod topology;
pub mod wire;
