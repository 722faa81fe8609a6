//! What a zone egress proxy's connection to the control plane looks like.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Schema, Subject, Violations,
    kinds::{dataplane_insight::DiscoverySubscription, proto::Struct},
};

/// The observed state of a zone egress proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneEgressInsight {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<DiscoverySubscription>,
    /// The metadata of the proxy's Envoy node, as it was sent.
    #[serde(skip_serializing_if = "Struct::is_empty")]
    pub metadata: Struct,
}

impl ZoneEgressInsight {
    pub fn is_online(&self) -> bool {
        self.subscriptions.iter().any(DiscoverySubscription::is_online)
    }
}

impl Schema for ZoneEgressInsight {
    type Status = NoStatus;

    /// Written by the control plane only, which has nothing to tell itself.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        Kind,
        kinds::{dataplane_insight::tests::subscription, testing::round_trips},
    };

    #[test]
    fn a_full_insight_is_written_as_it_was_read() {
        round_trips(
            Kind::ZoneEgressInsight,
            json!({ "subscriptions": [subscription()], "metadata": { "dataplane.proxyType": "egress" } }),
        );
        round_trips(Kind::ZoneEgressInsight, json!({}));
    }
}
