//! Meanings of the names in a proxy: the plan, read backwards.
//!
//! Statistics and complaints of a proxy speak of its objects by name. Unified names say themselves what
//! they mean; older ones mean something only together with the plan that gave them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use resources::{
    kinds::dataplane::{self, Networking},
    labels,
    naming::Kri,
};
use topology::DestinationId;

use crate::{
    Admin, AgentConfiguration, AgentPart, Collector, DestinationBackend, Host, Inbound, NamingScheme,
    Outbound, Passthrough, PassthroughMatch, ProxyMetrics, ProxyPlan, Route, Routing, Stub,
    names::InboundFacts,
};

/// Object that a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// The resource the name stands for; `None` for what no resource describes.
    pub kri: Option<Kri>,
    pub role: Role,
}

/// Part of the proxy that an object belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Inbound,
    Outbound,
    Passthrough,
    /// A route of an outbound, which several outbounds may have under one name.
    Route,
    /// Objects that the proxy needs for itself.
    System,
}

/// Every name of an object and every prefix of statistics in the plan of `dataplane`'s proxy.
///
/// A name that two objects share means the one that shows in statistics: a virtual host never does.
pub fn meanings(plan: &ProxyPlan, dataplane: &Kri) -> BTreeMap<String, Meaning> {
    let ProxyPlan { own, outgoing } = plan;
    let mut known = MeaningIndex::default();
    own.inbounds.iter().for_each(|inbound| known.inbound(inbound, dataplane));
    outgoing.outbounds.iter().for_each(|outbound| known.outbound(outbound));
    outgoing.backends.iter().for_each(|backend| known.backend(backend));
    own.passthrough.iter().for_each(|passthrough| known.passthrough(passthrough));
    outgoing.stub.iter().for_each(|stub| known.stub(stub));
    own.admin.iter().for_each(|admin| known.admin(admin));
    own.metrics.iter().for_each(|metrics| known.metrics(metrics));
    own.agent.iter().for_each(|agent| known.agent(agent, outgoing.records.as_ref()));
    let system = Meaning { kri: None, role: Role::System };
    for Collector { cluster, cluster_stats, .. } in &own.collectors {
        known.add(&system, [cluster.as_str()]);
        known.add(&system, cluster_stats.as_deref());
    }
    if let Some(secrets) = own.security.as_ref().map(|security| &security.secrets) {
        known.add(&system, [&*secrets.identity.name(), secrets.authorities.name()]);
    }
    for Inbound { section, names, .. } in &own.inbounds {
        let meaning = of_inbound(dataplane, section.as_str());
        known.add(&meaning, [names.route_configuration.as_str(), &names.virtual_host]);
    }
    for Outbound { destination, names, routing, .. } in &outgoing.outbounds {
        let meaning = of_outbound(destination);
        known.add(&meaning, [names.route_configuration.as_str(), &names.virtual_host]);
        known.add(&Meaning { kri: None, role: Role::Route }, [names.default_route.as_str()]);
        let Routing::Requests(routes) = routing else { continue };
        for Route { name, origin, .. } in routes {
            // A name that is made of what a route matches does not say whose it is.
            let kri = origin.as_ref().map(|rule| name.parse().unwrap_or_else(|_| rule.without_section()));
            known.add(&Meaning { kri, role: Role::Route }, [name.as_str()]);
        }
    }
    known.0
}

/// The prefix of a listener's statistics that is left to its address.
pub fn address_stats(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string().replace(':', "_")
}

/// Names of an inbound in statistics, by one choice of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboundStats {
    pub listener: String,
    /// The cluster that leads to the application.
    pub cluster: String,
    /// Counters of permissions, without the dot at the end.
    pub permissions: String,
}

/// Names of an inbound in statistics, by either choice of names; none for one that cannot be planned.
pub fn inbound_stats(networking: &Networking, inbound: &dataplane::Inbound) -> Vec<InboundStats> {
    let address = inbound.address_in(networking).parse::<IpAddr>().ok();
    let port = u16::try_from(inbound.port).ok();
    let service_port = u16::try_from(inbound.service_port()).ok();
    let section = inbound.section_name().parse().ok();
    let (Some(address), Some(port), Some(service_port), Some(section)) =
        (address, port, service_port, section)
    else {
        return Vec::new();
    };
    let service = inbound.tags.get(labels::SERVICE).map(String::as_str);
    let facts = InboundFacts { section: &section, address, port, service_port, service };
    let schemes = [NamingScheme::Unified, NamingScheme::Legacy].into_iter();
    let of = |scheme: NamingScheme| {
        let names = scheme.inbound(facts);
        InboundStats {
            listener: names.listener_stats.unwrap_or_else(|| address_stats(address, port)),
            cluster: names.cluster_stats.unwrap_or(names.cluster),
            permissions: names.permission_stats.trim_end_matches('.').to_owned(),
        }
    };
    schemes.map(of).collect()
}

#[derive(Default)]
struct MeaningIndex(BTreeMap<String, Meaning>);

impl MeaningIndex {
    /// The first part of the proxy that a name belongs to is meant. Where it is of several resources, such
    /// as a cluster that two inbounds share, it stands for what they have in common.
    fn add<'a>(&mut self, meaning: &Meaning, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            let known = self.0.entry(name.to_owned()).or_insert_with(|| meaning.clone());
            if known.role == meaning.role && known.kri != meaning.kri {
                let whole = |meaning: &Meaning| meaning.kri.as_ref().map(Kri::without_section);
                known.kri = whole(known).filter(|kri| whole(meaning).as_ref() == Some(kri));
            }
        }
    }

    fn inbound(&mut self, inbound: &Inbound, dataplane: &Kri) {
        let Inbound { names, section, address, port, .. } = inbound;
        let meaning = of_inbound(dataplane, section.as_str());
        self.listener(&meaning, &names.listener, names.listener_stats.as_deref(), [(*address, *port)]);
        self.add(&meaning, [names.cluster.as_str(), &names.filter_stats]);
        self.add(&meaning, names.cluster_stats.as_deref());
        self.add(&meaning, [names.permission_stats.trim_end_matches('.')]);
    }

    fn outbound(&mut self, outbound: &Outbound) {
        let Outbound { names, destination, address, port, also_at, .. } = outbound;
        let meaning = of_outbound(destination);
        let addresses = also_at.iter().copied().chain([(*address, *port)]);
        self.listener(&meaning, &names.listener, names.listener_stats.as_deref(), addresses);
        self.add(&meaning, [names.cluster.as_str(), &names.filter_stats]);
        self.add(&meaning, names.cluster_stats.as_deref());
    }

    fn backend(&mut self, backend: &DestinationBackend) {
        let meaning = of_outbound(&backend.destination);
        self.add(&meaning, [backend.cluster.as_str()]);
        self.add(&meaning, backend.cluster_stats.as_deref());
    }

    fn passthrough(&mut self, passthrough: &Passthrough) {
        let Passthrough { names, address, port, ways, .. } = passthrough;
        let meaning = Meaning { kri: None, role: Role::Passthrough };
        self.listener(&meaning, &names.listener, names.listener_stats.as_deref(), [(*address, *port)]);
        self.add(&meaning, [names.cluster.as_str(), &names.filter_stats]);
        self.add(&meaning, names.cluster_stats.as_deref());
        for PassthroughMatch { name, stats, hosts, .. } in ways.iter() {
            self.add(&meaning, [name.as_str(), stats]);
            for Host { cluster, cluster_stats, .. } in hosts {
                self.add(&meaning, [cluster.as_str()]);
                self.add(&meaning, cluster_stats.as_deref());
            }
        }
    }

    /// Adds the names of the stub. It has no KRI: calls that end there were to go to several destinations.
    fn stub(&mut self, stub: &Stub) {
        let meaning = Meaning { kri: None, role: Role::System };
        self.add(&meaning, [stub.names.listener.as_str(), &stub.names.stats]);
    }

    fn admin(&mut self, admin: &Admin) {
        let Admin { names, address, port, .. } = admin;
        let meaning = Meaning { kri: None, role: Role::System };
        self.listener(&meaning, &names.listener, names.listener_stats.as_deref(), [(*address, *port)]);
        self.add(&meaning, [names.cluster.as_str(), &names.readiness_cluster, &names.filter_stats]);
        self.add(&meaning, names.cluster_stats.as_deref());
        self.add(&meaning, names.readiness_cluster_stats.as_deref());
    }

    fn metrics(&mut self, metrics: &ProxyMetrics) {
        let meaning = Meaning { kri: None, role: Role::System };
        let of_pages = metrics.pages.iter().map(|page| (&page.names, Some((page.address, page.port))));
        let of_collectors = metrics.collectors.iter().map(|to| (&to.names, None));
        for (names, address) in of_pages.chain(of_collectors) {
            self.listener(&meaning, &names.listener, names.listener_stats.as_deref(), address);
            self.add(&meaning, [names.cluster.as_str(), &names.filter_stats]);
            self.add(&meaning, names.cluster_stats.as_deref());
        }
    }

    fn agent(&mut self, agent: &AgentConfiguration, shared: Option<&AgentPart>) {
        let meaning = Meaning { kri: None, role: Role::System };
        let AgentConfiguration { names, parts, .. } = agent;
        self.listener(&meaning, &names.listener, names.listener_stats.as_deref(), []);
        let routes = parts.iter().chain(shared).flat_map(|part| [part.route.as_str(), &part.not_modified]);
        self.add(&meaning, routes.filter(|name| !name.is_empty()));
    }

    fn listener(
        &mut self,
        meaning: &Meaning,
        name: &str,
        stats: Option<&str>,
        addresses: impl IntoIterator<Item = (IpAddr, u16)>,
    ) {
        self.add(meaning, [name]);
        match stats {
            Some(stats) => self.add(meaning, [stats]),
            None => {
                for (address, port) in addresses {
                    self.add(meaning, [address_stats(address, port).as_str()]);
                }
            }
        }
    }
}

fn of_inbound(dataplane: &Kri, section: &str) -> Meaning {
    Meaning { kri: Some(dataplane.with_section(section)), role: Role::Inbound }
}

fn of_outbound(destination: &DestinationId) -> Meaning {
    let kri = match destination {
        DestinationId::Port(kri) => Some(kri.clone()),
        DestinationId::Tags(_) => None,
    };
    Meaning { kri, role: Role::Outbound }
}
