//! Parts of a proxy, read off the plan that its configuration is made from.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contract::layout::{
    ProxyLayout, ProxyLayoutItem, ProxyLayoutPassthrough, ProxyResourceStats, ProxyResources,
};
use plan::{Inbound, Outbound, Passthrough, ProxyPlan, Routing, address_stats, is_http};
use resources::{
    Resource,
    kinds::dataplane::Dataplane,
    naming::{Direction, Kri, SpiffeId},
};
use topology::{Destination, DestinationId, MeshSnapshot};

/// The layout of the proxy of `dataplane`, which has this plan. `binds`: whether it offers destinations at addresses of
/// its machine.
pub fn of(mesh: &MeshSnapshot, dataplane: &Resource, plan: ProxyPlan, binds: bool) -> ProxyLayout {
    let own = dataplane.kri("");
    let named = named(&plan);
    let mut outbounds: Vec<ProxyLayoutItem> =
        plan.outgoing.outbounds.iter().map(|o| outbound(mesh, o, &named)).collect();
    let networking = dataplane.spec.get::<Dataplane>().and_then(|dataplane| dataplane.networking.as_ref());
    let lists = networking.is_some_and(|networking| !networking.outbound.is_empty());
    if !lists && !binds && plan.own.passthrough.is_empty() {
        outbounds.extend(mesh.destinations.values().filter_map(|destination| not_called(destination)));
    }
    outbounds.sort_by(|a, b| (&a.kri, &a.proxy_resource_name).cmp(&(&b.kri, &b.proxy_resource_name)));
    ProxyLayout {
        kri: own.as_ref().map(Kri::to_string).unwrap_or_default(),
        labels: dataplane.labels.clone(),
        spiffe_id: spiffe_id(mesh, dataplane),
        inbounds: plan.own.inbounds.iter().map(|i| inbound(own.as_ref(), i)).collect(),
        outbounds,
        listeners: Vec::new(),
        passthrough: plan.own.passthrough.iter().map(passthrough).collect(),
        problems: plan.findings().iter().map(ToString::to_string).collect(),
    }
}

fn spiffe_id(mesh: &MeshSnapshot, dataplane: &Resource) -> Option<String> {
    let by_identity = mesh.spiffe_id_of(dataplane);
    let of_mesh = || SpiffeId::of_dataplane(dataplane).first().cloned().filter(|_| mesh.mtls.is_some());
    by_identity.or_else(of_mesh).map(|id| id.to_string())
}

fn inbound(dataplane: Option<&Kri>, inbound: &Inbound) -> ProxyLayoutItem {
    let Inbound { names, address, port, protocol, section, permissions, .. } = inbound;
    let kri = dataplane.map(|dataplane| dataplane.with_section(section.as_str()));
    let parts = Parts {
        listener: (&names.listener, names.listener_stats.as_ref()),
        at: (*address, *port),
        cluster: (&names.cluster, names.cluster_stats.as_ref()),
        filter_stats: &names.filter_stats,
        routes: is_http(*protocol).then_some((&names.route_configuration, &names.virtual_host)),
    };
    let mut proxy_resources = parts.shown();
    let asked = permissions.as_ref().map(|_| names.permission_stats.trim_end_matches('.').to_owned());
    proxy_resources.stats.permissions = asked;
    ProxyLayoutItem {
        kri: kri.map(|kri| kri.to_string()).unwrap_or_default(),
        port: (*port).into(),
        protocol: protocol.word().into(),
        hostnames: Vec::new(),
        proxy_resource_name: names.cluster.clone(),
        proxy_resources: Some(proxy_resources),
    }
}

type HostnamesByAddress<'a> = BTreeMap<(IpAddr, u16), Vec<&'a str>>;

/// The hostnames that stand for each address at which something is offered.
fn named(plan: &ProxyPlan) -> HostnamesByAddress<'_> {
    let mut named = HostnamesByAddress::new();
    for (name, hostname) in &plan.outgoing.hostnames.by_name {
        for &address in &hostname.addresses {
            for &port in hostname.ports.keys() {
                named.entry((address, port)).or_default().push(name);
            }
        }
    }
    named
}

fn outbound(mesh: &MeshSnapshot, outbound: &Outbound, named: &HostnamesByAddress<'_>) -> ProxyLayoutItem {
    let Outbound { names, destination, address, port, protocol, routing, also_at, .. } = outbound;
    let offered_at = [(*address, *port)].into_iter().chain(also_at.iter().copied());
    let hostnames: BTreeSet<String> = offered_at
        .flat_map(|at| named.get(&at).into_iter().flatten().map(move |name| format!("{name}:{}", at.1)))
        .collect();
    let kri = match destination {
        DestinationId::Port(kri) => kri.to_string(),
        DestinationId::Tags(_) => String::new(),
    };
    let of_destination = mesh.destinations.get(destination).map(|destination| destination.port);
    // Also the connections of an HTTP service may be spread without a look at requests.
    let requests = matches!(routing, Routing::Requests(_));
    let parts = Parts {
        listener: (&names.listener, names.listener_stats.as_ref()),
        at: (*address, *port),
        cluster: (&names.cluster, names.cluster_stats.as_ref()),
        filter_stats: &names.filter_stats,
        routes: requests.then_some((&names.route_configuration, &names.virtual_host)),
    };
    ProxyLayoutItem {
        kri,
        port: of_destination.filter(|port| *port != 0).unwrap_or((*port).into()),
        protocol: protocol.word().into(),
        hostnames: hostnames.into_iter().collect(),
        proxy_resource_name: names.cluster.clone(),
        proxy_resources: Some(parts.shown()),
    }
}

/// A destination that the proxy does not have.
fn not_called(destination: &Destination) -> Option<ProxyLayoutItem> {
    let DestinationId::Port(kri) = &destination.id else { return None };
    Some(ProxyLayoutItem {
        kri: kri.to_string(),
        port: destination.port,
        protocol: destination.protocol.word().into(),
        hostnames: Vec::new(),
        proxy_resource_name: kri.to_string(),
        proxy_resources: None,
    })
}

fn passthrough(passthrough: &Passthrough) -> ProxyLayoutPassthrough {
    let Passthrough { names, address, port, direction, allowed, .. } = passthrough;
    let parts = Parts {
        listener: (&names.listener, names.listener_stats.as_ref()),
        at: (*address, *port),
        cluster: (&names.cluster, names.cluster_stats.as_ref()),
        filter_stats: &names.filter_stats,
        routes: None,
    };
    ProxyLayoutPassthrough {
        direction: match direction {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        }
        .into(),
        ip_version: if address.is_ipv6() { "ipv6" } else { "ipv4" }.into(),
        port: (*port).into(),
        allowed: *allowed,
        proxy_resource_name: names.listener.clone(),
        proxy_resources: parts.shown(),
    }
}

/// Names of the parts that traffic passes; names in statistics only where they differ.
struct Parts<'a> {
    listener: (&'a String, Option<&'a String>),
    at: (IpAddr, u16),
    cluster: (&'a String, Option<&'a String>),
    filter_stats: &'a String,
    /// Route configuration and virtual host, where requests are looked at.
    routes: Option<(&'a String, &'a String)>,
}

impl Parts<'_> {
    fn shown(&self) -> ProxyResources {
        let (listener, listener_stats) = self.listener;
        let (cluster, cluster_stats) = self.cluster;
        let (address, port) = self.at;
        ProxyResources {
            listener: listener.clone(),
            cluster: cluster.clone(),
            route_configuration: self.routes.map(|(configuration, _)| configuration.clone()),
            virtual_host: self.routes.map(|(_, host)| host.clone()),
            stats: ProxyResourceStats {
                listener: listener_stats.cloned().unwrap_or_else(|| address_stats(address, port)),
                cluster: cluster_stats.unwrap_or(cluster).clone(),
                filter: self.filter_stats.clone(),
                permissions: None,
            },
        }
    }
}
