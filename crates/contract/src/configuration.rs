//! Configuration of a proxy, as it would be sent now.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The configuration of one proxy, without secrets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ProxyConfiguration {
    /// JSON patch (RFC 6902) from the configuration without policies that only pretend; present if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<Vec<Value>>,
    /// Resources by type URL and name.
    pub xds: Value,
}
