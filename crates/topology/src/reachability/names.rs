//! What rules name of clients: rules and clients that have none in common do not concern each other.

use std::{collections::BTreeSet, sync::Arc};

use imbl::{OrdMap, OrdSet};
use policy::{Client, ClientMatch};
use resources::{kinds::tags::ANY_VALUE, labels};

/// Something that a rule asks of a client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Tag(String, String),
    AnyTag(String),
    Identity(Arc<str>),
    IdentityPrefix(Arc<str>),
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
                    ANY_VALUE => Name::AnyTag(name.clone()),
                    _ => Name::Tag(name.clone(), value.clone()),
                })
            }
            ClientMatch::SpiffeExact(id) => Some(Name::Identity(id.to_string().into())),
            ClientMatch::SpiffePrefix(prefix) => Some(Name::IdentityPrefix(prefix.as_str().into())),
            ClientMatch::Sni { spiffe: Some(spiffe), .. } => Name::in_match(spiffe),
        }
    }
}

/// Whether a match depends on the server name that a client asks for.
pub(super) fn asks_for_name(client: &ClientMatch) -> bool {
    matches!(client, ClientMatch::Sni { .. })
}

/// Everything that rules may name of a client, but for prefixes of its identities.
pub(super) fn of_client(client: &Client) -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    for (name, values) in &client.tags {
        names.insert(Name::AnyTag(name.clone()));
        names.extend(values.iter().map(|value| Name::Tag(name.clone(), value.clone())));
    }
    names.extend(client.spiffe_ids.iter().map(|id| Name::Identity(id.to_string().into())));
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

/// What is listed under a name; under a prefix of identities what is listed under each of these.
pub(super) fn found<'a, T: Ord>(lists: &'a OrdMap<Name, OrdSet<T>>, name: &Name) -> Vec<&'a OrdSet<T>> {
    let Name::IdentityPrefix(prefix) = name else { return lists.get(name).into_iter().collect() };
    let from = lists.range(Name::Identity(prefix.clone())..);
    let starting =
        from.take_while(|(name, _)| matches!(name, Name::Identity(id) if id.starts_with(&**prefix)));
    starting.map(|(_, list)| list).collect()
}
