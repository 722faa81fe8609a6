//! Health checks: a proxy calls only the endpoints that pass them.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    entry::{Entry, EntryDescription, InEntry},
    int_or_string::{self, IntOrString},
    target_ref::{self, Allowed, TargetRef},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    duration::GoDuration,
    policy::{MESH_HEALTH_CHECK, Policy},
};

mod request;

pub use request::{Http, RequestHeaders};

pub use crate::kinds::mesh_http_route::HeaderKeyValue;

const PANIC_HAS_MOVED: &str = "healthyPanicThreshold for 'to[].default' is deprecated. The setting has been \
     moved to MeshCircuitBreaker policy, please use MeshCircuitBreaker policy instead.";

/// Active checks of the endpoints that the selected proxies call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshHealthCheck {
    /// The proxies that check the endpoints they call; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The checks, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
}

/// Interval and thresholds of the checks of endpoints, and the probes by protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// The time between two checks; one minute by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Timeout of a check; 15 seconds by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Failed checks in a row that make an endpoint unhealthy; 5 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy_threshold: Option<i32>,
    /// Passed checks in a row that make an endpoint healthy; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_threshold: Option<i32>,
    /// The first check waits a random time, at most this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_jitter: Option<GoDuration>,
    /// Each check waits a random time more, at most this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_jitter: Option<GoDuration>,
    /// Each check waits a random time more, at most this share of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_jitter_percent: Option<i32>,
    /// Deprecated: MeshCircuitBreaker has the same setting, and overrides this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_panic_threshold: Option<IntOrString>,
    /// Fail instead of calling unhealthy endpoints when too few are healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_traffic_on_panic: Option<bool>,
    /// The file on the proxy's machine where Envoy writes what became of endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_log_path: Option<String>,
    /// Log every failed check, not only the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub always_log_health_check_failures: Option<bool>,
    /// The interval until a destination is called for the first time; one minute by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_traffic_interval: Option<GoDuration>,
    /// Checks of destinations that speak TCP, and of others for which `http` or `grpc` is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// Checks of destinations that speak HTTP or HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// Checks of destinations that speak gRPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<Grpc>,
    /// Keep the connection between checks; on by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse_connection: Option<bool>,
}

/// A connection, and bytes that are sent and expected on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Tcp {
    /// Switch these checks off; they are on by default where `tcp` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Bytes sent on the connection, in base64; nothing by default, then a connection is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<String>,
    /// Bytes that the answer must contain, in this order, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<Vec<String>>,
}

/// The health service of gRPC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Grpc {
    /// Switch these checks off; they are on by default where `grpc` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The service that the health service is asked about; all of the server by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// The `:authority` header of the request; the name of the cluster by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "ToEntry", about: "The checks of endpoints of what a reference names." };
}

impl Tcp {
    pub fn enabled(&self) -> bool {
        self.disabled != Some(true)
    }

    /// Bytes to send; `None` if connecting is enough.
    pub fn sent(&self) -> Option<Vec<u8>> {
        self.send.as_ref().and_then(|text| BASE64.decode(text).ok()).filter(|bytes| !bytes.is_empty())
    }

    /// Parts that the answer must contain, in this order.
    pub fn received(&self) -> impl Iterator<Item = Vec<u8>> {
        let blocks = self.receive.iter().flatten().filter_map(|text| BASE64.decode(text).ok());
        blocks.filter(|bytes| !bytes.is_empty())
    }

    fn validate(&self, path: &Path, found: &mut Violations) {
        let send = self.send.iter().map(|text| (path.field("send"), text));
        let receive = self.receive.iter().flatten().enumerate();
        let receive = receive.map(|(i, text)| (path.field("receive").index(i), text));
        for (path, text) in send.chain(receive) {
            found.require(BASE64.decode(text).is_ok(), path, "must be valid base64");
        }
    }
}

impl Grpc {
    pub fn enabled(&self) -> bool {
        self.disabled != Some(true)
    }

    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(authority) = &self.authority {
            request::one_line(authority, &path.field("authority"), found);
        }
    }
}

impl Conf {
    fn validate(&self, path: &Path, found: &mut Violations) {
        checks::positive_duration(self.interval, &path.field("interval"), found);
        checks::positive_duration(self.timeout, &path.field("timeout"), found);
        positive(self.unhealthy_threshold, &path.field("unhealthyThreshold"), found);
        positive(self.healthy_threshold, &path.field("healthyThreshold"), found);
        checks::positive_duration(self.initial_jitter, &path.field("initialJitter"), found);
        checks::positive_duration(self.interval_jitter, &path.field("intervalJitter"), found);
        found.require(
            self.interval_jitter_percent.is_none_or(|percent| (0..=100).contains(&percent)),
            path.field("intervalJitterPercent"),
            "must be in inclusive range [0, 100]",
        );
        if let Some(threshold) = &self.healthy_panic_threshold {
            int_or_string::validate_percentage(threshold, &path.field("healthyPanicThreshold"), found);
        }
        checks::positive_duration(self.no_traffic_interval, &path.field("noTrafficInterval"), found);
        found.require(
            self.event_log_path.as_deref().is_none_or(is_file),
            path.field("eventLogPath"),
            "must be a valid path when defined",
        );
        if let Some(http) = &self.http {
            http.validate(&path.field("http"), found);
        }
        if let Some(tcp) = &self.tcp {
            tcp.validate(&path.field("tcp"), found);
        }
        if let Some(grpc) = &self.grpc {
            grpc.validate(&path.field("grpc"), found);
        }
        if self.http.is_none() && self.tcp.is_none() && self.grpc.is_none() {
            found.add(path, "must have at least one defined: http, tcp, grpc");
        }
    }
}

fn positive(value: Option<i32>, path: &Path, found: &mut Violations) {
    found.require(value.is_none_or(|value| value > 0), path, "must be greater than zero when defined");
}

/// True for absolute paths on the machine of a proxy.
fn is_file(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0')
}

impl Policy for MeshHealthCheck {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshHealthCheck {
    type Status = NoStatus;

    /// An empty `to` is legal: it checks nothing.
    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        target_ref::validate_top(
            self.target_ref.as_ref(),
            Allowed::by_role(subject, MESH_HEALTH_CHECK),
            found,
        );
        let top = target_ref::top_kind(self.target_ref.as_ref());
        for (i, to) in self.to.iter().enumerate() {
            let path = Path::new("spec").field("to").index(i);
            let target = path.field("targetRef");
            to.target_ref.validate(Allowed::of(MESH_HEALTH_CHECK.to), &target, found);
            to.target_ref.check_shared(top, &target, found);
            to.default.validate(&path.field("default"), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = target_ref::top_level_warnings(self.target_ref.as_ref());
        let moved = self.to.iter().filter(|to| to.default.healthy_panic_threshold.is_some());
        warnings.extend(moved.map(|_| PANIC_HAS_MOVED.to_owned()));
        warnings
    }
}

#[cfg(test)]
mod tests;
