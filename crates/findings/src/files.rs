//! The findings of resources that no control plane has yet: files, for example.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use plan::ProxyTraits;
use resources::{Key, Kind, Resource, finding::Finding};
use topology::{
    Change, State,
    services::{Generator, ServiceChange},
};

use crate::{Listing, MeshFindings, services::of_services};

/// What would be wrong with the meshes of these resources if there were nothing else. MeshServices are there as the
/// control plane would make them from Dataplanes. Each Dataplane is planned as a proxy with either set of names,
/// because which one it has is not written anywhere.
/// The worst come first.
pub fn of_resources(resources: impl IntoIterator<Item = Resource>) -> Vec<Finding> {
    let changes: Vec<Change> = resources.into_iter().map(|r| (r.key.clone(), Some(Arc::new(r)))).collect();
    let mut state = State::default();
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
                let problems = planned.map(|plan| plan.problems).into_iter().flatten();
                found.extend(problems.map(|problem| problem.or_about(dataplane.kri(""))));
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
fn generated(changes: &[Change], mesh: &str) -> (Vec<Change>, Vec<Finding>) {
    let mut generator = Generator::new("", Duration::ZERO);
    for (key, resource) in changes {
        let of = if key.kind == Kind::Mesh { &key.name } else { &key.mesh };
        if &**of == mesh || key.kind == Kind::HostnameGenerator {
            generator.apply(key, resource.clone());
        }
    }
    let made = generator.desired(Timestamp::UNIX_EPOCH).changes.into_iter();
    let made = made.filter_map(|change| match change {
        ServiceChange::Create(resource) | ServiceChange::Update { resource, .. } => Some(resource),
        ServiceChange::Delete { .. } => None,
    });
    let services: Vec<Change> =
        made.map(|resource| (resource.key.clone(), Some(Arc::new(resource)))).collect();
    let kri = |kind: Kind, name: &str| {
        let key = Key::new(kind, mesh, name);
        let found = services.iter().chain(changes).find(|(other, _)| *other == key);
        found.and_then(|(_, resource)| resource.as_ref()?.kri(""))
    };
    let found = of_services(&generator, kri);
    (services, found)
}
