//! Virtual addresses: one for every service, in order, never the same for two.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

use resources::{
    Resource, Status,
    kinds::{mesh_external_service::MeshExternalServiceStatus, service_status::Vip},
};

use super::{MeshView, Work};

/// The addresses of a mesh that were ever seen in use. Addresses of services that are gone are not given
/// to others, as clients may have them in their caches.
#[derive(Debug, Clone)]
pub struct Vips {
    services: Pool,
    external: Pool,
}

impl Default for Vips {
    fn default() -> Self {
        Vips { services: Pool::of(241), external: Pool::of(242) }
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

/// Gives an address to every service without one. Returns the MeshExternalServices that got one.
///
/// Two control planes may give one address to two services at the same time. Both see it afterwards,
/// and both give the younger one another.
pub fn assign<'a>(
    view: &MeshView<'a>,
    services: &mut BTreeMap<Arc<str>, Work<'_>>,
    vips: &mut Vips,
) -> Vec<(&'a Resource, MeshExternalServiceStatus)> {
    let mut works: Vec<(&Arc<str>, &mut Work<'_>)> = services.iter_mut().collect();
    works.sort_by_key(|(name, work)| {
        let created = work.existing.map(|existing| existing.created);
        (created.is_none(), created, (*name).clone())
    });
    let holders = works.into_iter().map(|(_, work)| {
        let vip = work.status.vips.first().map(|vip| vip.ip.clone());
        (work, vip)
    });
    for work in vips.services.keep(holders) {
        work.status.vips = vips.services.allocate().into_iter().collect();
    }

    let mut external: Vec<&Resource> = view.external_services.iter().map(|r| &**r).collect();
    external.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
    let holders = external.into_iter().map(|resource| {
        let status = match &resource.status {
            Some(Status::MeshExternalService(status)) => MeshExternalServiceStatus::clone(status),
            _ => MeshExternalServiceStatus::default(),
        };
        let vip = Some(status.vip.ip.clone()).filter(|ip| !ip.is_empty());
        ((resource, status), vip)
    });
    let without = vips.external.keep(holders);
    let give = |(resource, status)| {
        let vip = vips.external.allocate()?;
        Some((resource, MeshExternalServiceStatus { vip, ..status }))
    };
    without.into_iter().filter_map(give).collect()
}
