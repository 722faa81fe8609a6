//! Who may call whom, as a graph of services.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::{inspect, readable, shown};
use crate::{Error, call::Call};

/// Services, and who may call them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AccessGraph")]
pub struct Graph {
    /// Sorted by identifier.
    pub nodes: Vec<Node>,
    /// From a client to a service it may call; none to services that everyone may call.
    pub edges: Vec<Edge>,
    /// How many services everyone may call, whether they are among the nodes or not.
    #[serde(rename = "open")]
    pub callable_by_all: usize,
    /// Whether there are more nodes or edges than are listed.
    pub truncated: bool,
}

/// A service, or a client that is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AccessGraphNode")]
pub struct Node {
    /// The identifier of a service, its tags, or the identity of a client.
    pub id: String,
    /// What to call it.
    pub name: String,
    /// `MeshService`, `MeshExternalService`, `MeshMultiZoneService`, `kuma.io/service` or `client`.
    pub kind: &'static str,
    /// How many proxies call as this service.
    pub dataplanes: usize,
    /// Who may call it.
    pub access: NodeAccess,
    /// The clients that may not, where all others may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
}

/// Who may call a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "AccessGraphAccess")]
pub enum NodeAccess {
    /// Everyone, or nothing here decides it.
    Anyone,
    /// Everyone but those listed.
    AnyoneExcept,
    /// The clients from which an edge leads here.
    Listed,
    /// It is a client and no service.
    None,
}

/// A client may call a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[schemars(rename = "AccessGraphEdge")]
pub struct Edge {
    pub from: String,
    pub to: String,
}

/// `GET /meshes/{mesh}/_graph`.
pub async fn get(call: Call) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    shown(inspect.graph(call.param("mesh"), call.query("service")).await?, &snapshot).await
}
