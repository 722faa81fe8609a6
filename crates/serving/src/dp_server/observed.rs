//! `POST /observed`: an agent reports what its proxy called since the last report, how that went, and who came to its
//! inbounds without an identity.
//!
//! Names are those of Envoy's statistics. What they mean is decided by what this control plane gave to the proxy; who
//! calls, by the token and the Dataplane of the proxy. Nothing else in a report is trusted.

mod traffic;

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, Json, extract::State};
use contract::agent::ObservedReport;
use http::StatusCode;
use jiff::Timestamp;
use plan::{Effective, ServerTls, inbound_stats};
use resources::{Key, Kind, Resource, kinds::dataplane::Dataplane};
use runtime::listen::Peer;
use tokio::time::Instant;
use topology::{
    ClientClass, MeshSnapshot, TrimmingMode, matching,
    observed::{Caller, Edge},
};

use super::{ProxyContext, credentials::Credentials};
use crate::push::Watcher;

type ReportRefusal = (StatusCode, String);

/// The proxy that a report is about.
struct Reporter<'a> {
    mesh: &'a MeshSnapshot,
    dataplane: &'a Resource,
    class: ClientClass,
    watcher: &'a Watcher,
}

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
    if !watcher.reports.allow(Instant::now()) {
        context.reports.observations.meter.refused();
        let why = format!("{key} reports too often; send a report every few seconds");
        return Err((StatusCode::TOO_MANY_REQUESTS, why));
    }
    let reporter =
        Reporter { mesh: &mesh, dataplane, class: ClientClass::of(&mesh, dataplane), watcher: &watcher };
    let calls = calls(&context, &reporter, &report.clusters)
        .ok_or_else(|| unavailable("has no configuration yet"))?;
    count_trimmed(&context, &reporter, &calls);
    let visits = visits(&context, &mesh, dataplane, &report.inbounds);
    watcher.reports.note();
    let now = Timestamp::now();
    let observations = &context.reports.observations;
    observations.report(&mesh.name, calls.into_iter().chain(visits), now);
    if let Some(traffic) = traffic::of_proxy(&reporter, &report.traffic) {
        observations.meter.unknown_names(traffic.unknown);
        let exists = |mesh: &str| context.push.mesh(mesh).is_some();
        observations.signals.record(&mesh.name, &traffic.known, now, exists);
    }
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
    reporter: &Reporter<'_>,
    clusters: &BTreeMap<String, u64>,
) -> Option<Vec<(Edge, u64)>> {
    let called = reporter.watcher.called(reporter.mesh, &mut clusters.keys().map(String::as_str))?;
    let unknown = called.iter().filter(|destination| destination.is_none()).count();
    context.reports.observations.meter.unknown_names(u64::try_from(unknown).unwrap_or(u64::MAX));
    // The first identity in its certificate.
    let client = reporter.class.client().spiffe_ids.first().cloned();
    let Some(caller) = client.map(Caller::Identity) else { return Some(Vec::new()) };
    let edge = |(destination, count): (Option<_>, &u64)| {
        Some((Edge { caller: caller.clone(), destination: destination? }, *count))
    };
    Some(called.into_iter().zip(clusters.values()).filter_map(edge).filter(|(_, count)| *count > 0).collect())
}

/// Counts calls that the proxy could not make if its outbounds were trimmed, where it is in mode `shadow`. What it lists
/// and what routes lead to is never trimmed; that is looked at only if a call is not permitted.
fn count_trimmed(context: &ProxyContext, reporter: &Reporter<'_>, calls: &[(Edge, u64)]) {
    let Reporter { mesh, dataplane, class, watcher } = reporter;
    if mesh.trimming(dataplane).active() != TrimmingMode::Shadow {
        return;
    }
    let mut denied =
        calls.iter().filter(|(edge, _)| !mesh.access.reaches(class, &edge.destination)).peekable();
    if denied.peek().is_none() {
        return;
    }
    let Some(kept) = watcher.never_trimmed(mesh, class) else { return };
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
        let names = inbound_stats(networking, inbound);
        let Some(count) = names.iter().find_map(|names| inbounds.get(&names.listener)) else { continue };
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
