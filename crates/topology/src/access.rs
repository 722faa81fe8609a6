//! Destinations that a client may call at all: the permissions of servers, seen from their clients.
//!
//! ```text
//!   MeshTrafficPermissions ──▶ rules of each inbound ──▶ access to each destination ──▶ destinations of each class
//!   Dataplanes (as servers)     (who may call it)         (any inbound lets in)          Dataplanes (as clients)
//! ```
//!
//! A [`ClientClass`] is what a server can know of a client: its certificate, if it has one. A [`DestinationAccess`], a row of the graph, says
//! which classes a destination accepts: most have no rule that names them and are treated by default. Rows
//! and classes are listed under the names in rules ([`names`]), so that either side finds the other without
//! looking at all of them, and no table of pairs is kept. Rows follow changes (`state::access`); a property
//! test compares them with a state built at once.
//!
//! Invariant: what is allowed is reachable. Of servers that are not known here, such as those of other zones and of
//! services without instances, policies that may select them count with what they allow ([`unseen`]); what they allow
//! at all servers of a sort is kept once ([`possible`]). Where servers ask no one, the destination is reachable for every
//! client and has no row.

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
    rows: OrdMap<DestinationId, DestinationAccess>,
    /// The destinations that let in clients that no rule names, those without a row among them.
    open: OrdSet<DestinationId>,
    /// The destinations by what rules of their rows name.
    naming: Lists<Name, DestinationId>,
    /// Those that servers serve which are not known here.
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

/// Effect of a changed row on clients.
#[derive(Debug, Default)]
pub(crate) struct RowChange {
    /// The classes for which it is different.
    pub classes: Vec<ClientClass>,
    /// It is different for clients that no rule names, or for too many to list.
    pub default: bool,
    /// Something about it is different.
    pub any: bool,
    /// Other rules decide than before.
    pub rules: bool,
}

/// A row that names more classes than this is different for all.
const MOST_CLASSES: usize = 1000;

impl AccessGraph {
    /// The client may call the destination. Also true if this control plane cannot decide it.
    pub fn reaches(&self, client: &ClientClass, to: &DestinationId) -> bool {
        self.rows.get(to).is_none_or(|row| self.allows(row, client))
    }

    /// The row accepts the client. Permissions keep no client out that calls without TLS.
    pub fn allows(&self, row: &DestinationAccess, client: &ClientClass) -> bool {
        client.is_plain() || row.allow(client.client(), |group| self.possible.allow(group, client.client()))
    }

    /// The destinations that a client may call.
    pub fn destinations(&self, client: &ClientClass) -> BTreeSet<&DestinationId> {
        if client.is_plain() {
            return self.open.iter().chain(self.rows.keys()).collect();
        }
        let possibly = |group: &&Arc<ServerGroup>| self.possible.allow(group, client.client());
        let possible: BTreeSet<&ServerGroup> = self.grouped.keys().filter(possibly).map(|it| &**it).collect();
        let in_groups = possible.iter().filter_map(|group| self.grouped.get(*group)).flatten();
        let mut reachable: BTreeSet<&DestinationId> = self.open.iter().collect();
        let mut judged: BTreeMap<&DestinationAccess, bool> = BTreeMap::new();
        for id in self.naming(client).into_iter().flatten().chain(in_groups) {
            let Some(row) = self.rows.get(id) else { continue };
            let allows = || row.allow(client.client(), |group| possible.contains(group));
            match (row.default, *judged.entry(row).or_insert_with(allows)) {
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

    /// Returns the row that decides about a destination; `None` if every client may call it.
    pub fn row(&self, to: &DestinationId) -> Option<&DestinationAccess> {
        self.rows.get(to)
    }

    /// The classes that a row treats otherwise than by default.
    pub fn exceptions(&self, row: &DestinationAccess) -> BTreeSet<&ClientClass> {
        let possible = row.groups().into_iter().flat_map(|group| self.classes_possible(group));
        let classes = self.classes_named(row).chain(&self.plain).chain(possible);
        classes.filter(|class| self.allows(row, class) != row.default).collect()
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

    /// Takes in the row of a destination that is there; says what is different.
    pub(crate) fn replace(&mut self, id: &DestinationId, row: Option<DestinationAccess>) -> RowChange {
        let old = self.rows.get(id).cloned();
        let known = old.is_some() || self.open.contains(id);
        if known && old == row {
            return RowChange::default();
        }
        let is_open = |row: Option<&DestinationAccess>| row.is_none_or(|row| row.default);
        let change = self.difference(known.then_some(old.as_ref()), Some(row.as_ref()));
        self.list_instead(id, old.as_ref(), row.as_ref());
        if is_open(row.as_ref()) {
            self.open.insert(id.clone())
        } else {
            self.open.remove(id)
        };
        match row {
            Some(row) => self.rows.insert(id.clone(), row),
            None => self.rows.remove(id),
        };
        change
    }

    /// Forgets a destination that is gone; says what is different.
    pub(crate) fn remove(&mut self, id: &DestinationId) -> RowChange {
        let old = self.rows.remove(id);
        if old.is_none() && !self.open.contains(id) {
            return RowChange::default();
        }
        let change = self.difference(Some(old.as_ref()), None);
        self.open.remove(id);
        self.list_instead(id, old.as_ref(), None);
        change
    }

    /// Takes in what a policy allows that asks this of servers, in place of what it allowed before; says what is different.
    pub(crate) fn replace_possible(
        &mut self,
        policies: &PolicyGroup,
        [before, after]: [&[(Name, Arc<Rule>)]; 2],
    ) -> RowChange {
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
            return RowChange::default();
        }
        let mut change = RowChange { any: true, ..RowChange::default() };
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

    /// Returns the difference between two rows of a destination; the outer `None` is a destination that does
    /// not exist.
    fn difference(
        &self,
        old: Option<Option<&DestinationAccess>>,
        new: Option<Option<&DestinationAccess>>,
    ) -> RowChange {
        let default = |row: Option<Option<&DestinationAccess>>| {
            row.is_some_and(|row| row.is_none_or(|row| row.default))
        };
        let allows = |row: Option<Option<&DestinationAccess>>, class: &ClientClass| {
            row.is_some_and(|row| row.is_none_or(|row| self.allows(row, class)))
        };
        let rules = [old, new].map(|row| row.map(|row| row.map(DestinationAccess::rules)));
        let mut change = RowChange {
            default: default(old) != default(new),
            any: true,
            rules: rules[0] != rules[1],
            classes: Vec::new(),
        };
        if change.default {
            return change;
        }
        let [before, after] =
            [old, new].map(|row| row.flatten().map(DestinationAccess::groups).unwrap_or_default());
        let regrouped = before.symmetric_difference(&after).flat_map(|group| self.classes_possible(group));
        let rows = [old, new].into_iter().flatten().flatten();
        let Some(named) = few(rows.flat_map(|row| self.classes_named(row)).chain(regrouped)) else {
            change.default = true;
            return change;
        };
        let different = named.into_iter().filter(|class| allows(old, class) != allows(new, class));
        change.classes = different.cloned().collect();
        change
    }

    /// Lists a destination under what its row names now, and touches no name that stays.
    fn list_instead(
        &mut self,
        id: &DestinationId,
        old: Option<&DestinationAccess>,
        new: Option<&DestinationAccess>,
    ) {
        let [before, after] = [old, new].map(|row| row.map(DestinationAccess::names).unwrap_or_default());
        before.difference(&after).for_each(|name| remove_from(&mut self.naming, name, id));
        after.difference(&before).for_each(|name| add_to(&mut self.naming, name.clone(), id.clone()));
        let [before, after] = [old, new].map(|row| row.map(DestinationAccess::groups).unwrap_or_default());
        before.difference(&after).for_each(|group| remove_from(&mut self.grouped, *group, id));
        after.difference(&before).for_each(|group| add_to(&mut self.grouped, (*group).clone(), id.clone()));
    }

    /// The classes that a rule of the row names; some of them more than once.
    fn classes_named<'a>(
        &'a self,
        row: &DestinationAccess,
    ) -> impl Iterator<Item = &'a ClientClass> + use<'a> {
        let names: Vec<Name> = row.names().into_iter().collect();
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
        let same_rows = self.rows == other.rows && self.open == other.open;
        same_rows && self.classes == other.classes && self.possible == other.possible
    }
}
