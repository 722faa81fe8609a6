//! Discovery of pages of metrics, in Prometheus' formats.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of the resources that `kuma_sd` asks for.
pub const ASSIGNMENT_TYPE: &str = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";

/// Addresses with the same labels, as `http_sd` reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct TargetGroup {
    /// `host:port` of each.
    pub targets: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

/// Question of `kuma_sd`: a DiscoveryRequest in JSON, whose fields may be spelled as in protobuf or in camel case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiscoveryRequest {
    /// Version of the last answer; empty in the first question.
    #[serde(alias = "versionInfo")]
    pub version_info: String,
    pub node: DiscoveryNode,
    /// Empty for all.
    #[serde(alias = "resourceNames")]
    pub resource_names: Vec<String>,
    #[serde(alias = "typeUrl")]
    pub type_url: String,
    #[serde(alias = "responseNonce")]
    pub response_nonce: String,
}

/// Sender of a [`DiscoveryRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiscoveryNode {
    pub id: String,
}

/// Answer to `kuma_sd`: a DiscoveryResponse in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitoringAssignments {
    pub version_info: String,
    pub resources: Vec<MonitoringAssignment>,
    pub type_url: String,
    pub nonce: String,
}

/// Pages of metrics of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitoringAssignment {
    #[serde(rename = "@type")]
    pub type_url: String,
    pub mesh: String,
    pub service: String,
    pub targets: Vec<MonitoringTarget>,
    /// Labels of all targets.
    pub labels: BTreeMap<String, String>,
}

/// A page of metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitoringTarget {
    /// Name of the Dataplane.
    pub name: String,
    /// `http` or `https`.
    pub scheme: String,
    /// `host:port`.
    pub address: String,
    pub metrics_path: String,
    pub labels: BTreeMap<String, String>,
}

impl MonitoringAssignment {
    pub fn new(
        mesh: String,
        service: String,
        targets: Vec<MonitoringTarget>,
        labels: BTreeMap<String, String>,
    ) -> MonitoringAssignment {
        MonitoringAssignment { type_url: ASSIGNMENT_TYPE.to_owned(), mesh, service, targets, labels }
    }
}
