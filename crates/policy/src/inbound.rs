//! `rules` of the policies that apply to an inbound: kept apart, in order.
//!
//! Rules are not merged, because each may have a condition on the client. Consumers that cannot tell
//! clients apart fold those without a condition ([`fold_unconditional`]).

use std::cmp::Reverse;

use resources::{
    kinds::target_ref::{Match, MatchType},
    naming::Kri,
};
use serde_json::Value;

use crate::{
    merge::{self, Merged, Shape},
    view::PolicyView,
};

/// A conf for the clients that match, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct InboundRule {
    /// `None` for all clients.
    pub client: Option<Match>,
    pub conf: Value,
    /// The policy, with section `rule_<index>`.
    pub origin: Kri,
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

/// What all clients get: the rules without a condition, merged in list order.
pub fn fold_unconditional(rules: &[InboundRule]) -> Option<Merged> {
    let confs = rules.iter().filter(|rule| rule.client.is_none());
    merge::merge(confs.map(|rule| (rule.origin.clone(), &rule.conf)), Shape::default())
}

fn of_policy(policy: &PolicyView) -> Vec<InboundRule> {
    if policy.rules.is_empty() && policy.from_as_rules {
        let entries = policy.from.iter().enumerate();
        return entries
            .map(|(i, entry)| InboundRule {
                client: None,
                conf: Value::clone(&entry.conf),
                origin: policy.origin(i),
            })
            .collect();
    }
    let mut rules = Vec::new();
    for (i, entry) in policy.rules.iter().enumerate() {
        let origin = policy.origin(i);
        let rule = |client| InboundRule { client, conf: entry.conf.clone(), origin: origin.clone() };
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
