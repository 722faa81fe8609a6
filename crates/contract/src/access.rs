//! Access of one workload to another, and the rule that decides.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reachability::ReachabilityExplanation;

/// The answer, with a check for every client and server that could give another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Access {
    #[serde(default)]
    #[schemars(!default)]
    pub from: AccessParty,
    #[serde(default)]
    #[schemars(!default)]
    pub to: AccessParty,
    pub verdict: AccessVerdict,
    #[serde(default)]
    #[schemars(!default)]
    pub checks: Vec<AccessCheck>,
    /// True if there is more to check than is listed; the verdict is about what is listed.
    #[serde(default)]
    #[schemars(!default)]
    pub truncated: bool,
    /// Permissions that almost allow the first call that is denied; absent where there are none.
    #[serde(rename = "nearMisses", default, skip_serializing_if = "Vec::is_empty")]
    pub near_misses: Vec<AccessNearMiss>,
    /// Reachability of the servers, and the change that would let the call in. Not about a certain port unless one is given.
    // Control planes of other versions say nothing about it.
    #[serde(default)]
    #[schemars(!default, with = "ReachabilityExplanation")]
    pub reachability: Option<ReachabilityExplanation>,
}

/// A permission that almost allows a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct AccessNearMiss {
    /// The identifier of the MeshTrafficPermission.
    pub policy: String,
    /// Condition that is not met, and the value found instead.
    pub reason: String,
}

/// Resource that a name was taken for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct AccessParty {
    /// `Dataplane`, `MeshService` or `kuma.io/service`; also `MeshMultiZoneService` or `MeshExternalService` for what is
    /// called.
    pub kind: Cow<'static, str>,
    pub name: String,
    /// Number of Dataplanes it consists of; absent for what is called in other zones or outside of the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessVerdict {
    Allowed,
    Denied,
    /// Some checks allow, others deny.
    Mixed,
}

/// One client and one inbound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AccessCheck {
    /// The identifier of the client's Dataplane.
    pub client: String,
    /// Number of Dataplanes the client stands for: the same is true of all with the same certificate.
    pub clients: usize,
    /// The first identity in the client's certificate; empty where it has none.
    pub spiffe_id: String,
    /// The identifier of the server's Dataplane with the inbound as section; `egress` or `not known here` for servers
    /// that are not in this zone.
    pub server: String,
    /// Number of inbounds the server stands for: the same is true of all with the same permissions.
    pub servers: usize,
    pub action: AccessAction,
    pub allowed: bool,
    /// The entry of a policy that decides.
    pub rule: Option<String>,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessAction {
    Allow,
    #[default]
    Deny,
    AllowWithShadowDeny,
}
