//! Metrics in OpenTelemetry's format.

mod message;

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use prost::Message;

use self::message::{
    CUMULATIVE, Data, ExportRequest, Gauge, Histogram, HistogramDataPoint, InstrumentationScope, KeyValue,
    Metric, NumberDataPoint, Quantile, Resource, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint,
};
use super::{
    APPLICATION,
    exposition::{Families, Family, Sample},
};

/// Largest number of points in one request. A collector takes 4 MiB by default, and a point is some hundred
/// bytes.
const POINTS_OF_A_REQUEST: usize = 4000;

/// Proxy that the metrics belong to.
pub struct Origin<'a> {
    /// `<mesh>.<name>`
    pub instance: &'a str,
    /// Put on every point.
    pub labels: &'a [(String, String)],
    /// Since when counters count, as far as the agent knows.
    pub started: u64,
}

/// Nanoseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or_default()
}

/// Requests to export all families; each application is a scope of its own.
pub fn requests(families: Families, origin: &Origin<'_>) -> Vec<Vec<u8>> {
    let writer = Writer { origin, now: now() };
    let mut requests = Vec::new();
    let mut scopes = BTreeMap::<String, Vec<Metric>>::new();
    let mut points = 0;
    for family in families.into_families() {
        for (scope, samples) in by_scope(&family) {
            let (data, count) = writer.data(&family, &samples);
            if points > 0 && points + count > POINTS_OF_A_REQUEST {
                requests.push(writer.request(std::mem::take(&mut scopes)));
                points = 0;
            }
            points += count;
            let description = family.help.clone().unwrap_or_default();
            let metric = Metric { name: family.name.clone(), description, data: Some(data) };
            scopes.entry(scope).or_default().push(metric);
        }
    }
    if points > 0 {
        requests.push(writer.request(scopes));
    }
    requests
}

fn by_scope(family: &Family) -> BTreeMap<String, Vec<&Sample>> {
    let mut scopes: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        scopes.entry(sample.label(APPLICATION).unwrap_or_default().to_owned()).or_default().push(sample);
    }
    scopes
}

struct Writer<'a> {
    origin: &'a Origin<'a>,
    now: u64,
}

impl Writer<'_> {
    fn request(&self, scopes: BTreeMap<String, Vec<Metric>>) -> Vec<u8> {
        let attributes = [("service.name", "kuma-dp"), ("service.instance.id", self.origin.instance)];
        let resource =
            Resource { attributes: attributes.map(|(key, value)| KeyValue::new(key, value)).into() };
        let scopes = scopes
            .into_iter()
            .map(|(name, metrics)| ScopeMetrics { scope: Some(InstrumentationScope { name }), metrics });
        let metrics = ResourceMetrics { resource: Some(resource), scope_metrics: scopes.collect() };
        ExportRequest { resource_metrics: vec![metrics] }.encode_to_vec()
    }

    /// The points of one family, and how many they are.
    fn data(&self, family: &Family, samples: &[&Sample]) -> (Data, usize) {
        match family.kind.as_deref() {
            Some("histogram") => {
                let data_points: Vec<_> =
                    self.series(samples, "le").iter().map(|s| self.histogram(s)).collect();
                let count = data_points.len();
                (Data::Histogram(Histogram { data_points, aggregation_temporality: CUMULATIVE }), count)
            }
            Some("summary") => {
                let data_points: Vec<_> =
                    self.series(samples, "quantile").iter().map(|s| self.summary(s)).collect();
                let count = data_points.len();
                (Data::Summary(Summary { data_points }), count)
            }
            Some("counter") => {
                let data_points = self.numbers(samples);
                let count = data_points.len();
                let sum = Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true };
                (Data::Sum(sum), count)
            }
            _ => {
                let data_points = self.numbers(samples);
                let count = data_points.len();
                (Data::Gauge(Gauge { data_points }), count)
            }
        }
    }

    fn numbers(&self, samples: &[&Sample]) -> Vec<NumberDataPoint> {
        let point = |sample: &&Sample| {
            Some(NumberDataPoint {
                attributes: self.attributes(sample, ""),
                start_time_unix_nano: self.origin.started,
                time_unix_nano: self.now,
                as_double: Some(number(&sample.value)?),
            })
        };
        samples.iter().filter_map(point).collect()
    }

    /// Samples that belong together: all but `label` of them is the same.
    fn series<'a>(&self, samples: &[&'a Sample], label: &str) -> Vec<Series<'a>> {
        let mut all: BTreeMap<Vec<&(String, String)>, Series<'a>> = BTreeMap::new();
        for sample in samples {
            let mut rest: Vec<_> = sample.labels.iter().filter(|(name, _)| name != label).collect();
            rest.sort();
            let Some(value) = number(&sample.value) else { continue };
            let series = all.entry(rest).or_insert_with(|| Series {
                first: sample,
                parts: Vec::new(),
                sum: 0.0,
                count: 0.0,
            });
            match (sample.suffix.as_str(), sample.label(label).and_then(number)) {
                ("_sum", _) => series.sum = value,
                ("_count", _) => series.count = value,
                (_, Some(part)) => series.parts.push((part, value)),
                _ => {}
            }
        }
        all.into_values().collect()
    }

    fn histogram(&self, series: &Series<'_>) -> HistogramDataPoint {
        let mut buckets = series.parts.clone();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut before = 0;
        let mut bucket_counts = Vec::with_capacity(buckets.len());
        for (_, cumulative) in &buckets {
            let upto = whole(*cumulative);
            bucket_counts.push(upto.saturating_sub(before));
            before = before.max(upto);
        }
        let explicit_bounds: Vec<f64> =
            buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
        // The last bucket has no bound.
        if bucket_counts.len() == explicit_bounds.len() {
            bucket_counts.push(whole(series.count).saturating_sub(before));
        }
        HistogramDataPoint {
            attributes: self.attributes(series.first, "le"),
            start_time_unix_nano: self.origin.started,
            time_unix_nano: self.now,
            count: bucket_counts.iter().sum(),
            sum: Some(series.sum),
            bucket_counts,
            explicit_bounds,
        }
    }

    fn summary(&self, series: &Series<'_>) -> SummaryDataPoint {
        SummaryDataPoint {
            attributes: self.attributes(series.first, "quantile"),
            start_time_unix_nano: self.origin.started,
            time_unix_nano: self.now,
            count: whole(series.count),
            sum: series.sum,
            quantile_values: series
                .parts
                .iter()
                .map(|&(quantile, value)| Quantile { quantile, value })
                .collect(),
        }
    }

    fn attributes(&self, sample: &Sample, without: &str) -> Vec<KeyValue> {
        let own = sample.labels.iter().filter(|(name, _)| name != without && name != APPLICATION);
        let own = own.map(|(name, value)| KeyValue::new(name, &unescaped(value)));
        own.chain(self.origin.labels.iter().map(|(name, value)| KeyValue::new(name, value))).collect()
    }
}

/// Samples that make one point of a histogram or a summary.
struct Series<'a> {
    first: &'a Sample,
    /// Bounds of buckets or quantiles, with their values.
    parts: Vec<(f64, f64)>,
    sum: f64,
    count: f64,
}

/// The value of a sample, which may have a timestamp behind it.
fn number(text: &str) -> Option<f64> {
    match text.split_whitespace().next()? {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        text => text.parse().ok(),
    }
}

/// A count, which cannot be less than nothing.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is cut to what fits")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

fn unescaped(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests;
