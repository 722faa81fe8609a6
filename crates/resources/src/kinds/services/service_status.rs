//! Common parts of the statuses of MeshService, MeshExternalService and MeshMultiZoneService.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A hostname the service can be reached by, and who made it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    /// The hostname.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// Maker of the hostname: `HostnameGenerator` or `Kubernetes`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// The HostnameGenerator that made it.
    pub hostname_generator_ref: HostnameGeneratorRef,
}

/// The generator that made a hostname, by the name it has in the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnameGeneratorRef {
    /// The name of the HostnameGenerator in the store.
    pub core_name: String,
}

/// An address the control plane allocated for the service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Vip {
    /// The IP address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
}

/// Result of one generator for this service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnameGeneratorStatus {
    /// The HostnameGenerator.
    pub hostname_generator_ref: HostnameGeneratorRef,
    /// Conditions on the making of the hostname, with the reason of a failure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One observed fact in the manner of Kubernetes; `status` is `True`, `False` or `Unknown`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type of the condition, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// State of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason, in one word.
    pub reason: String,
    /// Reason, in a sentence.
    pub message: String,
}
