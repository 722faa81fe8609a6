//! Dashboard of certificates and permissions.

use crate::{
    model::{Dashboard, Row, Unit, Variable, graph, row, table, target},
    names::NameLabel::{Cluster, HttpPrefix},
    query::{Metric, Scope::Mesh},
};

pub fn security() -> Dashboard {
    Dashboard {
        name: "security",
        title: "Certificates and permissions",
        description: "Certificates and their expiry, mutual TLS, calls that are denied, and permissions that miss \
                      what they are meant for.",
        variables: &[Variable::Datasource, Variable::Mesh, Variable::Zone],
        rows: vec![certificates(), handshakes(), permissions(), near_misses()],
    }
}

fn metric(name: &str) -> Metric {
    Metric::of(name, Mesh)
}

fn certificates() -> Row {
    row(
        "Certificates",
        [
            graph(
                "Until the first certificate of a proxy expires",
                Unit::Seconds,
                "As each control plane says about the proxies that are connected to it. Proxies get a new one long \
                 before.",
                [target("proxy_certificate_soonest_expiry_timestamp_seconds - time()", "{{instance}}")],
            ),
            graph(
                "Until the authorities of meshes expire",
                Unit::Days,
                "Authorities that proxies trust.",
                [target(
                    "(mesh_ca_expiry_timestamp_seconds{mesh=~\"$mesh\"} - time()) / 86400",
                    "{{mesh}} {{backend}}",
                )],
            ),
            graph(
                "Until certificates of control planes expire",
                Unit::Days,
                "After that, agents, zones and kumactl refuse to connect.",
                [target(
                    "(tls_certificate_expiry_timestamp_seconds - time()) / 86400",
                    "{{instance}} {{server}}",
                )],
            ),
        ],
    )
}

fn handshakes() -> Row {
    let handshakes = metric("envoy_cluster_ssl_handshake").outbound(Cluster);
    let refused = metric("envoy_cluster_ssl_fail_verify_error").outbound(Cluster);
    row(
        "Mutual TLS",
        [
            graph(
                "Handshakes",
                Unit::PerSecond,
                "TLS connections of clients that succeeded, by the resource that is called.",
                [target(handshakes.rate_by_destination(""), "{{destination}}")],
            ),
            graph(
                "Servers that are not trusted",
                Unit::PerSecond,
                "Connections that clients ended because the certificate of the server does not verify.",
                [target(refused.rate_by_destination("service"), "{{service}} → {{destination}}")],
            ),
            graph(
                "Clients that are not trusted",
                Unit::PerSecond,
                "Connections that servers ended: no certificate, or one that does not verify.",
                [
                    target(
                        metric("envoy_listener_ssl_connection_error").rate_by("service"),
                        "error {{service}}",
                    ),
                    target(
                        metric("envoy_listener_ssl_fail_verify_error").rate_by("service"),
                        "untrusted {{service}}",
                    ),
                    target(
                        metric("envoy_listener_ssl_fail_verify_no_cert").rate_by("service"),
                        "no certificate {{service}}",
                    ),
                ],
            ),
        ],
    )
}

fn permissions() -> Row {
    let forbidden = metric("envoy_cluster_upstream_rq").with("envoy_response_code=\"403\"").outbound(Cluster);
    row(
        "Permissions",
        [
            graph(
                "Denied",
                Unit::PerSecond,
                "Requests and connections that no permission allows, by the service that refused them.",
                [target(metric("envoy_rbac_denied").rate_by("service"), "{{service}}")],
            ),
            graph(
                "Allowed",
                Unit::PerSecond,
                "Requests and connections that a permission allows.",
                [target(metric("envoy_rbac_allowed").rate_by("service"), "{{service}}")],
            ),
            graph(
                "Callers that get 403",
                Unit::Requests,
                "Calls that were answered with 403, mostly by a server's proxy: who calls what without permission.",
                [target(forbidden.rate_by_destination("service"), "{{service}} → {{destination}}")],
            ),
            graph(
                "Would be denied",
                Unit::PerSecond,
                "Requests that a permission with the action AllowWithShadowDeny lets pass and counts.",
                [target(metric("envoy_rbac_shadow_denied").rate_by("service"), "{{service}}")],
            ),
            graph(
                "Requests with 4xx",
                Unit::Requests,
                "Answers of servers with 4xx, those of permissions included.",
                [target(
                    metric("envoy_http_downstream_rq_xx")
                        .inbound(HttpPrefix)
                        .with("envoy_response_code_class=\"4\"")
                        .rate_by("service"),
                    "{{service}}",
                )],
            ),
            graph(
                "Calls to trimmed destinations",
                Unit::Requests,
                "Calls to destinations that permissions took out of the proxy's configuration.",
                [target(
                    metric("envoy_http_downstream_rq_xx").trimmed(HttpPrefix).rate_by("service"),
                    "{{service}}",
                )],
            ),
        ],
    )
}

/// Findings about permissions that select something other than what was meant.
const NEAR: &str = "matches-nothing|unknown-client|no-permissions|indistinct-clients|shadowed|contradiction|\
                    needs-mtls|unsupported-condition";

fn near_misses() -> Row {
    let findings = format!("sum by (mesh, code, severity) (findings{{mesh=~\"$mesh\", code=~\"{NEAR}\"}})");
    row(
        "Near misses",
        [table(
            "Policies that miss what they are meant for",
            Unit::Number,
            "Findings about selectors and clients that match nothing; kumactl analyze names them, and \
             kumactl access CLIENT SERVER says which rule almost allows a denied call.",
            target(findings, ""),
        )],
    )
}
