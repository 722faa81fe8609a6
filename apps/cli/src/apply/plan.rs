//! Plan of a command: every resource of the input, checked, in the order it will be sent.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    Draft, Key, Kind, Violations, checks,
    format::{self, template, yaml},
    nearest::nearest,
    superseded::SUPERSEDED,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    place::{InputText, SourcePosition},
    send::body,
    sources::Text,
    unknown::{self, IneffectiveField},
};
use crate::{
    client::ApiClient,
    document::{self, DocumentHeader},
    failure::{Failure, Result},
    kuma_kinds,
    types::Type,
};

const HINT: &str = "; --skip-unknown applies the rest";
const NOT_SERVED: &str = "the REST API does not serve this type";
const WRITTEN_ITSELF: &str = "a control plane writes this itself";

/// A resource of the input that passed every check that needs no control plane.
#[derive(Debug)]
pub struct PlannedResource {
    pub draft: Draft,
    pub body: Value,
    pub unknown_fields: Vec<IneffectiveField>,
    /// Notes on parts that were read as something else than is written.
    pub advice: Vec<String>,
    /// Set if only a resource that exists already may have this name: the reason.
    old_name: Option<String>,
    place: SourcePosition,
}

/// The labels of a resource, as they are written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct WrittenLabels {
    labels: Map<String, Value>,
}

impl PlannedResource {
    pub fn label(&self) -> String {
        self.draft.key.to_string()
    }

    /// `meshtimeout/slow`, as `get -o name` prints it.
    pub fn path_name(&self) -> String {
        format!("{}/{}", self.draft.kind().name().to_lowercase(), self.draft.key.name)
    }

    /// Path in the REST API.
    pub fn path(&self) -> String {
        let key = &self.draft.key;
        Type::of_kind(key.kind).item(&key.mesh, &key.name)
    }

    /// `file:line` of a field.
    pub fn at(&self, field: &str) -> String {
        self.place.at(field)
    }

    /// Gives the resource a label.
    pub fn label_with(&mut self, label: &str, value: &str) {
        self.draft.labels.insert(label.to_owned(), value.to_owned());
        let mut written: WrittenLabels = document::parts(&self.body);
        written.labels.insert(label.to_owned(), value.into());
        document::overwrite(&mut self.body, &written);
    }
}

/// Refuses names that a new resource must not have. Without a control plane every resource counts as new.
pub fn check_old_names(planned: &[PlannedResource], client: Option<&ApiClient>) -> Result<()> {
    let mut mistakes = Vec::new();
    for resource in planned {
        let Some(why) = &resource.old_name else { continue };
        let exists = match client {
            Some(client) => client.get(&resource.path())?.status == 200,
            None => false,
        };
        if !exists {
            let advice = match client {
                Some(_) => "",
                None => "; a resource that exists may keep such a name, --dry-run=server finds out",
            };
            mistakes.push(format!("{}: {}: {why}{advice}", resource.place.at("name"), resource.draft.key));
        }
    }
    refuse(mistakes, "the input is not valid, nothing was sent")
}

/// Refuses fields that no kind has, each with the field that may be meant.
pub fn check_fields(planned: &[PlannedResource]) -> Result<()> {
    let of = |resource: &PlannedResource| -> Vec<String> {
        resource.unknown_fields.iter().map(|slip| misspelt(&resource.place, slip)).collect()
    };
    refuse(planned.iter().flat_map(of).collect(), "the input has unknown fields (--strict), nothing was sent")
}

/// Resources to be sent, and those that are not.
#[derive(Debug, Default)]
pub struct ApplyPlan {
    pub planned: Vec<PlannedResource>,
    /// Resources that were left out and why, a line each.
    pub skipped: Vec<String>,
}

/// Result of checking one document of the input.
enum CheckedDocument {
    Planned(Box<PlannedResource>),
    Skipped(String),
}

/// Reads and checks all texts. Every mistake in every text is reported, not only the first.
pub fn make(texts: Vec<Text>, vars: &BTreeMap<String, String>, skip_unknown: bool) -> Result<ApplyPlan> {
    let ApplyPlan { mut planned, mut skipped } = ApplyPlan::default();
    let mut mistakes = Vec::new();
    for text in texts {
        let mut of_text = Vec::new();
        match documents(&text, vars) {
            Ok(documents) => {
                for (place, value) in documents {
                    match check(place, value, skip_unknown) {
                        Ok(CheckedDocument::Planned(resource)) => planned.push(*resource),
                        Ok(CheckedDocument::Skipped(what)) => skipped.push(what),
                        Err(found) => of_text.extend(found),
                    }
                }
            }
            Err(found) => of_text = found,
        }
        if vars.is_empty() {
            add_variables(&text, &mut of_text);
        }
        mistakes.extend(of_text);
    }
    mistakes.extend(duplicates(&planned));
    refuse(mistakes, "the input is not valid, nothing was sent")?;
    // Everything else in the input may need the meshes in it.
    planned.sort_by_key(|resource: &PlannedResource| resource.draft.kind() != Kind::Mesh);
    Ok(ApplyPlan { planned, skipped })
}

/// Keys of the resources in the texts, without a look at the rest of each.
pub fn keys(texts: &[Text], vars: &BTreeMap<String, String>, skip_unknown: bool) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    let mut mistakes = Vec::new();
    for text in texts {
        let found = documents(text, vars).unwrap_or_else(|found| {
            mistakes.extend(found);
            Vec::new()
        });
        for (place, value) in found {
            match format::parse(value) {
                Ok(format::Parsed { draft: Draft { key, .. }, .. })
                | Err(format::Error::Violations { key, .. })
                    if !key.name.is_empty() && !key.kind.descriptor().path.is_empty() =>
                {
                    keys.push(key);
                }
                Ok(format::Parsed { draft, .. }) if draft.key.name.is_empty() => {
                    mistakes.push(format!("{}: {}: name: cannot be empty", place.at("name"), draft.kind()));
                }
                Ok(format::Parsed { draft, .. }) => {
                    mistakes.push(format!("{}: {}: {NOT_SERVED}", place.at(""), draft.key));
                }
                Err(format::Error::UnknownKind { .. } | format::Error::Superseded(_)) if skip_unknown => {}
                Err(error) => mistakes.push(format!("{}: {error}", place.at(&field_of(&place, &error)))),
            }
        }
    }
    refuse(mistakes, "the input is not valid, nothing was sent")?;
    Ok(keys)
}

/// Every document of all texts, each with its place.
pub fn read(texts: &[Text]) -> Result<Vec<(String, Value)>> {
    let mut all = Vec::new();
    let mut mistakes = Vec::new();
    for text in texts {
        match documents(text, &BTreeMap::new()) {
            Ok(found) => all.extend(found.into_iter().map(|(place, value)| (place.at(""), value))),
            Err(found) => mistakes.extend(found),
        }
    }
    refuse(mistakes, "the input is not valid")?;
    Ok(all)
}

fn refuse(mistakes: Vec<String>, what: &str) -> Result<()> {
    if mistakes.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(format!("{what}\n{}", mistakes.join("\n"))))
}

/// Says of lines that are wrong which variables in them have no value. A variable that is not in quotes is not
/// even YAML, so there this is all that is worth saying.
fn add_variables(text: &Text, mistakes: &mut Vec<String>) {
    let Ok(utf8) = std::str::from_utf8(&text.bytes) else { return };
    if mistakes.is_empty() {
        return;
    }
    let missing = template::variables(utf8);
    let is_wrong = |line: usize| {
        let line = format!("{}:{line}:", text.name);
        mistakes.iter().any(|mistake| mistake.starts_with(&line))
    };
    let wrong: Vec<String> = missing
        .iter()
        .filter(|variable| is_wrong(variable.line))
        .map(|variable| format!("{}:{variable}", text.name))
        .collect();
    let unreadable = !wrong.is_empty() && yaml::documents(utf8).is_err();
    if unreadable {
        *mistakes = missing.iter().map(|variable| format!("{}:{variable}", text.name)).collect();
    } else {
        mistakes.extend(wrong);
    }
}

fn documents(
    text: &Text,
    vars: &BTreeMap<String, String>,
) -> std::result::Result<Vec<(SourcePosition, Value)>, Vec<String>> {
    let located = |error: yaml::Error| {
        let place = if error.line > 0 { format!(":{}:{}", error.line, error.column) } else { String::new() };
        let snippet = if error.snippet.is_empty() { String::new() } else { format!("\n{}", error.snippet) };
        vec![format!("{}{place}: {}{snippet}", text.name, error.message)]
    };
    let Ok(utf8) = std::str::from_utf8(&text.bytes) else {
        return yaml::from_bytes(&text.bytes).map(|_| Vec::new()).map_err(located);
    };
    let rendered = template::render(utf8, vars).map_err(|missing| {
        missing.into_iter().map(|missing| format!("{}:{missing}", text.name)).collect::<Vec<_>>()
    })?;
    let found = yaml::documents(&rendered).map_err(located)?;
    let text = Arc::new(InputText::new(&text.name, rendered));
    Ok(found.into_iter().flat_map(|document| members(&text, document.line, document.value)).collect())
}

/// The resources in a document: itself, or those of the list it is (`get -o yaml`, `kind: List`).
fn members(text: &Arc<InputText>, line: usize, value: Value) -> Vec<(SourcePosition, Value)> {
    let header = DocumentHeader::of(&value);
    let is_resource =
        header.r#type.is_some() || header.kind.is_some_and(|kind| kind != "List" && !kind.ends_with("List"));
    let listed = |list: &str, items: Vec<Value>| {
        let member = |(index, item): (usize, Value)| {
            (SourcePosition::new(text, line, format!("{list}[{index}]"), &item), item)
        };
        items.into_iter().enumerate().map(member).collect()
    };
    match value {
        Value::Object(mut fields) if !is_resource && fields.get("items").is_some_and(Value::is_array) => {
            match fields.shift_remove("items") {
                Some(Value::Array(items)) => listed("items", items),
                _ => Vec::new(),
            }
        }
        Value::Array(items) => listed("", items),
        other => vec![(SourcePosition::new(text, line, String::new(), &other), other)],
    }
}

fn check(
    place: SourcePosition,
    value: Value,
    skip_unknown: bool,
) -> std::result::Result<CheckedDocument, Vec<String>> {
    let parsed = match format::parse(value.clone()) {
        Ok(parsed) => parsed,
        Err(format::Error::UnknownKind { name: kind, suggestion }) => {
            let why = why_unknown(&kind, suggestion);
            return left_out(&place, &value, &kind, &why, skip_unknown);
        }
        Err(format::Error::Superseded(kind)) if !skip_unknown => {
            return Err(vec![format!("{}: {}{HINT}", place.at(place.kind_field()), kind.refusal())]);
        }
        Err(format::Error::Superseded(kind)) => {
            return left_out(&place, &value, kind.name, &kind.refusal(), skip_unknown);
        }
        Err(format::Error::Violations { key, violations }) => {
            return Err(mistakes(&place, &key, &unknown::of_refused(&value), violations));
        }
        Err(error) => {
            let told = format!("{}: {error}", place.at(&field_of(&place, &error)));
            let slips = unknown::of_refused(&value);
            return Err(slips.iter().map(|slip| misspelt(&place, slip)).chain([told]).collect());
        }
    };
    let draft = parsed.draft;
    let descriptor = draft.kind().descriptor();
    let is_written_itself = descriptor.read_only || descriptor.path.is_empty();
    if skip_unknown && is_written_itself {
        return Ok(CheckedDocument::Skipped(format!("{}: {}: {WRITTEN_ITSELF}", place.at(""), draft.key)));
    }
    let mut found = Violations::default();
    let mut of_new = Violations::default();
    let mut of_old = Violations::default();
    if descriptor.path.is_empty() {
        found.add("type", format!("{NOT_SERVED}{HINT}"));
    } else if is_written_itself {
        found.add("type", format!("{WRITTEN_ITSELF}{HINT}"));
    }
    found.extend(draft.validate());
    checks::names(&draft, false, &mut of_new);
    checks::names(&draft, true, &mut of_old);
    if !of_old.is_empty() {
        found.extend(of_new.clone());
    }
    checks::labels(&draft, &mut found);
    let unknown_fields = unknown::of_read(&value, parsed.unknown_fields);
    if !found.is_empty() {
        return Err(mistakes(&place, &draft.key, &unknown_fields, found));
    }
    let old_name = of_new.iter().next().map(ToString::to_string);
    let body = body(value, &draft);
    let advice = parsed.advice;
    Ok(CheckedDocument::Planned(Box::new(PlannedResource {
        draft,
        body,
        unknown_fields,
        advice,
        old_name,
        place,
    })))
}

/// A line for each unknown field and each violation, at the line of its field. A slip is often why something else is
/// missing, so it comes first.
fn mistakes(
    place: &SourcePosition,
    key: &Key,
    unknown: &[IneffectiveField],
    violations: Violations,
) -> Vec<String> {
    let about = if key.name.is_empty() { key.kind.to_string() } else { key.to_string() };
    let line =
        |violation: resources::Violation| format!("{}: {about}: {violation}", place.at(&violation.field));
    let slips = unknown.iter().map(|slip| misspelt(place, slip));
    slips.chain(violations.into_vec().into_iter().map(line)).collect()
}

fn misspelt(place: &SourcePosition, slip: &IneffectiveField) -> String {
    format!("{}: {slip}", place.at(&slip.path))
}

/// The field that a document cannot be read because of.
fn field_of(place: &SourcePosition, error: &format::Error) -> String {
    match error {
        format::Error::UnknownKind { .. } | format::Error::Superseded(_) => place.kind_field().to_owned(),
        format::Error::NotAString { field } | format::Error::NotAMapping { field } => field.clone(),
        format::Error::Shape { error, .. } => error.path.clone(),
        format::Error::ApiVersion { .. } => "apiVersion".to_owned(),
        format::Error::SecretType { .. } => "type".to_owned(),
        _ => String::new(),
    }
}

fn why_unknown(kind: &str, suggestion: Option<&'static str>) -> String {
    if kuma_kinds::has(kind) {
        return "it is known in Kuma, not supported by kuma-rs".to_owned();
    }
    let known = Kind::ALL.iter().map(|kind| kind.name()).chain(SUPERSEDED.iter().map(|kind| kind.name));
    match suggestion.or_else(|| nearest(kind, known)) {
        Some(known) => format!("there is no such type; did you mean {known:?}?"),
        None => "there is no such type".to_owned(),
    }
}

/// A resource of a kind that is not known here: left out, or a mistake.
fn left_out(
    place: &SourcePosition,
    value: &Value,
    kind: &str,
    why: &str,
    skip: bool,
) -> std::result::Result<CheckedDocument, Vec<String>> {
    if skip {
        let header = DocumentHeader::of(value);
        let name = header.name.or(header.metadata.name).unwrap_or_default();
        return Ok(CheckedDocument::Skipped(format!("{}: {kind} {name:?}: {why}", place.at(""))));
    }
    let place = place.at(place.kind_field());
    Err(vec![format!("{place}: unknown resource type {kind:?}: {why}{HINT}")])
}

fn duplicates(planned: &[PlannedResource]) -> Vec<String> {
    let mut first: BTreeMap<&Key, &SourcePosition> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for resource in planned {
        match first.get(&resource.draft.key) {
            None => {
                first.insert(&resource.draft.key, &resource.place);
            }
            Some(earlier) => mistakes.push(format!(
                "{}: {} is already defined at {}",
                resource.place.at(""),
                resource.draft.key,
                earlier.at("")
            )),
        }
    }
    mistakes
}
