//! Counters of Envoy that signals are made of. Those of a cluster are `cluster.<name>.<counter>`.

use crate::Counter;

/// A counter of a cluster, and what it counts.
#[derive(Debug, Clone, Copy)]
pub struct ClusterCounter {
    pub name: &'static str,
    pub counts: Counter,
}

/// Answers that were passed on, retries apart. Envoy counts none where it does not look at requests.
pub const ANSWERED: &str = "upstream_rq_completed";
/// Requests that were sent, retries included; connections where Envoy does not look at requests.
pub const SENT: &str = "upstream_rq_total";
/// Connections of some version of HTTP: Envoy looks at requests.
pub const HTTP_CONNECTIONS: [&str; 3] =
    ["upstream_cx_http1_total", "upstream_cx_http2_total", "upstream_cx_http3_total"];
/// Latencies of a cluster in milliseconds.
pub const LATENCY: &str = "upstream_rq_time";

/// The other counters.
pub const CLUSTER_COUNTERS: [ClusterCounter; 15] = [
    row("upstream_rq_1xx", Counter::Responses1xx),
    row("upstream_rq_2xx", Counter::Responses2xx),
    row("upstream_rq_3xx", Counter::Responses3xx),
    row("upstream_rq_4xx", Counter::Responses4xx),
    row("upstream_rq_5xx", Counter::Responses5xx),
    row("grpc.success", Counter::GrpcOk),
    row("grpc.failure", Counter::GrpcFailed),
    row("upstream_cx_total", Counter::Connections),
    // Those that took too long included.
    row("upstream_cx_connect_fail", Counter::ConnectFailures),
    row("upstream_rq_rx_reset", Counter::Resets),
    row("upstream_rq_tx_reset", Counter::Resets),
    row("upstream_rq_timeout", Counter::Timeouts),
    row("upstream_rq_retry", Counter::Retries),
    row("upstream_cx_none_healthy", Counter::NoEndpoint),
    // Of an application or of permissions: the control plane knows which calls are denied.
    row("upstream_rq_403", Counter::Denied),
];

const fn row(name: &'static str, counts: Counter) -> ClusterCounter {
    ClusterCounter { name, counts }
}

/// Names of everything that is read of a cluster.
pub fn of_clusters() -> impl Iterator<Item = &'static str> {
    let counted = CLUSTER_COUNTERS.iter().map(|counter| counter.name);
    [ANSWERED, SENT, LATENCY].into_iter().chain(HTTP_CONNECTIONS).chain(counted)
}
