//! Targets of telemetry.

use std::sync::Arc;

use policy::Policy;
use resources::{Key, Labels, Resource};

use super::{
    super::{PolicyChange, resource_diff::seen_alike},
    MeshState, Round,
};
use crate::snapshot::carries;

impl MeshState {
    /// A policy that refers to the backend says something else now, so it counts as changed
    /// and is another one to those who compare policies by identity.
    pub(super) fn take_backend(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round) {
        let old = self.stored.telemetry.get(&key.name).cloned();
        if seen_alike(old.as_ref(), value) {
            return;
        }
        match value {
            Some(backend) => self.stored.telemetry.insert(key.name.clone(), backend.clone()),
            None => self.stored.telemetry.remove(&key.name),
        };
        let versions: Vec<&Labels> = old.iter().chain(value).map(|backend| &backend.labels).collect();
        let means = |wanted: &Labels| versions.iter().any(|labels| carries(labels, wanted));
        for key in self.selections.referring_to_backends() {
            let Some(old) =
                self.stored.policies.get(key).filter(|policy| policy.view.telemetry.iter().any(means))
            else {
                continue;
            };
            let (old, new) = (old.clone(), Arc::new(Policy::clone(old)));
            self.stored.policies.insert(key.clone(), new.clone());
            round.affected.policies.push(PolicyChange { old: Some(old), new: Some(new) });
        }
    }
}
