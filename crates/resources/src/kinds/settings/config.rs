//! Settings the control plane keeps for itself, such as the cluster id. Not in the REST API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoStatus, Schema, Subject, Violations};

/// One setting of the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The value of the setting.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config: String,
}

impl Schema for Config {
    type Status = NoStatus;

    /// Written by the control plane only, which has nothing to tell itself.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Kind, kinds::testing::round_trips};

    #[test]
    fn a_setting_is_written_as_it_was_read() {
        round_trips(Kind::Config, json!({ "config": "9a9b6b1d" }));
        round_trips(Kind::Config, json!({}));
    }
}
