//! Who may call, as Envoy's role based access control.
//!
//! The rules become one list of matches of which the first decides, so its size is that of the rules.
//! Clients are told apart by the URIs of their certificates, which Envoy hands over in one string,
//! separated by commas: a URI is found by comparing it with every place it can have in there.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::{
        config::rbac::v3 as rbac,
        extensions::{
            filters::{http::rbac::v3 as http, network::rbac::v3 as network},
            matching::common_inputs::{network::v3::ServerNameInput, ssl::v3::UriSanInput},
        },
    },
    xds::{
        core::v3::TypedExtensionConfig,
        r#type::matcher::v3::{
            Matcher, StringMatcher,
            matcher::{
                MatcherList, MatcherType, OnMatch, matcher_list::FieldMatcher, matcher_list::Predicate,
                matcher_list::predicate, matcher_list::predicate::MatchType, on_match,
            },
            string_matcher::MatchPattern,
        },
    },
};
use policy::{ClientMatch, Effect, Permissions};
use predicate::{PredicateList, SinglePredicate, single_predicate};
use prost::{Message, Name};
use resources::{
    kinds::tags::ANY_VALUE,
    labels,
    naming::spiffe::{self, SpiffeId, SpiffePrefix},
};

use crate::proto::any;

/// What a refusal is called when no rule matched.
const NO_RULE: &str = "default";

/// What Kuma calls a decision.
const ACTION: &str = "envoy.filters.rbac.action";

/// The network filter.
pub(crate) fn network(mesh: &str, permissions: &Permissions, stats: &str) -> network::Rbac {
    network::Rbac {
        matcher: Some(matcher(mesh, permissions, false)),
        // Its own prefix holds for shadow statistics too.
        shadow_matcher: shadow(mesh, permissions),
        stat_prefix: stats.to_owned(),
        ..Default::default()
    }
}

/// The HTTP filter.
pub(crate) fn http(mesh: &str, permissions: &Permissions, stats: &str) -> http::Rbac {
    let shadow = shadow(mesh, permissions);
    http::Rbac {
        matcher: Some(matcher(mesh, permissions, false)),
        rules_stat_prefix: stats.to_owned(),
        shadow_rules_stat_prefix: shadow.as_ref().map(|_| stats.to_owned()).unwrap_or_default(),
        shadow_matcher: shadow,
        ..Default::default()
    }
}

/// What would happen if shadow denials were real; nothing when there are none.
fn shadow(mesh: &str, permissions: &Permissions) -> Option<Matcher> {
    let any = permissions.rules.iter().any(|rule| rule.effect == Effect::AllowWithShadowDeny);
    any.then(|| matcher(mesh, permissions, true))
}

fn matcher(mesh: &str, permissions: &Permissions, shadow: bool) -> Matcher {
    let mut matchers = Vec::new();
    let mut otherwise = decide(NO_RULE, rbac::rbac::Action::Deny);
    for rule in &permissions.rules {
        let action = match (rule.effect, shadow) {
            (Effect::Allow, _) | (Effect::AllowWithShadowDeny, false) => rbac::rbac::Action::Allow,
            (Effect::Deny, _) | (Effect::AllowWithShadowDeny, true) => rbac::rbac::Action::Deny,
        };
        let decision = decide(&rule.origin.to_string(), action);
        match predicate(mesh, &rule.client) {
            Some(predicate) => {
                matchers.push(FieldMatcher { predicate: Some(predicate), on_match: Some(decision) });
            }
            // Everybody matches, so no rule after this one is ever asked.
            None => {
                otherwise = decision;
                break;
            }
        }
    }
    let list = (!matchers.is_empty()).then_some(MatcherType::MatcherList(MatcherList { matchers }));
    Matcher { on_no_match: Some(Box::new(otherwise)), matcher_type: list }
}

fn decide(name: &str, action: rbac::rbac::Action) -> OnMatch {
    let action = rbac::Action { name: name.to_owned(), action: action.into() };
    OnMatch { on_match: Some(on_match::OnMatch::Action(extension(ACTION, &action))), ..Default::default() }
}

/// `None` when everybody matches.
fn predicate(mesh: &str, client: &ClientMatch) -> Option<Predicate> {
    match client {
        ClientMatch::Anyone => None,
        ClientMatch::Tags(tags) => all_of(tag_predicates(mesh, tags)),
        ClientMatch::SpiffeExact(id) => Some(has_uri(id.as_str())),
        ClientMatch::SpiffePrefix(prefix) => Some(has_uri_with_prefix(prefix.as_str())),
        ClientMatch::Sni { sni, spiffe } => {
            let asked = single(
                extension("envoy.matching.inputs.server_name", &ServerNameInput {}),
                MatchPattern::Exact(sni.clone()),
            );
            let identity = spiffe.as_ref().and_then(|client| predicate(mesh, client));
            all_of(std::iter::once(asked).chain(identity).collect())
        }
    }
}

fn tag_predicates(mesh: &str, tags: &BTreeMap<String, String>) -> Vec<Predicate> {
    let of_tag = |(name, value): (&String, &String)| match (name.as_str(), value.as_str()) {
        (labels::SERVICE, ANY_VALUE) => has_uri_with_prefix(SpiffePrefix::of_trust_domain(mesh).as_str()),
        (labels::SERVICE, service) => has_uri(SpiffeId::of_service(mesh, service).as_str()),
        (name, ANY_VALUE) => has_uri_with_prefix(&spiffe::tag_uri(name, "")),
        (name, value) => has_uri(&spiffe::tag_uri(name, value)),
    };
    tags.iter().map(of_tag).collect()
}

/// One of the certificate's URIs is this one: the only, the first, the last, or one in between.
fn has_uri(uri: &str) -> Predicate {
    any_of(vec![
        uris(MatchPattern::Exact(uri.to_owned())),
        uris(MatchPattern::Prefix(format!("{uri},"))),
        uris(MatchPattern::Suffix(format!(",{uri}"))),
        uris(MatchPattern::Contains(format!(",{uri},"))),
    ])
}

fn has_uri_with_prefix(prefix: &str) -> Predicate {
    any_of(vec![
        uris(MatchPattern::Prefix(prefix.to_owned())),
        uris(MatchPattern::Contains(format!(",{prefix}"))),
    ])
}

fn uris(pattern: MatchPattern) -> Predicate {
    single(extension("envoy.matching.inputs.uri_san", &UriSanInput {}), pattern)
}

fn single(input: TypedExtensionConfig, pattern: MatchPattern) -> Predicate {
    let value = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
    let single =
        SinglePredicate { input: Some(input), matcher: Some(single_predicate::Matcher::ValueMatch(value)) };
    Predicate { match_type: Some(MatchType::SinglePredicate(single)) }
}

fn any_of(predicates: Vec<Predicate>) -> Predicate {
    Predicate { match_type: Some(MatchType::OrMatcher(PredicateList { predicate: predicates })) }
}

/// `None` when nothing is asked; Envoy takes lists of at least two only.
fn all_of(mut predicates: Vec<Predicate>) -> Option<Predicate> {
    match predicates.len() {
        0 | 1 => predicates.pop(),
        _ => {
            let list = PredicateList { predicate: predicates };
            Some(Predicate { match_type: Some(MatchType::AndMatcher(list)) })
        }
    }
}

fn extension<M: Message + Name>(name: &str, message: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any(message)) }
}
