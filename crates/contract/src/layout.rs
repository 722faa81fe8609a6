//! The parts of a proxy, and their names in Envoy.

use std::borrow::Cow;

use resources::Labels;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The inbounds and outbounds of a proxy with the names of their resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyLayout {
    /// The identifier of the Dataplane.
    pub kri: String,
    #[serde(default)]
    #[schemars(!default)]
    pub labels: Labels,
    /// The first identity of the proxy's certificate; absent while mTLS is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default)]
    pub spiffe_id: Option<String>,
    #[serde(default)]
    #[schemars(!default)]
    pub inbounds: Vec<ProxyLayoutItem>,
    /// Sorted by identifier. A Dataplane that neither lists outbounds nor has its traffic redirected calls none by its
    /// proxy; as in Kuma, it has every destination of the mesh here then, without `proxyResources`.
    #[serde(default)]
    #[schemars(!default)]
    pub outbounds: Vec<ProxyLayoutItem>,
    /// Listeners of zone proxies.
    #[serde(default)]
    #[schemars(!default)]
    pub listeners: Vec<ProxyLayoutListener>,
    /// Parts that let traffic through that is not for the mesh. Not in Kuma.
    #[serde(default)]
    #[schemars(!default)]
    pub passthrough: Vec<ProxyLayoutPassthrough>,
    /// Requests of the Dataplane that cannot be met, each with its reason. Not in Kuma.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The listener of a zone ingress or egress and where it leads, with their names in Envoy. Not in Kuma.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ZoneProxyLayout {
    /// The identifier of the ZoneIngress or ZoneEgress.
    pub kri: String,
    pub labels: Labels,
    /// `legacy` or `unified`.
    pub naming: Cow<'static, str>,
    /// Absent while it is not known where to listen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<ZoneProxyLayoutListener>,
    /// Destinations of all meshes, by mesh and identifier.
    pub destinations: Vec<ZoneProxyLayoutDestination>,
    /// Requests that cannot be met, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The one listener of a zone ingress or egress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ZoneProxyLayoutListener {
    pub address: String,
    pub port: u16,
    pub proxy_resource_name: String,
    /// Its name in statistics.
    pub stats: String,
}

/// A destination behind a zone ingress or egress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ZoneProxyLayoutDestination {
    pub mesh: String,
    /// The port of a service; empty for destinations selected by tags, which have no identifier.
    pub kri: String,
    pub protocol: Cow<'static, str>,
    /// Server names that lead to it; clients dial the first.
    pub server_names: Vec<String>,
    /// The name of the cluster.
    pub proxy_resource_name: String,
    /// Name of each part in Envoy now; routes exist where the mesh ends and HTTP is spoken.
    pub proxy_resources: ProxyResources,
}

/// One inbound or outbound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxyLayoutItem {
    /// The Dataplane with the inbound as section, or the port of a service; empty for destinations
    /// selected by tags, which have no identifier.
    pub kri: String,
    /// For an outbound, the port of the destination; where that has none, the port it is offered at.
    pub port: u32,
    pub protocol: Cow<'static, str>,
    /// Names of an outbound, each with its port. Not in Kuma.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// The name of the cluster; with unified naming, the name of everything.
    pub proxy_resource_name: String,
    /// Name of each part in Envoy now, in whichever scheme the proxy uses; absent for what the proxy does not
    /// have. Not in Kuma.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_resources: Option<ProxyResources>,
}

/// Names of the parts of an inbound or outbound in Envoy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxyResources {
    pub listener: String,
    pub cluster: String,
    /// Absent where no HTTP is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_configuration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_host: Option<String>,
    pub stats: ProxyResourceStats,
}

/// Names of the parts of an inbound or outbound in statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxyResourceStats {
    pub listener: String,
    pub cluster: String,
    /// The HTTP connection manager or TCP proxy.
    pub filter: String,
    /// Access control; absent where clients need no permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
}

/// A listener of a zone proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxyLayoutListener {
    pub kri: String,
    pub port: u32,
    pub r#type: Cow<'static, str>,
    pub proxy_resource_name: String,
}

/// Passthrough of one IP version in one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxyLayoutPassthrough {
    /// `inbound` or `outbound`.
    pub direction: Cow<'static, str>,
    /// `ipv4` or `ipv6`.
    pub ip_version: Cow<'static, str>,
    pub port: u32,
    /// True if the traffic goes on from here.
    pub allowed: bool,
    pub proxy_resource_name: String,
    pub proxy_resources: ProxyResources,
}
