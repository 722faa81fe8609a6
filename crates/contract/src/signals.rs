//! Signals: counts of calls that agents report, and the rates and latencies that are made of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use signals::{Counter, Sample};

use crate::{observed::ReportingProxies, zones::AskedZone};

/// Traffic of a proxy since its last report, by the names of clusters in statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficReport {
    /// Clusters that lead to what the proxy calls.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outbounds: BTreeMap<String, TrafficCounts>,
    /// Clusters that lead to the application, and prefixes of what permissions refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inbounds: BTreeMap<String, TrafficCounts>,
}

impl TrafficReport {
    pub fn is_empty(&self) -> bool {
        self.outbounds.is_empty() && self.inbounds.is_empty()
    }
}

/// Counts of some calls; absent ones are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TrafficCounts {
    /// Requests, or connections of TCP.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requests: u64,
    /// Answers with a status of 100 to 199.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub responses1xx: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub responses2xx: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub responses3xx: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub responses4xx: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub responses5xx: u64,
    /// Calls of gRPC that ended with `OK`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grpc_ok: u64,
    /// Calls of gRPC that ended with another status.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grpc_failed: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections: u64,
    /// Connections that were not established.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connect_failures: u64,
    /// Requests that one of both sides reset.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resets: u64,
    /// Requests without an answer in time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub timeouts: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u64,
    /// Requests for which no endpoint was healthy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub no_endpoint: u64,
    /// Calls that permissions refused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub denied: u64,
    /// Calls by duration, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<LatencyBucket>,
}

/// Calls of similar duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct LatencyBucket {
    /// Number of the bucket: 0 ends at 1 ms, each of the others at √2 times the end of the one before, 37 never.
    pub bucket: usize,
    pub count: u64,
}

impl From<&Sample> for TrafficCounts {
    fn from(sample: &Sample) -> TrafficCounts {
        TrafficCounts {
            requests: sample.get(Counter::Requests),
            responses1xx: sample.get(Counter::Responses1xx),
            responses2xx: sample.get(Counter::Responses2xx),
            responses3xx: sample.get(Counter::Responses3xx),
            responses4xx: sample.get(Counter::Responses4xx),
            responses5xx: sample.get(Counter::Responses5xx),
            grpc_ok: sample.get(Counter::GrpcOk),
            grpc_failed: sample.get(Counter::GrpcFailed),
            connections: sample.get(Counter::Connections),
            connect_failures: sample.get(Counter::ConnectFailures),
            resets: sample.get(Counter::Resets),
            timeouts: sample.get(Counter::Timeouts),
            retries: sample.get(Counter::Retries),
            no_endpoint: sample.get(Counter::NoEndpoint),
            denied: sample.get(Counter::Denied),
            latency: sample
                .latency
                .buckets()
                .map(|(bucket, count)| LatencyBucket { bucket, count })
                .collect(),
        }
    }
}

impl From<&TrafficCounts> for Sample {
    /// Buckets that do not exist count nothing.
    fn from(counts: &TrafficCounts) -> Sample {
        let TrafficCounts {
            requests,
            responses1xx,
            responses2xx,
            responses3xx,
            responses4xx,
            responses5xx,
            grpc_ok,
            grpc_failed,
            connections,
            connect_failures,
            resets,
            timeouts,
            retries,
            no_endpoint,
            denied,
            latency,
        } = counts;
        let mut sample = Sample::default()
            .with(Counter::Requests, *requests)
            .with(Counter::Responses1xx, *responses1xx)
            .with(Counter::Responses2xx, *responses2xx)
            .with(Counter::Responses3xx, *responses3xx)
            .with(Counter::Responses4xx, *responses4xx)
            .with(Counter::Responses5xx, *responses5xx)
            .with(Counter::GrpcOk, *grpc_ok)
            .with(Counter::GrpcFailed, *grpc_failed)
            .with(Counter::Connections, *connections)
            .with(Counter::ConnectFailures, *connect_failures)
            .with(Counter::Resets, *resets)
            .with(Counter::Timeouts, *timeouts)
            .with(Counter::Retries, *retries)
            .with(Counter::NoEndpoint, *no_endpoint)
            .with(Counter::Denied, *denied);
        latency.iter().for_each(|LatencyBucket { bucket, count }| sample.latency.add_to(*bucket, *count));
        sample
    }
}

/// Rates and latencies of calls in a mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SignalList {
    /// Length of the window.
    pub seconds: u32,
    /// Number of items, of those that were asked for.
    pub total: usize,
    /// The busiest first, from the offset on.
    pub items: Vec<SignalItem>,
    /// Number of reports about pairs that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    pub proxies: ReportingProxies,
    /// On a global control plane, the zones that were asked: by their order the items are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<AskedZone>,
}

/// The traffic of an edge, or of what edges were added up by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SignalItem {
    /// The client of an edge, or a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<SignalClient>,
    /// The destination of an edge, or a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<SignalServer>,
    /// The zone whose proxies counted it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    pub traffic: TrafficRates,
    /// Calls that the workload got, as its own proxies counted them; `traffic` is what it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<TrafficRates>,
}

/// A client as its Dataplane describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SignalClient {
    /// The value of `kuma.io/workload`, or of `kuma.io/service` where there is none.
    pub workload: String,
    /// The first identity in its certificate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
}

/// A destination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct SignalServer {
    /// The identifier of a service or of its port, or the tags of what is called by them.
    pub id: String,
    /// Name for people.
    pub name: String,
}

/// Rates and latencies, with the counts that they are made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TrafficRates {
    /// Requests, or connections of TCP.
    pub per_second: f64,
    /// Share of calls that did not fail, from 0 to 1; absent without calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    /// Absent without latencies, as for TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyQuantiles>,
    /// Counts of the window.
    pub counts: TrafficCounts,
}

/// Durations in milliseconds that a share of the calls did not exceed. Off by at most 20 %.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LatencyQuantiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl LatencyQuantiles {
    fn of(sample: &Sample) -> Option<LatencyQuantiles> {
        Some(LatencyQuantiles {
            p50: sample.latency.quantile(0.5)?,
            p95: sample.latency.quantile(0.95)?,
            p99: sample.latency.quantile(0.99)?,
        })
    }
}

impl TrafficRates {
    pub fn of(sample: &Sample, seconds: u32) -> TrafficRates {
        TrafficRates {
            per_second: sample.get(Counter::Requests) as f64 / f64::from(seconds.max(1)),
            success: sample.success(),
            latency: LatencyQuantiles::of(sample),
            counts: TrafficCounts::from(sample),
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written() {
        let mut sample = Sample::default();
        for (at, counter) in (1..).zip(Counter::ALL) {
            sample.count(counter, at);
        }
        sample.latency.record(7.0, 3);
        sample.latency.record(1e9, 1);
        let written = serde_json::to_string(&TrafficCounts::from(&sample)).unwrap();
        let read: TrafficCounts = serde_json::from_str(&written).unwrap();
        assert_eq!(Sample::from(&read), sample, "{written}");
        assert_eq!(serde_json::to_string(&TrafficCounts::default()).unwrap(), "{}");
    }

    #[test]
    fn rates_are_those_of_the_window() {
        let mut sample = Sample::default()
            .with(Counter::Requests, 120)
            .with(Counter::Responses2xx, 90)
            .with(Counter::Responses5xx, 30);
        sample.latency.record(3.0, 120);
        let rates = TrafficRates::of(&sample, 60);
        assert_eq!((rates.per_second, rates.success), (2.0, Some(0.75)));
        let latency = rates.latency.unwrap();
        assert!(latency.p50 < latency.p99 && (2.0..4.0).contains(&latency.p99), "{latency:?}");
        assert_eq!(TrafficRates::of(&Sample::default(), 60), TrafficRates::default());
    }
}
