//! Clients that a destination accepts.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use policy::{Client, Permissions, Rule, permission::AtMost};

use super::{
    groups::ServerGroup,
    names::{self, Name},
};

/// Clients that a destination accepts. Cheap to clone and to compare; destinations with the same rules share
/// one.
#[derive(Debug, Clone)]
pub struct DestinationAccess {
    hash: u64,
    rules: Arc<AccessRules>,
}

/// Rules that decide about the clients of destinations.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessRules {
    /// Clients that no rule names are accepted.
    pub default: bool,
    /// Requirements of the inbounds that serve it, each once; one that accepts a client suffices.
    pub rulesets: Vec<Ruleset>,
    /// The server names that clients may ask for, the one that they dial first. Empty where no rule asks for one.
    pub server_names: Vec<String>,
}

/// Requirement of inbounds for their clients.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ruleset {
    pub permissions: Arc<Permissions>,
    unseen: Option<UnseenServers>,
}

/// Servers that are not known here: further policies may allow what the permissions do not deny.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct UnseenServers {
    group: Arc<ServerGroup>,
    /// Number of leading rules that hold whatever other policies allow.
    denies: usize,
}

impl From<Permissions> for Ruleset {
    fn from(permissions: Permissions) -> Ruleset {
        Ruleset::from(Arc::new(permissions))
    }
}

impl From<Arc<Permissions>> for Ruleset {
    fn from(permissions: Arc<Permissions>) -> Ruleset {
        Ruleset { permissions, unseen: None }
    }
}

impl Ruleset {
    /// Returns the least that servers require which are not known here.
    pub(crate) fn of_unseen(asked: AtMost, group: ServerGroup) -> Ruleset {
        let unseen = UnseenServers { group: Arc::new(group), denies: asked.denies };
        Ruleset { permissions: Arc::new(asked.permissions), unseen: Some(unseen) }
    }

    /// The group of the servers, where these are not known here.
    pub(super) fn group(&self) -> Option<&Arc<ServerGroup>> {
        self.unseen.as_ref().map(|unseen| &unseen.group)
    }

    /// The rules that hold whatever other policies allow, and the others.
    pub(super) fn split(&self) -> (&[Rule], &[Rule]) {
        let denies = self.unseen.as_ref().map_or(0, |unseen| unseen.denies);
        self.permissions.rules.split_at_checked(denies).unwrap_or((&self.permissions.rules, &[]))
    }

    /// The permissions accept the client under one of the names.
    fn allows(&self, client: &Client, server_names: &[String]) -> bool {
        if server_names.is_empty() {
            self.permissions.allow(client, None)
        } else {
            server_names.iter().any(|name| self.permissions.allow(client, Some(name)))
        }
    }

    /// The client is denied under each of the names, whatever other policies allow.
    fn denies(&self, client: &Client, server_names: &[String]) -> bool {
        let (denies, _) = self.split();
        let matches =
            |asked: Option<&str>| denies.iter().any(|rule| rule.client.matches_asking(client, asked));
        if server_names.is_empty() {
            matches(None)
        } else {
            server_names.iter().all(|name| matches(Some(name)))
        }
    }
}

impl DestinationAccess {
    pub(crate) fn of(mut rulesets: Vec<Ruleset>, server_names: Vec<String>) -> DestinationAccess {
        rulesets.sort();
        rulesets.dedup();
        let rules = || rulesets.iter().flat_map(|ruleset| &ruleset.permissions.rules);
        let by_name = rules().any(|rule| names::asks_for_name(&rule.client));
        let server_names = if by_name { server_names } else { Vec::new() };
        let mut rules = AccessRules { default: false, rulesets, server_names };
        rules.default = rules.rulesets.iter().any(|it| it.allows(&Client::default(), &rules.server_names));
        let mut hasher = DefaultHasher::new();
        rules.hash(&mut hasher);
        DestinationAccess { hash: hasher.finish(), rules: Arc::new(rules) }
    }

    /// Returns the names in its rules.
    pub(super) fn names(&self) -> BTreeSet<Name> {
        let rules = self.rulesets.iter().flat_map(|ruleset| &ruleset.permissions.rules);
        rules.filter_map(|rule| Name::in_match(&rule.client)).collect()
    }

    /// The rules of its inbounds.
    pub(super) fn rules(&self) -> BTreeSet<&Permissions> {
        self.rulesets.iter().map(|ruleset| &*ruleset.permissions).collect()
    }

    /// The groups of those who serve it and are not known here.
    pub(super) fn groups(&self) -> BTreeSet<&Arc<ServerGroup>> {
        self.rulesets.iter().filter_map(Ruleset::group).collect()
    }
}

impl AccessRules {
    /// An inbound accepts the client under one of the names. `possibly` returns true if servers of a group
    /// that are not known here may accept it because of further policies.
    pub(super) fn allow(&self, client: &Client, possibly: impl Fn(&ServerGroup) -> bool) -> bool {
        let possible = |ruleset: &Ruleset| {
            ruleset.group().is_some_and(|group| possibly(group))
                && !ruleset.denies(client, &self.server_names)
        };
        let rulesets = || self.rulesets.iter();
        rulesets().any(|it| it.allows(client, &self.server_names)) || rulesets().any(possible)
    }
}

impl Deref for DestinationAccess {
    type Target = AccessRules;

    fn deref(&self) -> &AccessRules {
        &self.rules
    }
}

impl PartialEq for DestinationAccess {
    fn eq(&self, other: &DestinationAccess) -> bool {
        Arc::ptr_eq(&self.rules, &other.rules) || self.hash == other.hash && self.rules == other.rules
    }
}

impl Eq for DestinationAccess {}

impl PartialOrd for DestinationAccess {
    fn partial_cmp(&self, other: &DestinationAccess) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DestinationAccess {
    /// By hash, which decides nearly always, and then by content.
    fn cmp(&self, other: &DestinationAccess) -> Ordering {
        if Arc::ptr_eq(&self.rules, &other.rules) {
            return Ordering::Equal;
        }
        self.hash.cmp(&other.hash).then_with(|| self.rules.cmp(&other.rules))
    }
}
