//! Hostnames that VirtualOutbounds make out of the tags of inbounds, each with its virtual address.
//!
//! A hostname is rendered from one tuple of tag values; it leads to all inbounds that carry these tags.
//! Its address is the one that is stored: until then nothing can be sent to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
    sync::Arc,
};

use imbl::{OrdMap, OrdSet};
use resources::{kinds::tags::Tags, labels};

pub(crate) mod claims;
pub mod vips;

/// The most hostnames that VirtualOutbounds make in a mesh; those behind the first so many, by name, are left out.
pub const LIMIT: usize = 100_000;

/// The hostnames of a mesh.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VirtualHosts {
    pub by_name: OrdMap<Arc<str>, Arc<VirtualHost>>,
    /// What was asked for and is not there, because something else has that hostname and port.
    /// Of many the first few are listed.
    pub conflicts: OrdSet<HostConflict>,
    /// What policies make no hostnames of, by name of the policy.
    pub unrendered: OrdMap<Arc<str>, Unrendered>,
    /// How many hostnames there are beyond [`LIMIT`].
    pub left_out: usize,
}

/// Tags that a VirtualOutbound selects and makes no hostname of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrendered {
    /// How many different sets of tags.
    pub tuples: usize,
    /// The first of them, and what is wrong with it.
    pub tags: Arc<Tags>,
    pub reason: String,
}

impl fmt::Display for Unrendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags: Vec<String> = self.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        write!(f, "no hostname is made for inbounds with the tags {}", tags.join(" "))?;
        if self.tuples > 1 {
            write!(f, ", nor for {} others", self.tuples - 1)?;
        }
        write!(f, ": {}", self.reason)
    }
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

impl VirtualHosts {
    /// Replaces the conflicts about a hostname; says whether they are others now.
    pub(crate) fn replace_conflicts(&mut self, host: &Arc<str>, now: Vec<HostConflict>) -> bool {
        let none = VirtualPort { policy: Arc::default(), tags: Arc::default() };
        let first = HostConflict { hostname: host.clone(), port: 0, winner: none.clone(), loser: none };
        let before: Vec<HostConflict> = self
            .conflicts
            .range(first..)
            .take_while(|conflict| conflict.hostname == *host)
            .cloned()
            .collect();
        let now: BTreeSet<HostConflict> = now.into_iter().collect();
        if before.iter().eq(now.iter()) {
            return false;
        }
        for conflict in &before {
            self.conflicts.remove(conflict);
        }
        self.conflicts.extend(now);
        true
    }
}
