//! Insights of Dataplanes and of zone proxies: what they have in common is written by the same code.

use resources::{
    Kind, Spec,
    kinds::{
        dataplane_insight::{DataplaneInsight, DiscoverySubscription},
        zone_proxy_insight::{ZoneEgressInsight, ZoneIngressInsight},
    },
};

/// The kind of the insight of a proxy, by the kind of the resource that describes it.
pub fn of_proxy(kind: Kind) -> Kind {
    kind.descriptor().insight.unwrap_or(Kind::DataplaneInsight)
}

/// The connections that an insight has on record.
pub fn subscriptions(spec: &Spec) -> &[DiscoverySubscription] {
    match spec {
        Spec::DataplaneInsight(insight) => &insight.subscriptions,
        Spec::ZoneIngressInsight(insight) => &insight.subscriptions,
        Spec::ZoneEgressInsight(insight) => &insight.subscriptions,
        _ => &[],
    }
}

/// An insight of any kind as that of a Dataplane, which says the most.
pub fn read(spec: &Spec) -> Option<DataplaneInsight> {
    let (subscriptions, metadata) = match spec {
        Spec::DataplaneInsight(insight) => return Some((**insight).clone()),
        Spec::ZoneIngressInsight(insight) => (&insight.subscriptions, &insight.metadata),
        Spec::ZoneEgressInsight(insight) => (&insight.subscriptions, &insight.metadata),
        _ => return None,
    };
    let subscriptions = subscriptions.clone();
    let metadata = metadata.clone();
    Some(DataplaneInsight { subscriptions, metadata, ..DataplaneInsight::default() })
}

/// The reverse of [`read`].
pub fn spec(kind: Kind, insight: DataplaneInsight) -> Spec {
    let DataplaneInsight { subscriptions, metadata, .. } = &insight;
    match kind {
        Kind::ZoneIngressInsight => Spec::from(ZoneIngressInsight {
            subscriptions: subscriptions.clone(),
            metadata: metadata.clone(),
        }),
        Kind::ZoneEgressInsight => {
            Spec::from(ZoneEgressInsight { subscriptions: subscriptions.clone(), metadata: metadata.clone() })
        }
        _ => Spec::from(insight),
    }
}
