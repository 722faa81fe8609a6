//! What the proxy offers its application to call.
//!
//! Without transparent proxying that is what the Dataplane lists. With it, or when the proxy binds virtual
//! addresses itself, every destination that has one is offered there, unless the Dataplane says which ones it
//! needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use resources::{
    Key, Kind,
    kinds::{
        dataplane::{self, BackendRef, ReachableBackendRef, TransparentProxying},
        mesh::{Mesh, MeshServicesMode},
    },
    labels,
};
use topology::{Destination, DestinationId};

use crate::{
    Code, Context, Dependency, Outbound, Problem, Routing, backend::Backends, inbound::UNIFIED_NAME, ip_of,
    port_of, route,
};

pub(crate) fn plan(
    context: &Context<'_>,
    backends: &mut Backends<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<Outbound> {
    let mut planned = Planned {
        context,
        backends,
        outbounds: Vec::new(),
        listeners: BTreeMap::new(),
        taken: context.class.taken.clone(),
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
        let reachable = Reachable::of(context, redirect, &listed, planned.problems);
        for destination in reachable.destinations(context) {
            planned.redirected(destination);
        }
    }
    planned.outbounds
}

struct Planned<'c, 'p, 'a> {
    context: &'c Context<'c>,
    backends: &'p mut Backends<'a>,
    outbounds: Vec<Outbound>,
    /// Where in `outbounds` a listener of this name is.
    listeners: BTreeMap<String, usize>,
    taken: BTreeSet<(IpAddr, u16)>,
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
        self.add(destination, address, port, &spec.tags, &whose);
        matches!(destination.id, DestinationId::Port(_)).then(|| destination.id.clone())
    }

    /// Notes what finding a reference's destination looks at.
    fn note(&self, reference: &BackendRef) {
        let Some(kind) = Kind::by_name(&reference.kind) else { return };
        self.context.reads.note(if reference.labels.is_empty() {
            Dependency::Service(Key::new(kind, &self.context.snapshot.name, &reference.name))
        } else {
            Dependency::Labelled(kind, reference.labels.clone())
        });
    }

    /// A destination at each of its virtual addresses.
    fn redirected(&mut self, destination: &Arc<Destination>) {
        for &address in &destination.vips {
            let whose = format!("virtual address {address}:{}", destination.port);
            let Some(port) = port_of(destination.port, &whose, self.problems) else { continue };
            if address.is_ipv6() && !self.context.class.ipv6 {
                continue;
            }
            // Headless services have the addresses of their instances, this one's among them.
            if self.taken.insert((address, port)) {
                self.add(destination, address, port, &BTreeMap::new(), &whose);
            }
        }
    }

    fn add(
        &mut self,
        destination: &Arc<Destination>,
        address: IpAddr,
        port: u16,
        tags: &BTreeMap<String, String>,
        whose: &str,
    ) {
        let context = self.context;
        if let Err(reason) = self.backends.lead_to(destination) {
            self.problems.push(Problem::new(Code::UnusableDestination, format!("{whose}: {reason}")));
            return;
        }
        let names = context.names.outbound(destination, address, port);
        // Unified names do not hold the address, so a destination offered at two is one listener at both.
        let same = self.listeners.get(&names.listener).and_then(|&index| self.outbounds.get_mut(index));
        if let Some(other) = same {
            other.also_at.push((address, port));
            return;
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
    }
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

/// Which destinations are offered at their virtual addresses.
struct Reachable<'a> {
    /// `None` for all.
    backends: Option<BTreeSet<DestinationId>>,
    /// Empty for all.
    services: &'a [String],
    by_tags: bool,
}

impl<'a> Reachable<'a> {
    fn of(
        context: &Context<'a>,
        redirect: &'a TransparentProxying,
        listed: &BTreeSet<DestinationId>,
        problems: &mut Vec<Problem>,
    ) -> Reachable<'a> {
        let mode = context.mesh.map_or(MeshServicesMode::Disabled, Mesh::mesh_services_mode);
        let backends = match &redirect.reachable_backends {
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
        };
        Reachable {
            backends,
            services: &redirect.reachable_services,
            by_tags: mode != MeshServicesMode::Exclusive,
        }
    }

    /// All of them, sorted. Looks at every destination only where every one may be meant.
    fn destinations<'s>(&self, context: &Context<'s>) -> Vec<&'s Arc<Destination>> {
        let all = &context.snapshot.destinations;
        let Some(backends) = &self.backends else {
            context.reads.note(Dependency::AllDestinations);
            return all.values().filter(|destination| self.has(destination)).collect();
        };
        backends.iter().cloned().map(Dependency::Destination).for_each(|read| context.reads.note(read));
        let mut found: Vec<_> = backends.iter().filter_map(|id| all.get(id)).collect();
        if self.by_tags {
            context.reads.note(Dependency::AllTags);
            // They come after all ports.
            let tagged = all.range(DestinationId::Tags(Arc::default())..).map(|(_, destination)| destination);
            found.extend(tagged.filter(|destination| self.has(destination)));
        }
        found
    }

    fn has(&self, destination: &Destination) -> bool {
        match &destination.id {
            DestinationId::Port(_) => self.backends.as_ref().is_none_or(|all| all.contains(&destination.id)),
            DestinationId::Tags(tags) => {
                let service = tags.get(labels::SERVICE);
                self.by_tags
                    && (self.services.is_empty() || service.is_some_and(|s| self.services.contains(s)))
            }
        }
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
        let service = Key::new(kind, &snapshot.name, &stored);
        let ports = snapshot.services.get(&service);
        context.reads.note(Dependency::Service(service));
        ports.into_iter().flat_map(|ports| ports.iter()).filter(wanted).cloned().collect()
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
