//! Calls that become possible, and calls that end. [`plan::access`] decides; here its answer becomes one of the API.

use contract::what_if::{WhatIfEdge, WhatIfEdges};
use plan::{
    access::{self, EdgeChange, EdgeChanges},
    budget::Budget,
};
use serving::push::Hypothetical;

use crate::proxies::access::shown_verdict;

/// The edges that would be opened and closed.
pub fn between(would: &Hypothetical, budget: &Budget) -> EdgeChanges {
    access::edges(&would.before, &would.updates, budget)
}

/// The edges as the API shows them.
pub fn shown(changes: EdgeChanges) -> WhatIfEdges {
    let EdgeChanges { opened, closed, truncated, left_out: _ } = changes;
    let edges = |edges: Vec<EdgeChange>| edges.into_iter().map(edge).collect();
    WhatIfEdges { opened: edges(opened), closed: edges(closed), truncated }
}

fn edge(edge: EdgeChange) -> WhatIfEdge {
    WhatIfEdge {
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
