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
    /// Addresses of the proxy, its inbounds and its outbounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking: Option<Networking>,
    /// Kept and without effect; MeshMetric replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsBackend>,
    /// Kept and without effect: kuma-dp serves the application's probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
}

/// The addresses and ports of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Networking {
    /// The IP address or host name at which other proxies reach this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The address at which other proxies reach this one, if `address` is private.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advertised_address: String,
    /// Given for a proxy at the edge of the mesh; then it has no inbounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// Ports of the application that other proxies call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inbound: Vec<Inbound>,
    /// Services that the application calls at local addresses, where traffic is not redirected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outbound: Vec<Outbound>,
    /// Redirection of traffic to the proxy without changes to the application.
    #[serde(skip_serializing_if = "Option::is_none", alias = "transparent_proxying")]
    pub transparent_proxying: Option<TransparentProxying>,
    /// Envoy's admin API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<EnvoyAdmin>,
    /// Listeners of a proxy that serves a whole zone; kept and without effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
}

/// A port of the application behind the proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Inbound {
    /// A name that policies and MeshServices refer to; the port number by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The port at which the proxy listens.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// The port at which the application listens; `port` by default.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub service_port: u32,
    /// The address at which the application listens; that of the inbound by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_address: String,
    /// The address at which the proxy listens; that of `networking` by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Tags of the inbound; `kuma.io/service` names the service, `kuma.io/protocol` the protocol.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// Protocol of the application: `tcp`, `http`, `http2`, `grpc` or `kafka`; `tcp` by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// Deprecated, use `state`: whether the application is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Envoy's checks of the application; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_probe: Option<ServiceProbe>,
    /// State of the inbound: only `Ready`, the default, gets traffic.
    #[serde(skip_serializing_if = "is_default")]
    pub state: InboundState,
}

/// Health of an inbound; the older spelling of [`InboundState`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// Set if the inbound gets traffic.
    #[serde(skip_serializing_if = "is_default")]
    pub ready: bool,
}

/// Checks of the application by the proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceProbe {
    /// The time between two checks; `dpServer.hds.checkDefaults.interval` of the control plane by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<ProtoDuration>,
    /// Timeout of a check; `dpServer.hds.checkDefaults.timeout` of the control plane by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<ProtoDuration>,
    /// Failed checks in a row that make the inbound not ready; set by the control plane's configuration by
    /// default.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_number",
        alias = "unhealthy_threshold"
    )]
    pub unhealthy_threshold: Option<u32>,
    /// Passed checks in a row that make the inbound ready; set by the control plane's configuration by
    /// default.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_number",
        alias = "healthy_threshold"
    )]
    pub healthy_threshold: Option<u32>,
    /// Check that the application accepts connections; the only kind of check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpProbe>,
}

/// A probe that opens a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpProbe {}

proto_enum! {
    /// State of an inbound.
    pub enum InboundState { Ready = "Ready", NotReady = "NotReady", Ignored = "Ignored" }
}

/// A service the application calls, and the port it calls it at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Outbound {
    /// The address at which the application calls the service; `127.0.0.1` by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The port at which the application calls the service.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// A name for the address, which kuma-dp answers DNS queries for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The service by its tags, `kuma.io/service` at least; not together with `backendRef`.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// The service by its resource; not together with `tags`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<BackendRef>,
}

/// The destination of an outbound: a MeshService, MeshExternalService or MeshMultiZoneService.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    /// The kind of the destination: `MeshService`, `MeshExternalService` or `MeshMultiZoneService`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name of the destination; not together with `labels`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The port of the destination.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// Labels that the destination must have.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A proxy at the edge of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// Tags of the gateway; `kuma.io/service` names it.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// Type of the gateway: another program beside the proxy (`DELEGATED`, the default) or the proxy itself;
    /// `BUILTIN` is not supported.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: GatewayType,
}

proto_enum! {
    /// Type of a gateway: another program beside the proxy, or the proxy itself.
    pub enum GatewayType { Delegated = "DELEGATED", Builtin = "BUILTIN" }
}

/// Redirection of traffic to the proxy without changes to the application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TransparentProxying {
    /// The port that incoming traffic is redirected to; 15006 by default.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "number",
        alias = "redirect_port_inbound"
    )]
    pub redirect_port_inbound: u32,
    /// The port that outgoing traffic is redirected to; 15001 by default.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "number",
        alias = "redirect_port_outbound"
    )]
    pub redirect_port_outbound: u32,
    /// Kept and without effect.
    #[serde(skip_serializing_if = "Vec::is_empty", alias = "direct_access_services")]
    pub direct_access_services: Vec<String>,
    /// The only services, by `kuma.io/service`, that the proxy is configured for; all by default.
    #[serde(skip_serializing_if = "Vec::is_empty", alias = "reachable_services")]
    pub reachable_services: Vec<String>,
    /// IP versions to redirect; both by default.
    #[serde(skip_serializing_if = "is_default", alias = "ip_family_mode")]
    pub ip_family_mode: IpFamilyMode,
    /// The only destinations that the proxy is configured for; all by default.
    #[serde(skip_serializing_if = "Option::is_none", alias = "reachable_backends")]
    pub reachable_backends: Option<ReachableBackends>,
}

proto_enum! {
    /// IP versions to redirect.
    pub enum IpFamilyMode { UnSpecified = "UnSpecified", DualStack = "DualStack", IPv4 = "IPv4", IPv6 = "IPv6" }
}

/// The only destinations the proxy is configured for; an empty list means none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReachableBackends {
    /// The destinations; an empty list means none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<ReachableBackendRef>,
}

/// One or, by labels, several destinations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReachableBackendRef {
    /// The kind of the destinations: `MeshService`, `MeshExternalService` or `MeshMultiZoneService`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name of the destination; not together with `labels`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The Kubernetes namespace of the destination.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The port; all ports of the destination by default.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional_number")]
    pub port: Option<u32>,
    /// Labels that the destinations must have.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A listener of a proxy that serves a whole zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    /// Purpose of the listener.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: ListenerType,
    /// The address at which the proxy listens.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The port at which the proxy listens.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// A name that policies refer to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// State of the listener: only `Ready`, the default, gets traffic.
    #[serde(skip_serializing_if = "is_default")]
    pub state: ListenerState,
}

proto_enum! {
    /// Purpose of a listener of a zone proxy.
    pub enum ListenerType { Unspecified = "Unspecified", ZoneIngress = "ZoneIngress", ZoneEgress = "ZoneEgress" }
}

proto_enum! {
    /// State of a listener of a zone proxy.
    pub enum ListenerState { Ready = "Ready", NotReady = "NotReady" }
}

/// Endpoints that make the application's HTTP probes reachable without mTLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Probes {
    /// The port of the probes.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// The probes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<ProbeEndpoint>,
}

/// One probe, and the inbound it is forwarded to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeEndpoint {
    /// The port of the application that a probe is forwarded to.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number", alias = "inbound_port")]
    pub inbound_port: u32,
    /// The path of the application that a probe is forwarded to.
    #[serde(skip_serializing_if = "String::is_empty", alias = "inbound_path")]
    pub inbound_path: String,
    /// The path at which the probe is served.
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
    /// Name of the inbound in policies and KRIs: its name, or else its port.
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
    /// Name of the listener in policies and KRIs: its name, or else its port.
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
