//! Policies and servers of which only a part is known, grouped by what is asked and by what is known.
//!
//! ```text
//!   PolicyGroup: asks for the label `app` ─┐           ┌─ ServerGroup: in zone west, the tag `kuma.io/service` is known
//!                                          ├─ Relation ┤
//!   PolicyGroup: asks for a service ───────┘           └─ ServerGroup: in zone west, no tag is known
//! ```
//!
//! A policy that asks for nothing that is known of a group of servers says the same to all of them, so that this is
//! kept once and not with each server. There are few groups of either sort, whatever the size of the mesh: as many as
//! there are zones and ways to write selectors.

use std::collections::BTreeSet;

use policy::{Policy, view::Role};
use resources::{
    kinds::{
        tags::ANY_VALUE,
        target_ref::{ProxyType, TargetRef, TargetRefKind as K},
    },
    labels,
};

use crate::{snapshot::is_shadow, state::index::Anchor};

/// Servers that are not known here, by what is known of them but for values: their zone and some names of tags and labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerGroup {
    pub(crate) zone: String,
    /// The tags of which the value is known for sure.
    pub(crate) tags: BTreeSet<String>,
    /// They have no other tags.
    pub(crate) tags_are_complete: bool,
    /// The labels of which the value is known, but for that of the zone.
    pub(crate) labels: BTreeSet<String>,
}

/// Policies by what they ask of the proxies they select, but for values of tags and labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyGroup {
    /// The only zone in which they have an effect.
    confined_to: Option<String>,
    /// The value that they want of the label of the zone.
    zone: Option<String>,
    tags: BTreeSet<String>,
    /// But for that of the zone.
    labels: BTreeSet<String>,
    /// They select by something that is never known of servers elsewhere: a name, a section, a namespace.
    asks_for_more: bool,
}

/// Relation of the policies of a group to the servers of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Relation<'a> {
    /// They select none.
    Nothing,
    /// They select those with the right values of what is known, such as of this tag or label.
    ByValue(KnownValue<'a>),
    /// They may select any, as far as is known.
    Possible,
    /// They select all.
    All,
}

/// A tag or label of which the value is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownValue<'a> {
    Tag(&'a str),
    Label(&'a str),
}

impl PolicyGroup {
    /// `None` for a policy that selects no sidecar.
    pub(crate) fn of(policy: &Policy) -> Option<PolicyGroup> {
        let resource = &policy.resource;
        let top = &policy.view.top;
        let types = top.proxy_types.as_ref().filter(|types| !types.is_empty());
        let is_for_sidecars = types.is_none_or(|types| types.contains(&ProxyType::Sidecar));
        if is_shadow(resource) || top.kind != K::Dataplane && !is_for_sidecars {
            return None;
        }
        let is_given = |field: &Option<String>| field.as_ref().is_some_and(|it| !it.is_empty());
        let asks_for_place = match top.kind {
            K::Mesh | K::MeshSubset => false,
            K::MeshService | K::MeshServiceSubset if top.name.is_some() => false,
            K::Dataplane => is_given(&top.name) || is_given(&top.namespace) || is_given(&top.section_name),
            _ => return None,
        };
        let role = Role::of(&resource.labels);
        let of_a_zone = resource.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE) && role != Role::Producer;
        let confined_to = resource.label(labels::ZONE).filter(|zone| of_a_zone && !zone.is_empty());
        let mut group = PolicyGroup {
            confined_to: confined_to.map(str::to_owned),
            asks_for_more: asks_for_place || matches!(role, Role::Consumer | Role::WorkloadOwner),
            ..PolicyGroup::default()
        };
        for anchor in asked(top) {
            match anchor {
                Anchor::Tag(name, _) | Anchor::AnyTag(name) => drop(group.tags.insert(name)),
                Anchor::Label(name, zone) if name == labels::ZONE => group.zone = Some(zone),
                Anchor::Label(name, _) => drop(group.labels.insert(name)),
                Anchor::Name(_) => {}
            }
        }
        Some(group)
    }

    pub(crate) fn relation<'s>(&self, servers: &'s ServerGroup) -> Relation<'s> {
        let differs = |zone: &Option<String>| zone.as_ref().is_some_and(|zone| *zone != servers.zone);
        let has_zone = !servers.zone.is_empty();
        if differs(&self.confined_to) || has_zone && differs(&self.zone) {
            return Relation::Nothing;
        }
        if servers.tags_are_complete && !self.tags.is_subset(&servers.tags) {
            return Relation::Nothing;
        }
        let tag =
            || self.tags.iter().find_map(|name| servers.tags.get(name)).map(|name| KnownValue::Tag(name));
        let label = || {
            self.labels.iter().find_map(|name| servers.labels.get(name)).map(|name| KnownValue::Label(name))
        };
        let asks_for_unknown = self.asks_for_more
            || !self.tags.is_empty()
            || !self.labels.is_empty()
            || self.zone.is_some() && !has_zone;
        match tag().or_else(label) {
            Some(known) => Relation::ByValue(known),
            None if asks_for_unknown => Relation::Possible,
            None => Relation::All,
        }
    }
}

/// Every tag and label that a reference asks proxies for.
pub(crate) fn asked(top: &TargetRef) -> Vec<Anchor> {
    let tag = |(name, value): (&String, &String)| match value.as_str() {
        ANY_VALUE => Anchor::AnyTag(name.clone()),
        _ => Anchor::Tag(name.clone(), value.clone()),
    };
    let tags = || top.tags.iter().flatten().map(tag);
    let service = || top.name.iter().map(|name| Anchor::Tag(labels::SERVICE.to_owned(), name.clone()));
    let label = |(name, value): (&String, &String)| Anchor::Label(name.clone(), value.clone());
    match top.kind {
        K::MeshSubset => tags().collect(),
        K::MeshService | K::MeshServiceSubset => service().chain(tags()).collect(),
        K::Dataplane => top.labels.iter().flatten().map(label).collect(),
        _ => Vec::new(),
    }
}
