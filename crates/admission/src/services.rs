//! MeshServices that a user puts: what the control plane keeps of the stored one, and who looks after it from then on.
//!
//! The label `kuma.io/managed-by` says whose a service is. A put without it takes a generated service over: from then
//! on its ports and its life are the user's. What the control plane observes stays the control plane's.

use std::sync::Arc;

use resources::{Draft, Kind, Labels, Resource, Spec, kinds::mesh_service::MeshService, labels};

/// Keeps what the control plane has found out about a stored service, so that it does not vanish for the moment until
/// it is found out again: other zones would not call the service meanwhile, and clients would expect other
/// certificates. Identities that the user lists are the user's.
pub fn keep_observed(given: &mut Spec, existing: Option<&Resource>) {
    let stored = existing.and_then(|existing| existing.spec.get::<MeshService>());
    let (Spec::MeshService(given), Some(stored)) = (given, stored) else { return };
    let given = Arc::make_mut(given);
    given.state.clone_from(&stored.state);
    if given.identities.is_empty() {
        given.identities.clone_from(&stored.identities);
    }
}

/// Advice about its owner for the author of a MeshService that differs from the stored one.
pub fn warning(draft: &Draft, existing: Option<&Resource>) -> Option<String> {
    if draft.kind() != Kind::MeshService {
        return None;
    }
    let name = &draft.key.name;
    if is_generated(&draft.labels) {
        return Some(format!(
            "The label {}: {} leaves MeshService {name:?} to the control plane, which gives it the ports of the Dataplanes \
             with {}: {name} and deletes it when they are gone. Leave out the label to keep your own.",
            labels::MANAGED_BY,
            labels::MESH_SERVICE_GENERATOR,
            labels::SERVICE,
        ));
    }
    existing.is_some_and(|existing| is_generated(&existing.labels)).then(|| {
        format!(
            "MeshService {name:?} was generated from Dataplanes and is yours now: its ports no longer follow the Dataplanes, \
             and it stays when they are gone. Delete it to have it generated again."
        )
    })
}

fn is_generated(labels: &Labels) -> bool {
    labels.get(labels::MANAGED_BY).is_some_and(|by| by == labels::MESH_SERVICE_GENERATOR)
}
