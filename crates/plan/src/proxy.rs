//! What is known about a proxy before it is planned, and how its own interface is offered.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use resources::{Key, Kind};
use topology::Vouched;

use crate::{AdminNames, CertificateFiles, Redirection};

/// What a proxy is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// One workload.
    #[default]
    Sidecar,
    /// What comes from other zones.
    Ingress,
    /// What leaves the zone.
    Egress,
}

/// What the proxy sent about itself when it connected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyTraits {
    pub kind: ProxyKind,
    pub mesh: Arc<str>,
    pub name: Arc<str>,
    /// `feature-unified-proxy-resources-and-stats-naming` or its later spelling.
    pub unified_naming: bool,
    pub reuse_port: bool,
    /// Redirected traffic is only for the ports of inbounds, once clients must prove who they are.
    pub strict_inbound_ports: bool,
    /// Virtual addresses are bound by listeners, so nothing is redirected.
    pub bind_outbounds: bool,
    /// How traffic is redirected to it, where its agent says so; otherwise as its Dataplane says.
    pub redirection: Option<Redirection>,
    /// Its agent answers queries for hostnames.
    pub resolver: bool,
    pub ipv6: bool,
    /// The port Envoy's admin interface is offered at through mutual TLS; 0 for none.
    pub admin_port: u16,
    /// Where Envoy's own admin interface listens: a pipe, or a loopback port.
    pub admin_target: AdminTarget,
    pub readiness_port: u16,
    /// Where its agent reports readiness, if it said that; otherwise beside the admin interface, as Kuma's.
    pub readiness_address: Option<IpAddr>,
    /// Where kuma-dp keeps its files and sockets on the proxy's machine; empty where it did not say.
    pub work_dir: String,
    /// The address of the machine, where kuma-dp knows it.
    pub host_ip: Option<IpAddr>,
    /// The file of certificate authorities on the proxy's machine, if it has one.
    pub system_ca_path: Option<String>,
    /// It can count what is asked of a Kafka broker.
    pub kafka_filter: bool,
    /// What pages of metrics prove themselves with, if its agent has it.
    pub metrics_certificate: Option<Arc<CertificateFiles>>,
    /// Which statistics it was started with ([`crate::Counting`]); `None` for all.
    pub counted: Option<Arc<str>>,
    /// What its token says about it, which it cannot choose.
    pub vouched: Vouched,
}

impl ProxyTraits {
    /// The resource that describes the proxy.
    pub fn key(&self) -> Key {
        match self.kind {
            ProxyKind::Sidecar => Key::new(Kind::Dataplane, &self.mesh, &self.name),
            ProxyKind::Ingress | ProxyKind::Egress => Key::global(self.kind.resource(), &self.name),
        }
    }

    /// A sidecar that has sent nothing about itself.
    pub fn assumed(mesh: &str, name: &str) -> ProxyTraits {
        ProxyTraits {
            kind: ProxyKind::Sidecar,
            mesh: mesh.into(),
            name: name.into(),
            unified_naming: false,
            reuse_port: false,
            strict_inbound_ports: false,
            bind_outbounds: false,
            redirection: None,
            resolver: false,
            ipv6: true,
            admin_port: 0,
            admin_target: AdminTarget::Port(Ipv4Addr::LOCALHOST.into(), 0),
            readiness_port: 0,
            readiness_address: None,
            work_dir: String::new(),
            system_ca_path: None,
            kafka_filter: false,
            counted: None,
            host_ip: None,
            metrics_certificate: None,
            vouched: Vouched::Everything,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AdminTarget {
    Pipe(String),
    Port(IpAddr, u16),
}

/// Offer Envoy's admin interface to the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Admin {
    pub names: AdminNames,
    pub address: IpAddr,
    pub port: u16,
    pub target: AdminTarget,
    /// 0 when the proxy has no readiness reporter; Envoy's own answer is offered then.
    pub readiness_port: u16,
    pub readiness_address: Option<IpAddr>,
    pub reuse_port: bool,
    /// Whether addresses of IPv6 count as internal too.
    pub ipv6: bool,
    /// Filled in by the caller, who holds the keys; without it only readiness is offered.
    pub tls: Option<Arc<AdminTls>>,
}

/// How the admin interface proves itself, and which clients it answers; all in PEM.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AdminTls {
    pub certificate: String,
    pub key: String,
    /// Signs the certificate of the control plane.
    pub authority: Arc<str>,
}

impl fmt::Debug for AdminTls {
    /// Keys do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminTls").finish_non_exhaustive()
    }
}
