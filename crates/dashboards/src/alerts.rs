//! Alerts about traffic, which select series by the same names as the dashboards.

use crate::{
    names::NameLabel::{Cluster, HttpPrefix},
    query::{Metric, Scope::Everything, sum_by},
};

/// Window of the rates.
const WINDOW: &str = "5m";
/// Calls per second below which a share says little: six in a minute.
const FEW: &str = "0.1";
const CLIENT: &str = "mesh, service";

/// A rule of Prometheus that wakes someone.
#[derive(Debug, Clone)]
pub struct TrafficAlert {
    pub name: &'static str,
    pub query: String,
    /// Time for which the query must hold, as Prometheus writes it; none for at once.
    pub lasting: Option<&'static str>,
    pub severity: &'static str,
    /// Text for people, with Prometheus' placeholders.
    pub summary: &'static str,
}

fn metric(name: &str) -> Metric {
    Metric::of(name, Everything)
}

fn outbound(name: &str) -> Metric {
    metric(name).outbound(Cluster)
}

/// Rate of a counter by client and the resource that it calls.
fn by_edge(counter: &Metric) -> String {
    counter.by_destination(&counter.rate_over(WINDOW), CLIENT)
}

/// Share of `bad` in `all`, where there is more than a little of `all`.
fn share(bad: &str, all: &str, limit: &str) -> String {
    format!("{bad}\n  / ({all} > {FEW})\n  > {limit}")
}

pub fn traffic_alerts() -> Vec<TrafficAlert> {
    calls().into_iter().chain(servers()).chain(proxies()).collect()
}

fn calls() -> [TrafficAlert; 3] {
    let answers = outbound("envoy_cluster_upstream_rq_xx");
    let errors = answers.clone().with("envoy_response_code_class=\"5\"");
    let connections = by_edge(&outbound("envoy_cluster_upstream_cx_total"));
    [
        TrafficAlert {
            name: "KumaCallsFailing",
            query: share(&by_edge(&errors), &by_edge(&answers), "0.05"),
            lasting: Some("5m"),
            severity: "critical",
            summary: "{{ $value | humanizePercentage }} of the calls of {{ $labels.service }} to {{ $labels.destination }} fail",
        },
        TrafficAlert {
            name: "KumaGrpcCallsFailing",
            query: share(&by_edge(&outbound("envoy_cluster_grpc_failure")), &by_edge(&answers), "0.05"),
            lasting: Some("5m"),
            severity: "critical",
            summary: "{{ $value | humanizePercentage }} of the gRPC calls of {{ $labels.service }} to {{ $labels.destination }} fail",
        },
        TrafficAlert {
            name: "KumaConnectionsFailing",
            query: share(&by_edge(&outbound("envoy_cluster_upstream_cx_connect_fail")), &connections, "0.05"),
            lasting: Some("5m"),
            severity: "warning",
            summary: "{{ $value | humanizePercentage }} of the connections of {{ $labels.service }} to {{ $labels.destination }} fail",
        },
    ]
}

fn servers() -> [TrafficAlert; 3] {
    let by_server = |counter: &Metric| sum_by(CLIENT, &counter.rate_over(WINDOW));
    let latency = metric("envoy_http_downstream_rq_time_bucket").inbound(HttpPrefix);
    let requests = metric("envoy_http_downstream_rq_xx").inbound(HttpPrefix);
    [
        TrafficAlert {
            name: "KumaCallsDenied",
            query: format!("{} > 0", by_server(&metric("envoy_rbac_denied"))),
            lasting: Some("10m"),
            severity: "warning",
            summary: "{{ $labels.service }} denies {{ $value | humanize }} calls per second",
        },
        TrafficAlert {
            name: "KumaLatencyHigh",
            query: format!(
                "histogram_quantile(0.99, {})\n  > 1000\n  and {} > {FEW}",
                sum_by("mesh, service, le", &latency.rate_over(WINDOW)),
                by_server(&requests),
            ),
            lasting: Some("10m"),
            severity: "warning",
            summary: "1 in 100 requests to {{ $labels.service }} takes {{ $value | humanize }} ms or more",
        },
        TrafficAlert {
            name: "KumaCertificatesRefused",
            query: format!("{} > 0", by_server(&metric("envoy_listener_ssl_fail_verify_error"))),
            lasting: Some("5m"),
            severity: "critical",
            summary: "{{ $labels.service }} refuses {{ $value | humanize }} certificates of clients per second",
        },
    ]
}

fn proxies() -> [TrafficAlert; 4] {
    let codes = metric("kuma_dp_dns_response_codes_total");
    let by_service = |codes: &Metric| sum_by(CLIENT, &codes.rate_over(WINDOW));
    [
        TrafficAlert {
            name: "KumaProxyRestarts",
            // Zone proxies, too: the scope of the others leaves them out.
            query: "resets(envoy_server_uptime[30m]) > 2".to_owned(),
            lasting: None,
            severity: "warning",
            summary: "Envoy of {{ $labels.dataplane }} was started {{ $value }} times within 30 minutes",
        },
        TrafficAlert {
            name: "KumaEnvoyNotAnswering",
            query: "kuma_dp_metrics_source_up{source=\"envoy\"} == 0".to_owned(),
            lasting: Some("2m"),
            severity: "critical",
            summary: "Envoy of {{ $labels.dataplane }} does not answer its agent",
        },
        TrafficAlert {
            name: "KumaProxyNotScraped",
            query: "up{job=\"kuma-dataplanes\"} == 0".to_owned(),
            lasting: Some("5m"),
            severity: "warning",
            summary: "Prometheus cannot read the metrics of {{ $labels.dataplane }}",
        },
        TrafficAlert {
            name: "KumaDnsFailing",
            query: share(&by_service(&codes.clone().with("rcode=\"servfail\"")), &by_service(&codes), "0.05"),
            lasting: Some("5m"),
            severity: "warning",
            summary: "{{ $value | humanizePercentage }} of the DNS queries of {{ $labels.service }} get no answer",
        },
    ]
}

const HEAD: &str = "\
# Alert rules for traffic. Written by `cargo xtask gen` from crates/dashboards; do not edit. Load them with `rule_files`
# of Prometheus, and scrape the proxies with a job named kuma-dataplanes, as `kumactl install observability` writes it.
# What to do about each alert: docs/guide/alerts.md.
groups:
  - name: kuma-traffic
    rules:
";

/// The file of rules that Prometheus reads.
pub fn traffic_rules() -> String {
    let mut text = HEAD.to_owned();
    for alert in traffic_alerts() {
        let TrafficAlert { name, query, lasting, severity, summary } = alert;
        text.push_str(&format!("      - alert: {name}\n        expr: |\n"));
        query.lines().for_each(|line| text.push_str(&format!("          {line}\n")));
        if let Some(time) = lasting {
            text.push_str(&format!("        for: {time}\n"));
        }
        let runbook = format!("docs/guide/alerts.md#{}", name.to_lowercase());
        text.push_str(&format!("        labels: {{ severity: {severity} }}\n        annotations:\n"));
        text.push_str(&format!("          summary: \"{summary}\"\n          runbook: {runbook}\n"));
    }
    text
}
