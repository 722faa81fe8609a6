//! The OpenAPI document, made from the list of routes and the table of kinds.

mod summary;

use resources::{Form, Kind, Scope};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    inspect::{
        graph::Graph,
        hostnames::HostnameList,
        layout::Layout,
        logging::LogLevels,
        observed::ObservedCalls,
        policies::{PolicyList, RouteList},
        problems::ProblemList,
        reach::Reach,
        reachability::{MeshReachability, OfProxy},
        rules::{Meta, RuleList},
        suggestions::Suggestions,
        sync::ProxySync,
    },
    route::{self, Operation, Route},
    sni_usage, snis, what_if,
};

/// The whole document, the same for every control plane of this version.
pub fn document() -> Value {
    let mut generator = generator();
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
        "Accepted": {
            "type": "object",
            "properties": { "warnings": { "type": "array", "items": text() } },
        },
        "StatsSummary": stats_summary(),
        "Problem": {
            "type": "object",
            "required": ["type", "status", "title", "detail"],
            "properties": {
                "type": { "const": "/std-errors" },
                "status": { "type": "integer" },
                "title": text(),
                "detail": text(),
                "invalid_parameters": { "type": "array", "items": {
                    "type": "object", "properties": { "field": text(), "reason": text() },
                } },
                "details": text(),
                "causes": { "type": "array", "items": {
                    "type": "object", "properties": { "field": text(), "message": text() },
                } },
            },
        },
    });
    match schemas {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    }
}

/// What `stats?format=summary` answers.
fn stats_summary() -> Value {
    json!({
        "type": "object",
        "required": ["unifiedNaming", "resources"],
        "properties": {
            "unifiedNaming": { "type": "boolean" },
            "resources": {
                "type": "object",
                "description": "By the name of the resource in Envoy.",
                "additionalProperties": {
                    "type": "object",
                    "required": ["class", "stats"],
                    "properties": {
                        "class": { "enum": ["kri", "self", "system", "legacy", "other"] },
                        "kri": { "type": "string" },
                        "link": { "type": "string" },
                        "stats": { "type": "object", "additionalProperties": {
                            "type": "object",
                            "additionalProperties": { "type": ["integer", "string"] },
                        } },
                    },
                },
            },
        },
    })
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
        "summary": summary::of(route.operation),
        "tags": [tag(route.operation)],
    });
    let query = query_parameters(route.operation).into_iter();
    let query = query.map(|(name, kind)| json!({ "name": name, "in": "query", "schema": { "type": kind } }));
    let parameters: Vec<Value> = query.chain(condition(route.operation)).collect();
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = request_body(route.operation) {
        let content = json!({ "application/json": { "schema": body } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation["responses"] = responses(route.operation, generator);
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

#[allow(
    clippy::too_many_lines,
    reason = "one line for each operation: a new one has to say where it belongs"
)]
fn tag(operation: Operation) -> &'static str {
    match operation {
        Operation::Index
        | Operation::Config
        | Operation::WhoAmI
        | Operation::Backup
        | Operation::Policies
        | Operation::ResourceTypes
        | Operation::GlobalInsight
        | Operation::GlobalInsights => "System",
        Operation::ByKri => "KRI",
        Operation::DataplaneToken | Operation::ZoneToken | Operation::UserToken => "Tokens",
        Operation::Hostnames
        | Operation::ServiceDataplanes
        | Operation::ProxyXds(_)
        | Operation::ProxyStats(_)
        | Operation::ProxyClusters(_)
        | Operation::ProxyLogging
        | Operation::ProxySetLogging
        | Operation::ProxyConfig
        | Operation::ProxySync
        | Operation::ProxyLayout
        | Operation::ProxyHostnames
        | Operation::ProxyRules
        | Operation::ProxyPolicies
        | Operation::InboundPolicies
        | Operation::OutboundPolicies
        | Operation::OutboundRoutes
        | Operation::RoutePolicies
        | Operation::PolicyDataplanes(_)
        | Operation::OlderPolicies
        | Operation::OlderRules
        | Operation::OlderDataplanes(_)
        | Operation::Access
        | Operation::Observed
        | Operation::ProxyReachability
        | Operation::MeshReachability
        | Operation::Graph
        | Operation::Problems
        | Operation::Snis
        | Operation::SniUsage
        | Operation::Suggestions
        | Operation::WhatIf => "Inspect",
        Operation::ServiceInsightList | Operation::ServiceInsight => Kind::ServiceInsight.name(),
        Operation::List(kind)
        | Operation::Get(kind)
        | Operation::Put(kind)
        | Operation::Delete(kind)
        | Operation::OverviewList(kind)
        | Operation::Overview(kind) => kind.name(),
    }
}

fn query_parameters(operation: Operation) -> Vec<(&'static str, &'static str)> {
    let paging = [("size", "integer"), ("offset", "integer"), ("after", "string"), ("name", "string")];
    let dataplane = [("tag", "string"), ("gateway", "string")];
    match operation {
        Operation::List(kind) | Operation::OverviewList(kind) => {
            let mut parameters = paging.to_vec();
            if kind == Kind::Dataplane {
                parameters.extend(dataplane);
            }
            if matches!(operation, Operation::List(_)) {
                parameters.extend([("watch", "boolean"), ("revision", "integer")]);
            }
            parameters
        }
        Operation::ServiceDataplanes | Operation::PolicyDataplanes(_) => paging.to_vec(),
        Operation::Access => vec![("from", "string"), ("to", "string"), ("port", "string")],
        Operation::ProxyReachability => vec![("to", "string")],
        Operation::MeshReachability => vec![("size", "integer"), ("offset", "integer")],
        Operation::Observed => {
            vec![("size", "integer"), ("offset", "integer"), ("wouldBeTrimmed", "boolean")]
        }
        Operation::Graph => vec![("service", "string")],
        Operation::Problems => vec![
            ("size", "integer"),
            ("offset", "integer"),
            ("severity", "string"),
            ("code", "string"),
            ("kri", "string"),
        ],
        Operation::Snis => {
            vec![("size", "integer"), ("offset", "integer"), ("after", "string"), ("value", "string")]
        }
        Operation::SniUsage => vec![
            ("size", "integer"),
            ("offset", "integer"),
            ("after", "string"),
            ("value", "string"),
            ("dialled", "boolean"),
        ],
        Operation::Suggestions => vec![("service", "string")],
        Operation::WhatIf => vec![("diff", "string"), ("only", "string")],
        Operation::ProxySetLogging => vec![("level", "string"), ("logger", "string")],
        Operation::ProxyConfig => vec![("shadow", "boolean"), ("include", "string")],
        Operation::ProxyXds(_) => vec![("include_eds", "boolean"), ("names", "string")],
        Operation::ProxyStats(_) => vec![("format", "string"), ("usedonly", "boolean"), ("names", "string")],
        Operation::ProxyClusters(_) => vec![("format", "string"), ("names", "string")],
        Operation::ProxyLayout => vec![("names", "string")],
        Operation::ServiceInsightList => [&paging[..], &[("type", "string")]].concat(),
        Operation::Get(_) => vec![("format", "string"), ("namespace", "string")],
        Operation::ByKri => vec![("format", "string")],
        _ => Vec::new(),
    }
}

/// The header that makes a write depend on what is stored.
fn condition(operation: Operation) -> Option<Value> {
    let text = "The ETag of an earlier answer: the write is refused with 412 if the resource has another version. With * \
                it is refused if there is none.";
    matches!(operation, Operation::Put(_) | Operation::Delete(_)).then(
        || json!({ "name": "If-Match", "in": "header", "description": text, "schema": { "type": "string" } }),
    )
}

fn request_body(operation: Operation) -> Option<Value> {
    let text = || json!({ "type": "string" });
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    let object = |properties: Value| Some(json!({ "type": "object", "properties": properties }));
    match operation {
        Operation::Put(kind) => Some(reference(&item_name(kind))),
        Operation::DataplaneToken => object(json!({
            "name": text(), "mesh": text(), "type": text(), "workload": text(), "validFor": text(),
            "tags": { "type": "object", "additionalProperties": texts() },
            "labels": { "type": "object", "additionalProperties": texts() },
        })),
        Operation::ZoneToken => object(json!({ "zone": text(), "scope": texts(), "validFor": text() })),
        Operation::UserToken => object(json!({ "name": text(), "groups": texts(), "validFor": text() })),
        Operation::WhatIf => object(json!({
            "resources": { "type": "array", "items": { "type": "object" } },
            "delete": { "type": "array", "items": {
                "type": "object", "required": ["type", "name"],
                "properties": { "type": text(), "mesh": text(), "name": text() },
            } },
        })),
        _ => None,
    }
}

/// What a page of a list always says, and one of an answer of inspection.
const PAGE: &[&str] = &["total", "items", "next"];
const SELECTION: &[&str] = &["total", "items"];

/// What is answered about who may call whom, and about how proxies are doing.
fn about_calls(operation: Operation, generator: &mut SchemaGenerator) -> Option<Value> {
    Some(match operation {
        Operation::Access => generator.subschema_for::<Reach>().to_value(),
        Operation::Observed => generator.subschema_for::<ObservedCalls>().to_value(),
        Operation::ProxyReachability => generator.subschema_for::<OfProxy>().to_value(),
        Operation::MeshReachability => generator.subschema_for::<MeshReachability>().to_value(),
        Operation::Graph => generator.subschema_for::<Graph>().to_value(),
        Operation::Suggestions => generator.subschema_for::<Suggestions>().to_value(),
        Operation::ProxySync => generator.subschema_for::<ProxySync>().to_value(),
        Operation::ProxyLogging | Operation::ProxySetLogging => {
            generator.subschema_for::<LogLevels>().to_value()
        }
        _ => return None,
    })
}

fn json_of(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// What a request that succeeds is answered with.
fn success(operation: Operation, generator: &mut SchemaGenerator) -> Value {
    let anything = || json!({ "type": "object" });
    let listing = |items: Value, required: &[&str]| {
        json!({
            "type": "object",
            "required": required,
            "properties": {
                "total": { "type": "integer" },
                "items": { "type": "array", "items": items },
                "next": { "type": ["string", "null"] },
            },
        })
    };
    match operation {
        Operation::List(kind) => json_of(listing(reference(&item_name(kind)), PAGE)),
        Operation::OverviewList(_) | Operation::ServiceInsightList => json_of(listing(anything(), PAGE)),
        Operation::ServiceDataplanes => json_of(listing(anything(), SELECTION)),
        Operation::Get(kind) => json_of(reference(&item_name(kind))),
        Operation::Put(_) => json_of(reference("Accepted")),
        Operation::DataplaneToken | Operation::ZoneToken | Operation::UserToken => {
            json!({ "text/plain": { "schema": { "type": "string" } } })
        }
        Operation::Backup => json!({ "application/x-ndjson": { "schema": { "type": "string" } } }),
        Operation::ProxyStats(Kind::Dataplane) => json!({
            "text/plain": { "schema": { "type": "string" } },
            "application/json": { "schema": { "anyOf": [reference("StatsSummary"), anything()] } },
        }),
        Operation::ProxyStats(_) | Operation::ProxyClusters(_) => json!({
            "text/plain": { "schema": { "type": "string" } },
            "application/json": { "schema": anything() },
        }),
        Operation::PolicyDataplanes(_) => {
            json_of(listing(generator.subschema_for::<Meta>().to_value(), SELECTION))
        }
        Operation::ProxyLayout => json_of(generator.subschema_for::<Layout>().to_value()),
        Operation::ProxyHostnames => json_of(generator.subschema_for::<HostnameList>().to_value()),
        Operation::ProxyRules => json_of(generator.subschema_for::<RuleList>().to_value()),
        Operation::ProxyPolicies
        | Operation::InboundPolicies
        | Operation::OutboundPolicies
        | Operation::RoutePolicies => json_of(generator.subschema_for::<PolicyList>().to_value()),
        Operation::OutboundRoutes => json_of(generator.subschema_for::<RouteList>().to_value()),
        Operation::Problems => json_of(generator.subschema_for::<ProblemList>().to_value()),
        Operation::Snis => json_of(listing(generator.subschema_for::<snis::KnownSni>().to_value(), PAGE)),
        Operation::SniUsage => json_of(generator.subschema_for::<sni_usage::UsageList>().to_value()),
        Operation::WhatIf => json_of(generator.subschema_for::<what_if::Answer>().to_value()),
        _ => json_of(about_calls(operation, generator).unwrap_or_else(anything)),
    }
}

fn responses(operation: Operation, generator: &mut SchemaGenerator) -> Value {
    let success = success(operation, generator);
    let mut responses = Map::new();
    let mut answer = json!({ "description": "OK", "content": success });
    if matches!(operation, Operation::Get(_) | Operation::ByKri) {
        let text = "The version of the resource, for If-Match.";
        answer["headers"] = json!({ "ETag": { "description": text, "schema": { "type": "string" } } });
    }
    responses.insert("200".into(), answer);
    if matches!(operation, Operation::Put(_)) {
        responses.insert("201".into(), json!({ "description": "Created", "content": success }));
    }
    let problem = json!({ "description": "What went wrong", "content": json_of(reference("Problem")) });
    if condition(operation).is_some() {
        let text = "The resource is not the version that If-Match names; nothing was written";
        let refused = json!({ "description": text, "content": json_of(reference("Problem")) });
        responses.insert("412".into(), refused);
    }
    responses.insert("default".into(), problem);
    Value::Object(responses)
}
