//! The OpenAPI document, made from the tables of routes and of kinds.

use contract::{
    accepted::Accepted,
    events::{ChangeNotice, Event, StreamNotice},
    problem::Problem,
    watch::WatchEvent,
};
use resources::{Form, Kind, Scope};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::route::{self, Answer, Parameter, Route, Schema};

/// The whole document, the same for every control plane of this version.
pub fn document() -> Value {
    document_of(generator())
}

fn document_of(mut generator: SchemaGenerator) -> Value {
    let mut schemas = fixed_schemas();
    for &kind in Kind::ALL.iter().filter(|kind| !kind.descriptor().path.is_empty()) {
        schemas.insert(item_name(kind), item(kind, &mut generator));
    }
    let mut paths = Map::new();
    for route in route::all() {
        let path = paths.entry(route.path.clone()).or_insert_with(|| path_item(&route));
        path[route.method.as_str().to_lowercase()] = operation(&route, &mut generator);
    }
    // What kinds and answers refer to; a fixed schema of the same name stays.
    for (name, schema) in generator.take_definitions(true) {
        schemas.entry(name).or_insert(schema);
    }
    schemas.sort_keys();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "kuma-rs REST API",
            "description": "Resources of the service mesh and what is known about them.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "userToken": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" } },
        },
        "security": [{}, { "userToken": [] }],
    })
}

fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    SchemaGenerator::new(settings)
}

fn item_name(kind: Kind) -> String {
    format!("{}Item", kind.name())
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// A resource of a kind as the API shows it.
fn item(kind: Kind, generator: &mut SchemaGenerator) -> Value {
    let descriptor = kind.descriptor();
    let spec = kind.json_schema(generator).to_value();
    let mut properties = Map::new();
    properties.insert("type".into(), json!({ "const": descriptor.name }));
    let mut required = vec!["type", "name"];
    if descriptor.scope == Scope::Mesh {
        properties.insert("mesh".into(), json!({ "type": "string" }));
        required.push("mesh");
    }
    let mut parts = vec![reference("Metadata")];
    match descriptor.form {
        Form::Inline => parts.push(spec),
        Form::Spec => {
            properties.insert("spec".into(), spec);
            if descriptor.has_status {
                let mut status = kind.status_schema(generator).to_value();
                status["readOnly"] = true.into();
                properties.insert("status".into(), status);
            }
        }
    }
    parts.push(json!({ "type": "object", "required": required, "properties": properties }));
    json!({ "allOf": parts })
}

/// The schemas that belong to no kind.
fn fixed_schemas() -> Map<String, Value> {
    let computed = |schema: Value| {
        let mut schema = schema;
        schema["readOnly"] = true.into();
        schema
    };
    let text = || json!({ "type": "string" });
    let time = || json!({ "type": "string", "format": "date-time" });
    let schemas = json!({
        "Metadata": {
            "type": "object",
            "required": ["type", "name"],
            "properties": {
                "type": text(),
                "name": text(),
                "labels": { "type": "object", "additionalProperties": text() },
                "creationTime": computed(time()),
                "modificationTime": computed(time()),
                "kri": computed(text()),
            },
        },
    });
    match schemas {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    }
}

/// The parameters of the path, which all its methods share.
fn path_item(route: &Route) -> Value {
    let parameters: Vec<Value> = parameters_of(&route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) }
}

fn parameters_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [route.tag.name()],
    });
    let in_query = |Parameter { name, r#type }: &Parameter| json!({ "name": name, "in": "query", "schema": { "type": r#type } });
    let mut parameters: Vec<Value> = route.query.iter().map(in_query).collect();
    if route.answer.is_conditional() {
        parameters.push(if_match());
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = &route.body {
        let content = json_of(schema(body, generator));
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation["responses"] = responses(&route.answer, generator);
    operation
}

/// `getMeshesMeshDataplanesName`: unique because method and path are.
fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut id = route.method.as_str().to_lowercase();
    for word in words {
        let mut letters = word.chars();
        id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        id.push_str(letters.as_str());
    }
    // Paths that differ only in punctuation must not share an id.
    if route.path.contains("/_") {
        id.push_str("Inspect");
    }
    id
}

/// The header that makes a write depend on what is stored.
fn if_match() -> Value {
    let text = "The ETag of an earlier answer: the write is refused with 412 if the resource has another version. With * \
                it is refused if there is none.";
    json!({ "name": "If-Match", "in": "header", "description": text, "schema": { "type": "string" } })
}

/// Fields that a page of a list always has, and those of an answer of inspection.
const PAGE: &[&str] = &["total", "items", "next"];
const SELECTION: &[&str] = &["total", "items"];

fn schema(of: &Schema, generator: &mut SchemaGenerator) -> Value {
    match of {
        Schema::Type(named) => named(generator).to_value(),
        Schema::TypeOrObject(named) => json!({ "anyOf": [named(generator).to_value(), object()] }),
        Schema::Resource(kind) => reference(&item_name(*kind)),
        Schema::Object => object(),
        Schema::Page(item) => part(item, PAGE, generator),
        Schema::Selection(item) => part(item, SELECTION, generator),
        Schema::Whole(item) => json!({
            "type": "object",
            "required": ["total", "items"],
            "properties": {
                "total": { "type": "integer" },
                "items": { "type": "array", "items": schema(item, generator) },
            },
        }),
    }
}

fn object() -> Value {
    json!({ "type": "object" })
}

/// Part of a list.
fn part(item: &Schema, required: &[&str], generator: &mut SchemaGenerator) -> Value {
    json!({
        "type": "object",
        "required": required,
        "properties": {
            "total": { "type": "integer" },
            "items": { "type": "array", "items": schema(item, generator) },
            "next": { "type": ["string", "null"] },
        },
    })
}

fn json_of(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// Content of the answer to a request that succeeds.
fn success(answer: &Answer, generator: &mut SchemaGenerator) -> Value {
    let text = || json!({ "schema": { "type": "string" } });
    match answer {
        Answer::Json(of) | Answer::Versioned(of) => json_of(schema(of, generator)),
        Answer::Watchable(list) => json!({
            "application/json": { "schema": schema(list, generator) },
            "application/x-ndjson": { "schema": generator.subschema_for::<WatchEvent>().to_value() },
        }),
        Answer::Streamable(list) => json!({
            "application/json": { "schema": schema(list, generator) },
            "text/event-stream": { "schema": stream_message(generator) },
        }),
        Answer::Stored => json_of(generator.subschema_for::<Accepted>().to_value()),
        Answer::Deleted => json_of(object()),
        Answer::Text => json!({ "text/plain": text() }),
        Answer::TextOrJson(of) => {
            json!({ "text/plain": text(), "application/json": { "schema": schema(of, generator) } })
        }
        Answer::Lines => json!({ "application/x-ndjson": text() }),
    }
}

/// Data of the messages of a stream of events: those without a type, of the type `changed`, and of `gap` and `cut`.
fn stream_message(generator: &mut SchemaGenerator) -> Value {
    let event = generator.subschema_for::<Event>().to_value();
    let changed = generator.subschema_for::<ChangeNotice>().to_value();
    let notice = generator.subschema_for::<StreamNotice>().to_value();
    json!({ "anyOf": [event, changed, notice] })
}

fn responses(answer: &Answer, generator: &mut SchemaGenerator) -> Value {
    let success = success(answer, generator);
    let mut responses = Map::new();
    let mut ok = json!({ "description": "OK", "content": success });
    if matches!(answer, Answer::Versioned(_)) {
        let text = "The version of the resource, for If-Match.";
        ok["headers"] = json!({ "ETag": { "description": text, "schema": { "type": "string" } } });
    }
    responses.insert("200".into(), ok);
    if matches!(answer, Answer::Stored) {
        responses.insert("201".into(), json!({ "description": "Created", "content": success }));
    }
    let problem = generator.subschema_for::<Problem>().to_value();
    if answer.is_conditional() {
        let text = "The resource is not the version that If-Match names; nothing was written";
        let refused = json!({ "description": text, "content": json_of(problem.clone()) });
        responses.insert("412".into(), refused);
    }
    let failed = json!({ "description": "What went wrong", "content": json_of(problem) });
    responses.insert("default".into(), failed);
    Value::Object(responses)
}

#[cfg(test)]
mod tests;
