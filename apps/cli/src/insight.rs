//! Connections in insights: of proxies and of zones alike.

use contract::{
    lenient::read_partly,
    overview::{DataplaneOverview, ZoneEgressOverview, ZoneIngressOverview, ZoneOverview},
};
use jiff::Timestamp;
use resources::{
    Kind,
    kinds::{
        dataplane_insight::{DiscoverySubscription, ProxyVersion, ResponseCounts},
        proto::Struct,
        zone_insight::KdsSubscription,
    },
    naming,
};
use serde_json::Value;

use crate::cell::ago;

/// A connection on record.
pub trait Subscription {
    fn connect_time(&self) -> Option<Timestamp>;
    fn disconnect_time(&self) -> Option<Timestamp>;
    fn last_update_time(&self) -> Option<Timestamp>;
    /// Responses of all types.
    fn total(&self) -> ResponseCounts;
}

impl Subscription for DiscoverySubscription {
    fn connect_time(&self) -> Option<Timestamp> {
        self.connect_time
    }

    fn disconnect_time(&self) -> Option<Timestamp> {
        self.disconnect_time
    }

    fn last_update_time(&self) -> Option<Timestamp> {
        self.status.as_ref()?.last_update_time
    }

    fn total(&self) -> ResponseCounts {
        self.status.as_ref().map(|status| status.total.clone()).unwrap_or_default()
    }
}

impl Subscription for KdsSubscription {
    fn connect_time(&self) -> Option<Timestamp> {
        self.connect_time
    }

    fn disconnect_time(&self) -> Option<Timestamp> {
        self.disconnect_time
    }

    fn last_update_time(&self) -> Option<Timestamp> {
        self.status.as_ref()?.last_update_time
    }

    fn total(&self) -> ResponseCounts {
        self.status.as_ref().map(|status| status.total.clone()).unwrap_or_default()
    }
}

/// The newest connection of a proxy or a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connection {
    pub online: bool,
    pub connect_time: Option<Timestamp>,
    pub disconnect_time: Option<Timestamp>,
}

impl Connection {
    /// As an overview shows it, whose insight is of this kind.
    pub fn of(insight: Kind, overview: &Value) -> Connection {
        match insight {
            Kind::DataplaneInsight => {
                let overview: DataplaneOverview = read_partly(overview);
                Connection::newest(&overview.dataplane_insight.subscriptions)
            }
            Kind::ZoneInsight => {
                let overview: ZoneOverview = read_partly(overview);
                Connection::newest(&overview.zone_insight.subscriptions)
            }
            Kind::ZoneIngressInsight => {
                let overview: ZoneIngressOverview = read_partly(overview);
                Connection::newest(&overview.zone_ingress_insight.subscriptions)
            }
            Kind::ZoneEgressInsight => {
                let overview: ZoneEgressOverview = read_partly(overview);
                Connection::newest(&overview.zone_egress_insight.subscriptions)
            }
            _ => Connection::default(),
        }
    }

    pub fn newest<S: Subscription>(subscriptions: &[S]) -> Connection {
        let latest = latest(subscriptions);
        Connection {
            online: is_online(subscriptions),
            connect_time: latest.and_then(S::connect_time),
            disconnect_time: latest.and_then(S::disconnect_time),
        }
    }
}

/// By the newest connection: one before it may be open on record only because a control plane was killed.
pub fn is_online<S: Subscription>(subscriptions: &[S]) -> bool {
    latest(subscriptions).is_some_and(|latest| latest.disconnect_time().is_none())
}

/// The newest connection.
pub fn latest<S: Subscription>(subscriptions: &[S]) -> Option<&S> {
    subscriptions.iter().rev().find(|subscription| subscription.connect_time().is_some())
}

/// Versions of a proxy's programs, as they were on the newest connection.
pub fn version(subscriptions: &[DiscoverySubscription]) -> ProxyVersion {
    latest(subscriptions).and_then(|latest| latest.version.clone()).unwrap_or_default()
}

pub fn last_connected<S: Subscription>(subscriptions: &[S]) -> String {
    match latest(subscriptions) {
        None => "never".to_owned(),
        Some(latest) => ago(latest.connect_time()),
    }
}

/// The newest update, on whichever connection it came.
pub fn last_updated<S: Subscription>(subscriptions: &[S]) -> String {
    match subscriptions.iter().filter_map(S::last_update_time).max() {
        None => "never".to_owned(),
        newest => ago(newest),
    }
}

/// A count of all connections together.
pub fn total<S: Subscription>(subscriptions: &[S], count: fn(&ResponseCounts) -> u64) -> String {
    let counts = subscriptions.iter().map(|subscription| count(&subscription.total()));
    counts.fold(0, u64::saturating_add).to_string()
}

/// `unified`, `legacy`, or nothing for a proxy that never said.
pub fn naming(metadata: &Struct) -> String {
    let Some(features) = metadata.get("features").and_then(Value::as_array) else {
        return String::new();
    };
    let unified = naming::unified_naming(features.iter().filter_map(Value::as_str));
    if unified { "unified" } else { "legacy" }.to_owned()
}
