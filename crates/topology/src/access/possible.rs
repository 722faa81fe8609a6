//! Allows of policies that may select servers which are not known here, once for all servers that they treat
//! alike.
//!
//! Only allows count: a client that may be let in is not refused. So their order does not matter, and a policy that
//! changes touches its own rules only, whatever the number of servers and of other policies.

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;
use policy::{Client, Policy, Rule, permission};

use super::{
    groups::{PolicyGroup, Relation, ServerGroup},
    names::{self, Name},
};
use crate::lists::{Lists, add_to, remove_from};

/// The allows of policies by what they ask of servers. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PossibleAllows(OrdMap<PolicyGroup, Lists<Name, Arc<Rule>>>);

/// The allows of a policy under what they name of clients; `None` where one may be about any client, so that it has to
/// be looked at server by server.
pub(crate) fn shared_allows(policy: &Policy) -> Option<Vec<(Name, Arc<Rule>)>> {
    let rules = permission::allowing(policy).into_iter();
    let named = rules.map(|rule| {
        let name = Name::in_match(&rule.client).filter(|_| !names::asks_for_name(&rule.client))?;
        Some((name, Arc::new(rule)))
    });
    named.collect()
}

impl PossibleAllows {
    pub(super) fn add(&mut self, policies: &PolicyGroup, allows: &[(Name, Arc<Rule>)]) {
        if allows.is_empty() {
            return;
        }
        let by_name = self.0.entry(policies.clone()).or_default();
        allows.iter().for_each(|(name, rule)| add_to(by_name, name.clone(), rule.clone()));
    }

    pub(super) fn remove(&mut self, policies: &PolicyGroup, allows: &[(Name, Arc<Rule>)]) {
        let Some(by_name) = self.0.get_mut(policies) else { return };
        allows.iter().for_each(|(name, rule)| remove_from(by_name, name, rule));
        if by_name.is_empty() {
            self.0.remove(policies);
        }
    }

    /// The policies of a group allow a client.
    pub(super) fn of_group_allow(&self, policies: &PolicyGroup, client: &Client) -> bool {
        self.0.get(policies).is_some_and(|by_name| matching(by_name, client).next().is_some())
    }

    /// Servers may accept a client because of these.
    pub(super) fn allow(&self, servers: &ServerGroup, client: &Client) -> bool {
        self.about(servers).any(|by_name| matching(by_name, client).next().is_some())
    }

    /// The rules because of which servers may let a client in.
    pub(super) fn matching<'a>(&'a self, servers: &ServerGroup, client: &'a Client) -> BTreeSet<&'a Rule> {
        self.about(servers).flat_map(|by_name| matching(by_name, client)).collect()
    }

    /// Returns the names in rules because of which servers may accept clients.
    pub(super) fn names(&self, servers: &ServerGroup) -> impl Iterator<Item = &Name> + use<'_> {
        self.about(servers).flat_map(OrdMap::keys)
    }

    fn about<'a>(&'a self, servers: &ServerGroup) -> std::vec::IntoIter<&'a Lists<Name, Arc<Rule>>> {
        let is_possible = |policies: &PolicyGroup| policies.relation(servers) == Relation::Possible;
        let about = self.0.iter().filter(|(policies, _)| is_possible(policies)).map(|(_, by_name)| by_name);
        about.collect::<Vec<_>>().into_iter()
    }
}

/// The rules that match a client.
fn matching<'a>(by_name: &'a Lists<Name, Arc<Rule>>, client: &'a Client) -> impl Iterator<Item = &'a Rule> {
    // An identity has many prefixes, and few rules are about one.
    let has_prefixes = by_name.range(Name::first_prefix()..).next().is_some();
    let prefixes = if has_prefixes { names::prefixes_of(client) } else { Vec::new() };
    let rules = names::of_client(client).into_iter().chain(prefixes).filter_map(|name| by_name.get(&name));
    let rules = rules.flatten();
    rules.map(|rule| &**rule).filter(|rule| rule.client.matches(client))
}
