//! The graph of services, and of those who may call them.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Services, and who may call them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AccessGraph {
    /// Sorted by identifier.
    pub nodes: Vec<AccessGraphNode>,
    /// From a client to a service it may call; none to services that everyone may call.
    pub edges: Vec<AccessGraphEdge>,
    /// Number of services everyone may call, whether they are among the nodes or not.
    #[serde(rename = "open")]
    pub callable_by_all: usize,
    /// True if there are more nodes or edges than are listed.
    pub truncated: bool,
}

/// A service, or a client that is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AccessGraphNode {
    /// The identifier of a service, its tags, or the identity of a client.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// `MeshService`, `MeshExternalService`, `MeshMultiZoneService`, `kuma.io/service` or `client`.
    pub kind: Cow<'static, str>,
    /// Number of proxies that call as this service.
    pub dataplanes: usize,
    /// Callers.
    pub access: AccessGraphAccess,
    /// The clients that may not, where all others may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
}

/// Callers of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessGraphAccess {
    /// Everyone, or nothing here decides it.
    Anyone,
    /// Everyone but those listed.
    AnyoneExcept,
    /// The clients from which an edge leads here.
    #[default]
    Listed,
    /// It is a client and no service.
    None,
}

/// A client may call a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct AccessGraphEdge {
    pub from: String,
    pub to: String,
}
