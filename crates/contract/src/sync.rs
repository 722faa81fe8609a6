//! The state of a proxy towards the changes made so far.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Position of a proxy among the changes made before the question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxySyncState {
    /// It has acknowledged all of them that affect it.
    Synced,
    /// It has not been sent all of them, or has not answered yet.
    Behind,
    /// It has answered, and rejected something.
    Rejected,
    /// It is not connected to this control plane; its insight says whether it is connected to another.
    #[default]
    Unknown,
}

/// The answer about one proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct ProxySync {
    pub state: ProxySyncState,
}
