//! Sampling of traces, and the backends of spans.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    host_port::{HostPort, Url},
    int_or_string::IntOrString,
    mesh_open_telemetry_backend::{BackendRef, Conditions},
    open_enum::open_enum,
    target_ref::{self, Allowed, TargetRef},
};
use crate::{
    Path, Schema, Subject, Violations,
    policy::{MESH_TRACE, Policy},
};

const HUNDRED_PERCENT: i64 = 100_000_000;

/// Spans of the requests that the selected proxies see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshTrace {
    /// The proxies that trace requests; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Sampling of traces, and the backends of spans.
    pub default: Conf,
}

/// Backends of spans, their sampling, and their tags.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Backends of spans; at most one. An empty list switches tracing off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1))]
    pub backends: Option<Vec<Backend>>,
    /// Share of requests that are traced; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Tags of each span, in addition to mesh, zone and workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Tag>>,
}

open_enum! {
    /// Type of the receiver of spans.
    BackendType { Zipkin = "Zipkin", Datadog = "Datadog", OpenTelemetry = "OpenTelemetry" }
}

/// Receiver of spans; the field of its type is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Backend {
    /// Type of the receiver; the field of this name has its settings.
    #[serde(rename = "type", skip_serializing_if = "BackendType::is_absent")]
    pub type_: BackendType,
    /// Settings of type `Zipkin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zipkin: Option<Zipkin>,
    /// Settings of type `Datadog`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datadog: Option<Datadog>,
    /// Settings of type `OpenTelemetry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetry>,
}

open_enum! {
    /// Encoding of spans for Zipkin.
    ApiVersion { HttpJson = "httpJson", HttpProto = "httpProto" }
}

/// A collector of Zipkin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct Zipkin {
    /// The collector's URL, such as `http://zipkin:9411/api/v2/spans`.
    pub url: String,
    /// Make trace IDs of 128 bits; 64 bits by default.
    #[serde(skip_serializing_if = "Option::is_none", rename = "traceId128bit")]
    pub trace_id_128bit: Option<bool>,
    /// Encoding of spans; `httpJson` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<ApiVersion>,
    /// Let client and server share one span; on by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_span_context: Option<bool>,
}

/// An agent of Datadog.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct Datadog {
    /// The agent's URL as `http://host:port`.
    pub url: String,
    /// Append direction and destination to the service name; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_service: Option<bool>,
}

/// A collector of OpenTelemetry, by `backendRef` or, as before, by `endpoint`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTelemetry {
    /// The collector's address: `host:port` for gRPC, a URL for HTTP; deprecated, use `backendRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub endpoint: Option<String>,
    /// The MeshOpenTelemetryBackend that describes the collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ref: Option<BackendRef>,
}

/// Share of requests that are traced, in percent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Sampling {
    /// The upper limit of all traced requests, in percent; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overall: Option<IntOrString>,
    /// The percentage of requests with the header `x-client-trace-id` that are traced; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<IntOrString>,
    /// The percentage of the other requests that are traced; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<IntOrString>,
}

/// Tag of every span: a text, or a header of the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Tag {
    /// The tag's name.
    pub name: String,
    /// The tag's value; not together with `header`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub literal: Option<String>,
    /// The request header that has the tag's value; not together with `literal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderTag>,
}

/// The header a tag is taken from; without a default, requests without the header have no tag.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct HeaderTag {
    /// The header's name.
    pub name: String,
    /// The value for requests without the header; by default they get no tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl Conf {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let backends = path.field("backends");
        match self.backends.as_deref() {
            None => found.add(&backends, checks::MUST_BE_DEFINED),
            Some([]) => {}
            Some([one]) => one.validate(&backends.index(0), found),
            Some(_) => found.add(&backends, "must have zero or one backend defined"),
        }
        for (i, tag) in self.tags.iter().flatten().enumerate() {
            tag.validate(&path.field("tags").index(i), found);
        }
        let Some(sampling) = &self.sampling else { return };
        let path = path.field("sampling");
        let fields =
            [("client", &sampling.client), ("random", &sampling.random), ("overall", &sampling.overall)];
        for (field, value) in fields {
            match value.as_ref().map(IntOrString::millionths) {
                Some(None) => found.add(path.field(field), "string is not a number"),
                Some(Some(value)) => found.require(
                    (0..=HUNDRED_PERCENT).contains(&value),
                    path.field(field),
                    "must be between 0 and 100",
                ),
                None => {}
            }
        }
    }
}

impl Backend {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let missing = |field: &str, found: &mut Violations| {
            found.add(path.field(field), checks::MUST_BE_DEFINED);
        };
        match (&self.type_, &self.zipkin, &self.datadog, &self.open_telemetry) {
            (BackendType::Zipkin, Some(zipkin), ..) => zipkin.validate(&path.field("zipkin"), found),
            (BackendType::Zipkin, ..) => missing("zipkin", found),
            (BackendType::Datadog, _, Some(datadog), _) => datadog.validate(&path.field("datadog"), found),
            (BackendType::Datadog, ..) => missing("datadog", found),
            (BackendType::OpenTelemetry, .., Some(backend)) => {
                backend.validate(&path.field("openTelemetry"), found);
            }
            (BackendType::OpenTelemetry, ..) => missing("openTelemetry", found),
            (BackendType::Other(_), ..) => checks::known(&self.type_, path, "type", found),
        }
    }
}

impl Zipkin {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let url = path.field("url");
        if self.url.is_empty() {
            found.add(url, checks::MUST_NOT_BE_EMPTY);
        } else {
            // Envoy needs the path, too: it refuses a collector without one.
            let valid = Url::parse(&self.url).is_some_and(|url| !url.path.is_empty());
            found.require(valid, url, "must be a valid url");
        }
        if let Some(version) = &self.api_version {
            checks::known(version, path, "apiVersion", found);
        }
    }
}

impl Datadog {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let path = path.field("url");
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return found.add(path, "must be a valid url");
        };
        found.require(scheme == "http", &path, "scheme must be http");
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        let (user, at) = match authority.rsplit_once('@') {
            Some((_, at)) => (true, at),
            None => (false, authority),
        };
        match HostPort::parse(at) {
            Some(HostPort { port: Some(_), .. }) => {}
            Some(_) => found.add(&path, "port must be defined"),
            None if at.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())) => {
                found.add(&path, "port must be a valid (1-65535)");
            }
            None => found.add(&path, "must be a valid url"),
        }
        let (before_fragment, fragment) = behind.split_once('#').unwrap_or((behind, ""));
        let (before_query, query) = before_fragment.split_once('?').unwrap_or((before_fragment, ""));
        let given = [
            ("user", user),
            ("path", !before_query.is_empty()),
            ("query", !query.is_empty()),
            ("fragment", !fragment.is_empty()),
        ];
        for (part, _) in given.into_iter().filter(|(_, given)| *given) {
            found.add(&path, format!("{part} {}", checks::MUST_NOT_BE_DEFINED));
        }
    }
}

impl OpenTelemetry {
    fn validate(&self, path: &Path, found: &mut Violations) {
        match (&self.endpoint, &self.backend_ref) {
            (Some(endpoint), None) => {
                let path = path.field("endpoint");
                let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme);
                match scheme {
                    _ if endpoint.is_empty() => found.add(path, checks::MUST_NOT_BE_EMPTY),
                    None => found.require(
                        HostPort::parse(endpoint).is_some(),
                        path,
                        "must be a valid host and port",
                    ),
                    Some("http" | "https") => {
                        found.require(Url::parse(endpoint).is_some(), path, "must be a valid URL");
                    }
                    Some(_) => found.add(path, "URL scheme must be http or https"),
                }
            }
            (None, Some(reference)) => reference.validate(&path.field("backendRef"), found),
            _ => found.add(path, "openTelemetry must have exactly one defined: endpoint, backendRef"),
        }
    }
}

impl Tag {
    fn validate(&self, path: &Path, found: &mut Violations) {
        found.require(!self.name.is_empty(), path.field("name"), checks::MUST_NOT_BE_EMPTY);
        if self.header.is_some() == self.literal.is_some() {
            found.add(path, "tag must have only one type defined: header, literal");
        }
        // Envoy takes neither.
        if let Some(header) = &self.header {
            found.require(
                !header.name.is_empty(),
                path.field("header").field("name"),
                checks::MUST_NOT_BE_EMPTY,
            );
        }
        if self.literal.as_deref() == Some("") {
            found.add(path.field("literal"), checks::MUST_NOT_BE_EMPTY);
        }
    }
}

impl Policy for MeshTrace {
    type To = serde::de::IgnoredAny;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshTrace {
    type Status = Conditions;

    fn apply_defaults(&mut self) {
        for backend in self.default.backends.iter_mut().flatten() {
            if let Some(zipkin) = &mut backend.zipkin {
                zipkin.trace_id_128bit.get_or_insert(false);
                zipkin.api_version.get_or_insert(ApiVersion::HttpJson);
                zipkin.shared_span_context.get_or_insert(true);
            }
            if let Some(datadog) = &mut backend.datadog {
                datadog.split_service.get_or_insert(false);
            }
        }
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let allowed = Allowed { gateway_listener_tags: false, ..Allowed::by_role(subject, MESH_TRACE) };
        target_ref::validate_top(self.target_ref.as_ref(), allowed, found);
        self.default.validate(&Path::new("spec").field("default"), found);
    }

    fn warnings(&self) -> Vec<String> {
        let backends = self.default.backends.iter().flatten();
        let inline = backends
            .filter_map(|backend| backend.open_telemetry.as_ref())
            .any(|backend| backend.endpoint.is_some());
        let deprecated =
            "'openTelemetry.endpoint' field is deprecated, use 'openTelemetry.backendRef' instead".to_owned();
        let top = target_ref::top_level_warnings(self.target_ref.as_ref());
        top.into_iter().chain(inline.then_some(deprecated)).collect()
    }
}

#[cfg(test)]
mod tests;
