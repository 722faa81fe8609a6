//! SNIs in the resource: every port of a MeshService and of a MeshMultiZoneService carries the names
//! under which other zones dial it.
//!
//! The control plane that owns the resource fills them in. An author may give a list (to rotate names,
//! first the one to dial, then those still accepted); an author who gives none keeps what is stored.

use std::sync::Arc;

use resources::{
    Draft, Kind, Resource, Spec,
    kinds::mesh_service::{Port, Sni},
    labels,
    naming::sni,
};

pub fn fill(resource: &mut Resource, existing: Option<&Resource>) {
    if resource.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL) && resource.kind() == Kind::MeshService {
        return;
    }
    let name = sni::sni_name(resource, "");
    let (mesh, kind) = (resource.key.mesh.clone(), resource.kind());
    let stored = existing.map(|e| ports(&e.spec)).unwrap_or_default();
    let ports = match &mut resource.spec {
        Spec::MeshService(service) => &mut Arc::make_mut(service).ports,
        Spec::MeshMultiZoneService(service) => &mut Arc::make_mut(service).ports,
        _ => return,
    };
    for port in ports.iter_mut().filter(|port| port.snis.is_empty()) {
        let kept = stored.iter().find(|p| p.port == port.port && !p.snis.is_empty());
        port.snis = match kept {
            Some(stored) => stored.snis.clone(),
            None => sni::hashed(&name, &mesh, kind, port.port, &Default::default())
                .map(|value| vec![Sni { value }])
                .unwrap_or_default(),
        };
    }
}

fn ports(spec: &Spec) -> &[Port] {
    match spec {
        Spec::MeshService(service) => &service.ports,
        Spec::MeshMultiZoneService(service) => &service.ports,
        _ => &[],
    }
}

/// Names that cannot be dialled by their KRI are accepted, but their author should know.
pub fn warnings(draft: &Draft) -> Vec<String> {
    sni::warnings(draft)
}
