//! Adds to an answer which permissions almost allow the first call that it denies.

use contract::access::{Access, AccessNearMiss};
use resources::{
    Resource,
    naming::{Kri, namespaced},
};
use topology::{MeshSnapshot, access::near_misses};

/// The answer with its near misses. They are looked for once, whatever the number of checks.
pub fn added(mut answer: Access, mesh: &MeshSnapshot) -> Access {
    let denied = answer.checks.iter().find(|check| !check.allowed);
    let found = denied.and_then(|check| {
        let (client, server): (Kri, Kri) = (check.client.parse().ok()?, check.server.parse().ok()?);
        let found = near_misses(mesh, dataplane(mesh, &client)?, dataplane(mesh, &server)?, &server.section);
        let shown = |miss: policy::permission::NearMiss| AccessNearMiss {
            policy: miss.policy.to_string(),
            reason: miss.reason,
        };
        Some(found.into_iter().map(shown).collect())
    });
    answer.near_misses = found.unwrap_or_default();
    answer
}

fn dataplane<'a>(mesh: &'a MeshSnapshot, kri: &Kri) -> Option<&'a Resource> {
    let found =
        namespaced::stored(&kri.name, &kri.namespace).find_map(|name| mesh.dataplanes.get(name.as_str()));
    found.map(AsRef::as_ref)
}
