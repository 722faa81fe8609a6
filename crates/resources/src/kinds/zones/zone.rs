//! A zone: one control plane and the proxies it configures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoStatus, Schema, Subject, Violations};

/// A zone, and whether traffic may go to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Zone {
    /// Let other zones send traffic to the zone; on by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

impl Zone {
    /// A zone is on unless it was switched off.
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }
}

impl Schema for Zone {
    type Status = NoStatus;

    /// The only field is a switch; every value of it is fine.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Zone;
    use crate::{
        Kind,
        kinds::testing::{round_trips, valid},
    };

    #[test]
    fn a_zone_is_enabled_unless_it_says_otherwise() {
        for (enabled, expect) in [(None, true), (Some(true), true), (Some(false), false)] {
            assert_eq!(Zone { enabled }.is_enabled(), expect);
        }
        valid(Kind::Zone, json!({ "type": "Zone", "name": "east" }));
    }

    #[test]
    fn a_zone_is_written_as_it_was_read() {
        for spec in [json!({}), json!({ "enabled": true }), json!({ "enabled": false })] {
            round_trips(Kind::Zone, spec);
        }
    }
}
