//! Index of policies by the services they refer to, so that they are looked at when one appears or goes.

use std::collections::{BTreeMap, BTreeSet};

use policy::Policy;
use resources::{
    Key, Kind, Labels, Resource,
    kinds::{
        dataplane::Dataplane,
        target_ref::{TargetRef, TargetRefKind as K},
    },
    labels,
};

/// Key of an entry's target in `to`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Reference {
    Named(Kind, String),
    /// Anything of the kind may have the labels.
    Labelled(Kind),
}

/// Policies by their references.
#[derive(Debug, Clone, Default)]
pub(crate) struct References(BTreeMap<Reference, BTreeSet<Key>>);

impl References {
    pub(crate) fn add(&mut self, policy: &Policy) {
        for reference in of(policy) {
            self.0.entry(reference).or_default().insert(policy.resource.key.clone());
        }
    }

    pub(crate) fn remove(&mut self, policy: &Policy) {
        for reference in of(policy) {
            let Some(keys) = self.0.get_mut(&reference) else { continue };
            keys.remove(&policy.resource.key);
            if keys.is_empty() {
                self.0.remove(&reference);
            }
        }
    }

    /// The policies that may mean a service that had or has these labels.
    pub(crate) fn to_service<'a>(
        &'a self,
        service: &Key,
        labels: impl IntoIterator<Item = &'a Labels>,
    ) -> impl Iterator<Item = &'a Key> {
        let kind = service.kind;
        let shown = labels.into_iter().filter_map(|labels| labels.get(labels::DISPLAY_NAME).cloned());
        let names: BTreeSet<String> = shown.chain([service.name.to_string()]).collect();
        let named = names.into_iter().map(move |name| Reference::Named(kind, name));
        let all = named.chain([Reference::Labelled(kind)]);
        all.filter_map(|reference| self.0.get(&reference)).flatten()
    }

    /// The policies that may mean one of the services that a Dataplane serves by its tags.
    pub(crate) fn to_tags_of<'a>(&'a self, dataplane: &Resource) -> impl Iterator<Item = &'a Key> {
        let inbounds = dataplane.spec.get::<Dataplane>().into_iter().flat_map(Dataplane::inbounds);
        let services: BTreeSet<String> =
            inbounds.filter_map(|inbound| inbound.tags.get(labels::SERVICE).cloned()).collect();
        let named = services.into_iter().map(|service| Reference::Named(Kind::MeshService, service));
        named.filter_map(|reference| self.0.get(&reference)).flatten()
    }
}

fn of(policy: &Policy) -> BTreeSet<Reference> {
    let reference = |target: &TargetRef| {
        let kind = match target.kind {
            K::MeshService => Kind::MeshService,
            K::MeshExternalService => Kind::MeshExternalService,
            K::MeshMultiZoneService => Kind::MeshMultiZoneService,
            _ => return None,
        };
        let by_labels = target.labels.as_ref().is_some_and(|labels| !labels.is_empty());
        // A name in older words (`<name>_<namespace>_svc_<port>`) is looked up by labels.
        let name = target.name.clone().filter(|name| !by_labels && !name.contains("_svc"));
        Some(name.map_or(Reference::Labelled(kind), |name| Reference::Named(kind, name)))
    };
    policy.view.to.iter().filter_map(|entry| reference(&entry.target)).collect()
}
