//! Fields that nothing reads, found by the schema, so that they are known where the rest is not valid either.

use serde_json::{Map, Value};

use super::{node::Node, proto::field_of};
use crate::{Form, Path};

/// A field that nothing reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// From the resource's root.
    pub path: String,
    pub name: String,
    /// The fields that may stand there.
    pub known: Vec<&'static str>,
}

/// Fields of every resource beside its spec; control planes write the rest of it themselves.
const UNIVERSAL: [&str; 9] =
    ["type", "mesh", "name", "labels", "creationTime", "modificationTime", "kri", "snis", "status"];
const KUBERNETES: [&str; 5] = ["apiVersion", "kind", "metadata", "mesh", "status"];
const SPEC: &str = "spec";

/// The unknown fields of a document in either form.
pub(super) fn in_document(form: Form, node: &'static Node, fields: &Map<String, Value>) -> Vec<UnknownField> {
    let mut found = Vec::new();
    let beside: &[&str] = if fields.contains_key("apiVersion") { &KUBERNETES } else { &UNIVERSAL };
    if form == Form::Inline && beside == UNIVERSAL {
        // Of these, a spec may have `status`, for example.
        let own = fields
            .iter()
            .filter(|(name, _)| !beside.contains(&name.as_str()) || node.fields.contains_key(*name));
        let own: Map<String, Value> = own.map(|(name, value)| (name.clone(), value.clone())).collect();
        of_object(node, &own, &Path::root(), &mut found);
        return found;
    }
    for (name, value) in fields {
        if name == SPEC {
            find(node, value, &Path::new(SPEC), &mut found);
        } else if !beside.contains(&name.as_str()) {
            let known = beside.iter().copied().chain([SPEC]);
            found.push(UnknownField::new(&Path::root(), name, known));
        }
    }
    found
}

fn find(node: &'static Node, value: &Value, path: &Path, found: &mut Vec<UnknownField>) {
    match value {
        Value::Object(fields) => of_object(node, fields, path, found),
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            items.iter().enumerate().for_each(|(at, item)| find(node, item, &path.index(at), found));
        }
        _ => {}
    }
}

fn of_object(node: &'static Node, fields: &Map<String, Value>, path: &Path, found: &mut Vec<UnknownField>) {
    // Free-form settings have neither.
    let is_open = node.fields.is_empty() && node.values.is_none();
    for (name, value) in fields {
        match field_of(node, name).or(node.values.as_deref()) {
            Some(inner) => find(inner, value, &path.field(name), found),
            None if is_open => {}
            None => found.push(UnknownField::new(path, name, node.fields.keys().map(String::as_str))),
        }
    }
}

impl UnknownField {
    fn new(owner: &Path, name: &str, known: impl IntoIterator<Item = &'static str>) -> UnknownField {
        let mut known: Vec<&str> = known.into_iter().collect();
        known.sort_unstable();
        UnknownField { path: owner.field(name).into(), name: name.to_owned(), known }
    }
}
