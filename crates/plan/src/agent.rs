//! Documents that the agent beside a proxy reads through the proxy, each at a path of its own.
//!
//! Kuma's agent reads the same documents, and knows by a checksum whether one is new: every byte counts. What is for
//! one agent alone is in its proxy's own plan. Which hostnames there are is the same for all proxies of a class, and
//! as long as the mesh is large, so it is in the plan of the class.

use std::net::IpAddr;

use resources::{
    kinds::dataplane::{Outbound, TransparentProxying},
    naming::{legacy, socket, system},
};
use serde::Serialize;
use sha2::{Digest, Sha256};
use topology::cidr;

use crate::{Class, Hostnames, Metrics, Names, OwnContext, ProxyTraits, names::AgentNames};

/// The part with hostnames, and its path.
const DNS: (&str, &str) = ("dns", "/dns");
/// How long an answer may be remembered, in seconds.
const TTL: u32 = 30;

/// What the agent reads from its proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentConfiguration {
    pub names: AgentNames,
    /// Where the agent asks.
    pub socket: String,
    /// What is for this agent alone.
    pub parts: Vec<AgentPart>,
    /// Whether hostnames, which are for all agents of the class, follow.
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
    pub(crate) fn new(names: Names, (name, path): (&str, &'static str), body: String) -> AgentPart {
        let etag = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
        let (route, not_modified) = match names {
            Names::Unified => (system::dynamic_config(name), system::dynamic_config_not_modified(name)),
            Names::Legacy => (legacy::dynamic_config(path), String::new()),
        };
        AgentPart { path, route, not_modified, body, etag }
    }
}

impl AgentConfiguration {
    /// `None` where there is nothing to read.
    pub(crate) fn of(context: &OwnContext<'_>, metrics: Option<&Metrics>) -> Option<AgentConfiguration> {
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

/// Whether the agent answers queries for hostnames of the mesh. It must know where to ask for them, and a name is of use
/// where traffic is redirected, or where the Dataplane gives it to an address that the proxy listens at.
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

#[derive(Serialize)]
struct Document<'a> {
    records: Vec<Record<'a>>,
    ttl: u32,
}

#[derive(Serialize)]
struct Record<'a> {
    name: &'a str,
    ips: Vec<String>,
}

/// The hostnames that an agent of the class answers queries for.
pub(crate) fn hostnames(class: &Class, names: Names, hostnames: &Hostnames) -> Option<AgentPart> {
    if !class.resolves {
        return None;
    }
    let records = hostnames.by_name.iter().map(|(name, hostname)| Record {
        name,
        ips: hostname.addresses.iter().flat_map(|address| spelled(*address, hostnames.ipv6)).collect(),
    });
    let document = Document { records: records.collect(), ttl: TTL };
    // Text and numbers under string keys: writing them cannot fail.
    Some(AgentPart::new(names, DNS, serde_json::to_string(&document).unwrap_or_default()))
}

/// An address, and its twin for applications that ask for addresses of IPv6. Connections to a twin are connections of
/// IPv4 to the address itself, so it is offered wherever that is. It is written without a dot: Kuma's agent takes what
/// has one for an address of IPv4.
pub fn spelled(address: IpAddr, with_twin: bool) -> impl Iterator<Item = String> {
    let twin = match address {
        IpAddr::V4(address) if with_twin => Some(cidr::spelled(cidr::ipv6_twin(address))),
        _ => None,
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
            assert_eq!(spelled(address.into(), true).last().as_deref(), Some(expected));
            assert_eq!(expected.parse::<Ipv6Addr>().unwrap(), address.to_ipv6_mapped());
        }
    }
}
