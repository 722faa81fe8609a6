//! `rules` and `from` of the policies that apply to an inbound: kept apart, in order.
//!
//! Rules are not merged, because each may have a condition on the client. Consumers that cannot tell
//! clients apart fold those without a condition ([`fold_unconditional`]).

use std::{cmp::Reverse, sync::Arc};

use resources::{
    kinds::target_ref::{Match, MatchType},
    policy::Shape,
};

use crate::{
    conf::{self, Conf, MergedPolicy},
    permission::ClientMatch,
    view::{PolicyEntry, PolicyView},
};

/// A conf for the clients that match, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct InboundRule {
    /// `None` for all clients.
    pub client: Option<Match>,
    pub conf: Arc<Conf>,
}

/// The clients and the conf of an entry of `from`.
#[derive(Debug, Clone, PartialEq)]
pub struct FromRule {
    /// `None` for clients that cannot be distinguished.
    pub client: Option<ClientMatch>,
    pub conf: Arc<Conf>,
}

/// The entries of `from` of policies that apply to one inbound, from the highest precedence to the lowest.
pub fn from<'a>(policies: impl IntoIterator<Item = &'a PolicyView>) -> Vec<FromRule> {
    let mut policies: Vec<&PolicyView> = policies.into_iter().collect();
    policies.sort_by(|a, b| b.precedence.cmp(&a.precedence));
    let entries = policies.into_iter().flat_map(|policy| policy.from.iter().rev());
    let rule = |entry: &PolicyEntry| FromRule {
        client: ClientMatch::of_target(&entry.target),
        conf: entry.conf.clone(),
    };
    entries.map(rule).collect()
}

/// The rules of policies that apply to one inbound: conditions first, the most specific first among
/// them; otherwise from the lowest precedence to the highest.
pub fn rules<'a>(policies: impl IntoIterator<Item = &'a PolicyView>) -> Vec<InboundRule> {
    let mut policies: Vec<&PolicyView> = policies.into_iter().collect();
    policies.sort_by(|a, b| a.precedence.cmp(&b.precedence));
    let mut rules: Vec<InboundRule> = policies.into_iter().flat_map(of_policy).collect();
    rules.sort_by_key(|rule| Reverse(specificity(rule.client.as_ref())));
    rules
}

/// Merges the rules without a condition in list order: the conf for all clients.
pub fn fold_unconditional(rules: &[InboundRule]) -> Option<Arc<MergedPolicy>> {
    let confs: Vec<_> =
        rules.iter().filter(|rule| rule.client.is_none()).map(|rule| rule.conf.clone()).collect();
    conf::merged(&confs, Shape::default()).first().cloned()
}

fn of_policy(policy: &PolicyView) -> Vec<InboundRule> {
    let from_counts = policy.traits.rules.is_some_and(|rules| rules.from_counts);
    if policy.rules.is_empty() && from_counts {
        let entries = policy.from.iter();
        return entries.map(|entry| InboundRule { client: None, conf: entry.conf.clone() }).collect();
    }
    let mut rules = Vec::new();
    for entry in &policy.rules {
        let rule = |client| InboundRule { client, conf: entry.conf.clone() };
        if entry.matches.is_empty() {
            rules.push(rule(None));
        }
        rules.extend(entry.matches.iter().map(|client| rule(Some(client.clone()))));
    }
    rules
}

/// A whole identity before a prefix of one before none; then a server name before none.
fn specificity(client: Option<&Match>) -> (u8, bool) {
    let Some(client) = client else { return (0, false) };
    let identity = match client.spiffe_id.as_ref().map(|id| &id.type_) {
        Some(MatchType::Exact) => 2,
        Some(_) => 1,
        None => 0,
    };
    (identity, client.sni.is_some())
}
