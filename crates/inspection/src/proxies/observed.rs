//! The calls that proxies of a mesh reported.

use api::{InspectError, inspect::observed::WantedEdges};
use contract::observed::{ObservedCall, ObservedCalls, ReportingProxies};
use jiff::Timestamp;
use plan::{ProxyTraits, access::ShadowedClients};
use resources::Resource;
use serving::observed::Observations;
use topology::{
    MeshSnapshot,
    observed::{Edge, EdgeObservations, ObservedEdges, destination_text},
};

pub fn elsewhere() -> InspectError {
    InspectError::Elsewhere(
        "only the control planes that proxies are connected to know what they call: ask the control plane \
        of their zone"
            .to_owned(),
    )
}

/// The edges that are wanted; `traits` is what a proxy said when it was last connected.
pub fn of(
    mesh: &MeshSnapshot,
    observations: &Observations,
    (connected, reporting): (usize, usize),
    traits: impl Fn(&Resource) -> ProxyTraits,
    wanted: WantedEdges,
) -> ObservedCalls {
    let observed = observations.of_mesh(&mesh.name);
    let until = until(&mesh.name, observations, &observed);
    let mut shadowed = ShadowedClients::of(mesh, traits);
    let mut edges: Vec<(&Edge, &EdgeObservations, bool)> = Vec::new();
    for (edge, seen) in &observed.edges {
        let trimmed = shadowed.would_trim(edge);
        if trimmed || !wanted.would_be_trimmed {
            edges.push((edge, seen, trimmed));
        }
    }
    let total = edges.len();
    edges.sort_by_cached_key(|(edge, ..)| (edge.caller.to_string(), destination_text(&edge.destination)));
    let page = edges.into_iter().skip(wanted.offset).take(wanted.size);
    ObservedCalls {
        since: observed.since.map(|since| since.to_string()),
        until: until.map(|until| until.to_string()),
        total,
        edges: page.map(call).collect(),
        dropped: observed.truncated,
        proxies: ReportingProxies { reporting, connected },
        zones: Vec::new(),
    }
}

/// Time of the last report, as far as is known: other control planes on the same store keep when a call was last seen,
/// and not when nothing was.
pub fn until(mesh: &str, observations: &Observations, observed: &ObservedEdges) -> Option<Timestamp> {
    let seen = observed.edges.values().map(|seen| seen.last);
    seen.chain(observations.last_report(mesh)).chain(observed.since).max()
}

fn call((edge, seen, would_be_trimmed): (&Edge, &EdgeObservations, bool)) -> ObservedCall {
    ObservedCall {
        caller: edge.caller.to_string(),
        destination: destination_text(&edge.destination),
        first_seen: seen.first.to_string(),
        last_seen: seen.last.to_string(),
        count: seen.count,
        would_be_trimmed,
        zone: None,
    }
}
