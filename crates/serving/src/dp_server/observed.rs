//! `POST /observed`: an agent reports what its proxy called since the last report, and who came to its inbounds without
//! an identity.
//!
//! Names are those of Envoy's statistics. What they mean is decided by what this control plane gave to the proxy; who
//! calls, by the token and the Dataplane of the proxy. Nothing else in a report is trusted.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use axum::{Extension, Json, extract::State};
use contract::agent::ObservedReport;
use http::StatusCode;
use jiff::Timestamp;
use plan::{Effective, ServerTls};
use resources::{
    Key, Kind, Resource,
    kinds::dataplane::{Dataplane, Inbound, Networking},
    naming::SelfName,
};
use runtime::listen::Peer;
use topology::{
    ClientClass, MeshSnapshot, TrimmingMode, matching,
    observed::{Caller, Edge},
};

use super::{ProxyContext, credentials::Credentials};
use crate::push::Watcher;

type ReportRefusal = (StatusCode, String);

pub async fn answer(
    State(context): State<Arc<ProxyContext>>,
    peer: Option<Extension<Peer>>,
    Json(report): Json<ObservedReport>,
) -> Result<StatusCode, ReportRefusal> {
    // Zone proxies pass on what others call.
    if report.mesh.is_empty() {
        return Ok(StatusCode::NO_CONTENT);
    }
    let key = authenticated(&context, &report).await.inspect_err(|(code, why)| {
        if *code == StatusCode::UNAUTHORIZED {
            context.gates.unauthenticated(peer.map(|peer| peer.addr), why);
        }
    })?;
    let unavailable =
        |what: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{key} {what}; send the report again later"));
    let mesh = context.push.mesh(&key.mesh).ok_or_else(|| unavailable("is in a mesh that does not exist"))?;
    let dataplane = mesh.dataplanes.get(&key.name).ok_or_else(|| unavailable("is not registered yet"))?;
    let watcher = context.push.newest(&key);
    let watcher = watcher.ok_or_else(|| unavailable("is not connected to this control plane"))?;
    let calls = calls(&context, &mesh, dataplane, &watcher, &report.clusters)
        .ok_or_else(|| unavailable("has no configuration yet"))?;
    count_trimmed(&context, &mesh, dataplane, &watcher, &calls);
    let visits = visits(&context, &mesh, dataplane, &report.inbounds);
    watcher.note_report();
    context.reports.observations.report(&mesh.name, calls.into_iter().chain(visits), Timestamp::now());
    Ok(StatusCode::NO_CONTENT)
}

/// The proxy that reports, if its token is for it.
async fn authenticated(context: &ProxyContext, report: &ObservedReport) -> Result<Key, ReportRefusal> {
    let refused = |status: tonic::Status| (StatusCode::UNAUTHORIZED, status.message().to_owned());
    let snapshot = context.registrar.store().snapshot();
    let snapshot = snapshot.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let token = Some(report.dataplane_token.as_str()).filter(|token| !token.is_empty());
    let key = Key::new(Kind::Dataplane, &report.mesh, &report.name);
    let credentials = Credentials::verify(context, &snapshot, &key.mesh, token).await.map_err(refused)?;
    credentials.allow_name(&key).map_err(refused)?;
    if let Some(stored) = snapshot.get(&key) {
        credentials.allow_stored(stored).map_err(refused)?;
    }
    Ok(key)
}

/// Calls of the proxy; `None` while it is not known what was given to it.
fn calls(
    context: &ProxyContext,
    mesh: &MeshSnapshot,
    dataplane: &Resource,
    watcher: &Watcher,
    clusters: &BTreeMap<String, u64>,
) -> Option<Vec<(Edge, u64)>> {
    let called = watcher.called(mesh, &mut clusters.keys().map(String::as_str))?;
    let unknown = called.iter().filter(|destination| destination.is_none()).count();
    context.reports.observations.meter.unknown_names(u64::try_from(unknown).unwrap_or(u64::MAX));
    // The first identity in its certificate.
    let client = ClientClass::of(mesh, dataplane).client().spiffe_ids.first().cloned();
    let Some(caller) = client.map(Caller::Identity) else { return Some(Vec::new()) };
    let edge = |(destination, count): (Option<_>, &u64)| {
        Some((Edge { caller: caller.clone(), destination: destination? }, *count))
    };
    Some(called.into_iter().zip(clusters.values()).filter_map(edge).filter(|(_, count)| *count > 0).collect())
}

/// Counts calls that the proxy could not make if its outbounds were trimmed, where it is in mode `shadow`. What it lists
/// and what routes lead to is never trimmed; that is looked at only if a call is not permitted.
fn count_trimmed(
    context: &ProxyContext,
    mesh: &MeshSnapshot,
    dataplane: &Resource,
    watcher: &Watcher,
    calls: &[(Edge, u64)],
) {
    if mesh.trimming(dataplane).active() != TrimmingMode::Shadow {
        return;
    }
    let class = ClientClass::of(mesh, dataplane);
    let mut denied =
        calls.iter().filter(|(edge, _)| !mesh.access.reaches(&class, &edge.destination)).peekable();
    if denied.peek().is_none() {
        return;
    }
    let Some(kept) = watcher.never_trimmed(mesh, &class) else { return };
    let trimmed = denied.filter(|(edge, _)| !kept.contains(&edge.destination));
    trimmed.for_each(|(edge, count)| context.reports.observations.meter.shadowed(&mesh.name, edge, *count));
}

/// Connections without an identity. Where mTLS is not PERMISSIVE, a connection without it says nothing: without mTLS
/// clients have no identity to show, and in a STRICT mesh they are refused.
fn visits(
    context: &ProxyContext,
    mesh: &MeshSnapshot,
    dataplane: &Resource,
    inbounds: &BTreeMap<String, u64>,
) -> Vec<(Edge, u64)> {
    let networking = dataplane.spec.get::<Dataplane>().and_then(|spec| spec.networking.as_ref());
    let Some(networking) = networking.filter(|_| !inbounds.is_empty()) else { return Vec::new() };
    let effective = Effective::of(mesh, dataplane);
    let mut found = 0;
    let mut edges = Vec::new();
    for inbound in matching::inbounds(dataplane) {
        let names = names(networking, inbound);
        let Some(count) = names.iter().find_map(|name| inbounds.get(name)) else { continue };
        found += 1;
        if *count > 0 && effective.server_tls(inbound) == ServerTls::Permissive {
            let served = context.push.served_at(dataplane, inbound).into_iter();
            let edge = |destination| (Edge { caller: Caller::Outside, destination }, *count);
            edges.extend(served.map(edge));
        }
    }
    let unknown = inbounds.len().saturating_sub(found);
    context.reports.observations.meter.unknown_names(u64::try_from(unknown).unwrap_or(u64::MAX));
    edges
}

/// Names of an inbound's listener in statistics, by either choice of names.
fn names(networking: &Networking, inbound: &Inbound) -> Vec<String> {
    let unified = inbound.section_name().parse().map(|section| SelfName::Inbound(section).to_string());
    let address = inbound.address_in(networking).parse::<IpAddr>();
    let port = u16::try_from(inbound.port);
    let legacy = address.ok().zip(port.ok()).map(|(address, port)| plan::address_stats(address, port));
    unified.ok().into_iter().chain(legacy).collect()
}
