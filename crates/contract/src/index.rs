//! The control plane itself, its kinds and its caller.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /`: what answers at this address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Index {
    pub hostname: String,
    /// `Kuma`.
    pub product: String,
    /// The version of Kuma that this one is compatible with.
    pub version: String,
    pub instance_id: String,
    pub cluster_id: String,
    pub gui: String,
    /// `kuma-rs`; empty for Kuma itself.
    pub implementation: String,
    pub implementation_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub implementation_commit: String,
}

/// `GET /config`, as far as clients read it: the configuration is that of the control plane's program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Configuration {
    /// `global` or `zone`; `standalone` of older versions.
    pub mode: String,
}

/// `GET /who-am-i`: the user behind a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

/// `GET /policies`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct PolicyTypes {
    pub policies: Vec<PolicyType>,
}

/// A kind of policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PolicyType {
    pub name: Cow<'static, str>,
    pub read_only: bool,
    pub path: Cow<'static, str>,
    pub singular_display_name: String,
    pub plural_display_name: String,
    pub is_experimental: bool,
    pub is_target_ref_based: bool,
    pub is_inbound: bool,
    pub is_outbound: bool,
}

/// `GET /_resources`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ResourceTypes {
    pub resources: Vec<ResourceType>,
}

/// A kind of resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ResourceType {
    pub name: Cow<'static, str>,
    pub path: Cow<'static, str>,
    /// `Mesh` or `Global`.
    pub scope: Cow<'static, str>,
    pub short_name: Cow<'static, str>,
    pub singular_display_name: String,
    pub plural_display_name: String,
    pub read_only: bool,
    pub include_in_federation: bool,
    /// Absent for what is no policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyTraits>,
}

/// The parts of a kind of policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct PolicyTraits {
    pub is_target_ref: bool,
    pub has_to_target_ref: bool,
    pub has_from_target_ref: bool,
    pub has_rules_target_ref: bool,
    pub is_from_as_rules: bool,
}
