//! What one proxy must do, in the words of the mesh.
//!
//! `for_proxy` is a pure function of a snapshot and of what is known about the proxy. Names are
//! chosen here, once per proxy ([`names`]), and travel with what they name: nothing downstream looks
//! anything up by string.
//!
//! Invariant: this crate has never heard of Envoy.

pub mod names;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use topology::{ClientTls, DestinationId, Endpoints, External, Protocol};

pub use names::{InboundNames, OutboundNames};

/// What the proxy told about itself when it connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyTraits {
    pub mesh: Arc<str>,
    pub name: Arc<str>,
    /// `feature-unified-proxy-resources-and-stats-naming` or its later spelling.
    pub unified_naming: bool,
    pub reuse_port: bool,
    pub ipv6: bool,
    /// The port Envoy's admin interface is offered at through mutual TLS; 0 for none.
    pub admin_port: u16,
    /// Where Envoy's own admin interface listens: a pipe, or a loopback port.
    pub admin_target: AdminTarget,
    pub readiness_port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminTarget {
    Pipe(String),
    Port(IpAddr, u16),
}

/// Everything the proxy must do.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyPlan {
    pub inbounds: Vec<Inbound>,
    pub outbounds: Vec<Outbound>,
    pub passthrough: Vec<Passthrough>,
    pub admin: Option<Admin>,
    /// Names of the secrets that inbounds and outbounds use; `None` while mTLS is off.
    pub secrets: Option<SecretNames>,
}

/// Names under which the proxy asks for its certificate and for the mesh's authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretNames {
    pub identity: String,
    pub authorities: String,
}

/// Accept traffic for the application.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbound {
    pub names: InboundNames,
    pub address: IpAddr,
    pub port: u16,
    /// Where the application listens.
    pub workload: (IpAddr, u16),
    pub protocol: Protocol,
    pub tls: ServerTls,
    /// Off under transparent proxying, where traffic arrives at one port and is handed over.
    pub bind: bool,
    pub reuse_port: bool,
    /// Reach the application from the loopback source 127.0.0.6 / ::6 (transparent proxying).
    pub from_loopback_source: bool,
    pub tags: BTreeMap<String, String>,
    /// `None` while mTLS is off: nobody can be told apart, so nobody is asked.
    pub permissions: Option<policy::Permissions>,
    pub timeouts: Timeouts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerTls {
    Off,
    Strict,
    Permissive,
}

/// Offer the application a destination at an address of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Outbound {
    pub destination: DestinationId,
    pub names: OutboundNames,
    pub address: IpAddr,
    pub port: u16,
    pub bind: bool,
    pub protocol: Protocol,
    pub tls: ClientTls,
    pub external: Option<External>,
    pub endpoints: Arc<Endpoints>,
    pub tags: BTreeMap<String, String>,
    pub timeouts: Timeouts,
}

/// Let traffic through that is not for the mesh (transparent proxying).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passthrough {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
    pub direction: resources::naming::Direction,
    pub allowed: bool,
}

/// Offer Envoy's admin interface to the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    pub name: String,
    pub readiness_name: String,
    pub address: IpAddr,
    pub port: u16,
    pub target: AdminTarget,
    pub readiness_port: u16,
}

/// How long things may take. Zero means forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: std::time::Duration,
    pub idle: std::time::Duration,
    pub request: std::time::Duration,
    pub stream_idle: std::time::Duration,
    pub max_stream: std::time::Duration,
}
