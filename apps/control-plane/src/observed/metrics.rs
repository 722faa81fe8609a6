//! What reports cost and lack, as metrics.

use prometheus_client::metrics::counter::Counter;
use runtime::metrics::Metrics;

/// What all reports of this process count.
#[derive(Debug, Clone)]
pub struct Meter {
    reports: Counter,
    unknown: Counter,
    dropped: Counter,
}

impl Meter {
    pub(super) fn register(metrics: &Metrics) -> Meter {
        let counter = |name: &str, help: &str| metrics.register(name, help, Counter::default());
        Meter {
            reports: counter("observed_reports", "Reports of calls that agents sent"),
            unknown: counter(
                "observed_unknown_names",
                "Names in those reports that this control plane did not give to the proxy, which are left out",
            ),
            dropped: counter(
                "observed_edges_dropped",
                "Observed calls between a new pair of client and destination, left out because the mesh has too many",
            ),
        }
    }

    pub(super) fn report(&self, dropped: u64) {
        self.reports.inc();
        self.dropped.inc_by(dropped);
    }

    /// Names of a report that mean nothing here.
    pub fn unknown_names(&self, count: u64) {
        self.unknown.inc_by(count);
    }
}
