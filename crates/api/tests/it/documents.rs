//! The OpenAPI document: committed, complete, consistent.

use std::{collections::BTreeSet, fs, path::Path};

use api::{openapi, route};
use serde_json::Value;

#[test]
fn the_committed_openapi_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let generated = format!("{}\n", serde_json::to_string_pretty(&openapi::document()).unwrap());
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "docs/reference/openapi.json is out of date: run the tests of `api` with UPDATE=1"
    );
}

#[test]
fn every_route_is_documented_and_operations_have_unique_ids() {
    let document = openapi::document();
    let mut ids = BTreeSet::new();
    for route in route::all() {
        let operation = &document["paths"][&route.path][route.method.as_str().to_lowercase()];
        let id =
            operation["operationId"].as_str().unwrap_or_else(|| panic!("{} {}", route.method, route.path));
        assert!(ids.insert(id.to_owned()), "{id} twice, again for {}", route.path);
    }
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    let document = openapi::document();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                references.push(reference.clone());
            }
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}
