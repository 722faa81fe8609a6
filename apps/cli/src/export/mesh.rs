//! A mesh as another control plane is to have it.

use contract::{lenient::read_partly, resource::Metadata};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{document::overwrite, failure::Result};

/// Fields beside the spec of a mesh.
const METADATA: [&str; 7] = ["type", "mesh", "name", "creationTime", "modificationTime", "labels", "kri"];

/// Makes a mesh that brings its policies and its authorities along, instead of getting new ones. An authority that was
/// never made, because its backend was never enabled, has no Secrets: its backend stays builtin, and the other control
/// plane makes it. `exists` looks for a Secret of a mesh.
pub fn hand_over(mesh: &mut Value, exists: impl Fn(&str, &str) -> Result<bool>) -> Result<()> {
    overwrite(mesh, &json!({ "skipCreatingInitialPolicies": ["*"] }));
    let name = read_partly::<Metadata>(mesh).name;
    let Some(mtls) = mesh.get_mut("mtls") else { return Ok(()) };
    let backends = mtls.get_mut("backends").and_then(Value::as_array_mut);
    for backend in backends.into_iter().flatten() {
        let Authority { r#type, name: authority } = read_partly(backend);
        if r#type != "builtin" {
            continue;
        }
        let [cert, key] = ["cert", "key"].map(|part| format!("{name}.ca-builtin-{part}-{authority}"));
        if exists(&name, &cert)? && exists(&name, &key)? {
            let conf = json!({ "cert": { "secret": cert }, "key": { "secret": key } });
            overwrite(backend, &json!({ "type": "provided", "conf": conf }));
        }
    }
    // Secrets are written after it.
    overwrite(mtls, &json!({ "skipValidation": true }));
    Ok(())
}

/// A backend of mTLS.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Authority {
    r#type: String,
    name: String,
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
