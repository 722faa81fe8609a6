//! Servers that are not known here and permissions, each found from the other without looking at all of them.
//!
//! Both are grouped (`access::groups`). Where a group of policies asks for something that is known of a
//! group of servers, either side finds the other by its value. Allows of policies that may select every
//! server of a group are shared by the group (`access::possible`): no server is asked about them.

use std::{collections::BTreeSet, sync::Arc};

use imbl::{OrdMap, OrdSet};
use policy::Policy;
use resources::Key;

use crate::{
    access::{KnownValue, PolicyGroup, Relation, ServerGroup, Unseen, asked, shared_allows},
    lists::{List, Lists, add_to, remove_from},
    state::index::{Anchor, AnchorId, ServiceRef},
};

#[derive(Debug, Clone, Default)]
pub(super) struct UnseenIndex {
    /// Subjects served by proxies that are not known here, with the knowledge about these.
    servers: OrdMap<ServiceRef, Arc<[Unseen]>>,
    groups: OrdMap<ServerGroup, ServerList>,
    policies: OrdMap<PolicyGroup, PolicyList>,
}

/// The subjects of a group of servers.
#[derive(Debug, Clone, Default)]
struct ServerList {
    all: OrdSet<ServiceRef>,
    /// By what is known of their servers.
    by_value: Lists<AnchorId, ServiceRef>,
}

/// The permissions of a group of policies.
#[derive(Debug, Clone, Default)]
struct PolicyList {
    all: OrdSet<Key>,
    /// Those that allow something which is not shared.
    unshared: OrdSet<Key>,
    /// By each tag and label that they ask for.
    by_value: Lists<AnchorId, Key>,
}

/// Subjects that a policy may select, and how many were asked.
pub(super) struct Selected {
    pub subjects: Vec<ServiceRef>,
    pub asked: u64,
}

impl UnseenIndex {
    /// Takes in what is known of the proxies that serve a subject.
    pub(super) fn replace_servers(&mut self, subject: &ServiceRef, servers: Vec<Unseen>) {
        if self.servers.get(subject).map_or(servers.is_empty(), |before| **before == *servers) {
            return;
        }
        let before = self.servers.remove(subject);
        for unseen in before.iter().flat_map(|before| before.iter()) {
            let group = unseen.group();
            let Some(list) = self.groups.get_mut(&group) else { continue };
            list.all.remove(subject);
            unseen.anchors().for_each(|anchor| remove_from(&mut list.by_value, &anchor.id(), subject));
            if list.all.is_empty() {
                self.groups.remove(&group);
            }
        }
        for unseen in &servers {
            let list = self.groups.entry(unseen.group()).or_default();
            list.all.insert(subject.clone());
            unseen.anchors().for_each(|anchor| add_to(&mut list.by_value, anchor.id(), subject.clone()));
        }
        if !servers.is_empty() {
            self.servers.insert(subject.clone(), servers.into());
        }
    }

    /// Takes in a permission as it is now.
    pub(super) fn replace_policy(&mut self, old: Option<&Policy>, new: Option<&Policy>) {
        if let Some((policy, group)) = grouped(old)
            && let Some(list) = self.policies.get_mut(&group)
        {
            let key = &policy.resource.key;
            list.all.remove(key);
            list.unshared.remove(key);
            asked(&policy.view.top)
                .iter()
                .for_each(|anchor| remove_from(&mut list.by_value, &anchor.id(), key));
            if list.all.is_empty() {
                self.policies.remove(&group);
            }
        }
        if let Some((policy, group)) = grouped(new) {
            let key = &policy.resource.key;
            let list = self.policies.entry(group).or_default();
            list.all.insert(key.clone());
            if shared_allows(policy).is_none() {
                list.unshared.insert(key.clone());
            }
            let anchors = asked(&policy.view.top).into_iter();
            anchors.for_each(|anchor| add_to(&mut list.by_value, anchor.id(), key.clone()));
        }
    }

    /// The permissions that may select these proxies, but for those whose allows the group shares.
    pub(super) fn candidates(&self, unseen: &Unseen) -> BTreeSet<&Key> {
        let group = unseen.group();
        let mut found = BTreeSet::new();
        for (policies, list) in &self.policies {
            match policies.relation(&group) {
                Relation::Nothing => {}
                Relation::All => found.extend(&list.all),
                Relation::Possible => found.extend(&list.unshared),
                Relation::ByValue(known) => {
                    let anchors = unseen.anchors().filter(|anchor| known.is_of(anchor));
                    let listed = anchors.filter_map(|anchor| list.by_value.get(&anchor.id()));
                    found.extend(listed.flatten());
                }
            }
        }
        found
    }

    /// The subjects that a permission may select and do not share what it allows.
    pub(super) fn selected_by(&self, policy: &Policy) -> Selected {
        let mut selected = Selected { subjects: Vec::new(), asked: 0 };
        let Some(group) = PolicyGroup::of(policy) else { return selected };
        let is_shared = shared_allows(policy).is_some();
        for (servers, list) in &self.groups {
            let candidates: Vec<&ServiceRef> = match group.relation(servers) {
                Relation::Nothing => Vec::new(),
                Relation::Possible if is_shared => Vec::new(),
                Relation::Possible | Relation::All => list.all.iter().collect(),
                Relation::ByValue(_) => list.rarest(servers, &asked(&policy.view.top)).collect(),
            };
            selected.asked += 1;
            for subject in candidates {
                selected.asked += 1;
                let servers = self.servers.get(subject).into_iter().flat_map(|servers| servers.iter());
                if servers.into_iter().any(|servers| servers.is_selected_by(policy) != Some(false)) {
                    selected.subjects.push(subject.clone());
                }
            }
        }
        selected
    }
}

impl ServerList {
    /// The fewest of those that have something which is known of all of them and asked for.
    fn rarest(&self, group: &ServerGroup, asked: &[Anchor]) -> impl Iterator<Item = &ServiceRef> {
        let lists = asked.iter().filter(|anchor| group.knows(anchor)).map(|it| self.by_value.get(&it.id()));
        lists.min_by_key(|list| list.map_or(0, List::len)).flatten().into_iter().flatten()
    }
}

impl ServerGroup {
    /// The value of the tag or label is known.
    fn knows(&self, anchor: &Anchor) -> bool {
        match anchor {
            Anchor::Tag(name, _) | Anchor::AnyTag(name) => self.tags.contains(name),
            Anchor::Label(name, _) => self.labels.contains(name),
            Anchor::Name(_) => false,
        }
    }
}

impl KnownValue<'_> {
    fn is_of(self, anchor: &Anchor) -> bool {
        match (self, anchor) {
            (KnownValue::Tag(known), Anchor::Tag(name, _) | Anchor::AnyTag(name))
            | (KnownValue::Label(known), Anchor::Label(name, _)) => known == name,
            _ => false,
        }
    }
}

fn grouped(policy: Option<&Policy>) -> Option<(&Policy, PolicyGroup)> {
    policy.and_then(|policy| Some((policy, PolicyGroup::of(policy)?)))
}

#[cfg(test)]
mod tests;
