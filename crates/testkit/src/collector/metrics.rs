//! Metrics of OpenTelemetry's protocol, as far as they are looked at.

use prost::{Message, Oneof};

use super::{
    MetricKind, Point,
    otlp::{KeyValue, texts},
};

#[derive(Clone, PartialEq, Message)]
struct Metrics {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<MetricsOf>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricsOf {
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<MetricsIn>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricsIn {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Data {
    #[prost(message, tag = "5")]
    Gauge(Numbers),
    #[prost(message, tag = "7")]
    Sum(Numbers),
    #[prost(message, tag = "9")]
    Histogram(Histograms),
}

#[derive(Clone, PartialEq, Message)]
struct Numbers {
    #[prost(message, repeated, tag = "1")]
    points: Vec<Number>,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Histograms {
    #[prost(message, repeated, tag = "1")]
    points: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

/// All points of a request; `None` if it cannot be read, or is of another kind of metrics.
pub fn points(message: &[u8]) -> Option<Vec<Point>> {
    let mut found = Vec::new();
    for of in Metrics::decode(message).ok()?.resources.into_iter().flat_map(|of| of.scopes) {
        let scope = of.scope.map(|scope| scope.name).unwrap_or_default();
        for metric in of.metrics {
            let numbers =
                |numbers: Numbers| numbers.points.into_iter().map(|point| point.attributes).collect();
            let (kind, points): (_, Vec<_>) = match metric.data? {
                Data::Gauge(points) => (MetricKind::Gauge, numbers(points)),
                Data::Sum(points) => (MetricKind::Sum, numbers(points)),
                Data::Histogram(of) => {
                    (MetricKind::Histogram, of.points.into_iter().map(|point| point.attributes).collect())
                }
            };
            let point = |attributes: Vec<KeyValue>| Point {
                scope: scope.clone(),
                metric: metric.name.clone(),
                kind,
                attributes: texts(&attributes),
            };
            found.extend(points.into_iter().map(point));
        }
    }
    Some(found)
}
