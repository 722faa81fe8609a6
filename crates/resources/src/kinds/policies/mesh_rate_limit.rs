//! Limits of the traffic that a proxy passes to its application.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    directions::Directions,
    entry::{Entry, EntryDescription, InEntry, InRule, Rule},
    target_ref::{Allowed, Match, TargetRef},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    duration::GoDuration,
    policy::{MESH_RATE_LIMIT, Policy},
};

pub use crate::kinds::mesh_http_route::HeaderKeyValue;

/// The most headers that Envoy adds to a response it gives for a limit.
pub const MAX_HEADERS: usize = 10;
/// Envoy answers with no other status for a limit; smaller ones it replaces by 429.
pub const STATUSES: [std::ops::RangeInclusive<u32>; 7] =
    [400..=417, 421..=424, 426..=426, 428..=429, 431..=431, 500..=508, 510..=511];
/// Smaller statuses are those of success and redirection.
pub const SMALLEST_STATUS: u32 = 400;
/// Envoy refills no bucket more often.
const SHORTEST_INTERVAL: GoDuration = GoDuration::from_millis(50);
const WITH_SPIFFE_ID: &str = "can't be specified when matches contain spiffeID because this field cannot be \
     conditioned on source identity";

/// Limits of incoming requests and connections, counted by each proxy for itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshRateLimit {
    /// The proxies that limit incoming traffic; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Limits of incoming traffic; deprecated, use `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Entry<Conf>>,
    /// Limits of traffic through gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
    /// Limits of incoming traffic, by client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule<Conf>>,
}

/// The limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Limits that each proxy counts for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,
}

/// Limits that each proxy counts for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Local {
    /// Limits of HTTP requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<LocalHttp>,
    /// Limits of new connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<LocalTcp>,
}

/// The limit of requests, and the answer to those over it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalHttp {
    /// Switch the limit off, also one of a less specific policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Limit of requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_rate: Option<Rate>,
    /// The answer to requests over the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_rate_limit: Option<OnRateLimit>,
}

/// The limit of new connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalTcp {
    /// Switch the limit off, also one of a less specific policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Limit of new connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_rate: Option<Rate>,
}

/// So many in each interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["interval", "num"]))]
pub struct Rate {
    /// The number of requests or connections in each interval.
    pub num: u32,
    /// The interval, at least `50ms`.
    pub interval: GoDuration,
}

/// The answer to a request over the limit; 429 without a status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OnRateLimit {
    /// The status of the answer; 429 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
    /// Headers of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
}

/// Headers of a response: `set` replaces, `add` keeps what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Headers {
    /// Headers that replace those of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub set: Option<Vec<HeaderKeyValue>>,
    /// Headers that are added to those of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub add: Option<Vec<HeaderKeyValue>>,
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "Entry", about: "The limits of traffic from or to what a reference names." };
}

impl InRule for Conf {
    const RULE: EntryDescription = EntryDescription {
        name: "Rule",
        about: "The limits of incoming traffic, optionally only of certain clients.",
    };
    const REQUIRED: &'static [&'static str] = &["default"];
}

impl Conf {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let path = path.field("local");
        let Some(Local { http, tcp }) = &self.local else {
            found.add(path, checks::MUST_BE_DEFINED);
            return;
        };
        if http.is_none() && tcp.is_none() {
            found.add(&path, "must have at least one defined: tcp, http");
        }
        if let Some(http) = http {
            http.validate(&path.field("http"), found);
        }
        if let Some(LocalTcp { disabled, connection_rate }) = tcp {
            let path = path.field("tcp");
            if disabled.is_none() && connection_rate.is_none() {
                found.add(&path, "must have at least one defined: disabled, connectionRate");
            }
            if let Some(rate) = connection_rate {
                rate.validate(&path.field("connectionRate"), found);
            }
        }
    }

    fn answers_with_success(&self) -> bool {
        let http = self.local.as_ref().and_then(|local| local.http.as_ref());
        let status = http.and_then(|http| http.on_rate_limit.as_ref()?.status);
        status.is_some_and(|status| status < SMALLEST_STATUS)
    }
}

impl LocalHttp {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if *self == LocalHttp::default() {
            found.add(path, "must have at least one defined: disabled, requestRate, onRateLimit");
        }
        if let Some(rate) = &self.request_rate {
            rate.validate(&path.field("requestRate"), found);
        }
        let Some(OnRateLimit { status, headers }) = &self.on_rate_limit else { return };
        let path = path.field("onRateLimit");
        checks::positive(*status, &path.field("status"), found);
        let known = |status: u32| status < SMALLEST_STATUS || is_known(status);
        found.require(
            status.is_none_or(known),
            path.field("status"),
            "must be a status that proxies know, such as 429 or 503",
        );
        if let Some(headers) = headers {
            headers.validate(&path.field("headers"), found);
        }
    }
}

/// True for statuses with which Envoy can answer requests over a limit.
pub fn is_known(status: u32) -> bool {
    STATUSES.iter().any(|known| known.contains(&status))
}

impl Rate {
    fn validate(self, path: &Path, found: &mut Violations) {
        checks::positive(Some(self.num), &path.field("num"), found);
        found.require(
            self.interval > SHORTEST_INTERVAL,
            path.field("interval"),
            format!("must be greater than: {SHORTEST_INTERVAL}"),
        );
    }
}

impl Headers {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let lists = [("set", self.set.as_deref()), ("add", self.add.as_deref())];
        for (field, headers) in lists {
            let mut seen = BTreeSet::new();
            for (i, HeaderKeyValue { name, value }) in headers.unwrap_or_default().iter().enumerate() {
                let path = path.field(field).index(i);
                found.require(seen.insert(name), path.field("name"), "duplicate header name");
                let sendable = !value.contains(['\0', '\r', '\n']);
                found.require(sendable, path.field("value"), "must not contain line breaks or zero bytes");
            }
        }
        let all: usize = lists.iter().map(|(_, headers)| headers.map_or(0, <[_]>::len)).sum();
        found.require(
            all <= MAX_HEADERS,
            path,
            format!("must have at most {MAX_HEADERS} items in 'set' and 'add' together"),
        );
    }
}

impl MeshRateLimit {
    fn directions(&self) -> Directions<'_, Rule<Conf>, Entry<Conf>> {
        Directions { top: self.target_ref.as_ref(), rules: &self.rules, to: &self.to, from: &self.from }
    }

    fn validate_entries(&self, spec: &Path, found: &mut Violations) {
        let whole_mesh = TargetRef::mesh();
        if self.target_ref.as_ref().unwrap_or(&whole_mesh).includes_gateways() {
            found.require(self.rules.is_empty(), spec.field("rules"), checks::MUST_NOT_BE_DEFINED);
            found.require(self.from.is_empty(), spec.field("from"), checks::FROM_OF_GATEWAYS);
            Entry::validate_all(
                &self.to,
                Allowed::of(MESH_RATE_LIMIT.to),
                &spec.field("to"),
                Conf::validate,
                found,
            );
            return;
        }
        for (i, rule) in self.rules.iter().enumerate() {
            validate_rule(rule, &spec.field("rules").index(i), found);
        }
        Entry::validate_all(
            &self.from,
            Allowed::of(MESH_RATE_LIMIT.from),
            &spec.field("from"),
            Conf::validate,
            found,
        );
        found.require(self.to.is_empty(), spec.field("to"), checks::MUST_NOT_BE_DEFINED);
    }
}

fn validate_rule(rule: &Rule<Conf>, path: &Path, found: &mut Violations) {
    let matches = rule.matches.as_deref().unwrap_or_default();
    Match::validate_all(matches, &path.field("matches"), found);
    let default = path.field("default");
    rule.default.validate(&default, found);
    // Connections are counted before a client has shown who it is.
    let tcp = rule.default.local.as_ref().and_then(|local| local.tcp.as_ref());
    if tcp.is_some() && matches.iter().any(|client| client.spiffe_id.is_some()) {
        found.add(default.field("local").field("tcp"), WITH_SPIFFE_ID);
    }
}

impl Policy for MeshRateLimit {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshRateLimit {
    type Status = NoStatus;

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        self.directions().validate(subject, MESH_RATE_LIMIT, &spec, found);
        self.validate_entries(&spec, found);
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.directions().warnings();
        warnings.extend(small_statuses("rules", self.rules.iter().map(|rule| &rule.default)));
        warnings.extend(small_statuses("from", self.from.iter().map(|entry| &entry.default)));
        warnings.extend(small_statuses("to", self.to.iter().map(|entry| &entry.default)));
        warnings
    }
}

/// Envoy answers 429 instead of them.
fn small_statuses<'a>(list: &str, confs: impl Iterator<Item = &'a Conf>) -> Vec<String> {
    let small = confs.enumerate().filter(|(_, conf)| conf.answers_with_success());
    let warning = |(i, _)| {
        format!(
            "'spec.{list}[{i}].default.local.http.onRateLimit.status' must be {SMALLEST_STATUS} or higher. \
             Please update your configuration."
        )
    };
    small.map(warning).collect()
}

#[cfg(test)]
mod tests;
