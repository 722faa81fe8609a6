//! Permissions asked about one client: what is decided, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use resources::{
    Resource,
    kinds::{
        tags::ANY_VALUE,
        target_ref::{Match, MatchType, TargetRef, TargetRefKind as K},
    },
    labels,
    naming::{
        Kri,
        spiffe::{self, SpiffeId},
    },
};

use super::{ClientMatch, Effect, Permissions, Rule};

/// A client as a server sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// The identities in its certificate.
    pub spiffe_ids: BTreeSet<SpiffeId>,
    /// The tags in its certificate; a proxy with several inbounds may have several values of one tag.
    pub tags: BTreeMap<String, BTreeSet<String>>,
    /// The server name it asks for.
    pub sni: Option<String>,
}

impl Client {
    /// A proxy of the mesh with the certificate that the mesh gives it.
    pub fn of_dataplane(proxy: &Resource) -> Client {
        let owned = |values: BTreeSet<&str>| values.into_iter().map(str::to_owned).collect();
        let tags = spiffe::tags_in_certificate(proxy).into_iter();
        Client {
            spiffe_ids: SpiffeId::of_dataplane(proxy),
            tags: tags.map(|(name, values)| (name.to_owned(), owned(values))).collect(),
            sni: None,
        }
    }

    /// A client with one value per tag and nothing else.
    pub fn with_tags<'a>(tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> Client {
        let mut client = Client::default();
        for (name, value) in tags {
            client.tags.entry(name.to_owned()).or_default().insert(value.to_owned());
        }
        client
    }

    /// A client with one identity and nothing else.
    pub fn with_spiffe_id(id: SpiffeId) -> Client {
        Client { spiffe_ids: BTreeSet::from([id]), ..Client::default() }
    }
}

/// Decision about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub effect: Effect,
    /// The rule that says so; `None` where no rule is about the client, which refuses it.
    pub origin: Option<Kri>,
}

impl Decision {
    /// True if the client may call the inbound.
    pub fn is_allowed(&self) -> bool {
        self.effect != Effect::Deny
    }
}

impl ClientMatch {
    /// The clients that a policy's match means; `None` for a match that cannot be read.
    pub fn of(client: &Match) -> Option<ClientMatch> {
        let spiffe = match &client.spiffe_id {
            None => None,
            Some(id) => Some(match id.type_ {
                MatchType::Exact => ClientMatch::SpiffeExact(id.value.parse().ok()?),
                MatchType::Prefix => ClientMatch::SpiffePrefix(id.value.parse().ok()?),
                MatchType::Other(_) => return None,
            }),
        };
        match &client.sni {
            Some(sni) => Some(ClientMatch::Sni { sni: sni.value.clone(), spiffe: spiffe.map(Box::new) }),
            None => spiffe,
        }
    }

    /// The clients that an entry of `from` means, by tags; `None` where clients cannot be identified by what
    /// it says.
    pub fn of_target(target: &TargetRef) -> Option<ClientMatch> {
        let mut tags = target.tags.clone().unwrap_or_default();
        match target.kind {
            K::Mesh => return Some(ClientMatch::Anyone),
            K::MeshSubset => {}
            K::MeshService | K::MeshServiceSubset => {
                tags.insert(labels::SERVICE.to_owned(), target.name.clone()?);
            }
            _ => return None,
        }
        Some(if tags.is_empty() { ClientMatch::Anyone } else { ClientMatch::Tags(tags) })
    }

    pub fn matches(&self, client: &Client) -> bool {
        self.matches_asking(client, client.sni.as_deref())
    }

    /// As [`ClientMatch::matches`], for a client that asks for this server name.
    pub fn matches_asking(&self, client: &Client, asked: Option<&str>) -> bool {
        match self {
            ClientMatch::Anyone => true,
            ClientMatch::Tags(tags) => tags.iter().all(|(name, value)| {
                let present = client.tags.get(name);
                present.is_some_and(|values| value == ANY_VALUE || values.contains(value))
            }),
            ClientMatch::SpiffeExact(id) => client.spiffe_ids.contains(id),
            ClientMatch::SpiffePrefix(prefix) => client.spiffe_ids.iter().any(|id| prefix.matches(id)),
            ClientMatch::Sni { sni, spiffe } => {
                asked == Some(sni)
                    && spiffe.as_ref().is_none_or(|spiffe| spiffe.matches_asking(client, asked))
            }
        }
    }
}

impl Permissions {
    /// Decides about the client, and names the rule behind the decision.
    pub fn decide(&self, client: &Client) -> Decision {
        match self.deciding(client) {
            Some(rule) => Decision { effect: rule.effect, origin: Some(rule.origin.clone()) },
            None => Decision { effect: Effect::Deny, origin: None },
        }
    }

    /// True if the client may call the inbound with this server name.
    pub fn allow(&self, client: &Client, asked: Option<&str>) -> bool {
        let deciding = self.rules.iter().find(|rule| rule.client.matches_asking(client, asked));
        deciding.is_some_and(|rule| rule.effect != Effect::Deny)
    }

    /// The decision in words.
    pub fn explain(&self, client: &Client) -> String {
        let Some(Rule { client: matched, effect, origin }) = self.deciding(client) else {
            let reason = match self.rules.len() {
                0 => "no MeshTrafficPermission applies to this inbound".to_owned(),
                1 => "the only rule of this inbound is not about this client".to_owned(),
                n => format!("none of the {n} rules of this inbound matches this client"),
            };
            return format!("denied: {reason}, and clients that no rule allows are denied");
        };
        match effect {
            Effect::Allow => format!("allowed: {origin} allows {matched}"),
            Effect::Deny => format!("denied: {origin} denies {matched}"),
            Effect::AllowWithShadowDeny => {
                format!("allowed, but counted as denied: {origin} shadow-denies {matched}")
            }
        }
    }

    fn deciding(&self, client: &Client) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.client.matches(client))
    }
}

impl fmt::Display for ClientMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientMatch::Anyone => f.write_str("anyone"),
            ClientMatch::Tags(tags) => {
                f.write_str("clients tagged ")?;
                for (i, (name, value)) in tags.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{name}={value}")?;
                }
                Ok(())
            }
            ClientMatch::SpiffeExact(id) => write!(f, "{id}"),
            ClientMatch::SpiffePrefix(prefix) => write!(f, "identities starting with {prefix}"),
            ClientMatch::Sni { sni, spiffe: None } => write!(f, "clients asking for {sni}"),
            ClientMatch::Sni { sni, spiffe: Some(spiffe) } => write!(f, "{spiffe} asking for {sni}"),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effect::Allow => "Allow",
            Effect::Deny => "Deny",
            Effect::AllowWithShadowDeny => "AllowWithShadowDeny",
        })
    }
}
