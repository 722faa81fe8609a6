//! What a proxy consists of, read off the plan that its configuration is made from.

use api::inspect::layout::{Layout, LayoutItem, LayoutPassthrough, ProxyResourceStats, ProxyResources};
use plan::{Inbound, Outbound, Passthrough, ProxyPlan, known::address_stats};
use policy::Client;
use resources::{
    Resource,
    naming::{Direction, Kri},
};
use topology::{DestinationId, MeshSnapshot, Protocol};

/// The layout of the proxy of `dataplane`, which has this plan.
pub fn of(mesh: &MeshSnapshot, dataplane: &Resource, plan: ProxyPlan) -> Layout {
    let own = dataplane.kri("");
    let mut outbounds: Vec<LayoutItem> = plan.outbounds.iter().map(|o| outbound(mesh, o)).collect();
    outbounds.sort_by(|a, b| (&a.kri, &a.proxy_resource_name).cmp(&(&b.kri, &b.proxy_resource_name)));
    Layout {
        kri: own.as_ref().map(Kri::to_string).unwrap_or_default(),
        labels: dataplane.labels.clone(),
        spiffe_id: mesh.mtls.as_ref().and_then(|_| Client::of_dataplane(dataplane).spiffe_ids.pop_first()),
        inbounds: plan.inbounds.iter().map(|i| inbound(own.as_ref(), i)).collect(),
        outbounds,
        listeners: Vec::new(),
        passthrough: plan.passthrough.iter().map(passthrough).collect(),
        problems: plan.problems,
    }
}

fn inbound(dataplane: Option<&Kri>, inbound: &Inbound) -> LayoutItem {
    let Inbound { names, address, port, protocol, section, .. } = inbound;
    let kri = dataplane.map(|dataplane| dataplane.with_section(section.as_str()));
    let permissions = inbound.permissions.as_ref().map(|_| names.permission_stats.trim_end_matches('.'));
    let listener = names.listener_stats.clone().unwrap_or_else(|| address_stats(*address, *port));
    LayoutItem {
        kri: kri.map(|kri| kri.to_string()).unwrap_or_default(),
        port: (*port).into(),
        protocol: word(*protocol),
        proxy_resource_name: names.cluster.clone(),
        proxy_resources: ProxyResources {
            listener: names.listener.clone(),
            cluster: names.cluster.clone(),
            route_configuration: is_http(*protocol).then(|| names.route_configuration.clone()),
            virtual_host: is_http(*protocol).then(|| names.virtual_host.clone()),
            stats: ProxyResourceStats {
                listener,
                cluster: names.cluster_stats.clone().unwrap_or_else(|| names.cluster.clone()),
                filter: names.filter_stats.clone(),
                permissions: permissions.map(str::to_owned),
            },
        },
    }
}

fn outbound(mesh: &MeshSnapshot, outbound: &Outbound) -> LayoutItem {
    let Outbound { names, destination, address, port, protocol, .. } = outbound;
    let kri = match destination {
        DestinationId::Port(kri) => kri.to_string(),
        DestinationId::Tags(_) => String::new(),
    };
    let of_destination = mesh.destinations.get(destination).map(|destination| destination.port);
    LayoutItem {
        kri,
        port: of_destination.filter(|port| *port != 0).unwrap_or((*port).into()),
        protocol: word(*protocol),
        proxy_resource_name: names.cluster.clone(),
        proxy_resources: ProxyResources {
            listener: names.listener.clone(),
            cluster: names.cluster.clone(),
            route_configuration: is_http(*protocol).then(|| names.route_configuration.clone()),
            virtual_host: is_http(*protocol).then(|| names.virtual_host.clone()),
            stats: ProxyResourceStats {
                listener: names.listener_stats.clone().unwrap_or_else(|| address_stats(*address, *port)),
                cluster: names.cluster_stats.clone().unwrap_or_else(|| names.cluster.clone()),
                filter: names.filter_stats.clone(),
                permissions: None,
            },
        },
    }
}

fn passthrough(passthrough: &Passthrough) -> LayoutPassthrough {
    let Passthrough { names, address, port, direction, allowed, .. } = passthrough;
    LayoutPassthrough {
        direction: match direction {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        },
        ip_version: if address.is_ipv6() { "ipv6" } else { "ipv4" },
        port: (*port).into(),
        allowed: *allowed,
        proxy_resource_name: names.cluster.clone(),
        proxy_resources: ProxyResources {
            listener: names.listener.clone(),
            cluster: names.cluster.clone(),
            route_configuration: None,
            virtual_host: None,
            stats: ProxyResourceStats {
                listener: names.listener_stats.clone().unwrap_or_else(|| address_stats(*address, *port)),
                cluster: names.cluster_stats.clone().unwrap_or_else(|| names.cluster.clone()),
                filter: names.filter_stats.clone(),
                permissions: None,
            },
        },
    }
}

fn is_http(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Http2 | Protocol::Grpc)
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http => "http",
        Protocol::Http2 => "http2",
        Protocol::Grpc => "grpc",
        Protocol::Kafka => "kafka",
        Protocol::Tcp => "tcp",
    }
}
