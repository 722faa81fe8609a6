//! Distinguishes clients by their certificates and the server name they ask for.
//!
//! Clients are distinguished by the URIs of their certificates, which Envoy hands over in one string,
//! separated by commas: a URI is found by comparing it with every place it can have in there. These inputs
//! exist on connections of TLS only.

use std::collections::BTreeMap;

use envoy_types::pb::{
    envoy::{
        config::core::v3 as core,
        extensions::{
            common::matching::v3::ExtensionWithMatcher,
            filters::{
                common::matcher::action::v3::SkipFilter,
                http::composite::v3::{Composite, ExecuteFilterAction},
                network::http_connection_manager::v3 as hcm,
            },
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
use policy::ClientMatch;
use predicate::{PredicateList, SinglePredicate, single_predicate};
use prost::{Message, Name};
use resources::{
    kinds::tags::ANY_VALUE,
    labels,
    naming::spiffe::{self, SpiffeId, SpiffePrefix},
};

use crate::{filter, proto::any};

/// A list of which the first whose clients match decides, so its size is that of the list.
pub(crate) fn first_of<'a>(
    mesh: &str,
    list: impl IntoIterator<Item = (&'a ClientMatch, OnMatch)>,
    otherwise: Option<OnMatch>,
) -> Matcher {
    let mut matchers = Vec::new();
    let mut otherwise = otherwise;
    for (client, decision) in list {
        match predicate(mesh, client) {
            Some(predicate) => {
                matchers.push(FieldMatcher { predicate: Some(predicate), on_match: Some(decision) });
            }
            // Every client matches, so nothing after this is ever evaluated.
            None => {
                otherwise = Some(decision);
                break;
            }
        }
    }
    let list = (!matchers.is_empty()).then_some(MatcherType::MatcherList(MatcherList { matchers }));
    Matcher { on_no_match: otherwise.map(Box::new), matcher_type: list }
}

pub(crate) fn action<M: Message + Name>(name: &str, message: &M) -> OnMatch {
    OnMatch { on_match: Some(on_match::OnMatch::Action(extension(name, message))), ..Default::default() }
}

/// One of several configurations of a filter, chosen for each request by [`filter_of`].
pub(crate) fn configured<M: Message + Name>(filter: &str, config: &M) -> OnMatch {
    let typed_config =
        core::TypedExtensionConfig { name: filter.to_owned(), typed_config: Some(any(config)) };
    let execute = ExecuteFilterAction { typed_config: Some(typed_config), ..Default::default() };
    action("composite", &execute)
}

/// A filter whose configuration is chosen for each request; the matcher has actions of [`configured`].
pub(crate) fn filter_of(name: &str, matcher: Matcher) -> hcm::HttpFilter {
    with_matcher(name, matcher, "envoy.filters.http.composite", &Composite::default())
}

/// A filter for the requests of certain clients.
pub(crate) fn filter_for<M: Message + Name>(
    mesh: &str,
    clients: &[ClientMatch],
    name: &str,
    filter: &str,
    config: &M,
) -> hcm::HttpFilter {
    let meant: Option<Vec<Predicate>> = clients.iter().map(|client| predicate(mesh, client)).collect();
    let Some(others) = meant.and_then(any_of).map(|meant| MatchType::NotMatcher(Box::new(meant))) else {
        return filter::http_filter(name, config);
    };
    let skipped = FieldMatcher {
        predicate: Some(Predicate { match_type: Some(others) }),
        on_match: Some(action("skip", &SkipFilter {})),
    };
    let list = MatcherType::MatcherList(MatcherList { matchers: vec![skipped] });
    with_matcher(name, Matcher { on_no_match: None, matcher_type: Some(list) }, filter, config)
}

fn with_matcher<M: Message + Name>(
    name: &str,
    matcher: Matcher,
    filter: &str,
    config: &M,
) -> hcm::HttpFilter {
    let extension = core::TypedExtensionConfig { name: filter.to_owned(), typed_config: Some(any(config)) };
    let matched = ExtensionWithMatcher {
        xds_matcher: Some(matcher),
        extension_config: Some(extension),
        ..Default::default()
    };
    filter::http_filter(name, &matched)
}

/// `None` when every client matches.
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
    one_of(vec![
        uris(MatchPattern::Exact(uri.to_owned())),
        uris(MatchPattern::Prefix(format!("{uri},"))),
        uris(MatchPattern::Suffix(format!(",{uri}"))),
        uris(MatchPattern::Contains(format!(",{uri},"))),
    ])
}

fn has_uri_with_prefix(prefix: &str) -> Predicate {
    one_of(vec![
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

fn one_of(predicates: Vec<Predicate>) -> Predicate {
    Predicate { match_type: Some(MatchType::OrMatcher(PredicateList { predicate: predicates })) }
}

/// `None` when nothing is given; Envoy takes lists of at least two only.
fn any_of(mut predicates: Vec<Predicate>) -> Option<Predicate> {
    match predicates.len() {
        0 | 1 => predicates.pop(),
        _ => Some(one_of(predicates)),
    }
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
