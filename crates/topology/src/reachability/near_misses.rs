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
    let routes: Vec<_> = mesh.routes().cloned().collect();
    let selector = PolicySelector { routes: &routes, ..PolicySelector::default() };
    let permissions = mesh.policies_of(Kind::MeshTrafficPermission);
    let class = ClientClass::of(mesh, client);
    policy::permission::near_misses(permissions, server, inbound, class.client(), &selector)
}
