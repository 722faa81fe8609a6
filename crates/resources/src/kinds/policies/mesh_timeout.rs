//! Timeouts of proxies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    directions::Directions,
    entry::{Entry, EntryDescription, InEntry, InRule, Rule},
    target_ref::{self, Allowed, Match, TargetRef, TargetRefKind as K},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    duration::GoDuration,
    policy::{MESH_TIMEOUT, Policy},
};

const TO_OF_ROUTE_OR_GATEWAY: &[K] = &[K::Mesh, K::MeshExternalService];
const WITH_ROUTE: &str = "can't be specified when top-level TargetRef is referencing MeshHTTPRoute";
const WITH_SPIFFE_ID: &str = "can't be specified when matches contain spiffeID because this field cannot be \
     conditioned on source identity";

/// Timeouts of connections and requests, for outgoing (`to`) and incoming (`rules`, `from`) traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshTimeout {
    /// The proxies that the timeouts are for; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Timeouts of outgoing traffic, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
    /// Timeouts of incoming traffic; deprecated, use `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Entry<Conf>>,
    /// Timeouts of incoming traffic, by client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule<Conf>>,
}

/// Timeouts; an absent one keeps what a less specific policy says, zero switches it off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Longest time for connecting; 5s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_timeout: Option<GoDuration>,
    /// Longest time without traffic before a connection is closed; 1h by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<GoDuration>,
    /// Timeouts of HTTP and gRPC requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
}

/// Timeouts of HTTP requests and streams.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Http {
    /// Longest time for the whole response; 15s by default, 0 switches the timeout off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<GoDuration>,
    /// Longest time of a request without traffic in either direction; 30m by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_idle_timeout: Option<GoDuration>,
    /// Longest life of a stream; unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_stream_duration: Option<GoDuration>,
    /// Longest life of a connection, idle or not; unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connection_duration: Option<GoDuration>,
    /// Longest time for a client to send all request headers; unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_headers_timeout: Option<GoDuration>,
}

impl InEntry for Conf {
    const ENTRY: EntryDescription = EntryDescription {
        name: "Entry",
        about: "The timeouts of traffic to or from what a reference names.",
    };
}

impl InRule for Conf {
    const RULE: EntryDescription = EntryDescription {
        name: "Rule",
        about: "The timeouts of incoming traffic, optionally only of certain clients.",
    };
}

/// Adds `message` for each field that is given.
fn forbid(fields: &[(&str, Option<GoDuration>)], message: &str, path: &Path, found: &mut Violations) {
    for (field, value) in fields {
        found.require(value.is_none(), path.field(field), message);
    }
}

impl Conf {
    fn validate(&self, top: &K, path: &Path, found: &mut Violations) {
        if *self == Conf::default() {
            found.add(path, "at least one timeout should be configured");
            return;
        }
        let connection = [("connectionTimeout", self.connection_timeout), ("idleTimeout", self.idle_timeout)];
        let http_path = path.field("http");
        if *top == K::MeshHttpRoute {
            forbid(&connection, WITH_ROUTE, path, found);
            if let Some(http) = &self.http {
                let fields = [
                    ("maxStreamDuration", http.max_stream_duration),
                    ("maxConnectionDuration", http.max_connection_duration),
                ];
                forbid(&fields, WITH_ROUTE, &http_path, found);
            }
        }
        checks::positive_duration(self.connection_timeout, &path.field("connectionTimeout"), found);
        checks::not_negative(self.idle_timeout, &path.field("idleTimeout"), found);
        if let Some(http) = &self.http {
            http.validate(&http_path, found);
        }
    }

    /// Only what Envoy can choose per route may depend on the client's identity.
    fn validate_for_spiffe_id(&self, path: &Path, found: &mut Violations) {
        let connection = [("connectionTimeout", self.connection_timeout), ("idleTimeout", self.idle_timeout)];
        forbid(&connection, WITH_SPIFFE_ID, path, found);
        if let Some(http) = &self.http {
            let fields = [
                ("requestHeadersTimeout", http.request_headers_timeout),
                ("maxStreamDuration", http.max_stream_duration),
                ("maxConnectionDuration", http.max_connection_duration),
            ];
            forbid(&fields, WITH_SPIFFE_ID, &path.field("http"), found);
        }
    }
}

impl Http {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let fields = [
            ("requestTimeout", self.request_timeout),
            ("streamIdleTimeout", self.stream_idle_timeout),
            ("maxStreamDuration", self.max_stream_duration),
            ("maxConnectionDuration", self.max_connection_duration),
        ];
        if fields.iter().all(|(_, value)| value.is_none()) {
            found.add(path, "at least one timeout in this section should be configured");
        }
        for (field, value) in fields {
            checks::not_negative(value, &path.field(field), found);
        }
        checks::not_negative(self.request_headers_timeout, &path.field("requestHeadersTimeout"), found);
    }
}

impl MeshTimeout {
    fn directions(&self) -> Directions<'_, Rule<Conf>, Entry<Conf>> {
        Directions { top: self.target_ref.as_ref(), rules: &self.rules, to: &self.to, from: &self.from }
    }

    fn validate_entries(&self, spec: &Path, found: &mut Violations) {
        let top = target_ref::top_kind(self.target_ref.as_ref());
        let route_or_gateway = matches!(top, K::MeshHttpRoute | K::MeshGateway);
        if route_or_gateway {
            found.require(self.from.is_empty(), spec.field("from"), checks::MUST_NOT_BE_DEFINED);
        } else {
            for (i, from) in self.from.iter().enumerate() {
                let allowed = Allowed::of(MESH_TIMEOUT.from);
                validate_entry(from, allowed, top, &spec.field("from").index(i), found);
            }
        }
        let of_route_or_gateway = Allowed::kinds(TO_OF_ROUTE_OR_GATEWAY);
        let allowed = if route_or_gateway { of_route_or_gateway } else { Allowed::of(MESH_TIMEOUT.to) };
        for (i, to) in self.to.iter().enumerate() {
            validate_entry(to, allowed, top, &spec.field("to").index(i), found);
        }
        for (i, rule) in self.rules.iter().enumerate() {
            validate_rule(rule, top, &spec.field("rules").index(i), found);
        }
    }
}

fn validate_entry(entry: &Entry<Conf>, allowed: Allowed<'_>, top: &K, path: &Path, found: &mut Violations) {
    entry.target_ref.validate(allowed, &path.field("targetRef"), found);
    entry.default.validate(top, &path.field("default"), found);
}

fn validate_rule(rule: &Rule<Conf>, top: &K, path: &Path, found: &mut Violations) {
    let matches = rule.matches.as_deref().unwrap_or_default();
    Match::validate_all(matches, &path.field("matches"), found);
    if matches.iter().any(|matched| matched.spiffe_id.is_some()) {
        rule.default.validate_for_spiffe_id(&path.field("default"), found);
    }
    rule.default.validate(top, &path.field("default"), found);
}

impl Policy for MeshTimeout {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshTimeout {
    type Status = NoStatus;

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        self.directions().validate(subject, MESH_TIMEOUT, &spec, found);
        self.directions().require_one(&spec, found);
        self.validate_entries(&spec, found);
    }

    fn warnings(&self) -> Vec<String> {
        self.directions().warnings()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Kind,
        kinds::testing::{check, draft, resource, round_trips, valid},
    };

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::MeshTimeout, resource(spec), expect);
    }

    #[test]
    fn full_examples_are_valid_and_survive_a_round_trip() {
        for spec in [
            json!({
                "targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]},
                "to": [{"targetRef": {"kind": "MeshService", "name": "backend", "sectionName": "http"}, "default": {
                    "connectionTimeout": "10s", "idleTimeout": "2h0m0s",
                    "http": {"requestTimeout": "0s", "streamIdleTimeout": "1h0m0s", "maxStreamDuration": "0s",
                             "maxConnectionDuration": "1m0s", "requestHeadersTimeout": "500ms"}}}],
                "from": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "10s"}}]
            }),
            json!({
                "targetRef": {"kind": "Dataplane", "sectionName": "http"},
                "rules": [
                    {"matches": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/client"}}],
                     "default": {"http": {"requestTimeout": "2s", "streamIdleTimeout": "3s"}}},
                    {"matches": [{"sni": {"type": "Exact", "value": "backend.mesh"}}],
                     "default": {"idleTimeout": "1s"}},
                    {"default": {"connectionTimeout": "1s"}}
                ]
            }),
        ] {
            valid(Kind::MeshTimeout, resource(spec.clone()));
            round_trips(Kind::MeshTimeout, spec);
        }
    }

    #[test]
    fn one_direction_is_given_and_rules_stand_alone() {
        violations(json!({}), &[("spec", "at least one of 'from', 'to' or 'rules' has to be defined")]);
        violations(
            json!({
                "rules": [{"default": {"connectionTimeout": "10s"}}],
                "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "10s"}}]
            }),
            &[("spec", "fields 'to' and 'from' must be empty when 'rules' is defined")],
        );
    }

    #[test]
    fn kinds_are_checked_per_place() {
        violations(
            json!({
                "targetRef": {"kind": "Dataplane", "sectionName": "test"},
                "to": [{"targetRef": {"kind": "MeshServiceSubset"}, "default": {"http": {"requestTimeout": "1s"}}}]
            }),
            &[
                ("spec.targetRef.sectionName", "can only be used with inbound policies"),
                ("spec.to[0].targetRef.kind", "value 'MeshServiceSubset' is not supported"),
            ],
        );
        violations(
            json!({"from": [{"targetRef": {"kind": "MeshService", "name": "a"}, "default": {"idleTimeout": "1s"}}]}),
            &[("spec.from[0].targetRef.kind", "value 'MeshService' is not supported")],
        );
        violations(
            json!({
                "targetRef": {"kind": "MeshGateway", "name": "edge", "tags": {"name": "listener"}},
                "from": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}],
                "to": [{"targetRef": {"kind": "MeshService", "name": "a"}, "default": {"idleTimeout": "1s"}}]
            }),
            &[
                ("spec.from", "must not be defined"),
                ("spec.to[0].targetRef.kind", "value 'MeshService' is not supported"),
            ],
        );
    }

    #[test]
    fn only_system_policies_target_gateways_and_routes() {
        let mut producer = resource(json!({
            "targetRef": {"kind": "MeshGateway", "name": "edge"},
            "to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}]
        }));
        violations(producer["spec"].clone(), &[]);
        producer["labels"] = json!({"kuma.io/policy-role": "producer"});
        check(
            Kind::MeshTimeout,
            producer,
            &[("spec.targetRef.kind", "value 'MeshGateway' is not supported")],
        );
    }

    #[test]
    fn a_route_has_no_connection_timeouts() {
        let message = "can't be specified when top-level TargetRef is referencing MeshHTTPRoute";
        violations(
            json!({
                "targetRef": {"kind": "MeshHTTPRoute", "name": "route-1"},
                "to": [{"targetRef": {"kind": "Mesh"}, "default": {
                    "connectionTimeout": "10s", "idleTimeout": "1h",
                    "http": {"requestTimeout": "1s", "streamIdleTimeout": "1h", "maxStreamDuration": "1h",
                             "maxConnectionDuration": "1h"}}}]
            }),
            &[
                ("spec.to[0].default.connectionTimeout", message),
                ("spec.to[0].default.idleTimeout", message),
                ("spec.to[0].default.http.maxStreamDuration", message),
                ("spec.to[0].default.http.maxConnectionDuration", message),
            ],
        );
    }

    #[test]
    fn some_timeout_is_given_and_none_is_negative() {
        let to = |conf: Value| json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]});
        violations(to(json!({})), &[("spec.to[0].default", "at least one timeout should be configured")]);
        violations(
            to(json!({"http": {"requestHeadersTimeout": "1s"}})),
            &[("spec.to[0].default.http", "at least one timeout in this section should be configured")],
        );
        violations(
            to(json!({"connectionTimeout": "0s", "idleTimeout": "-1s", "http": {
                "requestTimeout": "-1s", "streamIdleTimeout": "-1s", "maxStreamDuration": "-1s",
                "maxConnectionDuration": "-1s", "requestHeadersTimeout": "-1s"}})),
            &[
                ("spec.to[0].default.connectionTimeout", "must be greater than zero when defined"),
                ("spec.to[0].default.idleTimeout", "must not be negative when defined"),
                ("spec.to[0].default.http.requestTimeout", "must not be negative when defined"),
                ("spec.to[0].default.http.streamIdleTimeout", "must not be negative when defined"),
                ("spec.to[0].default.http.maxStreamDuration", "must not be negative when defined"),
                ("spec.to[0].default.http.maxConnectionDuration", "must not be negative when defined"),
                ("spec.to[0].default.http.requestHeadersTimeout", "must not be negative when defined"),
            ],
        );
    }

    #[test]
    fn a_rule_for_an_identity_sets_only_what_a_route_can_choose() {
        let message = "can't be specified when matches contain spiffeID because this field cannot be \
                       conditioned on source identity";
        violations(
            json!({"rules": [{
                "matches": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/client"}}, {}],
                "default": {"connectionTimeout": "10s", "http": {"requestTimeout": "1s",
                    "requestHeadersTimeout": "2s", "maxStreamDuration": "3s"}}
            }]}),
            &[
                ("spec.rules[0].matches[1]", "must specify at least one of 'spiffeID' or 'sni'"),
                ("spec.rules[0].default.connectionTimeout", message),
                ("spec.rules[0].default.http.requestHeadersTimeout", message),
                ("spec.rules[0].default.http.maxStreamDuration", message),
            ],
        );
    }

    #[test]
    fn deprecated_parts_are_warned_about() {
        let spec = json!({
            "targetRef": {"kind": "MeshService", "name": "a"},
            "from": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}]
        });
        assert_eq!(
            draft(Kind::MeshTimeout, resource(spec)).spec.warnings(),
            [
                "'from' field is deprecated, use 'rules' instead",
                "MeshService value for 'targetRef.kind' is deprecated, use Dataplane with labels instead",
            ]
        );
    }
}
