//! Overviews: a resource together with what is reported about it.

use axum::response::Response;
use resources::{Key, Kind, Resource, format::universal};
use serde_json::{Map, Value};
use store::Snapshot;

use crate::{
    Error,
    call::{Call, with_revision},
    json, list,
};

/// `GET …/_overview` of a collection.
pub fn list(call: &Call, kind: Kind) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let show = |resource: &Resource| render(resource, insight(&snapshot, resource));
    let listing = list::page(call, kind, &snapshot, show)?;
    Ok(with_revision(json::ok(&listing), &snapshot))
}

/// `GET …/{name}/_overview`.
pub fn get(call: &Call, kind: Kind) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    call.mesh(&snapshot)?;
    call.check_access(kind)?;
    let resource =
        snapshot.get(&call.key(kind)).ok_or_else(|| Error::not_found("Could not retrieve a resource"))?;
    // As in Kuma, a single overview always has an insight, if need be an empty one.
    let insight = insight(&snapshot, resource).or_else(|| Some(Value::Object(Map::new())));
    Ok(with_revision(json::ok(&render(resource, insight)), &snapshot))
}

fn insight(snapshot: &Snapshot, resource: &Resource) -> Option<Value> {
    let kind = resource.kind().descriptor().insight?;
    let insight = snapshot.get(&Key::new(kind, resource.mesh(), resource.name()))?;
    Some(insight.spec.to_json())
}

/// The resource's metadata, then its spec and its insight under names of their own.
fn render(resource: &Resource, insight: Option<Value>) -> Value {
    let name = resource.kind().name();
    let spec = resource.spec.to_json();
    let Value::Object(mut out) = universal::render(resource) else { return Value::Null };
    if let Value::Object(fields) = &spec {
        out.retain(|field, _| !fields.contains_key(field) || METADATA.contains(&field.as_str()));
    }
    out.insert("type".into(), format!("{name}Overview").into());
    let field = lower_camel(name);
    out.insert(field.clone(), spec);
    if let Some(insight) = insight {
        out.insert(format!("{field}Insight"), insight);
    }
    Value::Object(out)
}

const METADATA: [&str; 7] = ["type", "mesh", "name", "creationTime", "modificationTime", "labels", "kri"];

fn lower_camel(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
