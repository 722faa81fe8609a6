//! Statistics of a proxy by the resource that they are about.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `stats?format=summary`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct StatsSummary {
    pub unified_naming: bool,
    /// By the name of the resource in Envoy.
    pub resources: BTreeMap<String, ResourceStats>,
}

/// The statistics of one name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ResourceStats {
    /// `kri`, `self`, `system`, `legacy` or `other`.
    #[schemars(extend("enum" = ["kri", "self", "system", "legacy", "other"]))]
    pub class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Numbers, or texts for histograms, by group and name.
    pub stats: BTreeMap<String, BTreeMap<String, Value>>,
}
