//! The metrics of this process, in the text form Prometheus reads.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, text},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Metric, Registry},
};

/// Content type of `/metrics`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Collects metrics; clones share one registry.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<Registry>,
    described: Mutex<Vec<MetricDescription>>,
    auth_failures: OnceLock<AuthFailures>,
    certificate_expiries: OnceLock<CertificateExpiries>,
}

/// A metric as the reference documents it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricDescription {
    /// As Prometheus names its series, without the suffixes of histograms.
    pub name: String,
    /// `counter`, `gauge`, `histogram`, …
    pub kind: &'static str,
    pub help: String,
}

impl Metrics {
    /// Registers a metric and gives it back, so that declaring and registering is one expression.
    /// A counter's name gets its `_total` when it is written out.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let described = MetricDescription::of(name, help, metric.metric_type());
        self.0.described.lock().unwrap_or_else(PoisonError::into_inner).push(described);
        let mut registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help, metric.clone());
        metric
    }

    /// Registers facts that stay the same, as the labels of a metric whose value is 1. Its name gets `_info`.
    pub fn register_info(&self, name: &str, help: &str, labels: Vec<(&'static str, String)>) {
        let info = Info::new(labels);
        let described = MetricDescription::of(name, help, info.metric_type());
        self.0.described.lock().unwrap_or_else(PoisonError::into_inner).push(described);
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner).register(name, help, info);
    }

    /// Every metric's current value as text.
    pub fn encode(&self) -> String {
        let mut encoded = String::new();
        let registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing into a string does not fail.
        let _ = text::encode(&mut encoded, &registry);
        encoded
    }

    /// Every registered metric, by name: also those without a value yet, which are not written out.
    pub fn described(&self) -> Vec<MetricDescription> {
        let mut described = self.0.described.lock().unwrap_or_else(PoisonError::into_inner).clone();
        described.sort();
        described
    }

    /// Counts callers that could not prove who they are. All servers of a process share one metric.
    pub fn auth_failures(&self) -> AuthFailures {
        let register = || {
            let help = "Callers that failed to authenticate, by server and reason";
            self.register("auth_failures", help, AuthFailures::default().0)
        };
        AuthFailures(self.0.auth_failures.get_or_init(|| AuthFailures(register())).0.clone())
    }

    /// Expiry of the certificates that this process shows. All servers of a process share one metric.
    pub fn certificate_expiries(&self) -> CertificateExpiries {
        let register = || {
            let help = "Expiry of the TLS certificate of a server of this process, in seconds since 1970";
            let expiries = CertificateExpiries::default().0;
            self.register("tls_certificate_expiry_timestamp_seconds", help, expiries)
        };
        CertificateExpiries(
            self.0.certificate_expiries.get_or_init(|| CertificateExpiries(register())).0.clone(),
        )
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl MetricDescription {
    fn of(name: &str, help: &str, kind: MetricType) -> MetricDescription {
        let (suffix, kind) = match kind {
            MetricType::Counter => ("_total", "counter"),
            MetricType::Gauge => ("", "gauge"),
            MetricType::Histogram => ("", "histogram"),
            MetricType::Info => ("_info", "info"),
            _ => ("", "counter"),
        };
        MetricDescription { name: format!("{name}{suffix}"), kind, help: help.to_owned() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    server: &'static str,
    reason: &'static str,
}

/// Callers that could not prove who they are. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct AuthFailures(Family<FailureLabels, Counter>);

impl AuthFailures {
    /// Counts one. `server` is `api_server`, `dp_server` or `kds_server`; `reason` is a short word such as `expired`.
    pub fn with(&self, server: &'static str, reason: &'static str) {
        self.0.get_or_create(&FailureLabels { server, reason }).inc();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabels {
    server: &'static str,
}

/// Expiry of the certificates of servers. Clones share the values.
#[derive(Debug, Clone, Default)]
pub struct CertificateExpiries(Family<ServerLabels, Gauge>);

impl CertificateExpiries {
    /// Notes the certificate that a server shows from now on.
    pub fn set(&self, server: &'static str, seconds_since_1970: i64) {
        self.0.get_or_create(&ServerLabels { server }).set(seconds_since_1970);
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn servers_share_metrics_of_failed_logins_and_of_certificates() {
        let metrics = Metrics::default();
        metrics.auth_failures().with("api_server", "expired");
        metrics.clone().auth_failures().with("api_server", "expired");
        metrics.auth_failures().with("kds_server", "revoked");
        metrics.certificate_expiries().set("dp_server", 1_800_000_000);
        metrics.certificate_expiries().set("dp_server", 1_900_000_000);
        let text = metrics.encode();
        assert_eq!(text.matches("# TYPE auth_failures counter").count(), 1, "{text}");
        assert!(text.contains("auth_failures_total{server=\"api_server\",reason=\"expired\"} 2"), "{text}");
        assert!(text.contains("auth_failures_total{server=\"kds_server\",reason=\"revoked\"} 1"), "{text}");
        let expiry = "tls_certificate_expiry_timestamp_seconds{server=\"dp_server\"} 1900000000";
        assert!(text.contains(expiry), "{text}");
        let names: Vec<String> = metrics.described().into_iter().map(|metric| metric.name).collect();
        assert_eq!(names, ["auth_failures_total", "tls_certificate_expiry_timestamp_seconds"]);
    }
}
