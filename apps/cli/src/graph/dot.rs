//! The graph for Graphviz.

use super::{Drawing, Node};

pub(super) fn render(drawing: &Drawing) -> String {
    let mut out = String::from("digraph mesh {\n  rankdir=LR;\n  node [shape=box];\n");
    let numbered = || drawing.nodes.iter().enumerate();
    for (at, node) in numbered().filter(|(_, node)| !node.callable_by_all) {
        out.push_str(&format!("  {}\n", statement(at, node)));
    }
    if drawing.nodes.iter().any(|node| node.callable_by_all) {
        out.push_str("  subgraph cluster_anyone {\n    label=\"anyone may call\";\n    style=dashed;\n");
        for (at, node) in numbered().filter(|(_, node)| node.callable_by_all) {
            out.push_str(&format!("    {}\n", statement(at, node)));
        }
        out.push_str("  }\n");
    }
    for (from, to) in &drawing.edges {
        out.push_str(&format!("  n{from} -> n{to};\n"));
    }
    if let Some(note) = drawing.note() {
        out.push_str(&format!("  label={};\n", quoted(&note)));
    }
    out.push_str("}\n");
    out
}

fn statement(at: usize, node: &Node) -> String {
    let label: Vec<String> = node.lines.iter().map(|line| escaped(line)).collect();
    let shape = if node.client { ", shape=ellipse" } else { "" };
    format!("n{at} [label=\"{}\", tooltip={}{shape}];", label.join("\\n"), quoted(&node.id))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Text in quotes, in which Graphviz reads backslashes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(char::is_control, " ")
}
