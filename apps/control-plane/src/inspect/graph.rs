//! The graph of who may call whom, in the form of the API.

use api::inspect::graph::{Edge, Graph, Node, NodeAccess};
use topology::{MeshSnapshot, reachability::graph};

/// The graph of a mesh; with `only`, that service and those beside it.
pub fn of(mesh: &MeshSnapshot, only: Option<&str>) -> Result<Graph, String> {
    let graph::Graph { nodes, edges, callable_by_all, truncated } = graph::of(mesh, only)?;
    let edges = edges.into_iter().map(|graph::Edge { from, to }| Edge { from, to });
    Ok(Graph {
        nodes: nodes.into_iter().map(shown).collect(),
        edges: edges.collect(),
        callable_by_all,
        truncated,
    })
}

fn shown(node: graph::Node) -> Node {
    Node {
        id: node.id,
        name: node.name,
        kind: node.kind,
        dataplanes: node.dataplanes,
        access: match node.access {
            graph::NodeAccess::Anyone => NodeAccess::Anyone,
            graph::NodeAccess::AnyoneExcept => NodeAccess::AnyoneExcept,
            graph::NodeAccess::Listed => NodeAccess::Listed,
            graph::NodeAccess::None => NodeAccess::None,
        },
        except: node.except,
    }
}
