//! The hostnames that the application behind a proxy can call.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every hostname that a proxy offers something under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostnameList {
    pub total: usize,
    /// True if the agent of the proxy answers queries for them.
    #[serde(default)]
    #[schemars(!default)]
    pub resolver: bool,
    /// Sorted by hostname.
    #[serde(default)]
    #[schemars(!default)]
    pub items: Vec<HostnameItem>,
    /// Claims that lost, because something else has that hostname and port.
    #[serde(default)]
    #[schemars(!default)]
    pub conflicts: Vec<ProxyHostnameConflict>,
}

/// One hostname.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HostnameItem {
    pub hostname: String,
    /// Answers to queries; those of IPv6 lead to the same as those of IPv4.
    pub addresses: Vec<String>,
    pub ports: Vec<HostnamePort>,
}

/// Offer at one port of a hostname.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HostnamePort {
    pub port: u16,
    #[serde(flatten)]
    pub claim: HostnameClaim,
}

/// Origin and destination of a hostname.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HostnameClaim {
    pub origin: HostnameOrigin,
    /// The port of the service that it leads to; absent where that is chosen by tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kri: Option<String>,
    /// The tags of the inbounds that it leads to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Origin of a hostname.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ProxyHostnameConflict {
    pub hostname: String,
    pub port: u16,
    pub winner: HostnameClaim,
    pub loser: HostnameClaim,
}

/// The hostnames of a service, as its status lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ServiceHostnames {
    pub total: usize,
    /// Sorted by hostname. `null` for none, as in Kuma.
    pub items: Option<Vec<ServiceHostname>>,
}

/// A hostname of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ServiceHostname {
    pub hostname: String,
    /// Zones in which the hostname leads to the service.
    pub zones: Vec<ZoneName>,
}

/// A zone, by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ZoneName {
    pub name: String,
}

/// Destination that a proxy offers under a hostname, in the form of an outbound of its Dataplane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OfferedOutbound {
    pub hostname: String,
    pub address: String,
    pub port: u16,
    /// The service that it leads to; absent where that is chosen by tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<OfferedBackend>,
    /// The tags of the inbounds that it leads to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Service behind an outbound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OfferedBackend {
    pub kind: Cow<'static, str>,
    pub name: String,
    pub port: u16,
}
