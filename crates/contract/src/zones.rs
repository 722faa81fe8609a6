//! The zones that an answer of a global control plane is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A zone that was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AskedZone {
    pub name: String,
    /// Reason why its part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}
