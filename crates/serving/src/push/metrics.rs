//! Metrics of the loop and its streams, read from the counters they have anyway.

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use resources::naming::choice;
use runtime::metrics::Metrics;
use xds::Type;

use super::{Push, meter::Confirmation};

/// Lets `/metrics` tell how many proxies are connected, how often they are woken, and what was encoded.
pub fn register(push: &Arc<Push>, metrics: &Metrics) {
    let of = |what| Reading { push: push.clone(), what };
    let help = "Resources encoded, by type; each is encoded once and shared by all proxies that get it";
    metrics.register("xds_resources_encoded", help, of(MetricKind::Encoded));
    metrics.register(
        "xds_proxies_woken",
        "Wake-ups of connected proxies by changes that affect them",
        of(MetricKind::Woken),
    );
    metrics.register(
        "xds_proxies_connected",
        "Proxies connected to this control plane",
        of(MetricKind::Connected),
    );
    let help = "Sidecars connected to this control plane, by mesh";
    metrics.register("xds_mesh_proxies_connected", help, of(MetricKind::ConnectedByMesh));
    let help = "Connected proxies by mesh and by their names in Envoy, legacy or unified; zone proxies have an empty mesh";
    metrics.register("xds_proxies_naming", help, of(MetricKind::Naming));
    let help = "Classes of connected proxies that share their outbounds; each is planned once";
    metrics.register("xds_proxy_classes", help, of(MetricKind::Classes));
    register_streams(push, metrics, of);
}

fn register_streams(push: &Arc<Push>, metrics: &Metrics, of: impl Fn(MetricKind) -> Reading) {
    let meter = push.meter();
    // These three are named as in Kuma, without the suffix of counters.
    metrics.register("xds_streams_active", "Open discovery streams of proxies", of(MetricKind::Connected));
    let help = "Discovery responses sent to proxies, by type URL";
    metrics.register("xds_responses_sent", help, of(MetricKind::Responses));
    let help =
        "Answers of proxies to discovery responses, by type URL and outcome (ACK, or NACK for a rejection)";
    metrics.register("xds_requests_received", help, of(MetricKind::Answers));
    let help = "Duration of a push, from the stored change until a connected proxy has acknowledged or rejected all of it";
    metrics.register("xds_delivery_duration_seconds", help, meter.delivery.clone());
    let help = "Duration of computing the configuration of a proxy, without waiting in the queue";
    metrics.register("xds_generation_duration_seconds", help, meter.generation.clone());
    let help = "Connected proxies that have not yet acknowledged or rejected all of a push";
    metrics.register("xds_proxies_delivering", help, of(MetricKind::Delivering));
    let help = "Age of the oldest push that a connected proxy has not fully answered; 0 without any";
    metrics.register("xds_oldest_delivery_seconds", help, of(MetricKind::OldestDelivery));
    let help = "Connected proxies that reject part of their configuration";
    metrics.register("xds_proxies_rejecting", help, meter.rejecting.clone());
    let help = "Earliest expiry among the certificates of connected proxies, in seconds since 1970";
    metrics.register(
        "proxy_certificate_soonest_expiry_timestamp_seconds",
        help,
        of(MetricKind::SoonestExpiry),
    );
}

/// A metric that is looked up when it is read.
#[derive(Clone)]
struct Reading {
    push: Arc<Push>,
    what: MetricKind,
}

#[derive(Debug, Clone, Copy)]
enum MetricKind {
    Encoded,
    Woken,
    Connected,
    ConnectedByMesh,
    Naming,
    Classes,
    Responses,
    Answers,
    Delivering,
    OldestDelivery,
    SoonestExpiry,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

impl EncodeMetric for Reading {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self.what {
            MetricKind::Encoded => Type::ALL.into_iter().try_for_each(|kind| {
                let labels = [("type", format!("{kind:?}").to_lowercase())];
                let count = self.push.encoder().encoded(kind);
                encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
            }),
            MetricKind::Woken => encoder.encode_counter::<NoLabelSet, _, u64>(&self.push.woken(), None),
            MetricKind::Classes => encoder.encode_gauge(&self.push.classes()),
            MetricKind::Connected => encoder.encode_gauge(&self.push.connected()),
            MetricKind::ConnectedByMesh => {
                self.push.connected_by_mesh().into_iter().try_for_each(|(mesh, count)| {
                    encoder.encode_family(&[("mesh", &*mesh)])?.encode_gauge(&count)
                })
            }
            MetricKind::Naming => self.push.meter().naming().into_iter().try_for_each(|(named, count)| {
                let labels = [("mesh", &*named.mesh), ("scheme", choice::scheme(named.unified))];
                encoder.encode_family(&labels)?.encode_gauge(&count)
            }),
            MetricKind::Responses => Type::ALL.into_iter().try_for_each(|kind| {
                let count = self.push.meter().responses(kind);
                encoder.encode_family(&[("type_url", kind.url())])?.encode_gauge(&count)
            }),
            MetricKind::Answers => Type::ALL.into_iter().try_for_each(|kind| {
                [(Confirmation::Ack, "ACK"), (Confirmation::Nack, "NACK")].into_iter().try_for_each(
                    |(confirmation, name)| {
                        let labels = [("type_url", kind.url()), ("confirmation", name)];
                        let count = self.push.meter().answers(kind, confirmation);
                        encoder.encode_family(&labels)?.encode_gauge(&count)
                    },
                )
            }),
            MetricKind::Delivering => encoder.encode_gauge(&self.push.meter().delivering()),
            MetricKind::OldestDelivery => {
                encoder.encode_gauge(&self.push.meter().oldest_delivery().as_secs_f64())
            }
            MetricKind::SoonestExpiry => match self.push.meter().soonest_expiry() {
                Some(expires) => encoder.encode_gauge(&expires.as_second()),
                None => Ok(()),
            },
        }
    }

    fn metric_type(&self) -> MetricType {
        match self.what {
            MetricKind::Encoded | MetricKind::Woken => MetricType::Counter,
            // Counters whose names must stay as they are.
            MetricKind::Responses | MetricKind::Answers => MetricType::Unknown,
            MetricKind::Connected
            | MetricKind::ConnectedByMesh
            | MetricKind::Naming
            | MetricKind::Classes
            | MetricKind::Delivering
            | MetricKind::OldestDelivery
            | MetricKind::SoonestExpiry => MetricType::Gauge,
        }
    }
}
