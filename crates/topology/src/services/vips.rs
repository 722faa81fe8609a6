//! Virtual addresses: one for every service, in order, never the same for two.
//!
//! Two control planes may give one address to two services at the same time. Both see it afterwards,
//! and both give the younger one another.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
    sync::Arc,
};

use jiff::Timestamp;
use resources::kinds::service_status::Vip;

/// The addresses of a mesh, by kind of service.
#[derive(Debug, Clone)]
pub struct Vips {
    pub services: Pool,
    pub external: Pool,
    pub multi_zone: Pool,
}

impl Default for Vips {
    fn default() -> Self {
        Vips { services: Pool::of(241), external: Pool::of(242), multi_zone: Pool::of(243) }
    }
}

impl Vips {
    /// Forgets who has which address, and keeps which were ever in use.
    pub fn release_all(&mut self) {
        for pool in [&mut self.services, &mut self.external, &mut self.multi_zone] {
            pool.holders.clear();
            pool.held.clear();
        }
    }
}

/// Those who have one address, the oldest first.
type Holders = BTreeSet<(Timestamp, Arc<str>)>;

/// The addresses of one `/8`; the network's own address is one of them.
#[derive(Debug, Clone)]
pub struct Pool {
    first_octet: u8,
    /// What was ever seen in use. Addresses of services that are gone are not given to others, as clients
    /// may have them in their caches.
    seen: BTreeSet<u32>,
    next: u32,
    holders: BTreeMap<Arc<str>, Holders>,
    /// By service: its address, and since when the service exists.
    held: HashMap<Arc<str>, (Arc<str>, Timestamp)>,
}

const SIZE: u32 = 1 << 24;

impl Pool {
    fn of(first_octet: u8) -> Pool {
        let (holders, held) = (BTreeMap::new(), HashMap::new());
        Pool { first_octet, seen: BTreeSet::new(), next: 0, holders, held }
    }

    fn offset(&self, vip: &str) -> Option<u32> {
        let ip: Ipv4Addr = vip.parse().ok()?;
        let [first, rest @ ..] = ip.octets();
        (first == self.first_octet).then(|| u32::from_be_bytes([0, rest[0], rest[1], rest[2]]))
    }

    /// Records the address a service has now, if any, and since when the service exists. Returns the
    /// others that have the address it had or has: one of them may keep it now, or not any more.
    pub fn hold(&mut self, name: &Arc<str>, address: Option<(&str, Timestamp)>) -> Vec<Arc<str>> {
        let before = self.held.get(name).map(|(vip, since)| (&**vip, *since));
        if before == address {
            return Vec::new();
        }
        let mut others = Vec::new();
        if let Some((vip, since)) = self.held.remove(name)
            && let Some(holders) = self.holders.get_mut(&vip)
        {
            holders.remove(&(since, name.clone()));
            others.extend(holders.iter().map(|(_, other)| other.clone()));
            if holders.is_empty() {
                self.holders.remove(&vip);
            }
        }
        if let Some((vip, since)) = address {
            self.seen.extend(self.offset(vip));
            let vip: Arc<str> = vip.into();
            let holders = self.holders.entry(vip.clone()).or_default();
            others.extend(holders.iter().map(|(_, other)| other.clone()));
            holders.insert((since, name.clone()));
            self.held.insert(name.clone(), (vip, since));
        }
        others
    }

    /// Whether the service has an address that no older one has.
    pub fn keeps(&self, name: &Arc<str>) -> bool {
        let held = self.held.get(name).and_then(|(vip, _)| self.holders.get(vip));
        held.and_then(BTreeSet::first).is_some_and(|(_, first)| first == name)
    }

    /// When every address was used once, those of former services are given out again. To be called before
    /// a round of [`Pool::allocate`].
    pub fn recycle(&mut self) {
        if self.seen.len() as u32 >= SIZE {
            self.seen = self.holders.keys().filter_map(|vip| self.offset(vip)).collect();
            self.next = 0;
        }
    }

    /// The next address; `None` when all are in use.
    pub fn allocate(&mut self) -> Option<Vip> {
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
