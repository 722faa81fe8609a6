//! Documents that the agent beside a proxy reads through the proxy, each at a path of its own.
//!
//! Kuma's agent reads the same documents, and knows by a checksum whether one is new: every byte counts.
//! Documents for one agent alone are in its proxy's own plan. The list of hostnames is the same for all
//! proxies of a class, and as long as the mesh is large, so it is in the plan of the class.

use std::{borrow::Cow, net::IpAddr};

use contract::dns::{DnsDocument, DnsRecord};
use resources::{
    kinds::dataplane::{Outbound, TransparentProxying},
    naming::{legacy, socket, system},
};
use sha2::{Digest, Sha256};
use topology::cidr::{self, Ipv6Twins};

use crate::{Class, Hostnames, NamingScheme, OwnContext, ProxyMetrics, ProxyTraits, names::AgentNames};

/// The part with hostnames, and its path.
const DNS: (&str, &str) = ("dns", "/dns");
/// Seconds for which an answer may be cached.
const TTL: i64 = 30;

/// Configuration that the agent reads from its proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentConfiguration {
    pub names: AgentNames,
    /// Socket of the proxy that the agent asks.
    pub socket: String,
    /// Documents for this agent alone.
    pub parts: Vec<AgentPart>,
    /// Hostnames, which are for all agents of the class, follow.
    pub with_hostnames: bool,
    pub ipv6: bool,
}

/// One document for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentPart {
    pub path: &'static str,
    pub route: String,
    /// The route that answers when the agent has it already; older names have none.
    pub not_modified: String,
    pub body: String,
    /// SHA-256 of the body.
    pub etag: String,
}

impl AgentPart {
    pub(crate) fn new(names: NamingScheme, (name, path): (&str, &'static str), body: String) -> AgentPart {
        let etag = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
        let (route, not_modified) = match names {
            NamingScheme::Unified => {
                (system::dynamic_config(name), system::dynamic_config_not_modified(name))
            }
            NamingScheme::Legacy => (legacy::dynamic_config(path), String::new()),
        };
        AgentPart { path, route, not_modified, body, etag }
    }
}

impl AgentConfiguration {
    /// `None` where there is nothing to read.
    pub(crate) fn of(context: &OwnContext<'_>, metrics: Option<&ProxyMetrics>) -> Option<AgentConfiguration> {
        let networking = context.networking;
        let with_hostnames =
            resolves(context.traits, networking.transparent_proxying.as_ref(), &networking.outbound);
        if metrics.is_none() && !with_hostnames {
            return None;
        }
        Some(AgentConfiguration {
            names: context.names.agent_configuration(),
            socket: socket::configuration(&context.traits.work_dir),
            parts: metrics.iter().map(|metrics| metrics.document.clone()).collect(),
            with_hostnames,
            ipv6: context.traits.ipv6,
        })
    }
}

/// True if the agent answers queries for hostnames of the mesh. It needs a socket to ask for them at, and
/// names must be of use: traffic is redirected, or the Dataplane gives a name to an address that the proxy
/// listens at.
pub(crate) fn resolves(
    traits: &ProxyTraits,
    redirect: Option<&TransparentProxying>,
    listed: &[Outbound],
) -> bool {
    let ProxyTraits { resolver, bind_outbounds, work_dir, .. } = traits;
    let of_use = || {
        let redirected = !bind_outbounds && redirect.is_some();
        redirected || listed.iter().any(|outbound| !outbound.hostname.is_empty())
    };
    *resolver && !work_dir.is_empty() && of_use()
}

/// The hostnames that an agent of the class answers queries for.
pub(crate) fn hostnames(class: &Class, names: NamingScheme, hostnames: &Hostnames) -> Option<AgentPart> {
    if !class.resolves {
        return None;
    }
    let records = hostnames.by_name.iter().map(|(name, hostname)| {
        let addresses = hostname.addresses.iter().flat_map(|address| spelled(*address, hostnames.twins));
        DnsRecord { name: Cow::Borrowed(name), ips: addresses.map(Cow::Owned).collect() }
    });
    let document = DnsDocument { records: records.collect(), ttl: Some(TTL) };
    // Text and numbers under string keys: writing them cannot fail.
    Some(AgentPart::new(names, DNS, serde_json::to_string(&document).unwrap_or_default()))
}

/// An address, and its twin for applications that ask for addresses of IPv6. Connections to a mapped twin are
/// connections of IPv4 to the address itself; listeners are at twins of their own. A twin is written without a dot:
/// Kuma's agent takes what has one for an address of IPv4.
pub fn spelled(address: IpAddr, twins: Ipv6Twins) -> impl Iterator<Item = String> {
    let twin = match address {
        IpAddr::V4(address) => twins.answer(address).map(cidr::spelled),
        IpAddr::V6(_) => None,
    };
    [address.to_string()].into_iter().chain(twin)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_twin_is_the_mapped_address_in_kumas_spelling() {
        for (address, expected) in [
            ("240.0.0.0", "::ffff:f000:0"),
            ("240.0.255.0", "::ffff:f000:ff00"),
            ("240.0.0.1", "::ffff:f000:1"),
        ] {
            let address: Ipv4Addr = address.parse().unwrap();
            assert_eq!(spelled(address.into(), Ipv6Twins::Mapped).last().as_deref(), Some(expected));
            assert_eq!(expected.parse::<Ipv6Addr>().unwrap(), address.to_ipv6_mapped());
        }
    }
}
