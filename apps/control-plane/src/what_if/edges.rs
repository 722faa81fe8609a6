//! Who could call whom, and who could not any more. [`plan::access`] decides; here its answer becomes one of the API.

use api::inspect::what_if::{Edge, Edges};
use plan::{
    access::{self, EdgeChange, EdgeChanges},
    budget::Budget,
};

use crate::{inspect::reach::shown_verdict, push::Hypothetical};

/// The edges that would be opened and closed.
pub fn between(would: &Hypothetical, budget: &Budget) -> EdgeChanges {
    access::edges(&would.before, &would.updates, budget)
}

/// The edges as the API shows them.
pub fn shown(changes: EdgeChanges) -> Edges {
    let EdgeChanges { opened, closed, truncated, left_out: _ } = changes;
    let edges = |edges: Vec<EdgeChange>| edges.into_iter().map(edge).collect();
    Edges { opened: edges(opened), closed: edges(closed), truncated }
}

fn edge(edge: EdgeChange) -> Edge {
    Edge {
        mesh: edge.mesh.to_string(),
        from: edge.from,
        to: edge.to,
        inbound: edge.inbound,
        before: edge.before.map(shown_verdict),
        after: edge.after.map(shown_verdict),
        rule: edge.rule.map(|rule| rule.to_string()),
        reason: edge.reason,
    }
}
