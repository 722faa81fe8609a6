//! Resources in one line.

use std::sync::Arc;

use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use testkit::build;
use topology::{AllMeshes, Destination, DestinationId, MeshSnapshot, ResourceChange};

pub use testkit::resource::{with_labels as labelled, with_status};

/// A resource of the mesh `default`, with the defaults of its kind.
#[track_caller]
pub fn resource(kind: Kind, name: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    testkit::resource::complete(Key::new(kind, "default", name), labels, spec)
}

/// A mesh with MeshServices; `mtls` is `STRICT`, `PERMISSIVE` or empty for none.
pub fn mesh(mtls: &str) -> Resource {
    testkit::resource::mesh("default", mtls)
}

pub fn dataplane(name: &str, address: &str, inbounds: Value) -> Resource {
    build::dataplane(name).address(address).networking(json!({ "inbound": inbounds })).complete()
}

/// A Dataplane with one inbound at port 80.
pub fn serving(name: &str, address: &str, service: &str) -> Resource {
    build::dataplane(name).address(address).inbound(80).service(service).complete()
}

/// A Dataplane that serves nothing and calls destinations by tags.
pub fn calling(name: &str, tags: &[Value]) -> Resource {
    let outbounds: Vec<Value> =
        tags.iter().enumerate().map(|(i, tags)| json!({ "port": 10_000 + i, "tags": tags })).collect();
    build::dataplane(name).address("10.9.9.9").networking(json!({ "outbound": outbounds })).complete()
}

pub fn insight(name: &str, issued_backend: &str) -> Resource {
    let spec = json!({
        "subscriptions": [{ "connectTime": "2024-05-01T10:00:00Z" }],
        "mTLS": { "issuedBackend": issued_backend }
    });
    resource(Kind::DataplaneInsight, name, &[], spec)
}

/// A MeshService of Dataplanes with the tag, at port 80.
pub fn service(name: &str) -> Resource {
    testkit::resource::service("default", name, &[])
}

/// A MeshMultiZoneService of the services with the label `app`.
pub fn multi_zone(name: &str, app: &str, ports: Value) -> Resource {
    let selector = json!({ "meshService": { "matchLabels": { "app": app } } });
    resource(Kind::MeshMultiZoneService, name, &[], json!({ "selector": selector, "ports": ports }))
}

pub fn present(resource: Resource) -> ResourceChange {
    (resource.key.clone(), Some(Arc::new(resource)))
}

pub fn gone(resource: &Resource) -> ResourceChange {
    (resource.key.clone(), None)
}

pub fn state(resources: impl IntoIterator<Item = Resource>) -> AllMeshes {
    let mut state = AllMeshes::default();
    let changes: Vec<ResourceChange> = resources.into_iter().map(present).collect();
    state.apply(&changes);
    state
}

pub fn snapshot(resources: impl IntoIterator<Item = Resource>) -> Arc<MeshSnapshot> {
    state(resources).mesh("default").unwrap().clone()
}

/// The identifier as text: the KRI, or the tags.
pub fn spelled(id: &DestinationId) -> String {
    match id {
        DestinationId::Port(kri) => kri.to_string(),
        DestinationId::Tags(tags) => resources::naming::sni::from_tags(tags),
    }
}

pub fn destination(snapshot: &MeshSnapshot, id: &str) -> Arc<Destination> {
    let found = snapshot.destinations.values().find(|destination| spelled(&destination.id) == id);
    found.unwrap_or_else(|| panic!("no destination {id} in {:?}", snapshot.destinations)).clone()
}

/// `address:port` of every endpoint.
pub fn endpoints(snapshot: &MeshSnapshot, id: &str) -> Vec<String> {
    let id = &destination(snapshot, id).id;
    snapshot.endpoints[id].0.iter().map(|e| format!("{}:{}", e.address, e.port)).collect()
}
