//! `graph`: who may call whom, drawn.

mod dot;
mod layout;
mod mermaid;
mod svg;

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::{
    client::{Client, query_value, segment},
    failure::Result,
    output, terminal,
    types::DEFAULT_MESH,
};

/// How many clients that may not call a service are named in its box.
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
    pub fn run(&self, client: &Client) -> Result<()> {
        let mut path = format!("/meshes/{}/_graph", segment(&self.mesh));
        if let Some(service) = &self.service {
            path.push_str(&format!("?service={}", query_value(service)));
        }
        let attempted = format!("could not draw mesh {}", self.mesh);
        let answer = client.get(&path)?.json(&attempted)?;
        let drawing = Drawing::read(&answer);
        if drawing.truncated {
            terminal::warn(
                "not all services and calls are drawn: draw a part with --service, or use -o json",
            );
        }
        Ok(terminal::data(&match self.format {
            Format::Dot => dot::render(&drawing),
            Format::Mermaid => mermaid::render(&drawing),
            Format::Json => output::json(&answer),
            Format::Svg => svg::render(&drawing),
        })?)
    }
}

/// What is to be drawn; nodes are named by their place.
#[derive(Debug, Default)]
struct Drawing {
    nodes: Vec<Node>,
    edges: Vec<(usize, usize)>,
    /// How many services anyone may call, drawn or not.
    callable_by_all: u64,
    truncated: bool,
}

#[derive(Debug, Default)]
struct Node {
    /// What it is called, and on a second line who may not call it.
    lines: Vec<String>,
    /// The whole identifier.
    id: String,
    /// Whether anyone may call it.
    callable_by_all: bool,
    /// Whether it only calls.
    client: bool,
}

impl Node {
    /// Clients that may not call it are called as `name_of` calls them, by their identifiers.
    fn read(node: &Value, name_of: impl Fn(&Value) -> String) -> Node {
        let mut lines = vec![text(&node["name"])];
        let except: Vec<String> = node["except"].as_array().into_iter().flatten().map(name_of).collect();
        if !except.is_empty() {
            let named: Vec<&str> = except.iter().take(NAMED_EXCEPTIONS).map(String::as_str).collect();
            let more = match except.len().saturating_sub(NAMED_EXCEPTIONS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lines.push(format!("anyone except {}{more}", named.join(", ")));
        }
        let access = text(&node["access"]);
        Node {
            lines,
            id: text(&node["id"]),
            callable_by_all: access.starts_with("anyone"),
            client: access == "none",
        }
    }
}

/// The text as it is: identifiers are compared, and each form of drawing has its own way of making text safe.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Drawing {
    fn read(answer: &Value) -> Drawing {
        let array = |field: &str| answer[field].as_array().into_iter().flatten();
        let names: BTreeMap<&str, &Value> =
            array("nodes").filter_map(|node| Some((node["id"].as_str()?, &node["name"]))).collect();
        // What is not drawn has no name here.
        let name_of =
            |id: &Value| id.as_str().and_then(|id| names.get(id)).map_or_else(|| text(id), |name| text(name));
        let nodes: Vec<Node> = array("nodes").map(|node| Node::read(node, name_of)).collect();
        let place = |id: &Value| nodes.iter().position(|node| Some(node.id.as_str()) == id.as_str());
        let mut edges: Vec<(usize, usize)> =
            array("edges").filter_map(|edge| Some((place(&edge["from"])?, place(&edge["to"])?))).collect();
        edges.sort_unstable();
        edges.dedup();
        let callable_by_all = answer["open"].as_u64().unwrap_or(0);
        Drawing { nodes, edges, callable_by_all, truncated: answer["truncated"] == true }
    }

    /// What stands under the drawing, if anything.
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
