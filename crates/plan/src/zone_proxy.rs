//! Proxies that serve a zone: an ingress for what comes from other zones, an egress for what leaves the zone.
//!
//! What such a proxy does for one mesh is a [`Passage`], which does not depend on the proxy's own address: all
//! proxies of a zone that are alike share it, and a change of one mesh is planned for that mesh alone. Connections are
//! distinguished by server name, which is all of TLS that a zone proxy reads, except where the mesh ends.

mod lanes;
mod passage;
mod policies;

use std::{net::IpAddr, sync::Arc};

use resources::{Kind, Resource, Spec};

use crate::{Admin, Error, ListenerNames, Names, Problem, ProxyKind, ProxyTraits, ip_of, port_of, system};

pub use lanes::{Lane, LaneEnd, merged};
pub use passage::{Passage, ZoneBackend, ZoneClass, ZoneImpact, ZoneServer};

/// What a zone proxy does that no other does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneProxy {
    /// `None` while it is not known where to listen.
    pub listener: Option<ZoneListener>,
    pub admin: Option<Admin>,
    pub problems: Vec<Problem>,
}

/// Where a zone proxy takes connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneListener {
    pub names: ListenerNames,
    pub address: IpAddr,
    pub port: u16,
    pub reuse_port: bool,
    /// What it answers while it leads nowhere.
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
        let mut problems = Vec::new();
        let names = Names::chosen(traits.unified_naming);
        let listener = listener(stored, (address, port), zone, traits, &mut problems);
        let admin = system::admin(address, names, traits, &mut problems);
        problems.dedup();
        Ok(ZoneProxy { listener, admin, problems })
    }
}

fn listener(
    stored: &Resource,
    (address, port): (&str, u32),
    zone: &str,
    traits: &ProxyTraits,
    problems: &mut Vec<Problem>,
) -> Option<ZoneListener> {
    let address = ip_of(address, "networking", problems)?;
    let port = port_of(port, "networking", problems)?;
    let greeting = serde_json::json!({ "proxy": format!(".{}", stored.name()), "zone": zone });
    Some(ZoneListener {
        names: Names::chosen(traits.unified_naming).zone_listener(address, port),
        address,
        port,
        reuse_port: traits.reuse_port,
        greeting: greeting.to_string(),
    })
}

impl ProxyKind {
    /// The kind of the resource that describes such a proxy.
    pub fn resource(self) -> Kind {
        match self {
            ProxyKind::Sidecar => Kind::Dataplane,
            ProxyKind::Ingress => Kind::ZoneIngress,
            ProxyKind::Egress => Kind::ZoneEgress,
        }
    }
}

/// What all zone proxies of a kind that are alike do.
impl ZoneClass {
    pub fn of(traits: &ProxyTraits) -> ZoneClass {
        ZoneClass {
            kind: traits.kind,
            unified_naming: traits.unified_naming,
            ipv6: traits.ipv6,
            system_ca_path: traits.system_ca_path.as_deref().map(Arc::from),
        }
    }
}
