//! Service insights: stored as one resource per mesh, shown as one per service.

use axum::response::Response;
use resources::{Key, Kind, Resource, format::universal, kinds::service_insight, labels};
use serde_json::{Map, Value, json};

use crate::{
    Error,
    call::{Call, with_revision},
    json,
    list::{Listing, Paging},
    resource::RETRIEVE,
};

const TYPES: [&str; 4] = ["internal", "external", "gateway_builtin", "gateway_delegated"];

/// `GET /service-insights`, `GET /meshes/{mesh}/service-insights`.
pub fn list(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let mesh = call.mesh(&snapshot)?;
    let wanted = wanted_types(call)?;
    let paging = Paging::read(call)?;
    let name = call.query("name").unwrap_or_default();
    let mut items = Vec::new();
    for stored in snapshot.of_kind(Kind::ServiceInsight).filter(|r| mesh.is_none_or(|mesh| r.mesh() == mesh))
    {
        let spec = stored.spec.to_json();
        let Some(services) = spec["services"].as_object() else { continue };
        let mut services: Vec<_> = services.iter().filter(|(service, _)| service.contains(name)).collect();
        services.sort_by_key(|(service, _)| service.as_str());
        for (service, stat) in services {
            if wanted.is_empty() || wanted.contains(&service_type(stat)) {
                items.push(render(stored, service, stat.clone()));
            }
        }
    }
    let total = items.len();
    let items = items.into_iter().skip(paging.offset).take(paging.size).collect();
    let listing = Listing { total, items, next: paging.next(call, total) };
    Ok(with_revision(json::ok(&listing), &snapshot))
}

/// `GET /meshes/{mesh}/service-insights/{name}`: a service nobody knows has zeros.
pub fn get(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let mesh = call.mesh(&snapshot)?.unwrap_or_default();
    let key = Key::new(Kind::ServiceInsight, mesh, &service_insight::resource_name(mesh));
    let stored = snapshot.get(&key).ok_or_else(|| Error::not_found(RETRIEVE))?;
    let service = call.param("name");
    let spec = stored.spec.to_json();
    let stat = spec["services"].get(service).cloned().unwrap_or_else(|| json!({ "dataplanes": {} }));
    Ok(with_revision(json::ok(&render(stored, service, stat)), &snapshot))
}

fn wanted_types(call: &Call) -> Result<Vec<String>, Error> {
    let given = call.query("type").unwrap_or_default().split(',').map(|t| t.trim().to_lowercase());
    let wanted: Vec<String> = given.filter(|t| !t.is_empty()).collect();
    if wanted.iter().any(|t| !TYPES.contains(&t.as_str())) {
        return Err(Error::BadRequest("unsupported service type".into()));
    }
    Ok(wanted)
}

/// Left out means internal, the first of the enumeration.
fn service_type(stat: &Value) -> String {
    stat["serviceType"].as_str().unwrap_or(TYPES[0]).to_owned()
}

/// The metadata of the stored resource, the service's name and its numbers.
fn render(stored: &Resource, service: &str, mut stat: Value) -> Value {
    let Value::Object(whole) = universal::render(stored) else { return Value::Null };
    let mut out = Map::new();
    for (field, value) in whole {
        match field.as_str() {
            "services" => {}
            "name" => drop(out.insert(field, service.into())),
            "labels" => {
                if let Some(labels) = without_display_name(value) {
                    out.insert(field, labels);
                }
            }
            _ => drop(out.insert(field, value)),
        }
    }
    complete(service, &mut stat);
    if let Value::Object(fields) = stat {
        out.extend(fields);
    }
    Value::Object(out)
}

fn without_display_name(labels: Value) -> Option<Value> {
    let Value::Object(mut labels) = labels else { return None };
    labels.shift_remove(labels::DISPLAY_NAME);
    (!labels.is_empty()).then_some(Value::Object(labels))
}

/// What need not be stored: the total, and the address every internal service has.
fn complete(service: &str, stat: &mut Value) {
    let count = |field: &str| stat["dataplanes"][field].as_u64().unwrap_or_default();
    let total = count("online") + count("offline");
    if total > 0 {
        stat["dataplanes"]["total"] = total.into();
    }
    if service_type(stat) == TYPES[0] {
        stat["addressPort"] = format!("{service}.mesh:80").into();
    }
}
