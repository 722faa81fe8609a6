//! What things are called, chosen once per proxy.

/// The names of everything that belongs to one inbound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InboundNames {
    pub listener: String,
    /// The listener's stat prefix, when it is not left to the address.
    pub listener_stats: Option<String>,
    pub cluster: String,
    /// The cluster's name in stats, when it differs.
    pub cluster_stats: Option<String>,
    pub route_configuration: String,
    pub virtual_host: String,
    /// HTTP connection manager and TCP proxy.
    pub filter_stats: String,
    /// Ends with a dot.
    pub permission_stats: String,
}

/// The names of everything that belongs to one outbound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutboundNames {
    pub listener: String,
    pub listener_stats: Option<String>,
    /// Also the name of its endpoints.
    pub cluster: String,
    pub cluster_stats: Option<String>,
    pub route_configuration: String,
    pub virtual_host: String,
    pub filter_stats: String,
}
