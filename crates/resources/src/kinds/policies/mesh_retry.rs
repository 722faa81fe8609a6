//! Retries of failed requests and connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    entry::{Entry, EntryDescription, InEntry},
    target_ref::{self, Allowed, TargetRef, TargetRefKind as K},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    duration::GoDuration,
    policy::{MESH_RETRY, Policy},
    shape,
};

mod conditions;
mod hosts;

pub use conditions::{GrpcRetryOn, HttpRetryOn};
pub use hosts::{Predicate, PredicateType};

pub use crate::kinds::mesh_http_route::{HeaderMatch, HeaderMatchType};

const TO_OF_ROUTE_OR_GATEWAY: &[K] = &[K::Mesh, K::MeshExternalService];

/// Retries of connections and requests that the selected proxies send.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshRetry {
    /// The proxies that retry; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The retries, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
}

/// Retries by what a destination speaks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Retries of connections to destinations that speak TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// Retries of requests to destinations that speak HTTP or HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Retries of calls to destinations that speak gRPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<Grpc>,
}

/// Attempts to connect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Tcp {
    /// Number of attempts to connect, the first included; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connect_attempt: Option<u32>,
}

/// Retries of HTTP requests; zero retries switch them off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Http {
    /// Number of retries of a request; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_retries: Option<u32>,
    /// The timeout of each try; that of the whole request by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<GoDuration>,
    /// The time between two tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_off: Option<BackOff>,
    /// The time between two tries where the server says how long to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limited_back_off: Option<RateLimitedBackOff>,
    /// Reasons for a retry: conditions such as `5xx`, methods (`HttpMethodGet`) and status codes (`503`); by
    /// default gateway errors, failures to connect and refused streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub retry_on: Option<Vec<HttpRetryOn>>,
    /// Response headers that make a response worth a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retriable_response_headers: Option<Vec<HeaderMatch>>,
    /// Only requests with one of these headers are retried; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retriable_request_headers: Option<Vec<HeaderMatch>>,
    /// Endpoints that a retry avoids; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_selection: Option<Vec<Predicate>>,
    /// Number of attempts to pick another endpoint before one that is to be avoided is used; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_selection_max_attempts: Option<i64>,
}

/// Retries of gRPC calls; zero retries switch them off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Grpc {
    /// Number of retries of a call; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_retries: Option<u32>,
    /// The timeout of each try; that of the whole call by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_try_timeout: Option<GoDuration>,
    /// The time between two tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_off: Option<BackOff>,
    /// The time between two tries where the server says how long to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limited_back_off: Option<RateLimitedBackOff>,
    /// The gRPC statuses that are retried; by default also failures to connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<Vec<GrpcRetryOn>>,
}

/// The time between retries, which grows from the base to the maximum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackOff {
    /// The time before the first retry, which later retries multiply; 25ms by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_interval: Option<GoDuration>,
    /// The longest time between two tries; ten times `baseInterval` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_interval: Option<GoDuration>,
}

/// The time between retries that the server asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RateLimitedBackOff {
    /// Response headers that say when to try again; the first that is present counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_headers: Option<Vec<ResetHeader>>,
    /// The longest wait that a server may ask for; 300s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_interval: Option<GoDuration>,
}

/// The response header that says when to try again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["format", "name"]))]
pub struct ResetHeader {
    /// The header's name, in lower case.
    #[schemars(length(min = 1, max = 256), extend("pattern" = shape::HEADER_NAME))]
    pub name: String,
    /// Format of the header: a number of seconds or a Unix timestamp.
    pub format: RateLimitFormat,
}

crate::kinds::open_enum::open_enum! {
    /// Format of a header: a span of time or a point in time.
    RateLimitFormat { Seconds = "Seconds", UnixTimestamp = "UnixTimestamp" }
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "ToEntry", about: "The retries of traffic to what a reference names." };
}

impl Conf {
    fn validate(&self, default: &Path, found: &mut Violations) {
        // Kuma's paths have this word, which the resource has not.
        let path = &default.field("conf");
        if self.tcp.is_none() && self.http.is_none() && self.grpc.is_none() {
            found.add(path, "at least one of the 'tcp', 'http', 'grpc' must be specified");
        }
        if let Some(tcp) = &self.tcp {
            let path = path.field("tcp");
            match tcp.max_connect_attempt {
                None => found.add(path, checks::MUST_NOT_BE_EMPTY),
                Some(attempts) => {
                    found.require(attempts > 0, path.field("maxConnectAttempt"), "must be greater than 0");
                }
            }
        }
        if let Some(http) = &self.http {
            http.validate(&path.field("http"), &default.field("http"), found);
        }
        if let Some(grpc) = &self.grpc {
            grpc.validate(&path.field("grpc"), found);
        }
    }
}

impl Http {
    /// The number of tries to find another host says nothing on its own.
    fn is_empty(&self) -> bool {
        Http { host_selection_max_attempts: None, ..self.clone() } == Http::default()
    }

    /// Headers are checked by the schema in Kuma, which knows their true path.
    fn validate(&self, path: &Path, true_path: &Path, found: &mut Violations) {
        found.require(!self.is_empty(), path, checks::MUST_NOT_BE_EMPTY);
        validate_back_offs(self.back_off.as_ref(), self.rate_limited_back_off.as_ref(), path, found);
        for (i, condition) in self.retry_on.iter().flatten().enumerate() {
            if !condition.is_retriable() {
                found.add(path.field("retryOn").index(i), format!("unknown item '{condition}'"));
            }
        }
        if let Some(predicates) = &self.host_selection {
            Predicate::validate_all(predicates, &path.field("hostSelection"), found);
        }
        let headers = [
            ("retriableResponseHeaders", &self.retriable_response_headers),
            ("retriableRequestHeaders", &self.retriable_request_headers),
        ];
        for (field, headers) in headers {
            for (i, header) in headers.iter().flatten().enumerate() {
                header.validate(&true_path.field(field).index(i), found);
            }
        }
    }

    fn apply_defaults(&mut self) {
        let headers = [&mut self.retriable_response_headers, &mut self.retriable_request_headers];
        for header in headers.into_iter().flatten().flatten() {
            header.apply_defaults();
        }
        for predicate in self.host_selection.iter_mut().flatten() {
            predicate.apply_defaults();
        }
    }
}

impl Grpc {
    fn validate(&self, path: &Path, found: &mut Violations) {
        found.require(*self != Grpc::default(), path, checks::MUST_NOT_BE_EMPTY);
        validate_back_offs(self.back_off.as_ref(), self.rate_limited_back_off.as_ref(), path, found);
        for (i, condition) in self.retry_on.iter().flatten().enumerate() {
            if let GrpcRetryOn::Other(unknown) = condition {
                found.add(path.field("retryOn").index(i), format!("unknown item '{unknown}'"));
            }
        }
    }
}

fn validate_back_offs(
    back_off: Option<&BackOff>,
    rate_limited: Option<&RateLimitedBackOff>,
    path: &Path,
    found: &mut Violations,
) {
    if let Some(BackOff { base_interval: None, max_interval: None }) = back_off {
        found.add(path.field("backOff"), checks::MUST_NOT_BE_EMPTY);
    }
    let Some(RateLimitedBackOff { reset_headers, max_interval }) = rate_limited else { return };
    let path = path.field("rateLimitedBackOff");
    let positive = max_interval.is_none_or(|interval| interval.nanoseconds() > 0);
    found.require(positive, path.field("maxInterval"), "must be defined and greater than zero");
    let headers = path.field("resetHeaders");
    match reset_headers {
        None => found.add(headers, checks::MUST_BE_DEFINED),
        Some(all) => {
            for (i, header) in all.iter().enumerate() {
                let path = headers.index(i);
                found.require(!header.name.is_empty(), path.field("name"), checks::MUST_BE_DEFINED);
                checks::known(&header.format, &path, "format", found);
            }
        }
    }
}

impl Policy for MeshRetry {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshRetry {
    type Status = NoStatus;

    fn apply_defaults(&mut self) {
        self.to.iter_mut().filter_map(|to| to.default.http.as_mut()).for_each(Http::apply_defaults);
    }

    /// An empty `to` is legal: it is how inherited retries are left alone.
    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        target_ref::validate_top(self.target_ref.as_ref(), Allowed::by_role(subject, MESH_RETRY), found);
        let top = target_ref::top_kind(self.target_ref.as_ref());
        let allowed = match top {
            K::MeshHttpRoute | K::MeshGateway => Allowed::kinds(TO_OF_ROUTE_OR_GATEWAY),
            _ => Allowed::of(MESH_RETRY.to),
        };
        for (i, to) in self.to.iter().enumerate() {
            let path = spec.field("to").index(i);
            to.target_ref.validate(allowed, &path.field("targetRef"), found);
            to.default.validate(&path.field("default"), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        target_ref::top_level_warnings(self.target_ref.as_ref())
    }
}

#[cfg(test)]
mod tests;
