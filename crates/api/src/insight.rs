//! Counts over the whole control plane.
//!
//! Totals are counted where they are asked for, so they are never behind; how proxies and services
//! fare comes from the insights that watch them.

use std::{borrow::Cow, collections::BTreeMap};

use axum::response::Response;
use contract::insight::{
    DataplaneCounts, GlobalInsight, GlobalInsights, HealthCounts, OnlineCounts, ResourceCount, ServiceCounts,
    ZoneCounts,
};
use jiff::Timestamp;
use resources::{
    Kind, Scope,
    kind::{Administered, TypedSpec},
    kinds::{
        mesh_insight::{DataplaneStat, MeshInsight},
        service_insight::{ServiceInsight, ServiceStatus, ServiceType},
        zone_insight::ZoneInsight,
        zone_proxy_insight::{ZoneEgressInsight, ZoneIngressInsight},
    },
};
use store::Snapshot;

use crate::{Error, call::Call, json};

/// `GET /global-insight`.
pub fn global_insight(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let policies = kinds().filter(|k| k.descriptor().policy.is_some()).map(|k| snapshot.count(k, None)).sum();
    Ok(json::ok(&GlobalInsight {
        created_at: Timestamp::now().to_string(),
        dataplanes: dataplanes(&snapshot),
        meshes: ResourceCount { total: snapshot.count(Kind::Mesh, None) },
        policies: ResourceCount { total: policies },
        resources: totals(&snapshot, |kind| is_in_total(kind) && snapshot.count(kind, None) > 0),
        services: services(&snapshot),
        zones: ZoneCounts {
            control_planes: online(&snapshot, ZoneInsight::is_online),
            zone_egresses: online(&snapshot, ZoneEgressInsight::is_online),
            zone_ingresses: online(&snapshot, ZoneIngressInsight::is_online),
        },
    }))
}

/// Meshes and zones have counts of their own, and what only administrators see is left out.
fn is_in_total(kind: Kind) -> bool {
    match kind {
        Kind::Mesh | Kind::Zone | Kind::ZoneIngress | Kind::ZoneEgress => false,
        kind => {
            let descriptor = kind.descriptor();
            let shown =
                descriptor.scope == Scope::Mesh || descriptor.administered != Administered::Everything;
            shown && !kind.is_insight()
        }
    }
}

/// `GET /global-insights`: how many resources of each global kind there are.
pub fn global_insights(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let resources = totals(&snapshot, |kind| kind.descriptor().scope == Scope::Global && !kind.is_insight());
    Ok(json::ok(&GlobalInsights {
        r#type: "GlobalInsights".into(),
        creation_time: Timestamp::now().to_string(),
        resources,
    }))
}

fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| !kind.descriptor().path.is_empty())
}

fn totals(snapshot: &Snapshot, counts: impl Fn(Kind) -> bool) -> BTreeMap<Cow<'static, str>, ResourceCount> {
    let total = |kind: Kind| (kind.name().into(), ResourceCount { total: snapshot.count(kind, None) });
    kinds().filter(|&kind| counts(kind)).map(total).collect()
}

fn dataplanes(snapshot: &Snapshot) -> DataplaneCounts {
    let mut counts = DataplaneCounts::default();
    for insight in snapshot.of_kind(Kind::MeshInsight).filter_map(|r| r.spec.get::<MeshInsight>()) {
        let Some(by_type) = &insight.dataplanes_by_type else { continue };
        add(&mut counts.standard, by_type.standard);
        add(&mut counts.gateway_builtin, by_type.gateway_builtin);
        add(&mut counts.gateway_delegated, by_type.gateway_delegated);
    }
    counts
}

fn add(sum: &mut HealthCounts, part: Option<DataplaneStat>) {
    let part = part.unwrap_or_default();
    sum.total += part.total;
    sum.online += part.online;
    sum.offline += part.offline;
    sum.partially_degraded += part.partially_degraded;
}

fn services(snapshot: &Snapshot) -> ServiceCounts {
    let mut counts = ServiceCounts::default();
    let insights = snapshot.of_kind(Kind::ServiceInsight).filter_map(|r| r.spec.get::<ServiceInsight>());
    for service in insights.flat_map(|insight| insight.services.values()) {
        let health = match service.service_type {
            ServiceType::Internal => &mut counts.internal,
            ServiceType::GatewayBuiltin => &mut counts.gateway_builtin,
            ServiceType::GatewayDelegated => &mut counts.gateway_delegated,
            ServiceType::External => {
                counts.external.total += 1;
                continue;
            }
        };
        health.total += 1;
        match service.status {
            ServiceStatus::Online => health.online += 1,
            ServiceStatus::Offline => health.offline += 1,
            ServiceStatus::PartiallyDegraded => health.partially_degraded += 1,
            ServiceStatus::NotAvailable => {}
        }
    }
    counts
}

fn online<T: TypedSpec>(snapshot: &Snapshot, is_online: impl Fn(&T) -> bool) -> OnlineCounts {
    let insights = snapshot.of_kind(T::KIND).filter_map(|r| r.spec.get::<T>());
    OnlineCounts {
        online: insights.filter(|spec| is_online(spec)).count(),
        total: snapshot.count(T::KIND, None),
    }
}
