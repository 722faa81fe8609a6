//! What the control plane reports about MeshService, MeshExternalService and MeshMultiZoneService.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A hostname the service can be reached by, and who made it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    /// The hostname.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// What made the hostname: `HostnameGenerator` or `Kubernetes`.
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

/// What came of one generator for this service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnameGeneratorStatus {
    /// The HostnameGenerator.
    pub hostname_generator_ref: HostnameGeneratorRef,
    /// Whether a hostname was made, and if not why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One observed fact in the manner of Kubernetes; `status` is `True`, `False` or `Unknown`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What the fact is about, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}
