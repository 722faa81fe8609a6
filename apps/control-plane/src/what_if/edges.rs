//! Who could call whom, and who could not any more. [`plan::access`] decides; here its answer becomes one of the API.

use api::inspect::what_if::{Edge, Edges};
use plan::access::{self, EdgeChange, EdgeChanges};

use crate::{inspect::reach::shown_verdict, push::Hypothetical};

/// The edges that would be opened and closed.
pub fn between(would: &Hypothetical) -> Edges {
    let EdgeChanges { opened, closed, truncated } = access::edges(&would.before, &would.updates);
    let shown = |edges: Vec<EdgeChange>| edges.into_iter().map(shown).collect();
    Edges { opened: shown(opened), closed: shown(closed), truncated }
}

fn shown(edge: EdgeChange) -> Edge {
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
