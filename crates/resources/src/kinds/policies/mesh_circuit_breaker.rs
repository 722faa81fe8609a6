//! Circuit breakers: limits of what is open at once, and endpoints that fail too often.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    directions::Directions,
    entry::{Always, Entry, EntryDescription, InEntry, InRule},
    target_ref::{self, Allowed, TargetRef},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    policy::{MESH_CIRCUIT_BREAKER, Policy},
};

mod outliers;

pub use outliers::{ConsecutiveFailures, Detectors, FailurePercentage, OutlierDetection, SuccessRate};

/// Limits of outgoing (`to`) and incoming (`rules`, `from`) traffic, and detection of outliers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshCircuitBreaker {
    /// The proxies that the limits are for; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Limits of outgoing traffic, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
    /// Limits of incoming traffic; deprecated, use `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Entry<Conf>>,
    /// Limits of incoming traffic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Always<Conf>>,
}

/// Limits of open connections and requests, and the ejection of failing endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Limits of simultaneous connections and requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_limits: Option<ConnectionLimits>,
    /// Ejection of failing endpoints: they are not called for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier_detection: Option<OutlierDetection>,
}

/// Limits of what a proxy has open to one destination; what is over them fails at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionLimits {
    /// Connections; 1024 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// Connection pools; unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connection_pools: Option<u32>,
    /// Requests that wait for a connection; 1024 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pending_requests: Option<u32>,
    /// Retries in progress; 3 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// Requests in progress; 1024 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "Entry", about: "The limits of traffic to or from what a reference names." };
}

impl InRule for Conf {
    const RULE: EntryDescription =
        EntryDescription { name: "Rule", about: "The limits of incoming traffic." };
}

impl Conf {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if *self == Conf::default() {
            found.add(path, "at least one of: 'connectionLimits' or 'outlierDetection' should be configured");
            return;
        }
        if let Some(limits) = &self.connection_limits {
            let path = path.field("connectionLimits");
            let fields = [
                ("maxConnections", limits.max_connections),
                ("maxConnectionPools", limits.max_connection_pools),
                ("maxPendingRequests", limits.max_pending_requests),
                ("maxRetries", limits.max_retries),
                ("maxRequests", limits.max_requests),
            ];
            for (field, value) in fields {
                checks::positive(value, &path.field(field), found);
            }
        }
        if let Some(detection) = &self.outlier_detection {
            detection.validate(&path.field("outlierDetection"), found);
        }
    }
}

impl MeshCircuitBreaker {
    fn directions(&self) -> Directions<'_, Always<Conf>, Entry<Conf>> {
        Directions { top: self.target_ref.as_ref(), rules: &self.rules, to: &self.to, from: &self.from }
    }

    fn validate_entries(&self, spec: &Path, found: &mut Violations) {
        for (i, from) in self.from.iter().enumerate() {
            let path = spec.field("from").index(i);
            let allowed = Allowed::of(MESH_CIRCUIT_BREAKER.from);
            from.target_ref.validate(allowed, &path.field("targetRef"), found);
            from.default.validate(&path.field("default"), found);
        }
        let top = target_ref::top_kind(self.target_ref.as_ref());
        for (i, to) in self.to.iter().enumerate() {
            let path = spec.field("to").index(i);
            let target = path.field("targetRef");
            to.target_ref.validate(Allowed::of(MESH_CIRCUIT_BREAKER.to), &target, found);
            to.target_ref.check_shared(top, &target, found);
            to.default.validate(&path.field("default"), found);
        }
        for (i, rule) in self.rules.iter().enumerate() {
            rule.default.validate(&spec.field("rules").index(i).field("default"), found);
        }
    }
}

impl Policy for MeshCircuitBreaker {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshCircuitBreaker {
    type Status = NoStatus;

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        self.directions().validate(subject, MESH_CIRCUIT_BREAKER, &spec, found);
        self.directions().require_one(&spec, found);
        self.validate_entries(&spec, found);
    }

    fn warnings(&self) -> Vec<String> {
        self.directions().warnings()
    }
}

#[cfg(test)]
mod tests;
