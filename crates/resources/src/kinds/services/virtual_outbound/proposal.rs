//! VirtualOutbounds in the form in which they were first proposed, read as what is stored.
//!
//! The proposal's examples write tags beside an empty `match:`. A decoder would drop them, and a selector that
//! lost its tags selects more than its author meant; so they are moved under `match` before anything is decoded.

use serde_json::{Map, Value};

use super::evaluation;
use crate::{Path, Violations};

const MATCH: &str = "match";

/// Moves tags that stand beside an empty `match` under it. Returns advice that shows the stored form of all that
/// is written as proposed. `body` is the field that the document stands in.
pub(crate) fn read(document: &mut Value, body: &str) -> Result<Vec<String>, Violations> {
    let body = Path::new(body);
    let mut advice = Vec::new();
    let mut found = Violations::default();
    let selectors = document.get_mut("selectors").and_then(Value::as_array_mut);
    for (i, selector) in selectors.into_iter().flatten().enumerate() {
        if let Value::Object(fields) = selector {
            gather(fields, &body.field("selectors").index(i), &mut advice, &mut found);
        }
    }
    if let Some(Value::Object(conf)) = document.get("conf") {
        look_at_conf(conf, &body.field("conf"), &mut advice, &mut found);
    }
    found.into_result().map(|()| advice)
}

fn gather(selector: &mut Map<String, Value>, path: &Path, advice: &mut Vec<String>, found: &mut Violations) {
    let beside: Vec<String> = selector.keys().filter(|field| *field != MATCH).cloned().collect();
    let empty = match selector.get(MATCH) {
        Some(Value::Null) => true,
        Some(Value::Object(tags)) => tags.is_empty(),
        _ => return,
    };
    if beside.is_empty() {
        return;
    }
    if !empty {
        let message = "is beside \"match\", which has tags itself; move it under \"match\" or remove it";
        beside.iter().for_each(|tag| found.add(path.key(tag), message));
        return;
    }
    let tags = std::mem::take(selector);
    let tags: Map<String, Value> = tags.into_iter().filter(|(field, _)| field != MATCH).collect();
    selector.insert(MATCH.to_owned(), tags.into());
    advice.push(format!(
        "{path}: the tags are beside \"match\" and are read as if they were under it; write {}",
        Value::Object(selector.clone())
    ));
}

fn look_at_conf(conf: &Map<String, Value>, path: &Path, advice: &mut Vec<String>, found: &mut Violations) {
    let listed = |field: &str, filled: fn(&Value) -> bool| conf.get(field).is_some_and(filled);
    let tags = conf.get("tags").and_then(Value::as_object).filter(|tags| !tags.is_empty());
    if tags.is_some() && listed("parameters", |list| list.as_array().is_some_and(|list| !list.is_empty())) {
        found.add(path.field("tags"), "is another way to write \"parameters\"; write \"parameters\" only");
        return;
    }
    let names: Vec<&str> = tags.into_iter().flat_map(Map::values).filter_map(Value::as_str).collect();
    if let Some(tags) = tags {
        let parameter = |(tag, name): (&String, &Value)| serde_json::json!({ "name": name, "tagKey": tag });
        let parameters: Value = tags.iter().map(parameter).collect();
        advice.push(format!(
            "{}: is read as \"parameters\"; write {}",
            path.field("tags"),
            serde_json::json!({ "parameters": parameters })
        ));
    }
    for field in ["host", "port"] {
        let Some(template) = conf.get(field).and_then(Value::as_str) else { continue };
        let dotted = evaluation::with_dots(template, &names);
        if dotted != template {
            advice.push(format!(
                "{}: variables without a dot are read as if they had one; write {dotted:?}",
                path.field(field)
            ));
        }
    }
}
