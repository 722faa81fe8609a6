//! The hostnames a service is reached by, as its status lists them.

use axum::response::Response;
use resources::Kind;
use serde_json::{Value, json};

use crate::{
    Error,
    call::{Call, with_revision},
    json,
};

const KINDS: [Kind; 3] = [Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService];

/// `GET /meshes/{mesh}/{serviceType}/{name}/_hostnames`.
pub fn list(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    call.mesh(&snapshot)?;
    let wanted = call.param("serviceType");
    let Some(&kind) = KINDS.iter().find(|kind| kind.descriptor().path == wanted) else {
        let paths = KINDS.map(|kind| kind.descriptor().path).join(",");
        let title = format!("only {paths:?} are available for inspection");
        return Err(Error::Invalid { title, violations: resources::Violations::default() });
    };
    let service =
        snapshot.get(&call.key(kind)).ok_or_else(|| Error::not_found("could not retrieve service"))?;
    let zone = service.label(resources::labels::ZONE).unwrap_or_default();
    let status = service.status.as_ref().map_or(Value::Null, resources::Status::to_json);
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let mut hostnames: Vec<&str> = addresses.filter_map(|address| address["hostname"].as_str()).collect();
    hostnames.sort_unstable();
    hostnames.dedup();
    let items: Vec<Value> = hostnames
        .iter()
        .map(|hostname| json!({ "hostname": hostname, "zones": [{ "name": zone }] }))
        .collect();
    let total = items.len();
    // As in Kuma, a service without hostnames has `null` rather than an empty list.
    let items = if items.is_empty() { Value::Null } else { Value::Array(items) };
    Ok(with_revision(json::ok(&json!({ "total": total, "items": items })), &snapshot))
}
