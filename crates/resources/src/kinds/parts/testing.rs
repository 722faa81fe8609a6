//! Helpers with which the tests of every kind say "this input has exactly these violations".

use serde_json::{Value, json};

use crate::{Draft, Form, Key, Kind, Spec, format, format::Parsed};

/// Reads a resource the way the REST API does; panics on input that has the wrong shape.
pub fn parsed(kind: Kind, json: Value) -> Parsed {
    let Value::Object(mut fields) = json else { panic!("not an object: {json}") };
    fields.entry("type").or_insert_with(|| kind.name().into());
    match format::universal::parse_as(kind, fields) {
        Ok(parsed) => parsed,
        Err(error) => panic!("{kind}: {error}"),
    }
}

/// A resource in spec form, without its kind: readers get that apart.
pub fn resource(spec: Value) -> Value {
    json!({ "mesh": "default", "name": "example", "spec": spec })
}

/// Little that the schema of a kind in spec form takes, also when it was written out again.
pub fn least(kind: Kind) -> Value {
    match kind {
        Kind::MeshExternalService => json!({ "match": { "port": 80 } }),
        Kind::MeshMultiZoneService => {
            json!({ "selector": { "meshService": { "matchLabels": { "a": "b" } } }, "ports": [{ "port": 80 }] })
        }
        Kind::MeshProxyPatch => json!({ "default": {} }),
        Kind::MeshTrust => json!({ "caBundles": [{ "type": "Pem" }], "trustDomain": "" }),
        Kind::MeshZoneAddress => json!({ "address": "a", "port": 1 }),
        _ => json!({}),
    }
}

pub fn draft(kind: Kind, json: Value) -> Draft {
    parsed(kind, json).draft
}

/// Reads a resource without looking at the schema of its kind: its own rules do not depend on that, because
/// not everything that is validated was read from a user.
fn unchecked(kind: Kind, json: Value) -> Draft {
    if kind.descriptor().form == Form::Inline {
        return draft(kind, json);
    }
    let text = |field: &str| json[field].as_str().unwrap_or_default();
    let labels = serde_json::from_value(json["labels"].clone()).unwrap_or_default();
    let spec = Spec::from_json(kind, json["spec"].clone(), &mut Vec::new());
    let mut spec = spec.unwrap_or_else(|error| panic!("{kind}: {error}"));
    spec.apply_defaults();
    Draft { key: Key::new(kind, text("mesh"), text("name")), labels, spec }
}

/// Asserts the violations of a kind's own rules: all of them, in order, field and message.
#[track_caller]
pub fn check(kind: Kind, json: Value, expect: &[(&str, &str)]) {
    let text = json.to_string();
    let found = unchecked(kind, json).validate().into_vec();
    let found: Vec<(&str, &str)> = found.iter().map(|v| (v.field.as_str(), v.message.as_str())).collect();
    assert_eq!(found, expect, "{kind} {text}");
}

/// Asserts that a resource has no violations and that every field of it is known.
#[track_caller]
pub fn valid(kind: Kind, json: Value) {
    let text = json.to_string();
    let parsed = parsed(kind, json);
    assert_eq!(parsed.unknown_fields, Vec::<String>::new(), "{kind} {text}");
    let found = parsed.draft.validate();
    assert!(found.is_empty(), "{kind} {text}: {found}");
}

/// Asserts that a spec (without `type`, `mesh`, `name`) is written out exactly as it was read.
#[track_caller]
pub fn round_trips(kind: Kind, spec: Value) {
    let mut unknown = Vec::new();
    let read =
        crate::Spec::from_json(kind, spec.clone(), &mut unknown).unwrap_or_else(|e| panic!("{kind}: {e}"));
    assert_eq!(unknown, Vec::<String>::new(), "{kind} {spec}");
    assert_eq!(read.to_json(), spec, "{kind}");
}
