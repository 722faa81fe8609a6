//! Dashboard of services: requests, errors and durations, in and out.

use crate::{
    model::{Dashboard, Row, Unit, Variable, graph, row, target},
    names::NameLabel::{Cluster, HttpPrefix, TcpPrefix},
    query::{Metric, Scope::Service, success, sum_by},
};

pub fn service() -> Dashboard {
    Dashboard {
        name: "service",
        title: "Service",
        description: "Requests, errors and durations of a service: what it answers, and what it calls.",
        variables: &[Variable::Datasource, Variable::Mesh, Variable::Zone, Variable::Service],
        rows: vec![inbound(), inbound_connections(), outbound(), endpoints()],
    }
}

fn metric(name: &str) -> Metric {
    Metric::of(name, Service)
}

fn inbound() -> Row {
    let answered = metric("envoy_http_downstream_rq_xx").inbound(HttpPrefix);
    let failed = answered.clone().with("envoy_response_code_class=\"5\"");
    let latency = metric("envoy_http_downstream_rq_time").inbound(HttpPrefix);
    let grpc = metric("envoy_cluster_grpc_failure").inbound(Cluster);
    row(
        "In: requests that the service answers",
        [
            graph(
                "Requests",
                Unit::Requests,
                "Requests to the inbounds, those that are denied included.",
                [target(answered.rate_by("service"), "{{service}}")],
            ),
            graph(
                "Success",
                Unit::Share,
                "Share of requests that were not answered with 5xx.",
                [target(success(&failed.rate_by("service"), &answered.rate_by("service")), "{{service}}")],
            ),
            graph(
                "Latency",
                Unit::Milliseconds,
                "Time from the first byte of a request to the last byte of its answer, at the proxy of the server.",
                [
                    target(latency.quantile("0.5", "service"), "median {{service}}"),
                    target(latency.quantile("0.95", "service"), "95 % {{service}}"),
                    target(latency.quantile("0.99", "service"), "99 % {{service}}"),
                ],
            ),
            graph(
                "Requests by class of status",
                Unit::Requests,
                "Answers by class: 4xx includes requests that no permission allows.",
                [target(
                    answered.rate_by("service, envoy_response_code_class"),
                    "{{service}} {{envoy_response_code_class}}xx",
                )],
            ),
            graph(
                "Denied",
                Unit::PerSecond,
                "Requests and connections that no permission allows.",
                [target(metric("envoy_rbac_denied").rate_by("service"), "{{service}}")],
            ),
            graph(
                "gRPC calls that fail",
                Unit::Requests,
                "Calls whose status of gRPC is an error.",
                [target(grpc.rate_by("service"), "{{service}}")],
            ),
        ],
    )
}

fn inbound_connections() -> Row {
    let inbound = |name: &str| metric(name).inbound(Cluster);
    row(
        "In: connections",
        [
            graph(
                "TCP connections",
                Unit::PerSecond,
                "New connections to inbounds whose protocol is TCP.",
                [target(
                    metric("envoy_tcp_downstream_cx_total").inbound(TcpPrefix).rate_by("service"),
                    "{{service}}",
                )],
            ),
            graph(
                "Bytes",
                Unit::BytesPerSecond,
                "Bytes that the application receives and sends through its inbounds.",
                [
                    target(
                        inbound("envoy_cluster_upstream_cx_tx_bytes_total").rate_by("service"),
                        "received {{service}}",
                    ),
                    target(
                        inbound("envoy_cluster_upstream_cx_rx_bytes_total").rate_by("service"),
                        "sent {{service}}",
                    ),
                ],
            ),
            graph(
                "Application does not answer",
                Unit::PerSecond,
                "Connections of the proxy to its application that failed.",
                [target(inbound("envoy_cluster_upstream_cx_connect_fail").rate_by("service"), "{{service}}")],
            ),
        ],
    )
}

fn outbound() -> Row {
    let outbound = |name: &str| metric(name).outbound(Cluster);
    let called = outbound("envoy_cluster_upstream_rq_xx");
    let failed = called.clone().with("envoy_response_code_class=\"5\"");
    let latency = outbound("envoy_cluster_upstream_rq_time");
    row(
        "Out: calls of the service, by the resource that it calls",
        [
            graph(
                "Calls",
                Unit::Requests,
                "Requests to each destination.",
                [target(called.rate_by_destination(""), "{{destination}}")],
            ),
            graph(
                "Success",
                Unit::Share,
                "Share of calls that were not answered with 5xx.",
                [target(
                    success(&failed.rate_by_destination(""), &called.rate_by_destination("")),
                    "{{destination}}",
                )],
            ),
            graph(
                "Latency, 99 %",
                Unit::Milliseconds,
                "One call in a hundred takes longer, as the client sees it.",
                [target(latency.quantile_by_destination("0.99", ""), "{{destination}}")],
            ),
            graph(
                "gRPC calls that fail",
                Unit::Requests,
                "Calls whose status of gRPC is an error.",
                [target(outbound("envoy_cluster_grpc_failure").rate_by_destination(""), "{{destination}}")],
            ),
            graph(
                "Connections",
                Unit::PerSecond,
                "New connections to each destination.",
                [target(
                    outbound("envoy_cluster_upstream_cx_total").rate_by_destination(""),
                    "{{destination}}",
                )],
            ),
            graph(
                "Connections that fail",
                Unit::PerSecond,
                "Attempts to connect that failed or took too long.",
                [target(
                    outbound("envoy_cluster_upstream_cx_connect_fail").rate_by_destination(""),
                    "{{destination}}",
                )],
            ),
        ],
    )
}

fn endpoints() -> Row {
    let healthy = metric("envoy_cluster_membership_healthy").outbound(Cluster);
    let all = metric("envoy_cluster_membership_total").outbound(Cluster);
    let ejected = metric("envoy_cluster_outlier_detection_ejections_active").outbound(Cluster);
    row(
        "Out: endpoints",
        [
            graph(
                "Healthy endpoints",
                Unit::Share,
                "Share of the endpoints of a destination that clients use.",
                [target(
                    format!(
                        "{} / ({} > 0)",
                        healthy.by_destination(&healthy.series(), ""),
                        all.by_destination(&all.series(), "")
                    ),
                    "{{destination}}",
                )],
            ),
            graph(
                "Ejected endpoints",
                Unit::Number,
                "Endpoints that outlier detection keeps out at the moment, summed over clients.",
                [target(ejected.by_destination(&ejected.series(), ""), "{{destination}}")],
            ),
            graph(
                "Proxies",
                Unit::Number,
                "Proxies of the service whose Envoy answers.",
                [target(sum_by("service", &metric("envoy_server_live").series()), "{{service}}")],
            ),
        ],
    )
}
