//! The messages of OpenTelemetry's protocol, as far as they are looked at.

use std::collections::BTreeMap;

use prost::{Message, Oneof};
use serde_json::{Map, Value, json};

use super::{LogRecord, Span};

#[derive(Clone, PartialEq, Message)]
struct Traces {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<SpansOf>,
}

#[derive(Clone, PartialEq, Message)]
struct SpansOf {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<SpansIn>,
}

#[derive(Clone, PartialEq, Message)]
struct SpansIn {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OneSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct OneSpan {
    #[prost(string, tag = "5")]
    name: String,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Logs {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<LogsOf>,
}

#[derive(Clone, PartialEq, Message)]
struct LogsOf {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<LogsIn>,
}

#[derive(Clone, PartialEq, Message)]
struct LogsIn {
    #[prost(message, repeated, tag = "2")]
    records: Vec<OneRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct OneRecord {
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Kind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(Array),
    #[prost(message, tag = "6")]
    Map(KeyValues),
}

#[derive(Clone, PartialEq, Message)]
struct Array {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValues {
    #[prost(message, repeated, tag = "1")]
    values: Vec<KeyValue>,
}

pub fn spans(path: &str, message: &[u8]) -> Option<Vec<Span>> {
    let mut found = Vec::new();
    for of in Traces::decode(message).ok()?.resources {
        let resource = of.resource.map(|resource| texts(&resource.attributes)).unwrap_or_default();
        for span in of.scopes.into_iter().flat_map(|scope| scope.spans) {
            let service = resource.get("service.name").cloned().unwrap_or_default();
            found.push(Span {
                path: path.to_owned(),
                service,
                name: span.name,
                tags: texts(&span.attributes),
            });
        }
    }
    Some(found)
}

pub fn logs(path: &str, message: &[u8]) -> Option<Vec<LogRecord>> {
    let mut found = Vec::new();
    for of in Logs::decode(message).ok()?.resources {
        let resource = of.resource.map(|resource| texts(&resource.attributes)).unwrap_or_default();
        for record in of.scopes.into_iter().flat_map(|scope| scope.records) {
            found.push(LogRecord {
                path: path.to_owned(),
                resource: resource.clone(),
                attributes: texts(&record.attributes),
                body: record.body.as_ref().map(text).unwrap_or_default(),
            });
        }
    }
    Some(found)
}

pub fn texts(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let pair = |pair: &KeyValue| (pair.key.clone(), pair.value.as_ref().map(text).unwrap_or_default());
    pairs.iter().map(pair).collect()
}

fn text(value: &AnyValue) -> String {
    match &value.kind {
        Some(Kind::Text(text)) => text.clone(),
        _ => json(value).to_string(),
    }
}

fn json(value: &AnyValue) -> Value {
    match &value.kind {
        None => Value::Null,
        Some(Kind::Text(text)) => json!(text),
        Some(Kind::Bool(value)) => json!(value),
        Some(Kind::Int(value)) => json!(value),
        Some(Kind::Double(value)) => json!(value),
        Some(Kind::Array(array)) => array.values.iter().map(json).collect(),
        Some(Kind::Map(map)) => {
            let field = |pair: &KeyValue| (pair.key.clone(), pair.value.as_ref().map_or(Value::Null, json));
            Value::Object(map.values.iter().map(field).collect::<Map<String, Value>>())
        }
    }
}
