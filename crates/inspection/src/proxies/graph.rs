//! The graph of who may call whom, in the form of the API.

use contract::graph::{AccessGraph, AccessGraphAccess, AccessGraphEdge, AccessGraphNode};
use topology::{MeshSnapshot, access::graph};

/// The graph of a mesh; with `only`, that service and those beside it.
pub fn of(mesh: &MeshSnapshot, only: Option<&str>) -> Result<AccessGraph, String> {
    let graph::Graph { nodes, edges, callable_by_all, truncated } = graph::of(mesh, only)?;
    let edges = edges.into_iter().map(|graph::Edge { from, to }| AccessGraphEdge { from, to });
    Ok(AccessGraph {
        nodes: nodes.into_iter().map(shown).collect(),
        edges: edges.collect(),
        callable_by_all,
        truncated,
    })
}

fn shown(node: graph::GraphNode) -> AccessGraphNode {
    AccessGraphNode {
        id: node.id,
        name: node.name,
        kind: node.kind.into(),
        dataplanes: node.dataplanes,
        access: match node.access {
            graph::NodeAccess::Anyone => AccessGraphAccess::Anyone,
            graph::NodeAccess::AnyoneExcept => AccessGraphAccess::AnyoneExcept,
            graph::NodeAccess::Listed => AccessGraphAccess::Listed,
            graph::NodeAccess::None => AccessGraphAccess::None,
        },
        except: node.except,
    }
}
