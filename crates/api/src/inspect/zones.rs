//! The zones that an answer of a global control plane is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A zone that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskedZone {
    pub name: String,
    /// Why its part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}
