//! Requests for tokens. The answer is the token itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The token of a proxy. Empty fields restrict nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneTokenRequest {
    pub name: String,
    pub mesh: String,
    pub tags: BTreeMap<String, Vec<String>>,
    pub r#type: String,
    pub workload: String,
    /// Control planes of Kuma do not know them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Vec<String>>,
    /// In Go's spelling: `720h`.
    pub valid_for: String,
}

/// The token of a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneTokenRequest {
    pub zone: String,
    pub scope: Vec<String>,
    pub valid_for: String,
}

/// The token of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserTokenRequest {
    pub name: String,
    pub groups: Vec<String>,
    pub valid_for: String,
}
