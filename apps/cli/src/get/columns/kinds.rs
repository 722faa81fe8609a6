//! Columns of each kind: those that an operator asks about first.

use contract::resource::{SpecAndStatus, SpecForm};
use resources::{
    Kind, NoStatus,
    kinds::{
        dataplane::{Dataplane, Inbound},
        dataplane_insight::DataplaneInsight,
        hostname_generator::HostnameGenerator,
        mesh::Mesh,
        mesh_external_service::MeshExternalService,
        mesh_identity::MeshIdentity,
        mesh_insight::MeshInsight,
        mesh_multi_zone_service::MeshMultiZoneService,
        mesh_open_telemetry_backend::MeshOpenTelemetryBackend,
        mesh_service::{DataplaneProxies, MeshService, Port},
        mesh_trust::MeshTrust,
        mesh_zone_address::MeshZoneAddress,
        proto::ProtoEnum,
        service_insight::ServiceInsight,
        service_status::{Address, Vip},
        virtual_outbound::VirtualOutbound,
        workload::Workload,
        zone::Zone,
        zone_egress::ZoneEgress,
        zone_ingress::ZoneIngress,
        zone_insight::ZoneInsight,
        zone_proxy_insight::{ZoneEgressInsight, ZoneIngressInsight},
    },
    labels,
};
use serde::Deserialize;

use super::{Cells, Columns, Table, policies};
use crate::{
    cell::{endpoint, line, list},
    insight::{Subscription, is_online, last_connected},
};

pub fn cells(table: &Table<'_>, kind: Option<Kind>) -> Cells {
    match kind {
        Some(Kind::Mesh) => meshes(table),
        Some(Kind::Dataplane) => dataplanes(table),
        Some(Kind::Zone) => table.cells::<Zone>(
            vec![("ENABLED", |row| if row.of.is_enabled() { "yes" } else { "no" }.to_owned())],
            Vec::new(),
        ),
        Some(Kind::ZoneIngress) => zone_ingresses(table),
        Some(Kind::ZoneEgress) => zone_egresses(table),
        Some(
            kind @ (Kind::DataplaneInsight
            | Kind::ZoneInsight
            | Kind::ZoneIngressInsight
            | Kind::ZoneEgressInsight
            | Kind::MeshInsight
            | Kind::ServiceInsight),
        ) => insights(table, kind),
        Some(Kind::VirtualOutbound) => virtual_outbounds(table),
        Some(Kind::HostnameGenerator) => table.cells::<SpecForm<HostnameGenerator>>(
            vec![("TEMPLATE", |row| line(&row.of.spec.template))],
            Vec::new(),
        ),
        Some(Kind::MeshService) => mesh_services(table),
        Some(Kind::MeshMultiZoneService) => mesh_multi_zone_services(table),
        Some(Kind::MeshExternalService) => mesh_external_services(table),
        Some(Kind::MeshOpenTelemetryBackend) => telemetry_backends(table),
        Some(Kind::MeshIdentity) => mesh_identities(table),
        Some(Kind::MeshTrust) => mesh_trusts(table),
        Some(Kind::Workload) => workloads(table),
        Some(Kind::MeshZoneAddress) => table.cells::<SpecForm<MeshZoneAddress>>(
            vec![("ADDRESS", |row| place(&row.of.spec.address, row.of.spec.port))],
            Vec::new(),
        ),
        Some(other) if other.descriptor().policy.is_some() => policies::cells(table, other),
        _ => table.cells::<NoStatus>(Vec::new(), Vec::new()),
    }
}

fn meshes(table: &Table<'_>) -> Cells {
    let own: Columns<Mesh> = vec![
        // The backend in use.
        ("MTLS", |row| match row.of.mtls.as_ref().map(|mtls| line(&mtls.enabled_backend)) {
            Some(backend) if !backend.is_empty() => backend,
            _ => "off".to_owned(),
        }),
        ("SERVICES", |row| row.of.mesh_services_mode().name().to_owned()),
    ];
    let wide: Columns<Mesh> = vec![
        ("EGRESS", |row| yes(row.of.routing.as_ref().is_some_and(|of| of.zone_egress))),
        ("LOCALITY", |row| yes(row.of.routing.as_ref().is_some_and(|of| of.locality_aware_load_balancing))),
    ];
    table.cells(own, wide)
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn dataplanes(table: &Table<'_>) -> Cells {
    let own: Columns<Dataplane> = vec![
        ("ADDRESS", |row| row.of.networking.as_ref().map(|of| line(&of.address)).unwrap_or_default()),
        ("INBOUNDS", |row| {
            list(inbounds(&row.of), |inbound| {
                let tag = inbound.tags.get(labels::PROTOCOL).map_or("", String::as_str);
                port(inbound.port, if tag.is_empty() { &inbound.protocol } else { tag })
            })
        }),
        ("SERVICES", |row| {
            let services = inbounds(&row.of).iter().filter_map(|inbound| inbound.tags.get(labels::SERVICE));
            list(services, |service| line(service))
        }),
    ];
    table.cells(own, Vec::new())
}

fn inbounds(of: &Dataplane) -> &[Inbound] {
    of.networking.as_ref().map(|networking| networking.inbound.as_slice()).unwrap_or_default()
}

fn zone_ingresses(table: &Table<'_>) -> Cells {
    let own: Columns<ZoneIngress> = vec![
        ("IN ZONE", |row| line(&row.of.zone)),
        ("ADDRESS", |row| {
            row.of.networking.as_ref().map(|of| place(&of.address, of.port)).unwrap_or_default()
        }),
        ("ADVERTISED", |row| {
            let networking = row.of.networking.as_ref();
            networking.map(|of| place(&of.advertised_address, of.advertised_port)).unwrap_or_default()
        }),
    ];
    table.cells(own, Vec::new())
}

fn zone_egresses(table: &Table<'_>) -> Cells {
    let own: Columns<ZoneEgress> = vec![
        ("IN ZONE", |row| line(&row.of.zone)),
        ("ADDRESS", |row| {
            row.of.networking.as_ref().map(|of| place(&of.address, of.port)).unwrap_or_default()
        }),
    ];
    table.cells(own, Vec::new())
}

fn insights(table: &Table<'_>, kind: Kind) -> Cells {
    let mesh: Columns<MeshInsight> = vec![("DATAPLANES", |row| {
        let of = row.of.dataplanes.unwrap_or_default();
        format!("{}/{}", of.online, of.total)
    })];
    let services: Columns<ServiceInsight> = vec![("SERVICES", |row| row.of.services.len().to_string())];
    let proxies: Columns<DataplaneInsight> = vec![
        ("ONLINE", |row| online(&row.of.subscriptions)),
        ("CONNECTED", |row| last_connected(&row.of.subscriptions)),
    ];
    let zones: Columns<ZoneInsight> = vec![
        ("ONLINE", |row| online(&row.of.subscriptions)),
        ("CONNECTED", |row| last_connected(&row.of.subscriptions)),
    ];
    let ingresses: Columns<ZoneIngressInsight> = vec![
        ("ONLINE", |row| online(&row.of.subscriptions)),
        ("CONNECTED", |row| last_connected(&row.of.subscriptions)),
    ];
    let egresses: Columns<ZoneEgressInsight> = vec![
        ("ONLINE", |row| online(&row.of.subscriptions)),
        ("CONNECTED", |row| last_connected(&row.of.subscriptions)),
    ];
    match kind {
        Kind::MeshInsight => table.cells(mesh, Vec::new()),
        Kind::ServiceInsight => table.cells(services, Vec::new()),
        Kind::ZoneInsight => table.cells(zones, Vec::new()),
        Kind::ZoneIngressInsight => table.cells(ingresses, Vec::new()),
        Kind::ZoneEgressInsight => table.cells(egresses, Vec::new()),
        _ => table.cells(proxies, Vec::new()),
    }
}

fn online<S: Subscription>(subscriptions: &[S]) -> String {
    yes(is_online(subscriptions))
}

fn virtual_outbounds(table: &Table<'_>) -> Cells {
    let own: Columns<VirtualOutbound> = vec![
        ("HOST", |row| row.of.conf.as_ref().map(|conf| line(&conf.host)).unwrap_or_default()),
        ("PORT", |row| {
            let port = row.of.conf.as_ref().and_then(|conf| conf.port.as_ref());
            port.map(|port| line(&port.to_string())).unwrap_or_default()
        }),
    ];
    table.cells(own, Vec::new())
}

/// Status of a MeshService, which tells proxies that were not counted from none.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    addresses: Vec<Address>,
    vips: Vec<Vip>,
    dataplane_proxies: Option<DataplaneProxies>,
}

fn mesh_services(table: &Table<'_>) -> Cells {
    let own: Columns<SpecAndStatus<MeshService, Status>> = vec![
        ("PORTS", |row| ports(&row.of.spec.ports)),
        ("STATE", |row| line(row.of.spec.state.as_str())),
        ("HOSTNAMES", |row| hostnames(&row.of.status.addresses)),
    ];
    let wide: Columns<SpecAndStatus<MeshService, Status>> = vec![
        ("VIPS", |row| vips(&row.of.status.vips)),
        ("PROXIES", |row| {
            let proxies = row.of.status.dataplane_proxies.as_ref();
            proxies.map(|of| format!("{}/{}", of.connected, of.total)).unwrap_or_default()
        }),
    ];
    table.cells(own, wide)
}

fn mesh_multi_zone_services(table: &Table<'_>) -> Cells {
    let own: Columns<SpecForm<MeshMultiZoneService>> = vec![
        ("PORTS", |row| ports(&row.of.spec.ports)),
        ("HOSTNAMES", |row| hostnames(&row.of.status.addresses)),
    ];
    let wide: Columns<SpecForm<MeshMultiZoneService>> =
        vec![("VIPS", |row| vips(&row.of.status.vips)), ("PROXIES", |_| String::new())];
    table.cells(own, wide)
}

fn mesh_external_services(table: &Table<'_>) -> Cells {
    let own: Columns<SpecForm<MeshExternalService>> = vec![
        ("MATCH", |row| port(row.of.spec.match_.port, row.of.spec.match_.protocol.as_str())),
        ("ENDPOINTS", |row| list(row.of.spec.endpoints.iter().flatten(), |of| place(&of.address, of.port))),
        ("HOSTNAMES", |row| hostnames(&row.of.status.addresses)),
    ];
    let wide: Columns<SpecForm<MeshExternalService>> =
        vec![("VIPS", |row| line(&row.of.status.vip.ip)), ("PROXIES", |_| String::new())];
    table.cells(own, wide)
}

fn telemetry_backends(table: &Table<'_>) -> Cells {
    let own: Columns<SpecForm<MeshOpenTelemetryBackend>> = vec![
        ("ENDPOINT", |row| {
            let Some(of) = &row.of.spec.endpoint else { return String::new() };
            endpoint(of.address.as_deref().unwrap_or_default(), of.port.and_then(|port| port.try_into().ok()))
        }),
        // gRPC if nothing is said.
        ("PROTOCOL", |row| match row.of.spec.protocol.as_ref().map(|protocol| line(protocol.as_str())) {
            Some(protocol) if !protocol.is_empty() => protocol,
            _ => "grpc".to_owned(),
        }),
        ("REFERENCED", |row| list(&row.of.status.conditions, |condition| line(&condition.reason))),
    ];
    table.cells(own, Vec::new())
}

fn mesh_identities(table: &Table<'_>) -> Cells {
    let own: Columns<SpecForm<MeshIdentity>> = vec![
        ("PROVIDER", |row| {
            row.of.spec.provider.as_ref().map(|provider| line(provider.type_.as_str())).unwrap_or_default()
        }),
        ("READY", |row| {
            let ready = row.of.status.conditions.iter().filter(|condition| condition.type_ == "Ready");
            ready.map(|condition| line(&condition.status)).collect()
        }),
    ];
    table.cells(own, Vec::new())
}

fn mesh_trusts(table: &Table<'_>) -> Cells {
    let own: Columns<SpecForm<MeshTrust>> = vec![
        ("TRUST DOMAIN", |row| line(&row.of.spec.trust_domain)),
        ("BUNDLES", |row| row.of.spec.ca_bundles.len().to_string()),
    ];
    table.cells(own, Vec::new())
}

fn workloads(table: &Table<'_>) -> Cells {
    let own: Columns<SpecForm<Workload>> = vec![
        ("PROXIES", |row| row.of.status.dataplane_proxies.total.to_string()),
        ("CONNECTED", |row| row.of.status.dataplane_proxies.connected.to_string()),
        ("HEALTHY", |row| row.of.status.dataplane_proxies.healthy.to_string()),
    ];
    table.cells(own, Vec::new())
}

fn ports(of: &[Port]) -> String {
    list(of, |of| port(of.port, of.app_protocol.as_str()))
}

/// `80/http`.
fn port(port: u32, protocol: &str) -> String {
    let number = if port == 0 { String::new() } else { port.to_string() };
    format!("{number}/{}", if protocol.is_empty() { "tcp".to_owned() } else { line(protocol) })
}

/// `10.0.0.1:80`; a port of zero is one that is not said.
fn place(address: &str, port: u32) -> String {
    endpoint(address, (port != 0).then_some(port))
}

fn hostnames(addresses: &[Address]) -> String {
    list(addresses, |address| line(&address.hostname))
}

fn vips(vips: &[Vip]) -> String {
    list(vips, |vip| line(&vip.ip))
}
