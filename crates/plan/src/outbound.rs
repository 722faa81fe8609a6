//! What the proxy offers its application to call.
//!
//! Without transparent proxying that is what the Dataplane lists. With it, or when the proxy binds virtual
//! addresses itself, every service that has one is offered there, and so is every hostname that VirtualOutbounds
//! make, unless the Dataplane says which ones it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use resources::{
    Key, Kind,
    kinds::{
        dataplane::{self, BackendRef, IpFamilyMode, ReachableBackendRef, TransparentProxying},
        mesh::{Mesh, MeshServicesMode},
    },
    labels,
};
use topology::{Destination, DestinationId, VirtualHost};

use crate::{
    Code, Context, Dependency, HostnameConflict, HostnamePort, Hostnames, Outbound, Problem, Routing,
    backend::Backends, inbound::UNIFIED_NAME, ip_of, port_of, route,
};

pub(crate) fn plan(
    context: &Context<'_>,
    backends: &mut Backends<'_>,
    problems: &mut Vec<Problem>,
) -> (Vec<Outbound>, Hostnames) {
    let mut planned = Planned {
        context,
        backends,
        outbounds: Vec::new(),
        listeners: BTreeMap::new(),
        taken: context.class.taken.clone(),
        hostnames: Hostnames::default(),
        problems,
    };
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
        planned.hostnames.ipv6 = context.class.ipv6 && redirect.ip_family_mode != IpFamilyMode::IPv4;
        let reachable = Reachable::of(context, redirect, &listed, planned.problems);
        for destination in reachable.destinations(context) {
            planned.redirected(destination);
        }
        for host in virtual_hosts(context, redirect) {
            planned.virtual_host(host, &redirect.reachable_services);
        }
    }
    let lost = planned.hostnames.conflicts.iter().map(conflict_of);
    planned.problems.extend(lost);
    (planned.outbounds, planned.hostnames)
}

struct Planned<'c, 'p, 'a> {
    context: &'c Context<'c>,
    backends: &'p mut Backends<'a>,
    outbounds: Vec<Outbound>,
    /// Where in `outbounds` a listener of this name is.
    listeners: BTreeMap<String, usize>,
    taken: BTreeSet<(IpAddr, u16)>,
    hostnames: Hostnames,
    problems: &'p mut Vec<Problem>,
}

impl Planned<'_, '_, '_> {
    /// An outbound the Dataplane lists; says which port of a resource it leads to.
    fn listed(&mut self, spec: &dataplane::Outbound) -> Option<DestinationId> {
        let whose = format!("outbound {}:{}", spec.address(), spec.port);
        let address = ip_of(spec.address(), &whose, self.problems)?;
        let port = port_of(spec.port, &whose, self.problems)?;
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
            self.problems.push(Problem::new(Code::UnknownDestination, text));
            return None;
        };
        if !self.taken.insert((address, port)) {
            let text = format!("{whose}: the address is in use by an inbound or another outbound");
            self.problems.push(Problem::new(Code::PortConflict, text));
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
        let mut offered = BTreeSet::new();
        for &address in &destination.vips {
            let whose = format!("virtual address {address}:{}", destination.port);
            let Some(port) = port_of(destination.port, &whose, self.problems) else { continue };
            if address.is_ipv6() && !self.context.class.ipv6 {
                continue;
            }
            // Headless services have the addresses of their instances, this one's among them.
            if self.taken.insert((address, port))
                && self.add(destination, address, port, &BTreeMap::new(), &whose)
            {
                offered.insert(address);
            }
        }
        if let Ok(port) = u16::try_from(destination.port) {
            self.hostnames.add_service(destination, port, &offered);
        }
    }

    /// A hostname of VirtualOutbounds at its address, as far as it leads to these services; to all if there are none.
    fn virtual_host(&mut self, host: &VirtualHost, services: &[String]) {
        let Some(vip) = host.vip.map(IpAddr::V4) else { return };
        let wanted = |service: &str| services.is_empty() || services.iter().any(|known| known == service);
        let claims = host.ports.iter().filter(|(_, to)| wanted(to.service()));
        let claims: Vec<_> = claims.map(|(&port, to)| (port, HostnamePort::of_virtual(to))).collect();
        if self.hostnames.lost_to_listed(&host.hostname, &claims) {
            return;
        }
        let mut offered = Vec::new();
        for (&port, to) in host.ports.iter().filter(|(_, to)| wanted(to.service())) {
            if self.offer(&DestinationId::Tags(to.tags.clone()), vip, port, &host.hostname) {
                offered.push(port);
            }
        }
        if offered.is_empty() {
            return;
        }
        for (port, destination) in self.hostnames.add_virtual(host, vip, &offered) {
            self.offer(&destination, vip, port, &host.hostname);
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
            self.problems.push(Problem::new(Code::UnusableDestination, format!("{whose}: {reason}")));
            return false;
        }
        let names = context.names.outbound(destination, address, port);
        // Unified names do not hold the address, so a destination offered at two is one listener at both.
        let same = self.listeners.get(&names.listener).and_then(|&index| self.outbounds.get_mut(index));
        if let Some(other) = same {
            other.also_at.push((address, port));
            return true;
        }
        self.listeners.insert(names.listener.clone(), self.outbounds.len());
        let routing = route::plan(context, destination, &names, self.backends, self.problems);
        let timeouts = context.timeouts.destination(&destination.id);
        let logs = context.logs.of_outbound(&destination.id, &routing);
        self.outbounds.push(Outbound {
            names,
            destination: destination.id.clone(),
            address,
            port,
            also_at: Vec::new(),
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

/// The hostnames of VirtualOutbounds that the Dataplane may need: those of its `reachableServices`, or all, unless it
/// names the backends it needs.
fn virtual_hosts<'s>(context: &Context<'s>, redirect: &TransparentProxying) -> Vec<&'s Arc<VirtualHost>> {
    let hosts = &context.snapshot.virtual_hosts;
    if redirect.reachable_services.is_empty() {
        if redirect.reachable_backends.is_some() {
            return Vec::new();
        }
        context.reads.note(Dependency::AllVirtualHosts);
        return hosts.by_name.values().collect();
    }
    let services: BTreeSet<&str> = redirect.reachable_services.iter().map(String::as_str).collect();
    for &service in &services {
        context.reads.note(Dependency::VirtualHostsOf(service.into()));
    }
    hosts.of_services(&services)
}

fn conflict_of(conflict: &HostnameConflict) -> Problem {
    Problem::new(Code::HostnameConflict, conflict.to_string()).or_about(conflict.losing_service())
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

/// Which services are offered at their virtual addresses; `None` for all.
struct Reachable(Option<BTreeSet<DestinationId>>);

impl Reachable {
    fn of(
        context: &Context<'_>,
        redirect: &TransparentProxying,
        listed: &BTreeSet<DestinationId>,
        problems: &mut Vec<Problem>,
    ) -> Reachable {
        let mode = context.mesh.map_or(MeshServicesMode::Disabled, Mesh::mesh_services_mode);
        Reachable(match &redirect.reachable_backends {
            Some(reachable) => {
                Some(reachable.refs.iter().flat_map(|r| resolve(context, r, problems)).collect())
            }
            None if !listed.is_empty() => Some(listed.clone()),
            None if !redirect.reachable_services.is_empty()
                || mode == MeshServicesMode::ReachableBackends =>
            {
                Some(BTreeSet::new())
            }
            None => None,
        })
    }

    /// All of them, sorted. Looks at every destination only where every one may be meant.
    fn destinations<'s>(&self, context: &Context<'s>) -> Vec<&'s Arc<Destination>> {
        let all = &context.snapshot.destinations;
        let Some(backends) = &self.0 else {
            context.reads.note(Dependency::AllDestinations);
            return all.values().collect();
        };
        backends.iter().cloned().map(Dependency::Destination).for_each(|read| context.reads.note(read));
        backends.iter().filter_map(|id| all.get(id)).collect()
    }
}

fn resolve(
    context: &Context<'_>,
    reference: &ReachableBackendRef,
    problems: &mut Vec<Problem>,
) -> Vec<DestinationId> {
    let snapshot = context.snapshot;
    let Some(kind) = Kind::by_name(&reference.kind) else {
        let text = format!("reachableBackends: {:?} is not a kind of service", reference.kind);
        problems.push(Problem::new(Code::UnknownDestination, text));
        return Vec::new();
    };
    let wanted = |id: &&DestinationId| {
        let port = snapshot.destinations.get(*id).map(|destination| destination.port);
        reference.port.is_none() || port == reference.port
    };
    let found: Vec<DestinationId> = if reference.labels.is_empty() {
        let namespace = match reference.namespace.as_str() {
            "" => context.class.namespace.as_deref(),
            given => Some(given),
        };
        let stored = match namespace {
            Some(namespace) => format!("{}.{namespace}", reference.name),
            None => reference.name.clone(),
        };
        context.reads.note(Dependency::Service(Key::new(kind, &snapshot.name, &stored)));
        context.reads.note_on_global(kind, &reference.name);
        let ports = snapshot.named(kind, &stored, &reference.name);
        ports.into_iter().flatten().filter(wanted).cloned().collect()
    } else {
        context.reads.note(Dependency::Labelled(kind, reference.labels.clone()));
        snapshot.labelled(kind, &reference.labels).flatten().filter(wanted).cloned().collect()
    };
    if found.is_empty() {
        let text = format!(
            "reachableBackends: there is no {} {:?} with that port in the mesh",
            reference.kind, reference.name
        );
        problems.push(Problem::new(Code::UnknownDestination, text));
    }
    found
}
