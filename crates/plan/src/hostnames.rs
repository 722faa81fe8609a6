//! Hostnames that the application behind a proxy can call, and where each of their ports leads.
//!
//! A hostname has one owner, because a query names no port. Hostnames that the Dataplane itself lists come
//! first, and nothing else is offered under them. Services bring theirs in their status. A VirtualOutbound
//! takes over a hostname of a service and keeps what the service offers at other ports, so that only what is
//! claimed twice is lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use resources::{Key, naming::Kri};
use topology::{
    Destination, DestinationId, HostConflict, MeshSnapshot, TakenOver, VirtualHost, VirtualHosts,
    VirtualPort, cidr::Ipv6Twins,
};

/// Hostnames that applications can call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Hostnames {
    pub by_name: BTreeMap<Arc<str>, Hostname>,
    /// Claims that lost, sorted.
    pub conflicts: BTreeSet<HostnameConflict>,
    /// Answers to queries for addresses of IPv6.
    pub twins: Ipv6Twins,
}

/// One hostname.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hostname {
    /// The virtual addresses it stands for.
    pub addresses: BTreeSet<IpAddr>,
    pub ports: BTreeMap<u16, HostnamePort>,
}

/// Destination offered at one port of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostnamePort {
    pub origin: HostnameOrigin,
    pub destination: DestinationId,
}

/// Origin of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostnameOrigin {
    /// An outbound that the Dataplane lists.
    Listed,
    /// The VirtualOutbound of this name.
    VirtualOutbound(Arc<str>),
    /// The mesh, which names services that are called by tags.
    Mesh,
    /// The status of this service.
    Service(Key),
}

/// Two claims on one port of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostnameConflict {
    pub hostname: Arc<str>,
    pub port: u16,
    pub winner: HostnamePort,
    pub loser: HostnamePort,
}

impl From<&HostConflict> for HostnameConflict {
    fn from(conflict: &HostConflict) -> HostnameConflict {
        HostnameConflict {
            hostname: conflict.hostname.clone(),
            port: conflict.port,
            winner: HostnamePort::of_virtual(&conflict.winner),
            loser: HostnamePort::of_virtual(&conflict.loser),
        }
    }
}

impl From<&TakenOver> for HostnameConflict {
    fn from(taken: &TakenOver) -> HostnameConflict {
        HostnameConflict {
            hostname: taken.hostname.clone(),
            port: taken.port,
            winner: HostnamePort::of_virtual(&taken.winner),
            loser: HostnamePort {
                origin: HostnameOrigin::Service(taken.service.clone()),
                destination: taken.loser.clone(),
            },
        }
    }
}

impl HostnameConflict {
    /// All of a mesh, whether a proxy is offered both or not.
    pub fn all(hosts: &VirtualHosts) -> impl Iterator<Item = HostnameConflict> {
        let taken_over = hosts.taken_over.values().flatten().map(HostnameConflict::from);
        hosts.conflicts.iter().map(HostnameConflict::from).chain(taken_over)
    }

    /// The service that lost, if it is one.
    pub fn losing_service(&self) -> Option<Kri> {
        match &self.loser.destination {
            DestinationId::Port(kri) => Some(kri.without_section()),
            DestinationId::Tags(_) => None,
        }
    }
}

impl fmt::Display for HostnameConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostnameConflict { hostname, port, winner, loser } = self;
        write!(f, "{hostname}:{port} is claimed by {winner} and by {loser}; the first one has it")
    }
}

impl fmt::Display for HostnamePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            HostnameOrigin::Listed => write!(f, "an outbound that the Dataplane lists")?,
            HostnameOrigin::VirtualOutbound(name) => write!(f, "VirtualOutbound {name:?}")?,
            HostnameOrigin::Mesh => write!(f, "the mesh, which names services by their tags,")?,
            HostnameOrigin::Service(key) => write!(f, "{} {:?}", key.kind.name(), key.name)?,
        }
        if let DestinationId::Tags(tags) = &self.destination {
            let tags: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            write!(f, " for {}", tags.join(" "))?;
        }
        Ok(())
    }
}

/// Returns claims of a VirtualOutbound that something else makes, too, each with its winner. Looks at all
/// conflicts of the mesh: for the answer to one write, not for every change.
pub fn claimed_twice(snapshot: &MeshSnapshot, policy: &str) -> BTreeSet<HostnameConflict> {
    let of_policy = |port: &HostnamePort| match &port.origin {
        HostnameOrigin::VirtualOutbound(name) => &**name == policy,
        HostnameOrigin::Mesh | HostnameOrigin::Service(_) | HostnameOrigin::Listed => false,
    };
    let all = HostnameConflict::all(&snapshot.virtual_hosts);
    all.filter(|conflict| of_policy(&conflict.winner) || of_policy(&conflict.loser)).collect()
}

impl HostnamePort {
    pub fn of_virtual(port: &VirtualPort) -> HostnamePort {
        HostnamePort {
            origin: port.policy.clone().map_or(HostnameOrigin::Mesh, HostnameOrigin::VirtualOutbound),
            destination: DestinationId::Tags(port.tags.clone()),
        }
    }
}

impl Hostnames {
    /// The Dataplane gives a hostname to one of its outbounds.
    pub(crate) fn add_listed(&mut self, hostname: &str, address: IpAddr, port: u16, to: &DestinationId) {
        let hostname: Arc<str> = hostname.into();
        let offered = HostnamePort { origin: HostnameOrigin::Listed, destination: to.clone() };
        let known = self
            .by_name
            .entry(hostname.clone())
            .or_insert_with(|| Hostname { addresses: BTreeSet::new(), ports: BTreeMap::new() });
        let winner = known.ports.entry(port).or_insert_with(|| offered.clone());
        if *winner == offered {
            known.addresses.insert(address);
        } else {
            // The same port at an address of the other version of IP leads elsewhere.
            let winner = winner.clone();
            self.conflicts.insert(HostnameConflict { hostname, port, winner, loser: offered });
        }
    }

    /// Says whether these claims are lost, because the Dataplane lists the hostname.
    pub(crate) fn lost_to_listed(&mut self, hostname: &str, claims: &[(u16, HostnamePort)]) -> bool {
        let Some(known) = self.by_name.get(hostname) else { return false };
        let Some(owner) = known.ports.values().find(|owner| owner.origin == HostnameOrigin::Listed) else {
            return false;
        };
        for (port, loser) in claims {
            let winner = known.ports.get(port).unwrap_or(owner);
            if winner.destination != loser.destination {
                let hostname = hostname.into();
                let winner = winner.clone();
                let loser = loser.clone();
                self.conflicts.insert(HostnameConflict { hostname, port: *port, winner, loser });
            }
        }
        true
    }

    /// A port of a service is offered at these addresses.
    pub(crate) fn add_service(&mut self, destination: &Destination, port: u16, addresses: &BTreeSet<IpAddr>) {
        let Some(service) = destination.service.as_ref().filter(|_| !addresses.is_empty()) else { return };
        let offered = HostnamePort {
            origin: HostnameOrigin::Service(service.clone()),
            destination: destination.id.clone(),
        };
        for hostname in &destination.hostnames {
            if self.lost_to_listed(hostname, &[(port, offered.clone())]) {
                continue;
            }
            let Some(known) = self.by_name.get_mut(hostname.as_str()) else {
                let ports = BTreeMap::from([(port, offered.clone())]);
                self.by_name
                    .insert(hostname.as_str().into(), Hostname { addresses: addresses.clone(), ports });
                continue;
            };
            match known.ports.values().next() {
                Some(owner) if owner.origin != offered.origin => {
                    let winner = owner.clone();
                    let loser = offered.clone();
                    let hostname = hostname.as_str().into();
                    self.conflicts.insert(HostnameConflict { hostname, port, winner, loser });
                }
                _ => {
                    known.ports.entry(port).or_insert_with(|| offered.clone());
                    known.addresses.extend(addresses);
                }
            }
        }
    }

    /// A VirtualOutbound offers these ports of a hostname. Returns what a service offers at others.
    pub(crate) fn add_virtual(
        &mut self,
        host: &VirtualHost,
        vip: IpAddr,
        ports: &[u16],
    ) -> Vec<(u16, DestinationId)> {
        let virtual_ports = ports.iter().filter_map(|port| Some((*port, host.ports.get(port)?)));
        let ports: BTreeMap<u16, HostnamePort> =
            virtual_ports.map(|(port, to)| (port, HostnamePort::of_virtual(to))).collect();
        let taken_over = self.by_name.remove(&host.hostname).map(|former| former.ports).unwrap_or_default();
        let mut hostname = Hostname { addresses: BTreeSet::from([vip]), ports };
        let mut kept = Vec::new();
        for (port, loser) in taken_over {
            match hostname.ports.get(&port) {
                Some(winner) => {
                    let hostname = host.hostname.clone();
                    let winner = winner.clone();
                    self.conflicts.insert(HostnameConflict { hostname, port, winner, loser });
                }
                None => {
                    kept.push((port, loser.destination.clone()));
                    hostname.ports.insert(port, loser);
                }
            }
        }
        self.by_name.insert(host.hostname.clone(), hostname);
        kept
    }
}
