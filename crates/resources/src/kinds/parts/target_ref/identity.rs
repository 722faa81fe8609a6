//! Matches on the client: the SPIFFE ID of the client's certificate and the server name it asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Path, Violations,
    kinds::{
        checks,
        open_enum::{OpenEnum, open_enum},
    },
    naming::{SpiffeId, SpiffePrefix},
};

/// A condition on the client; all parts given must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Match {
    /// The SPIFFE ID in the client's certificate.
    #[serde(rename = "spiffeID", skip_serializing_if = "Option::is_none")]
    pub spiffe_id: Option<SpiffeIdMatch>,
    /// The server name that the client asked for in the TLS handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<SniMatch>,
}

/// A condition on the SPIFFE ID of the client's certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type", "value"]))]
pub struct SpiffeIdMatch {
    /// Comparison of the ID.
    #[serde(rename = "type")]
    pub type_: MatchType,
    /// The SPIFFE ID or its beginning, such as `spiffe://mesh.local/ns/shop`.
    pub value: String,
}

open_enum! {
    /// Comparison of a SPIFFE ID.
    MatchType { Exact = "Exact", Prefix = "Prefix" }
}

/// A condition on the server name of the TLS connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type", "value"]))]
pub struct SniMatch {
    /// Comparison of the server name.
    #[serde(rename = "type")]
    pub type_: SniMatchType,
    /// The server name.
    pub value: String,
}

open_enum! {
    /// Comparison of a server name.
    SniMatchType { Exact = "Exact" }
}

impl Match {
    pub(crate) fn validate_all(matches: &[Match], path: &Path, found: &mut Violations) {
        for (i, matched) in matches.iter().enumerate() {
            matched.validate(&path.index(i), found);
        }
    }

    fn validate(&self, path: &Path, found: &mut Violations) {
        if self.spiffe_id.is_none() && self.sni.is_none() {
            found.add(path, "must specify at least one of 'spiffeID' or 'sni'");
        }
        if let Some(SpiffeIdMatch { type_, value }) = &self.spiffe_id {
            let path = path.field("spiffeID");
            let invalid = match type_ {
                MatchType::Prefix => value.parse::<SpiffePrefix>().err(),
                _ => value.parse::<SpiffeId>().err(),
            };
            if let Some(reason) = invalid {
                found.add(&path, format!("must be a valid Spiffe ID: {reason}"));
            }
            validate_type(type_, type_.as_str(), &path, found);
        }
        if let Some(SniMatch { type_, value }) = &self.sni {
            let path = path.field("sni");
            validate_type(type_, type_.as_str(), &path, found);
            if value.is_empty() {
                found.add(path.field("value"), checks::MUST_BE_SET);
            } else {
                checks::rfc1123_subdomain(value, &path.field("value"), found);
            }
        }
    }
}

fn validate_type<E: OpenEnum>(type_: &E, word: &str, path: &Path, found: &mut Violations) {
    let path = path.field("type");
    if word.is_empty() {
        found.add(path, checks::MUST_BE_SET);
    } else if !type_.is_known() {
        let supported = E::WORDS.join(", ");
        found.add(path, format!("unrecognized type {word:?}, supported values are: {supported}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(json: Value, expected: &str) {
        let matched: Match = serde_json::from_value(json.clone()).unwrap();
        let mut found = Violations::default();
        matched.validate(&Path::new("m"), &mut found);
        assert_eq!(found.to_string(), expected, "{json}");
    }

    #[test]
    fn identities_are_checked() {
        let spiffe = |type_: &str, value: &str| json!({"spiffeID": {"type": type_, "value": value}});
        check(spiffe("Exact", "spiffe://default/web"), "");
        check(spiffe("Prefix", "spiffe://mesh.local/ns/demo/"), "");
        check(spiffe("Prefix", "spiffe://mesh.local/"), "");
        check(spiffe("Exact", "spiffe://mesh.local"), "");
        for (value, reason) in [
            ("", "cannot be empty"),
            ("https://x", "scheme is missing or invalid"),
            ("spiffe://", "trust domain is missing"),
            ("spiffe:///x", "trust domain is missing"),
            (
                "spiffe://Mesh/x",
                "trust domain characters are limited to lowercase letters, numbers, dots, dashes, and underscores",
            ),
            ("spiffe://mesh/x/", "path cannot have a trailing slash"),
            ("spiffe://mesh//x", "path cannot contain empty segments"),
            ("spiffe://mesh/../x", "path cannot contain dot segments"),
            (
                "spiffe://mesh/x?y",
                "path segment characters are limited to letters, numbers, dots, dashes, and underscores",
            ),
        ] {
            check(spiffe("Exact", value), &format!("m.spiffeID: must be a valid Spiffe ID: {reason}"));
        }
        check(json!({"spiffeID": {"value": "spiffe://a/b"}}), "m.spiffeID.type: must be set");
        check(
            spiffe("Regex", "spiffe://a/b"),
            "m.spiffeID.type: unrecognized type \"Regex\", supported values are: Exact, Prefix",
        );
    }

    #[test]
    fn server_names_are_checked() {
        check(json!({"sni": {"type": "Exact", "value": "a.b"}}), "");
        check(json!({"sni": {}}), "m.sni.type: must be set; m.sni.value: must be set");
        check(
            json!({"sni": {"type": "Prefix", "value": "a"}}),
            "m.sni.type: unrecognized type \"Prefix\", supported values are: Exact",
        );
        let reason = &crate::naming::dns::rfc1123_subdomain_errors("A_b")[0];
        check(json!({"sni": {"type": "Exact", "value": "A_b"}}), &format!("m.sni.value: {reason}"));
    }

    #[test]
    fn a_match_matches_something() {
        check(json!({}), "m: must specify at least one of 'spiffeID' or 'sni'");
    }
}
