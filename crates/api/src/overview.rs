//! Overviews: a resource together with what is reported about it.

use std::sync::Arc;

use axum::response::Response;
use resources::{Key, Kind, Resource, overview::overview};
use serde_json::{Map, Value};
use store::Snapshot;

use crate::{
    Error, Inspect,
    call::{Call, with_revision},
    inspect::hostnames,
    json, list,
    resource::RETRIEVE,
};

/// `GET …/_overview` of a collection.
pub fn list(call: &Call, kind: Kind) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let listing = list::page(call, kind, &snapshot, |resource| {
        overview(resource, insight(&snapshot, resource).map(Arc::as_ref)).unwrap_or_default()
    })?;
    Ok(with_revision(json::ok(&listing), &snapshot))
}

/// `GET …/{name}/_overview`.
pub async fn get(call: Call, kind: Kind) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let resource = snapshot.get(&call.key(kind)).ok_or_else(|| Error::not_found(RETRIEVE))?;
    let insight = insight(&snapshot, resource);
    let mut shown = overview(resource, insight.map(Arc::as_ref)).ok_or_else(|| Error::not_found(RETRIEVE))?;
    // As in Kuma, a single overview always has an insight, if need be an empty one.
    if insight.is_none()
        && let Some(kind) = kind.descriptor().insight
    {
        shown[lower_camel(kind.name())] = Value::Object(Map::new());
    }
    if kind == Kind::Dataplane {
        add_hostnames(&*call.context.inspect, &resource.key, &mut shown).await;
    }
    Ok(with_revision(json::ok(&shown), &snapshot))
}

/// Adds what the proxy offers under hostnames to what its Dataplane lists. It is computed when it is asked for: stored
/// for every proxy it would grow with the mesh. A Dataplane that nothing can be computed for is shown as it is.
async fn add_hostnames(inspect: &dyn Inspect, dataplane: &Key, shown: &mut Value) {
    let Ok(hostnames) = inspect.hostnames(dataplane).await else { return };
    let Some(networking) = shown["dataplane"]["networking"].as_object_mut() else { return };
    let offered = hostnames::outbounds(&hostnames);
    if offered.is_empty() {
        return;
    }
    let listed = networking.entry("outbound").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(listed) = listed.as_array_mut() {
        listed.extend(offered.iter().filter_map(|outbound| serde_json::to_value(outbound).ok()));
    }
}

fn insight<'a>(snapshot: &'a Snapshot, resource: &Resource) -> Option<&'a Arc<Resource>> {
    let kind = resource.kind().descriptor().insight?;
    snapshot.get(&Key::new(kind, resource.mesh(), resource.name()))
}

fn lower_camel(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
