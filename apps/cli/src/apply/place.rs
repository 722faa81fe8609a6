//! Position of a resource in its file, and the lines of its fields.

use std::sync::{Arc, OnceLock};

use resources::{format::yaml::Positions, labels};
use serde_json::Value;

use crate::document::DocumentHeader;

/// One text of the input. Its lines are looked up only when there is something to say about them.
#[derive(Debug)]
pub struct InputText {
    name: String,
    text: String,
    positions: OnceLock<Positions>,
}

/// The place of one resource.
#[derive(Debug)]
pub struct SourcePosition {
    text: Arc<InputText>,
    /// First line of its document.
    line: usize,
    /// The path of the resource in its document; empty unless that is a list.
    within: String,
    is_kubernetes: bool,
}

impl InputText {
    pub fn new(name: &str, text: String) -> InputText {
        InputText { name: name.to_owned(), text, positions: OnceLock::new() }
    }
}

impl SourcePosition {
    pub fn new(text: &Arc<InputText>, line: usize, within: String, value: &Value) -> SourcePosition {
        SourcePosition {
            text: text.clone(),
            line,
            within,
            is_kubernetes: DocumentHeader::of(value).is_kubernetes(),
        }
    }

    /// The field that names the kind.
    pub fn kind_field(&self) -> &'static str {
        if self.is_kubernetes { "kind" } else { "type" }
    }

    /// `file:line` of a field, or of the resource if it has no such field. Paths are those of the Universal form.
    pub fn at(&self, field: &str) -> String {
        let positions = self.text.positions.get_or_init(|| Positions::of(&self.text.text));
        let depth = |owner: &str| {
            let owner = join(&self.within, owner);
            let (line, found) = positions.line(self.line, &join(&owner, field));
            (found.saturating_sub(owner.len()), line)
        };
        let mesh_label = || {
            let path = join(&self.within, &format!("metadata.labels[{:?}]", labels::MESH));
            let (line, found) = positions.line(self.line, &path);
            (usize::from(found == path.len()), line)
        };
        // The Kubernetes form has the same fields, some of them elsewhere.
        let moved = match (self.is_kubernetes, field) {
            (false, _) => Vec::new(),
            (true, "mesh") => vec![mesh_label()],
            (true, _) => vec![depth("metadata"), depth("spec"), depth("data")],
        };
        let (own, line) = depth("");
        let best = moved.into_iter().filter(|(depth, _)| *depth > own).max_by_key(|(depth, _)| *depth);
        format!("{}:{}", self.text.name, best.map_or(line, |(_, line)| line))
    }
}

fn join(owner: &str, field: &str) -> String {
    match (owner.is_empty(), field.is_empty()) {
        (true, _) => field.to_owned(),
        (_, true) => owner.to_owned(),
        (false, false) => format!("{owner}.{field}"),
    }
}
