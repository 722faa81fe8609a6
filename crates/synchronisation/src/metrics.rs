//! Synchronisation as metrics: what went over the links, and which links there are.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge},
};
use resources::{Kind, kinds::zone_insight::Presence};
use runtime::metrics::Metrics;

use super::zones::ZoneRegistry;

/// Counts by the kind of resources.
type ByKind = Family<[(&'static str, &'static str); 1], Counter>;

/// Counters of all streams of this process.
#[derive(Debug, Default)]
pub struct SyncMetrics {
    sent: ByKind,
    received: ByKind,
    refused: ByKind,
    rejected: ByKind,
    /// Responses that the peers have not answered yet.
    pub unanswered: Gauge,
    last_received: Gauge,
    last_acknowledged: Gauge,
}

impl SyncMetrics {
    pub fn register(metrics: &Metrics) -> Arc<SyncMetrics> {
        let meter = SyncMetrics::default();
        let help = "Resources sent to peers, by type; deletions included";
        metrics.register("kds_resources_sent", help, meter.sent.clone());
        let help = "Resources received from peers, by type; deletions included";
        metrics.register("kds_resources_received", help, meter.received.clone());
        let help = "Resources received from peers and not stored, by type";
        metrics.register("kds_resources_refused", help, meter.refused.clone());
        let help = "Responses that peers rejected, by type";
        metrics.register("kds_responses_rejected", help, meter.rejected.clone());
        // A first rejection is an increase only where there was a value before.
        for kind in Kind::ALL.iter().filter(|kind| is_synchronised(**kind)) {
            drop(meter.rejected.get_or_create(&[("type", kind.name())]));
        }
        let help = "Responses that peers have not answered yet";
        metrics.register("kds_responses_unanswered", help, meter.unanswered.clone());
        let help = "Last arrival of resources from a peer, in seconds since 1970; 0 before the first";
        metrics.register("kds_last_received_timestamp_seconds", help, meter.last_received.clone());
        let help = "Last response that a peer acknowledged, in seconds since 1970; 0 before the first";
        metrics.register("kds_last_acknowledged_timestamp_seconds", help, meter.last_acknowledged.clone());
        Arc::new(meter)
    }

    pub fn sent(&self, kind: Kind, count: usize) {
        add(&self.sent, kind, count);
    }

    pub fn received(&self, kind: Kind, count: usize, refused: usize) {
        add(&self.received, kind, count);
        add(&self.refused, kind, refused);
        self.last_received.set(Timestamp::now().as_second());
    }

    pub fn acknowledged(&self) {
        self.last_acknowledged.set(Timestamp::now().as_second());
    }

    pub fn rejected(&self, kind: Kind) {
        add(&self.rejected, kind, 1);
    }
}

/// True if resources of this kind go from one control plane to another.
fn is_synchronised(kind: Kind) -> bool {
    let sync = &kind.descriptor().sync;
    sync.global_to_zones || sync.across_zones || sync.zone_to_global
}

fn add(to: &ByKind, kind: Kind, count: usize) {
    if count > 0 {
        to.get_or_create(&[("type", kind.name())]).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

/// Number of zones connected to a global control plane.
pub fn of_global(zones: &Arc<ZoneRegistry>, metrics: &Metrics) {
    let reading = Reading { zones: zones.clone(), what: MetricKind::Zones };
    metrics.register("kds_zones", "Zones, by whether they are connected", reading);
}

/// State of a zone's connection to its global control plane.
pub fn of_zone(zones: &Arc<ZoneRegistry>, zone: &Arc<str>, metrics: &Metrics) {
    let of = |what: fn(Arc<str>) -> MetricKind| Reading { zones: zones.clone(), what: what(zone.clone()) };
    let help = "Connection of this zone to its global control plane: 1 while connected, 0 otherwise";
    metrics.register("kds_global_connected", help, of(MetricKind::Connected));
    let help = "Last change of the connection to the global control plane, in seconds since 1970";
    metrics.register("kds_global_connection_changed_timestamp_seconds", help, of(MetricKind::Changed));
}

/// A metric that is looked up when it is asked for.
#[derive(Clone)]
struct Reading {
    zones: Arc<ZoneRegistry>,
    what: MetricKind,
}

#[derive(Debug, Clone)]
enum MetricKind {
    Zones,
    Connected(Arc<str>),
    Changed(Arc<str>),
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl EncodeMetric for Reading {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match &self.what {
            MetricKind::Zones => {
                let present = self.zones.present();
                for presence in Presence::ALL {
                    let count = present.iter().filter(|(of_zone, _)| *of_zone == presence).count();
                    let labels = [("status", presence.name())];
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
                    encoder.encode_family(&labels)?.encode_gauge(&count)?;
                }
                Ok(())
            }
            MetricKind::Connected(zone) => {
                let connected = self.zones.presence(zone).0 == Presence::Online;
                encoder.encode_gauge(&i64::from(connected))
            }
            MetricKind::Changed(zone) => {
                let since = self.zones.presence(zone).1.map_or(0, |since| since.as_second());
                encoder.encode_gauge(&since)
            }
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_rejection_is_an_increase() {
        let metrics = Metrics::default();
        let meter = SyncMetrics::register(&metrics);
        let series = |count: u64| format!("kds_responses_rejected_total{{type=\"MeshTimeout\"}} {count}\n");
        assert!(metrics.encode().contains(&series(0)), "{}", metrics.encode());
        meter.rejected(Kind::MeshTimeout);
        assert!(metrics.encode().contains(&series(1)), "{}", metrics.encode());
    }
}
