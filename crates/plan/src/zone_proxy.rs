//! Proxies that serve a zone: an ingress for what comes from other zones, an egress for what leaves the zone.
//!
//! The plan of such a proxy for one mesh is a [`ZonePlan`], which does not depend on the proxy's own address:
//! all proxies of a zone that are alike share it, and a change of one mesh is planned for that mesh alone.
//! Connections are distinguished by server name, which is all of TLS that a zone proxy reads, except where
//! the mesh ends.

mod filter_chains;
mod policies;
mod zone_plan;

use std::{net::IpAddr, sync::Arc};

use resources::{Kind, Resource, Spec, naming::choice};

use crate::{
    Admin, Code, Error, Finding, ListenerNames, NamingScheme, ProxyKind, ProxyTraits, ZoneProxyKind, ip_of,
    port_of, system,
};

pub use filter_chains::{FilterChain, TlsTermination, merged};
pub use zone_plan::{ZoneBackend, ZoneClass, ZonePlan, ZoneServer};

/// Part of a zone proxy's plan that no other proxy has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneProxy {
    /// `None` while it is not known where to listen.
    pub listener: Option<ZoneListener>,
    pub admin: Option<Admin>,
    pub findings: Vec<Finding>,
}

/// Listener of a zone proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneListener {
    pub names: ListenerNames,
    pub address: IpAddr,
    pub port: u16,
    pub reuse_port: bool,
    /// Answer while it leads nowhere.
    pub greeting: String,
}

impl ZoneProxy {
    /// `stored` is the ZoneIngress or ZoneEgress of the proxy.
    pub fn plan(stored: &Resource, zone: &str, traits: &ProxyTraits) -> Result<ZoneProxy, Error> {
        let (address, port) = match &stored.spec {
            Spec::ZoneIngress(spec) => spec.networking.as_ref().map(|it| (it.address.as_str(), it.port)),
            Spec::ZoneEgress(spec) => spec.networking.as_ref().map(|it| (it.address.as_str(), it.port)),
            _ => None,
        }
        .ok_or_else(|| Error::NoZoneProxy { kind: stored.kind(), name: traits.name.clone() })?;
        let mut findings = Vec::new();
        let names = NamingScheme::of(NamingScheme::choice_of_zone_proxy(stored, traits));
        let unknown = choice::unknown_value(&stored.labels);
        findings.extend(unknown.map(|text| Finding::new(Code::UnknownNaming, text)));
        let listener = listener(stored, (address, port), zone, (names, traits.reuse_port), &mut findings);
        let admin = system::admin(address, names, traits, &mut findings);
        findings.dedup();
        Ok(ZoneProxy { listener, admin, findings })
    }
}

fn listener(
    stored: &Resource,
    (address, port): (&str, u32),
    zone: &str,
    (names, reuse_port): (NamingScheme, bool),
    findings: &mut Vec<Finding>,
) -> Option<ZoneListener> {
    let address = ip_of(address, "networking", findings)?;
    let port = port_of(port, "networking", findings)?;
    let greeting = serde_json::json!({ "proxy": format!(".{}", stored.name()), "zone": zone });
    Some(ZoneListener {
        names: names.zone_listener(address, port),
        address,
        port,
        reuse_port,
        greeting: greeting.to_string(),
    })
}

impl ProxyKind {
    /// The kind of the resource that describes such a proxy.
    pub fn resource(self) -> Kind {
        match self {
            ProxyKind::Sidecar => Kind::Dataplane,
            ProxyKind::Zone(ZoneProxyKind::Ingress) => Kind::ZoneIngress,
            ProxyKind::Zone(ZoneProxyKind::Egress) => Kind::ZoneEgress,
        }
    }
}

/// Plans the parts that all zone proxies of a kind that are alike share.
impl ZoneClass {
    /// `stored` is the ZoneIngress or ZoneEgress of a proxy of the class.
    pub fn of(kind: ZoneProxyKind, stored: &Resource, traits: &ProxyTraits) -> ZoneClass {
        ZoneClass {
            kind,
            unified_naming: NamingScheme::choice_of_zone_proxy(stored, traits).unified,
            ipv6: traits.ipv6,
            system_ca_path: traits.system_ca_path.as_deref().map(Arc::from),
        }
    }
}
