//! Descriptions of fields in `kumactl explain` and the OpenAPI document: every field has one.

use resources::Kind;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

/// The schemas of a kind, and the fields of which they say nothing.
struct Fields {
    definitions: Map<String, Value>,
    silent: Vec<String>,
}

impl Fields {
    fn without_description(kind: Kind) -> Vec<String> {
        let mut generator = SchemaGenerator::default();
        let spec = kind.json_schema(&mut generator).to_value();
        let status = kind.status_schema(&mut generator).to_value();
        let definitions = generator.take_definitions(true);
        let mut fields = Fields { definitions, silent: Vec::new() };
        fields.walk(&spec, &format!("{kind}.spec"));
        fields.walk(&status, &format!("{kind}.status"));
        fields.silent
    }

    /// Kinds are not recursive, so following references ends.
    fn walk(&mut self, schema: &Value, path: &str) {
        let referred = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next());
        if let Some(definition) = referred.and_then(|name| self.definitions.get(name)).cloned() {
            self.walk(&definition, path);
        }
        for options in ["anyOf", "oneOf", "allOf"] {
            for option in schema[options].as_array().into_iter().flatten() {
                self.walk(option, path);
            }
        }
        for inside in ["items", "additionalProperties"] {
            if schema[inside].is_object() {
                self.walk(&schema[inside], path);
            }
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            // What the type of a field says is not what the field means.
            let text = field["description"].as_str().unwrap_or_default();
            if !text.ends_with('.') {
                self.silent.push(format!("{path}: {text:?}"));
            }
            self.walk(field, &path);
        }
    }
}

#[test]
fn every_field_of_every_kind_has_a_description_of_its_own() {
    let silent: Vec<String> = Kind::ALL.iter().flat_map(|kind| Fields::without_description(*kind)).collect();
    assert!(
        silent.is_empty(),
        "write a sentence as the doc comment of these fields, with unit and default:\n{}",
        silent.join("\n")
    );
}
