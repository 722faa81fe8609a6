//! Routes of HTTP requests, and changes to requests on the way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    mesh_tcp_route::{validate_backends, validate_top_of_route},
    target_ref::{self, Allowed, BackendRef, TargetRef, TargetRefKind as K},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    naming::legacy,
    policy::{MESH_HTTP_ROUTE, Policy},
};

mod filter;
mod matching;

pub use filter::{
    Filter, FilterType, HeaderKeyValue, HeaderModifier, PathRewrite, PathRewriteType, RequestMirror,
    RequestRedirect, Scheme, UrlRewrite,
};
pub use matching::{
    HeaderMatch, HeaderMatchType, Match, Method, PathMatch, PathMatchType, QueryParamsMatch,
    QueryParamsMatchType,
};

/// Routes the requests to a service by what they look like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshHTTPRoute {
    /// The proxies whose requests are routed; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The rules, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<ToEntry>,
}

/// The rules for requests to one destination.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["targetRef", "rules"]))]
pub struct ToEntry {
    /// Only for gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostnames: Option<Vec<String>>,
    /// The service that the requests are sent to.
    pub target_ref: TargetRef,
    /// Rules for the requests; the most specific match decides, whatever the order.
    pub rules: Vec<Rule>,
}

/// Actions on requests that match; rules with the same matches are merged across policies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["matches", "default"]))]
pub struct Rule {
    /// The requests that the rule is for; one of the matches is enough.
    #[schemars(length(min = 1))]
    pub matches: Vec<Match>,
    /// Actions on these requests.
    pub default: RuleConf,
}

/// Changes to requests, and their destinations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleConf {
    /// Changes to requests and responses, in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Vec<Filter>>,
    /// Destinations of the requests, by weight; the service of `targetRef` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_refs: Option<Vec<BackendRef>>,
}

impl MeshHTTPRoute {
    /// Every backend that requests or copies of them may go to.
    pub fn backends(&self) -> impl Iterator<Item = &BackendRef> {
        self.to.iter().flat_map(|to| &to.rules).flat_map(|rule| {
            let mirrors = rule.default.filters.iter().flatten().filter_map(Filter::mirror);
            rule.default.backend_refs.iter().flatten().chain(mirrors)
        })
    }
}

impl ToEntry {
    fn validate(&self, gateway: bool, allowed: Allowed<'_>, path: &Path, found: &mut Violations) {
        self.target_ref.validate(allowed, &path.field("targetRef"), found);
        for (i, rule) in self.rules.iter().enumerate() {
            rule.validate(gateway, &path.field("rules").index(i), found);
        }
        let named = self.hostnames.as_ref().is_some_and(|hostnames| !hostnames.is_empty());
        found.require(gateway || !named, path.field("hostnames"), checks::MUST_NOT_BE_DEFINED);
    }
}

impl Rule {
    /// Names the routes of this rule by their matches: a hash of the matches in the JSON of Kuma, which
    /// writes some characters as numbers.
    pub fn name_by_matches(&self) -> String {
        let mut json = serde_json::to_string(&self.matches).unwrap_or_default();
        for (character, number) in [
            ('&', r"\u0026"),
            ('<', r"\u003c"),
            ('>', r"\u003e"),
            ('\u{2028}', r"\u2028"),
            ('\u{2029}', r"\u2029"),
        ] {
            json = json.replace(character, number);
        }
        legacy::route_of_matches(&json)
    }

    fn validate(&self, gateway: bool, path: &Path, found: &mut Violations) {
        let matches = path.field("matches");
        found.require(!self.matches.is_empty(), &matches, checks::MUST_NOT_BE_EMPTY);
        for (i, matched) in self.matches.iter().enumerate() {
            matched.validate(&matches.index(i), found);
        }
        let default = path.field("default");
        let filters = self.default.filters.as_deref().unwrap_or_default();
        let all_prefixes = self.matches.iter().all(Match::is_path_prefix);
        for (i, filter) in filters.iter().enumerate() {
            filter.validate(gateway, all_prefixes, &default.field("filters").index(i), found);
        }
        let backends = self.default.backend_refs.as_deref().unwrap_or_default();
        let path = default.field("backendRefs");
        let redirects = filters.iter().any(|filter| filter.type_ == FilterType::RequestRedirect);
        found.require(!gateway || redirects || !backends.is_empty(), &path, checks::MUST_NOT_BE_EMPTY);
        validate_backends(backends, &path, found);
    }
}

impl Policy for MeshHTTPRoute {
    type To = ToEntry;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshHTTPRoute {
    type Status = NoStatus;

    fn apply_defaults(&mut self) {
        for rule in self.to.iter_mut().flat_map(|to| &mut to.rules) {
            rule.matches.iter_mut().for_each(Match::apply_defaults);
            rule.default.filters.iter_mut().flatten().for_each(Filter::apply_defaults);
            rule.default.backend_refs.iter_mut().flatten().for_each(BackendRef::apply_defaults);
        }
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        let allowed = validate_top_of_route(MESH_HTTP_ROUTE, self.target_ref.as_ref(), subject, found);
        let gateway = *target_ref::top_kind(self.target_ref.as_ref()) == K::MeshGateway;
        for (i, to) in self.to.iter().enumerate() {
            to.validate(gateway, allowed, &spec.field("to").index(i), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        target_ref::top_level_warnings(self.target_ref.as_ref())
    }
}

#[cfg(test)]
mod tests;
