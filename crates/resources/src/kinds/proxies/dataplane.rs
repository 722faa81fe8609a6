//! A data plane proxy: where it listens (inbounds, zone listeners), what it serves and what it calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Labels, NoStatus, Schema, Subject, Violations,
    duration::ProtoDuration,
    kinds::{
        mesh::{self, MetricsBackend},
        proto::{is_default, number, optional_number, proto_enum},
        tags::Tags,
        zone_ingress::EnvoyAdmin,
    },
    naming::section,
};

mod validation;

/// A data plane proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Dataplane {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking: Option<Networking>,
    /// Overrides the metrics backend of the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsBackend>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
}

/// The addresses and ports of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Networking {
    /// Where other proxies reach this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Where other proxies reach this one if `address` is private.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advertised_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inbound: Vec<Inbound>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outbound: Vec<Outbound>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "transparent_proxying")]
    pub transparent_proxying: Option<TransparentProxying>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<EnvoyAdmin>,
    /// Listeners of a proxy that serves a whole zone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
}

/// A port of the application behind the proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Inbound {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub service_port: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_address: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_probe: Option<ServiceProbe>,
    #[serde(skip_serializing_if = "is_default")]
    pub state: InboundState,
}

/// Whether an inbound takes traffic; the older spelling of [`InboundState`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    #[serde(skip_serializing_if = "is_default")]
    pub ready: bool,
}

/// How the proxy finds out whether the application lives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceProbe {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<ProtoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<ProtoDuration>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_number",
        alias = "unhealthy_threshold"
    )]
    pub unhealthy_threshold: Option<u32>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_number",
        alias = "healthy_threshold"
    )]
    pub healthy_threshold: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpProbe>,
}

/// A probe that opens a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpProbe {}

proto_enum! {
    /// Whether an inbound takes traffic.
    pub enum InboundState { Ready = "Ready", NotReady = "NotReady", Ignored = "Ignored" }
}

/// A service the application calls, and the port it calls it at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Outbound {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// A name for the address, which the agent beside the proxy answers DNS queries for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<BackendRef>,
}

/// The destination of an outbound: a MeshService, MeshExternalService or MeshMultiZoneService.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A proxy at the edge of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: GatewayType,
}

proto_enum! {
    /// Whether a gateway is another program beside the proxy or the proxy itself.
    pub enum GatewayType { Delegated = "DELEGATED", Builtin = "BUILTIN" }
}

/// How traffic is redirected to the proxy without the application knowing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TransparentProxying {
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "number",
        alias = "redirect_port_inbound"
    )]
    pub redirect_port_inbound: u32,
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "number",
        alias = "redirect_port_outbound"
    )]
    pub redirect_port_outbound: u32,
    #[serde(skip_serializing_if = "Vec::is_empty", alias = "direct_access_services")]
    pub direct_access_services: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", alias = "reachable_services")]
    pub reachable_services: Vec<String>,
    #[serde(skip_serializing_if = "is_default", alias = "ip_family_mode")]
    pub ip_family_mode: IpFamilyMode,
    #[serde(skip_serializing_if = "Option::is_none", alias = "reachable_backends")]
    pub reachable_backends: Option<ReachableBackends>,
}

proto_enum! {
    /// Which versions of IP are redirected.
    pub enum IpFamilyMode { UnSpecified = "UnSpecified", DualStack = "DualStack", IPv4 = "IPv4", IPv6 = "IPv6" }
}

/// The only destinations the proxy is configured for; an empty list means none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReachableBackends {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<ReachableBackendRef>,
}

/// One or, by labels, several destinations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReachableBackendRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional_number")]
    pub port: Option<u32>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A listener of a proxy that serves a whole zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: ListenerType,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub state: ListenerState,
}

proto_enum! {
    /// What a listener of a zone proxy is for.
    pub enum ListenerType { Unspecified = "Unspecified", ZoneIngress = "ZoneIngress", ZoneEgress = "ZoneEgress" }
}

proto_enum! {
    /// Whether a listener of a zone proxy takes traffic.
    pub enum ListenerState { Ready = "Ready", NotReady = "NotReady" }
}

/// Endpoints that make the application's HTTP probes reachable without mTLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Probes {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<ProbeEndpoint>,
}

/// One probe, and the inbound it is forwarded to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeEndpoint {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number", alias = "inbound_port")]
    pub inbound_port: u32,
    #[serde(skip_serializing_if = "String::is_empty", alias = "inbound_path")]
    pub inbound_path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl Dataplane {
    pub fn inbounds(&self) -> &[Inbound] {
        self.networking.as_ref().map_or(&[], |n| &n.inbound)
    }

    pub fn listeners(&self) -> &[Listener] {
        self.networking.as_ref().map_or(&[], |n| &n.listeners)
    }

    pub fn gateway(&self) -> Option<&Gateway> {
        self.networking.as_ref()?.gateway.as_ref()
    }

    pub fn has_listener(&self, kind: ListenerType) -> bool {
        self.listeners().iter().any(|listener| listener.kind == kind)
    }
}

impl Inbound {
    /// How policies and KRIs name the inbound: its name, or else its port.
    pub fn section_name(&self) -> String {
        section::name_or_port(Some(&self.name), self.port)
    }

    /// The address the proxy listens at.
    pub fn address_in<'a>(&'a self, networking: &'a Networking) -> &'a str {
        if self.address.is_empty() { &networking.address } else { &self.address }
    }

    /// The address the application listens at.
    pub fn service_address_in<'a>(&'a self, networking: &'a Networking) -> &'a str {
        if self.service_address.is_empty() { self.address_in(networking) } else { &self.service_address }
    }

    /// The port the application listens at.
    pub fn service_port(&self) -> u32 {
        if self.service_port == 0 { self.port } else { self.service_port }
    }
}

impl Listener {
    /// How policies and KRIs name the listener: its name, or else its port.
    pub fn section_name(&self) -> String {
        section::name_or_port(Some(&self.name), self.port)
    }
}

impl Outbound {
    /// The address the application calls the service at.
    pub fn address(&self) -> &str {
        if self.address.is_empty() { "127.0.0.1" } else { &self.address }
    }
}

impl Schema for Dataplane {
    type Status = NoStatus;

    fn warnings(&self) -> Vec<String> {
        let given = self.metrics.is_some();
        given
            .then(|| mesh::without_effect("metrics", "MeshMetric", mesh::METRICS_INSTEAD))
            .into_iter()
            .collect()
    }

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        validation::validate(self, found);
    }
}
