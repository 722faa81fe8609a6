//! Virtual addresses: one for every service, in order, never the same for two.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Key, Resource, Status,
    kinds::{mesh_external_service::MeshExternalServiceStatus, service_status::Vip},
};

use super::{MeshView, Work, multi_zone};

/// The addresses of a mesh that were ever seen in use. Addresses of services that are gone are not given
/// to others, as clients may have them in their caches.
#[derive(Debug, Clone)]
pub struct Vips {
    services: Pool,
    external: Pool,
    multi_zone: Pool,
}

impl Default for Vips {
    fn default() -> Self {
        Vips { services: Pool::of(241), external: Pool::of(242), multi_zone: Pool::of(243) }
    }
}

/// The addresses of one `/8`; the network's own address is one of them.
#[derive(Debug, Clone)]
struct Pool {
    first_octet: u8,
    seen: BTreeSet<u32>,
    next: u32,
}

const SIZE: u32 = 1 << 24;

impl Pool {
    fn of(first_octet: u8) -> Pool {
        Pool { first_octet, seen: BTreeSet::new(), next: 0 }
    }

    fn offset(&self, vip: &str) -> Option<u32> {
        let ip: Ipv4Addr = vip.parse().ok()?;
        let [first, rest @ ..] = ip.octets();
        (first == self.first_octet).then(|| u32::from_be_bytes([0, rest[0], rest[1], rest[2]]))
    }

    /// Remembers the addresses in use; returns those of services that keep none, because they have
    /// none or because a service before them has the same.
    fn keep<T>(&mut self, holders: impl Iterator<Item = (T, Option<String>)>) -> Vec<T> {
        let mut used: BTreeSet<String> = BTreeSet::new();
        let mut without = Vec::new();
        for (holder, vip) in holders {
            match vip {
                Some(vip) if used.insert(vip.clone()) => self.seen.extend(self.offset(&vip)),
                _ => without.push(holder),
            }
        }
        if self.seen.len() as u32 >= SIZE {
            // Every address was used once: from now on those of former services are given out again.
            self.seen = used.iter().filter_map(|vip| self.offset(vip)).collect();
            self.next = 0;
        }
        without
    }

    /// Gives an address to whoever has none, or has one that another before it has.
    fn give<'a>(&mut self, holders: impl Iterator<Item = &'a mut Vec<Vip>>) {
        let holders = holders.map(|vips| {
            let first = vips.first().map(|vip| vip.ip.clone());
            (vips, first)
        });
        for vips in self.keep(holders) {
            *vips = self.allocate().into_iter().collect();
        }
    }

    /// The next address; `None` when all are in use.
    fn allocate(&mut self) -> Option<Vip> {
        while self.seen.contains(&self.next) {
            self.next += 1;
        }
        if self.next >= SIZE {
            return None;
        }
        self.seen.insert(self.next);
        let [_, a, b, c] = self.next.to_be_bytes();
        Some(Vip { ip: Ipv4Addr::new(self.first_octet, a, b, c).to_string() })
    }
}

/// Two control planes may give one address to two services at the same time. Both see it afterwards,
/// and both give the younger one another.
impl Vips {
    /// Gives an address to every MeshService and MeshMultiZoneService without one.
    pub(super) fn assign(
        &mut self,
        services: &mut BTreeMap<Arc<str>, Work<'_>>,
        multi_zone: &mut [multi_zone::Observed<'_>],
    ) {
        let mut works: Vec<(&Arc<str>, &mut Work<'_>)> = services.iter_mut().collect();
        works.sort_by_key(|(name, work)| {
            let created = work.existing.map(|existing| existing.created);
            (created.is_none(), created, (*name).clone())
        });
        self.services.give(works.into_iter().map(|(_, work)| &mut work.status.vips));

        let mut observed: Vec<&mut multi_zone::Observed<'_>> = multi_zone.iter_mut().collect();
        observed.sort_by(|(a, _), (b, _)| age(a).cmp(&age(b)));
        self.multi_zone.give(observed.into_iter().map(|(_, status)| &mut status.vips));
    }

    /// The MeshExternalServices that get an address now.
    pub(super) fn assign_external<'a>(
        &mut self,
        view: &MeshView<'a>,
    ) -> Vec<(&'a Resource, MeshExternalServiceStatus)> {
        let mut external: Vec<&Resource> = view.external_services.iter().map(|r| &**r).collect();
        external.sort_by(|a, b| age(a).cmp(&age(b)));
        let holders = external.into_iter().map(|resource| {
            let status = match &resource.status {
                Some(Status::MeshExternalService(status)) => MeshExternalServiceStatus::clone(status),
                _ => MeshExternalServiceStatus::default(),
            };
            let vip = Some(status.vip.ip.clone()).filter(|ip| !ip.is_empty());
            ((resource, status), vip)
        });
        let without = self.external.keep(holders);
        let give = |(resource, status)| {
            let vip = self.external.allocate()?;
            Some((resource, MeshExternalServiceStatus { vip, ..status }))
        };
        without.into_iter().filter_map(give).collect()
    }
}

/// The order in which services get addresses: the oldest first.
fn age(resource: &Resource) -> (Timestamp, &Key) {
    (resource.created, &resource.key)
}
