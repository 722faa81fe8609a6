//! Dashboard of zones, their synchronisation and their proxies.

use crate::{
    model::{Dashboard, Row, Unit, Variable, graph, row, stat, target},
    names::NameLabel::Cluster,
    query::{Metric, Scope::Zone, sum_by},
};

const BY: &str = "zone, dataplane";
const EDGE: &str = "{{zone}} {{dataplane}} → {{destination}}";

pub fn zones() -> Dashboard {
    Dashboard {
        name: "zones",
        title: "Zones",
        description: "Zones, their synchronisation with the global control plane, and traffic between them.",
        variables: &[Variable::Datasource, Variable::Zone],
        rows: vec![synchronisation(), state(), traffic()],
    }
}

fn metric(name: &str) -> Metric {
    Metric::of(name, Zone)
}

fn synchronisation() -> Row {
    row(
        "Synchronisation",
        [
            stat(
                "Zones",
                Unit::Number,
                "Zones that the global control plane knows, by their connection.",
                target("sum by (status) (kds_zones)", "{{status}}"),
            ),
            graph(
                "Connected to the global control plane",
                Unit::Number,
                "1 while a zone is connected, as the zone says.",
                [target("kds_global_connected", "{{instance}}")],
            ),
            graph(
                "Responses without an answer",
                Unit::Number,
                "Responses that a peer has not acknowledged or rejected.",
                [target("kds_responses_unanswered", "{{instance}}")],
            ),
        ],
    )
}

fn state() -> Row {
    row(
        "Zone proxies",
        [
            graph(
                "Zone proxies",
                Unit::Number,
                "Ingresses and egresses whose Envoy answers.",
                [target(
                    sum_by("zone, kuma_proxy_role", &metric("envoy_server_live").series()),
                    "{{zone}} {{kuma_proxy_role}}",
                )],
            ),
            graph(
                "Memory",
                Unit::Bytes,
                "Memory that Envoy uses.",
                [target(metric("envoy_server_memory_allocated").series(), "{{zone}} {{dataplane}}")],
            ),
            graph(
                "Connected to a control plane",
                Unit::Number,
                "1 while the stream of configuration is open.",
                [target(metric("envoy_control_plane_connected_state").series(), "{{zone}} {{dataplane}}")],
            ),
        ],
    )
}

fn traffic() -> Row {
    let passed = |name: &str| metric(name).outbound(Cluster);
    let open = passed("envoy_cluster_upstream_cx_active");
    let healthy = passed("envoy_cluster_membership_healthy");
    row(
        "Traffic of zone proxies, by the resource that is called",
        [
            graph(
                "New connections",
                Unit::PerSecond,
                "Connections that zone proxies passed on.",
                [target(passed("envoy_cluster_upstream_cx_total").rate_by_destination(BY), EDGE)],
            ),
            graph(
                "Open connections",
                Unit::Number,
                "Connections that are open now.",
                [target(open.by_destination(&open.series(), BY), EDGE)],
            ),
            graph(
                "Connections that fail",
                Unit::PerSecond,
                "Attempts to connect that failed or took too long.",
                [target(passed("envoy_cluster_upstream_cx_connect_fail").rate_by_destination(BY), EDGE)],
            ),
            graph(
                "Bytes to servers",
                Unit::BytesPerSecond,
                "Bytes that zone proxies sent towards servers.",
                [target(passed("envoy_cluster_upstream_cx_tx_bytes_total").rate_by_destination(BY), EDGE)],
            ),
            graph(
                "Bytes to clients",
                Unit::BytesPerSecond,
                "Bytes that zone proxies received from servers.",
                [target(passed("envoy_cluster_upstream_cx_rx_bytes_total").rate_by_destination(BY), EDGE)],
            ),
            graph(
                "Healthy endpoints",
                Unit::Number,
                "Endpoints that zone proxies use.",
                [target(healthy.by_destination(&healthy.series(), BY), EDGE)],
            ),
        ],
    )
}
