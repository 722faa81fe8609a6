//! May one workload call another, and which rule says so?

/// The client and the server. Each is the name of a Dataplane, else of a MeshService, else a `kuma.io/service`; the server
/// may also be any other destination, by name or by identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessQuestion {
    pub mesh: String,
    pub from: String,
    pub to: String,
    /// Only this inbound or port of what is called.
    pub port: Option<String>,
}
