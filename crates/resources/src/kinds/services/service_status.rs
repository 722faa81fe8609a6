//! What the control plane reports about MeshService, MeshExternalService and MeshMultiZoneService.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A hostname the service can be reached by, and who made it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// `HostnameGenerator` or `Kubernetes`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub origin: String,
    pub hostname_generator_ref: HostnameGeneratorRef,
}

/// The generator that made a hostname, by the name it has in the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnameGeneratorRef {
    pub core_name: String,
}

/// An address the control plane allocated for the service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Vip {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
}

/// What came of one generator for this service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnameGeneratorStatus {
    pub hostname_generator_ref: HostnameGeneratorRef,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One observed fact in the manner of Kubernetes; `status` is `True`, `False` or `Unknown`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}
