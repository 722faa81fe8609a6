//! Transparent proxying: firewall rules that lead the traffic of a machine through its proxy.

pub mod config;
mod dataplane;

pub use config::{Config, Layers};
pub use dataplane::{DataplaneConfig, DataplaneFlow, DataplaneRedirect};
