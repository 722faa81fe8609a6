//! Resources as a store holds them, in one line.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made ends its test")]

use jiff::Timestamp;
use resources::{Draft, Key, Kind, Labels, Resource, Spec, Status, format};
use serde_json::{Value, json};

use crate::{build, spec};

pub fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A resource with this spec, and nothing else.
pub fn bare(key: Key, spec: Spec) -> Resource {
    Resource {
        key,
        labels: Labels::new(),
        created: Timestamp::UNIX_EPOCH,
        modified: Timestamp::UNIX_EPOCH,
        version: 1,
        owner: None,
        spec,
        status: None,
    }
}

/// A resource with this spec, without defaults. Panics on fields that the kind does not have.
#[track_caller]
pub fn stored(key: Key, pairs: &[(&str, &str)], spec: Value) -> Resource {
    let mut unknown = Vec::new();
    let spec = Spec::from_json(key.kind, spec, &mut unknown).unwrap();
    assert_eq!(unknown, Vec::<String>::new(), "unknown fields of {key:?}");
    Resource { labels: labels(pairs), ..bare(key, spec) }
}

/// As [`stored`], with the defaults of the kind.
#[track_caller]
pub fn complete(key: Key, pairs: &[(&str, &str)], spec: Value) -> Resource {
    let mut resource = stored(key, pairs, spec);
    resource.spec.apply_defaults();
    resource
}

pub fn of_draft(draft: Draft) -> Resource {
    Resource { labels: draft.labels, ..bare(draft.key, draft.spec) }
}

/// Resources as users write them, in YAML; a `status` is taken along.
#[track_caller]
pub fn read(yaml: &str) -> Vec<Resource> {
    let one = |mut value: Value| {
        let status = value.as_object_mut().and_then(|fields| fields.remove("status"));
        let parsed = format::parse(value).unwrap();
        assert_eq!(parsed.unknown_fields, Vec::<String>::new());
        let resource = of_draft(parsed.draft);
        match status {
            Some(status) => with_status(resource, status),
            None => resource,
        }
    };
    format::yaml::documents(yaml).unwrap().into_iter().map(|document| one(document.value)).collect()
}

#[track_caller]
pub fn with_status(resource: Resource, status: Value) -> Resource {
    let status = Some(Status::from_json(resource.kind(), status).unwrap());
    Resource { status, ..resource }
}

pub fn with_labels(resource: Resource, pairs: &[(&str, &str)]) -> Resource {
    Resource { labels: labels(pairs), ..resource }
}

/// A mesh with MeshServices; `mtls` is `STRICT`, `PERMISSIVE` or empty for none.
pub fn mesh(name: &str, mtls: &str) -> Resource {
    let mesh = build::mesh(name).services("Everywhere");
    if mtls.is_empty() { mesh.complete() } else { mesh.authority("ca-1", mtls).complete() }
}

/// A MeshService of the Dataplanes with the tag, at port 80.
pub fn service(mesh: &str, name: &str, pairs: &[(&str, &str)]) -> Resource {
    let spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": name } },
        "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }],
        "identities": [{ "type": "ServiceTag", "value": name }]
    });
    complete(Key::new(Kind::MeshService, mesh, name), pairs, spec)
}

/// A Dataplane of the mesh `default`.
#[track_caller]
pub fn dataplane(name: &str, pairs: &[(&str, &str)], networking: Value) -> Resource {
    build::dataplane(name).labels(pairs).networking(networking).complete()
}

/// A policy of the mesh `default`.
#[track_caller]
pub fn policy(kind: Kind, name: &str, spec: Value) -> Resource {
    complete(Key::new(kind, "default", name), &[], spec)
}

/// A MeshTrafficPermission for callers of what `target` selects: what happens to each, such as `Allow`.
#[track_caller]
pub fn permission(name: &str, target: Value, clients: &[(Value, &str)]) -> Resource {
    let decided = |(client, action): &(Value, &str)| spec::entry(client.clone(), json!({ "action": action }));
    let from: Vec<Value> = clients.iter().map(decided).collect();
    policy(Kind::MeshTrafficPermission, name, json!({ "targetRef": target, "from": from }))
}

/// A MeshTimeout of what `target` selects, for calls of everything; connections may be idle for so long.
#[track_caller]
pub fn timeout(name: &str, target: Value, idle_seconds: u32) -> Resource {
    let mut spec = spec::to_all(json!({ "idleTimeout": format!("{idle_seconds}s") }));
    spec["targetRef"] = target;
    policy(Kind::MeshTimeout, name, spec)
}
