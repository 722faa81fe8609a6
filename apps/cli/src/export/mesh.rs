//! A mesh as another control plane is to have it.

use serde_json::{Map, Value, json};

/// What stands beside the spec of a mesh.
const METADATA: [&str; 7] = ["type", "mesh", "name", "creationTime", "modificationTime", "labels", "kri"];

/// Makes a mesh that brings its policies and its authority along, instead of getting new ones.
pub fn hand_over(mesh: &mut Value) {
    mesh["skipCreatingInitialPolicies"] = json!(["*"]);
    let name = mesh["name"].as_str().unwrap_or_default().to_owned();
    let Some(mtls) = mesh.get_mut("mtls").filter(|mtls| mtls.is_object()) else { return };
    let backends = mtls.get_mut("backends").and_then(Value::as_array_mut);
    for backend in backends.into_iter().flatten().filter(|backend| backend["type"] == "builtin") {
        let secret = |part: &str| {
            let backend = backend["name"].as_str().unwrap_or_default();
            json!({"secret": format!("{name}.ca-builtin-{part}-{backend}")})
        };
        let conf = json!({"cert": secret("cert"), "key": secret("key")});
        backend["type"] = "provided".into();
        backend["conf"] = conf;
    }
    // Its secrets are written after it.
    mtls["skipValidation"] = true.into();
}

/// The part of a mesh that Kubernetes keeps under `spec`.
pub fn spec(mesh: &Value) -> Value {
    let fields = mesh.as_object().into_iter().flatten();
    let spec: Map<String, Value> = fields
        .filter(|(field, _)| !METADATA.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    Value::Object(spec)
}
