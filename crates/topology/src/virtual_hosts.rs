//! Hostnames that VirtualOutbounds create out of the tags of inbounds, and those that a mesh gives its services, each
//! with its virtual address.
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
use resources::{Key, kinds::tags::Tags, labels};

use crate::{
    DestinationId,
    lists::{Lists, add_to, remove_from},
};

pub(crate) mod claims;
pub(crate) mod of_services;
pub mod vips;

/// The most hostnames that VirtualOutbounds make in a mesh; those behind the first so many, by name, are left out.
pub const LIMIT: usize = 100_000;

/// The hostnames of a mesh.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VirtualHosts {
    pub by_name: OrdMap<Arc<str>, Arc<VirtualHost>>,
    /// The hostnames that lead to a service.
    by_service: Lists<Arc<str>, Arc<str>>,
    /// Claims that lost, because something else has that hostname and port. Of many the first few are listed.
    pub conflicts: OrdSet<HostConflict>,
    /// By hostname, the ports that services have in their statuses, and VirtualOutbounds take.
    pub taken_over: OrdMap<Arc<str>, BTreeSet<TakenOver>>,
    /// Failures of policies to make hostnames, by name of the policy.
    pub unrendered: OrdMap<Arc<str>, UnrenderedTags>,
    /// Number of sets of tags that make hostnames beyond [`LIMIT`]: each as often as a policy selects it.
    pub left_out: usize,
}

/// Tags that a VirtualOutbound selects and makes no hostname of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrenderedTags {
    /// Number of different sets of tags.
    pub tuples: usize,
    /// The first of them; `reason` says what is wrong with it.
    pub tags: Arc<Tags>,
    pub reason: String,
}

impl fmt::Display for UnrenderedTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags: Vec<String> = self.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        write!(f, "no hostname is created for inbounds with the tags {}", tags.join(" "))?;
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

/// Destination offered at one port of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VirtualPort {
    /// The name of the VirtualOutbound that it comes from; `None` for what the mesh itself offers.
    pub policy: Option<Arc<str>>,
    /// Tags that it leads to, `kuma.io/service` among them.
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

/// A port of a hostname of a service that a VirtualOutbound takes: it is the user's own word, and wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TakenOver {
    pub hostname: Arc<str>,
    pub port: u16,
    pub winner: VirtualPort,
    pub service: Key,
    pub loser: DestinationId,
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
    /// Offers a hostname, in place of what was offered by that name.
    pub fn insert(&mut self, host: VirtualHost) {
        self.remove(&host.hostname.clone());
        for service in host.services() {
            add_to(&mut self.by_service, service.into(), host.hostname.clone());
        }
        self.by_name.insert(host.hostname.clone(), Arc::new(host));
    }

    pub fn remove(&mut self, hostname: &Arc<str>) {
        let Some(host) = self.by_name.remove(hostname) else { return };
        for service in host.services() {
            remove_from(&mut self.by_service, &service.into(), hostname);
        }
    }

    /// The hostnames that lead to any of these services, sorted. Looks at no others.
    pub fn of_services<'s>(&'s self, services: &BTreeSet<&str>) -> Vec<&'s Arc<VirtualHost>> {
        let lists = services.iter().filter_map(|service| self.by_service.get(*service));
        let names: BTreeSet<&Arc<str>> = lists.flatten().collect();
        names.into_iter().filter_map(|name| self.by_name.get(name)).collect()
    }

    /// Returns a message when there are more hostnames than [`LIMIT`].
    pub fn too_many(&self) -> Option<String> {
        let left_out = self.left_out;
        (left_out > 0).then(|| {
            format!(
                "VirtualOutbounds create more than {LIMIT} hostnames; those after the first {LIMIT} by \
                name, from {left_out} sets of tags, are left out"
            )
        })
    }

    /// Replaces what is taken over of a hostname.
    pub(crate) fn replace_taken_over(&mut self, host: &Arc<str>, now: BTreeSet<TakenOver>) {
        if now.is_empty() {
            self.taken_over.remove(host)
        } else {
            self.taken_over.insert(host.clone(), now)
        };
    }

    /// Replaces the conflicts about a hostname; says whether they are others now.
    pub(crate) fn replace_conflicts(&mut self, host: &Arc<str>, now: Vec<HostConflict>) -> bool {
        let none = VirtualPort { policy: None, tags: Arc::default() };
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
