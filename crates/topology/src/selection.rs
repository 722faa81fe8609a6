//! Candidates of selection: policies that may select a Dataplane, and Dataplanes that a policy may select,
//! without looking at all.
//!
//! A Dataplane is listed under its anchors: its display name, each tag and each label. A policy is listed
//! under one anchor of its `targetRef`, the rarest, or under none when it may select every Dataplane. Both
//! lists are candidates: `policy::PolicySelector` decides.

use std::{collections::BTreeSet, sync::Arc};

use imbl::{OrdMap, OrdSet};
use policy::{Policy, PolicyView};
use resources::{
    Key, Resource,
    kinds::{
        dataplane::Dataplane,
        tags::ANY_VALUE,
        target_ref::{TargetRef, TargetRefKind as K},
    },
    labels,
};

use crate::{
    lists::{List, Lists, add_to, remove_from},
    state::index::{Anchor, AnchorId, list_instead},
};

/// Lists that name a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PolicyTargets {
    All,
    Listed(Anchor),
    Nothing,
}

/// Policies and Dataplanes of a mesh by what they have in common. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Selections {
    for_all: OrdSet<Key>,
    policies: Lists<AnchorId, Key>,
    reach: OrdMap<Key, PolicyTargets>,
    dataplanes: Lists<AnchorId, Arc<str>>,
    /// Policies that refer to MeshHTTPRoutes: what they mean changes with the routes.
    referring_to_routes: OrdSet<Key>,
    /// Policies that refer to MeshOpenTelemetryBackends.
    referring_to_backends: OrdSet<Key>,
}

impl Selections {
    /// The policies that may select a Dataplane, sorted by kind and name.
    pub fn candidates(&self, dataplane: &Resource) -> BTreeSet<&Key> {
        let anchors = anchors_of(dataplane);
        let listed = anchors.iter().filter_map(|anchor| self.policies.get(&anchor.id())).flatten();
        self.for_all.iter().chain(listed).collect()
    }

    /// The names of the Dataplanes that a policy may select; `None` for all of them.
    pub fn dataplanes(&self, policy: &PolicyView) -> Option<Vec<&Arc<str>>> {
        self.meant_by(&policy.top)
    }

    /// The names of the Dataplanes that a reference may mean; `None` for all of them.
    pub(crate) fn meant_by(&self, top: &TargetRef) -> Option<Vec<&Arc<str>>> {
        match self.reach_of(top) {
            PolicyTargets::All => None,
            PolicyTargets::Nothing => Some(Vec::new()),
            PolicyTargets::Listed(anchor) => {
                Some(self.dataplanes.get(&anchor.id()).into_iter().flatten().collect())
            }
        }
    }

    /// A Dataplane serves this service by its tags.
    pub fn serves(&self, service: &str) -> bool {
        let tag = Anchor::Tag(labels::SERVICE.to_owned(), service.to_owned());
        self.dataplanes.contains_key(&tag.id())
    }

    /// The policies that refer to MeshHTTPRoutes.
    pub fn referring_to_routes(&self) -> impl Iterator<Item = &Key> {
        self.referring_to_routes.iter()
    }

    /// The policies that refer to MeshOpenTelemetryBackends.
    pub(crate) fn referring_to_backends(&self) -> impl Iterator<Item = &Key> {
        self.referring_to_backends.iter()
    }

    pub(crate) fn replace_policy(&mut self, key: &Key, policy: Option<&Policy>) {
        match self.reach.remove(key) {
            Some(PolicyTargets::All) => drop(self.for_all.remove(key)),
            Some(PolicyTargets::Listed(anchor)) => remove_from(&mut self.policies, &anchor.id(), key),
            Some(PolicyTargets::Nothing) | None => {}
        }
        self.referring_to_routes.remove(key);
        self.referring_to_backends.remove(key);
        let Some(policy) = policy else { return };
        let reach = self.reach_of(&policy.view.top);
        match &reach {
            PolicyTargets::All => drop(self.for_all.insert(key.clone())),
            PolicyTargets::Listed(anchor) => add_to(&mut self.policies, anchor.id(), key.clone()),
            PolicyTargets::Nothing => {}
        }
        self.reach.insert(key.clone(), reach);
        if policy.view.refers_to_routes() {
            self.referring_to_routes.insert(key.clone());
        }
        if !policy.view.telemetry.is_empty() {
            self.referring_to_backends.insert(key.clone());
        }
    }

    pub(crate) fn replace_dataplane(&mut self, old: Option<&Resource>, new: Option<&Resource>) {
        list_instead(&mut self.dataplanes, [old, new], anchors_of);
    }

    fn reach_of(&self, top: &TargetRef) -> PolicyTargets {
        let label = |(name, value): (&String, &String)| Anchor::Label(name.clone(), value.clone());
        let tag = |(name, value): (&String, &String)| match value.as_str() {
            ANY_VALUE => Anchor::AnyTag(name.clone()),
            _ => Anchor::Tag(name.clone(), value.clone()),
        };
        let service = || Some(Anchor::Tag(labels::SERVICE.to_owned(), top.name.clone()?));
        let name = top.name.as_ref().filter(|name| !name.is_empty());
        let anchors: Vec<Anchor> = match top.kind {
            // Which proxies a route selects depends on the route.
            K::Mesh | K::MeshHttpRoute => Vec::new(),
            K::MeshSubset => top.tags.iter().flatten().map(tag).collect(),
            K::MeshService | K::MeshServiceSubset => match service() {
                Some(service) => vec![service],
                None => return PolicyTargets::Nothing,
            },
            K::Dataplane => match (top.labels.as_ref().filter(|labels| !labels.is_empty()), name) {
                (Some(labels), _) => labels.iter().map(label).collect(),
                (None, Some(name)) => vec![Anchor::Name(name.clone())],
                (None, None) => Vec::new(),
            },
            K::MeshGateway | K::MeshExternalService | K::MeshMultiZoneService | K::Other(_) => {
                return PolicyTargets::Nothing;
            }
        };
        let listed = |anchor: &Anchor| self.dataplanes.get(&anchor.id()).map_or(0, List::len);
        anchors.into_iter().min_by_key(listed).map_or(PolicyTargets::All, PolicyTargets::Listed)
    }
}

fn anchors_of(dataplane: &Resource) -> BTreeSet<Anchor> {
    let mut anchors = BTreeSet::from([Anchor::Name(dataplane.display_name().to_owned())]);
    let spec = dataplane.spec.get::<Dataplane>();
    let inbounds = spec.into_iter().flat_map(Dataplane::inbounds).map(|inbound| &inbound.tags);
    let gateway = spec.and_then(Dataplane::gateway).map(|gateway| &gateway.tags);
    for (name, value) in inbounds.chain(gateway).flatten() {
        anchors.insert(Anchor::Tag(name.clone(), value.clone()));
        anchors.insert(Anchor::AnyTag(name.clone()));
    }
    for (name, value) in &dataplane.labels {
        anchors.insert(Anchor::Label(name.clone(), value.clone()));
    }
    anchors
}
