//! Every way in which a value is not what its schema asks for.

use serde_json::{Map, Value};

use super::node::{Bounds, Node, Type};
use crate::{Kind, Violations};

/// The largest whole number that JSON readers agree on: 2^53 - 1.
const WHOLE: f64 = 9_007_199_254_740_991.0;

/// Violations, as path and message.
type Found = Vec<(String, String)>;

pub(super) fn document(kind: Kind, spec: &Node, fields: &Map<String, Value>) -> Violations {
    let mut found = Found::new();
    for field in ["type", "name", "spec"] {
        if !fields.contains_key(field) {
            found.push((format!(".{field}"), "in body is required".to_owned()));
        }
    }
    let text = || Node { types: vec![Type::String], ..Node::default() };
    let labels = Node { types: vec![Type::Object], values: Some(Box::new(text())), ..Node::default() };
    let kind = Node { words: vec![kind.name().into()], ..text() };
    let parts = [("type", &kind), ("mesh", &text()), ("name", &text()), ("labels", &labels), ("spec", spec)];
    for (field, node) in parts {
        // The schema's default takes the place of a `null`, and `mesh` alone has one.
        let value = fields.get(field).filter(|value| field != "mesh" || !value.is_null());
        if let Some(value) = value {
            check(node, value, field, &mut found);
        }
    }
    violations(found)
}

pub(super) fn spec(node: &Node, value: &Value) -> Violations {
    let mut found = Found::new();
    check(node, value, "spec", &mut found);
    violations(found)
}

/// In the order of their texts. Kuma names a field only inside the spec; elsewhere the path is a part of the
/// message.
fn violations(mut found: Found) -> Violations {
    found.sort();
    let mut violations = Violations::default();
    for (path, message) in found {
        if path.starts_with("spec.") {
            violations.add(path, message);
        } else {
            violations.add("", format!("{path} {message}"));
        }
    }
    violations
}

fn check(node: &Node, value: &Value, path: &str, found: &mut Found) {
    let mut add = |message: String| found.push((path.to_owned(), format!("in body {message}")));
    if !node.types.is_empty() && !node.types.iter().any(|wanted| is(*wanted, value)) {
        let wanted: Vec<&str> = node.types.iter().map(|wanted| wanted.name()).collect();
        add(format!("must be of type {}: {:?}", wanted.join(","), name(value)));
    }
    check_value(node, value, &mut add);
    match value {
        Value::Object(fields) => check_fields(node, fields, path, found),
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for (i, item) in items.iter().enumerate() {
                check(node, item, &format!("{path}[{i}]"), found);
            }
        }
        Value::Number(number) if node.int32 && !number.as_f64().is_some_and(fits_int32) => {
            // The validator's own words, which name the field at their end.
            let message = format!("value must be of type integer with format int32 in {path}");
            found.push(("Checked".to_owned(), message));
        }
        _ => {}
    }
}

/// Words, ranges and lengths.
fn check_value(node: &Node, value: &Value, add: &mut impl FnMut(String)) {
    if !node.words.is_empty() && !node.words.contains(value) {
        let text = |word: &Value| word.as_str().map_or_else(|| word.to_string(), str::to_owned);
        let words: Vec<String> = node.words.iter().map(text).collect();
        add(format!("should be one of [{}]", words.join(" ")));
    }
    match value {
        Value::Number(number) => {
            let outside = number.as_f64().map(|number| outside(node.range, number)).unwrap_or_default();
            for (rule, bound) in outside {
                add(format!("should be {rule} than or equal to {bound}"));
            }
        }
        Value::String(text) => {
            for (rule, bound) in counted(node.length, text.chars().count()) {
                add(format!("should be {rule} {bound} chars long"));
            }
            if let Some(pattern) = node.pattern
                && !pattern.matches(text)
            {
                add(format!("should match '{}'", pattern.text()));
            }
        }
        Value::Array(items) => {
            for (rule, bound) in counted(node.count, items.len()) {
                add(format!("should have {rule} {bound} items"));
            }
        }
        _ => {}
    }
}

fn check_fields(node: &Node, fields: &Map<String, Value>, path: &str, found: &mut Found) {
    for field in node.required.iter().filter(|field| !fields.contains_key(*field)) {
        found.push((format!("{path}.{field}"), "in body is required".to_owned()));
    }
    for (field, value) in fields {
        let inner = node.fields.get(field).or(node.values.as_deref());
        if let Some(inner) = inner {
            check(inner, value, &format!("{path}.{field}"), found);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the bounds in schemas are small")]
fn outside(bounds: Bounds, number: f64) -> Vec<(&'static str, i64)> {
    let low = bounds.least.filter(|least| number < *least as f64).map(|least| ("greater", least));
    let high = bounds.most.filter(|most| number > *most as f64).map(|most| ("less", most));
    low.into_iter().chain(high).collect()
}

fn counted(bounds: Bounds, count: usize) -> Vec<(&'static str, i64)> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let few = bounds.least.filter(|least| count < *least).map(|least| ("at least", least));
    let many = bounds.most.filter(|most| count > *most).map(|most| ("at most", most));
    few.into_iter().chain(many).collect()
}

fn is(wanted: Type, value: &Value) -> bool {
    match wanted {
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Boolean => value.is_boolean(),
        Type::Number => value.is_number(),
        // `80.0` is a whole number; a number that a double cannot hold exactly is none.
        Type::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() <= WHOLE),
    }
}

fn fits_int32(number: f64) -> bool {
    (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number)
}

/// Name of a value's type; all numbers share one.
pub(super) fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
