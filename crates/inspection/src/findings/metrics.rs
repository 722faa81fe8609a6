//! Metrics of findings, and of the times at which authorities of meshes expire.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder},
    metrics::MetricType,
};
use runtime::metrics::Metrics;

use super::Findings;

/// Lets `/metrics` tell how many findings there are, by mesh and code.
pub(super) fn register(findings: &Arc<Findings>, metrics: &Metrics) {
    let help = "Findings, by mesh, code and severity; kumactl analyze lists them";
    metrics.register("findings", help, Reading(Arc::downgrade(findings)));
    let help = "Expiry of a certificate authority that proxies of a mesh trust, in seconds since 1970; backend is its \
                name, or the KRI of its MeshIdentity";
    let expiries = AuthorityExpiries(Arc::downgrade(findings));
    metrics.register("mesh_ca_expiry_timestamp_seconds", help, expiries);
}

/// Looked up when it is read. An authority is parsed once per change of its secrets.
#[derive(Clone)]
struct AuthorityExpiries(Weak<Findings>);

impl fmt::Debug for AuthorityExpiries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mesh_ca_expiry_timestamp_seconds")
    }
}

impl EncodeMetric for AuthorityExpiries {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(findings) = self.0.upgrade() else { return Ok(()) };
        findings.authority_expiries(Timestamp::now()).into_iter().try_for_each(|(mesh, backend, expires)| {
            let labels = [("mesh", &*mesh), ("backend", &*backend)];
            encoder.encode_family(&labels)?.encode_gauge(&expires.as_second())
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// Counted when it is read.
#[derive(Clone)]
struct Reading(Weak<Findings>);

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("findings")
    }
}

impl EncodeMetric for Reading {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(findings) = self.0.upgrade() else { return Ok(()) };
        for mesh in findings.names() {
            for (code, count) in findings.listing(&mesh, Timestamp::now(), |_| true).counts() {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                let labels = [("mesh", &*mesh), ("code", code.name()), ("severity", code.severity().name())];
                encoder.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
