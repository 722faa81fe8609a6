//! SNIs in the resource: every port of a MeshService and of a MeshMultiZoneService carries the names
//! under which other zones dial it.
//!
//! The control plane that owns the resource fills them in. An author may give a list (to rotate names,
//! first the one to dial, then those still accepted); an author who gives none keeps what is stored.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    Kind, Resource, Spec,
    kinds::mesh_service::{Port, Sni},
    labels,
    naming::{dns, sni},
};

pub fn fill(resource: &mut Resource, existing: Option<&Resource>) {
    if resource.kind() == Kind::MeshService && resource.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL) {
        return;
    }
    let name = sni::sni_name(resource, "").into_owned();
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
            None => {
                let computed = sni::hashed(&name, &mesh, kind, port.port, &BTreeMap::new());
                computed.map(|value| vec![Sni { value }]).unwrap_or_default()
            }
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
pub fn warnings(resource: &Resource) -> Vec<String> {
    let sections = sni::sections(&resource.spec);
    let Some(kri) = resource.kri("").filter(|_| !sections.is_empty()) else { return Vec::new() };
    let kind = resource.kind();
    let mut warnings: Vec<String> = dns::rfc1035_label_errors(&kri.name)
        .into_iter()
        .map(|problem| format!("Invalid {kind} name {:?}: {problem}. This is deprecated.", kri.name))
        .collect();
    for (port, section) in sections {
        for problem in sni::violations(&kri.with_section(&section)) {
            warnings.push(format!("Invalid {kind} SNI (port \"{port}\"): {problem}. This is deprecated."));
        }
    }
    warnings
}
