//! Dashboard of calls from service to service.

use crate::{
    model::{Dashboard, Panel, Row, Unit, Variable, graph, row, table, target},
    names::NameLabel::Cluster,
    query::{Metric, Scope::Service, success},
};

const EDGE: &str = "{{service}} → {{destination}}";
const BY: &str = "service";

pub fn service_to_service() -> Dashboard {
    Dashboard {
        name: "service-to-service",
        title: "Service to service",
        description: "Calls from one service to another, as the proxies of the callers count them.",
        variables: &[
            Variable::Datasource,
            Variable::Mesh,
            Variable::Zone,
            Variable::Service,
            Variable::Destination,
        ],
        rows: vec![all(), requests(), connections()],
    }
}

/// Series of the chosen callers and destinations.
fn called(name: &str) -> Metric {
    Metric::of(name, Service).outbound(Cluster).with(Cluster.destination_named("$destination"))
}

fn class(class: &str) -> Metric {
    called("envoy_cluster_upstream_rq_xx").with(format!("envoy_response_code_class=\"{class}\""))
}

fn all() -> Row {
    row(
        "Who calls whom",
        [table(
            "Calls per second",
            Unit::Requests,
            "Every caller with every resource that it calls.",
            target(called("envoy_cluster_upstream_rq_xx").rate_by_destination(BY), ""),
        )],
    )
}

fn requests() -> Row {
    let calls = called("envoy_cluster_upstream_rq_xx");
    let latency = called("envoy_cluster_upstream_rq_time");
    row(
        "Requests",
        [
            graph(
                "Calls by class of status",
                Unit::Requests,
                "Answers that callers got.",
                [target(
                    calls.rate_by_destination("service, envoy_response_code_class"),
                    "{{service}} → {{destination}} {{envoy_response_code_class}}xx",
                )],
            ),
            graph(
                "Success",
                Unit::Share,
                "Share of calls that were not answered with 5xx.",
                [target(success(&class("5").rate_by_destination(BY), &calls.rate_by_destination(BY)), EDGE)],
            ),
            graph(
                "Refused",
                Unit::Requests,
                "Answers with 4xx, of which 403 means that no permission allows the call.",
                [target(class("4").rate_by_destination(BY), EDGE)],
            ),
            graph(
                "Latency",
                Unit::Milliseconds,
                "Time until the last byte of the answer, as callers see it.",
                [
                    target(
                        latency.quantile_by_destination("0.5", BY),
                        "median {{service}} → {{destination}}",
                    ),
                    target(latency.quantile_by_destination("0.95", BY), "95 % {{service}} → {{destination}}"),
                    target(latency.quantile_by_destination("0.99", BY), "99 % {{service}} → {{destination}}"),
                ],
            ),
            edge("Retries", "Requests that proxies sent again.", "envoy_cluster_upstream_rq_retry"),
            edge("Timeouts", "Requests that got no answer in time.", "envoy_cluster_upstream_rq_timeout"),
        ],
    )
}

fn connections() -> Row {
    let open = called("envoy_cluster_upstream_cx_active");
    row(
        "Connections",
        [
            edge("New connections", "Connections that proxies opened.", "envoy_cluster_upstream_cx_total"),
            graph(
                "Open connections",
                Unit::Number,
                "Connections that are open now.",
                [target(open.by_destination(&open.series(), BY), EDGE)],
            ),
            edge(
                "Connections that fail",
                "Attempts to connect that failed or took too long.",
                "envoy_cluster_upstream_cx_connect_fail",
            ),
            bytes("Bytes sent", "envoy_cluster_upstream_cx_tx_bytes_total"),
            bytes("Bytes received", "envoy_cluster_upstream_cx_rx_bytes_total"),
            edge(
                "Mutual TLS",
                "TLS handshakes with servers of the mesh that succeeded.",
                "envoy_cluster_ssl_handshake",
            ),
        ],
    )
}

fn edge(title: &'static str, description: &'static str, metric: &str) -> Panel {
    graph(title, Unit::PerSecond, description, [target(called(metric).rate_by_destination(BY), EDGE)])
}

fn bytes(title: &'static str, metric: &str) -> Panel {
    let rate = called(metric).rate_by_destination(BY);
    graph(title, Unit::BytesPerSecond, "Bytes on connections to the destination.", [target(rate, EDGE)])
}
