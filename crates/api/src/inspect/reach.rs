//! May one workload call another, and which rule says so?

use schemars::JsonSchema;
use serde::Serialize;

use super::reachability::Explained;

/// The client and the server. Each is the name of a Dataplane, else of a MeshService, else a `kuma.io/service`; the server
/// may also be any other destination, by name or by identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub mesh: String,
    pub from: String,
    pub to: String,
    /// Only this inbound or port of what is called.
    pub port: Option<String>,
}

/// The answer, with a check for every client and server that could give another.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Access")]
pub struct Reach {
    pub from: Party,
    pub to: Party,
    pub verdict: Verdict,
    pub checks: Vec<Check>,
    /// Whether there is more to check than is listed; the verdict is about what is listed.
    pub truncated: bool,
    /// Permissions that almost allow the first call that is denied; absent where there are none.
    #[serde(rename = "nearMisses", skip_serializing_if = "Vec::is_empty")]
    pub near_misses: Vec<NearMiss>,
    /// Whether calls get as far as the servers, and what would let them in. Not about a certain port unless one is given.
    pub reachability: Explained,
}

/// A permission that almost allows a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AccessNearMiss")]
pub struct NearMiss {
    /// The identifier of the MeshTrafficPermission.
    pub policy: String,
    /// What it wants, and what there is instead.
    pub reason: String,
}

/// What a name was taken for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AccessParty")]
pub struct Party {
    /// `Dataplane`, `MeshService` or `kuma.io/service`; also `MeshMultiZoneService` or `MeshExternalService` for what is
    /// called.
    pub kind: &'static str,
    pub name: String,
    /// How many Dataplanes it consists of; absent for what is called in other zones or outside of the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AccessVerdict")]
pub enum Verdict {
    Allowed,
    Denied,
    /// Some checks allow, others deny.
    Mixed,
}

/// One client and one inbound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AccessCheck")]
pub struct Check {
    /// The identifier of the client's Dataplane.
    pub client: String,
    /// How many Dataplanes the client stands for: the same is true of all with the same certificate.
    pub clients: usize,
    /// The first identity in the client's certificate; empty where it has none.
    pub spiffe_id: String,
    /// The identifier of the server's Dataplane with the inbound as section; `egress` or `not known here` for servers
    /// that are not in this zone.
    pub server: String,
    /// How many inbounds the server stands for: the same is true of all with the same permissions.
    pub servers: usize,
    pub action: Action,
    pub allowed: bool,
    /// The entry of a policy that decides.
    pub rule: Option<String>,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AccessAction")]
pub enum Action {
    Allow,
    Deny,
    AllowWithShadowDeny,
}
