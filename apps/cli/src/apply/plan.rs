//! What is to be applied: every resource of the input, checked, in the order it will be sent.

use std::collections::BTreeMap;

use resources::{
    Draft, Key, Kind,
    format::{self, template, yaml},
};
use serde_json::Value;

use super::{send::body, sources::Text};
use crate::{
    failure::{Failure, Result},
    kuma_kinds,
};

const HINT: &str = "; --skip-unknown applies the rest";

/// A resource of the input that passed every check that needs no control plane.
#[derive(Debug)]
pub struct Planned {
    pub draft: Draft,
    pub body: Value,
    pub unknown_fields: Vec<String>,
    /// What was read as something else than is written.
    pub advice: Vec<String>,
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

/// What is to be sent, and what is not.
#[derive(Debug, Default)]
pub struct Plan {
    pub planned: Vec<Planned>,
    /// What was left out and why, a line each.
    pub skipped: Vec<String>,
}

/// What one document of the input turned out to be.
enum Checked {
    Planned(Box<Planned>),
    Skipped(String),
}

/// Reads and checks all texts. Every mistake in every text is reported, not only the first.
pub fn make(texts: Vec<Text>, vars: &BTreeMap<String, String>, skip_unknown: bool) -> Result<Plan> {
    let Plan { mut planned, mut skipped } = Plan::default();
    let mut mistakes = Vec::new();
    for text in texts {
        match documents(&text, vars) {
            Ok(documents) => {
                for (line, value) in documents {
                    match check(&format!("{}:{line}", text.name), value, skip_unknown) {
                        Ok(Checked::Planned(resource)) => planned.push(*resource),
                        Ok(Checked::Skipped(what)) => skipped.push(what),
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
    Ok(Plan { planned, skipped })
}

/// Every document of all texts, each with its place.
pub fn read(texts: &[Text]) -> Result<Vec<(String, Value)>> {
    let (mut all, mut mistakes) = (Vec::new(), Vec::new());
    for text in texts {
        match documents(text, &BTreeMap::new()) {
            Ok(found) => {
                all.extend(found.into_iter().map(|(line, value)| (format!("{}:{line}", text.name), value)))
            }
            Err(found) => mistakes.extend(found),
        }
    }
    match mistakes.is_empty() {
        true => Ok(all),
        false => Err(Failure::invalid(format!("the input is not valid\n{}", mistakes.join("\n")))),
    }
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

fn check(place: &str, value: Value, skip_unknown: bool) -> std::result::Result<Checked, Vec<String>> {
    let parsed = match format::parse(value.clone()) {
        Ok(parsed) => parsed,
        Err(format::Error::UnknownKind { name: kind, suggestion }) => {
            let why = why_unknown(&kind, suggestion);
            return left_out(place, &value, &kind, &why, skip_unknown);
        }
        Err(format::Error::Superseded(kind)) if !skip_unknown => {
            return Err(vec![format!("{place}: {}{HINT}", kind.refusal())]);
        }
        Err(format::Error::Superseded(kind)) => {
            return left_out(place, &value, kind.name, &kind.refusal(), skip_unknown);
        }
        Err(format::Error::Violations { key, violations }) => {
            return Err(violations.iter().map(|violation| format!("{place}: {key}: {violation}")).collect());
        }
        Err(error) => return Err(vec![format!("{place}: {error}")]),
    };
    let draft = parsed.draft;
    let descriptor = draft.kind().descriptor();
    if skip_unknown && (descriptor.read_only || descriptor.path.is_empty()) {
        return Ok(Checked::Skipped(format!("{place}: {}: a control plane writes this itself", draft.key)));
    }
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
    let (unknown_fields, advice) = (parsed.unknown_fields, parsed.advice);
    let place = place.to_owned();
    Ok(Checked::Planned(Box::new(Planned { draft, body, unknown_fields, advice, place })))
}

fn why_unknown(kind: &str, suggestion: Option<&'static str>) -> String {
    match (kuma_kinds::has(kind), suggestion) {
        (true, _) => "Kuma has this type, and it is not known here yet".to_owned(),
        (false, Some(known)) => format!("there is no such type; did you mean {known:?}?"),
        (false, None) => "there is no such type".to_owned(),
    }
}

/// A resource of a kind that is not known here: left out, or a mistake.
fn left_out(
    place: &str,
    value: &Value,
    kind: &str,
    why: &str,
    skip: bool,
) -> std::result::Result<Checked, Vec<String>> {
    if skip {
        let name = value.get("name").unwrap_or(&value["metadata"]["name"]).as_str().unwrap_or_default();
        return Ok(Checked::Skipped(format!("{place}: {kind} {name:?}: {why}")));
    }
    Err(vec![format!("{place}: unknown resource type {kind:?}: {why}{HINT}")])
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
