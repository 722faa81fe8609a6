//! Who selects whom, kept up to date in both directions.
//!
//! Every Dataplane is listed under all of its anchors (its name, each tag, each label), every selector
//! under the rarest of its own. So a changed Dataplane finds the selectors that may want it, and a
//! changed selector the Dataplanes it may want, without looking at the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{
    Resource,
    kinds::tags::{ANY_VALUE, Tags},
    labels,
};

use crate::matching::{self, Selector};

/// What destinations are made of: a resource of the mesh, or the tags of an outbound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Service(Arc<str>),
    External(Arc<str>),
    Tags(Arc<Tags>),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Anchor {
    Name(String),
    Tag(String, String),
    AnyTag(String),
    Label(String, String),
}

#[derive(Debug)]
struct Selection {
    selector: Selector,
    anchor: Option<Anchor>,
    members: BTreeSet<Arc<str>>,
}

/// Selectors and the Dataplanes they select.
#[derive(Debug, Default)]
pub struct Index {
    selections: BTreeMap<Subject, Selection>,
    subjects: BTreeMap<Anchor, BTreeSet<Subject>>,
    dataplanes: BTreeMap<Anchor, BTreeSet<Arc<str>>>,
}

impl Index {
    /// The Dataplanes a subject's selector selects, by name.
    pub fn members(&self, subject: &Subject) -> impl Iterator<Item = &Arc<str>> {
        self.selections.get(subject).into_iter().flat_map(|selection| &selection.members)
    }

    /// Sets the selector of a subject. `dataplane` gives the Dataplane of a name.
    pub fn select<'r>(
        &mut self,
        subject: &Subject,
        selector: Selector,
        dataplane: impl Fn(&str) -> Option<&'r Arc<Resource>>,
    ) {
        if self.selections.get(subject).is_some_and(|selection| selection.selector == selector) {
            return;
        }
        self.forget(subject);
        let listed = |anchor: &Anchor| self.dataplanes.get(anchor).map_or(0, BTreeSet::len);
        let is_service = |anchor: &Anchor| matches!(anchor, Anchor::Tag(name, _) if name == labels::SERVICE);
        let anchor = anchors_of_selector(&selector).into_iter().min_by_key(|a| (listed(a), !is_service(a)));
        let candidates = anchor.as_ref().and_then(|anchor| self.dataplanes.get(anchor)).into_iter().flatten();
        let selected = |name: &&Arc<str>| dataplane(name).is_some_and(|resource| selector.selects(resource));
        let members = candidates.filter(selected).cloned().collect();
        if let Some(anchor) = &anchor {
            self.subjects.entry(anchor.clone()).or_default().insert(subject.clone());
        }
        self.selections.insert(subject.clone(), Selection { selector, anchor, members });
    }

    /// Removes a subject and its selector.
    pub fn forget(&mut self, subject: &Subject) {
        if let Some(Selection { anchor: Some(anchor), .. }) = self.selections.remove(subject) {
            remove_from(&mut self.subjects, &anchor, subject);
        }
    }

    /// Replaces a Dataplane; returns the subjects it belonged or belongs to.
    pub fn replace(&mut self, old: Option<&Resource>, new: Option<&Resource>) -> BTreeSet<Subject> {
        let mut touched = BTreeSet::new();
        if let Some(old) = old {
            for subject in self.subjects_of(old) {
                if let Some(selection) = self.selections.get_mut(&subject) {
                    selection.members.remove(&old.key.name);
                }
                touched.insert(subject);
            }
            for anchor in anchors_of_dataplane(old) {
                remove_from(&mut self.dataplanes, &anchor, &old.key.name);
            }
        }
        if let Some(new) = new {
            for subject in self.subjects_of(new) {
                if let Some(selection) = self.selections.get_mut(&subject) {
                    selection.members.insert(new.key.name.clone());
                }
                touched.insert(subject);
            }
            for anchor in anchors_of_dataplane(new) {
                self.dataplanes.entry(anchor).or_default().insert(new.key.name.clone());
            }
        }
        touched
    }

    /// The subjects that select a Dataplane.
    pub fn subjects_of(&self, dataplane: &Resource) -> Vec<Subject> {
        let anchors = anchors_of_dataplane(dataplane);
        let candidates = anchors.iter().filter_map(|anchor| self.subjects.get(anchor)).flatten();
        let selects = |subject: &&Subject| {
            self.selections.get(subject).is_some_and(|selection| selection.selector.selects(dataplane))
        };
        candidates.filter(selects).cloned().collect()
    }
}

fn remove_from<K: Ord, V: Ord>(lists: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(list) = lists.get_mut(key) {
        list.remove(value);
        if list.is_empty() {
            lists.remove(key);
        }
    }
}

fn anchors_of_selector(selector: &Selector) -> Vec<Anchor> {
    let of_tag = |(name, value): (&String, &String)| match value.as_str() {
        ANY_VALUE => Anchor::AnyTag(name.clone()),
        _ => Anchor::Tag(name.clone(), value.clone()),
    };
    match selector {
        Selector::Nothing => Vec::new(),
        Selector::Name(name) => vec![Anchor::Name(name.clone())],
        Selector::Tags(tags) => tags.iter().map(of_tag).collect(),
        Selector::Labels(labels) => {
            labels.iter().map(|(name, value)| Anchor::Label(name.clone(), value.clone())).collect()
        }
    }
}

fn anchors_of_dataplane(dataplane: &Resource) -> BTreeSet<Anchor> {
    let mut anchors = BTreeSet::from([Anchor::Name(dataplane.name().to_owned())]);
    for (name, value) in matching::inbounds(dataplane).iter().flat_map(|inbound| &inbound.tags) {
        anchors.insert(Anchor::Tag(name.clone(), value.clone()));
        anchors.insert(Anchor::AnyTag(name.clone()));
    }
    for (name, value) in &dataplane.labels {
        anchors.insert(Anchor::Label(name.clone(), value.clone()));
    }
    anchors
}
