//! The findings of resources that no control plane has yet: files, for example.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use plan::ProxyTraits;
use resources::{Key, Kind, Resource, finding::Finding};
use topology::{
    AllMeshes, ResourceChange,
    services::{Generator, ServiceChange},
};

use crate::{Listing, MeshFindings, services::of_services};

/// Finds what would be wrong with the meshes of these resources if there were nothing else. MeshServices
/// exist as the control plane would make them from Dataplanes. Each Dataplane is planned as a proxy with
/// either set of names, because no resource says which one the proxy has.
/// The worst come first.
pub fn of_resources(resources: impl IntoIterator<Item = Resource>) -> Vec<Finding> {
    let changes: Vec<ResourceChange> =
        resources.into_iter().map(|r| (r.key.clone(), Some(Arc::new(r)))).collect();
    let mut state = AllMeshes::default();
    state.apply(&changes);
    let meshes: Vec<_> = changes.iter().map(|(key, _)| key).filter(|key| key.kind == Kind::Mesh).collect();
    let mut all = Vec::new();
    for mesh in meshes {
        let mut found = BTreeSet::new();
        let (services, of_services) = generated(&changes, &mesh.name);
        state.apply(&services);
        found.extend(of_services);
        let Some(mesh) = state.mesh(&mesh.name) else { continue };
        let of_mesh = MeshFindings::of(mesh.clone());
        found.extend(of_mesh.iter().cloned().chain(of_mesh.hostnames()));
        for dataplane in mesh.dataplanes.values() {
            for unified_naming in [false, true] {
                let assumed = ProxyTraits::assumed(&mesh.name, &dataplane.key.name);
                let planned = plan::for_proxy(mesh, &ProxyTraits { unified_naming, ..assumed });
                let findings = planned.map(|plan| plan.findings()).into_iter().flatten();
                found.extend(findings.map(|finding| finding.or_about(dataplane.kri(""))));
            }
        }
        let mut listing = Listing::default();
        found.iter().for_each(|finding| listing.add(finding));
        all.extend(listing.into_findings(mesh.mesh.kri("").as_ref()));
    }
    all.sort_by_key(|finding| std::cmp::Reverse(finding.code.severity()));
    all
}

/// The services that the control plane would make from the Dataplanes of a mesh, and what is wrong with services.
fn generated(changes: &[ResourceChange], mesh: &str) -> (Vec<ResourceChange>, Vec<Finding>) {
    let mut generator = Generator::new("", Duration::ZERO);
    for (key, resource) in changes {
        let of = if key.kind == Kind::Mesh { &key.name } else { &key.mesh };
        if &**of == mesh || key.kind == Kind::HostnameGenerator {
            generator.apply(key, resource.clone());
        }
    }
    let made = generator.desired(Timestamp::UNIX_EPOCH).changes.into_iter();
    let mut by_key: BTreeMap<&Key, &Arc<Resource>> =
        changes.iter().filter_map(|(key, resource)| Some((key, resource.as_ref()?))).collect();
    let made = made.filter_map(|change| match change {
        ServiceChange::Create(resource) | ServiceChange::Update { resource, .. } => Some(resource),
        ServiceChange::Status { key, status, .. } => {
            Some(Resource { status: Some(status), ..Resource::clone(by_key.get(&key)?) })
        }
        ServiceChange::Delete { .. } => None,
    });
    let services: Vec<ResourceChange> =
        made.map(|resource| (resource.key.clone(), Some(Arc::new(resource)))).collect();
    by_key.extend(services.iter().filter_map(|(key, service)| Some((key, service.as_ref()?))));
    let kri = |kind: Kind, name: &str| by_key.get(&Key::new(kind, mesh, name))?.kri("");
    let found = of_services(&generator, kri);
    (services, found)
}
