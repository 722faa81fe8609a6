//! Fields that nothing reads are known by the schema alone, so that a slip is named where the rest is refused.

use resources::{
    Form, Kind, Scope,
    format::{self, UnknownField, yaml},
};
use serde_json::{Value, json};

/// A document of the kind with every field in it, in either form.
fn full(kind: Kind, kubernetes: bool) -> Value {
    let examples = yaml::documents(include_str!("round_trip/examples.yaml")).unwrap().swap_remove(0).value;
    let spec = examples.get(kind.name()).unwrap().clone();
    if kubernetes {
        let metadata = json!({ "name": "example" });
        return json!({ "apiVersion": "kuma.io/v1alpha1", "kind": kind.name(), "metadata": metadata, "spec": spec });
    }
    let mut document = json!({ "type": kind.name(), "name": "example" });
    if kind.descriptor().scope == Scope::Mesh {
        document["mesh"] = "default".into();
    }
    match kind.descriptor().form {
        Form::Spec => document["spec"] = spec,
        Form::Inline => document.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone()),
    }
    document
}

/// The document with a field `bogus` in one of its objects, for each object.
fn with_bogus(value: &Value) -> Vec<Value> {
    match value {
        Value::Object(fields) => {
            let mut all = vec![value.clone()];
            all[0]["bogus"] = true.into();
            for (name, inner) in fields {
                all.extend(with_bogus(inner).into_iter().map(|inner| {
                    let mut outer = value.clone();
                    outer[name] = inner;
                    outer
                }));
            }
            all
        }
        Value::Array(items) => {
            let changed = |(at, item): (usize, &Value)| {
                with_bogus(item).into_iter().map(move |inner| {
                    let mut outer = value.clone();
                    outer[at] = inner;
                    outer
                })
            };
            items.iter().enumerate().flat_map(changed).collect()
        }
        _ => Vec::new(),
    }
}

fn paths(unknown: Vec<UnknownField>) -> Vec<String> {
    let mut paths: Vec<String> = unknown.into_iter().map(|field| field.path).collect();
    paths.sort();
    paths
}

#[test]
fn the_reader_skips_every_field_that_is_unknown_by_the_schema() {
    let mut found = 0;
    let mut missed = 0;
    for &kind in Kind::ALL {
        // Some are read in another form than their schema has.
        let is_translated = |kubernetes| {
            kind == Kind::VirtualOutbound || kubernetes && !kind.descriptor().name.starts_with("Mesh")
        };
        for kubernetes in [false, true].into_iter().filter(|form| !is_translated(*form)) {
            let document = full(kind, kubernetes);
            assert_eq!(paths(format::unknown_fields(&document)), Vec::<String>::new(), "{document}");
            for changed in with_bogus(&document) {
                let text = changed.to_string();
                let by_schema = paths(format::unknown_fields(&changed));
                let Ok(parsed) = format::parse(changed) else { continue };
                let mut read = parsed.unknown_fields;
                // What else is in the metadata of an object is for Kubernetes.
                read.retain(|path| !path.starts_with("metadata."));
                assert!(by_schema.iter().all(|path| read.contains(path)), "{by_schema:?} {read:?} {text}");
                found += by_schema.len();
                missed += read.len() - by_schema.len();
            }
        }
    }
    // By its schema, an object without any fields is one that may have all.
    assert!(found > 500 && missed < found / 50, "{found} found, {missed} missed");
}

#[test]
fn a_refused_document_names_the_unknown_field_and_the_known_ones() {
    let to = json!([{ "targetRef": { "kind": "Mesh" }, "defualt": { "connectionTimeout": "1s" } }]);
    let document = json!({ "type": "MeshTimeout", "name": "t", "spce": {}, "spec": { "to": to, "from": 5 } });
    assert!(format::parse(document.clone()).is_err());
    let unknown = format::unknown_fields(&document);
    let found: Vec<(&str, &str, bool)> = unknown
        .iter()
        .map(|field| {
            (&*field.path, &*field.name, field.known.contains(&"default") || field.known.contains(&"spec"))
        })
        .collect();
    assert_eq!(found, [("spce", "spce", true), ("spec.to[0].defualt", "defualt", true)]);
    assert_eq!(format::unknown_fields(&json!({ "type": "Nothing", "x": 1 })), []);
    assert_eq!(format::unknown_fields(&json!("text")), []);
}
