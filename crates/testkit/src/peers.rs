//! Peers of a control plane that mean harm: a zone and a global control plane that say what a test tells them to say.
//!
//! Resources and frames are encoded by crate `kds`; streams are their own, so that they also say what no control plane
//! would.

mod frame;
mod global;
mod zone;

use kds::{Synced, wire};
use prost::Message as _;
use resources::{Key, Kind, Labels, Spec};
use serde_json::Value;

pub use frame::{Incoming, Sender, framed};
pub use global::HostileGlobal;
pub use zone::{HostileZone, ResourceStream};

/// A resource as it travels.
pub fn synced(key: Key, labels: &[(&str, &str)], spec: Value) -> anyhow::Result<Synced> {
    let label = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let spec = Spec::from_json(key.kind, spec, &mut Vec::new())?;
    Ok(Synced { key, labels: labels.iter().map(label).collect::<Labels>(), spec, status: None })
}

/// A policy of a zone as a global control plane that trusts everyone passes it on.
pub fn of_zone(kind: Kind, zone: &str, name: &str, role: &str, spec: Value) -> anyhow::Result<Synced> {
    use resources::{labels, naming::kds::hashed_name};

    let labels = [
        (labels::ORIGIN, labels::ORIGIN_ZONE),
        (labels::ZONE, zone),
        (labels::DISPLAY_NAME, name),
        (labels::POLICY_ROLE, role),
    ];
    synced(Key::new(kind, "default", &hashed_name("default", name, Some(zone), None)), &labels, spec)
}

/// A response with these resources of a kind.
pub fn response(
    kind: &str,
    nonce: u64,
    resources: &[Synced],
    removed: &[String],
) -> wire::DeltaDiscoveryResponse {
    let resource = |synced: &Synced| {
        let value = wire::encode(synced).ok()?;
        let any = wire::Any { type_url: wire::KUMA_RESOURCE.to_owned(), value };
        let name = format!("{}.{}", synced.key.name, synced.key.mesh);
        let resource = wire::Resource { version: "1".to_owned(), resource: Some(any), name };
        Some(resource.encode_to_vec().into())
    };
    wire::DeltaDiscoveryResponse {
        system_version_info: String::new(),
        resources: resources.iter().filter_map(resource).collect(),
        type_url: kind.to_owned(),
        nonce: nonce.to_string(),
        removed_resources: removed.to_vec(),
        control_plane: None,
    }
}

/// A request for everything of a kind.
pub fn subscription(kind: &str) -> wire::DeltaDiscoveryRequest {
    wire::DeltaDiscoveryRequest {
        type_url: kind.to_owned(),
        resource_names_subscribe: vec!["*".to_owned()],
        ..wire::DeltaDiscoveryRequest::default()
    }
}

/// An answer to a response: a rejection when there is an error.
pub fn answer(to: &wire::DeltaDiscoveryResponse, error: Option<String>) -> wire::DeltaDiscoveryRequest {
    wire::DeltaDiscoveryRequest {
        type_url: to.type_url.clone(),
        response_nonce: to.nonce.clone(),
        error_detail: error.map(|message| wire::Status { code: 0, message }),
        ..wire::DeltaDiscoveryRequest::default()
    }
}
