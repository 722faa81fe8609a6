//! Metrics of the DNS server, under the names that Kuma's agent gives them.

use std::{sync::atomic::AtomicI64, time::Duration};

use hickory_proto::rr::RecordType;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};
use runtime::metrics::Metrics;

/// Seconds: a name of the mesh takes microseconds, a resolver up to seconds.
const BUCKETS: [f64; 14] =
    [0.000_01, 0.000_1, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Origin of an answer.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    Mesh,
    Resolver,
}

/// Reasons for not looking at a query.
#[derive(Debug, Clone, Copy)]
pub enum RefusalReason {
    Malformed,
    /// Too many others wait for resolvers.
    TooMany,
    /// It is one that this server sent to a resolver.
    Returned,
    /// It comes from no virtual network of this machine.
    Outside,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueryLabels {
    qtype: &'static str,
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    rcode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone)]
pub struct DnsMetrics {
    pub entries: Gauge,
    answers: Histogram,
    resolvers: Histogram,
    /// Counts, but is no counter: Kuma's name for it has not the ending that counters get.
    failures: Gauge<i64, AtomicI64>,
    queries: Family<QueryLabels, Counter>,
    codes: Family<CodeLabels, Counter>,
    refused: Family<ReasonLabels, Counter>,
}

impl DnsMetrics {
    pub fn register(metrics: &Metrics) -> DnsMetrics {
        DnsMetrics {
            entries: metrics.register(
                "kuma_dp_dns_entries_total",
                "Names of the mesh in the DNS server",
                Gauge::default(),
            ),
            answers: metrics.register(
                "kuma_dp_dns_request_duration_seconds",
                "Duration of answers, those of resolvers included",
                Histogram::new(BUCKETS),
            ),
            resolvers: metrics.register(
                "kuma_dp_dns_upstream_request_duration_seconds",
                "Duration of answers of the machine's resolvers, with all attempts",
                Histogram::new(BUCKETS),
            ),
            failures: metrics.register(
                "kuma_dp_dns_upstream_request_failure_count",
                "Queries that no resolver of the machine answered",
                Gauge::default(),
            ),
            queries: metrics.register(
                "kuma_dp_dns_queries",
                "Queries, by type and by source of the answer: the names of the mesh or a resolver",
                Family::default(),
            ),
            codes: metrics.register(
                "kuma_dp_dns_response_codes",
                "Answers, by response code",
                Family::default(),
            ),
            refused: metrics.register(
                "kuma_dp_dns_refused_queries",
                "Refused queries: malformed, too many at a time, returned to their sender, or from outside \
                 of the virtual networks",
                Family::default(),
            ),
        }
    }

    pub fn answered(&self, kind: RecordType, source: Source, code: u8, took: Duration) {
        let qtype = match kind {
            RecordType::A => "A",
            RecordType::AAAA => "AAAA",
            _ => "other",
        };
        let source = match source {
            Source::Mesh => "local",
            Source::Resolver => "upstream",
        };
        let rcode = match code {
            0 => "noerror",
            2 => "servfail",
            3 => "nxdomain",
            _ => "other",
        };
        self.queries.get_or_create(&QueryLabels { qtype, source }).inc();
        self.codes.get_or_create(&CodeLabels { rcode }).inc();
        self.answers.observe(took.as_secs_f64());
    }

    pub fn asked(&self, took: Duration, answered: bool) {
        self.resolvers.observe(took.as_secs_f64());
        if !answered {
            self.failures.inc();
        }
    }

    pub fn refused(&self, why: RefusalReason) {
        let reason = match why {
            RefusalReason::Malformed => "malformed",
            RefusalReason::TooMany => "too_many",
            RefusalReason::Returned => "returned",
            RefusalReason::Outside => "outside",
        };
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
    }
}
