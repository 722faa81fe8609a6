//! The difference of two JSON documents, as a JSON patch (RFC 6902).
//!
//! As in Kuma, a value that goes is named by a `test` first, so that a reader sees what was there, and one that
//! becomes another is removed and added.

use serde_json::{Map, Value, json};

/// The operations that make `after` of `before`, in order; none if they are equal.
pub fn between(before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(&mut String::new(), before, after, &mut operations);
    operations
}

fn compare(path: &mut String, before: &Value, after: &Value, operations: &mut Vec<Value>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(before), Value::Object(after)) => objects(path, before, after, operations),
        (Value::Array(before), Value::Array(after)) => lists(path, before, after, operations),
        // The whole document has no place to be removed from.
        (_, after) if path.is_empty() => {
            operations.push(json!({ "op": "replace", "path": "", "value": after }));
        }
        (before, after) => {
            remove(path, before, operations);
            add(path, after, operations);
        }
    }
}

fn objects(
    path: &mut String,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    operations: &mut Vec<Value>,
) {
    for (field, old) in before {
        below(path, &escaped(field), |path| match after.get(field) {
            Some(new) => compare(path, old, new, operations),
            None => remove(path, old, operations),
        });
    }
    for (field, new) in after.iter().filter(|(field, _)| !before.contains_key(*field)) {
        below(path, &escaped(field), |path| add(path, new, operations));
    }
}

/// Compares two lists: their common beginning and end stay; the rest is compared in pairs, and what is left
/// over removed or added.
fn lists(path: &mut String, before: &[Value], after: &[Value], operations: &mut Vec<Value>) {
    let same = |(old, new): &(&Value, &Value)| old == new;
    let head = before.iter().zip(after).take_while(same).count();
    let before = &before[head..];
    let after = &after[head..];
    let tail = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
    let before = &before[..before.len() - tail];
    let after = &after[..after.len() - tail];
    let pairs = before.len().min(after.len());
    for (at, (old, new)) in before.iter().zip(after).enumerate() {
        below(path, &(head + at).to_string(), |path| compare(path, old, new, operations));
    }
    // From the end, so that the places of the others stay what they are.
    for (at, old) in before.iter().enumerate().skip(pairs).rev() {
        below(path, &(head + at).to_string(), |path| remove(path, old, operations));
    }
    for (at, new) in after.iter().enumerate().skip(pairs) {
        below(path, &(head + at).to_string(), |path| add(path, new, operations));
    }
}

fn below(path: &mut String, step: &str, then: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(step);
    then(path);
    path.truncate(length);
}

fn remove(path: &str, old: &Value, operations: &mut Vec<Value>) {
    operations.push(json!({ "op": "test", "path": path, "value": old }));
    operations.push(json!({ "op": "remove", "path": path }));
}

fn add(path: &str, new: &Value, operations: &mut Vec<Value>) {
    operations.push(json!({ "op": "add", "path": path, "value": new }));
}

/// A field as a step of a path.
fn escaped(field: &str) -> String {
    field.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a patch to a document, by the rules of RFC 6902.
    fn applied(document: &Value, patch: &[Value]) -> Value {
        let mut document = document.clone();
        for operation in patch {
            let path = operation["path"].as_str().unwrap();
            if operation["op"] == "test" {
                assert_eq!(document.pointer(path), Some(&operation["value"]), "{operation}");
                continue;
            }
            let Some((parent, step)) = path.rsplit_once('/') else {
                document = operation["value"].clone();
                continue;
            };
            let step = step.replace("~1", "/").replace("~0", "~");
            match (document.pointer_mut(parent).unwrap(), operation["op"].as_str().unwrap()) {
                (Value::Object(fields), "remove") => drop(fields.shift_remove(&step).unwrap()),
                (Value::Object(fields), _) => drop(fields.insert(step, operation["value"].clone())),
                (Value::Array(items), "remove") => drop(items.remove(step.parse().unwrap())),
                (Value::Array(items), _) => items.insert(step.parse().unwrap(), operation["value"].clone()),
                (other, _) => panic!("{other} has no {step}"),
            }
        }
        document
    }

    fn check(before: Value, after: Value, expect: Value) {
        let patch = between(&before, &after);
        assert_eq!(applied(&before, &patch), after);
        assert_eq!(Value::Array(patch), expect);
    }

    #[test]
    fn a_value_that_becomes_another_is_tested_removed_and_added() {
        let path = "/type.googleapis.com~1Cluster/a~0b/idleTimeout";
        check(
            json!({ "type.googleapis.com/Cluster": { "a~b": { "idleTimeout": "3600s", "name": "x" } } }),
            json!({ "type.googleapis.com/Cluster": { "a~b": { "idleTimeout": "23s", "name": "x" } } }),
            json!([
                { "op": "test", "path": path, "value": "3600s" },
                { "op": "remove", "path": path },
                { "op": "add", "path": path, "value": "23s" },
            ]),
        );
    }

    #[test]
    fn what_is_equal_needs_nothing_and_lists_change_where_they_differ() {
        check(json!({ "a": [1, { "b": null }] }), json!({ "a": [1, { "b": null }] }), json!([]));
        check(
            json!([1, 2, 3]),
            json!([1, 7, 8, 2, 3]),
            json!([
                { "op": "add", "path": "/1", "value": 7 },
                { "op": "add", "path": "/2", "value": 8 },
            ]),
        );
        check(
            json!([1, 2, 3, 4]),
            json!([1, 4]),
            json!([
                { "op": "test", "path": "/2", "value": 3 },
                { "op": "remove", "path": "/2" },
                { "op": "test", "path": "/1", "value": 2 },
                { "op": "remove", "path": "/1" },
            ]),
        );
        check(json!(1), json!([]), json!([{ "op": "replace", "path": "", "value": [] }]));
    }

    #[test]
    fn a_patch_makes_the_one_of_the_other_whatever_they_are() {
        let values = [
            json!({}),
            json!({ "a": [[1, 2], [3]], "b": { "c": 1, "d/e": [null] } }),
            json!({ "a": [[3], [1, 2], 4], "b": { "d/e": [], "~": 0 } }),
            json!({ "b": [{ "c": 1 }, { "c": 2 }, { "c": 3 }] }),
            json!({ "b": [{ "c": 0 }, { "c": 2, "d": {} }] }),
        ];
        for before in &values {
            for after in &values {
                assert_eq!(&applied(before, &between(before, after)), after, "{before} {after}");
            }
        }
    }
}
