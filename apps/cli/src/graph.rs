//! `graph`: who may call whom, drawn.

mod dot;
mod layout;
mod mermaid;
mod svg;

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use contract::graph::{AccessGraph, AccessGraphAccess, AccessGraphNode};

use crate::{
    client::{ApiClient, Document},
    failure::Result,
    output, terminal,
    types::DEFAULT_MESH,
};

/// Number of clients named in the box of a service that they may not call.
const NAMED_EXCEPTIONS: usize = 3;

/// Draw who may call whom
///
/// Services are boxes, and an arrow leads from a client to a service that it may call by MeshTrafficPermissions.
/// Services that anyone may call stand together, without arrows.
#[derive(Debug, Args)]
pub struct Graph {
    /// Mesh to draw
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Only this service, those it may call and those that may call it: its name or identifier
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "dot")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For Graphviz: `kumactl graph | dot -Tpng`
    Dot,
    /// For Mermaid, which Markdown pages show
    Mermaid,
    /// JSON, as the REST API says it
    Json,
    /// A picture
    Svg,
}

impl Graph {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let attempted = format!("could not draw mesh {}", self.mesh);
        let Document { sent, read } =
            client.graph(&self.mesh, self.service.as_deref())?.document(&attempted)?;
        let drawing = Drawing::read(&read);
        if drawing.truncated {
            terminal::warn(
                "not all services and calls are drawn: draw a part with --service, or use -o json",
            );
        }
        Ok(terminal::data(&match self.format {
            Format::Dot => dot::render(&drawing),
            Format::Mermaid => mermaid::render(&drawing),
            Format::Json => output::json(&sent),
            Format::Svg => svg::render(&drawing),
        })?)
    }
}

/// Graph to draw; nodes are named by their place.
#[derive(Debug, Default)]
struct Drawing {
    nodes: Vec<Node>,
    edges: Vec<(usize, usize)>,
    /// Number of services anyone may call, drawn or not.
    callable_by_all: u64,
    truncated: bool,
}

#[derive(Debug, Default)]
struct Node {
    /// Name of the service, and on a second line the clients that may not call it.
    lines: Vec<String>,
    /// The whole identifier.
    id: String,
    /// Set if anyone may call it.
    callable_by_all: bool,
    /// Set if it only calls.
    client: bool,
}

impl Node {
    /// Clients that may not call it are called as `name_of` calls them, by their identifiers.
    fn read(node: &AccessGraphNode, name_of: impl Fn(&String) -> String) -> Node {
        // The text as it is: each form of drawing has its own way of making text safe.
        let mut lines = vec![node.name.clone()];
        if !node.except.is_empty() {
            let named: Vec<String> = node.except.iter().take(NAMED_EXCEPTIONS).map(name_of).collect();
            let more = match node.except.len().saturating_sub(NAMED_EXCEPTIONS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lines.push(format!("anyone except {}{more}", named.join(", ")));
        }
        let callable_by_all = match node.access {
            AccessGraphAccess::Anyone | AccessGraphAccess::AnyoneExcept => true,
            AccessGraphAccess::Listed | AccessGraphAccess::None => false,
        };
        Node { lines, id: node.id.clone(), callable_by_all, client: node.access == AccessGraphAccess::None }
    }
}

impl Drawing {
    fn read(answer: &AccessGraph) -> Drawing {
        let names: BTreeMap<&str, &str> =
            answer.nodes.iter().map(|node| (node.id.as_str(), node.name.as_str())).collect();
        // What is not drawn has no name here.
        let name_of =
            |id: &String| names.get(id.as_str()).map_or_else(|| id.clone(), |name| (*name).to_owned());
        let nodes: Vec<Node> = answer.nodes.iter().map(|node| Node::read(node, name_of)).collect();
        let place = |id: &str| nodes.iter().position(|node| node.id == id);
        let mut edges: Vec<(usize, usize)> =
            answer.edges.iter().filter_map(|edge| Some((place(&edge.from)?, place(&edge.to)?))).collect();
        edges.sort_unstable();
        edges.dedup();
        let callable_by_all = answer.callable_by_all as u64;
        Drawing { nodes, edges, callable_by_all, truncated: answer.truncated }
    }

    /// Note under the drawing, if there is one.
    fn note(&self) -> Option<String> {
        let drawn = self.nodes.iter().filter(|node| node.callable_by_all).count() as u64;
        let left_out = self.callable_by_all.saturating_sub(drawn);
        let left_out = match left_out {
            0 => None,
            1 => Some("anyone may call 1 more service".to_owned()),
            more => Some(format!("anyone may call {more} more services")),
        };
        let cut = self.truncated.then(|| "there is more than is drawn".to_owned());
        let notes: Vec<String> = left_out.into_iter().chain(cut).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}
