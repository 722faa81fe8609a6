//! The schemas of resources as a tree of fields.

use resources::{Form, Kind, Scope};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::types::DEFAULT_MESH;

/// Deeper trees are cut off. The deepest schema has half as many levels.
const DEPTH: usize = 24;

/// A field and its schema.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    required: bool,
    schema: Value,
}

/// Facts about a field. Unlike a schema, it has one type and no references.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldDescription {
    /// Absent where the path to the field stands beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub value_type: String,
    pub required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#enum: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Value>,
    /// Fields of the next level, or of all levels below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDescription>,
}

/// The schemas that others refer to.
pub struct Schemas {
    generator: SchemaGenerator,
}

impl Schemas {
    pub fn new() -> Schemas {
        Schemas { generator: SchemaGenerator::new(SchemaSettings::draft2020_12()) }
    }

    /// A whole resource, as a user writes it.
    pub fn root(&mut self, kind: Kind) -> Field {
        let descriptor = kind.descriptor();
        let described = |text: &str| json!({ "type": "string", "description": text });
        let labels = json!({
            "type": "object", "additionalProperties": { "type": "string" },
            "description": "Key-value pairs to select the resource by.",
        });
        let mut properties = Map::new();
        let mut type_of = described("The type of the resource.");
        type_of["enum"] = json!([descriptor.name]);
        properties.insert("type".into(), type_of);
        properties.insert("name".into(), described("The name, unique within its type and mesh."));
        let mut required = vec![json!("type"), json!("name")];
        if descriptor.scope == Scope::Mesh {
            let mut mesh = described("The mesh that the resource belongs to.");
            mesh["default"] = json!(DEFAULT_MESH);
            properties.insert("mesh".into(), mesh);
        }
        properties.insert("labels".into(), labels);
        let spec = kind.json_schema(&mut self.generator).to_value();
        let resolved = self.resolved(&spec);
        let description = resolved["description"].clone();
        match descriptor.form {
            Form::Spec => {
                properties.insert("spec".into(), spec);
                if descriptor.has_status {
                    let mut status = kind.status_schema(&mut self.generator).to_value();
                    status["readOnly"] = true.into();
                    properties.insert("status".into(), status);
                }
            }
            Form::Inline => {
                required.extend(resolved["required"].as_array().cloned().unwrap_or_default());
                properties.extend(resolved["properties"].as_object().cloned().unwrap_or_default());
            }
        }
        let schema = json!({
            "type": "object", "description": description, "required": required, "properties": properties,
        });
        Field { name: String::new(), required: false, schema }
    }

    /// The fields below: of the value, of the entries of a list, of the values of a map.
    pub fn below(&self, field: &Field) -> Vec<Field> {
        let schema = self.element(&field.schema);
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let one = |(name, schema): (&String, &Value)| Field {
            name: name.clone(),
            required: required.contains(&name.as_str()),
            schema: schema.clone(),
        };
        properties.map(one).collect()
    }

    /// Description of a field, with the fields below it: the next level, or all of them.
    pub fn describe(&self, field: &Field, recursive: bool) -> FieldDescription {
        let described = self.described(field, if recursive { DEPTH } else { 1 }, &mut Vec::new());
        FieldDescription { name: None, ..described }
    }

    fn described(&self, field: &Field, depth: usize, above: &mut Vec<Value>) -> FieldDescription {
        let schema = self.resolved(&field.schema);
        let element = self.element(&field.schema);
        let description = [&field.schema, &schema, &element].map(|of| of["description"].as_str());
        let description = description.into_iter().flatten().find(|text| !text.is_empty());
        // A required field has no default, and a zero only says that the field may be left out.
        let default = field.schema.get("default").filter(|default| !field.required && !is_zero(default));
        let limit = |name: &str| element.get(name).filter(|value| !is_zero(value)).cloned();
        let mut out = FieldDescription {
            name: Some(field.name.clone()),
            value_type: self.type_of(&field.schema),
            required: field.required,
            description: description.map(str::to_owned),
            read_only: schema["readOnly"] == true,
            r#enum: choices(&element),
            default: default.cloned(),
            minimum: limit("minimum"),
            maximum: limit("maximum"),
            pattern: limit("pattern"),
            fields: Vec::new(),
        };
        if depth > 0 && !above.contains(&element) {
            above.push(element);
            let below = self.below(field);
            out.fields = below.iter().map(|field| self.described(field, depth - 1, above)).collect();
            above.pop();
        }
        out
    }

    /// `string`, `[]object`, `map[string]string`.
    fn type_of(&self, schema: &Value) -> String {
        let schema = self.resolved(schema);
        match name_of_type(&schema).as_str() {
            "array" => format!("[]{}", self.type_of(&schema["items"])),
            "object" if schema["additionalProperties"].is_object() => {
                format!("map[string]{}", self.type_of(&schema["additionalProperties"]))
            }
            name => name.to_owned(),
        }
    }

    /// The schema of a value without the lists and maps around it.
    fn element(&self, schema: &Value) -> Value {
        let mut schema = self.resolved(schema);
        for _ in 0..DEPTH {
            let inside = match name_of_type(&schema).as_str() {
                "array" => &schema["items"],
                "object" if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
                _ => return schema,
            };
            schema = self.resolved(inside);
        }
        schema
    }

    /// The schema itself, wherever it stands, with what its parts say together.
    fn resolved(&self, schema: &Value) -> Value {
        let mut schema = schema.clone();
        for _ in 0..DEPTH {
            if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
                let mut found = self.generator.definitions().get(name).cloned().unwrap_or_default();
                if schema["readOnly"] == true {
                    found["readOnly"] = true.into();
                }
                schema = found;
                continue;
            }
            let alternatives: Vec<&Value> = ["anyOf", "oneOf"]
                .iter()
                .flat_map(|key| schema[*key].as_array().into_iter().flatten())
                .filter(|alternative| alternative["type"] != "null")
                .collect();
            match alternatives.as_slice() {
                [only] => schema = (*only).clone(),
                _ => return without_null(schema),
            }
        }
        schema
    }
}

/// True for a value that says nothing: the number 0, an empty text or list, an object of nothing else.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

/// The schema of a value that is there.
fn without_null(mut schema: Value) -> Value {
    if let Some(types) = schema["type"].as_array() {
        let types: Vec<Value> = types.iter().filter(|name| *name != "null").cloned().collect();
        schema["type"] = match types.as_slice() {
            [only] => only.clone(),
            _ => types.into(),
        };
    }
    schema
}

fn name_of_type(schema: &Value) -> String {
    match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => {
            let first = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key][0]["type"].as_str());
            first.unwrap_or(if schema["properties"].is_object() { "object" } else { "any" }).to_owned()
        }
    }
}

/// The values a field may have, where they are listed.
fn choices(schema: &Value) -> Option<Vec<Value>> {
    let direct = schema["enum"].as_array().cloned().unwrap_or_default();
    let alternatives =
        ["anyOf", "oneOf"].iter().flat_map(|key| schema[*key].as_array().into_iter().flatten());
    let named = alternatives.flat_map(|one| {
        one.get("const").into_iter().chain(one["enum"].as_array().into_iter().flatten()).cloned()
    });
    let all: Vec<Value> = direct.into_iter().chain(named).filter(|value| !value.is_null()).collect();
    Some(all).filter(|all| !all.is_empty())
}
