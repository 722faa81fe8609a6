//! Servers of which only a part is known here, because they are in other zones or not there yet: whether a policy
//! selects them may remain open.

use std::sync::Arc;

use policy::{
    Policy,
    permission::{self, AtMost},
    select::is_of_zone,
    view::Role,
};
use resources::{
    Labels, Resource,
    kinds::{
        mesh_service::MeshService,
        tags::{ANY_VALUE, Tags},
        target_ref::{ProxyType, TargetRef, TargetRefKind as K},
    },
    labels,
};

use super::ServerGroup;
use crate::{matching::MemberSelector, snapshot::is_shadow, state::index::Anchor};

/// Knowledge about proxies that serve something and are not known here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Unseen {
    pub zone: String,
    /// The tags of the inbounds.
    pub tags: Tags,
    /// They have no other tags.
    pub tags_are_complete: bool,
    /// The inbounds that serve surely have these tags; if not, others of the same Dataplanes may serve.
    pub tags_are_sure: bool,
    /// Some of the labels of the Dataplanes.
    pub labels: Labels,
    /// Their zone has MeshTrafficPermissions that are not known here.
    pub guarded_there: bool,
}

impl Unseen {
    /// Describes the servers of a MeshService in a zone: proxies that its selector selects.
    pub(crate) fn of_service(service: &Resource, zone: &str) -> Unseen {
        let selector = service.spec.get::<MeshService>().map(|spec| MemberSelector::of(&spec.selector));
        let (tags, mut labels) = match selector {
            Some(MemberSelector::Tags(tags)) => (with_values(&tags), Labels::new()),
            Some(MemberSelector::Labels(labels)) => (Tags::new(), labels),
            Some(MemberSelector::Name(_) | MemberSelector::Nothing) | None => Default::default(),
        };
        labels.extend(of_zone(zone));
        // A control plane makes services of inbounds with these tags. What users write may mean the tags of one inbound
        // and the port of another.
        let tags_are_sure = service.label(labels::MANAGED_BY).is_some();
        Unseen {
            zone: zone.to_owned(),
            tags,
            tags_are_complete: false,
            tags_are_sure,
            labels,
            guarded_there: false,
        }
    }

    /// Describes the servers of tags that an ingress lists.
    pub(crate) fn listed(tags: &Tags, zone: &str) -> Unseen {
        Unseen {
            zone: zone.to_owned(),
            tags: tags.clone(),
            tags_are_complete: true,
            tags_are_sure: true,
            labels: of_zone(zone),
            guarded_there: false,
        }
    }

    /// Describes the future servers of tags in a zone.
    pub(crate) fn tagged(tags: &Tags, zone: &str) -> Unseen {
        Unseen { tags_are_complete: false, ..Unseen::listed(&with_values(tags), zone) }
    }

    /// Returns the most that policies allow which may select the proxies.
    pub(crate) fn permissions<'p>(&self, candidates: impl Iterator<Item = &'p Arc<Policy>>) -> AtMost {
        let mut selecting: Vec<(&Arc<Policy>, bool)> = candidates
            .filter_map(|policy| match self.is_selected_by(policy) {
                Some(false) => None,
                sure => Some((policy, sure.is_some())),
            })
            .collect();
        selecting.sort_by(|(a, _), (b, _)| a.view.precedence.cmp(&b.view.precedence));
        permission::at_most(selecting)
    }

    /// The servers that policies treat alike which ask for nothing that is known of these.
    pub(crate) fn group(&self) -> ServerGroup {
        let tags = self.tags.keys().filter(|_| self.tags_are_sure);
        let labels = self.labels.keys().filter(|name| *name != labels::ZONE);
        ServerGroup {
            zone: self.zone.clone(),
            tags: tags.cloned().collect(),
            tags_are_complete: self.tags_are_complete,
            labels: labels.cloned().collect(),
        }
    }

    /// Returns anchors under which policies may look for them and that are known for certain.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = Anchor> {
        let tags = self.tags.iter().filter(|_| self.tags_are_sure);
        let tags = tags.flat_map(|(name, value)| {
            [Anchor::Tag(name.clone(), value.clone()), Anchor::AnyTag(name.clone())]
        });
        let labels = self.labels.iter().map(|(name, value)| Anchor::Label(name.clone(), value.clone()));
        tags.chain(labels)
    }

    /// The policy selects these proxies; `None` if that depends on properties that are not known here.
    pub(crate) fn is_selected_by(&self, policy: &Policy) -> Option<bool> {
        let resource = &policy.resource;
        let role = Role::of(&resource.labels);
        if !is_of_zone(resource, &self.zone) || is_shadow(resource) {
            return Some(false);
        }
        let selected = self.is_meant_by(&policy.view.top);
        match role {
            Role::System | Role::Producer => selected,
            // It depends on their namespace, too.
            Role::Consumer | Role::WorkloadOwner => selected.filter(|selected| !selected),
        }
    }

    fn is_meant_by(&self, top: &TargetRef) -> Option<bool> {
        let types = top.proxy_types.as_ref().filter(|types| !types.is_empty());
        let sidecars = types.is_none_or(|types| types.contains(&ProxyType::Sidecar));
        let service = || Some((labels::SERVICE, top.name.as_deref()?));
        let tags = || top.tags.iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()));
        match top.kind {
            K::Mesh => Some(sidecars),
            K::MeshSubset => self.has_tags(tags(), sidecars),
            K::MeshService | K::MeshServiceSubset => {
                self.has_tags(service().into_iter().chain(tags()), sidecars)
            }
            K::Dataplane => {
                let is_given = |field: &Option<String>| field.as_ref().is_some_and(|it| !it.is_empty());
                let exact = is_given(&top.name) || is_given(&top.namespace) || is_given(&top.section_name);
                let labels = top.labels.iter().flatten();
                let all = all(labels.map(|(name, value)| self.labels.get(name).map(|known| known == value)));
                if exact { all.filter(|all| !all) } else { all }
            }
            _ => Some(false),
        }
    }

    fn has_tags<'t>(&self, wanted: impl Iterator<Item = (&'t str, &'t str)>, sidecars: bool) -> Option<bool> {
        if !sidecars {
            return Some(false);
        }
        all(wanted.map(|(name, value)| match self.tags.get(name) {
            Some(known) => Some(value == ANY_VALUE || known == value).filter(|_| self.tags_are_sure),
            None => self.tags_are_complete.then_some(false),
        }))
    }
}

/// The tags of which the value is known: `*` stands for any.
fn with_values(tags: &Tags) -> Tags {
    let known = tags.iter().filter(|(_, value)| *value != ANY_VALUE);
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The label that the Dataplanes of a zone have.
fn of_zone(zone: &str) -> Labels {
    let zone = Some(zone).filter(|zone| !zone.is_empty());
    zone.map(|zone| (labels::ZONE.to_owned(), zone.to_owned())).into_iter().collect()
}

/// All conditions hold; `None` if that depends on unknown ones.
fn all(conditions: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut unknown = false;
    for condition in conditions {
        match condition {
            Some(false) => return Some(false),
            Some(true) => {}
            None => unknown = true,
        }
    }
    (!unknown).then_some(true)
}
