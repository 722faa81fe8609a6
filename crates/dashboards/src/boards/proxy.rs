//! Dashboard of single proxies, for the search for a fault.

use crate::{
    model::{Dashboard, Panel, Row, Unit, Variable, graph, row, stat, target},
    names::NameLabel::Cluster,
    query::{Metric, Scope::Proxy},
};

const BY: &str = "dataplane";
const EACH: &str = "{{dataplane}}";
const EDGE: &str = "{{dataplane}} → {{destination}}";

pub fn proxy() -> Dashboard {
    Dashboard {
        name: "proxy",
        title: "Proxy",
        description: "One proxy and its agent: configuration, limits, endpoints, DNS, memory.",
        variables: &[
            Variable::Datasource,
            Variable::Mesh,
            Variable::Zone,
            Variable::Service,
            Variable::Proxy,
        ],
        rows: vec![state(), configuration(), limits(), endpoints(), dns()],
    }
}

fn metric(name: &str) -> Metric {
    Metric::of(name, Proxy)
}

fn gauge(title: &'static str, unit: Unit, description: &'static str, name: &str) -> Panel {
    graph(title, unit, description, [target(metric(name).series(), EACH)])
}

fn counter(title: &'static str, description: &'static str, name: &str) -> Panel {
    graph(title, Unit::PerSecond, description, [target(metric(name).rate_by(BY), EACH)])
}

/// Rate of a counter by destination.
fn edge(title: &'static str, description: &'static str, name: &str) -> Panel {
    let rate = metric(name).outbound(Cluster).rate_by_destination(BY);
    graph(title, Unit::PerSecond, description, [target(rate, EDGE)])
}

/// Sum of a gauge by destination.
fn edge_gauge(title: &'static str, description: &'static str, name: &str) -> Panel {
    let outbound = metric(name).outbound(Cluster);
    graph(title, Unit::Number, description, [target(outbound.by_destination(&outbound.series(), BY), EDGE)])
}

fn state() -> Row {
    let restarts = metric("kuma_dp_envoy_restarts_total").series();
    row(
        "State",
        [
            stat(
                "Live",
                Unit::Number,
                "1 if Envoy serves.",
                target(metric("envoy_server_live").series(), EACH),
            ),
            stat(
                "Uptime",
                Unit::Seconds,
                "Age of Envoy.",
                target(metric("envoy_server_uptime").series(), EACH),
            ),
            stat(
                "Restarts",
                Unit::Number,
                "Restarts of Envoy after an unexpected exit, since the agent runs.",
                target(restarts, EACH),
            ),
            graph(
                "Memory",
                Unit::Bytes,
                "Memory that Envoy uses, and that it has from the system.",
                [
                    target(metric("envoy_server_memory_allocated").series(), "used {{dataplane}}"),
                    target(metric("envoy_server_memory_heap_size").series(), "heap {{dataplane}}"),
                ],
            ),
            gauge(
                "Connections",
                Unit::Number,
                "Connections of all listeners of Envoy.",
                "envoy_server_total_connections",
            ),
            graph(
                "Sources of metrics",
                Unit::Number,
                "1 if Envoy or an application answered for the page of metrics.",
                [target(metric("kuma_dp_metrics_source_up").series(), "{{dataplane}} {{source}}")],
            ),
        ],
    )
}

fn configuration() -> Row {
    let rejected = |name: &str, legend| target(metric(name).rate_by(BY), legend);
    row(
        "Synchronisation",
        [
            gauge(
                "Connected to a control plane",
                Unit::Number,
                "1 while the stream of configuration is open.",
                "envoy_control_plane_connected_state",
            ),
            graph(
                "Rejected configuration",
                Unit::PerSecond,
                "Updates that Envoy rejected; kumactl inspect dataplane NAME shows them with the responsible policy.",
                [
                    rejected("envoy_cluster_manager_cds_update_rejected", "clusters {{dataplane}}"),
                    rejected("envoy_listener_manager_lds_update_rejected", "listeners {{dataplane}}"),
                ],
            ),
            gauge(
                "Certificate",
                Unit::Days,
                "Days until the first certificate of Envoy expires, in whole days: those of a mesh are mostly valid \
                 for one.",
                "envoy_server_days_until_first_cert_expiring",
            ),
        ],
    )
}

fn limits() -> Row {
    row(
        "Limits and retries, by the resource that is called",
        [
            edge_gauge(
                "Breakers that are open: connections",
                "1 while the limit of connections is reached.",
                "envoy_cluster_circuit_breakers_default_cx_open",
            ),
            edge_gauge(
                "Breakers that are open: requests",
                "1 while the limit of requests is reached.",
                "envoy_cluster_circuit_breakers_default_rq_open",
            ),
            edge_gauge(
                "Breakers that are open: waiting requests",
                "1 while the limit of requests that wait for a connection is reached.",
                "envoy_cluster_circuit_breakers_default_rq_pending_open",
            ),
            edge(
                "Refused by breakers",
                "Requests that failed because too many waited.",
                "envoy_cluster_upstream_rq_pending_overflow",
            ),
            edge("Retries", "Requests that were sent again.", "envoy_cluster_upstream_rq_retry"),
            edge("Timeouts", "Requests that got no answer in time.", "envoy_cluster_upstream_rq_timeout"),
        ],
    )
}

fn endpoints() -> Row {
    row(
        "Endpoints, by the resource that is called",
        [
            edge_gauge("Endpoints", "Endpoints that are known.", "envoy_cluster_membership_total"),
            edge_gauge("Healthy endpoints", "Endpoints that are used.", "envoy_cluster_membership_healthy"),
            edge_gauge(
                "Ejected endpoints",
                "Endpoints that outlier detection keeps out.",
                "envoy_cluster_outlier_detection_ejections_active",
            ),
            edge(
                "Connections that fail",
                "Attempts to connect that failed or took too long.",
                "envoy_cluster_upstream_cx_connect_fail",
            ),
            edge(
                "Resets",
                "Requests that ended because the server reset the connection or the stream.",
                "envoy_cluster_upstream_rq_rx_reset",
            ),
            edge(
                "Panic",
                "Requests that went to any endpoint, because too few are healthy.",
                "envoy_cluster_lb_healthy_panic",
            ),
        ],
    )
}

fn dns() -> Row {
    let queries = metric("kuma_dp_dns_queries_total").rate_by("dataplane, source");
    let codes = metric("kuma_dp_dns_response_codes_total").rate_by("dataplane, rcode");
    let answers = metric("kuma_dp_dns_request_duration_seconds");
    row(
        "DNS server of the agent",
        [
            graph(
                "Queries",
                Unit::PerSecond,
                "Queries by the origin of the answer: names of the mesh, or resolvers of the machine.",
                [target(queries, "{{dataplane}} {{source}}")],
            ),
            graph("Answers", Unit::PerSecond, "Answers by code.", [target(codes, "{{dataplane}} {{rcode}}")]),
            graph(
                "Latency, 99 %",
                Unit::Seconds,
                "One query in a hundred takes longer.",
                [target(answers.quantile("0.99", BY), EACH)],
            ),
            graph(
                "Unanswered by resolvers",
                Unit::PerSecond,
                "Queries that no resolver of the machine answered.",
                [target(
                    format!(
                        "sum by (dataplane) (rate({}[$__rate_interval]))",
                        metric("kuma_dp_dns_upstream_request_failure_count").series()
                    ),
                    EACH,
                )],
            ),
            gauge(
                "Names",
                Unit::Number,
                "Names of the mesh that the server knows.",
                "kuma_dp_dns_entries_total",
            ),
            counter(
                "Lost log lines",
                "Lines of the agent's log that were dropped.",
                "kuma_dp_log_lines_lost_total",
            ),
        ],
    )
}
