//! Meshes for tests, written the way users write them.

use std::sync::Arc;

use plan::{AdminTarget, ProxyPlan, ProxyTraits};
use resources::{Key, Kind};
use topology::{AllMeshes, MeshSnapshot, ResourceChange};

/// A mesh whose proxies prove who they are.
pub const SECURED: &str = r#"
type: Mesh
name: default
meshServices: { mode: Exclusive }
mtls:
  enabledBackend: ca
  backends: [{ name: ca, type: builtin }]
"#;

pub const PLAIN: &str = r#"
type: Mesh
name: default
meshServices: { mode: Exclusive }
"#;

/// A service that runs on the proxy `backend`.
pub const BACKEND: &str = r#"
type: MeshService
mesh: default
name: backend
labels: { kuma.io/zone: east, team: shop }
spec:
  selector: { dataplaneTags: { kuma.io/service: backend } }
  ports:
    - { name: http, port: 80, targetPort: 8080, appProtocol: http }
    - { port: 9000, targetPort: 9000 }
status:
  vips: [{ ip: 241.0.0.1 }]
  tls: { status: Ready }
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 127.0.0.3
  inbound:
    - { name: http, port: 8080, servicePort: 18080, serviceAddress: 127.0.0.1, tags: { kuma.io/service: backend, kuma.io/protocol: http, version: v1 } }
    - { port: 9000, servicePort: 19000, serviceAddress: 127.0.0.1, tags: { kuma.io/service: backend, kuma.io/protocol: tcp } }
"#;

/// The mesh `default` made of these documents; VIPs come from the `status` of services.
#[track_caller]
pub fn mesh(documents: &[&str]) -> Arc<MeshSnapshot> {
    mesh_in("", documents)
}

/// The same as the control plane of a zone sees it.
#[track_caller]
pub fn mesh_in(zone: &str, documents: &[&str]) -> Arc<MeshSnapshot> {
    let resources = testkit::resource::read(&documents.join("\n---\n"));
    let changes: Vec<ResourceChange> =
        resources.into_iter().map(|resource| (resource.key.clone(), Some(Arc::new(resource)))).collect();
    assert!(changes.iter().any(|(key, _)| *key == Key::global(Kind::Mesh, "default")));
    let mut state = AllMeshes::in_zone(zone);
    state.apply(&changes);
    state.mesh("default").unwrap().clone()
}

pub fn traits(name: &str) -> ProxyTraits {
    ProxyTraits {
        kind: plan::ProxyKind::Sidecar,
        mesh: "default".into(),
        name: name.into(),
        unified_naming: false,
        reuse_port: true,
        strict_inbound_ports: false,
        bind_outbounds: false,
        redirection: None,
        resolver: false,
        ipv6: true,
        ipv6_routed: false,
        admin_port: 9901,
        admin_target: AdminTarget::Pipe("/tmp/admin.sock".to_owned()),
        readiness_port: 9902,
        readiness_address: None,
        work_dir: "/tmp/kuma-dp".to_owned(),
        host_ip: None,
        system_ca_path: None,
        kafka_filter: false,
        metrics_certificate: None,
        counted: None,
        vouched: topology::VouchedLabels::Everything,
    }
}

pub fn unified(name: &str) -> ProxyTraits {
    ProxyTraits { unified_naming: true, ..traits(name) }
}

/// The plan of the proxy `web`, which is the last document.
#[track_caller]
pub fn plan(documents: &[&str], traits: &ProxyTraits) -> ProxyPlan {
    plan::for_proxy(&mesh(documents), traits).unwrap()
}

/// The proxy `web` at 127.0.0.2 with this additional networking.
pub fn web(networking: &str) -> String {
    let indented: String = networking.lines().map(|line| format!("  {line}\n")).collect();
    format!("type: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 127.0.0.2\n{indented}")
}
