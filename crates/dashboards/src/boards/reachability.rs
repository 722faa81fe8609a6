//! Dashboard of reachability: what trimming saves, and what it would prevent.

use crate::{
    model::{Dashboard, Row, Unit, Variable, graph, row, stat, table, target},
    names::NameLabel::{Cluster, HttpPrefix},
    query::{Metric, Scope::Mesh},
};

pub fn reachability() -> Dashboard {
    Dashboard {
        name: "reachability",
        title: "Reachability",
        description: "Destinations that proxies have, of all that their mesh has; calls that trimming prevents.",
        variables: &[Variable::Datasource, Variable::Mesh, Variable::Zone],
        rows: vec![destinations(), costs(), calls()],
    }
}

fn metric(name: &str) -> Metric {
    Metric::of(name, Mesh)
}

/// A series of value 1 for each destination of each proxy.
fn of_each_proxy() -> String {
    let known = metric("envoy_cluster_membership_total").outbound(Cluster);
    let named = crate::names::with_destination(
        &format!("count by (mesh, service, dataplane, envoy_cluster_name) ({})", known.series()),
        Cluster,
    );
    format!("count by (mesh, service, dataplane, destination) ({named})")
}

/// Destinations that any proxy of a mesh has.
fn of_mesh() -> String {
    format!("count by (mesh) (count by (mesh, destination) ({}))", of_each_proxy())
}

fn destinations() -> Row {
    let each = of_each_proxy();
    let mean = format!("avg by (mesh) (count by (mesh, dataplane) ({each}))");
    row(
        "Destinations",
        [
            stat(
                "Destinations of the mesh",
                Unit::Number,
                "Different resources that proxies of the mesh have as destinations.",
                target(of_mesh(), "{{mesh}}"),
            ),
            stat(
                "Share that a proxy lacks",
                Unit::Share,
                "Mean share of the destinations of the mesh that a proxy does not have: what trimming, \
                 reachableServices and reachableBackends save.",
                target(format!("1 - {mean} / {}", of_mesh()), "{{mesh}}"),
            ),
            graph(
                "Destinations of a proxy",
                Unit::Number,
                "The largest number among the proxies of each service.",
                [target(format!("max by (service) (count by (service, dataplane) ({each}))"), "{{service}}")],
            ),
        ],
    )
}

fn costs() -> Row {
    let memory = metric("envoy_server_memory_allocated").series();
    row(
        "Costs",
        [
            graph(
                "Memory of a proxy",
                Unit::Bytes,
                "The largest Envoy of each service: compare services with few and with many destinations.",
                [target(format!("max by (service) ({memory})"), "{{service}}")],
            ),
            graph(
                "Memory by destination",
                Unit::Bytes,
                "Memory of the Envoys of the mesh, divided by their destinations.",
                [target(
                    format!(
                        "sum by (mesh) ({memory}) / sum by (mesh) (count by (mesh) ({}))",
                        of_each_proxy()
                    ),
                    "{{mesh}}",
                )],
            ),
            graph(
                "Classes of proxies",
                Unit::Number,
                "Proxies of one class share their plan: trimming by permissions makes more classes.",
                [target("xds_proxy_classes", "{{instance}}")],
            ),
        ],
    )
}

fn calls() -> Row {
    row(
        "Calls",
        [
            table(
                "Calls that trimming would prevent",
                Unit::PerSecond,
                "Calls in mode shadow to destinations that enforce would trim: each needs a permission, or is not \
                 meant to happen.",
                target(
                    "sum by (client, destination) (rate(reachability_shadowed_total[$__rate_interval]))",
                    "",
                ),
            ),
            graph(
                "Calls to trimmed destinations",
                Unit::Requests,
                "Calls that the proxy of the client answered, because permissions trimmed the destination.",
                [target(
                    metric("envoy_http_downstream_rq_xx").trimmed(HttpPrefix).rate_by("service"),
                    "{{service}}",
                )],
            ),
            graph(
                "Observed calls left out",
                Unit::PerSecond,
                "Pairs of client and destination that were not recorded, because the mesh has too many.",
                [target(
                    "sum by (instance) (rate(observed_edges_dropped_total[$__rate_interval]))",
                    "{{instance}}",
                )],
            ),
        ],
    )
}
