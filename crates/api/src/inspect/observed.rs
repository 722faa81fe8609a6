//! Who was seen calling what.

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{flag, inspect, readable, shown, zones::AskedZone};
use crate::{Error, call::Call, list::Paging};

/// How many edges one answer lists at most.
const MAX_LISTED: usize = 10_000;

/// The calls that proxies of a mesh reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedCalls {
    /// When the first proxy reported; absent while none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the last report came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// How many edges there are, of those that were asked for.
    pub total: usize,
    /// By caller and destination, from the offset on.
    pub edges: Vec<ObservedCall>,
    /// Whether calls between new pairs were not kept, because there are too many.
    pub dropped: bool,
    pub proxies: ReportingProxies,
    /// On a global control plane, the zones that were asked: by their order the edges are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<AskedZone>,
}

/// Which of the edges to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedEdges {
    pub offset: usize,
    pub size: usize,
    /// Only calls that would be trimmed.
    pub would_be_trimmed: bool,
}

/// A client and what it calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedCall {
    /// The first identity in the certificate of the client, or `outside` for clients without one.
    pub caller: String,
    /// The identifier of a port of a service, or the tags of what is called by them.
    pub destination: String,
    pub first_seen: String,
    pub last_seen: String,
    /// Requests, or connections of TCP.
    pub count: u64,
    /// Whether the client is in mode `shadow` and could not make the call if its outbounds were trimmed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub would_be_trimmed: bool,
    /// On a global control plane, the zone whose proxies reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// How complete it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportingProxies {
    /// How many of the connected proxies have reported since they connected.
    pub reporting: usize,
    /// How many proxies of the mesh are connected to this control plane.
    pub connected: usize,
}

/// `GET /meshes/{mesh}/_observed`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    let paging = Paging::read(&call)?;
    let wanted = WantedEdges {
        offset: paging.offset,
        size: call.query("size").map_or(MAX_LISTED, |_| paging.size),
        would_be_trimmed: flag(&call, "wouldBeTrimmed", false)?,
    };
    shown(inspect.observed(call.param("mesh"), wanted).await?, &snapshot).await
}
