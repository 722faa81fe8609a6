//! Names of clients in rules: rules and clients that have none in common do not concern each other.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use policy::{Client, ClientMatch};
use resources::{kinds::tags::ANY_VALUE, labels, naming::SpiffeId};

use crate::lists::{List, Lists, add_to, remove_from};

/// Something that a rule asks of a client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// A tag, a tag with any value, or an identity: its hash, which costs nothing to copy. Two may share one, which only
    /// makes lists of candidates longer.
    Exact(u64),
    IdentityPrefix(Arc<str>),
}

/// Parts of rules that are hashed into a name.
#[derive(Hash)]
enum Exact<'a> {
    Tag(&'a str, &'a str),
    AnyTag(&'a str),
    Identity(&'a SpiffeId),
}

impl From<Exact<'_>> for Name {
    fn from(exact: Exact<'_>) -> Name {
        let mut hasher = DefaultHasher::new();
        exact.hash(&mut hasher);
        Name::Exact(hasher.finish())
    }
}

impl Name {
    /// One thing that every client has which the match means; `None` where it may mean any client.
    pub(super) fn in_match(client: &ClientMatch) -> Option<Name> {
        match client {
            ClientMatch::Anyone | ClientMatch::Sni { spiffe: None, .. } => None,
            ClientMatch::Tags(tags) => {
                let exact = |(_, value): &(&String, &String)| *value != ANY_VALUE;
                let service = tags.get_key_value(labels::SERVICE).filter(exact);
                let (name, value) =
                    service.or_else(|| tags.iter().find(exact)).or_else(|| tags.first_key_value())?;
                Some(match value.as_str() {
                    ANY_VALUE => Exact::AnyTag(name).into(),
                    _ => Exact::Tag(name, value).into(),
                })
            }
            ClientMatch::SpiffeExact(id) => Some(Exact::Identity(id).into()),
            ClientMatch::SpiffePrefix(prefix) => Some(Name::IdentityPrefix(prefix.as_str().into())),
            ClientMatch::Sni { spiffe: Some(spiffe), .. } => Name::in_match(spiffe),
        }
    }

    /// The least of those that are prefixes.
    pub(super) fn first_prefix() -> Name {
        Name::IdentityPrefix("".into())
    }
}

/// The match depends on the server name that a client asks for.
pub(super) fn asks_for_name(client: &ClientMatch) -> bool {
    matches!(client, ClientMatch::Sni { .. })
}

/// Everything that rules may name of a client, but for prefixes of its identities.
pub(super) fn of_client(client: &Client) -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    for (name, values) in &client.tags {
        names.insert(Exact::AnyTag(name).into());
        names.extend(values.iter().map(|value| Name::from(Exact::Tag(name, value))));
    }
    names.extend(client.spiffe_ids.iter().map(|id| Name::from(Exact::Identity(id))));
    names
}

/// The prefixes of the identities of a client.
pub(super) fn prefixes_of(client: &Client) -> Vec<Name> {
    let mut prefixes = Vec::new();
    for id in client.spiffe_ids.iter().map(ToString::to_string) {
        let ends = id.char_indices().map(|(at, char)| at + char.len_utf8());
        prefixes.extend(ends.filter_map(|end| id.get(..end)).map(|it| Name::IdentityPrefix(it.into())));
    }
    prefixes
}

/// Something by what rules may name of its client. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct ByName<T: Ord> {
    exact: Lists<Name, T>,
    /// By identity, in the order in which those with one prefix stand together.
    identities: Lists<Arc<str>, T>,
}

impl<T: Ord> Default for ByName<T> {
    fn default() -> ByName<T> {
        ByName { exact: Lists::new(), identities: Lists::new() }
    }
}

impl<T: Ord + Clone> ByName<T> {
    pub(super) fn add(&mut self, client: &Client, value: &T) {
        of_client(client).into_iter().for_each(|name| add_to(&mut self.exact, name, value.clone()));
        let ids = client.spiffe_ids.iter().map(|id| id.to_string().into());
        ids.for_each(|id| add_to(&mut self.identities, id, value.clone()));
    }

    pub(super) fn remove(&mut self, client: &Client, value: &T) {
        of_client(client).iter().for_each(|name| remove_from(&mut self.exact, name, value));
        let ids = client.spiffe_ids.iter().map(|id| id.to_string().into());
        ids.for_each(|id| remove_from(&mut self.identities, &id, value));
    }

    /// Returns the list of a name; for a prefix of identities, the lists of all identities with it.
    pub(super) fn found(&self, name: &Name) -> impl Iterator<Item = &T> + use<'_, T> {
        let lists: Vec<&List<T>> = match name {
            Name::Exact(_) => self.exact.get(name).into_iter().collect(),
            Name::IdentityPrefix(prefix) => {
                let from = self.identities.range(prefix.clone()..);
                let starting = from.take_while(|(id, _)| id.starts_with(&**prefix));
                starting.map(|(_, list)| list).collect()
            }
        };
        lists.into_iter().flatten()
    }
}
