//! The calls that proxies of a mesh reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    InspectError,
    inspect::observed::{ObservedCall, ObservedCalls, ReportingProxies},
};
use jiff::Timestamp;
use resources::{Resource, naming::SpiffeId};
use topology::{
    ClientClass, MeshSnapshot, Mode,
    observed::{Caller, Edge, destination_text},
};

use crate::{observed::Observations, push::Push};

/// More edges are not listed in one answer.
const MAX_LISTED: usize = 10_000;

pub fn elsewhere() -> InspectError {
    InspectError::Elsewhere(
        "only the control planes that proxies are connected to know what they call: ask the control plane \
        of their zone"
            .to_owned(),
    )
}

pub fn of(mesh: &MeshSnapshot, observations: &Observations, push: &Push) -> ObservedCalls {
    let observed = observations.of_mesh(&mesh.name);
    let reported = observations.last_report(&mesh.name);
    let seen = observed.edges.values().map(|seen| seen.last);
    let until: Option<Timestamp> = seen.chain(reported).chain(observed.since).max();
    let shadowed = Shadowed::of(mesh);
    let mut edges: Vec<ObservedCall> = observed
        .edges
        .iter()
        .map(|(edge, seen)| ObservedCall {
            caller: edge.caller.to_string(),
            destination: destination_text(&edge.destination),
            first_seen: seen.first.to_string(),
            last_seen: seen.last.to_string(),
            count: seen.count,
            would_be_trimmed: shadowed.would_trim(mesh, edge),
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

/// The clients in mode `shadow`, by their first identity.
struct Shadowed(BTreeMap<SpiffeId, BTreeSet<ClientClass>>);

impl Shadowed {
    fn of(mesh: &MeshSnapshot) -> Shadowed {
        let mut clients: BTreeMap<SpiffeId, BTreeSet<ClientClass>> = BTreeMap::new();
        let shadowed = |dataplane: &&Arc<Resource>| mesh.trimming(dataplane).active() == Mode::Shadow;
        for dataplane in mesh.dataplanes.values().filter(shadowed) {
            let class = ClientClass::of(mesh, dataplane);
            if let Some(id) = class.client().spiffe_ids.first().cloned() {
                clients.entry(id).or_default().insert(class);
            }
        }
        Shadowed(clients)
    }

    /// Whether a client of this identity could not make the call if its outbounds were trimmed.
    fn would_trim(&self, mesh: &MeshSnapshot, edge: &Edge) -> bool {
        let Caller::Identity(id) = &edge.caller else { return false };
        let mut classes = self.0.get(id).into_iter().flatten();
        classes.any(|class| !mesh.reachability.reaches(class, &edge.destination))
    }
}
