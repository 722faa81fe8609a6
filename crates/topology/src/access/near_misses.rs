//! The permissions that almost let one proxy call another.

use policy::{PolicySelector, permission::NearMiss};
use resources::{Kind, Resource};

use super::ClientClass;
use crate::{MeshSnapshot, matching};

/// The permissions that almost let a client call an inbound of a server, named by its section.
pub fn near_misses(
    mesh: &MeshSnapshot,
    client: &Resource,
    server: &Resource,
    section: &str,
) -> Vec<NearMiss> {
    let called = matching::inbounds(server).iter().find(|inbound| inbound.section_name() == section);
    let Some(inbound) = called else { return Vec::new() };
    // A permission may be for the proxies that a route selects, which is old and rare.
    let is_permission = |key: &resources::Key| key.kind == Kind::MeshTrafficPermission;
    let by_route = mesh.selections.referring_to_routes().any(is_permission);
    let routes: Vec<_> = mesh.routes().filter(|_| by_route).cloned().collect();
    let selector = PolicySelector { routes: &routes, ..PolicySelector::default() };
    let permissions = mesh.policies_of(Kind::MeshTrafficPermission);
    let class = ClientClass::of(mesh, client);
    policy::permission::near_misses(permissions, server, inbound, class.client(), &selector)
}
