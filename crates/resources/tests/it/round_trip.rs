//! Round trips through the store: a control plane refuses to start on a stored spec that it cannot read back.

use std::{collections::BTreeSet, sync::LazyLock};

use resources::{
    Form, Key, Kind, Spec,
    format::{universal, yaml},
};
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

static EXAMPLES: LazyLock<Value> =
    LazyLock::new(|| yaml::documents(include_str!("round_trip/examples.yaml")).unwrap().swap_remove(0).value);

/// A spec of the kind with every field in it.
fn full(kind: Kind) -> Value {
    EXAMPLES.get(kind.name()).unwrap_or_else(|| panic!("no example of {kind}")).clone()
}

fn read(kind: Kind, value: Value) -> Spec {
    let text = value.to_string();
    let mut unknown = Vec::new();
    let spec = Spec::from_json(kind, value, &mut unknown).unwrap_or_else(|e| panic!("{kind} {text}: {e}"));
    assert_eq!(unknown, Vec::<String>::new(), "{kind} {text}");
    spec
}

/// Asserts that a spec is the same after a stay in a store, as given and with its defaults filled in.
#[track_caller]
fn survives(spec: &Spec) {
    let mut with_defaults = spec.clone();
    with_defaults.apply_defaults();
    for stored in [spec, &with_defaults] {
        let kind = stored.kind();
        let written = stored.to_json();
        let loaded = read(kind, written.clone());
        assert_eq!(loaded, *stored, "{kind} {written}");
        assert_eq!(loaded.to_json(), written, "{kind}");
    }
}

#[test]
fn a_full_spec_of_every_kind_is_written_as_it_was_read() {
    for &kind in Kind::ALL {
        let spec = read(kind, full(kind));
        assert_eq!(spec.to_json(), full(kind), "{kind}");
        survives(&spec);
    }
}

/// A status that has nothing in it, as Kuma shows it.
fn without_content(kind: Kind) -> Value {
    match kind {
        Kind::MeshService => json!({ "tls": {}, "dataplaneProxies": {} }),
        Kind::MeshExternalService => json!({ "vip": {} }),
        Kind::Workload => json!({ "dataplaneProxies": { "connected": 0, "healthy": 0, "total": 0 } }),
        _ => json!({}),
    }
}

/// Written out directly a field given twice would appear twice.
#[test]
fn every_kind_shows_each_field_once_with_unchanged_spec_and_status() {
    for &kind in Kind::ALL {
        let resource =
            testkit::resource::stored(Key::new(kind, "default", "shown"), &[("team", "x")], full(kind));
        let value = universal::render(&resource);
        let text = serde_json::to_string(&universal::UniversalView(&resource)).unwrap();
        assert_eq!(text, value.to_string(), "{kind}");
        let identity = ["type", "name", "creationTime", "modificationTime", "labels"];
        assert!(identity.iter().all(|field| value.get(field).is_some()), "{kind} {text}");
        let descriptor = kind.descriptor();
        match descriptor.form {
            Form::Spec => {
                assert_eq!(value["spec"], full(kind), "{kind}");
                let status = descriptor.has_status.then(|| without_content(kind));
                assert_eq!(value.get("status"), status.as_ref(), "{kind}");
            }
            Form::Inline => {
                let Value::Object(spec) = full(kind) else { panic!("{kind}") };
                assert!(spec.iter().all(|(field, content)| value[field] == *content), "{kind} {text}");
            }
        }
    }
}

#[test]
fn an_empty_spec_of_every_kind_survives() {
    for &kind in Kind::ALL {
        survives(&read(kind, json!({})));
    }
}

/// Users may write numbers as strings, leave values empty, and misspell them: a spec that is taken in
/// must not be one that cannot be loaded, even where validation would refuse it.
#[test]
fn whatever_is_accepted_in_place_of_a_value_survives() {
    let strange = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(80.0),
        json!(0.1),
        json!(u64::MAX),
        json!(""),
        json!("0"),
        json!("65536"),
        json!("1.5s"),
        json!("1h"),
        json!("-5ms"),
        json!("-_8"),
        json!("é\n\u{0}"),
        json!("2024-05-01T12:00:00.5+02:00"),
        json!([]),
        json!([null]),
        json!([""]),
        json!({}),
        json!({ "a": null, "": [{ "b": null }] }),
    ];
    for &kind in Kind::ALL {
        let mut accepted = 0;
        for value in &strange {
            for spec in with_each_value_replaced(&full(kind), value) {
                // What is unknown is dropped before it is stored, so it is no concern here.
                if let Ok(spec) = Spec::from_json(kind, spec, &mut Vec::new()) {
                    accepted += 1;
                    survives(&spec);
                }
            }
        }
        assert!(accepted > 0 || full(kind) == json!({}), "{kind}");
    }
}

/// For every value inside the example: the replacement where that value stood, and nothing else.
fn with_each_value_replaced(example: &Value, replacement: &Value) -> Vec<Value> {
    let inside = |inner: &Value| {
        let deeper = with_each_value_replaced(inner, replacement);
        deeper.into_iter().chain([replacement.clone()])
    };
    match example {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(field, inner)| inside(inner).map(move |inner| json!({ field: inner })))
            .collect(),
        Value::Array(items) => items.iter().flat_map(inside).map(|inner| json!([inner])).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_examples_have_every_field_of_the_schema() {
    for &kind in Kind::ALL {
        let mut generator = SchemaGenerator::default();
        let schema = kind.json_schema(&mut generator).to_value();
        let definitions = generator.take_definitions(true);
        let mut missing = BTreeSet::new();
        find_missing(&schema, &definitions, &[&full(kind)], "", &mut missing);
        assert_eq!(missing, BTreeSet::new(), "{kind}");
    }
}

/// Collects the paths of the schema at which none of the values has anything.
fn find_missing(
    schema: &Value,
    definitions: &Map<String, Value>,
    values: &[&Value],
    path: &str,
    missing: &mut BTreeSet<String>,
) {
    if values.is_empty() {
        missing.insert(path.to_owned());
        return;
    }
    let mut descend = |schema: &Value, values: &[&Value], path: &str| {
        find_missing(schema, definitions, values, path, missing);
    };
    if let Some(name) = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next()) {
        descend(&definitions[name], values, path);
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        for option in schema[choice].as_array().into_iter().flatten() {
            descend(option, values, path);
        }
    }
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let inner: Vec<&Value> = values.iter().filter_map(|value| value.get(field)).collect();
        descend(schema, &inner, &format!("{path}.{field}"));
    }
    if schema["items"].is_object() {
        let inner: Vec<&Value> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
        descend(&schema["items"], &inner, &format!("{path}[]"));
    }
    if schema["additionalProperties"].is_object() {
        let maps = values.iter().filter_map(|value| value.as_object());
        let inner: Vec<&Value> = maps.flat_map(Map::values).collect();
        descend(&schema["additionalProperties"], &inner, &format!("{path}.*"));
    }
}
