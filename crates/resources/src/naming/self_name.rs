//! `self_<descriptor>`: names of objects that belong to the proxy they are configured in.
//!
//! They hold neither the proxy's name nor its address, so that metrics of all proxies of a workload
//! fall into the same series. The spellings Kuma 2.14 ships are read as the same names.

use std::{fmt, str::FromStr};

use super::{Error, SectionName};

/// The address family of a passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    pub fn as_str(self) -> &'static str {
        match self {
            IpVersion::V4 => "ipv4",
            IpVersion::V6 => "ipv6",
        }
    }
}

/// Direction of traffic, seen from the proxy's workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Inbound,
    Outbound,
}

impl Direction {
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        }
    }
}

/// Every pair, so that the few passthrough names are compared instead of parsed.
pub(super) const PASSTHROUGHS: [(IpVersion, Direction); 4] = [
    (IpVersion::V4, Direction::Inbound),
    (IpVersion::V4, Direction::Outbound),
    (IpVersion::V6, Direction::Inbound),
    (IpVersion::V6, Direction::Outbound),
];

/// Prefixes of Kuma 2.14 before the section: of a sidecar, of an ingress and an egress, and of listeners of
/// Dataplanes that are either.
const SHIPPED: [&str; 5] = ["inbound_dp_", "inbound_zi_", "inbound_ze_", "zoneingress_dp_", "zoneegress_dp_"];

/// The name of an object inside one proxy: listener, cluster, route configuration and their statistics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SelfName {
    /// An inbound of the Dataplane, or the port of a zone proxy.
    Inbound(SectionName),
    /// Traffic the transparent proxy lets through to addresses the mesh does not know.
    Passthrough(IpVersion, Direction),
}

impl SelfName {
    /// The name as Kuma 2.14 spells it.
    pub fn shipped_alias(&self) -> String {
        match self {
            SelfName::Inbound(section) => format!("self_inbound_dp_{section}"),
            SelfName::Passthrough(ip, direction) => {
                format!("self_transparentproxy_passthrough_{}_{}", direction.as_str(), ip.as_str())
            }
        }
    }
}

impl fmt::Display for SelfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelfName::Inbound(section) => write!(f, "self_{section}"),
            SelfName::Passthrough(ip, direction) => {
                write!(f, "self_passthrough_{}_{}", ip.as_str(), direction.as_str())
            }
        }
    }
}

impl FromStr for SelfName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let descriptor = name.strip_prefix("self_").ok_or_else(|| Error::SelfName(name.to_owned()))?;
        let section = SHIPPED.iter().find_map(|prefix| descriptor.strip_prefix(prefix)).unwrap_or(descriptor);
        if !section.contains('_') {
            return section.parse().map(SelfName::Inbound);
        }
        PASSTHROUGHS
            .into_iter()
            .map(|(ip, direction)| SelfName::Passthrough(ip, direction))
            .find(|known| known.to_string() == name || known.shipped_alias() == name)
            .ok_or_else(|| Error::SelfName(name.to_owned()))
    }
}
