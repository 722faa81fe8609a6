//! Values of SNI: where they lead, and how often zone proxies saw them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page of values, and who was asked about them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct UsageList {
    pub total: usize,
    pub items: Vec<SniUsage>,
    pub next: Option<String>,
    /// Every zone ingress and zone egress of this control plane. Where one of them did not answer, the counts lack
    /// what it saw.
    pub proxies: Vec<AskedProxy>,
}

/// A value of SNI, and how often zone proxies saw it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SniUsage {
    pub value: String,
    /// Services of one name in several zones have a value in common.
    pub destinations: Vec<SniDestination>,
    /// Connections that asked for it, since each proxy started.
    pub connections: u64,
    /// Those that are open now.
    pub active: u64,
    /// The zone proxies that saw it.
    pub seen_by: Vec<SeenBy>,
}

/// Counts of one zone proxy for a value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SeenBy {
    /// The zone proxy, as in `proxies`.
    pub kri: String,
    pub connections: u64,
    pub active: u64,
}

/// A zone proxy that was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AskedProxy {
    pub kri: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// For how many seconds it has been counting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<u64>,
    /// Connections that asked for a value which leads nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u64>,
    /// Reason why it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A value of SNI that servers of the mesh accept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct KnownSni {
    pub value: String,
    /// Services of one name in several zones have a value in common.
    pub destinations: Vec<SniDestination>,
}

/// A port that a value leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SniDestination {
    /// The port as a section of its service.
    pub kri: String,
    pub port: u32,
    /// True if clients dial this value.
    pub dialled: bool,
    /// True if it stands in `snis` of the port. Others are accepted because peers compute them.
    pub listed: bool,
}
