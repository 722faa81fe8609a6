//! Which fields each operation needs and which it forbids.

use serde_json::Value;

use super::{Change, FilterMatch, JsonPatch, JsonPatchOp, Operation};
use crate::{Path, Violations, kinds::checks};

const ON_RESOURCES: &[&str] = &["Add", "Patch", "Remove"];
const ON_FILTERS: &[&str] = &["AddFirst", "AddLast", "AddBefore", "AddAfter", "Patch", "Remove"];

impl Change<FilterMatch> {
    pub(super) fn validate_filter(&self, field: &str, modification: &Path, found: &mut Violations) {
        let path = modification.field(field);
        match self.operation {
            Operation::AddFirst | Operation::AddLast => self.validate_value(&path, found),
            Operation::AddBefore => {
                let hint = "must be defined. You need to pick a filter before which this one will be added";
                self.require_name(hint, &path, found);
                self.validate_value(&path, found);
            }
            Operation::AddAfter => {
                let hint = "must be defined. You need to pick a filter after which this one will be added";
                self.require_name(hint, &path, found);
                self.validate_value(&path, found);
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
                self.validate_value(&path, found);
            }
            Operation::Patch => self.validate_patch(field, &path, found),
            Operation::Remove => self.forbid_value(&path, found),
            _ => found.add(path.field("operation"), available(ON_RESOURCES)),
        }
    }

    fn validate_value(&self, path: &Path, found: &mut Violations) {
        match &self.value {
            Some(value) => validate_yaml(value, &path.field("value"), found),
            None => found.add(path.field("value"), checks::MUST_BE_DEFINED),
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
            (Some(value), true) => validate_yaml(value, &path.field("value"), found),
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

fn validate_yaml(text: &str, path: &Path, found: &mut Violations) {
    let reason = match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(fields)) if !fields.is_empty() => return,
        Ok(_) => "expected a YAML mapping".to_owned(),
        Err(error) => error.to_string(),
    };
    found.add(path, format!("native Envoy resource is not valid: {reason}"));
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
