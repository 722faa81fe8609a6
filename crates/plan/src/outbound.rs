//! Destinations that the proxy offers its application to call.
//!
//! Without transparent proxying these are what the Dataplane lists. With it, or when the proxy binds virtual
//! addresses itself, every reachable service that has one is offered there, and so is every hostname that
//! VirtualOutbounds make, or the mesh itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use resources::{
    Key, Kind,
    kinds::dataplane::{self, BackendRef, TransparentProxying},
    labels,
};
use topology::{Destination, DestinationId, VirtualHost};

use crate::{
    Code, Context, Dependency, Finding, HostnameConflict, HostnamePort, Hostnames, Outbound, Routing, Stub,
    backend::Backends, inbound::UNIFIED_NAME, ip_of, port_of, reachable::OfferedDestinations, route,
};

/// Destinations that are offered, and the answer to calls to those that are not.
pub(crate) struct OutboundPlan {
    pub(crate) outbounds: Vec<Outbound>,
    pub(crate) hostnames: Hostnames,
    pub(crate) stub: Option<Stub>,
}

pub(crate) fn plan(
    context: &Context<'_>,
    backends: &mut Backends<'_>,
    findings: &mut Vec<Finding>,
) -> OutboundPlan {
    let mut planned = OutboundPlanner {
        context,
        backends,
        outbounds: Vec::new(),
        listeners: BTreeMap::new(),
        taken: context.class.taken.clone(),
        hostnames: Hostnames::default(),
        trimmed: BTreeMap::new(),
        findings,
    };
    let mut stub = None;
    let mut listed = BTreeSet::new();
    for spec in context.class.calls.outbounds() {
        if let Some(destination) = planned.listed(spec) {
            listed.insert(destination);
        }
    }
    let anything = TransparentProxying::default();
    let unlisted =
        context.class.calls.redirect().or_else(|| context.class.bind_outbounds.then_some(&anything));
    if let Some(redirect) = unlisted {
        planned.hostnames.twins = context.class.twins;
        let reachable = OfferedDestinations::of(context, redirect, &listed, planned.findings);
        for destination in reachable.destinations() {
            planned.redirected(destination);
        }
        for destination in reachable.trimmed_destinations() {
            planned.answered(destination);
        }
        for host in reachable.virtual_hosts() {
            planned.virtual_host(host, &reachable);
        }
        stub = reachable.answered().and_then(|client| Stub::of(context, client, &planned.trimmed));
    }
    let lost = planned.hostnames.conflicts.iter().map(conflict_of);
    planned.findings.extend(lost);
    OutboundPlan { outbounds: planned.outbounds, hostnames: planned.hostnames, stub }
}

struct OutboundPlanner<'c, 'p, 'a> {
    context: &'c Context<'c>,
    backends: &'p mut Backends<'a>,
    outbounds: Vec<Outbound>,
    /// Index in `outbounds` of the listener of each name.
    listeners: BTreeMap<String, usize>,
    taken: BTreeSet<(IpAddr, u16)>,
    hostnames: Hostnames,
    /// Destinations that are not offered at their addresses and answered there.
    trimmed: BTreeMap<(IpAddr, u16), DestinationId>,
    findings: &'p mut Vec<Finding>,
}

impl OutboundPlanner<'_, '_, '_> {
    /// An outbound the Dataplane lists; says which port of a resource it leads to.
    fn listed(&mut self, spec: &dataplane::Outbound) -> Option<DestinationId> {
        let whose = format!("outbound {}:{}", spec.address(), spec.port);
        let address = ip_of(spec.address(), &whose, self.findings)?;
        let port = port_of(spec.port, &whose, self.findings)?;
        let (found, asked) = match &spec.backend_ref {
            Some(reference) => {
                self.note(reference);
                let asked = format!("{} {:?} port {}", reference.kind, reference.name, reference.port);
                (self.context.snapshot.backend(reference), asked)
            }
            None => {
                let id = DestinationId::Tags(Arc::new(spec.tags.clone()));
                self.context.reads.note(Dependency::Destination(id.clone()));
                (self.context.snapshot.destinations.get(&id), format!("tags {:?}", spec.tags))
            }
        };
        let Some(destination) = found else {
            let text = format!("{whose}: there is no destination with {asked} in the mesh");
            self.findings.push(Finding::new(Code::UnknownDestination, text));
            return None;
        };
        if !self.taken.insert((address, port)) {
            let text = format!("{whose}: the address is in use by an inbound or another outbound");
            self.findings.push(Finding::new(Code::PortConflict, text));
            return None;
        }
        let offered = self.add(destination, address, port, &spec.tags, &whose);
        if offered && !spec.hostname.is_empty() {
            self.hostnames.add_listed(&spec.hostname, address, port, &destination.id);
        }
        matches!(destination.id, DestinationId::Port(_)).then(|| destination.id.clone())
    }

    /// Notes what finding a reference's destination looks at.
    fn note(&self, reference: &BackendRef) {
        let Some(kind) = Kind::by_name(&reference.kind) else { return };
        let Context { snapshot, reads, .. } = self.context;
        if reference.labels.is_empty() {
            reads.note(Dependency::Service(Key::new(kind, &snapshot.name, &reference.name)));
            reads.note_on_global(kind, &reference.name);
        } else {
            reads.note(Dependency::Labelled(kind, reference.labels.clone()));
        }
    }

    /// A destination at each of its virtual addresses.
    fn redirected(&mut self, destination: &Arc<Destination>) {
        self.at_addresses(destination, |planned, address, port| {
            let whose = format!("virtual address {address}:{port}");
            planned.taken.insert((address, port))
                && planned.add(destination, address, port, &BTreeMap::new(), &whose)
        });
    }

    /// A destination that is not offered: calls to its virtual addresses are answered.
    fn answered(&mut self, destination: &Arc<Destination>) {
        let id = &destination.id;
        self.at_addresses(destination, |planned, address, port| planned.answer(id, address, port));
    }

    /// Says whether calls to an address can be answered.
    fn answer(&mut self, id: &DestinationId, address: IpAddr, port: u16) -> bool {
        let free = self.taken.insert((address, port));
        if free {
            let twin = self.twin(address, port);
            let at = [(address, port)].into_iter().chain(twin);
            self.trimmed.extend(at.map(|at| (at, id.clone())));
        }
        free
    }

    /// The further address of a listener for clients without IPv4, which it then has.
    fn twin(&mut self, address: IpAddr, port: u16) -> Option<(IpAddr, u16)> {
        let IpAddr::V4(address) = address else { return None };
        let twin = self.context.class.twins.listener(address)?;
        self.taken.insert((twin.into(), port)).then_some((twin.into(), port))
    }

    /// Puts something at each virtual address of a destination, with the hostnames that it has there.
    fn at_addresses(
        &mut self,
        destination: &Arc<Destination>,
        mut put: impl FnMut(&mut Self, IpAddr, u16) -> bool,
    ) {
        let mut offered = BTreeSet::new();
        for &address in &destination.vips {
            let whose = format!("virtual address {address}:{}", destination.port);
            let Some(port) = port_of(destination.port, &whose, self.findings) else { continue };
            if address.is_ipv6() && !self.context.class.ipv6 {
                continue;
            }
            // Headless services have the addresses of their instances, this one's among them.
            if put(self, address, port) {
                offered.insert(address);
            }
        }
        if let Ok(port) = u16::try_from(destination.port) {
            self.hostnames.add_service(destination, port, &offered);
        }
    }

    /// A hostname of VirtualOutbounds at its address, as far as what it leads to is reachable.
    fn virtual_host(&mut self, host: &VirtualHost, reachable: &OfferedDestinations<'_>) {
        let Some(vip) = host.vip.map(IpAddr::V4) else { return };
        // A service that a generator gave this hostname keeps it; only a VirtualOutbound takes it over.
        let of_service = self.hostnames.by_name.contains_key(&host.hostname);
        let ports = || host.ports.iter().filter(move |(_, to)| to.policy.is_some() || !of_service);
        let wanted: Vec<_> = ports().filter(|(_, to)| reachable.leads_to(to)).collect();
        let claims = wanted.iter().map(|&(&port, to)| (port, HostnamePort::of_virtual(to)));
        let claims: Vec<_> = claims.collect();
        if self.hostnames.lost_to_listed(&host.hostname, &claims) {
            return;
        }
        let mut offered = Vec::new();
        if reachable.answered().is_some() {
            let trimmed = ports().filter(|(_, to)| !reachable.leads_to(to));
            for (&port, to) in trimmed {
                let id = DestinationId::Tags(to.tags.clone());
                offered.extend(self.answer(&id, vip, port).then_some(port));
            }
        }
        for (&port, to) in wanted {
            if self.offer(&DestinationId::Tags(to.tags.clone()), vip, port, &host.hostname) {
                offered.push(port);
            }
        }
        if offered.is_empty() {
            return;
        }
        for (port, destination) in self.hostnames.add_virtual(host, vip, &offered) {
            if reachable.is_answered(&destination) {
                self.answer(&destination, vip, port)
            } else {
                self.offer(&destination, vip, port, &host.hostname)
            };
        }
    }

    /// Offers a destination under a hostname; says whether it could be.
    fn offer(&mut self, id: &DestinationId, address: IpAddr, port: u16, hostname: &str) -> bool {
        self.context.reads.note(Dependency::Destination(id.clone()));
        let Some(destination) = self.context.snapshot.destinations.get(id) else { return false };
        let whose = format!("hostname {hostname}, port {port}");
        self.taken.insert((address, port)) && self.add(destination, address, port, &BTreeMap::new(), &whose)
    }

    /// Says whether it could be added.
    fn add(
        &mut self,
        destination: &Arc<Destination>,
        address: IpAddr,
        port: u16,
        tags: &BTreeMap<String, String>,
        whose: &str,
    ) -> bool {
        let context = self.context;
        if let Err(reason) = self.backends.lead_to(destination) {
            self.findings.push(Finding::new(Code::UnusableDestination, format!("{whose}: {reason}")));
            return false;
        }
        let twin = self.twin(address, port);
        let names = context.names.outbound(destination, address, port);
        // Unified names do not hold the address, so a destination offered at two is one listener at both.
        let same = self.listeners.get(&names.listener).and_then(|&index| self.outbounds.get_mut(index));
        if let Some(other) = same {
            other.also_at.push((address, port));
            other.also_at.extend(twin);
            return true;
        }
        self.listeners.insert(names.listener.clone(), self.outbounds.len());
        let routing = route::plan(context, destination, &names, self.backends, self.findings);
        let timeouts = context.timeouts.destination(&destination.id);
        let logs = context.logs.of_outbound(&destination.id, &routing);
        self.outbounds.push(Outbound {
            names,
            destination: destination.id.clone(),
            address,
            port,
            also_at: twin.into_iter().collect(),
            bind: context.class.binds(),
            ipv6: context.class.ipv6,
            protocol: destination.protocol,
            tags: shown_tags(&destination.id, tags),
            idle: context.timeouts.resting(&destination.id),
            request_headers: timeouts.request_headers,
            connect_attempts: context.retries.connections(&destination.id),
            logs,
            hashed: match &routing {
                Routing::Connections(_) => context.balancing.hashed(&destination.id),
                Routing::Requests(_) => Vec::new(),
            },
            routing,
        });
        true
    }
}

fn conflict_of(conflict: &HostnameConflict) -> Finding {
    Finding::new(Code::HostnameConflict, conflict.to_string()).or_about(conflict.losing_service())
}

fn shown_tags(id: &DestinationId, tags: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    match id {
        DestinationId::Port(kri) => BTreeMap::from([(UNIFIED_NAME.to_owned(), kri.to_string())]),
        DestinationId::Tags(selected) => {
            let tags = if tags.is_empty() { selected } else { tags };
            tags.iter()
                .filter(|(name, _)| *name != labels::MESH)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        }
    }
}
