//! Index of selectors and of what they select, kept up to date in both directions.
//!
//! Every Dataplane is listed under all of its anchors (its name, each tag, each label), every selector
//! under the rarest of its own. So a changed Dataplane finds the selectors that may want it, and a
//! changed selector the Dataplanes it may want, without looking at the others. MeshServices, which have
//! no tags, are indexed in the same way for those who select them.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use imbl::{OrdMap, OrdSet};

use resources::{
    Resource,
    kinds::tags::{ANY_VALUE, Tags},
    labels,
};

use crate::{
    lists::{List, Lists, add_to, remove_from},
    matching::{self, MemberSelector},
};

/// Origin of destinations: a resource of the mesh, or the tags of an outbound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceRef {
    Service(Arc<str>),
    External(Arc<str>),
    Tags(Arc<Tags>),
    /// Made of services, so that it comes after them.
    MultiZone(Arc<str>),
}

/// Something that a selector or a reference asks for and a resource has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anchor {
    Name(String),
    Tag(String, String),
    AnyTag(String),
    Label(String, String),
}

/// An anchor as lists are kept under it: its hash, which costs nothing to copy. Two anchors may share one, which only
/// makes lists of candidates longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnchorId(u64);

impl Anchor {
    pub fn id(&self) -> AnchorId {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        AnchorId(hasher.finish())
    }
}

#[derive(Debug, Clone)]
struct Selection {
    selector: MemberSelector,
    anchor: Option<Anchor>,
    members: OrdSet<Arc<str>>,
}

/// Selectors and the Dataplanes (or the MeshServices) they select: its candidates are of one kind.
#[derive(Debug, Clone, Default)]
pub struct Index {
    selections: OrdMap<ServiceRef, Selection>,
    subjects: Lists<AnchorId, ServiceRef>,
    candidates: Lists<AnchorId, Arc<str>>,
}

impl Index {
    /// The names of what a subject's selector selects.
    pub fn members(&self, subject: &ServiceRef) -> impl Iterator<Item = &Arc<str>> {
        self.selections.get(subject).into_iter().flat_map(|selection| &selection.members)
    }

    /// Sets the selector of a subject. `candidate` gives the Dataplane, or MeshService, of a name.
    pub fn select<'r>(
        &mut self,
        subject: &ServiceRef,
        selector: MemberSelector,
        candidate: impl Fn(&str) -> Option<&'r Arc<Resource>>,
    ) {
        if self.selections.get(subject).is_some_and(|selection| selection.selector == selector) {
            return;
        }
        self.forget(subject);
        let listed = |anchor: &Anchor| self.candidates.get(&anchor.id()).map_or(0, List::len);
        let is_service = |anchor: &Anchor| matches!(anchor, Anchor::Tag(name, _) if name == labels::SERVICE);
        let anchor = anchors_of_selector(&selector).into_iter().min_by_key(|a| (listed(a), !is_service(a)));
        let candidates =
            anchor.as_ref().and_then(|anchor| self.candidates.get(&anchor.id())).into_iter().flatten();
        let selected = |name: &&Arc<str>| candidate(name).is_some_and(|resource| selector.selects(resource));
        let members = candidates.filter(selected).cloned().collect();
        if let Some(anchor) = &anchor {
            add_to(&mut self.subjects, anchor.id(), subject.clone());
        }
        self.selections.insert(subject.clone(), Selection { selector, anchor, members });
    }

    /// Removes a subject and its selector.
    pub fn forget(&mut self, subject: &ServiceRef) {
        if let Some(Selection { anchor: Some(anchor), .. }) = self.selections.remove(subject) {
            remove_from(&mut self.subjects, &anchor.id(), subject);
        }
    }

    /// Replaces a candidate; returns the subjects it belonged or belongs to.
    pub fn replace(&mut self, old: Option<&Resource>, new: Option<&Resource>) -> BTreeSet<ServiceRef> {
        let mut touched = BTreeSet::new();
        if let Some(old) = old {
            for subject in self.subjects_of(old) {
                if let Some(selection) = self.selections.get_mut(&subject) {
                    selection.members.remove(&old.key.name);
                }
                touched.insert(subject);
            }
        }
        if let Some(new) = new {
            for subject in self.subjects_of(new) {
                if let Some(selection) = self.selections.get_mut(&subject) {
                    selection.members.insert(new.key.name.clone());
                }
                touched.insert(subject);
            }
        }
        list_instead(&mut self.candidates, [old, new], anchors_of);
        touched
    }

    /// The subjects that select a candidate.
    pub fn subjects_of(&self, candidate: &Resource) -> Vec<ServiceRef> {
        let anchors = anchors_of(candidate);
        let candidates = anchors.iter().filter_map(|anchor| self.subjects.get(&anchor.id())).flatten();
        let selects = |subject: &&ServiceRef| {
            self.selections.get(*subject).is_some_and(|selection| selection.selector.selects(candidate))
        };
        candidates.filter(selects).cloned().collect()
    }
}

/// Lists a resource under what it has now instead of what it had.
pub(crate) fn list_instead(
    lists: &mut Lists<AnchorId, Arc<str>>,
    [old, new]: [Option<&Resource>; 2],
    anchors_of: impl Fn(&Resource) -> BTreeSet<Anchor>,
) {
    let [before, after] = [old, new].map(|resource| resource.map(&anchors_of).unwrap_or_default());
    if let Some(old) = old {
        let gone = before.difference(&after);
        gone.for_each(|anchor| remove_from(lists, &anchor.id(), &old.key.name));
    }
    if let Some(new) = new {
        let fresh = after.difference(&before);
        fresh.for_each(|anchor| add_to(lists, anchor.id(), new.key.name.clone()));
    }
}

fn anchors_of_selector(selector: &MemberSelector) -> Vec<Anchor> {
    let of_tag = |(name, value): (&String, &String)| match value.as_str() {
        ANY_VALUE => Anchor::AnyTag(name.clone()),
        _ => Anchor::Tag(name.clone(), value.clone()),
    };
    match selector {
        MemberSelector::Nothing => Vec::new(),
        MemberSelector::Name(name) => vec![Anchor::Name(name.clone())],
        MemberSelector::Tags(tags) => tags.iter().map(of_tag).collect(),
        MemberSelector::Labels(labels) => {
            labels.iter().map(|(name, value)| Anchor::Label(name.clone(), value.clone())).collect()
        }
    }
}

fn anchors_of(candidate: &Resource) -> BTreeSet<Anchor> {
    let mut anchors = BTreeSet::from([Anchor::Name(candidate.name().to_owned())]);
    for (name, value) in matching::inbounds(candidate).iter().flat_map(|inbound| &inbound.tags) {
        anchors.insert(Anchor::Tag(name.clone(), value.clone()));
        anchors.insert(Anchor::AnyTag(name.clone()));
    }
    for (name, value) in &candidate.labels {
        anchors.insert(Anchor::Label(name.clone(), value.clone()));
    }
    anchors
}
