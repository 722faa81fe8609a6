//! What one proxy must do, in the words of the mesh.
//!
//! `for_proxy` is a pure function of a snapshot and of what is known about the proxy. Names are
//! chosen here, once per proxy ([`names`]), and travel with what they name: nothing downstream looks
//! anything up by string. What cannot be planned becomes one of the plan's `problems`, and the rest of
//! the proxy works.
//!
//! Every part of a plan can be hashed, so that what is made of it is found again by its content.
//!
//! Invariant: this crate has never heard of Envoy.

mod backend;
pub mod effective;
mod external;
mod inbound;
pub mod known;
pub mod names;
mod outbound;
mod route;
mod system;
mod timeouts;

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::Duration};

use resources::{
    Resource, Spec,
    kinds::dataplane::Networking,
    naming::{Direction, SectionName},
};
use topology::{DestinationId, MeshSnapshot, Protocol};

use backend::Backends;
use timeouts::OutboundTimeouts;

pub use backend::Backend;
pub use effective::Effective;
pub use external::{External, ExternalAuthorities, ExternalTls, San, TlsVersion};
pub use known::{Meaning, Role, meanings};
pub use names::{AdminNames, InboundNames, Names, OutboundNames, PassthroughNames, SecretNames};
pub use route::{Action, Change, Route, Routing, Share, is_http};
pub use timeouts::{ClientTimeouts, ConnectionTimeouts, RequestTimeouts, Timeouts};

/// Why there is no plan at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot plan proxy {name:?}: there is no Dataplane of that name in mesh {mesh:?}; \
         create it or start kuma-dp with --dataplane-file"
    )]
    NoDataplane { mesh: Arc<str>, name: Arc<str> },
    #[error(
        "cannot plan proxy {name:?}: its Dataplane in mesh {mesh:?} has no networking; add networking.address"
    )]
    NoNetworking { mesh: Arc<str>, name: Arc<str> },
}

/// What the proxy told about itself when it connected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyTraits {
    pub mesh: Arc<str>,
    pub name: Arc<str>,
    /// `feature-unified-proxy-resources-and-stats-naming` or its later spelling.
    pub unified_naming: bool,
    pub reuse_port: bool,
    /// Redirected traffic is only for the ports of inbounds, once clients must prove who they are.
    pub strict_inbound_ports: bool,
    pub ipv6: bool,
    /// The port Envoy's admin interface is offered at through mutual TLS; 0 for none.
    pub admin_port: u16,
    /// Where Envoy's own admin interface listens: a pipe, or a loopback port.
    pub admin_target: AdminTarget,
    pub readiness_port: u16,
    /// The file of certificate authorities on the proxy's machine, if it has one.
    pub system_ca_path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AdminTarget {
    Pipe(String),
    Port(IpAddr, u16),
}

/// Everything the proxy must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyPlan {
    pub mesh: Arc<str>,
    pub inbounds: Vec<Inbound>,
    pub outbounds: Vec<Outbound>,
    /// Every destination that outbounds and their routes lead to, each once.
    pub backends: Vec<Backend>,
    pub passthrough: Vec<Passthrough>,
    pub admin: Option<Admin>,
    /// Names of the secrets that inbounds and outbounds use; `None` while mTLS is off.
    pub secrets: Option<SecretNames>,
    /// Which destination is meant somewhere depends on what others there are: it is asked for by labels,
    /// or by the name of a service that has one port.
    pub choosing: bool,
    /// What the Dataplane or a route asks for and cannot have, each with its reason.
    pub problems: Vec<String>,
}

impl ProxyPlan {
    /// Everything the proxy sends traffic to.
    pub fn destinations(&self) -> impl Iterator<Item = &DestinationId> {
        self.backends.iter().map(|backend| &backend.destination)
    }
}

/// Accept traffic for the application.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inbound {
    /// Which inbound of the Dataplane: the section of its KRI.
    pub section: SectionName,
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
    /// Whether addresses of IPv6 count as internal too.
    pub ipv6: bool,
    /// Reach the application from the loopback source 127.0.0.6 / ::6 (transparent proxying).
    pub from_loopback_source: bool,
    /// What tools find out about the listener: its tags, or its unified name when it has none.
    pub tags: BTreeMap<String, String>,
    /// `None` while mTLS is off: nobody can be told apart, so nobody is asked.
    pub permissions: Option<policy::Permissions>,
    pub timeouts: Timeouts,
    /// What certain clients get instead; the first that matches counts.
    pub clients: Vec<ClientTimeouts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerTls {
    Off,
    Strict,
    Permissive,
}

/// Offer the application a destination at an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outbound {
    pub destination: DestinationId,
    pub names: OutboundNames,
    pub address: IpAddr,
    pub port: u16,
    /// Further addresses of the same listener.
    pub also_at: Vec<(IpAddr, u16)>,
    pub bind: bool,
    pub reuse_port: bool,
    pub ipv6: bool,
    pub protocol: Protocol,
    pub routing: Routing,
    /// What tools find out about the listener: its tags, or its unified name.
    pub tags: BTreeMap<String, String>,
    /// How long a connection may rest whose requests are not looked at.
    pub idle: Duration,
    /// How long the headers of a request may take.
    pub request_headers: Duration,
}

/// Let traffic through that is not for the mesh (transparent proxying), or end it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Passthrough {
    pub names: PassthroughNames,
    pub address: IpAddr,
    pub port: u16,
    pub direction: Direction,
    /// Whether the traffic goes on from here; when not, it is accepted and ends.
    pub allowed: bool,
    pub reuse_port: bool,
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
    pub reuse_port: bool,
    /// Filled in by the caller, who holds the keys; without it only readiness is offered.
    pub tls: Option<Arc<AdminTls>>,
}

/// How the admin interface proves itself, and to whom it answers; all in PEM.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AdminTls {
    pub certificate: String,
    pub key: String,
    /// Signs the certificate of the control plane.
    pub authority: String,
}

impl fmt::Debug for AdminTls {
    /// Keys do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminTls").finish_non_exhaustive()
    }
}

/// What planning looks at, gathered once.
struct Context<'a> {
    snapshot: &'a MeshSnapshot,
    mesh: Option<&'a resources::kinds::mesh::Mesh>,
    traits: &'a ProxyTraits,
    dataplane: &'a Resource,
    networking: &'a Networking,
    names: Names,
    effective: &'a Effective<'a>,
    timeouts: &'a OutboundTimeouts<'a>,
}

/// Plans the proxy of the Dataplane named in `traits`.
pub fn for_proxy(snapshot: &MeshSnapshot, traits: &ProxyTraits) -> Result<ProxyPlan, Error> {
    let missing = || (traits.mesh.clone(), traits.name.clone());
    let found = snapshot.dataplanes.get(&traits.name).map(|dataplane| (dataplane, &dataplane.spec));
    let Some((dataplane, Spec::Dataplane(spec))) = found else {
        let (mesh, name) = missing();
        return Err(Error::NoDataplane { mesh, name });
    };
    let Some(networking) = &spec.networking else {
        let (mesh, name) = missing();
        return Err(Error::NoNetworking { mesh, name });
    };
    let mesh = match &snapshot.mesh.spec {
        Spec::Mesh(mesh) => Some(&**mesh),
        _ => None,
    };
    let names = Names::chosen(traits.unified_naming);
    let effective = &Effective::of(snapshot, dataplane);
    let timeouts = &OutboundTimeouts::of(effective);
    let context = Context { snapshot, mesh, traits, dataplane, networking, names, effective, timeouts };
    let mut problems = Vec::new();
    let inbounds = inbound::plan(&context, &mut problems);
    let mut backends = Backends::none(&context);
    let outbounds = outbound::plan(&context, &inbounds, &mut backends, &mut problems);
    Ok(ProxyPlan {
        mesh: snapshot.name.clone(),
        outbounds,
        choosing: backends.choosing,
        backends: backends.all(),
        passthrough: system::passthrough(&context, &mut problems),
        admin: system::admin(&context, &mut problems),
        secrets: snapshot.mtls.is_some().then(|| names.secrets(&snapshot.name)),
        inbounds,
        problems,
    })
}

/// A port number, or a problem that says whose it is.
fn port_of(value: u32, whose: &str, problems: &mut Vec<String>) -> Option<u16> {
    let port = u16::try_from(value).ok().filter(|port| *port != 0);
    if port.is_none() {
        problems.push(format!("{whose}: port {value} is not in the range 1 to 65535"));
    }
    port
}

/// An IP address, or a problem that says whose it is.
fn ip_of(value: &str, whose: &str, problems: &mut Vec<String>) -> Option<IpAddr> {
    let ip = value.parse().ok();
    if ip.is_none() {
        problems.push(format!("{whose}: address {value:?} is not an IP address"));
    }
    ip
}
