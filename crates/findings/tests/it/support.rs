//! Meshes for tests, written the way users write them.

use std::sync::Arc;

use findings::{Finding, MeshFindings};
use resources::Resource;
use topology::{AllMeshes, ResourceChange};

pub const SECURED: &str = r#"
type: Mesh
name: default
meshServices: { mode: Exclusive }
mtls:
  enabledBackend: ca
  backends: [{ name: ca, type: builtin }]
---
type: MeshTrafficPermission
mesh: default
name: all
spec:
  rules: [{ default: { allow: [{ spiffeID: { type: Prefix, value: "spiffe://default/" } }] } }]
"#;

pub const PLAIN: &str = r#"
type: Mesh
name: default
meshServices: { mode: Exclusive }
"#;

pub const WEB: &str = r#"
type: Dataplane
mesh: default
name: web
labels: { app: web }
networking:
  address: 127.0.0.2
  inbound: [{ name: http, port: 8080, tags: { kuma.io/service: web, kuma.io/protocol: http } }]
"#;

pub const BACKEND: &str = r#"
type: MeshService
mesh: default
name: backend
spec:
  selector: { dataplaneTags: { kuma.io/service: backend } }
  ports: [{ name: http, port: 80, targetPort: 8080, appProtocol: http }]
"#;

#[track_caller]
pub fn resources(documents: &[&str]) -> Vec<Resource> {
    testkit::resource::read(&documents.join("\n---\n"))
}

#[track_caller]
pub fn changes(documents: &[&str]) -> Vec<ResourceChange> {
    resources(documents).into_iter().map(|r| (r.key.clone(), Some(Arc::new(r)))).collect()
}

/// Returns the findings of the mesh `default` made of these documents, a line each.
#[track_caller]
pub fn lines(documents: &[&str]) -> Vec<String> {
    let mut state = AllMeshes::default();
    state.apply(&changes(documents));
    MeshFindings::of(state.mesh("default").unwrap().clone()).iter().map(line).collect()
}

pub fn line(finding: &Finding) -> String {
    let about = finding.about.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("{} {about}: {}", finding.code, finding.text)
}

/// A MeshTimeout of this name with this spec.
pub fn timeout(name: &str, spec: &str) -> String {
    format!("type: MeshTimeout\nmesh: default\nname: {name}\nspec: {spec}")
}
