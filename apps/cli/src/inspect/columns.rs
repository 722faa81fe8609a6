//! Columns of the tables of `inspect`: the titles Kuma gives them, the most asked for by default.

use std::collections::{BTreeMap, BTreeSet};

use contract::{
    overview::{DataplaneOverview, ZoneEgressOverview, ZoneIngressOverview, ZoneOverview},
    resource::ShownResource,
};
use jiff::Timestamp;
use resources::kinds::{
    dataplane::{Inbound, InboundState},
    dataplane_insight::{CertificateStatus, DiscoverySubscription, ResponseCounts},
    mesh_insight::{DataplaneStat, MeshInsight},
    proto::ProtoEnum,
    service_insight::{Service, ServiceStatus},
    zone_insight::KdsSubscription,
};

use crate::{
    cell::{Column, ago, line, lines, list, since},
    insight::{self, Connection, is_online, last_connected, last_updated, total, version},
};

/// A row of a table: a resource or an overview.
type Of<S> = Column<ShownResource<S>>;

const SENT: fn(&ResponseCounts) -> u64 = |counts| counts.responses_sent;
const ACKNOWLEDGED: fn(&ResponseCounts) -> u64 = |counts| counts.responses_acknowledged;
const REJECTED: fn(&ResponseCounts) -> u64 = |counts| counts.responses_rejected;

pub fn dataplanes(wide: bool) -> Vec<Of<DataplaneOverview>> {
    let mut columns: Vec<Of<DataplaneOverview>> = vec![
        ("MESH", |row| line(&row.metadata.mesh)),
        ("NAME", |row| line(&row.metadata.name)),
        ("TAGS", |row| tags(&row.of)),
        ("STATUS", |row| proxy_status(&row.of)),
        ("LAST CONNECTED AGO", |row| last_connected(&row.of.dataplane_insight.subscriptions)),
        ("LAST UPDATED AGO", |row| last_updated(&row.of.dataplane_insight.subscriptions)),
        ("TOTAL UPDATES", |row| total(&row.of.dataplane_insight.subscriptions, SENT)),
        ("TOTAL ACKNOWLEDGED", |row| total(&row.of.dataplane_insight.subscriptions, ACKNOWLEDGED)),
        ("TOTAL ERRORS", |row| total(&row.of.dataplane_insight.subscriptions, REJECTED)),
        ("NAMES", |row| insight::naming(&row.of.dataplane_insight.metadata)),
    ];
    if wide {
        columns.extend::<[Of<DataplaneOverview>; 6]>([
            ("CERT REGENERATED AGO", |row| ago(certificate(row).last_certificate_regeneration)),
            ("CERT EXPIRATION", |row| moment(certificate(row).certificate_expiration_time)),
            ("CERT REGENERATIONS", |row| match certificate(row).certificate_regenerations {
                0 => String::new(),
                count => count.to_string(),
            }),
            ("CERT BACKEND", |row| line(&certificate(row).issued_backend)),
            ("KUMA-DP VERSION", |row| agent(&row.of.dataplane_insight.subscriptions)),
            ("ENVOY VERSION", |row| envoy(&row.of.dataplane_insight.subscriptions)),
        ]);
    }
    columns
}

pub fn zones(wide: bool) -> Vec<Of<ZoneOverview>> {
    let mut columns: Vec<Of<ZoneOverview>> = vec![
        ("NAME", |row| line(&row.metadata.name)),
        ("STATUS", |row| zone_status(&row.of).to_owned()),
        ("SINCE", |row| moment(zone_status_since(&row.of))),
        ("LAST CONNECTED AGO", |row| last_connected(&row.of.zone_insight.subscriptions)),
        ("LAST UPDATED AGO", |row| last_updated(&row.of.zone_insight.subscriptions)),
        ("TOTAL UPDATES", |row| total(&row.of.zone_insight.subscriptions, SENT)),
        ("TOTAL ERRORS", |row| total(&row.of.zone_insight.subscriptions, REJECTED)),
        ("ZONE-CP VERSION", |row| zone_version(&row.of)),
        ("PROBLEMS", |row| problems(&row.of)),
    ];
    if wide {
        columns.push(("ENABLED", |row| if row.of.zone.is_enabled() { "yes" } else { "no" }.to_owned()));
        columns.push(("ZONE-CP INSTANCE", |row| {
            let latest = insight::latest(&row.of.zone_insight.subscriptions);
            latest.map(|latest| line(&latest.zone_instance_id)).unwrap_or_default()
        }));
    }
    columns
}

pub fn zone_ingresses(wide: bool) -> Vec<Of<ZoneIngressOverview>> {
    let mut columns: Vec<Of<ZoneIngressOverview>> = vec![
        ("ZONE", |row| line(&row.of.zone_ingress.zone)),
        ("NAME", |row| line(&row.metadata.name)),
        ("ADVERTISED", |row| {
            let networking = row.of.zone_ingress.networking.as_ref();
            networking.map(|of| place(&of.advertised_address, of.advertised_port)).unwrap_or_default()
        }),
        ("STATUS", |row| online_or_not(&row.of.zone_ingress_insight.subscriptions)),
        ("LAST CONNECTED AGO", |row| last_connected(&row.of.zone_ingress_insight.subscriptions)),
        ("LAST UPDATED AGO", |row| last_updated(&row.of.zone_ingress_insight.subscriptions)),
        ("TOTAL UPDATES", |row| total(&row.of.zone_ingress_insight.subscriptions, SENT)),
        ("TOTAL ERRORS", |row| total(&row.of.zone_ingress_insight.subscriptions, REJECTED)),
        ("NAMES", |row| insight::naming(&row.of.zone_ingress_insight.metadata)),
    ];
    if wide {
        columns.push(("ADDRESS", |row| {
            let networking = row.of.zone_ingress.networking.as_ref();
            networking.map(|of| place(&of.address, of.port)).unwrap_or_default()
        }));
        columns.push(("KUMA-DP VERSION", |row| agent(&row.of.zone_ingress_insight.subscriptions)));
        columns.push(("ENVOY VERSION", |row| envoy(&row.of.zone_ingress_insight.subscriptions)));
    }
    columns
}

pub fn zone_egresses(wide: bool) -> Vec<Of<ZoneEgressOverview>> {
    let mut columns: Vec<Of<ZoneEgressOverview>> = vec![
        ("ZONE", |row| line(&row.of.zone_egress.zone)),
        ("NAME", |row| line(&row.metadata.name)),
        ("ADDRESS", |row| {
            let networking = row.of.zone_egress.networking.as_ref();
            networking.map(|of| place(&of.address, of.port)).unwrap_or_default()
        }),
        ("STATUS", |row| online_or_not(&row.of.zone_egress_insight.subscriptions)),
        ("LAST CONNECTED AGO", |row| last_connected(&row.of.zone_egress_insight.subscriptions)),
        ("LAST UPDATED AGO", |row| last_updated(&row.of.zone_egress_insight.subscriptions)),
        ("TOTAL UPDATES", |row| total(&row.of.zone_egress_insight.subscriptions, SENT)),
        ("TOTAL ERRORS", |row| total(&row.of.zone_egress_insight.subscriptions, REJECTED)),
        ("NAMES", |row| insight::naming(&row.of.zone_egress_insight.metadata)),
    ];
    if wide {
        columns.push(("KUMA-DP VERSION", |row| agent(&row.of.zone_egress_insight.subscriptions)));
        columns.push(("ENVOY VERSION", |row| envoy(&row.of.zone_egress_insight.subscriptions)));
    }
    columns
}

/// `192.168.0.1:10001`; empty where none is advertised.
fn place(address: &str, port: u32) -> String {
    if address.is_empty() { String::new() } else { format!("{}:{port}", line(address)) }
}

fn online_or_not<S: insight::Subscription>(subscriptions: &[S]) -> String {
    if is_online(subscriptions) { "Online" } else { "Offline" }.to_owned()
}

fn agent(subscriptions: &[DiscoverySubscription]) -> String {
    version(subscriptions).kuma_dp.map(|of| line(&of.version)).unwrap_or_default()
}

fn envoy(subscriptions: &[DiscoverySubscription]) -> String {
    version(subscriptions).envoy.map(|of| line(&of.version)).unwrap_or_default()
}

pub fn meshes(wide: bool) -> Vec<Of<MeshInsight>> {
    let mut columns: Vec<Of<MeshInsight>> = vec![
        ("NAME", |row| line(&row.metadata.name)),
        ("DATAPLANES", |row| online(row.of.dataplanes.as_ref())),
        ("DEGRADED", |row| row.of.dataplanes.map_or(0, |of| of.partially_degraded).to_string()),
        ("SERVICES", |row| row.of.services.map_or(0, |of| of.total).to_string()),
        ("POLICIES", |row| {
            row.of.policies.values().map(|policies| u64::from(policies.total)).sum::<u64>().to_string()
        }),
        ("CERT BACKENDS", |row| {
            row.of.mtls.as_ref().map(|of| by_key(&of.issued_backends)).unwrap_or_default()
        }),
    ];
    if wide {
        columns.push(("KUMA-DP VERSIONS", |row| {
            row.of.dp_versions.as_ref().map(|of| by_key(&of.kuma_dp)).unwrap_or_default()
        }));
        columns.push(("ENVOY VERSIONS", |row| {
            row.of.dp_versions.as_ref().map(|of| by_key(&of.envoy)).unwrap_or_default()
        }));
        columns.push(("LAST UPDATED AGO", |row| {
            row.metadata.modification_time.as_deref().map(since).unwrap_or_default()
        }));
    }
    columns
}

pub fn services(wide: bool) -> Vec<Of<Service>> {
    let mut columns: Vec<Of<Service>> = vec![
        ("MESH", |row| line(&row.metadata.mesh)),
        ("NAME", |row| line(&row.metadata.name)),
        ("TYPE", |row| row.of.service_type.name().to_owned()),
        ("STATUS", |row| {
            match row.of.status {
                ServiceStatus::Online => "Online",
                ServiceStatus::Offline => "Offline",
                ServiceStatus::PartiallyDegraded => "Partially degraded",
                ServiceStatus::NotAvailable => "Not available",
            }
            .to_owned()
        }),
        ("DATAPLANES", |row| online(row.of.dataplanes.as_ref())),
        ("ADDRESS", |row| line(&row.of.address_port)),
    ];
    if wide {
        columns.push(("ZONES", |row| list(&row.of.zones, |zone| line(zone))));
        columns.push(("CERT BACKENDS", |row| counted(&row.of.issued_backends)));
    }
    columns
}

/// `kuma.io/protocol=http kuma.io/service=web,web-admin`: all values of a tag together.
fn tags(of: &DataplaneOverview) -> String {
    let Some(networking) = &of.dataplane.networking else { return String::new() };
    let of_inbounds = networking.inbound.iter().map(|inbound| &inbound.tags);
    let of_gateway = networking.gateway.iter().map(|gateway| &gateway.tags);
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in of_inbounds.chain(of_gateway).flatten() {
        all.entry(key).or_default().insert(value);
    }
    let shown = all.into_iter().map(|(key, values)| format!("{key}={}", lines(values, ",")));
    shown.collect::<Vec<_>>().join(" ")
}

/// A proxy is as well as its connection and, unless it is a gateway, its inbounds.
fn proxy_status(of: &DataplaneOverview) -> String {
    if !is_online(&of.dataplane_insight.subscriptions) {
        return "Offline".to_owned();
    }
    let networking = of.dataplane.networking.as_ref();
    let inbounds = networking.map(|networking| networking.inbound.as_slice()).unwrap_or_default();
    let ready = inbounds.iter().filter(|inbound| takes_traffic(inbound)).count();
    match ready {
        _ if networking.is_some_and(|networking| networking.gateway.is_some()) => "Online",
        ready if ready == inbounds.len() => "Online",
        0 => "Offline",
        _ => "Partially degraded",
    }
    .to_owned()
}

fn takes_traffic(inbound: &Inbound) -> bool {
    inbound.state != InboundState::NotReady && inbound.health.as_ref().is_none_or(|health| health.ready)
}

fn zone_status(of: &ZoneOverview) -> &'static str {
    let absence = of.zone_insight.absence.as_ref();
    if !of.zone.is_enabled() {
        "Offline"
    } else if is_online(&of.zone_insight.subscriptions) {
        "Online"
    } else if absence.is_some_and(|absence| !absence.withdrawn) {
        // Its connection is lost, and others still call it.
        "Unknown"
    } else {
        "Offline"
    }
}

/// Time at which the connection came, or went.
fn zone_status_since(of: &ZoneOverview) -> Option<Timestamp> {
    if !of.zone.is_enabled() {
        return None;
    }
    let newest = Connection::newest(&of.zone_insight.subscriptions);
    if newest.online {
        return newest.connect_time;
    }
    of.zone_insight.absence.as_ref().and_then(|absence| absence.since).or(newest.disconnect_time)
}

fn zone_version(of: &ZoneOverview) -> String {
    let latest: Option<&KdsSubscription> = insight::latest(&of.zone_insight.subscriptions);
    let version = latest.and_then(|latest| latest.version.as_ref()?.kuma_cp.as_ref());
    version.map(|version| line(&version.version)).unwrap_or_default()
}

/// `MeshTimeout rejected by the zone: …`; a zone also says why it has no connection.
fn problems(of: &ZoneOverview) -> String {
    let shown = list(&of.zone_insight.problems, |problem| {
        format!("{} {}: {}", line(&problem.kind), line(&problem.what), line(&problem.reason))
    });
    let reason = of.zone_insight.absence.as_ref().map_or("", |absence| &absence.reason);
    if reason.is_empty() {
        return shown;
    }
    let separator = if shown.is_empty() { "" } else { "," };
    format!("not connected: {reason}{separator}{shown}")
}

fn certificate(row: &ShownResource<DataplaneOverview>) -> CertificateStatus {
    row.of.dataplane_insight.mtls.clone().unwrap_or_default()
}

/// `2024-05-02 10:00:00`, in UTC.
fn moment(time: Option<Timestamp>) -> String {
    time.map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}

/// `3/4`: online of all.
fn online(of: Option<&DataplaneStat>) -> String {
    of.map(|of| format!("{}/{}", of.online, of.total)).unwrap_or_default()
}

/// `ca-1=3,ca-2=1`: how many proxies each has.
fn by_key(of: &BTreeMap<String, DataplaneStat>) -> String {
    list(of, |(key, stat)| format!("{key}={}", stat.total))
}

/// [`by_key`] of plain counts.
fn counted(of: &BTreeMap<String, u32>) -> String {
    list(of, |(key, count)| format!("{key}={count}"))
}
