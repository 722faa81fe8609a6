//! Parts of the specs of policies: references and entries.

use serde_json::{Value, json};

/// Everything in the mesh.
pub fn all() -> Value {
    json!({ "kind": "Mesh" })
}

/// A service by its name.
pub fn service(name: &str) -> Value {
    json!({ "kind": "MeshService", "name": name })
}

/// The inbounds of a service, by their tag.
pub fn tagged(service: &str) -> Value {
    json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": service } })
}

/// An entry of `to` or `from`.
pub fn entry(target: Value, conf: Value) -> Value {
    json!({ "targetRef": target, "default": conf })
}

/// The spec of a policy for all outgoing traffic of all proxies.
pub fn to_all(conf: Value) -> Value {
    json!({ "to": [entry(all(), conf)] })
}
