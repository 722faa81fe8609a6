//! The hostnames a service is reached by, as its status lists them.

use axum::response::Response;
use contract::hostnames::{ServiceHostname, ServiceHostnames, ZoneName};
use resources::{Kind, Resource, Status, Violations, kinds::service_status::Address, labels};

use crate::{
    Error,
    call::{Call, with_revision},
    json,
};

/// Kinds that have hostnames.
pub const KINDS: [Kind; 3] = [Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService];

/// `GET /meshes/{mesh}/{serviceType}/{name}/_hostnames`.
pub fn list(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let wanted = call.param("serviceType");
    let Some(&kind) = KINDS.iter().find(|kind| kind.descriptor().path == wanted) else {
        let paths = KINDS.map(|kind| kind.descriptor().path).join(",");
        let title = format!("only {paths:?} are available for inspection");
        return Err(Error::Invalid { title, violations: Violations::default() });
    };
    let service =
        snapshot.get(&call.key(kind)).ok_or_else(|| Error::not_found("could not retrieve service"))?;
    let zone = service.label(labels::ZONE).unwrap_or_default();
    let named = addresses(service).iter().map(|address| address.hostname.as_str());
    let mut hostnames: Vec<&str> = named.filter(|hostname| !hostname.is_empty()).collect();
    hostnames.sort_unstable();
    hostnames.dedup();
    let hostname = |hostname: &&str| ServiceHostname {
        hostname: (*hostname).to_owned(),
        zones: vec![ZoneName { name: zone.to_owned() }],
    };
    let answer = ServiceHostnames {
        total: hostnames.len(),
        // As in Kuma, a service without hostnames has `null` rather than an empty list.
        items: (!hostnames.is_empty()).then(|| hostnames.iter().map(hostname).collect()),
    };
    Ok(with_revision(json::ok(&answer), &snapshot))
}

fn addresses(service: &Resource) -> &[Address] {
    match &service.status {
        Some(Status::MeshService(status)) => &status.addresses,
        Some(Status::MeshExternalService(status)) => &status.addresses,
        Some(Status::MeshMultiZoneService(status)) => &status.addresses,
        _ => &[],
    }
}
