//! The graph for Mermaid.

use super::{Drawing, Node};

pub(super) fn render(drawing: &Drawing) -> String {
    let mut out = String::from("graph LR\n");
    let numbered = || drawing.nodes.iter().enumerate();
    for (at, node) in numbered().filter(|(_, node)| !node.callable_by_all) {
        out.push_str(&format!("  {}\n", statement(at, node)));
    }
    if drawing.nodes.iter().any(|node| node.callable_by_all) {
        out.push_str("  subgraph anyone[\"anyone may call\"]\n");
        for (at, node) in numbered().filter(|(_, node)| node.callable_by_all) {
            out.push_str(&format!("    {}\n", statement(at, node)));
        }
        out.push_str("  end\n");
    }
    for (from, to) in &drawing.edges {
        out.push_str(&format!("  n{from} --> n{to}\n"));
    }
    if let Some(note) = drawing.note() {
        out.push_str(&format!("  note[\"{}\"]\n", escaped(&note)));
    }
    out
}

fn statement(at: usize, node: &Node) -> String {
    let label: Vec<String> = node.lines.iter().map(|line| escaped(line)).collect();
    let label = label.join("<br/>");
    if node.client { format!("n{at}([\"{label}\"])") } else { format!("n{at}[\"{label}\"]") }
}

/// Text in quotes, in which Mermaid reads quotes, entities, HTML and Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '#' | '&' | '<' | '>' | '`' | '*' | '_' | '\\' => {
                out.push_str(&format!("#{};", u32::from(letter)));
            }
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}
