//! The hostnames that the application behind a proxy can call.

use std::{borrow::Cow, collections::BTreeMap};

use axum::response::Response;
use resources::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{dataplane, inspect, readable, shown};
use crate::{Error, call::Call};

/// Every hostname that a proxy offers something under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostnameList {
    pub total: usize,
    /// Whether the agent of the proxy answers queries for them.
    pub resolver: bool,
    /// Sorted by hostname.
    pub items: Vec<HostnameItem>,
    /// What was asked for and is not there, because something else has that hostname and port.
    pub conflicts: Vec<HostnameConflict>,
}

/// One hostname.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostnameItem {
    pub hostname: String,
    /// What queries for it are answered with; those of IPv6 lead to the same as those of IPv4.
    pub addresses: Vec<String>,
    pub ports: Vec<HostnamePort>,
}

/// What is offered at one port of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostnamePort {
    pub port: u16,
    #[serde(flatten)]
    pub claim: HostnameClaim,
}

/// Who says that there is a hostname, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostnameClaim {
    pub origin: HostnameOrigin,
    /// The port of the service that it leads to; absent where that is chosen by tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kri: Option<String>,
    /// The tags of the inbounds that it leads to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Where a hostname comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostnameOrigin {
    /// `VirtualOutbound`, the kind of the service in whose status it is, `Dataplane` where it is listed there, or `Mesh`
    /// where the mesh gives all services such hostnames.
    pub kind: Cow<'static, str>,
    /// Of the VirtualOutbound, of the service, of the Dataplane or of the mesh.
    pub name: String,
    /// The HostnameGenerator that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname_generator: Option<String>,
}

/// Two claims on one port of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProxyHostnameConflict")]
pub struct HostnameConflict {
    pub hostname: String,
    pub port: u16,
    pub winner: HostnameClaim,
    pub loser: HostnameClaim,
}

/// `GET /meshes/{mesh}/dataplanes/{name}/_hostnames`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    let hostnames = inspect.hostnames(&dataplane(&call, "Failed to retrieve Dataplane")?).await?;
    shown(hostnames, &snapshot).await
}

impl HostnameList {
    /// What is offered under hostnames in addition to what the Dataplane lists, in the form of its outbounds.
    pub fn outbounds(&self) -> Vec<Value> {
        let of_item = |item: &HostnameItem| {
            let address = item.addresses.first().cloned().unwrap_or_default();
            let outbound = |port: &HostnamePort| {
                let mut outbound = json!({
                    "hostname": item.hostname, "address": address, "port": port.port,
                });
                let origin = &port.claim.origin;
                if port.claim.tags.is_empty() {
                    outbound["backendRef"] =
                        json!({ "kind": origin.kind, "name": origin.name, "port": port.port });
                } else {
                    outbound["tags"] = json!(port.claim.tags);
                }
                outbound
            };
            let unlisted = |port: &&HostnamePort| port.claim.origin.kind != Kind::Dataplane.name();
            item.ports.iter().filter(unlisted).map(outbound).collect::<Vec<_>>()
        };
        self.items.iter().flat_map(of_item).collect()
    }
}
