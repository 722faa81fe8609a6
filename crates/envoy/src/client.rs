//! Distinguishes clients request by request.
//!
//! Routes cannot look at a certificate, but at the state of the connection; so what the certificate says
//! is put there when the handshake is done.

use core::substitution_format_string::Format;
use envoy_types::pb::envoy::{
    config::{
        core::v3::{self as core, SubstitutionFormatString},
        listener::v3 as listener,
    },
    extensions::filters::{
        common::set_filter_state::v3::{FilterStateValue, filter_state_value},
        network::set_filter_state::v3::Config,
    },
    r#type::matcher::v3::{
        FilterStateMatcher, RegexMatcher, StringMatcher, filter_state_matcher, string_matcher::MatchPattern,
    },
};
use policy::ClientMatch;

use crate::filter;

const IDENTITY: &str = "kuma.mesh_timeout.match.spiffe_id";
const SERVER_NAME: &str = "kuma.mesh_timeout.match.sni";

/// Puts into the state of a connection what [`conditions`] ask for.
pub(crate) fn remembered() -> listener::Filter {
    let value = |key: &str, format: &str| FilterStateValue {
        key: Some(filter_state_value::Key::ObjectKey(key.to_owned())),
        factory_key: "envoy.string".to_owned(),
        skip_if_empty: true,
        value: Some(filter_state_value::Value::FormatString(SubstitutionFormatString {
            format: Some(Format::TextFormatSource(crate::proto::inline(format))),
            ..Default::default()
        })),
        ..Default::default()
    };
    let config = Config {
        on_downstream_tls_handshake: vec![
            value(IDENTITY, "%DOWNSTREAM_PEER_URI_SAN%"),
            value(SERVER_NAME, "%REQUESTED_SERVER_NAME%"),
        ],
        ..Default::default()
    };
    filter::filter("envoy.filters.network.set_filter_state", &config)
}

/// Returns the conditions on a connection's state under which a client matches.
pub(crate) fn conditions(client: &ClientMatch) -> Vec<FilterStateMatcher> {
    match client {
        // A certificate may have several URIs, which are joined by commas.
        ClientMatch::SpiffeExact(id) => {
            vec![state(IDENTITY, regex(format!("(.*,)?{}(,.*)?", literal(id.as_str()))))]
        }
        ClientMatch::SpiffePrefix(prefix) => {
            vec![state(IDENTITY, regex(format!("(.*,)?{}.*", literal(prefix.as_str()))))]
        }
        ClientMatch::Sni { sni, spiffe } => {
            let asked = state(SERVER_NAME, MatchPattern::Exact(sni.clone()));
            let identity = spiffe.as_deref().map(conditions).unwrap_or_default();
            std::iter::once(asked).chain(identity).collect()
        }
        ClientMatch::Anyone | ClientMatch::Tags(_) => Vec::new(),
    }
}

fn state(key: &str, pattern: MatchPattern) -> FilterStateMatcher {
    let text = StringMatcher { match_pattern: Some(pattern), ..Default::default() };
    FilterStateMatcher {
        key: key.to_owned(),
        matcher: Some(filter_state_matcher::Matcher::StringMatch(text)),
    }
}

fn regex(expression: String) -> MatchPattern {
    MatchPattern::SafeRegex(RegexMatcher { regex: expression, ..Default::default() })
}

/// A regular expression that means this text and nothing else.
fn literal(text: &str) -> String {
    let mut expression = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            expression.push('\\');
        }
        expression.push(c);
    }
    expression
}
