//! The logging, tracing and metrics backends of a mesh: the older way, before policies.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, DeserializeOwned},
};

use super::{ONE_OF_BACKENDS, access_log_format, check_chosen, check_unused};
use crate::{
    Path, Violations,
    kinds::{
        proto::{Struct, number},
        tags::{self, Tags},
    },
    labels,
};

const TCP: &str = "tcp";
const FILE: &str = "file";
const ZIPKIN: &str = "zipkin";
const DATADOG: &str = "datadog";
const PROMETHEUS: &str = "prometheus";
const ZIPKIN_VERSIONS: [&str; 3] = ["httpJsonV1", "httpJson", "httpProto"];

/// Backends of access logs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    /// The backend for traffic that no policy names one for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_backend: String,
    /// Places that access logs may go to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<LoggingBackend>,
}

/// One place for access logs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggingBackend {
    /// A name that is unique in the mesh.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Format of a line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub format: String,
    /// Type of the receiver: `file` or `tcp`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Settings of the type: `path` of `file`, `address` of `tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<Struct>,
}

/// Backends of traces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    /// The backend for traffic that no policy names one for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_backend: String,
    /// Collectors that spans may go to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<TracingBackend>,
}

/// One collector of traces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TracingBackend {
    /// A name that is unique in the mesh.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The percentage of requests that are traced; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<f64>,
    /// Type of the receiver of spans: `zipkin` or `datadog`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Settings of the type, such as `url` of `zipkin`, `address` and `port` of `datadog`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<Struct>,
}

/// Backends of metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// The backend in use; metrics are off without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub enabled_backend: String,
    /// Ways to expose metrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<MetricsBackend>,
}

/// One way to expose metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsBackend {
    /// A name that is unique in the mesh.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Type of the backend: `prometheus`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Settings of the type, such as `port`, `path` and `tags`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<Struct>,
}

/// The parts of a backend's `conf` that are checked, of some only the type; what else it holds is kept as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Conf {
    address: String,
    path: String,
    url: String,
    api_version: String,
    #[serde(deserialize_with = "number")]
    port: u32,
    tags: Tags,
    #[serde(rename = "skipMTLS")]
    skip_mtls: Option<bool>,
    #[serde(deserialize_with = "optional_object")]
    tls: Option<PrometheusTls>,
    #[serde(deserialize_with = "objects")]
    aggregate: Vec<Aggregate>,
    #[serde(deserialize_with = "optional_object")]
    envoy: Option<EnvoyMetrics>,
    #[serde(rename = "traceId128bit")]
    trace_id_128_bit: bool,
    shared_span_context: bool,
    split_service: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PrometheusTls {
    mode: String,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Aggregate {
    name: String,
    path: String,
    address: String,
    #[serde(deserialize_with = "number")]
    port: u32,
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnvoyMetrics {
    filter_regex: String,
    used_only: bool,
}

/// Common parts of logging and tracing backends.
trait Backend {
    fn name(&self) -> &str;
    fn validate(&self, path: &Path, found: &mut Violations);
}

fn check_backends<B: Backend>(
    backends: &[B],
    default: &str,
    not_there: &str,
    path: &Path,
    found: &mut Violations,
) {
    let mut names = BTreeSet::new();
    for (i, backend) in backends.iter().enumerate() {
        let path = path.field("backends").index(i);
        found.require(!backend.name().is_empty(), path.field("name"), "cannot be empty");
        backend.validate(&path, found);
        check_unused(backend.name(), &mut names, &path, found);
    }
    check_chosen(default, &names, &path.field("defaultBackend"), not_there, found);
}

impl Logging {
    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        let message = "has to be set to one of the logging backend in mesh";
        check_backends(&self.backends, &self.default_backend, message, path, found);
    }
}

impl Backend for LoggingBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Err(reason) = access_log_format::check(&self.format) {
            found.add(path.field("format"), format!("format string is not valid: {reason}"));
        }
        let config = path.field("config");
        match self.kind.as_str() {
            FILE => {
                let Some(conf) = read(self.conf.as_ref(), &config, found) else { return };
                found.require(!conf.path.is_empty(), config.field("path"), "cannot be empty");
            }
            TCP => {
                let Some(conf) = read(self.conf.as_ref(), &config, found) else { return };
                let path = config.field("address");
                if conf.address.is_empty() {
                    found.add(path, "cannot be empty");
                } else {
                    found.require(is_host_port(&conf.address), path, "has to be in format of HOST:PORT");
                }
            }
            _ => found.add(path.field("type"), unknown_type(&[TCP, FILE])),
        }
    }
}

impl Tracing {
    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        let message = "has to be set to one of the tracing backend in mesh";
        check_backends(&self.backends, &self.default_backend, message, path, found);
    }
}

impl Backend for TracingBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self, path: &Path, found: &mut Violations) {
        let sampling = self.sampling.unwrap_or_default();
        let message = "has to be in [0.0 - 100.0] range";
        found.require((0.0..=100.0).contains(&sampling), path.field("sampling"), message);
        let config = path.field("config");
        match self.kind.as_str() {
            ZIPKIN => {
                let Some(conf) = read(self.conf.as_ref(), &config, found) else { return };
                check_zipkin(&conf, &config, found);
            }
            DATADOG => {
                let Some(conf) = read(self.conf.as_ref(), &config, found) else { return };
                found.require(!conf.address.is_empty(), config.field("address"), "cannot be empty");
                tags::check_port(conf.port, &config.field("port"), found);
            }
            _ => found.add(path.field("type"), unknown_type(&[ZIPKIN, DATADOG])),
        }
    }
}

fn check_zipkin(conf: &Conf, path: &Path, found: &mut Violations) {
    let known = conf.api_version.is_empty() || ZIPKIN_VERSIONS.contains(&conf.api_version.as_str());
    let message = format!("has invalid value. {}", tags::allowed_values(&ZIPKIN_VERSIONS));
    found.require(known, path.field("apiVersion"), message);
    let path = path.field("url");
    if conf.url.is_empty() {
        found.add(path, "cannot be empty");
    } else if !is_request_uri(&conf.url) {
        found.add(path, "invalid URL");
    } else {
        found.require(has_port(&conf.url), path, "port has to be explicitly specified");
    }
}

impl Metrics {
    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        let mut names = BTreeSet::new();
        for (i, backend) in self.backends.iter().enumerate() {
            let path = path.field("backends").index(i);
            check_unused(&backend.name, &mut names, &path, found);
            check_metrics_backend(backend, &path, found);
        }
        check_chosen(&self.enabled_backend, &names, &path.field("enabledBackend"), ONE_OF_BACKENDS, found);
    }
}

impl MetricsBackend {
    /// Port, path and tags of the endpoint Prometheus scrapes. A `conf` of the wrong shape is left to
    /// validation.
    pub(super) fn apply_defaults(&mut self) {
        if self.kind != PROMETHEUS {
            return;
        }
        let conf = self.conf.get_or_insert_default();
        let Ok(typed) = typed::<Conf>(conf) else { return };
        if typed.port == 0 {
            conf.insert("port".into(), 5670.into());
        }
        if typed.path.is_empty() {
            conf.insert("path".into(), "/metrics".into());
        }
        if typed.tags.is_empty() {
            conf.insert("tags".into(), serde_json::json!({ labels::SERVICE: "dataplane-metrics" }));
        }
    }
}

/// Checks one metrics backend, of a mesh or of a single proxy.
pub(crate) fn check_metrics_backend(backend: &MetricsBackend, path: &Path, found: &mut Violations) {
    if backend.kind != PROMETHEUS {
        found.add(path.field("type"), unknown_type(&[PROMETHEUS]));
        return;
    }
    let path = path.field("conf");
    let Some(conf) = read(backend.conf.as_ref(), &path, found) else { return };
    if let (Some(skip), Some(tls)) = (conf.skip_mtls, &conf.tls) {
        // Both say the same thing when they agree.
        let agree = match tls.mode.as_str() {
            "" | "activeMTLSBackend" => !skip,
            "disabled" => skip,
            _ => false,
        };
        found.require(agree, &path, "skipMTLS and tls configuration cannot be defined together");
    }
    let mut names = BTreeSet::new();
    for (i, application) in conf.aggregate.iter().enumerate() {
        let name = &application.name;
        let message = format!("duplicate entry: {name}, values have to be unique");
        found.require(names.insert(name), path.field("aggregate").index(i).field("name"), message);
    }
}

fn read(conf: Option<&Struct>, path: &Path, found: &mut Violations) -> Option<Conf> {
    let Some(conf) = conf else { return Some(Conf::default()) };
    match typed(conf) {
        Ok(typed) => Some(typed),
        Err(error) => {
            found.add(path, format!("could not parse config: {error}"));
            None
        }
    }
}

/// A `null` is the default of its field, as everywhere in protobuf.
fn typed<T: DeserializeOwned>(conf: &Struct) -> Result<T, serde_json::Error> {
    let given = conf.iter().filter(|(_, value)| !value.is_null());
    serde_json::from_value(given.map(|(field, value)| (field.clone(), value.clone())).collect())
}

/// [`typed`] for settings inside others; serde alone takes a list for them, too.
fn optional_object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    typed(&Struct::deserialize(deserializer)?).map(Some).map_err(de::Error::custom)
}

fn objects<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::<Struct>::deserialize(deserializer)?;
    all.iter().map(typed).collect::<Result<_, _>>().map_err(de::Error::custom)
}

fn unknown_type(available: &[&str]) -> String {
    let quoted: Vec<String> = available.iter().map(|name| format!("{name:?}")).collect();
    format!("unknown backend type. Available backends: {}", quoted.join(", "))
}

fn is_host_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    !host.is_empty() && !port.is_empty() && (bracketed || !host.contains(':'))
}

/// True for texts that fit into the first line of an HTTP request: a path or an absolute URL.
pub(crate) fn is_request_uri(text: &str) -> bool {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() || !b.is_ascii());
    let absolute = text.split_once("://").is_some_and(|(scheme, rest)| {
        let word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(word) && !rest.is_empty()
    });
    printable && (text.starts_with('/') || absolute)
}

fn has_port(url: &str) -> bool {
    let authority =
        url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, tail)| tail);
    after_host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}
