//! Counts over the whole control plane.
//!
//! Totals are counted where they are asked for, so they are never behind; how proxies and services
//! fare comes from the insights that watch them.

use axum::response::Response;
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
use serde_json::{Map, Value, json};
use store::Snapshot;

use crate::{Error, call::Call, json};

/// `GET /global-insight`.
pub fn global_insight(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let policies: usize =
        kinds().filter(|k| k.descriptor().policy.is_some()).map(|k| snapshot.count(k, None)).sum();
    Ok(json::ok(&json!({
        "createdAt": Timestamp::now().to_string(),
        "dataplanes": dataplanes(&snapshot),
        "meshes": { "total": snapshot.count(Kind::Mesh, None) },
        "policies": { "total": policies },
        "resources": totals(&snapshot, |kind| is_in_total(kind) && snapshot.count(kind, None) > 0),
        "services": services(&snapshot),
        "zones": {
            "controlPlanes": online::<ZoneInsight>(&snapshot, ZoneInsight::is_online),
            "zoneEgresses": online::<ZoneEgressInsight>(&snapshot, ZoneEgressInsight::is_online),
            "zoneIngresses": online::<ZoneIngressInsight>(&snapshot, ZoneIngressInsight::is_online),
        },
    })))
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
    Ok(json::ok(&json!({
        "type": "GlobalInsights",
        "creationTime": Timestamp::now().to_string(),
        "resources": resources,
    })))
}

fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| !kind.descriptor().path.is_empty())
}

fn totals(snapshot: &Snapshot, counts: impl Fn(Kind) -> bool) -> Value {
    let mut kinds: Vec<Kind> = kinds().filter(|&kind| counts(kind)).collect();
    kinds.sort_by_key(|kind| kind.name());
    let total = |kind: Kind| (kind.name().to_owned(), json!({ "total": snapshot.count(kind, None) }));
    Value::Object(kinds.into_iter().map(total).collect())
}

fn dataplanes(snapshot: &Snapshot) -> Value {
    let [mut standard, mut builtin, mut delegated] = [DataplaneStat::default(); 3];
    for insight in snapshot.of_kind(Kind::MeshInsight).filter_map(|r| r.spec.get::<MeshInsight>()) {
        let Some(by_type) = &insight.dataplanes_by_type else { continue };
        add(&mut standard, by_type.standard);
        add(&mut builtin, by_type.gateway_builtin);
        add(&mut delegated, by_type.gateway_delegated);
    }
    json!({ "gatewayBuiltin": full(builtin), "gatewayDelegated": full(delegated), "standard": full(standard) })
}

fn add(sum: &mut DataplaneStat, part: Option<DataplaneStat>) {
    let part = part.unwrap_or_default();
    sum.total += part.total;
    sum.online += part.online;
    sum.offline += part.offline;
    sum.partially_degraded += part.partially_degraded;
}

/// Every number, also where it is zero.
fn full(stat: DataplaneStat) -> Value {
    json!({
        "offline": stat.offline,
        "online": stat.online,
        "partiallyDegraded": stat.partially_degraded,
        "total": stat.total,
    })
}

fn services(snapshot: &Snapshot) -> Value {
    let mut external = 0u32;
    let [mut internal, mut builtin, mut delegated] = [DataplaneStat::default(); 3];
    let insights = snapshot.of_kind(Kind::ServiceInsight).filter_map(|r| r.spec.get::<ServiceInsight>());
    for service in insights.flat_map(|insight| insight.services.values()) {
        let stat = match service.service_type {
            ServiceType::Internal => &mut internal,
            ServiceType::GatewayBuiltin => &mut builtin,
            ServiceType::GatewayDelegated => &mut delegated,
            ServiceType::External => {
                external += 1;
                continue;
            }
        };
        stat.total += 1;
        match service.status {
            ServiceStatus::Online => stat.online += 1,
            ServiceStatus::Offline => stat.offline += 1,
            ServiceStatus::PartiallyDegraded => stat.partially_degraded += 1,
            ServiceStatus::NotAvailable => {}
        }
    }
    json!({
        "external": { "total": external },
        "gatewayBuiltin": full(builtin),
        "gatewayDelegated": full(delegated),
        "internal": full(internal),
    })
}

fn online<T: TypedSpec>(snapshot: &Snapshot, is_online: impl Fn(&T) -> bool) -> Value {
    let connected =
        snapshot.of_kind(T::KIND).filter_map(|r| r.spec.get::<T>()).filter(|spec| is_online(spec)).count();
    let mut out = Map::new();
    out.insert("online".into(), connected.into());
    out.insert("total".into(), snapshot.count(T::KIND, None).into());
    Value::Object(out)
}
