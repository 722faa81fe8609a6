//! Required and forbidden fields of each operation.

use serde_json::{Map, Value};

use super::{Change, FilterMatch, JsonPatch, JsonPatchOp, Operation};
use crate::{Path, Violations, kinds::checks};

const ON_RESOURCES: &[&str] = &["Add", "Patch", "Remove"];
const ON_FILTERS: &[&str] = &["AddFirst", "AddLast", "AddBefore", "AddAfter", "Patch", "Remove"];

impl Change<FilterMatch> {
    pub(super) fn validate_filter(&self, field: &str, modification: &Path, found: &mut Violations) {
        let path = modification.field(field);
        match self.operation {
            Operation::AddFirst | Operation::AddLast => self.validate_value(field, &path, found),
            Operation::AddBefore => {
                let hint = "must be defined. You need to pick a filter before which this one will be added";
                self.require_name(hint, &path, found);
                self.validate_value(field, &path, found);
            }
            Operation::AddAfter => {
                let hint = "must be defined. You need to pick a filter after which this one will be added";
                self.require_name(hint, &path, found);
                self.validate_value(field, &path, found);
            }
            Operation::Patch => {
                self.require_name(checks::MUST_BE_DEFINED, &path, found);
                self.validate_patch(field, &path, found);
            }
            Operation::Remove => self.forbid_value(&path, found),
            _ => found.add(path.field("operation"), available(ON_FILTERS)),
        }
    }

    fn require_name(&self, message: &str, path: &Path, found: &mut Violations) {
        let named = self.match_.as_ref().is_some_and(|matched| matched.name.is_some());
        found.require(named, path.field("match").field("name"), message);
    }
}

impl<M> Change<M> {
    /// The fields of the value, if it has one; the error says why they cannot be read.
    pub fn fields(&self) -> Option<Result<Map<String, Value>, String>> {
        self.value.as_deref().map(mapping)
    }

    /// `forbidden` is what the match says although a resource that is being added cannot match anything.
    pub(super) fn validate_resource(
        &self,
        field: &str,
        forbidden: Option<&str>,
        modification: &Path,
        found: &mut Violations,
    ) {
        let path = modification.field(field);
        match self.operation {
            Operation::Add => {
                if let Some(forbidden) = forbidden {
                    found.add(path.field(forbidden), checks::MUST_NOT_BE_DEFINED);
                }
                self.validate_value(field, &path, found);
            }
            Operation::Patch => self.validate_patch(field, &path, found),
            Operation::Remove => self.forbid_value(&path, found),
            _ => found.add(path.field("operation"), available(ON_RESOURCES)),
        }
    }

    /// Checks the value to add. It is a whole resource, so Envoy's rules for it hold; a patch need not be
    /// one.
    fn validate_value(&self, field: &str, path: &Path, found: &mut Violations) {
        let path = path.field("value");
        let Some(value) = &self.value else {
            found.add(path, checks::MUST_BE_DEFINED);
            return;
        };
        let incomplete = |fields| missing(field, &fields).map_or(Ok(()), Err);
        if let Err(reason) = mapping(value).and_then(incomplete) {
            found.add(path, not_valid(&reason));
        }
    }

    fn forbid_value(&self, path: &Path, found: &mut Violations) {
        found.require(self.value.is_none(), path.field("value"), checks::MUST_NOT_BE_DEFINED);
    }

    fn validate_patch(&self, field: &str, path: &Path, found: &mut Violations) {
        let patches = self.json_patches.as_deref().unwrap_or_default();
        match (&self.value, patches.is_empty()) {
            (Some(_), false) => {
                found.add(path, format!("{field} must have only one type defined: value, jsonPatches"));
            }
            (Some(value), true) => {
                if let Err(reason) = mapping(value) {
                    found.add(path.field("value"), not_valid(&reason));
                }
            }
            (None, false) => {
                for (i, patch) in patches.iter().enumerate() {
                    patch.validate(&path.field("jsonPatches").index(i), found);
                }
            }
            (None, true) => {
                found.add(path, format!("{field} must have exactly one defined: value, jsonPatches"));
            }
        }
    }
}

/// The fields of an Envoy resource. What is no YAML is read as JSON by Kuma, which is what its error is about.
fn mapping(text: &str) -> Result<Map<String, Value>, String> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("expected a YAML mapping".to_owned()),
        Err(error) => match serde_json::from_str::<Value>(text) {
            Err(json) if json.is_eof() => Err("unexpected EOF".to_owned()),
            _ => Err(error.to_string()),
        },
    }
}

/// Returns the error about a missing field of a whole resource, in the words of Envoy's own rules.
fn missing(field: &str, fields: &Map<String, Value>) -> Option<String> {
    let message = match field {
        "cluster" => "Cluster",
        "virtualHost" => "VirtualHost",
        "networkFilter" => "Filter",
        "httpFilter" => "HttpFilter",
        _ => return None,
    };
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    if empty(fields.get("name")) {
        return Some(format!("invalid {message}.Name: value length must be at least 1 runes"));
    }
    (field == "virtualHost" && empty(fields.get("domains")))
        .then(|| format!("invalid {message}.Domains: value must contain at least 1 item(s)"))
}

fn not_valid(reason: &str) -> String {
    format!("native Envoy resource is not valid: {reason}")
}

fn available(operations: &[&str]) -> String {
    let quoted: Vec<String> = operations.iter().map(|operation| format!("{operation:?}")).collect();
    format!("invalid operation. Available operations: {}", quoted.join(", "))
}

impl JsonPatch {
    fn validate(&self, path: &Path, found: &mut Violations) {
        use JsonPatchOp as Op;
        checks::known(&self.op, path, "op", found);
        let moves = matches!(self.op, Op::Move | Op::Copy);
        match (moves, &self.from) {
            (true, None) => {
                found.add(path.field("from"), depends("from", checks::MUST_NOT_BE_EMPTY, "move", "copy"))
            }
            (false, Some(_)) => {
                found.add(path.field("from"), depends("from", "is allowed only", "move", "copy"))
            }
            _ => {}
        }
        let writes = matches!(self.op, Op::Add | Op::Replace);
        match (writes, &self.value) {
            (true, None) => {
                found.add(path.field("value"), depends("value", checks::MUST_NOT_BE_EMPTY, "add", "replace"));
            }
            (false, Some(_)) => {
                found.add(path.field("value"), depends("value", "is allowed only", "add", "replace"))
            }
            _ => {}
        }
        match self.path.as_deref() {
            None => found.add(path.field("path"), checks::MUST_BE_DEFINED),
            Some("" | "/") if self.op == Op::Remove => {
                found.add(path.field("path"), "root path cannot be removed");
            }
            Some(_) => {}
        }
    }
}

fn depends(field: &str, rule: &str, first: &str, second: &str) -> String {
    format!("{field:?} {rule} when \"op\" is one of [{first:?}, {second:?}]")
}
