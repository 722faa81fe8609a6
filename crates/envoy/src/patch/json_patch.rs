//! Steps of a JSON patch (RFC 6902), as lenient as Kuma's: what is to be removed need not be there, what is
//! added brings the way to it along, and places in lists may be counted from the end.

use resources::kinds::mesh_proxy_patch::{JsonPatch, JsonPatchOp};
use serde_json::{Map, Value};

use super::error::{JsonPatchError, ModificationError};

/// Limit of a document's depth.
pub(super) const DEPTH: usize = 100;
/// Limit of values that steps may copy. Few steps could double a document many times.
const COPIED: usize = 100_000;

/// Makes all steps; the error names the step that cannot be made.
pub(super) fn apply(document: &mut Value, steps: &[JsonPatch]) -> Result<(), ModificationError> {
    let mut copied = 0;
    for (at, step) in steps.iter().enumerate() {
        one(document, step, &mut copied).map_err(|cause| ModificationError::Step { at, cause })?;
    }
    Ok(())
}

fn one(document: &mut Value, step: &JsonPatch, copied: &mut usize) -> Result<(), JsonPatchError> {
    let path = pointer(step.path.as_deref().unwrap_or_default())?;
    let from = || pointer(step.from.as_deref().unwrap_or_default());
    let given = || step.value.clone().ok_or_else(|| JsonPatchError::NoValue(step.op.clone()));
    match step.op {
        JsonPatchOp::Add => add(document, &path, given()?),
        JsonPatchOp::Replace => {
            let value = given()?;
            *find(document, &path).ok_or_else(|| missing(&path))? = value;
            Ok(())
        }
        JsonPatchOp::Remove => {
            remove(document, &path);
            Ok(())
        }
        JsonPatchOp::Move => {
            let from = from()?;
            let moved = remove(document, &from).ok_or_else(|| missing(&from))?;
            add(document, &path, moved)
        }
        JsonPatchOp::Copy => {
            let from = from()?;
            let value = find(document, &from).ok_or_else(|| missing(&from))?;
            *copied = copied.saturating_add(size(value));
            if *copied > COPIED {
                return Err(JsonPatchError::CopiesTooMuch);
            }
            let value = value.clone();
            add(document, &path, value)
        }
        JsonPatchOp::Other(ref other) => Err(JsonPatchError::NoOperation(other.clone())),
    }
}

/// `/a~1b/0`: the keys on the way.
fn pointer(text: &str) -> Result<Vec<String>, JsonPatchError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let keys = text.strip_prefix('/').ok_or_else(|| JsonPatchError::PathMalformed(text.to_owned()))?;
    Ok(keys.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).collect())
}

fn missing(path: &[String]) -> JsonPatchError {
    JsonPatchError::PathMissing(format!("/{}", path.join("/")))
}

fn find<'a>(document: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(document, |value, key| match value {
        Value::Object(fields) => fields.get_mut(key),
        Value::Array(items) => {
            let at = place(key, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    })
}

fn remove(document: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parent) = path.split_last()?;
    match find(document, parent)? {
        // The order of the others stays.
        Value::Object(fields) => fields.shift_remove(last),
        Value::Array(items) => {
            let at = place(last, items.len()).filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), JsonPatchError> {
    if path.len() + depth(&value) > DEPTH {
        return Err(JsonPatchError::TooDeep);
    }
    let Some((last, parents)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    let mut parent = document;
    for (at, key) in parents.iter().enumerate() {
        let next = path.get(at + 1).map_or("", String::as_str);
        parent = enter(parent, key, next).ok_or_else(|| missing(&path[..=at]))?;
    }
    match parent {
        Value::Object(fields) => drop(fields.insert(last.clone(), value)),
        Value::Array(items) => {
            // There is one place more than there are items: the end.
            let at = if last == "-" { Some(items.len()) } else { place(last, items.len() + 1) };
            let at = at.filter(|at| *at <= items.len()).ok_or_else(|| missing(path))?;
            items.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

/// Returns the value at a key, made if it is missing: a list if `next` is an index, else an object.
fn enter<'a>(parent: &'a mut Value, key: &str, next: &str) -> Option<&'a mut Value> {
    let fresh = || {
        if next == "-" || next.parse::<i64>().is_ok() {
            Value::Array(Vec::new())
        } else {
            Value::Object(Map::new())
        }
    };
    match parent {
        Value::Object(fields) => Some(fields.entry(key).or_insert_with(fresh)),
        Value::Array(items) => {
            if key == "-" {
                items.push(fresh());
                return items.last_mut();
            }
            let at = place(key, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    }
}

/// A place in a list of so many; negative ones count from the end.
fn place(key: &str, length: usize) -> Option<usize> {
    match key.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok().filter(|back| *back > 0)?),
        None => key.parse().ok(),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        // Long texts count by their length.
        Value::String(text) => 1 + text.len() / 16,
        _ => 1,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut document: Value, steps: Value) -> Result<Value, String> {
        let steps: Vec<JsonPatch> = serde_json::from_value(steps).unwrap();
        apply(&mut document, &steps).map(|()| document).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(document: Value, step: Value, expect: Value) {
        assert_eq!(patched(document, json!([step])), Ok(expect), "{step}");
    }

    #[test]
    fn every_operation_does_what_the_standard_says() {
        check(json!({"a": 1}), json!({"op": "add", "path": "/b", "value": 2}), json!({"a": 1, "b": 2}));
        check(json!({"a": [1]}), json!({"op": "add", "path": "/a/0", "value": 0}), json!({"a": [0, 1]}));
        check(json!({"a": [1]}), json!({"op": "add", "path": "/a/-", "value": 2}), json!({"a": [1, 2]}));
        check(json!({"a": 1}), json!({"op": "replace", "path": "/a", "value": null}), json!({"a": null}));
        check(json!({"a": 1}), json!({"op": "replace", "path": "", "value": {}}), json!({}));
        check(json!({"a": [1, 2]}), json!({"op": "remove", "path": "/a/0"}), json!({"a": [2]}));
        check(
            json!({"a": {"b": 1}}),
            json!({"op": "move", "from": "/a/b", "path": "/c"}),
            json!({"a": {}, "c": 1}),
        );
        check(
            json!({"a": {"b": 1}}),
            json!({"op": "copy", "from": "/a", "path": "/c"}),
            json!({"a": {"b": 1}, "c": {"b": 1}}),
        );
        check(json!({"a/b~": 1}), json!({"op": "remove", "path": "/a~1b~0"}), json!({}));
    }

    #[test]
    fn it_is_as_lenient_as_kuma() {
        check(json!({"a": 1}), json!({"op": "remove", "path": "/b/c"}), json!({"a": 1}));
        check(json!({}), json!({"op": "add", "path": "/a/-/b", "value": 1}), json!({"a": [{"b": 1}]}));
        check(json!({"a": [1, 2]}), json!({"op": "remove", "path": "/a/-1"}), json!({"a": [1]}));
        check(json!({"a": [1]}), json!({"op": "add", "path": "/a/-1", "value": 2}), json!({"a": [1, 2]}));
    }

    #[test]
    fn what_cannot_be_done_says_which_step_and_why() {
        for (step, reason) in [
            (json!({"op": "replace", "path": "/b", "value": 1}), "there is nothing at /b"),
            (json!({"op": "move", "from": "/b", "path": "/c"}), "there is nothing at /b"),
            (json!({"op": "copy", "from": "/b/0", "path": "/c"}), "there is nothing at /b/0"),
            (json!({"op": "add", "path": "/a/7", "value": 1}), "there is nothing at /a/7"),
            (
                json!({"op": "add", "path": "/a/4294967296/b", "value": 1}),
                "there is nothing at /a/4294967296",
            ),
            (json!({"op": "add", "path": "a", "value": 1}), "the path \"a\" does not begin with /"),
            (json!({"op": "test", "path": "/a"}), "\"test\" is no operation"),
        ] {
            let done = patched(json!({"a": [1]}), json!([{"op": "remove", "path": "/x"}, step]));
            assert_eq!(done, Err(format!("jsonPatches[1]: {reason}")));
        }
    }

    #[test]
    fn few_steps_do_not_make_a_huge_or_a_deep_document() {
        let doubled: Vec<Value> =
            (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/{n}")})).collect();
        assert!(patched(json!({"a": [1]}), json!(doubled)).unwrap_err().ends_with("the steps copy too much"));
        let nested: Vec<Value> =
            (0..200).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/a"})).collect();
        assert!(patched(json!({"a": {}}), json!(nested)).unwrap_err().contains("deeper than 100"));
        let path = "/a".repeat(200);
        let deep = patched(json!({}), json!([{"op": "add", "path": path, "value": 1}]));
        assert!(deep.unwrap_err().contains("deeper than 100"));
    }
}
