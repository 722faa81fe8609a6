//! Connections of zone ingress and zone egress proxies to the control plane.
//!
//! The two are the same but for their kind, and a kind has a type of its own; hence the macro.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Schema, Subject, Violations,
    kinds::{dataplane_insight::DiscoverySubscription, proto::Struct},
};

macro_rules! zone_proxy_insight {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            /// The proxy's connections, the current one last.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub subscriptions: Vec<DiscoverySubscription>,
            /// The metadata of the proxy's Envoy node, without a Dataplane in it, and at most 16 KiB of it.
            #[serde(skip_serializing_if = "Struct::is_empty")]
            pub metadata: Struct,
        }

        impl $name {
            pub fn is_online(&self) -> bool {
                self.subscriptions.iter().any(DiscoverySubscription::is_online)
            }
        }

        impl Schema for $name {
            type Status = NoStatus;

            /// Written by the control plane only, which has nothing to tell itself.
            fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
        }
    };
}

zone_proxy_insight! {
    /// The observed state of a zone ingress proxy.
    ZoneIngressInsight
}

zone_proxy_insight! {
    /// The observed state of a zone egress proxy.
    ZoneEgressInsight
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        Kind,
        kinds::{dataplane_insight::tests::subscription, testing::round_trips},
    };

    #[test]
    fn full_insights_are_written_as_they_were_read() {
        for (kind, proxy_type) in [(Kind::ZoneIngressInsight, "ingress"), (Kind::ZoneEgressInsight, "egress")]
        {
            let metadata = json!({ "dataplane.proxyType": proxy_type });
            round_trips(kind, json!({ "subscriptions": [subscription()], "metadata": metadata }));
            round_trips(kind, json!({}));
        }
    }
}
