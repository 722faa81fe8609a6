//! Dashboard of a whole mesh.

use crate::{
    model::{Dashboard, Unit, Variable, graph, row, stat, target},
    names::NameLabel::{Cluster, HttpPrefix},
    query::{Metric, Scope::Mesh, success, sum_by},
};

pub fn mesh() -> Dashboard {
    Dashboard {
        name: "mesh",
        title: "Mesh",
        description: "Traffic of all services of a mesh, and where it fails.",
        variables: &[Variable::Datasource, Variable::Mesh, Variable::Zone],
        rows: vec![proxies(), requests(), connections(), problems()],
    }
}

fn metric(name: &str) -> Metric {
    Metric::of(name, Mesh)
}

fn requests_in() -> Metric {
    metric("envoy_http_downstream_rq_xx").inbound(HttpPrefix)
}

fn proxies() -> crate::model::Row {
    let live = metric("envoy_server_live").series();
    let connected = metric("envoy_control_plane_connected_state").series();
    let scraped = metric("up").with("job=\"kuma-dataplanes\"").series();
    row(
        "Proxies",
        [
            stat(
                "Proxies",
                Unit::Number,
                "Proxies whose Envoy answers.",
                target(format!("sum({live})"), "live"),
            ),
            stat(
                "Not scraped",
                Unit::Number,
                "Proxies that service discovery lists and Prometheus cannot read.",
                target(format!("sum(1 - {scraped})"), "not scraped"),
            ),
            stat(
                "Without control plane",
                Unit::Number,
                "Proxies that have lost their control plane: they keep their configuration, and their certificates \
                 are not renewed.",
                target(format!("sum(1 - {connected})"), "disconnected"),
            ),
            graph(
                "Proxies by zone",
                Unit::Number,
                "Proxies whose Envoy answers, by zone.",
                [target(sum_by("zone", &live), "{{zone}}")],
            ),
            graph(
                "Restarts of Envoy",
                Unit::Number,
                "Restarts after an unexpected exit, within an hour.",
                [target(
                    sum_by(
                        "service",
                        &format!("increase({}[1h])", metric("kuma_dp_envoy_restarts_total").series()),
                    ),
                    "{{service}}",
                )],
            ),
            graph(
                "Memory of proxies",
                Unit::Bytes,
                "Heap of all Envoys of a service.",
                [target(sum_by("service", &metric("envoy_server_memory_allocated").series()), "{{service}}")],
            ),
        ],
    )
}

fn requests() -> crate::model::Row {
    let failed = requests_in().with("envoy_response_code_class=\"5\"").rate_by("service");
    let latency = metric("envoy_http_downstream_rq_time").inbound(HttpPrefix);
    row(
        "Requests, as servers answer them",
        [
            graph(
                "Requests by service",
                Unit::Requests,
                "Requests to the inbounds of each service, those that are denied included.",
                [target(requests_in().rate_by("service"), "{{service}}")],
            ),
            graph(
                "Success by service",
                Unit::Share,
                "Share of the requests that were not answered with 5xx.",
                [target(success(&failed, &requests_in().rate_by("service")), "{{service}}")],
            ),
            graph(
                "Requests by class of status",
                Unit::Requests,
                "Answers of all services.",
                [target(
                    requests_in().rate_by("envoy_response_code_class"),
                    "{{envoy_response_code_class}}xx",
                )],
            ),
            graph(
                "Latency",
                Unit::Milliseconds,
                "Time from the first byte of a request to the last byte of its answer, at the proxy of the server.",
                [
                    target(latency.quantile("0.5", ""), "median"),
                    target(latency.quantile("0.95", ""), "95 %"),
                    target(latency.quantile("0.99", ""), "99 %"),
                ],
            ),
            graph(
                "Slowest services",
                Unit::Milliseconds,
                "One request in a hundred takes longer.",
                [target(format!("topk(10, {})", latency.quantile("0.99", "service")), "{{service}}")],
            ),
            graph(
                "gRPC calls that fail",
                Unit::Requests,
                "Calls whose status of gRPC is an error, by the service that answers.",
                [target(
                    metric("envoy_cluster_grpc_failure").inbound(Cluster).rate_by("service"),
                    "{{service}}",
                )],
            ),
        ],
    )
}

fn connections() -> crate::model::Row {
    let open = metric("envoy_cluster_upstream_cx_active").inbound(Cluster);
    let received = metric("envoy_cluster_upstream_cx_tx_bytes_total").inbound(Cluster);
    let sent = metric("envoy_cluster_upstream_cx_rx_bytes_total").inbound(Cluster);
    let passthrough = metric("envoy_cluster_upstream_cx_total").passthrough(Cluster);
    row(
        "Connections",
        [
            graph(
                "Open connections",
                Unit::Number,
                "Connections of proxies to their applications.",
                [target(sum_by("service", &open.series()), "{{service}}")],
            ),
            graph(
                "Bytes",
                Unit::BytesPerSecond,
                "Bytes that applications receive and send through their inbounds.",
                [target(received.rate_by(""), "received"), target(sent.rate_by(""), "sent")],
            ),
            graph(
                "Connections past the mesh",
                Unit::PerSecond,
                "Redirected connections to addresses that the mesh does not know.",
                [target(
                    passthrough.rate_by("service, envoy_cluster_name"),
                    "{{service}} {{envoy_cluster_name}}",
                )],
            ),
        ],
    )
}

fn problems() -> crate::model::Row {
    let called = metric("envoy_cluster_upstream_rq_xx").outbound(Cluster);
    let failed = called.clone().with("envoy_response_code_class=\"5\"");
    let outbound = |name: &str| metric(name).outbound(Cluster);
    let ejected = outbound("envoy_cluster_outlier_detection_ejections_active");
    let edge = "{{service}} → {{destination}}";
    row(
        "Problems, as clients see them",
        [
            graph(
                "Calls that fail",
                Unit::Requests,
                "Answers with 5xx, by client and by the resource that it called.",
                [target(format!("topk(10, {})", failed.rate_by_destination("service")), edge)],
            ),
            graph(
                "Success by destination",
                Unit::Share,
                "Share of calls without 5xx, by the resource that is called.",
                [target(
                    success(&failed.rate_by_destination(""), &called.rate_by_destination("")),
                    "{{destination}}",
                )],
            ),
            graph(
                "Denied",
                Unit::PerSecond,
                "Requests and connections that no permission allows, by the service that refused them.",
                [target(metric("envoy_rbac_denied").rate_by("service"), "{{service}}")],
            ),
            graph(
                "Connections that fail",
                Unit::PerSecond,
                "Attempts of clients to connect that failed or took too long.",
                [target(
                    outbound("envoy_cluster_upstream_cx_connect_fail").rate_by_destination("service"),
                    edge,
                )],
            ),
            graph(
                "Ejected endpoints",
                Unit::Number,
                "Endpoints that outlier detection keeps out at the moment, summed over clients.",
                [target(ejected.by_destination(&ejected.series(), ""), "{{destination}}")],
            ),
            graph(
                "DNS queries that fail",
                Unit::PerSecond,
                "Answers SERVFAIL of the DNS servers of agents: no resolver answered.",
                [target(
                    metric("kuma_dp_dns_response_codes_total").with("rcode=\"servfail\"").rate_by("service"),
                    "{{service}}",
                )],
            ),
        ],
    )
}
