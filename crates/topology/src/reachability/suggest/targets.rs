//! Which `targetRef` means the inbounds of a group, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Draft, Key, Kind, Labels, Resource, Spec,
    kinds::{
        dataplane::{Inbound, InboundState},
        entry::Entry,
        mesh_traffic_permission::{Action, Conf, MeshTrafficPermission},
        tags::Tags,
        target_ref::{TargetRef, TargetRefKind as K},
    },
    labels,
};

use super::{
    Question, defaults,
    servers::{Group, Place},
};
use crate::matching::{self, MemberSelector};

/// Labels that say which workload a Dataplane is of. Others may be shared by several.
const NAMING: [&str; 3] = [labels::WORKLOAD, "app.kubernetes.io/name", "app"];
/// How many inbounds are named that are selected besides.
const MAX_NAMED: usize = 5;

/// A reference to inbounds.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub target: TargetRef,
    /// The inbounds of the group that it selects.
    pub serving: BTreeSet<Place>,
    /// What it selects besides.
    pub besides: BTreeSet<Place>,
}

impl Choice {
    /// References that together select all inbounds of the group: one that selects nothing else if there is one, else
    /// the one that selects the least besides, else one for each Dataplane.
    pub fn of(question: &Question<'_>, selector: &policy::PolicySelector<'_>, group: &Group) -> Vec<Choice> {
        let members: Vec<(&Arc<Resource>, &Inbound)> =
            group.places.iter().filter_map(|place| member(question, place)).collect();
        let selected = |target| Choice::selecting(question, selector, group, target);
        let mut widest: Option<Choice> = None;
        let all = closed_by(question, &members).into_iter().chain(candidates(group, &members));
        for choice in all.map(selected) {
            if choice.serving != group.places {
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
            None => by_name(&members).into_iter().map(selected).filter(|it| !it.serving.is_empty()).collect(),
        }
    }

    fn selecting(
        question: &Question<'_>,
        selector: &policy::PolicySelector<'_>,
        group: &Group,
        target: TargetRef,
    ) -> Choice {
        let mesh = question.mesh;
        let listed = mesh.selections.meant_by(&target);
        let names = listed.unwrap_or_else(|| mesh.dataplanes.keys().collect());
        let policy = probe(question, &target);
        let mut selected = BTreeSet::new();
        for dataplane in names.into_iter().filter_map(|name| mesh.dataplanes.get(name)) {
            let inbounds = matching::inbounds(dataplane);
            let chosen = selector.select(&policy, dataplane).inbounds.into_iter();
            let counted =
                chosen.filter(|i| inbounds.get(*i).is_some_and(|it| it.state != InboundState::Ignored));
            selected.extend(counted.map(|i| (dataplane.key.name.clone(), i)));
        }
        let besides = selected.difference(&group.places).cloned().collect();
        Choice { target, serving: selected.intersection(&group.places).cloned().collect(), besides }
    }

    /// What is to be known about it.
    pub fn notes(&self) -> Option<String> {
        let names: BTreeSet<&Arc<str>> = self.besides.iter().map(|(dataplane, _)| dataplane).collect();
        let named: Vec<String> = names.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = if names.len() > MAX_NAMED { ", …" } else { "" };
        (!names.is_empty()).then(|| {
            format!(
                "no targetRef selects exactly the inbounds that are called: this one selects {} besides (of Dataplanes \
                 {}{more}); give the Dataplanes a label of their own, such as {}",
                self.besides.len(),
                named.join(", "),
                labels::WORKLOAD
            )
        })
    }
}

fn member<'m>(question: &Question<'m>, (name, i): &Place) -> Option<(&'m Arc<Resource>, &'m Inbound)> {
    let dataplane = question.mesh.dataplanes.get(name)?;
    Some((dataplane, matching::inbounds(dataplane).get(*i)?))
}

/// The references by which the inbounds were closed before: of another rank a permission might be overruled.
fn closed_by(question: &Question<'_>, members: &[(&Arc<Resource>, &Inbound)]) -> Vec<TargetRef> {
    let Some((dataplane, _)) = members.first() else { return Vec::new() };
    let closing = defaults::stored_about(question.mesh, dataplane)
        .filter(|policy| policy.label(labels::REACHABILITY_DEFAULT_DENY) == Some("true"));
    closing
        .filter_map(|policy| policy.spec.target_ref()?.cloned())
        .filter(|top| top.kind != K::Mesh)
        .collect()
}

/// References that may be it, the preferred ones first.
fn candidates(group: &Group, members: &[(&Arc<Resource>, &Inbound)]) -> Vec<TargetRef> {
    let mut candidates = Vec::new();
    let sections: BTreeSet<String> = members.iter().map(|(_, inbound)| inbound.section_name()).collect();
    let section = sections.first().filter(|_| sections.len() == 1);
    for labels in labels_of(group, members) {
        let by_labels = TargetRef { kind: K::Dataplane, labels: Some(labels), ..TargetRef::default() };
        candidates.push(by_labels.clone());
        candidates.extend(section.map(|it| TargetRef { section_name: Some(it.clone()), ..by_labels }));
    }
    for tags in tags_of(group, members) {
        candidates.push(TargetRef { kind: K::MeshSubset, tags: Some(tags), ..TargetRef::default() });
    }
    let dataplanes: BTreeSet<&Key> = members.iter().map(|(dataplane, _)| &dataplane.key).collect();
    if dataplanes.len() == 1 {
        candidates.extend(by_name(members));
    }
    candidates
}

/// Labels that all Dataplanes have, and that say what they are.
fn labels_of(group: &Group, members: &[(&Arc<Resource>, &Inbound)]) -> Vec<Labels> {
    let of_services = group.selectors.iter().filter_map(|selector| match selector {
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
fn tags_of(group: &Group, members: &[(&Arc<Resource>, &Inbound)]) -> Vec<Tags> {
    let common = common(members.iter().map(|(_, inbound)| &inbound.tags));
    let service = common.get_key_value(labels::SERVICE);
    let service = service.map(|(name, value)| Tags::from([(name.clone(), value.clone())]));
    let of_services = group.selectors.iter().filter_map(|selector| match selector {
        MemberSelector::Tags(tags) => Some(Tags::clone(tags)),
        _ => None,
    });
    let of_tags = group.destinations.iter().filter_map(|id| match id {
        crate::DestinationId::Tags(tags) => Some(Tags::clone(tags)),
        crate::DestinationId::Port(_) => None,
    });
    // `*` stands for any value in a selector; a reference by tags says it otherwise in places.
    let plain = |tags: &Tags| !tags.is_empty() && tags.values().all(|value| value != "*");
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

/// What all of them have.
fn common<'m>(mut all: impl Iterator<Item = &'m BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut common = all.next().cloned().unwrap_or_default();
    for other in all {
        common.retain(|name, value| other.get(name) == Some(value));
    }
    common
}

/// A policy with the reference, for asking whom it selects.
fn probe(question: &Question<'_>, target: &TargetRef) -> Arc<Resource> {
    let allow = Entry { target_ref: TargetRef::mesh(), default: Conf { action: Some(Action::Allow) } };
    let spec =
        MeshTrafficPermission { target_ref: Some(target.clone()), rules: Vec::new(), from: vec![allow] };
    let key = Key::new(Kind::MeshTrafficPermission, &question.mesh.name, "probe");
    let draft = Draft {
        labels: question.labels.clone(),
        ..Draft::new(key, Spec::MeshTrafficPermission(Arc::new(spec)))
    };
    defaults::stored(question, &draft)
}
