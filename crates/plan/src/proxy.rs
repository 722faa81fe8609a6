//! Properties of a proxy that are known before it is planned, and its admin interface.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use resources::{Key, Kind};
use topology::VouchedLabels;

use crate::{AdminNames, CertificateFiles, Redirection};

/// Purpose of a proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// One workload.
    #[default]
    Sidecar,
    /// Serves a zone, and no mesh in particular.
    Zone(ZoneProxyKind),
}

/// Side of a zone that a proxy serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZoneProxyKind {
    /// Serves traffic from other zones.
    Ingress,
    /// Serves traffic that leaves the zone.
    Egress,
}

impl ProxyKind {
    pub const INGRESS: ProxyKind = ProxyKind::Zone(ZoneProxyKind::Ingress);
    pub const EGRESS: ProxyKind = ProxyKind::Zone(ZoneProxyKind::Egress);

    /// Checks whether it serves a zone, and no mesh in particular.
    pub fn is_of_zone(self) -> bool {
        match self {
            ProxyKind::Sidecar => false,
            ProxyKind::Zone(_) => true,
        }
    }
}

/// Properties that the proxy sent when it connected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyTraits {
    pub kind: ProxyKind,
    pub mesh: Arc<str>,
    pub name: Arc<str>,
    /// Its agent announces `feature-unified-proxy-resources-and-stats-naming` or its later spelling. A default, which
    /// labels override: [`Applying::names`](crate::Applying::names) knows the names in effect.
    pub unified_naming: bool,
    pub reuse_port: bool,
    /// Redirected traffic is only for the ports of inbounds, once clients must prove who they are.
    pub strict_inbound_ports: bool,
    /// Virtual addresses are bound by listeners, so nothing is redirected.
    pub bind_outbounds: bool,
    /// Redirection of its traffic, if its agent reports one; otherwise the Dataplane describes it.
    pub redirection: Option<Redirection>,
    /// Its agent answers queries for hostnames.
    pub resolver: bool,
    pub ipv6: bool,
    /// Its machine has a route for IPv6, so that connections to IPv6 virtual addresses are redirected.
    pub ipv6_routed: bool,
    /// The port Envoy's admin interface is offered at through mutual TLS; 0 for none.
    pub admin_port: u16,
    /// Address of Envoy's own admin interface: a pipe, or a loopback port.
    pub admin_target: AdminTarget,
    pub readiness_port: u16,
    /// Address where its agent reports readiness, if the agent sent one; otherwise beside the admin
    /// interface, as Kuma's.
    pub readiness_address: Option<IpAddr>,
    /// Folder of kuma-dp's files and sockets on the proxy's machine; empty if it did not send one.
    pub work_dir: String,
    /// The address of the machine, where kuma-dp knows it.
    pub host_ip: Option<IpAddr>,
    /// The file of certificate authorities on the proxy's machine, if it has one.
    pub system_ca_path: Option<String>,
    /// It can count what is asked of a Kafka broker.
    pub kafka_filter: bool,
    /// Certificate of pages of metrics, if its agent has one.
    pub metrics_certificate: Option<Arc<CertificateFiles>>,
    /// Statistics that it was started with ([`crate::Counting`]); `None` for all.
    pub counted: Option<Arc<str>>,
    /// Claims of its token, which it cannot choose.
    pub vouched: VouchedLabels,
}

impl ProxyTraits {
    /// The resource that describes the proxy.
    pub fn key(&self) -> Key {
        match self.kind {
            ProxyKind::Sidecar => Key::new(Kind::Dataplane, &self.mesh, &self.name),
            ProxyKind::Zone(_) => Key::global(self.kind.resource(), &self.name),
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
            ipv6_routed: false,
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
            vouched: VouchedLabels::Everything,
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
    /// Addresses of IPv6 count as internal too.
    pub ipv6: bool,
    /// Filled in by the caller, who holds the keys; without it only readiness is offered.
    pub tls: Option<Arc<AdminTls>>,
}

/// Certificate of the admin interface, and the authority of the clients that it answers; all in PEM.
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
