//! How much is wrong, as a metric.

use std::{
    collections::BTreeMap,
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
    let help = "What may be wrong, by mesh, code and severity; kumactl analyze lists it";
    metrics.register("findings", help, Reading(Arc::downgrade(findings)));
}

/// Counted when metrics are scraped.
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
            let mut counts: BTreeMap<_, u64> = BTreeMap::new();
            for finding in findings.list(&mesh, Timestamp::now()) {
                *counts.entry(finding.code).or_default() += 1;
            }
            for (code, count) in counts {
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
