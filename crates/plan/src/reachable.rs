//! Destinations that are offered to the application without being listed: all, those that the Dataplane says
//! it needs, or those that servers let the proxy call.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Key, Kind,
    kinds::{
        dataplane::{ReachableBackendRef, TransparentProxying},
        mesh::{Mesh, MeshServicesMode},
        mesh_http_route::{self, MeshHTTPRoute},
        mesh_tcp_route::MeshTCPRoute,
    },
};
use topology::{ClientClass, Destination, DestinationId, VirtualHost, VirtualPort};

use crate::{Code, Context, Dependency, Effective, Finding, effective, targets};

/// Destinations that are offered at their virtual addresses.
pub(crate) struct OfferedDestinations<'c> {
    context: &'c Context<'c>,
    redirect: &'c TransparentProxying,
    /// `None` for all.
    backends: Option<BTreeSet<DestinationId>>,
    /// The client whose permissions decide, where the Dataplane does not say what it needs.
    trimmed: Option<&'c ClientClass>,
    /// They decide about services that are offered at addresses of their own, too.
    by_permission: bool,
}

impl<'c> OfferedDestinations<'c> {
    pub(crate) fn of(
        context: &'c Context<'c>,
        redirect: &'c TransparentProxying,
        listed: &BTreeSet<DestinationId>,
        findings: &mut Vec<Finding>,
    ) -> OfferedDestinations<'c> {
        let mode = context.mesh.map_or(MeshServicesMode::Disabled, Mesh::mesh_services_mode);
        let reachable = |backends, trimmed| OfferedDestinations {
            context,
            redirect,
            backends,
            trimmed,
            by_permission: false,
        };
        let by_services = !redirect.reachable_services.is_empty();
        // A proxy that lists services gets their hostnames; permissions do not restrict them.
        let trimmed = context.class.trimmed.as_ref();
        match &redirect.reachable_backends {
            Some(listed) => {
                let found = listed.refs.iter().flat_map(|r| resolve(context, r, findings));
                reachable(Some(found.collect()), None)
            }
            None if !listed.is_empty() => reachable(Some(listed.clone()), trimmed.filter(|_| !by_services)),
            None if by_services => reachable(Some(BTreeSet::new()), None),
            None if mode == MeshServicesMode::ReachableBackends => reachable(Some(BTreeSet::new()), trimmed),
            None => match trimmed {
                Some(client) => {
                    let permitted = Some(permitted(context, client));
                    OfferedDestinations { by_permission: true, ..reachable(permitted, trimmed) }
                }
                None => reachable(None, None),
            },
        }
    }

    /// All of them, sorted. Looks at every destination only where every one may be meant.
    pub(crate) fn destinations(&self) -> Vec<&'c Arc<Destination>> {
        let all = &self.context.snapshot.destinations;
        let Some(backends) = &self.backends else {
            self.context.reads.note(Dependency::AllDestinations);
            return all.values().collect();
        };
        backends.iter().cloned().map(Dependency::Destination).for_each(|read| self.context.reads.note(read));
        backends.iter().filter_map(|id| all.get(id)).collect()
    }

    /// The client of which calls to what is not offered to it are answered.
    pub(crate) fn answered(&self) -> Option<&'c ClientClass> {
        self.trimmed.filter(|_| self.context.class.stub)
    }

    /// Permissions keep a destination from being offered at its address, and calls there are answered.
    pub(crate) fn is_answered(&self, id: &DestinationId) -> bool {
        let answers = self.by_permission && self.answered().is_some();
        self.backends.as_ref().is_some_and(|offered| answers && !offered.contains(id))
    }

    /// All of those. Looks at every destination.
    pub(crate) fn trimmed_destinations(&self) -> Vec<&'c Arc<Destination>> {
        if !self.by_permission || self.answered().is_none() {
            return Vec::new();
        }
        let Context { snapshot, reads, .. } = self.context;
        reads.note(Dependency::AllDestinations);
        reads.note(Dependency::AccessRules);
        snapshot.destinations.values().filter(|destination| self.is_answered(&destination.id)).collect()
    }

    /// The hostnames of VirtualOutbounds that may lead to something reachable, or to something that is answered.
    pub(crate) fn virtual_hosts(&self) -> Vec<&'c Arc<VirtualHost>> {
        let OfferedDestinations { context, redirect, .. } = self;
        let hosts = &context.snapshot.virtual_hosts;
        let reads = context.reads;
        if let Some(client) = self.answered() {
            let permissions = [
                Dependency::Reachability(client.clone()),
                Dependency::ReachabilityByDefault,
                Dependency::AccessRules,
            ];
            permissions.into_iter().chain([Dependency::AllVirtualHosts]).for_each(|read| reads.note(read));
            return hosts.by_name.values().collect();
        }
        let permitted = self.trimmed.map(|client| permitted_services(context, client));
        let services: BTreeSet<&str> = match &permitted {
            Some(services) => services.iter().map(|service| &**service).collect(),
            None => redirect.reachable_services.iter().map(String::as_str).collect(),
        };
        if permitted.is_none() && services.is_empty() {
            if redirect.reachable_backends.is_some() {
                return Vec::new();
            }
            reads.note(Dependency::AllVirtualHosts);
            return hosts.by_name.values().collect();
        }
        services.iter().for_each(|&service| reads.note(Dependency::VirtualHostsOf(service.into())));
        hosts.of_services(&services)
    }

    /// A port of such a hostname leads to something reachable.
    pub(crate) fn leads_to(&self, port: &VirtualPort) -> bool {
        let services = &self.redirect.reachable_services;
        if !services.is_empty() {
            return services.iter().any(|service| service == port.service());
        }
        let id = DestinationId::Tags(port.tags.clone());
        self.trimmed.is_none_or(|client| {
            self.context.calls(client, &id) || leads_elsewhere(self.context.effective, &id)
        })
    }
}

/// Returns the destinations that a client may call, and those that routes lead away from, because it may be
/// allowed to call the targets.
fn permitted(context: &Context<'_>, client: &ClientClass) -> BTreeSet<DestinationId> {
    let Context { snapshot, effective, .. } = context;
    let mut permitted = context.callable(client);
    permitted.retain(|id| matches!(id, DestinationId::Port(_)));
    for kind in [Kind::MeshHTTPRoute, Kind::MeshTCPRoute] {
        for policy in effective.policies(kind) {
            policy.view.to.iter().for_each(|entry| targets::note(context, &policy.view.kri, &entry.target));
        }
        for target in effective.outbound(kind).rules.keys() {
            let ports = effective::ports(snapshot, target).map(|destination| &destination.id);
            permitted.extend(ports.filter(|id| leads_elsewhere(effective, id)).cloned());
        }
    }
    permitted
}

/// The services by tags that a client is let in to, and those that routes may lead away from.
fn permitted_services(context: &Context<'_>, client: &ClientClass) -> BTreeSet<Arc<str>> {
    let Context { effective, .. } = context;
    let callable = context.callable(client);
    let mut services: BTreeSet<Arc<str>> = callable.iter().filter_map(service_of).map(Arc::from).collect();
    for kind in [Kind::MeshHTTPRoute, Kind::MeshTCPRoute] {
        let entries = effective.policies(kind).iter().flat_map(|policy| &policy.view.to);
        services.extend(entries.filter_map(|entry| entry.target.name.as_deref()).map(Arc::from));
    }
    services
}

fn service_of(id: &DestinationId) -> Option<&str> {
    let DestinationId::Tags(tags) = id else { return None };
    tags.get(resources::labels::SERVICE).map(String::as_str)
}

/// A route answers calls to a destination itself or sends them to others.
fn leads_elsewhere(effective: &Effective<'_>, id: &DestinationId) -> bool {
    let requests = effective.conf::<MeshHTTPRoute>(id).ok().flatten();
    let by_request = |rule: &mesh_http_route::Rule| {
        let redirects = rule.default.filters.iter().flatten().any(|filter| filter.request_redirect.is_some());
        rule.default.backend_refs.is_some() || redirects
    };
    let connections = effective.conf::<MeshTCPRoute>(id).ok().flatten();
    requests.is_some_and(|found| found.conf.rules.iter().any(by_request))
        || connections
            .is_some_and(|found| found.conf.rules.iter().any(|rule| rule.default.backend_refs.is_some()))
}

fn resolve(
    context: &Context<'_>,
    reference: &ReachableBackendRef,
    findings: &mut Vec<Finding>,
) -> Vec<DestinationId> {
    let snapshot = context.snapshot;
    let Some(kind) = Kind::by_name(&reference.kind) else {
        let text = format!("reachableBackends: {:?} is not a kind of service", reference.kind);
        findings.push(Finding::new(Code::UnknownDestination, text));
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
        findings.push(Finding::new(Code::UnknownDestination, text));
    }
    found
}
