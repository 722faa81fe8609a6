//! Which destinations a proxy reaches, what trimming by permissions takes from it or would take, and why.

use std::borrow::Cow;

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{dataplane, inspect, readable, shown, zones::AskedZone};
use crate::{Error, call::Call, list::Paging};

/// Whether a client reaches a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ReachabilityVerdict")]
pub enum Verdict {
    /// At least one server lets it in.
    Reachable,
    /// No server lets it in, and its proxy is not sent the destination.
    Trimmed,
    /// No server lets it in; its proxy has the destination all the same.
    Denied,
    /// What is known here does not tell.
    Unknown,
}

/// What is done about destinations that a proxy may not call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReachabilityMode")]
pub struct ModeInUse {
    /// What is asked for: `off`, `report`, `shadow` or `enforce`.
    pub asked: Cow<'static, str>,
    /// Where: `Dataplane`, `zone` (a label of the Mesh for this zone), `Mesh` or `control plane`.
    pub said_by: Cow<'static, str>,
    /// What has an effect.
    pub active: Cow<'static, str>,
    /// Why that is not what is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// Whether calls to trimmed destinations are answered.
    pub stub: bool,
}

/// How many destinations there are of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReachabilityCounts")]
pub struct Counts {
    pub reachable: usize,
    pub trimmed: usize,
    pub denied: usize,
    pub unknown: usize,
}

/// What trimming takes from a proxy, or would take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReachabilityReport")]
pub struct Report {
    /// Whether it is taken: false where it would be.
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
    /// What Envoy would need less, estimated from measurements of HTTP services with mTLS.
    pub estimate: Estimate,
}

/// An estimate, per service that is not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReachabilityEstimate")]
pub struct Estimate {
    /// Heap of Envoy, in bytes.
    pub memory_bytes: usize,
    /// Processor time that Envoy needs to take in its configuration, in microseconds.
    pub cpu_microseconds: usize,
}

/// A destination of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReachabilityDestination")]
pub struct Reached {
    /// Its identifier, or its tags.
    pub destination: String,
    pub verdict: Verdict,
    /// Whether everyone may call it.
    #[serde(rename = "open")]
    pub callable_by_all: bool,
    /// The rules that decide.
    pub decided_by: Vec<String>,
    /// How many inbounds would refuse the proxy; ask for the destination with `to` to see which.
    pub refusing: usize,
}

/// What a proxy reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyReachability {
    /// The identifier of the Dataplane.
    pub kri: String,
    pub mode: ModeInUse,
    pub counts: Counts,
    /// Absent in the mode `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// Sorted by name; what is not reachable comes first.
    pub destinations: Vec<Reached>,
    /// Whether there are more destinations than are listed.
    pub truncated: bool,
}

/// What a server says to the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReachabilityAnswer")]
pub struct Answer {
    /// The identifier of a server's Dataplane with the inbound as section.
    pub server: String,
    /// How many inbounds it stands for.
    pub servers: usize,
    pub allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub reason: String,
}

/// The smallest change that would allow a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReachabilityChange")]
pub struct Change {
    /// What to do.
    pub text: String,
    /// The rules that deny the call and would have to change, or would get an exception.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// The MeshTrafficPermissions to write; absent where only a change of the rules would do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Value>,
    /// What else these permissions open, and what they do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why a call is possible or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ReachabilityExplanation")]
pub struct Explained {
    pub verdict: Verdict,
    pub reason: String,
    /// The rules that decide: identifiers of policies with the rule as section.
    pub decided_by: Vec<String>,
    /// What the servers say. A server that lets the client in decides about the whole destination; those that would
    /// refuse are among them.
    pub answers: Vec<Answer>,
    /// The inbounds that refuse the client, at most 100: identifiers of Dataplanes with the inbound as section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusing: Vec<String>,
    /// How many inbounds of this zone refuse the client, those included that are not listed.
    pub refusing_total: usize,
    /// Whether there are more servers than were asked.
    pub truncated: bool,
    /// Why the client's proxy is not sent the destination, where permissions are not the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

/// One destination of a proxy, explained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DestinationReachability {
    /// The identifier of the Dataplane.
    pub kri: String,
    pub mode: ModeInUse,
    /// The destination that was asked for: its identifier, or its tags.
    pub destination: String,
    #[serde(flatten)]
    pub explained: Explained,
}

/// What a proxy reaches, or one destination of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ProxyReachabilityAnswer")]
pub enum OfProxy {
    All(ProxyReachability),
    One(DestinationReachability),
}

/// What trimming does for the proxies of a mesh, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MeshReachability {
    /// How many proxies there are in all.
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredProxies {
    /// How many proxies there are in all.
    pub total: usize,
    pub items: Vec<ProxySavings>,
    /// On a global control plane, the zones that were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<AskedZone>,
}

/// What trimming does for a proxy, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySavings {
    pub name: String,
    /// On a global control plane, the zone in which it has this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    pub mode: ModeInUse,
    /// Absent where the proxy cannot be configured, or where measuring all of them would take too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_reachability`.
pub async fn of_proxy(call: Call) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    let proxy = dataplane(&call, "Failed to retrieve Dataplane")?;
    shown(inspect.reachability(&proxy, call.query("to")).await?, &snapshot).await
}

/// `GET /meshes/{mesh}/_reachability`.
pub async fn of_mesh(call: Call) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    let paging = Paging::read(&call)?;
    let found = inspect.reachability_of_mesh(call.param("mesh"), paging.offset, paging.size).await?;
    let MeasuredProxies { total, items, zones } = found;
    let next = paging.next_by_offset(&call, total);
    shown(MeshReachability { total, items, next, zones }, &snapshot).await
}
