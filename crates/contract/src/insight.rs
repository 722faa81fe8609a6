//! Counts over the whole control plane, and the state of each service.

use std::{borrow::Cow, collections::BTreeMap};

use resources::{
    Labels,
    kinds::{
        mesh_insight::DataplaneStat,
        proto::is_default,
        service_insight::{ServiceStatus, ServiceType},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /global-insight`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct GlobalInsight {
    /// Time of the answer.
    pub created_at: String,
    pub dataplanes: DataplaneCounts,
    pub meshes: ResourceCount,
    pub policies: ResourceCount,
    /// By kind; without meshes and zones, which have counts of their own, and without kinds that only administrators
    /// see.
    pub resources: BTreeMap<Cow<'static, str>, ResourceCount>,
    pub services: ServiceCounts,
    pub zones: ZoneCounts,
}

/// `GET /global-insights`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct GlobalInsights {
    /// `GlobalInsights`.
    pub r#type: Cow<'static, str>,
    /// Time of the answer.
    pub creation_time: String,
    /// By global kind.
    pub resources: BTreeMap<Cow<'static, str>, ResourceCount>,
}

/// Number of resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ResourceCount {
    pub total: usize,
}

/// Proxies, by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct DataplaneCounts {
    pub gateway_builtin: HealthCounts,
    pub gateway_delegated: HealthCounts,
    pub standard: HealthCounts,
}

/// Services, by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ServiceCounts {
    pub external: ResourceCount,
    pub gateway_builtin: HealthCounts,
    pub gateway_delegated: HealthCounts,
    pub internal: HealthCounts,
}

/// Number of proxies or services, in total and by health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HealthCounts {
    pub offline: u32,
    pub online: u32,
    pub partially_degraded: u32,
    pub total: u32,
}

/// Zones and their zone proxies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ZoneCounts {
    pub control_planes: OnlineCounts,
    pub zone_egresses: OnlineCounts,
    pub zone_ingresses: OnlineCounts,
}

/// Number of what reports to this control plane, and of those that are connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct OnlineCounts {
    pub online: usize,
    pub total: usize,
}

/// State of one service. A ServiceInsight holds all services of a mesh; each is shown on its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ServiceInsightEntry {
    /// `ServiceInsight`.
    pub r#type: Cow<'static, str>,
    pub mesh: String,
    /// Of the service.
    pub name: String,
    pub creation_time: String,
    pub modification_time: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kri: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ServiceStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplanes: Option<DataplaneStat>,
    /// Proxies, by the authority that signed their certificate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub issued_backends: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub service_type: ServiceType,
    /// The zones in which the service runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The hostname and port at which applications call the service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address_port: String,
}
