//! A mesh as another control plane is to have it.

use serde_json::{Map, Value, json};

use crate::failure::Result;

/// Fields beside the spec of a mesh.
const METADATA: [&str; 7] = ["type", "mesh", "name", "creationTime", "modificationTime", "labels", "kri"];

/// Makes a mesh that brings its policies and its authorities along, instead of getting new ones. An authority that was
/// never made, because its backend was never enabled, has no Secrets: its backend stays builtin, and the other control
/// plane makes it. `exists` looks for a Secret of a mesh.
pub fn hand_over(mesh: &mut Value, exists: impl Fn(&str, &str) -> Result<bool>) -> Result<()> {
    mesh["skipCreatingInitialPolicies"] = json!(["*"]);
    let name = mesh["name"].as_str().unwrap_or_default().to_owned();
    let Some(mtls) = mesh.get_mut("mtls").filter(|mtls| mtls.is_object()) else { return Ok(()) };
    let backends = mtls.get_mut("backends").and_then(Value::as_array_mut);
    for backend in backends.into_iter().flatten().filter(|backend| backend["type"] == "builtin") {
        let secret = |part: &str| {
            let backend = backend["name"].as_str().unwrap_or_default();
            format!("{name}.ca-builtin-{part}-{backend}")
        };
        let [cert, key] = ["cert", "key"].map(secret);
        if exists(&name, &cert)? && exists(&name, &key)? {
            backend["type"] = "provided".into();
            backend["conf"] = json!({"cert": {"secret": cert}, "key": {"secret": key}});
        }
    }
    // Secrets are written after it.
    mtls["skipValidation"] = true.into();
    Ok(())
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
