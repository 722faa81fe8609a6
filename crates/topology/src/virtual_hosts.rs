//! Hostnames that VirtualOutbounds make out of the tags of inbounds, each with its virtual address.
//!
//! A hostname is rendered from one tuple of tag values; it leads to all inbounds that carry these tags.
//! Its address is the one that is stored: until then nothing can be sent to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use imbl::{OrdMap, OrdSet};
use resources::{kinds::tags::Tags, labels};

/// The hostnames of a mesh.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VirtualHosts {
    pub by_name: OrdMap<Arc<str>, Arc<VirtualHost>>,
    /// What was asked for and is not there, because something else has that hostname and port.
    pub conflicts: OrdSet<HostConflict>,
}

/// One hostname.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualHost {
    pub hostname: Arc<str>,
    /// `None` until an address is stored.
    pub vip: Option<Ipv4Addr>,
    pub ports: BTreeMap<u16, VirtualPort>,
}

/// What is offered at one port of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VirtualPort {
    /// The name of the VirtualOutbound that it comes from.
    pub policy: Arc<str>,
    /// Where it leads, `kuma.io/service` among them.
    pub tags: Arc<Tags>,
}

/// Two claims on one port of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostConflict {
    pub hostname: Arc<str>,
    pub port: u16,
    pub winner: VirtualPort,
    pub loser: VirtualPort,
}

impl VirtualPort {
    pub fn service(&self) -> &str {
        self.tags.get(labels::SERVICE).map_or("", String::as_str)
    }
}

impl VirtualHost {
    /// The services that the hostname leads to.
    pub fn services(&self) -> BTreeSet<&str> {
        self.ports.values().map(VirtualPort::service).collect()
    }
}
