//! Calls that were seen: who called what, when, and how often.
//!
//! Clients report what they called; servers report who came without an identity.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use resources::naming::SpiffeId;

use crate::DestinationId;

/// Source of a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// A proxy of the mesh, by the first identity in its certificate.
    Identity(SpiffeId),
    /// A client without an identity, from outside of the mesh.
    Outside,
}

/// One client calls one destination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    pub caller: Caller,
    pub destination: DestinationId,
}

/// Observations of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeObservations {
    pub first: Timestamp,
    pub last: Timestamp,
    /// Requests, or connections where requests are not looked at.
    pub count: u64,
}

impl EdgeObservations {
    /// Takes in what was seen elsewhere or later.
    pub fn add(&mut self, other: &EdgeObservations) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.count = self.count.saturating_add(other.count);
    }
}

/// Everything that was seen in a mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedEdges {
    /// Since when calls are observed; `None` while no proxy has reported.
    pub since: Option<Timestamp>,
    pub edges: BTreeMap<Edge, EdgeObservations>,
    /// Edges were dropped because there are too many.
    pub truncated: bool,
}

impl ObservedEdges {
    /// Adds observations made elsewhere or later.
    pub fn add(&mut self, other: &ObservedEdges) {
        self.since = self.since.into_iter().chain(other.since).min();
        self.truncated |= other.truncated;
        for (edge, seen) in &other.edges {
            match self.edges.get_mut(edge) {
                Some(known) => known.add(seen),
                None => drop(self.edges.insert(edge.clone(), seen.clone())),
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == ObservedEdges::default()
    }
}

/// A destination as users read it: its KRI, or its tags.
pub fn destination_text(destination: &DestinationId) -> String {
    match destination {
        DestinationId::Port(kri) => kri.to_string(),
        DestinationId::Tags(tags) => {
            let tags: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            tags.join(",")
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Identity(id) => id.fmt(f),
            Caller::Outside => f.write_str("outside"),
        }
    }
}
