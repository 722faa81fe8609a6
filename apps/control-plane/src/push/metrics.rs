//! What the loop costs, as metrics: read from the counters it has anyway.

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use runtime::metrics::Metrics;
use xds::Type;

use super::Push;

/// Lets `/metrics` tell how many proxies are connected, how often they are woken, and what was encoded.
pub fn register(push: &Arc<Push>, metrics: &Metrics) {
    let of = |what| Reading { push: push.clone(), what };
    let help = "Resources encoded, by type; each is encoded once and shared by all proxies that get it";
    metrics.register("xds_resources_encoded", help, of(What::Encoded));
    metrics.register("xds_proxies_woken", "How often a change concerned a connected proxy", of(What::Woken));
    metrics.register("xds_proxies_connected", "Proxies connected to this control plane", of(What::Connected));
    let help = "Classes of connected proxies that share their outbounds; each is planned once";
    metrics.register("xds_proxy_classes", help, of(What::Classes));
}

/// A metric that is looked up when it is scraped.
#[derive(Clone)]
struct Reading {
    push: Arc<Push>,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Encoded,
    Woken,
    Connected,
    Classes,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl EncodeMetric for Reading {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self.what {
            What::Encoded => Type::ALL.into_iter().try_for_each(|kind| {
                let labels = [("type", format!("{kind:?}").to_lowercase())];
                let count = self.push.encoder().encoded(kind);
                encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
            }),
            What::Woken => encoder.encode_counter::<NoLabelSet, _, u64>(&self.push.woken(), None),
            What::Classes => encoder.encode_gauge(&self.push.classes()),
            What::Connected => encoder.encode_gauge(&self.push.connected()),
        }
    }

    fn metric_type(&self) -> MetricType {
        match self.what {
            What::Encoded | What::Woken => MetricType::Counter,
            What::Connected | What::Classes => MetricType::Gauge,
        }
    }
}
