//! Choice of a `targetRef` that selects certain inbounds, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Draft, Key, Kind, Labels, Resource, Spec,
    kinds::{
        dataplane::{Inbound, InboundState},
        entry::Entry,
        mesh_traffic_permission::{Action, Conf, MeshTrafficPermission},
        tags::{ANY_VALUE, Tags},
        target_ref::{TargetRef, TargetRefKind as K},
    },
    labels,
};

use crate::{
    DestinationId, MeshSnapshot,
    access::explain::Serving,
    matching::{self, MemberSelector},
};

/// Labels that say which workload a Dataplane is of. Others may be shared by several.
const NAMING: [&str; 4] = [labels::WORKLOAD, "app.kubernetes.io/name", "app", "k8s-app"];
/// Limit of names of inbounds that are selected in addition.
const MAX_NAMED: usize = 5;

/// An inbound: the name of its Dataplane, and its index there.
pub(super) type InboundId = (Arc<str>, usize);

/// Inbounds that a reference is to select.
pub(super) struct InboundSelection<'a> {
    pub mesh: &'a MeshSnapshot,
    pub places: &'a BTreeSet<InboundId>,
    /// References that are tried before others.
    pub preferred: Vec<TargetRef>,
    /// Selectors of the MeshServices that consist of these inbounds.
    pub selectors: &'a [MemberSelector],
    /// Destinations that they serve.
    pub destinations: &'a [DestinationId],
    /// Labels of the policy that will have the reference.
    pub labels: &'a Labels,
    /// Judges the consequence of selecting another inbound.
    pub besides: &'a dyn Fn(&InboundId) -> SelectionEffect,
}

/// Consequence of a reference that selects an inbound which it need not select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectionEffect {
    /// Nothing changes there.
    Harmless,
    /// Clients are let in there.
    Opened,
    /// The reference cannot be used.
    Forbidden,
}

/// A reference to inbounds.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub target: TargetRef,
    /// The inbounds that it is to select, and does.
    pub serving: BTreeSet<InboundId>,
    /// Other inbounds that it selects.
    pub besides: BTreeSet<InboundId>,
}

impl Choice {
    /// References that together select all these inbounds: one that selects nothing else if there is one, else
    /// the one that selects the fewest others, else one for each Dataplane.
    pub fn of(wanted: &InboundSelection<'_>, selector: &policy::PolicySelector<'_>) -> Vec<Choice> {
        let members: Vec<(&Arc<Resource>, &Inbound)> =
            wanted.places.iter().filter_map(|place| member(wanted.mesh, place)).collect();
        let selected = |target: TargetRef| Choice::selecting(wanted, selector, target);
        let mut widest: Option<Choice> = None;
        let all = wanted.preferred.iter().cloned().chain(candidates(wanted, &members));
        for choice in all.filter_map(selected) {
            if choice.serving != *wanted.places {
                continue;
            }
            if choice.besides.is_empty() {
                return vec![choice];
            }
            if widest.as_ref().is_none_or(|widest| choice.besides.len() < widest.besides.len()) {
                widest = Some(choice);
            }
        }
        match widest {
            Some(choice) => vec![choice],
            None => {
                let named = by_name(&members).into_iter().filter_map(selected);
                named.filter(|choice| !choice.serving.is_empty()).collect()
            }
        }
    }

    /// Returns the choice of a reference; `None` if it selects what it must not.
    pub fn selecting(
        wanted: &InboundSelection<'_>,
        selector: &policy::PolicySelector<'_>,
        target: TargetRef,
    ) -> Option<Choice> {
        let mesh = wanted.mesh;
        let listed = mesh.selections.meant_by(&target);
        let names = listed.unwrap_or_else(|| mesh.dataplanes.keys().collect());
        let policy = probe(wanted, &target);
        let mut selected = BTreeSet::new();
        for dataplane in names.into_iter().filter_map(|name| mesh.dataplanes.get(name)) {
            let inbounds = matching::inbounds(dataplane);
            let chosen = selector.select(&policy, dataplane).inbounds.into_iter();
            let counted =
                chosen.filter(|i| inbounds.get(*i).is_some_and(|it| it.state != InboundState::Ignored));
            selected.extend(counted.map(|i| (dataplane.key.name.clone(), i)));
        }
        let serving = selected.intersection(wanted.places).cloned().collect();
        let mut besides = BTreeSet::new();
        for place in selected.difference(wanted.places) {
            match (wanted.besides)(place) {
                SelectionEffect::Harmless => {}
                SelectionEffect::Opened => drop(besides.insert(place.clone())),
                SelectionEffect::Forbidden => return None,
            }
        }
        Some(Choice { target, serving, besides })
    }

    /// Returns a note about the choice for the user.
    pub fn notes(&self) -> Option<String> {
        let names: BTreeSet<&Arc<str>> = self.besides.iter().map(|(dataplane, _)| dataplane).collect();
        let named: Vec<String> = names.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = if names.len() > MAX_NAMED { ", …" } else { "" };
        (!names.is_empty()).then(|| {
            format!(
                "no targetRef selects exactly the inbounds that are called: this one also selects {} others (of Dataplanes \
                 {}{more}); give the Dataplanes a label of their own, such as {}",
                self.besides.len(),
                named.join(", "),
                labels::WORKLOAD
            )
        })
    }
}

/// The reference that means the proxies which a service chooses; `None` where none does, or where it depends on the zone.
pub(super) fn reference(serving: &Serving) -> Option<TargetRef> {
    match (&serving.selector, &serving.zone) {
        (MemberSelector::Tags(tags), _) => plain(tags).then(|| TargetRef {
            kind: K::MeshSubset,
            tags: Some(Tags::clone(tags)),
            ..TargetRef::default()
        }),
        (MemberSelector::Labels(labels), zone) => {
            let zone = zone.iter().map(|zone| (labels::ZONE.to_owned(), zone.to_string()));
            let labels = labels.clone().into_iter().chain(zone).collect();
            Some(TargetRef { kind: K::Dataplane, labels: Some(labels), ..TargetRef::default() })
        }
        (MemberSelector::Name(name), None) => {
            Some(TargetRef { kind: K::Dataplane, name: Some(name.clone()), ..TargetRef::default() })
        }
        (MemberSelector::Name(_), Some(_)) | (MemberSelector::Nothing, _) => None,
    }
}

/// `*` stands for any value in a selector; a reference by tags says it otherwise in places.
fn plain(tags: &Tags) -> bool {
    !tags.is_empty() && tags.values().all(|value| value != ANY_VALUE)
}

pub(super) fn member<'m>(
    mesh: &'m MeshSnapshot,
    (name, i): &InboundId,
) -> Option<(&'m Arc<Resource>, &'m Inbound)> {
    let dataplane = mesh.dataplanes.get(name)?;
    Some((dataplane, matching::inbounds(dataplane).get(*i)?))
}

/// References that may be it, the preferred ones first.
fn candidates(wanted: &InboundSelection<'_>, members: &[(&Arc<Resource>, &Inbound)]) -> Vec<TargetRef> {
    let mut candidates = Vec::new();
    let sections: BTreeSet<String> = members.iter().map(|(_, inbound)| inbound.section_name()).collect();
    let section = sections.first().filter(|_| sections.len() == 1);
    for labels in labels_of(wanted, members) {
        let by_labels = TargetRef { kind: K::Dataplane, labels: Some(labels), ..TargetRef::default() };
        candidates.push(by_labels.clone());
        candidates.extend(section.map(|it| TargetRef { section_name: Some(it.clone()), ..by_labels }));
    }
    for tags in tags_of(wanted, members) {
        candidates.push(TargetRef { kind: K::MeshSubset, tags: Some(tags), ..TargetRef::default() });
    }
    let dataplanes: BTreeSet<&Key> = members.iter().map(|(dataplane, _)| &dataplane.key).collect();
    if dataplanes.len() == 1 {
        candidates.extend(by_name(members));
    }
    candidates
}

/// Labels that all Dataplanes have, and that say what they are.
fn labels_of(wanted: &InboundSelection<'_>, members: &[(&Arc<Resource>, &Inbound)]) -> Vec<Labels> {
    let of_services = wanted.selectors.iter().filter_map(|selector| match selector {
        MemberSelector::Labels(labels) => Some(labels.clone()),
        _ => None,
    });
    let mut found: Vec<Labels> = of_services.collect();
    let common = common(members.iter().map(|(dataplane, _)| &dataplane.labels));
    for name in NAMING {
        let Some(value) = common.get(name).filter(|value| !value.is_empty()) else { continue };
        let named = Labels::from([(name.to_owned(), value.clone())]);
        found.push(named.clone());
        if let Some(namespace) = common.get(labels::K8S_NAMESPACE) {
            let within = Labels::from([(labels::K8S_NAMESPACE.to_owned(), namespace.clone())]);
            found.push(named.into_iter().chain(within).collect());
        }
    }
    found
}

/// Tags that all inbounds have, and that say what they are.
fn tags_of(wanted: &InboundSelection<'_>, members: &[(&Arc<Resource>, &Inbound)]) -> Vec<Tags> {
    let common = common(members.iter().map(|(_, inbound)| &inbound.tags));
    let service = common.get_key_value(labels::SERVICE);
    let service = service.map(|(name, value)| Tags::from([(name.clone(), value.clone())]));
    let of_services = wanted.selectors.iter().filter_map(|selector| match selector {
        MemberSelector::Tags(tags) => Some(Tags::clone(tags)),
        _ => None,
    });
    let of_tags = wanted.destinations.iter().filter_map(|id| match id {
        DestinationId::Tags(tags) => Some(Tags::clone(tags)),
        DestinationId::Port(_) => None,
    });
    let all = Some(common.clone()).filter(|tags| tags.contains_key(labels::SERVICE));
    service.into_iter().chain(of_services).chain(of_tags).chain(all).filter(plain).collect()
}

/// Each Dataplane by its name: one reference for all of its inbounds, and one for each.
fn by_name(members: &[(&Arc<Resource>, &Inbound)]) -> Vec<TargetRef> {
    let mut references = Vec::new();
    let mut inbounds: BTreeMap<&Key, Vec<(&Arc<Resource>, &Inbound)>> = BTreeMap::new();
    for &(dataplane, inbound) in members {
        inbounds.entry(&dataplane.key).or_default().push((dataplane, inbound));
    }
    for of_one in inbounds.values() {
        let Some((dataplane, _)) = of_one.first() else { continue };
        let whole = TargetRef {
            kind: K::Dataplane,
            name: Some(dataplane.display_name().to_owned()),
            namespace: dataplane.label(labels::K8S_NAMESPACE).map(str::to_owned),
            ..TargetRef::default()
        };
        if matching::inbounds(dataplane).len() == of_one.len() {
            references.push(whole);
            continue;
        }
        for (_, inbound) in of_one {
            references.push(TargetRef { section_name: Some(inbound.section_name()), ..whole.clone() });
        }
    }
    references
}

/// Returns the entries that all of them have.
fn common<'m>(mut all: impl Iterator<Item = &'m BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut common = all.next().cloned().unwrap_or_default();
    for other in all {
        common.retain(|name, value| other.get(name) == Some(value));
    }
    common
}

/// A policy with the reference, for asking what it selects.
fn probe(wanted: &InboundSelection<'_>, target: &TargetRef) -> Arc<Resource> {
    let allow = Entry { target_ref: TargetRef::mesh(), default: Conf { action: Some(Action::Allow) } };
    let spec =
        MeshTrafficPermission { target_ref: Some(target.clone()), rules: Vec::new(), from: vec![allow] };
    let key = Key::new(Kind::MeshTrafficPermission, &wanted.mesh.name, "probe");
    let draft = Draft {
        labels: wanted.labels.clone(),
        ..Draft::new(key, Spec::MeshTrafficPermission(Arc::new(spec)))
    };
    as_stored(wanted.mesh, &draft)
}

/// The policy as it will be stored, for asking what it selects.
pub(super) fn as_stored(mesh: &MeshSnapshot, draft: &Draft) -> Arc<Resource> {
    let mut labels = draft.labels.clone();
    if !mesh.zone.is_empty() && labels.get(labels::ORIGIN).is_none_or(|it| it == labels::ORIGIN_ZONE) {
        labels.entry(labels::ORIGIN.to_owned()).or_insert_with(|| labels::ORIGIN_ZONE.to_owned());
        labels.entry(labels::ZONE.to_owned()).or_insert_with(|| mesh.zone.to_string());
    }
    Arc::new(Resource {
        key: draft.key.clone(),
        labels,
        created: Timestamp::UNIX_EPOCH,
        modified: Timestamp::UNIX_EPOCH,
        version: 0,
        owner: None,
        spec: draft.spec.clone(),
        status: None,
    })
}
