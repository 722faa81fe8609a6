//! The answer to a write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer to a put that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct Accepted {
    /// Advice for the author of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
