//! A wire format for tests: JSON.

use bytes::Bytes;
use kds::{
    Synced, mapping,
    provider::Response,
    receiver::{Arrival, RefusedResource},
};
use resources::{Key, Kind, Labels, Resource, Spec, Status};
use serde_json::{Value, json};

pub fn encode(synced: &Synced) -> Result<Bytes, String> {
    let body = json!({
        "mesh": &*synced.key.mesh,
        "name": &*synced.key.name,
        "labels": synced.labels,
        "spec": synced.spec,
        "status": synced.status,
    });
    Ok(body.to_string().into())
}

pub fn decode(kind: Kind, body: &[u8]) -> Result<Synced, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let labels: Labels =
        serde_json::from_value(value["labels"].clone()).map_err(|error| error.to_string())?;
    let spec = Spec::from_json(kind, value["spec"].clone(), &mut Vec::new()).map_err(|e| e.to_string())?;
    let status = match &value["status"] {
        Value::Null => None,
        status => Some(Status::from_json(kind, status.clone()).map_err(|error| error.to_string())?),
    };
    Ok(Synced { key: Key::new(kind, &text("mesh"), &text("name")), labels, spec, status })
}

pub fn arrival(response: &Response) -> Arrival {
    let mut arrival = Arrival {
        kind: response.kind,
        resources: Vec::new(),
        removed: response.removed.iter().filter_map(|name| mapping::key_of(response.kind, name)).collect(),
        refused: Vec::new(),
        more: response.more,
    };
    for resource in &response.resources {
        match decode(response.kind, &resource.body) {
            Ok(synced) => arrival.resources.push(synced),
            Err(reason) => arrival.refused.push(RefusedResource { name: resource.name.clone(), reason }),
        }
    }
    arrival
}

/// A resource with nothing but what is given.
pub fn resource(kind: Kind, mesh: &str, name: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    let resource = testkit::resource::stored(Key::new(kind, mesh, name), labels, spec);
    Resource { version: 0, ..resource }
}
