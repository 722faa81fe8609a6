//! A collector of OpenTelemetry that logs, traces and metrics of a mesh may be sent to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    open_enum::{OpenEnum, open_enum},
    service_status::Condition,
    tags,
};
use crate::{Labels, Path, Schema, Subject, Violations, naming::dns};

/// The port collectors listen at, of either protocol.
pub const DEFAULT_PORT: u16 = 4317;

/// Address and protocol of a collector. Policies refer to it by labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshOpenTelemetryBackend {
    /// Address of the collector; on the machine of each proxy by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Protocol of the collector; `grpc` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Override of this resource by environment variables of kuma-dp; has no effect in kuma-rs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Env>,
}

/// The address of a collector.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// The collector's IP address or host name; without one it is on the machine of each proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The collector's port; 4317 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Path before `/v1/logs`, `/v1/metrics` and `/v1/traces`; for protocol `http` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

open_enum! {
    /// Protocol of a collector.
    Protocol { Grpc = "grpc", Http = "http" }
}

/// Override by environment variables of kuma-dp.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Env {
    /// Reading of environment variables; `Optional` by default.
    #[serde(skip_serializing_if = "EnvMode::is_absent")]
    pub mode: EnvMode,
    /// Precedence if both the resource and the environment set a value; `EnvFirst` by default.
    #[serde(skip_serializing_if = "EnvPrecedence::is_absent")]
    pub precedence: EnvPrecedence,
    /// Apply variables of one signal, such as traces; on by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_signal_overrides: Option<bool>,
}

open_enum! {
    /// Reading of environment variables.
    EnvMode { Disabled = "Disabled", Optional = "Optional", Required = "Required" }
}

open_enum! {
    /// Precedence if both the resource and the environment set a value.
    EnvPrecedence { ExplicitFirst = "ExplicitFirst", EnvFirst = "EnvFirst" }
}

/// Status of a MeshOpenTelemetryBackend and of policies that refer to one, set by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conditions {
    /// Conditions reported by the control plane, one entry per fact.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

open_enum! {
    /// Kinds that telemetry may be sent to.
    BackendKind { MeshOpenTelemetryBackend = "MeshOpenTelemetryBackend" }
}

/// A reference to a MeshOpenTelemetryBackend of the same mesh. Of several that carry the labels, the oldest
/// is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind"]))]
pub struct BackendRef {
    /// The kind of the backend: `MeshOpenTelemetryBackend`.
    #[serde(skip_serializing_if = "BackendKind::is_absent")]
    pub kind: BackendKind,
    /// Labels that the backend must have.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl BackendRef {
    pub fn validate(&self, path: &Path, found: &mut Violations) {
        checks::known(&self.kind, path, "kind", found);
        found.require(!self.labels.is_empty(), path.field("labels"), checks::MUST_NOT_BE_EMPTY);
    }
}

impl MeshOpenTelemetryBackend {
    pub fn speaks_http(&self) -> bool {
        self.protocol == Some(Protocol::Http)
    }

    /// `None` for a collector on the machine of each proxy.
    pub fn address(&self) -> Option<&str> {
        self.endpoint.as_ref().and_then(|endpoint| endpoint.address.as_deref())
    }

    pub fn port(&self) -> u16 {
        let given = self.endpoint.as_ref().and_then(|endpoint| endpoint.port);
        given.and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT)
    }

    /// The path of a signal, such as `v1/logs`.
    pub fn path(&self, signal: &str) -> String {
        let path = self.endpoint.as_ref().and_then(|endpoint| endpoint.path.as_deref()).unwrap_or_default();
        format!("{}/{signal}", path.trim_end_matches('/'))
    }

    fn validate_endpoint(&self, endpoint: &Endpoint, path: &Path, found: &mut Violations) {
        match endpoint.address.as_deref() {
            Some("") => found.add(path.field("address"), checks::MUST_NOT_BE_EMPTY),
            Some(address) => found.require(
                tags::is_ip(address) || dns::is_dns_name(address),
                path.field("address"),
                "address has to be a valid IP or hostname",
            ),
            None => {}
        }
        if let Some(port) = endpoint.port {
            checks::port(u32::try_from(port).unwrap_or_default(), &path.field("port"), found);
        }
        let Some(given) = endpoint.path.as_deref().filter(|given| !given.is_empty()) else { return };
        let path = path.field("path");
        if self.protocol.as_ref().is_none_or(|protocol| *protocol == Protocol::Grpc || protocol.is_absent()) {
            found.add(path, "must not be set when protocol is grpc");
            return;
        }
        found.require(given.starts_with('/'), &path, "must start with /");
        found.require(!given.contains(['?', '#']), &path, "must not contain query or fragment");
    }
}

impl Schema for MeshOpenTelemetryBackend {
    type Status = Conditions;

    fn apply_defaults(&mut self) {
        if let Some(env) = &mut self.env {
            if env.mode.is_absent() {
                env.mode = EnvMode::Optional;
            }
            if env.precedence.is_absent() {
                env.precedence = EnvPrecedence::EnvFirst;
            }
        }
    }

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        if let Some(endpoint) = &self.endpoint {
            self.validate_endpoint(endpoint, &spec.field("endpoint"), found);
        }
        if let Some(protocol) = self.protocol.as_ref().filter(|protocol| !protocol.is_absent()) {
            checks::known(protocol, &spec, "protocol", found);
        }
        let Some(env) = &self.env else { return };
        let path = spec.field("env");
        if !env.mode.is_known() && !env.mode.is_absent() {
            checks::known(&env.mode, &path, "mode", found);
        }
        if !env.precedence.is_known() && !env.precedence.is_absent() {
            checks::known(&env.precedence, &path, "precedence", found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let ignored = self.env.as_ref().is_some_and(|env| env.mode != EnvMode::Disabled);
        let text = "env is kept and has no effect: proxies talk to the collector themselves, which kuma-dp's \
                    environment does not change";
        ignored.then(|| text.to_owned()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Kind,
        kinds::testing::{check, draft, resource, round_trips, valid},
    };

    const KIND: Kind = Kind::MeshOpenTelemetryBackend;

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(KIND, resource(spec), expect);
    }

    #[test]
    fn full_and_empty_examples_are_valid_and_survive_a_round_trip() {
        for spec in [
            json!({}),
            json!({"endpoint": {"port": 4317}}),
            json!({"endpoint": {"address": "::1"}, "protocol": "grpc"}),
            json!({
                "endpoint": {"address": "otel.observability.svc", "port": 443, "path": "/otlp"},
                "protocol": "http",
                "env": {"mode": "Required", "precedence": "ExplicitFirst", "allowSignalOverrides": false}
            }),
        ] {
            valid(KIND, resource(spec.clone()));
            round_trips(KIND, spec);
        }
    }

    #[test]
    fn every_violation_is_reported() {
        violations(
            json!({"endpoint": {"address": "", "port": 0, "path": "x"}, "protocol": "udp",
                   "env": {"mode": "Never", "precedence": "Mine"}}),
            &[
                ("spec.endpoint.address", "must not be empty"),
                ("spec.endpoint.port", "port must be a valid (1-65535)"),
                ("spec.endpoint.path", "must start with /"),
                ("spec.protocol", r#""protocol" must be one of ["grpc", "http"]"#),
                ("spec.env.mode", r#""mode" must be one of ["Disabled", "Optional", "Required"]"#),
                ("spec.env.precedence", r#""precedence" must be one of ["ExplicitFirst", "EnvFirst"]"#),
            ],
        );
        violations(
            json!({"endpoint": {"address": "a b", "port": 65536, "path": "/x"}}),
            &[
                ("spec.endpoint.address", "address has to be a valid IP or hostname"),
                ("spec.endpoint.port", "port must be a valid (1-65535)"),
                ("spec.endpoint.path", "must not be set when protocol is grpc"),
            ],
        );
        violations(
            json!({"endpoint": {"port": -1, "path": "/x?y"}, "protocol": "http"}),
            &[
                ("spec.endpoint.port", "port must be a valid (1-65535)"),
                ("spec.endpoint.path", "must not contain query or fragment"),
            ],
        );
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let of = |spec: Value| -> MeshOpenTelemetryBackend {
            draft(KIND, resource(spec)).spec.get::<MeshOpenTelemetryBackend>().unwrap().clone()
        };
        let empty = of(json!({}));
        assert_eq!((empty.address(), empty.port(), empty.speaks_http()), (None, 4317, false));
        let http =
            of(json!({"endpoint": {"address": "otel", "port": 443, "path": "/a/"}, "protocol": "http"}));
        assert_eq!((http.address(), http.port(), http.speaks_http()), (Some("otel"), 443, true));
        assert_eq!(
            (http.path("v1/logs"), empty.path("v1/traces")),
            ("/a/v1/logs".into(), "/v1/traces".into())
        );
        let env = of(json!({"env": {}})).env.unwrap();
        assert_eq!((env.mode, env.precedence), (EnvMode::Optional, EnvPrecedence::EnvFirst));
    }

    #[test]
    fn an_environment_that_is_not_looked_at_is_warned_about() {
        let warnings = |spec: Value| draft(KIND, resource(spec)).spec.warnings();
        assert_eq!(warnings(json!({"env": {"mode": "Disabled"}})), Vec::<String>::new());
        assert_eq!(warnings(json!({"env": {}})).len(), 1);
    }
}
