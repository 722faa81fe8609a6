//! What decides about the clients of a destination.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use policy::{Client, Permissions};

use super::{
    ClientClass,
    names::{self, Name},
};

/// Which clients a destination lets in. Cheap to clone and to compare; destinations with the same rules share one.
#[derive(Debug, Clone)]
pub struct Row(Arc<(u64, Rules)>);

/// What a row consists of.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rules {
    /// Whether clients get in that no rule names.
    pub default: bool,
    /// The distinct permissions of the inbounds that serve it, of which one suffices.
    pub rulesets: Vec<Arc<Permissions>>,
    /// The server names that clients may ask for, the one that they dial first. Empty where no rule asks for one.
    pub server_names: Vec<String>,
}

impl Row {
    pub(crate) fn of(mut rulesets: Vec<Arc<Permissions>>, server_names: Vec<String>) -> Row {
        rulesets.sort();
        rulesets.dedup();
        let by_name =
            rulesets.iter().flat_map(|rules| &rules.rules).any(|rule| names::asks_for_name(&rule.client));
        let server_names = if by_name { server_names } else { Vec::new() };
        let mut rules = Rules { default: false, rulesets, server_names };
        rules.default = rules.allow(&Client::default());
        let mut hasher = DefaultHasher::new();
        rules.hash(&mut hasher);
        Row(Arc::new((hasher.finish(), rules)))
    }

    /// Whether a client of the class gets in. Permissions keep no client out that calls without TLS.
    pub fn allows(&self, client: &ClientClass) -> bool {
        client.is_plain() || self.allow(client.client())
    }

    /// What its rules name.
    pub(super) fn names(&self) -> BTreeSet<Name> {
        let rules = self.rulesets.iter().flat_map(|rules| &rules.rules);
        rules.filter_map(|rule| Name::in_match(&rule.client)).collect()
    }
}

impl Rules {
    /// Whether an inbound lets the client in under one of the names.
    pub fn allow(&self, client: &Client) -> bool {
        self.rulesets.iter().any(|rules| match self.server_names.is_empty() {
            true => rules.allow(client, None),
            false => self.server_names.iter().any(|name| rules.allow(client, Some(name))),
        })
    }
}

impl Deref for Row {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.0.1
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Row {}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Row) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Row {
    /// By hash, which decides nearly always, and then by content.
    fn cmp(&self, other: &Row) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}
