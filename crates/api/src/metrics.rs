//! Durations of requests.

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};
use runtime::metrics::{AuthFailures, Metrics as Registry};

const BUCKETS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

/// The handler of requests that no route matched, so that guessed paths do not become labels.
pub const NO_ROUTE: &str = "none";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    handler: String,
    method: String,
    code: u16,
}

/// Measurements of the API about itself.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    durations: Family<Labels, Histogram>,
    watches_ended: Family<WatchLabels, Counter>,
    event_streams: Gauge,
    event_streams_ended: Family<WatchLabels, Counter>,
    auth_failures: AuthFailures,
}

/// A stream of events that is counted as open until this is dropped.
#[derive(Debug)]
pub struct OpenEventStream(Gauge);

impl Drop for OpenEventStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    reason: &'static str,
}

impl ApiMetrics {
    pub fn register(registry: &Registry) -> Self {
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let help = "Duration of requests to the REST API, by route, method and status";
        let ended = "Watches of the REST API that ended or were refused, by reason";
        let streams = "Open streams of events";
        let streams_ended = "Streams of events that ended or were refused, by reason";
        ApiMetrics {
            durations: registry.register("api_server_http_request_duration_seconds", help, durations),
            watches_ended: registry.register("api_server_watches_ended", ended, Family::default()),
            event_streams: registry.register("api_server_event_streams", streams, Gauge::default()),
            event_streams_ended: registry.register(
                "api_server_event_streams_ended",
                streams_ended,
                Family::default(),
            ),
            auth_failures: registry.auth_failures(),
        }
    }

    pub fn watch_ended(&self, reason: &'static str) {
        self.watches_ended.get_or_create(&WatchLabels { reason }).inc();
    }

    pub fn event_stream_begun(&self) -> OpenEventStream {
        self.event_streams.inc();
        OpenEventStream(self.event_streams.clone())
    }

    pub fn event_stream_ended(&self, reason: &'static str) {
        self.event_streams_ended.get_or_create(&WatchLabels { reason }).inc();
    }

    /// Counts a caller whose token was refused.
    pub fn auth_failed(&self, reason: &'static str) {
        self.auth_failures.with("api_server", reason);
    }

    pub fn observe(&self, handler: &str, method: &Method, code: StatusCode, took: Duration) {
        // Methods are the client's choice: only known ones may become labels.
        let method = match method.as_str() {
            known @ ("GET" | "HEAD" | "PUT" | "POST" | "DELETE" | "PATCH" | "OPTIONS") => known,
            _ => "other",
        };
        let labels = Labels { handler: handler.to_owned(), method: method.to_owned(), code: code.as_u16() };
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }
}
