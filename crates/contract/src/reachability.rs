//! Destinations that a proxy reaches, destinations that trimming takes or would take, and the reasons.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::{lenient, zones::AskedZone};

/// Verdict on a client and a destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReachabilityVerdict {
    /// At least one server lets it in.
    Reachable,
    /// No server lets it in, and its proxy is not sent the destination.
    Trimmed,
    /// No server lets it in; its proxy has the destination all the same.
    Denied,
    /// Not known here.
    #[default]
    Unknown,
}

/// Treatment of destinations that a proxy may not call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReachabilityMode {
    /// Mode that is asked for: `off`, `report`, `shadow` or `enforce`.
    pub asked: Cow<'static, str>,
    /// Where: `Dataplane`, `zone` (a label of the Mesh for this zone), `Mesh` or `control plane`.
    pub said_by: Cow<'static, str>,
    /// Mode in effect.
    pub active: Cow<'static, str>,
    /// Reason why that is not what is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// True if calls to trimmed destinations are answered.
    pub stub: bool,
}

/// Number of destinations of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ReachabilityCounts {
    pub reachable: usize,
    pub trimmed: usize,
    pub denied: usize,
    pub unknown: usize,
}

/// Savings of a proxy by trimming, done or possible.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReachabilityReport {
    /// True if it is taken: false where it would be.
    pub done: bool,
    /// Destinations that the proxy has without trimming.
    pub destinations_before: usize,
    /// Destinations that it has with it.
    pub destinations_after: usize,
    pub clusters: usize,
    pub listeners: usize,
    /// Everything that the control plane sends the proxy about its calls, in bytes, without trimming.
    pub bytes_before: usize,
    pub bytes_after: usize,
    /// Savings of Envoy, estimated from measurements of HTTP services with mTLS.
    pub estimate: ReachabilityEstimate,
}

/// An estimate, per service that is not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReachabilityEstimate {
    /// Heap of Envoy, in bytes.
    pub memory_bytes: usize,
    /// Processor time that Envoy needs to take in its configuration, in microseconds.
    pub cpu_microseconds: usize,
}

/// A destination of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReachabilityDestination {
    /// Its identifier, or its tags.
    pub destination: String,
    pub verdict: ReachabilityVerdict,
    /// True if everyone may call it.
    #[serde(rename = "open")]
    pub callable_by_all: bool,
    /// The rules that decide.
    pub decided_by: Vec<String>,
    /// Number of inbounds that would refuse the proxy; ask for the destination with `to` to see which.
    pub refusing: usize,
}

/// Destinations of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyReachability {
    /// The identifier of the Dataplane.
    pub kri: String,
    #[serde(default)]
    #[schemars(!default)]
    pub mode: ReachabilityMode,
    #[serde(default)]
    #[schemars(!default)]
    pub counts: ReachabilityCounts,
    /// Absent in the mode `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default)]
    pub report: Option<ReachabilityReport>,
    /// Sorted by name; what is not reachable comes first.
    #[serde(default)]
    #[schemars(!default)]
    pub destinations: Vec<ReachabilityDestination>,
    /// True if there are more destinations than are listed.
    #[serde(default)]
    #[schemars(!default)]
    pub truncated: bool,
}

/// Answer of a server to the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReachabilityAnswer {
    /// The identifier of a server's Dataplane with the inbound as section.
    pub server: String,
    /// Number of inbounds it stands for.
    pub servers: usize,
    pub allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub reason: String,
}

/// The smallest change that would allow a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReachabilityChange {
    /// Advice.
    pub text: String,
    /// The rules that deny the call and would have to change, or would get an exception.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// The MeshTrafficPermissions to write; absent where only a change of the rules would do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Value>,
    /// Further effects of these permissions, and their limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Reason why a call is possible or not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ReachabilityExplanation {
    pub verdict: ReachabilityVerdict,
    pub reason: String,
    /// The rules that decide: identifiers of policies with the rule as section.
    pub decided_by: Vec<String>,
    /// Answers of the servers. A server that lets the client in decides about the whole destination; those that would
    /// refuse are among them.
    pub answers: Vec<ReachabilityAnswer>,
    /// The inbounds that refuse the client, at most 100: identifiers of Dataplanes with the inbound as section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusing: Vec<String>,
    /// Number of inbounds of this zone that refuse the client, those included that are not listed.
    pub refusing_total: usize,
    /// True if there are more servers than were asked.
    pub truncated: bool,
    /// Reason why the client's proxy is not sent the destination, where permissions are not the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<ReachabilityChange>,
}

/// One destination of a proxy, explained.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DestinationReachability {
    /// The identifier of the Dataplane.
    pub kri: String,
    #[serde(default)]
    #[schemars(!default)]
    pub mode: ReachabilityMode,
    /// The destination that was asked for: its identifier, or its tags.
    pub destination: String,
    #[serde(flatten)]
    pub explained: ReachabilityExplanation,
}

/// Destinations of a proxy, or one of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ProxyReachabilityAnswer {
    All(ProxyReachability),
    One(DestinationReachability),
}

/// Savings of the proxies of a mesh by trimming, done or possible.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct MeshReachability {
    /// Number of proxies in all.
    pub total: usize,
    pub items: Vec<ProxySavings>,
    /// The address of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// On a global control plane, the zones that were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<AskedZone>,
}

/// Some of the proxies of a mesh, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredProxies {
    /// Number of proxies in all.
    pub total: usize,
    #[serde(default)]
    #[schemars(!default)]
    pub items: Vec<ProxySavings>,
    /// On a global control plane, the zones that were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<AskedZone>,
}

/// Savings of a proxy by trimming, done or possible.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxySavings {
    pub name: String,
    /// On a global control plane, the zone in which it has this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    pub mode: ReachabilityMode,
    /// Absent where the proxy cannot be configured, or where measuring all of them would take too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<ReachabilityReport>,
}

impl<'de> Deserialize<'de> for ProxyReachabilityAnswer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Value::deserialize(deserializer)?;
        let one = document.get("destination").is_some();
        let read = if one {
            lenient::read(&document).map(ProxyReachabilityAnswer::One)
        } else {
            lenient::read(&document).map(ProxyReachabilityAnswer::All)
        };
        read.map_err(D::Error::custom)
    }
}
