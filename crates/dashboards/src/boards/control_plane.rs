//! Dashboard of control planes.

use crate::model::{Dashboard, Row, Target, Unit, Variable, graph, row, stat, target};

pub fn control_plane() -> Dashboard {
    Dashboard {
        name: "control-plane",
        title: "Control plane",
        description: "Control planes, the proxies that are connected to them, their store and their peers.",
        variables: &[Variable::Datasource, Variable::ControlPlane],
        rows: vec![processes(), proxies(), store(), security(), zones()],
    }
}

/// Series of a metric of the chosen control planes.
fn of(metric: &str) -> String {
    format!("{metric}{{instance=~\"$instance\"}}")
}

fn rate(metric: &str, labels: &str) -> String {
    format!("sum by ({labels}) (rate({}[$__rate_interval]))", of(metric))
}

/// Median and 99th percentile of a histogram, by a further label where there is one.
fn durations(histogram: &str, label: &str, legends: [&'static str; 2]) -> [Target; 2] {
    let by = if label.is_empty() { "le".to_owned() } else { format!("{label}, le") };
    let buckets = rate(&format!("{histogram}_bucket"), &by);
    let [median, slow] = legends;
    [
        target(format!("histogram_quantile(0.5, {buckets})"), median),
        target(format!("histogram_quantile(0.99, {buckets})"), slow),
    ]
}

const LEGENDS: [&str; 2] = ["median", "99 %"];

fn processes() -> Row {
    row(
        "Control plane",
        [
            stat(
                "Control planes",
                Unit::Number,
                "Processes by version, mode and store.",
                target(
                    format!("sum by (version, mode, store) ({})", of("cp_info")),
                    "{{version}} {{mode}} {{store}}",
                ),
            ),
            stat(
                "Ready to write",
                Unit::Number,
                "1 if the store could make a write durable when last asked.",
                target(format!("min by (instance) ({})", of("store_writable")), "{{instance}}"),
            ),
            graph(
                "Processor time",
                Unit::Number,
                "Processors in use.",
                [target(
                    format!("rate({}[$__rate_interval])", of("process_cpu_seconds_total")),
                    "{{instance}}",
                )],
            ),
            graph(
                "Memory",
                Unit::Bytes,
                "Resident memory of the process.",
                [target(of("process_resident_memory_bytes"), "{{instance}}")],
            ),
            graph(
                "Open files of those allowed",
                Unit::Share,
                "Each connection is an open file.",
                [target(format!("{} / {}", of("process_open_fds"), of("process_max_fds")), "{{instance}}")],
            ),
            graph(
                "Requests to the API",
                Unit::Requests,
                "Requests by status.",
                [target(rate("api_server_http_request_duration_seconds_count", "code"), "{{code}}")],
            ),
            graph(
                "Duration of API requests",
                Unit::Seconds,
                "Time until the answer was complete.",
                durations("api_server_http_request_duration_seconds", "", LEGENDS),
            ),
            graph(
                "Age of the oldest change that a reconciler has not dealt with",
                Unit::Seconds,
                "0 where a reconciler has nothing to do.",
                [target(format!("max by (reconciler) ({})", of("reconciler_lag_seconds")), "{{reconciler}}")],
            ),
        ],
    )
}

fn proxies() -> Row {
    row(
        "Proxies",
        [
            graph(
                "Connected proxies by mesh",
                Unit::Number,
                "Sidecars by mesh, and all proxies.",
                [
                    target(format!("sum by (mesh) ({})", of("xds_mesh_proxies_connected")), "{{mesh}}"),
                    target(format!("sum({})", of("xds_proxies_connected")), "all, with zone proxies"),
                ],
            ),
            graph(
                "Names in Envoy",
                Unit::Number,
                "Proxies by mesh and by the names of their resources: how far a migration to unified names is. Zone \
                 proxies have no mesh.",
                [target(
                    format!("sum by (mesh, scheme) ({})", of("xds_proxies_naming")),
                    "{{mesh}} {{scheme}}",
                )],
            ),
            graph(
                "From a stored change to its acknowledgement",
                Unit::Seconds,
                "Time until a connected proxy has acknowledged or rejected all of a change.",
                durations("xds_delivery_duration_seconds", "", LEGENDS),
            ),
            graph(
                "Computing a configuration",
                Unit::Seconds,
                "Time without waiting in the queue.",
                durations("xds_generation_duration_seconds", "", LEGENDS),
            ),
            graph(
                "Proxies that wait or reject",
                Unit::Number,
                "Proxies that have not answered for a change, or reject part of their configuration.",
                [
                    target(format!("sum({})", of("xds_proxies_delivering")), "not acknowledged yet"),
                    target(format!("sum({})", of("xds_proxies_rejecting")), "reject their configuration"),
                ],
            ),
            graph(
                "Responses by type",
                Unit::PerSecond,
                "Discovery responses to proxies.",
                [target(rate("xds_responses_sent", "type_url"), "{{type_url}}")],
            ),
            graph(
                "Rejections by type",
                Unit::PerSecond,
                "Rejections of proxies.",
                [target(
                    "sum by (type_url) (rate(xds_requests_received{instance=~\"$instance\", confirmation=\"NACK\"}[$__rate_interval]))",
                    "{{type_url}}",
                )],
            ),
            graph(
                "Proxies woken and classes planned",
                Unit::Number,
                "Wake-ups by changes, and classes that are planned once each.",
                [
                    target(rate("xds_proxies_woken_total", "instance"), "woken per second {{instance}}"),
                    target(of("xds_proxy_classes"), "classes {{instance}}"),
                ],
            ),
            graph(
                "Findings",
                Unit::Number,
                "What kumactl analyze lists.",
                [target(format!("sum by (mesh, severity) ({})", of("findings")), "{{mesh}} {{severity}}")],
            ),
        ],
    )
}

fn store() -> Row {
    row(
        "Store",
        [
            graph(
                "Duration of writes",
                Unit::Seconds,
                "Writes to the store.",
                durations("store", "operation", ["median {{operation}}", "99 % {{operation}}"]),
            ),
            graph(
                "Writes",
                Unit::PerSecond,
                "Writes to the store by operation.",
                [target(rate("store_count", "operation"), "{{operation}}")],
            ),
            graph(
                "Writes that fail",
                Unit::PerSecond,
                "Writes that the store refused.",
                [target(rate("store_errors_total", "reason"), "{{reason}}")],
            ),
            graph(
                "Outdated reads",
                Unit::Number,
                "1 while answers may be outdated.",
                [target(format!("max by (instance) ({})", of("store_stale")), "{{instance}}")],
            ),
        ],
    )
}

fn security() -> Row {
    row(
        "Security",
        [
            graph(
                "Days until the certificates of servers expire",
                Unit::Days,
                "After that, agents, zones and kumactl refuse to connect.",
                [target(
                    format!("({} - time()) / 86400", of("tls_certificate_expiry_timestamp_seconds")),
                    "{{instance}} {{server}}",
                )],
            ),
            graph(
                "Days until the authorities of meshes expire",
                Unit::Days,
                "Authorities that proxies trust.",
                [target(
                    format!("({} - time()) / 86400", of("mesh_ca_expiry_timestamp_seconds")),
                    "{{mesh}} {{backend}}",
                )],
            ),
            graph(
                "Time until the first certificate of a proxy expires",
                Unit::Seconds,
                "Of the proxies that are connected.",
                [target(
                    format!("{} - time()", of("proxy_certificate_soonest_expiry_timestamp_seconds")),
                    "{{instance}}",
                )],
            ),
            graph(
                "Failed authentications",
                Unit::PerSecond,
                "Callers whose token is missing or not valid.",
                [target(rate("auth_failures_total", "server, reason"), "{{server}} {{reason}}")],
            ),
            graph(
                "Rejected connections and streams of proxies",
                Unit::PerSecond,
                "Connections beyond limits, or without a valid token.",
                [target(rate("dp_server_rejected_total", "reason"), "{{reason}}")],
            ),
        ],
    )
}

fn zones() -> Row {
    row(
        "Zones",
        [
            graph(
                "Zones",
                Unit::Number,
                "Zones by connection, on a global control plane.",
                [target(format!("sum by (status) ({})", of("kds_zones")), "{{status}}")],
            ),
            graph(
                "Connected to the global control plane",
                Unit::Number,
                "1 while connected, on a zone control plane.",
                [target(of("kds_global_connected"), "{{instance}}")],
            ),
            graph(
                "Resources sent and received",
                Unit::PerSecond,
                "Synchronised resources, deletions included.",
                [
                    target(rate("kds_resources_sent_total", "instance"), "sent {{instance}}"),
                    target(rate("kds_resources_received_total", "instance"), "received {{instance}}"),
                ],
            ),
            graph(
                "Responses without an answer, or rejected",
                Unit::Number,
                "Responses that a peer has not answered, or rejected.",
                [
                    target(of("kds_responses_unanswered"), "unanswered {{instance}}"),
                    target(rate("kds_responses_rejected_total", "type"), "rejected {{type}}"),
                ],
            ),
            graph(
                "Since the last acknowledged response",
                Unit::Seconds,
                "Time since a peer acknowledged anything.",
                [target(
                    format!("time() - ({} > 0)", of("kds_last_acknowledged_timestamp_seconds")),
                    "{{instance}}",
                )],
            ),
        ],
    )
}
