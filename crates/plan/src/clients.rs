//! Rules for certain clients, by identity or by the server name they ask for.

use std::{cmp::Reverse, collections::HashSet, sync::Arc};

use policy::{ClientMatch, InboundRule, MergedPolicy, conf};
use resources::policy::Shape;

/// The clients that rules tell apart, the most specific first, with what the rules say about each: what
/// they say about everyone, overridden by what they say about wider groups, and in the end about itself.
pub(crate) fn told_apart(rules: &[InboundRule]) -> Vec<(ClientMatch, Arc<MergedPolicy>)> {
    let mut told: Vec<(ClientMatch, &InboundRule)> =
        rules.iter().filter_map(|rule| Some((ClientMatch::of(rule.client.as_ref()?)?, rule))).collect();
    // Stable, so that rules about the same clients stay in the order of their policies.
    told.sort_by_key(|(client, _)| specificity(client));
    let mut clients: Vec<&ClientMatch> = told.iter().map(|(client, _)| client).collect();
    let mut seen = HashSet::new();
    clients.retain(|client| seen.insert(*client));
    clients.sort_by_key(|client| Reverse(specificity(client)));
    let everyone: Vec<_> = rules.iter().filter(|rule| rule.client.is_none()).collect();
    let with = |client: &ClientMatch| {
        let about = told.iter().filter(|(wider, _)| includes(wider, client)).map(|(_, rule)| *rule);
        let confs: Vec<_> = everyone.iter().copied().chain(about).map(|rule| rule.conf.clone()).collect();
        let merged = conf::merged(&confs, Shape::default()).first().cloned();
        Some((client.clone(), merged?))
    };
    clients.into_iter().filter_map(with).collect()
}

/// A whole identity, then the longer prefix of one, then none; with a server name before without.
fn specificity(client: &ClientMatch) -> (u8, usize, bool) {
    match client {
        ClientMatch::SpiffeExact(_) => (2, 0, false),
        ClientMatch::SpiffePrefix(prefix) => (1, prefix.as_str().len(), false),
        ClientMatch::Sni { spiffe: Some(spiffe), .. } => {
            let (kind, length, _) = specificity(spiffe);
            (kind, length, true)
        }
        ClientMatch::Sni { spiffe: None, .. } => (0, 0, true),
        ClientMatch::Anyone | ClientMatch::Tags(_) => (0, 0, false),
    }
}

/// `wider` matches every client that `narrower` matches.
fn includes(wider: &ClientMatch, narrower: &ClientMatch) -> bool {
    let (wider_sni, wider) = parts(wider);
    let (sni, identity) = parts(narrower);
    let same_identity = match (wider, identity) {
        (None, _) => true,
        (Some(ClientMatch::SpiffePrefix(wider)), Some(ClientMatch::SpiffeExact(id))) => wider.matches(id),
        (Some(ClientMatch::SpiffePrefix(wider)), Some(ClientMatch::SpiffePrefix(prefix))) => {
            wider.includes(prefix)
        }
        (Some(wider), identity) => Some(wider) == identity,
    };
    same_identity && (wider_sni.is_none() || wider_sni == sni)
}

/// The server name and the identity of a client.
fn parts(client: &ClientMatch) -> (Option<&str>, Option<&ClientMatch>) {
    match client {
        ClientMatch::Sni { sni, spiffe } => (Some(sni), spiffe.as_deref()),
        ClientMatch::Anyone => (None, None),
        identity => (None, Some(identity)),
    }
}
