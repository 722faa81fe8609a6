//! The control plane under the load of thousands of simulated Envoys.
//!
//! Cost is seen from outside, and the minimum is measured in the same run. No other crate of this project is used, so
//! that any control plane that speaks Kuma can be measured. A small cell runs as a test, which asserts counts and bytes,
//! never time.

pub mod bench;
pub mod callgrind;
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
pub mod texts;
pub mod topology;
pub mod wire;
