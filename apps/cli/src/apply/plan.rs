//! What is to be applied: every resource of the input, checked, in the order it will be sent.

use std::collections::BTreeMap;

use resources::{
    Draft, Key, Kind,
    format::{self, template, yaml},
};
use serde_json::Value;

use super::{send::body, sources::Text};
use crate::failure::{Failure, Result};

/// A resource of the input that passed every check that needs no control plane.
#[derive(Debug)]
pub struct Planned {
    pub draft: Draft,
    pub body: Value,
    pub unknown_fields: Vec<String>,
    place: String,
}

impl Planned {
    pub fn label(&self) -> String {
        self.draft.key.to_string()
    }

    /// `meshtimeout/slow`, as `get -o name` prints it.
    pub fn path_name(&self) -> String {
        format!("{}/{}", self.draft.kind().name().to_lowercase(), self.draft.key.name)
    }
}

/// Reads and checks all texts. Every mistake in every text is reported, not only the first.
pub fn make(texts: Vec<Text>, vars: &BTreeMap<String, String>) -> Result<Vec<Planned>> {
    let mut planned = Vec::new();
    let mut mistakes = Vec::new();
    for text in texts {
        match documents(&text, vars) {
            Ok(documents) => {
                for (line, value) in documents {
                    match check(&format!("{}:{line}", text.name), value) {
                        Ok(resource) => planned.push(resource),
                        Err(found) => mistakes.extend(found),
                    }
                }
            }
            Err(found) => mistakes.extend(found),
        }
    }
    mistakes.extend(duplicates(&planned));
    if !mistakes.is_empty() {
        return Err(Failure::invalid(format!(
            "the input is not valid, nothing was sent\n{}",
            mistakes.join("\n")
        )));
    }
    // Everything else in the input may need the meshes in it.
    planned.sort_by_key(|resource: &Planned| resource.draft.kind() != Kind::Mesh);
    Ok(planned)
}

fn documents(
    text: &Text,
    vars: &BTreeMap<String, String>,
) -> std::result::Result<Vec<(usize, Value)>, Vec<String>> {
    let located = |error: yaml::Error| {
        let place = if error.line > 0 { format!(":{}:{}", error.line, error.column) } else { String::new() };
        let snippet = if error.snippet.is_empty() { String::new() } else { format!("\n{}", error.snippet) };
        vec![format!("{}{place}: {}{snippet}", text.name, error.message)]
    };
    let found = match std::str::from_utf8(&text.bytes) {
        Ok(utf8) => {
            let rendered = template::render(utf8, vars).map_err(|missing| {
                missing.into_iter().map(|missing| format!("{}:{missing}", text.name)).collect::<Vec<_>>()
            })?;
            yaml::documents(&rendered)
        }
        Err(_) => yaml::from_bytes(&text.bytes),
    };
    Ok(found
        .map_err(located)?
        .into_iter()
        .flat_map(|document| members(document.line, document.value))
        .collect())
}

/// The resources in a document: itself, or those of the list it is (`get -o yaml`, `kind: List`).
fn members(line: usize, value: Value) -> Vec<(usize, Value)> {
    let is_resource = value.get("type").is_some()
        || value["kind"].as_str().is_some_and(|kind| kind != "List" && !kind.ends_with("List"));
    match value {
        Value::Object(mut fields) if !is_resource && fields.get("items").is_some_and(Value::is_array) => {
            match fields.shift_remove("items") {
                Some(Value::Array(items)) => items.into_iter().map(|item| (line, item)).collect(),
                _ => Vec::new(),
            }
        }
        Value::Array(items) => items.into_iter().map(|item| (line, item)).collect(),
        other => vec![(line, other)],
    }
}

fn check(place: &str, value: Value) -> std::result::Result<Planned, Vec<String>> {
    let parsed = format::parse(value.clone()).map_err(|error| match error {
        format::Error::Violations { key, violations } => {
            violations.iter().map(|violation| format!("{place}: {key}: {violation}")).collect()
        }
        error => vec![format!("{place}: {error}")],
    })?;
    let draft = parsed.draft;
    let mut mistakes = Vec::new();
    if draft.key.name.is_empty() {
        mistakes.push(format!("{place}: {}: name: cannot be empty", draft.kind()));
    }
    if draft.kind().descriptor().path.is_empty() {
        mistakes.push(format!("{place}: {}: the REST API does not serve this type", draft.kind()));
    }
    for violation in draft.validate().into_vec() {
        mistakes.push(format!("{place}: {}: {violation}", draft.key));
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let body = body(value, &draft);
    Ok(Planned { draft, body, unknown_fields: parsed.unknown_fields, place: place.to_owned() })
}

fn duplicates(planned: &[Planned]) -> Vec<String> {
    let mut first: BTreeMap<&Key, &str> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for resource in planned {
        match first.get(&resource.draft.key) {
            None => {
                first.insert(&resource.draft.key, &resource.place);
            }
            Some(earlier) => mistakes
                .push(format!("{}: {} is already defined at {earlier}", resource.place, resource.draft.key)),
        }
    }
    mistakes
}
