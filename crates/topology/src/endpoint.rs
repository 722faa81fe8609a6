//! Who serves a destination.

use std::collections::BTreeMap;

/// The endpoints of a destination, sorted by address and port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Endpoints(pub Vec<Endpoint>);

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address, or a host name for what is outside the mesh.
    pub address: String,
    pub port: u32,
    pub tags: BTreeMap<String, String>,
    pub weight: u32,
    /// Envoy's priority; 0 is tried first.
    pub priority: u32,
}
