//! A service outside the mesh: where it is reached, and how its TLS certificate is verified.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kinds::{
    checks,
    mesh_service::{self, Sni},
    open_enum::{OpenEnum, open_enum},
    protocol::Protocol,
    service_status::{Address, HostnameGeneratorStatus, Vip},
    tags,
    tls::Version,
};
use crate::{Path, Schema, Subject, Violations, naming::dns};

const MAX_PRIORITY: u32 = 128;
const MATCH_PROTOCOLS: [&str; 4] = ["tcp", "grpc", "http", "http2"];

/// A destination outside the mesh that proxies of the mesh may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["match"]))]
pub struct MeshExternalService {
    /// The port and protocol by which applications call the service.
    #[serde(rename = "match")]
    pub match_: Match,
    /// A plugin that resolves the endpoints; `endpoints` and `tls` are not checked then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<Extension>,
    /// Addresses of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<Endpoint>>,
    /// TLS that the proxy originates; without it the proxy sends what the application sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// Traffic of the applications that goes to the service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["port"]))]
pub struct Match {
    /// Source of the service's hostnames: `HostnameGenerator`.
    #[serde(rename = "type")]
    pub type_: MatchType,
    /// The port at which applications call the service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u32,
    /// Protocol between applications and the service; `tcp` by default.
    #[schemars(extend("enum" = MATCH_PROTOCOLS))]
    pub protocol: Protocol,
    /// The server names by which proxies reach this port at a zone egress; clients use the first, servers accept
    /// all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snis: Vec<Sni>,
}

open_enum! {
    /// The service gets its hostnames from HostnameGenerators.
    MatchType { HostnameGenerator = "HostnameGenerator" }
}

/// Configuration of a plugin that resolves the endpoints itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Extension {
    /// The type of the plugin.
    #[serde(rename = "type")]
    pub type_: String,
    /// Settings that the plugin defines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// One address of the service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["address", "port"]))]
pub struct Endpoint {
    /// An IP address or a host name.
    #[schemars(length(min = 1))]
    pub address: String,
    /// The port of the endpoint.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u32,
    /// Endpoints of the next higher number are called when these are unhealthy; 0, the default, comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_PRIORITY))]
    pub priority: Option<u32>,
}

/// TLS that the proxy originates on behalf of the application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    /// Let the proxy originate TLS; off by default.
    pub enabled: bool,
    /// The TLS versions that the proxy offers; left to Envoy by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Let the server renegotiate TLS, which is insecure; off by default.
    pub allow_renegotiation: bool,
    /// Verification of the server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
}

/// Verification of the service's certificate, and the certificate that the proxy presents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verification {
    /// Parts to verify; authority and name (`Secured`) by default.
    #[serde(skip_serializing_if = "VerificationMode::is_absent")]
    #[schemars(extend("enum" = ["SkipSAN", "SkipCA", "Secured", "SkipAll"]))]
    pub mode: VerificationMode,
    /// The server name that the proxy asks for; the address of the endpoint by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Names of which the server's certificate must have one; the server name by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_alt_names: Option<Vec<SanMatch>>,
    /// The authority that must have signed the server's certificate; those of the proxy's machine by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<DataSource>,
    /// The certificate that the proxy presents; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<DataSource>,
    /// The key of `clientCert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<DataSource>,
}

open_enum! {
    /// Parts of the verification to skip.
    VerificationMode { SkipSan = "SkipSAN", SkipCa = "SkipCA", SkipAll = "SkipAll", Secured = "Secured" }
}

/// A subject alternative name the certificate may have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["value"]))]
pub struct SanMatch {
    /// Comparison of the name; `Exact` by default.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["Exact", "Prefix"]))]
    pub type_: SanMatchType,
    /// The name or its prefix.
    pub value: String,
}

open_enum! {
    /// Comparison of a name.
    SanMatchType { Prefix = "Prefix", Exact = "Exact" }
}

/// Bytes from a Secret of the mesh or from the resource itself (`inline` in base64).
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataSource {
    /// The name of a Secret of the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The bytes, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// The text itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_string: Option<String>,
}

/// Status of a MeshExternalService, set by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshExternalServiceStatus {
    /// The address at which proxies offer the service to their applications.
    pub vip: Vip,
    /// Hostnames of the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Result of each HostnameGenerator that selects the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostname_generators: Vec<HostnameGeneratorStatus>,
}

impl Match {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if !self.type_.is_known() {
            let message =
                format!("unrecognized type '{}' - only 'HostnameGenerator' is supported", self.type_);
            found.add(path.field("type"), message);
        }
        checks::port(self.port, &path.field("port"), found);
        found.require(
            MATCH_PROTOCOLS.contains(&self.protocol.as_str()),
            path.field("protocol"),
            checks::must_be_one_of("protocol", &MATCH_PROTOCOLS),
        );
        mesh_service::check_snis(&self.snis, path, found);
    }
}

impl Endpoint {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if tags::is_ip(&self.address) || dns::is_dns_name(&self.address) {
            checks::port(self.port, &path.field("port"), found);
        } else {
            found.add(path.field("address"), "address has to be a valid IP or hostname");
        }
        found.require(
            self.priority.is_none_or(|priority| priority <= MAX_PRIORITY),
            path.field("priority"),
            format!("must be in inclusive range [0, {MAX_PRIORITY}]"),
        );
    }
}

impl fmt::Debug for DataSource {
    /// It may be a key, which does not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataSource").field("secret", &self.secret).finish_non_exhaustive()
    }
}

impl DataSource {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let Some(inline) = &self.inline else { return };
        found.require(BASE64.decode(inline).is_ok(), path.field("inline"), "must be valid base64");
    }
}

impl Verification {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(name) = &self.server_name {
            found.require(dns::is_dns_name(name), path.field("serverName"), "must be a valid DNS name");
        }
        if !self.mode.is_absent() {
            checks::known(&self.mode, path, "mode", found);
        }
        for (i, san) in self.subject_alt_names.iter().flatten().enumerate() {
            checks::known(&san.type_, &path.field("subjectAltNames").index(i), "type", found);
        }
        found.require(
            self.client_cert.is_none() || self.client_key.is_some(),
            path.field("clientKey"),
            "must be defined when clientCert is defined",
        );
        found.require(
            self.client_key.is_none() || self.client_cert.is_some(),
            path.field("clientCert"),
            "must be defined when clientKey is defined",
        );
        let sources =
            [("caCert", &self.ca_cert), ("clientCert", &self.client_cert), ("clientKey", &self.client_key)];
        for (field, source) in sources {
            if let Some(source) = source {
                source.validate(&path.field(field), found);
            }
        }
    }
}

impl Tls {
    fn apply_defaults(&mut self) {
        if let Some(version) = &mut self.version {
            version.apply_defaults();
        }
        if let Some(verification) = &mut self.verification {
            if verification.mode.is_absent() {
                verification.mode = VerificationMode::Secured;
            }
            for san in verification.subject_alt_names.iter_mut().flatten() {
                if san.type_.is_absent() {
                    san.type_ = SanMatchType::Exact;
                }
            }
        }
    }
}

impl Schema for MeshExternalService {
    type Status = MeshExternalServiceStatus;

    fn apply_defaults(&mut self) {
        if self.match_.type_.is_absent() {
            self.match_.type_ = MatchType::HostnameGenerator;
        }
        if self.match_.protocol.is_absent() {
            self.match_.protocol = Protocol::Tcp;
        }
        if let Some(tls) = &mut self.tls {
            tls.apply_defaults();
        }
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        checks::service_name(subject, found);
        let spec = Path::new("spec");
        self.match_.validate(&spec.field("match"), found);
        if let Some(extension) = &self.extension {
            // The extension brings its own rules for endpoints and TLS.
            let path = spec.field("extension").field("type");
            found.require(!extension.type_.is_empty(), path, checks::MUST_NOT_BE_EMPTY);
            return;
        }
        for (i, endpoint) in self.endpoints.iter().flatten().enumerate() {
            endpoint.validate(&spec.field("endpoints").index(i), found);
        }
        if let Some(tls) = &self.tls {
            let path = spec.field("tls");
            if let Some(version) = &tls.version {
                version.validate(&path.field("version"), found);
            }
            if let Some(verification) = &tls.verification {
                verification.validate(&path.field("verification"), found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Kind, Spec,
        kinds::testing::{check, resource, round_trips, valid},
    };

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::MeshExternalService, resource(spec), expect);
    }

    #[test]
    fn a_minimal_service_is_valid() {
        let spec = json!({
            "match": {"port": 80, "protocol": "http"},
            "endpoints": [{"address": "example.com", "port": 80}]
        });
        valid(Kind::MeshExternalService, resource(spec));
    }

    #[test]
    fn a_full_service_survives_a_round_trip() {
        let spec = json!({
            "match": {"type": "HostnameGenerator", "port": 4242, "protocol": "tcp",
                      "snis": [{"value": "sni.extsvc.default.lambda.4242"}]},
            "extension": {"type": "Lambda", "config": {"arn": "xyz", "nested": [1, {"a": null}]}},
            "endpoints": [
                {"address": "1.1.1.1", "port": 12345, "priority": 0},
                {"address": "example.com", "port": 80, "priority": 128}
            ],
            "tls": {
                "enabled": true,
                "version": {"min": "TLS12", "max": "TLS13"},
                "allowRenegotiation": false,
                "verification": {
                    "mode": "SkipCA",
                    "serverName": "example.com",
                    "subjectAltNames": [{"type": "Exact", "value": "example.com"}, {"type": "Prefix", "value": "ex"}],
                    "caCert": {"inline": "dGVzdA=="},
                    "clientCert": {"secret": "123"},
                    "clientKey": {"inlineString": "key"}
                }
            }
        });
        valid(Kind::MeshExternalService, resource(spec.clone()));
        round_trips(Kind::MeshExternalService, spec);
    }

    #[test]
    fn defaults_are_filled_in() {
        let mut unknown = Vec::new();
        let given = json!({"match": {"port": 80}, "tls": {
            "version": {}, "verification": {"subjectAltNames": [{"value": "a"}]}}});
        let mut spec = Spec::from_json(Kind::MeshExternalService, given, &mut unknown).unwrap();
        spec.apply_defaults();
        assert_eq!(
            spec.to_json(),
            json!({
                "match": {"type": "HostnameGenerator", "port": 80, "protocol": "tcp"},
                "tls": {
                    "enabled": false,
                    "version": {"min": "TLSAuto", "max": "TLSAuto"},
                    "allowRenegotiation": false,
                    "verification": {"mode": "Secured", "subjectAltNames": [{"type": "Exact", "value": "a"}]}
                }
            })
        );
    }

    #[test]
    fn every_violation_is_reported() {
        violations(
            json!({
                "match": {"type": "UnknownMatchType", "port": 0, "protocol": "unknown"},
                "endpoints": [
                    {"address": "1.1.1.1"},
                    {"address": "1.1.1.2", "port": 999_999},
                    {"address": "example.com"},
                    {"address": "unix:///tmp/example.sock", "port": 80, "priority": 129}
                ],
                "tls": {
                    "version": {"min": "TLS15", "max": "TLS16"},
                    "verification": {
                        "serverName": "not[]valid",
                        "mode": "Unknown",
                        "subjectAltNames": [{"type": "Regex", "value": ".*.example.com"}],
                        "caCert": {"inline": "?"},
                        "clientCert": {"secret": "123"}
                    }
                }
            }),
            &[
                (
                    "spec.match.type",
                    "unrecognized type 'UnknownMatchType' - only 'HostnameGenerator' is supported",
                ),
                ("spec.match.port", "port must be a valid (1-65535)"),
                ("spec.match.protocol", r#""protocol" must be one of ["tcp", "grpc", "http", "http2"]"#),
                ("spec.endpoints[0].port", "port must be a valid (1-65535)"),
                ("spec.endpoints[1].port", "port must be a valid (1-65535)"),
                ("spec.endpoints[2].port", "port must be a valid (1-65535)"),
                ("spec.endpoints[3].address", "address has to be a valid IP or hostname"),
                ("spec.endpoints[3].priority", "must be in inclusive range [0, 128]"),
                (
                    "spec.tls.version.min",
                    r#""min" must be one of ["TLSAuto", "TLS10", "TLS11", "TLS12", "TLS13"]"#,
                ),
                (
                    "spec.tls.version.max",
                    r#""max" must be one of ["TLSAuto", "TLS10", "TLS11", "TLS12", "TLS13"]"#,
                ),
                ("spec.tls.verification.serverName", "must be a valid DNS name"),
                (
                    "spec.tls.verification.mode",
                    r#""mode" must be one of ["SkipSAN", "SkipCA", "SkipAll", "Secured"]"#,
                ),
                (
                    "spec.tls.verification.subjectAltNames[0].type",
                    r#""type" must be one of ["Prefix", "Exact"]"#,
                ),
                ("spec.tls.verification.clientKey", "must be defined when clientCert is defined"),
                ("spec.tls.verification.caCert.inline", "must be valid base64"),
            ],
        );
    }

    #[test]
    fn the_lowest_tls_version_is_not_above_the_highest() {
        let versions =
            |min, max| json!({"match": {"port": 80}, "tls": {"version": {"min": min, "max": max}}});
        violations(
            versions("TLS13", "TLS12"),
            &[("spec.tls.version.min", "min version must be lower than max")],
        );
        violations(versions("TLS12", "TLS12"), &[]);
        violations(versions("TLS12", "TLSAuto"), &[]);
    }

    #[test]
    fn a_client_key_needs_its_certificate() {
        violations(
            json!({"match": {"port": 80}, "tls": {"verification": {"clientKey": {"secret": "123"}}}}),
            &[("spec.tls.verification.clientCert", "must be defined when clientKey is defined")],
        );
    }

    #[test]
    fn an_extension_has_a_type_and_checks_endpoints_itself() {
        violations(
            json!({"match": {"port": 80}, "extension": {"type": ""}, "endpoints": [{"address": "?"}]}),
            &[("spec.extension.type", "must not be empty")],
        );
    }

    #[test]
    fn a_name_has_at_most_63_characters() {
        let name = "a".repeat(64);
        let spec = json!({"type": "MeshExternalService", "mesh": "default", "name": name, "spec": {"match": {"port": 1}}});
        check(Kind::MeshExternalService, spec, &[("name", "must not be longer than 63 characters")]);
    }
}
