//! Calls that proxies reported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::zones::AskedZone;

/// The calls that proxies of a mesh reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedCalls {
    /// Time when the first proxy reported; absent while none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default)]
    pub since: Option<String>,
    /// Time when the last report came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default)]
    pub until: Option<String>,
    /// Number of edges, of those that were asked for.
    pub total: usize,
    /// By caller and destination, from the offset on.
    #[serde(default)]
    #[schemars(!default)]
    pub edges: Vec<ObservedCall>,
    /// True if calls between new pairs were not kept, because there are too many.
    #[serde(default)]
    #[schemars(!default)]
    pub dropped: bool,
    #[serde(default)]
    #[schemars(!default)]
    pub proxies: ReportingProxies,
    /// On a global control plane, the zones that were asked: by their order the edges are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<AskedZone>,
}

/// A client and what it calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ObservedCall {
    /// The first identity in the certificate of the client, or `outside` for clients without one.
    pub caller: String,
    /// The identifier of a port of a service, or the tags of what is called by them.
    pub destination: String,
    pub first_seen: String,
    pub last_seen: String,
    /// Requests, or connections of TCP.
    pub count: u64,
    /// True if the client is in mode `shadow` and could not make the call if its outbounds were trimmed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub would_be_trimmed: bool,
    /// On a global control plane, the zone whose proxies reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// Completeness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReportingProxies {
    /// Number of connected proxies that have reported since they connected.
    pub reporting: usize,
    /// Number of proxies of the mesh that are connected to this control plane.
    pub connected: usize,
}
