//! Access of clients to destinations: the permissions of servers, seen from their clients.
//!
//! ```text
//!   MeshTrafficPermissions ──▶ rules of each inbound ──▶ access to each destination ──▶ destinations of each class
//!   Dataplanes (as servers)     (who may call it)         (any inbound lets in)          Dataplanes (as clients)
//! ```
//!
//! A [`ClientClass`] is the part of a client that servers see: its certificate, if it has one. The
//! [`DestinationAccess`] of a destination says which classes it accepts: no rule names most of them, and the
//! default decides about these. Destinations and classes are listed under the names in rules ([`names`]), so that
//! either side finds the other without looking at all of them; there is no table of pairs. The graph follows
//! changes (`state::access`); a property test compares it with a state built at once.
//!
//! Invariant: what is allowed is reachable. Of servers that are not known here, such as those of other zones and of
//! services without instances, policies that may select them count with what they allow ([`unseen`]); what they allow
//! at all servers of a sort is kept once ([`possible`]). Where servers ask no one, the destination is reachable for every
//! client and has no [`DestinationAccess`].

mod client_class;
mod destination_access;
pub mod explain;
pub mod graph;
mod groups;
mod mode;
mod names;
mod near_misses;
mod policy_names;
mod possible;
mod rules;
pub mod suggest;
mod targets;
mod unseen;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::{OrdMap, OrdSet};
use policy::{Client, Permissions, Rule};

use crate::{
    DestinationId,
    lists::{List, Lists, add_to, remove_from},
};
use names::{ByName, Name};
use possible::PossibleAllows;

pub use client_class::ClientClass;
pub use destination_access::{AccessRules, DestinationAccess, Ruleset};
pub use groups::ServerGroup;
pub(crate) use groups::{KnownValue, PolicyGroup, Relation, asked};
pub use mode::{Inactive, ModeSource, Trimming, TrimmingMode, label_of_zone};
pub use near_misses::near_misses;
pub(crate) use possible::shared_allows;
pub(crate) use rules::{PolicyLists, RulesetCache, distinct, of_inbounds};
pub(crate) use unseen::Unseen;

/// Access of all clients of a mesh to its destinations. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AccessGraph {
    /// Destinations that do not accept every client.
    by_destination: OrdMap<DestinationId, DestinationAccess>,
    /// The destinations that accept clients that no rule names, those that accept every client among them.
    open: OrdSet<DestinationId>,
    /// The destinations by the names in their rules.
    naming: Lists<Name, DestinationId>,
    /// The destinations of servers that are not known here.
    grouped: Lists<Arc<ServerGroup>, DestinationId>,
    /// Allows of policies that may select such servers.
    possible: PossibleAllows,
    /// Classes, each with the number of its Dataplanes.
    classes: OrdMap<ClientClass, usize>,
    /// The classes by what rules may name of them.
    named: ByName<ClientClass>,
    /// The classes without a certificate.
    plain: OrdSet<ClientClass>,
}

/// Effect of a destination's changed access on clients.
#[derive(Debug, Default)]
pub(crate) struct AccessChange {
    /// The classes with another access than before.
    pub classes: Vec<ClientClass>,
    /// Clients that no rule names have another access than before, or too many classes to list have.
    pub default: bool,
    /// Anything changed.
    pub any: bool,
    /// Other rules decide than before.
    pub rules: bool,
}

/// Maximum classes that a change lists; a change for more counts as one for all.
const MOST_CLASSES: usize = 1000;

impl AccessGraph {
    /// The client may call the destination. Also true if this control plane cannot decide it.
    pub fn reaches(&self, client: &ClientClass, to: &DestinationId) -> bool {
        self.by_destination.get(to).is_none_or(|access| self.allows(access, client))
    }

    /// The destination accepts the client. Permissions refuse no client that calls without TLS.
    pub fn allows(&self, access: &DestinationAccess, client: &ClientClass) -> bool {
        client.is_plain()
            || access.allow(client.client(), |group| self.possible.allow(group, client.client()))
    }

    /// The destinations that a client may call.
    pub fn destinations(&self, client: &ClientClass) -> BTreeSet<&DestinationId> {
        if client.is_plain() {
            return self.open.iter().chain(self.by_destination.keys()).collect();
        }
        let possibly = |group: &&Arc<ServerGroup>| self.possible.allow(group, client.client());
        let possible: BTreeSet<&ServerGroup> = self.grouped.keys().filter(possibly).map(|it| &**it).collect();
        let in_groups = possible.iter().filter_map(|group| self.grouped.get(*group)).flatten();
        let mut reachable: BTreeSet<&DestinationId> = self.open.iter().collect();
        let mut judged: BTreeMap<&DestinationAccess, bool> = BTreeMap::new();
        for id in self.naming(client).into_iter().flatten().chain(in_groups) {
            let Some(access) = self.by_destination.get(id) else { continue };
            let allows = || access.allow(client.client(), |group| possible.contains(group));
            match (access.default, *judged.entry(access).or_insert_with(allows)) {
                (true, false) => drop(reachable.remove(id)),
                (false, true) => drop(reachable.insert(id)),
                (true, true) | (false, false) => {}
            }
        }
        reachable
    }

    /// Returns the requirements of inbounds for a client. For inbounds that are not known here, these include
    /// rules of other policies that may accept it.
    pub fn asked<'r>(&self, ruleset: &'r Ruleset, client: &Client) -> Cow<'r, Permissions> {
        let own = Cow::Borrowed(&*ruleset.permissions);
        let Some(group) = ruleset.group() else { return own };
        let possible = self.possible.matching(group, client);
        if possible.is_empty() || own.decide(client).is_allowed() {
            return own;
        }
        let (denies, others) = ruleset.split();
        let rules: Vec<Rule> = denies.iter().chain(possible).chain(others).cloned().collect();
        Cow::Owned(Permissions { rules })
    }

    /// Access to a destination; `None` if every client may call it.
    pub fn to(&self, to: &DestinationId) -> Option<&DestinationAccess> {
        self.by_destination.get(to)
    }

    /// The classes whose access differs from the default.
    pub fn exceptions(&self, access: &DestinationAccess) -> BTreeSet<&ClientClass> {
        let possible = access.groups().into_iter().flat_map(|group| self.classes_possible(group));
        let classes = self.classes_named(access).chain(&self.plain).chain(possible);
        classes.filter(|class| self.allows(access, class) != access.default).collect()
    }

    /// The classes of clients, and how many Dataplanes are of each.
    pub fn classes(&self) -> impl Iterator<Item = (&ClientClass, usize)> {
        self.classes.iter().map(|(class, count)| (class, *count))
    }

    /// The class as it is kept, if it is: Dataplanes of one class share it.
    pub(crate) fn shared(&self, class: ClientClass) -> ClientClass {
        let known = self.classes.range(class.clone()..=class.clone()).next();
        known.map_or(class, |(known, _)| known.clone())
    }

    /// Counts a Dataplane in.
    pub(crate) fn count_up(&mut self, class: &ClientClass) {
        let count = self.classes.entry(class.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.named.add(class.client(), class);
            if class.is_plain() {
                self.plain.insert(class.clone());
            }
        }
    }

    /// Counts a Dataplane out.
    pub(crate) fn count_down(&mut self, class: &ClientClass) {
        let Some(count) = self.classes.get_mut(class) else { return };
        *count -= 1;
        if *count == 0 {
            self.classes.remove(class);
            self.plain.remove(class);
            self.named.remove(class.client(), class);
        }
    }

    /// Replaces the access to a destination that exists; returns the difference.
    pub(crate) fn replace(&mut self, id: &DestinationId, access: Option<DestinationAccess>) -> AccessChange {
        let old = self.by_destination.get(id).cloned();
        let known = old.is_some() || self.open.contains(id);
        if known && old == access {
            return AccessChange::default();
        }
        let is_open = |access: Option<&DestinationAccess>| access.is_none_or(|access| access.default);
        let change = self.difference(known.then_some(old.as_ref()), Some(access.as_ref()));
        self.list_instead(id, old.as_ref(), access.as_ref());
        if is_open(access.as_ref()) {
            self.open.insert(id.clone())
        } else {
            self.open.remove(id)
        };
        match access {
            Some(access) => self.by_destination.insert(id.clone(), access),
            None => self.by_destination.remove(id),
        };
        change
    }

    /// Removes a destination; returns the difference.
    pub(crate) fn remove(&mut self, id: &DestinationId) -> AccessChange {
        let old = self.by_destination.remove(id);
        if old.is_none() && !self.open.contains(id) {
            return AccessChange::default();
        }
        let change = self.difference(Some(old.as_ref()), None);
        self.open.remove(id);
        self.list_instead(id, old.as_ref(), None);
        change
    }

    /// Replaces the allows of a policy that selects servers by these criteria; returns the difference.
    pub(crate) fn replace_possible(
        &mut self,
        policies: &PolicyGroup,
        [before, after]: [&[(Name, Arc<Rule>)]; 2],
    ) -> AccessChange {
        let only_in = |one: &[(Name, Arc<Rule>)], other: &[(Name, Arc<Rule>)]| -> Vec<(Name, Arc<Rule>)> {
            let other: BTreeSet<&Rule> = other.iter().map(|(_, rule)| &**rule).collect();
            one.iter().filter(|(_, rule)| !other.contains(&**rule)).cloned().collect()
        };
        let gone = only_in(before, after);
        let come = only_in(after, before);
        let old = self.possible.clone();
        self.possible.remove(policies, &gone);
        self.possible.add(policies, &come);
        let concerns = |group: &Arc<ServerGroup>| policies.relation(group) == Relation::Possible;
        if gone.is_empty() && come.is_empty() || !self.grouped.keys().any(concerns) {
            return AccessChange::default();
        }
        let mut change = AccessChange { any: true, ..AccessChange::default() };
        let names = gone.iter().chain(&come).map(|(name, _)| name);
        let Some(named) = few(names.flat_map(|name| self.named.found(name))) else {
            change.default = true;
            return change;
        };
        let allowed = |possible: &PossibleAllows, class: &ClientClass| {
            possible.of_group_allow(policies, class.client())
        };
        let different = named.into_iter().filter(|it| allowed(&old, it) != allowed(&self.possible, it));
        change.classes = different.cloned().collect();
        change
    }

    /// Returns the difference between two accesses to a destination; the outer `None` is a destination that
    /// does not exist.
    fn difference(
        &self,
        old: Option<Option<&DestinationAccess>>,
        new: Option<Option<&DestinationAccess>>,
    ) -> AccessChange {
        let default = |access: Option<Option<&DestinationAccess>>| {
            access.is_some_and(|access| access.is_none_or(|access| access.default))
        };
        let allows = |access: Option<Option<&DestinationAccess>>, class: &ClientClass| {
            access.is_some_and(|access| access.is_none_or(|access| self.allows(access, class)))
        };
        let rules = [old, new].map(|access| access.map(|access| access.map(DestinationAccess::rules)));
        let mut change = AccessChange {
            default: default(old) != default(new),
            any: true,
            rules: rules[0] != rules[1],
            classes: Vec::new(),
        };
        if change.default {
            return change;
        }
        let [before, after] =
            [old, new].map(|access| access.flatten().map(DestinationAccess::groups).unwrap_or_default());
        let regrouped = before.symmetric_difference(&after).flat_map(|group| self.classes_possible(group));
        let both = [old, new].into_iter().flatten().flatten();
        let Some(named) = few(both.flat_map(|access| self.classes_named(access)).chain(regrouped)) else {
            change.default = true;
            return change;
        };
        let different = named.into_iter().filter(|class| allows(old, class) != allows(new, class));
        change.classes = different.cloned().collect();
        change
    }

    /// Lists a destination under the names in its rules; touches no name that stays.
    fn list_instead(
        &mut self,
        id: &DestinationId,
        old: Option<&DestinationAccess>,
        new: Option<&DestinationAccess>,
    ) {
        let [before, after] =
            [old, new].map(|access| access.map(DestinationAccess::names).unwrap_or_default());
        before.difference(&after).for_each(|name| remove_from(&mut self.naming, name, id));
        after.difference(&before).for_each(|name| add_to(&mut self.naming, name.clone(), id.clone()));
        let [before, after] =
            [old, new].map(|access| access.map(DestinationAccess::groups).unwrap_or_default());
        before.difference(&after).for_each(|group| remove_from(&mut self.grouped, *group, id));
        after.difference(&before).for_each(|group| add_to(&mut self.grouped, (*group).clone(), id.clone()));
    }

    /// The classes that a rule of the destination names; some of them more than once.
    fn classes_named<'a>(
        &'a self,
        access: &DestinationAccess,
    ) -> impl Iterator<Item = &'a ClientClass> + use<'a> {
        let names: Vec<Name> = access.names().into_iter().collect();
        names.into_iter().flat_map(move |name| self.named.found(&name))
    }

    /// The classes that may get in where servers of a group are, because of policies that may select these.
    fn classes_possible<'a>(
        &'a self,
        group: &ServerGroup,
    ) -> impl Iterator<Item = &'a ClientClass> + use<'a> {
        self.possible.names(group).flat_map(|name| self.named.found(name))
    }

    /// The destinations of which a rule names the client; some of them more than once.
    fn naming(&self, client: &ClientClass) -> Vec<&List<DestinationId>> {
        let names = names::of_client(client.client()).into_iter();
        let prefixes = names::prefixes_of(client.client());
        names.chain(prefixes).filter_map(|name| self.naming.get(&name)).collect()
    }
}

/// These classes, each once; `None` where there are too many to look at each.
fn few<'a>(classes: impl Iterator<Item = &'a ClientClass>) -> Option<BTreeSet<&'a ClientClass>> {
    let named: Vec<&ClientClass> = classes.take(MOST_CLASSES + 1).collect();
    (named.len() <= MOST_CLASSES).then(|| named.into_iter().collect())
}

impl PartialEq for AccessGraph {
    /// Everything else is made of these.
    fn eq(&self, other: &AccessGraph) -> bool {
        let same_access = self.by_destination == other.by_destination && self.open == other.open;
        same_access && self.classes == other.classes && self.possible == other.possible
    }
}
