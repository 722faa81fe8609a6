//! Addresses of hostnames, found by hashing, so that other hostnames matter only when two collide.
//!
//! The range is cut into regions, one for each value of a byte of the hash; a hostname gets an address of its
//! own region. The addresses given in a region are stored in one resource (a shard), so two control planes on
//! one store cannot give one address to two hostnames, or two addresses to one: the second of them finds its
//! version outdated.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cidr::Ipv4Range;

/// Number of regions.
pub const SHARDS: u16 = 256;
/// The fewest addresses that regions of some use can be made of.
const LEAST: u64 = 1 << 16;
/// Address that nothing can be sent to.
const BROADCAST: u64 = 0xffff_ffff;

/// The addresses that hostnames may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// First address and how many, in order.
    spans: Vec<(u64, u64)>,
}

/// A range that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooSmall {
    range: Ipv4Range,
    left: u64,
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooSmall { range, left } = self;
        write!(
            f,
            "{range} has {left} addresses without those of services and the broadcast address, and at least {LEAST} \
             are needed; the default is 240.0.0.0/8"
        )
    }
}

impl std::error::Error for TooSmall {}

impl Pool {
    /// The addresses of a range that are in none of the others.
    pub fn new(range: Ipv4Range, others: &[Ipv4Range]) -> Result<Pool, TooSmall> {
        let first = |range: &Ipv4Range| range.address(0).map_or(0, |first| u64::from(u32::from(first)));
        let mut taken: Vec<(u64, u64)> = others.iter().map(|other| (first(other), other.size())).collect();
        taken.push((BROADCAST, 1));
        taken.sort_unstable();
        let mut at = first(&range);
        let end = first(&range) + range.size();
        let mut spans = Vec::new();
        for (start, size) in taken {
            if start > at && at < end {
                spans.push((at, start.min(end) - at));
            }
            at = at.max(start + size);
        }
        if at < end {
            spans.push((at, end - at));
        }
        let pool = Pool { spans };
        let left = pool.size();
        if left < LEAST { Err(TooSmall { range, left }) } else { Ok(pool) }
    }

    pub fn size(&self) -> u64 {
        self.spans.iter().map(|(_, size)| size).sum()
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let address = u64::from(u32::from(address));
        self.spans.iter().any(|(first, size)| (*first..first + size).contains(&address))
    }

    fn address(&self, mut offset: u64) -> Option<Ipv4Addr> {
        for (first, size) in &self.spans {
            if offset < *size {
                return u32::try_from(first + offset).ok().map(Ipv4Addr::from);
            }
            offset -= size;
        }
        None
    }

    /// The addresses that a hostname may have, that of its hash first.
    fn candidates(&self, host: &str) -> impl Iterator<Item = Ipv4Addr> {
        let size = self.size() / u64::from(SHARDS);
        let hash = hash(host);
        let start = u64::from(shard_of(host)) * size;
        (0..size).filter_map(move |i| self.address(start + (hash % size + i) % size))
    }
}

/// The shard that a hostname belongs to.
pub fn shard_of(host: &str) -> u8 {
    hash(host).to_be_bytes()[0]
}

/// FNV-1a with a finishing step that lets every byte count everywhere. Addresses are stored, so this never changes.
fn hash(host: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in host.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The addresses of a shard by hostname, as they are stored.
pub type Shard = BTreeMap<Arc<str>, VipEntry>;

/// The address of a hostname.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VipEntry {
    pub address: Ipv4Addr,
    /// Since when no policy makes the hostname. No other hostname gets the address until some time later: clients may
    /// have it in their caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Timestamp>,
}

/// Input of an allocation, except the shard itself.
pub struct ShardContext<'a> {
    pub pool: &'a Pool,
    pub quarantine: Duration,
    /// Addresses that hostnames have in a store that Kuma used.
    pub imported: &'a BTreeMap<Arc<str>, Ipv4Addr>,
    /// Returns the hostname that has an address, in any shard or by import.
    pub holder: &'a dyn Fn(Ipv4Addr) -> Option<Arc<str>>,
}

/// Desired shard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocation {
    pub shard: Shard,
    /// Hostnames for which there is no address.
    pub without: BTreeSet<Arc<str>>,
    /// Time when something is to be done though nothing changes.
    pub look_again: Option<Timestamp>,
}

/// Computes the shard for these wanted hostnames. Pure: the same inputs give the same shard on every control
/// plane.
pub fn allocate(
    previous: &Shard,
    wanted: &BTreeSet<Arc<str>>,
    known: &ShardContext<'_>,
    now: Timestamp,
) -> Allocation {
    let mut out = Allocation::default();
    for (host, entry) in previous {
        let released_at = if wanted.contains(host) { None } else { entry.released_at.or(Some(now)) };
        // Without an end that can be computed, there is none.
        let until = released_at.and_then(|at| at.checked_add(known.quarantine).ok());
        let over = released_at.is_some() && until.is_some_and(|until| until <= now);
        if known.pool.contains(entry.address) && !over {
            out.shard.insert(host.clone(), VipEntry { address: entry.address, released_at });
            out.look_again = out.look_again.into_iter().chain(until).min();
        }
    }
    let mut used: BTreeSet<Ipv4Addr> = out.shard.values().map(|entry| entry.address).collect();
    for host in wanted {
        if out.shard.contains_key(host) {
            continue;
        }
        let free = |address: &Ipv4Addr| {
            !used.contains(address) && (known.holder)(*address).is_none_or(|holder| holder == *host)
        };
        let imported = known.imported.get(host).copied().filter(|address| known.pool.contains(*address));
        match imported.filter(free).or_else(|| known.pool.candidates(host).find(free)) {
            Some(address) => {
                used.insert(address);
                out.shard.insert(host.clone(), VipEntry { address, released_at: None });
            }
            None => drop(out.without.insert(host.clone())),
        }
    }
    out
}

/// Content of a Config resource of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VipRecord {
    Shard(u8),
    /// The addresses that Kuma gave.
    ByKuma,
}

const PREFIX: &str = "kuma-";
const SUFFIX: &str = "-dns-vips";

/// The name of the Config resource that holds a shard.
pub fn config_name(mesh: &str, shard: u8) -> String {
    format!("{PREFIX}{mesh}{SUFFIX}-{shard:02x}")
}

/// The name of the Config resource that holds what Kuma gave.
pub fn name_of_kuma(mesh: &str) -> String {
    format!("{PREFIX}{mesh}{SUFFIX}")
}

/// Returns the mesh that a Config resource is about, and its content.
pub fn of_config(name: &str) -> Option<(&str, VipRecord)> {
    let rest = name.strip_prefix(PREFIX)?;
    if let Some(mesh) = rest.strip_suffix(SUFFIX) {
        return Some((mesh, VipRecord::ByKuma));
    }
    let (rest, digits) = rest.rsplit_once('-')?;
    let shard = u8::from_str_radix(digits, 16).ok().filter(|shard| format!("{shard:02x}") == digits)?;
    Some((rest.strip_suffix(SUFFIX)?, VipRecord::Shard(shard)))
}

/// Reads a shard; one that cannot be read is empty.
pub fn read(config: &str) -> Shard {
    serde_json::from_str(config).unwrap_or_default()
}

/// A shard as it is stored.
pub fn written(shard: &Shard) -> String {
    serde_json::to_string(shard).unwrap_or_default()
}

/// The addresses that Kuma gave: to names of VirtualOutbounds, and to services, which it calls `<service>.<domain>`.
pub fn read_of_kuma(config: &str, domain: &str) -> BTreeMap<Arc<str>, Ipv4Addr> {
    #[derive(Deserialize)]
    struct Given {
        address: String,
    }
    let given: BTreeMap<String, Given> = serde_json::from_str(config).unwrap_or_default();
    let of = |kind: &str, suffix: &str| -> Vec<(Arc<str>, Ipv4Addr)> {
        let each = given.iter().filter_map(|(key, given)| {
            let name = key.strip_prefix(kind)?;
            Some((format!("{name}{suffix}").to_ascii_lowercase().into(), given.address.parse().ok()?))
        });
        each.collect()
    };
    of("0:", &format!(".{domain}")).into_iter().chain(of("2:", "")).collect()
}

#[cfg(test)]
mod tests;
