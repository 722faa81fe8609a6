//! Log levels of a proxy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The level of every logger of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ProxyLogLevels {
    /// By the name of the logger.
    pub loggers: BTreeMap<String, String>,
}
