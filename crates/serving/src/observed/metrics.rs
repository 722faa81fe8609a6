//! Metrics of reports, of edges that they lack, and of calls that trimming would take away.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use runtime::metrics::Metrics;
use topology::observed::{Edge, destination_text};

/// Number of pairs of client and destination that are counted by name; the others are counted together.
const MAX_PAIRS: usize = 1_000;
/// The client and the destination of all others.
const OTHER: &str = "other";

/// Counts over all reports of this process.
#[derive(Debug)]
pub struct ReportMetrics {
    reports: Counter,
    refused: Counter,
    unknown: Counter,
    dropped: Counter,
    shadowed: ShadowedCalls,
}

/// Calls of proxies in mode `shadow` to what they may not call.
#[derive(Debug, Default)]
struct ShadowedCalls {
    counts: Family<Pair, Counter>,
    named: Mutex<HashSet<Pair>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pair {
    mesh: String,
    client: String,
    destination: String,
}

impl ReportMetrics {
    pub(super) fn register(metrics: &Metrics) -> ReportMetrics {
        let counter = |name: &str, help: &str| metrics.register(name, help, Counter::default());
        let shadowed = ShadowedCalls::default();
        metrics.register(
            "reachability_shadowed",
            "Calls of proxies in mode shadow to destinations that would be trimmed, by client and destination",
            shadowed.counts.clone(),
        );
        ReportMetrics {
            reports: counter("observed_reports", "Reports of observed calls from agents"),
            refused: counter(
                "observed_reports_refused",
                "Reports of observed calls that came too soon after others of the same proxy",
            ),
            unknown: counter(
                "observed_unknown_names",
                "Names in reports of observed calls that this control plane did not send to the proxy; they are left out",
            ),
            dropped: counter(
                "observed_edges_dropped",
                "Observed calls between a new pair of client and destination, left out because the mesh has too many",
            ),
            shadowed,
        }
    }

    pub(super) fn report(&self, dropped: u64) {
        self.reports.inc();
        self.dropped.inc_by(dropped);
    }

    /// A report came too soon.
    pub fn refused(&self) {
        self.refused.inc();
    }

    /// Names of a report that mean nothing here.
    pub fn unknown_names(&self, count: u64) {
        self.unknown.inc_by(count);
    }

    /// Calls that would not be possible if the outbounds of the client were trimmed.
    pub fn shadowed(&self, mesh: &str, edge: &Edge, count: u64) {
        let pair = |client: String, destination: String| Pair { mesh: mesh.to_owned(), client, destination };
        let named = pair(edge.caller.to_string(), destination_text(&edge.destination));
        let counted =
            if self.shadowed.names(&named) { named } else { pair(OTHER.to_owned(), OTHER.to_owned()) };
        self.shadowed.counts.get_or_create(&counted).inc_by(count);
    }
}

impl ShadowedCalls {
    /// True if a pair is counted by name.
    fn names(&self, pair: &Pair) -> bool {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.contains(pair) {
            return true;
        }
        let room = named.len() < MAX_PAIRS;
        if room {
            named.insert(pair.clone());
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use topology::{DestinationId, observed::Caller};

    use super::*;

    #[test]
    fn there_is_an_end_to_pairs_that_are_counted_by_name() {
        let metrics = Metrics::default();
        let meter = ReportMetrics::register(&metrics);
        for round in 0..2 {
            for number in 0..MAX_PAIRS + 5 {
                let kri = format!("kri_msvc_default___backend-{number}_80").parse().unwrap();
                let edge = Edge { caller: Caller::Outside, destination: DestinationId::Port(kri) };
                meter.shadowed("default", &edge, round + 1);
            }
        }
        let text = metrics.encode();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("reachability_shadowed_total{")).count(),
            MAX_PAIRS + 1
        );
        let others =
            "reachability_shadowed_total{mesh=\"default\",client=\"other\",destination=\"other\"} 15";
        assert!(text.contains(others), "{text}");
        assert!(text.contains("destination=\"kri_msvc_default___backend-7_80\"} 3"), "{text}");
    }
}
