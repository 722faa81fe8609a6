//! What proxies of a mesh said that they call.

use api::{
    InspectError,
    inspect::observed::{ObservedCall, ObservedCalls, ReportingProxies},
};
use jiff::Timestamp;
use topology::{MeshSnapshot, observed::destination_text};

use crate::{observed::Observations, push::Push};

/// More edges are not listed in one answer.
const MAX_LISTED: usize = 10_000;

pub fn elsewhere() -> InspectError {
    InspectError::Elsewhere(
        "what proxies call is known where they are connected, and that is not this global control plane: ask the \
         control plane of their zone"
            .to_owned(),
    )
}

pub fn of(mesh: &MeshSnapshot, observations: &Observations, push: &Push) -> ObservedCalls {
    let observed = observations.of_mesh(&mesh.name);
    let reported = observations.last_report(&mesh.name);
    let seen = observed.edges.values().map(|seen| seen.last);
    let until: Option<Timestamp> = seen.chain(reported).chain(observed.since).max();
    let mut edges: Vec<ObservedCall> = observed
        .edges
        .iter()
        .map(|(edge, seen)| ObservedCall {
            caller: edge.caller.to_string(),
            destination: destination_text(&edge.destination),
            first_seen: seen.first.to_string(),
            last_seen: seen.last.to_string(),
            count: seen.count,
        })
        .collect();
    edges.sort_by(|a, b| (&a.caller, &a.destination).cmp(&(&b.caller, &b.destination)));
    let truncated = observed.truncated || edges.len() > MAX_LISTED;
    edges.truncate(MAX_LISTED);
    let (connected, reporting) = push.reporting(&mesh.name);
    ObservedCalls {
        since: observed.since.map(|since| since.to_string()),
        until: until.map(|until| until.to_string()),
        edges,
        truncated,
        proxies: ReportingProxies { reporting, connected },
    }
}
