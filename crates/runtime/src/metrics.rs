//! The metrics of this process, in the text form Prometheus reads.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::text,
    registry::{Metric, Registry},
};

/// What `/metrics` answers as its content type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Collects metrics; clones share one registry.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Registers a metric and gives it back, so that declaring and registering is one expression.
    /// A counter's name gets its `_total` when it is written out.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).register(name, help, metric.clone());
        metric
    }

    /// Every metric's current value as text.
    pub fn encode(&self) -> String {
        let mut encoded = String::new();
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing into a string does not fail.
        let _ = text::encode(&mut encoded, &registry);
        encoded
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn a_registered_metric_is_written_with_its_help_and_value() {
        let metrics = Metrics::default();
        let requests: Counter = metrics.register("api_requests", "Requests answered", Counter::default());
        requests.inc_by(3);
        let text = metrics.clone().encode();
        assert!(text.contains("# HELP api_requests Requests answered."), "{text}");
        assert!(text.contains("api_requests_total 3"), "{text}");
    }
}
