//! Configuration of Prometheus, Grafana and Loki, the same for every target.

use serde_json::{Value, json};

use super::{Component, Discovery, Plan, embedded::RULES};
use crate::output;

/// Images, with the versions that are installed.
pub const PROMETHEUS: &str = "docker.io/prom/prometheus:v3.11.3";
pub const GRAFANA: &str = "docker.io/grafana/grafana:12.4.0";
pub const LOKI: &str = "docker.io/grafana/loki:3.6.10";
pub const PROMTAIL: &str = "docker.io/grafana/promtail:3.6.10";
pub const JAEGER: &str = "docker.io/jaegertracing/all-in-one:1.73.0";

/// A container does not write its own files; this is where Prometheus and Loki keep data.
pub const DATA: &str = "/data";

/// Settings of Grafana: it needs no password, because every user may look and none may change anything, and it downloads and
/// reports nothing.
pub const GRAFANA_SETTINGS: [(&str, &str); 10] = [
    ("GF_AUTH_ANONYMOUS_ENABLED", "true"),
    ("GF_AUTH_ANONYMOUS_ORG_ROLE", "Viewer"),
    ("GF_AUTH_DISABLE_LOGIN_FORM", "true"),
    ("GF_AUTH_BASIC_ENABLED", "false"),
    ("GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION", "true"),
    ("GF_PLUGINS_PREINSTALL_DISABLED", "true"),
    ("GF_PLUGINS_PLUGIN_ADMIN_ENABLED", "false"),
    ("GF_ANALYTICS_REPORTING_ENABLED", "false"),
    ("GF_ANALYTICS_CHECK_FOR_UPDATES", "false"),
    ("GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES", "false"),
];

/// Labels of targets. Prometheus' discovery of Kuma gives them with prefixes; of the labels of a proxy only known ones
/// are taken over, so that none can pass for a label of Prometheus.
fn relabelling() -> Value {
    let copy = |from: &str, to: &str| json!({"source_labels": [format!("__meta_kuma_{from}")], "regex": "(.+)", "target_label": to});
    json!([
        copy("mesh", "mesh"),
        copy("dataplane", "dataplane"),
        copy("service", "service"),
        copy("label_kuma_io_zone", "zone"),
        {"action": "labelmap", "regex": "__meta_kuma_label_(zone|service|kuma_workload|kuma_proxy_role)"},
    ])
}

/// Hint for a Prometheus that the control plane does not take for its own administrator.
const TOKEN: &str = "\
# From another machine, Prometheus needs a token (kumactl generate user-token): put it into a file, and add to the job
# kuma-dataplanes, inside http_sd_configs: authorization: { credentials_file: /path/of/the/token }
";

/// Configuration of Prometheus, beside the files of rules.
pub fn prometheus(plan: &Plan) -> String {
    let mut proxies = json!({"job_name": "kuma-dataplanes", "scrape_interval": "15s"});
    match plan.discovery {
        Discovery::Kuma => {
            proxies["kuma_sd_configs"] = json!([{"server": plan.assignments.url}]);
            proxies["relabel_configs"] = relabelling();
        }
        Discovery::Http => {
            proxies["http_sd_configs"] = json!([{"url": format!("{}/prometheus/targets", plan.api.url)}]);
        }
    }
    let files: Vec<&str> = RULES.iter().map(|rules| rules.name).collect();
    let head = if plan.discovery == Discovery::Http { TOKEN } else { "" };
    let document = output::yaml(&json!({
        "global": {"scrape_interval": "15s", "evaluation_interval": "30s"},
        "rule_files": files,
        "scrape_configs": [
            proxies,
            {"job_name": "kuma-cp", "static_configs": [{"targets": [plan.diagnostics()]}]},
        ],
    }));
    format!("{head}{document}")
}

/// Data sources of Grafana.
pub fn datasources(plan: &Plan) -> String {
    let source = |kind: &str, name: &str, url: &str| json!({"name": name, "uid": kind, "type": kind, "access": "proxy", "url": url, "editable": false});
    let mut all = Vec::new();
    if let Some(prometheus) = &plan.prometheus {
        let mut prometheus = source("prometheus", "Prometheus", &prometheus.url);
        prometheus["isDefault"] = json!(true);
        // The interval of scrapes: windows of rates follow it.
        prometheus["jsonData"] = json!({"httpMethod": "POST", "timeInterval": "15s"});
        all.push(prometheus);
    }
    if let Some(jaeger) = &plan.jaeger {
        let mut jaeger = source("jaeger", "Jaeger", &jaeger.url);
        if plan.loki.is_some() {
            jaeger["jsonData"] =
                json!({"tracesToLogsV2": {"datasourceUid": "loki", "filterByTraceID": true}});
        }
        all.push(jaeger);
    }
    if let Some(loki) = &plan.loki {
        let mut loki = source("loki", "Loki", &loki.url);
        if plan.jaeger.is_some() {
            loki["jsonData"] = json!({"derivedFields": [{
                "name": "trace", "datasourceUid": "jaeger", "url": "$${__value.raw}",
                "matcherRegex": "\"(?:trace_?id|traceId|x-b3-traceid)\"\\s*:\\s*\"([0-9a-f]+)\"",
            }]});
        }
        all.push(loki);
    }
    output::yaml(&json!({"apiVersion": 1, "datasources": all}))
}

/// Tells Grafana the folder of the dashboards.
pub fn dashboard_provider(folder: &str) -> String {
    output::yaml(&json!({"apiVersion": 1, "providers": [{
        "name": "kuma", "folder": "Service mesh", "type": "file", "disableDeletion": true,
        "allowUiUpdates": false, "options": {"path": folder},
    }]}))
}

/// Configuration of Loki, which keeps its data in a folder.
pub fn loki(data: &str) -> String {
    output::yaml(&json!({
        "auth_enabled": false,
        "analytics": {"reporting_enabled": false},
        "server": {"http_listen_port": 3100},
        "common": {
            "path_prefix": data,
            // It is alone, and a machine may have no address that it would find by itself.
            "instance_addr": "127.0.0.1",
            "replication_factor": 1,
            "ring": {"kvstore": {"store": "inmemory"}},
            "storage": {"filesystem": {
                "chunks_directory": format!("{data}/chunks"), "rules_directory": format!("{data}/rules"),
            }},
        },
        "schema_config": {"configs": [{
            "from": "2024-01-01", "store": "tsdb", "object_store": "filesystem", "schema": "v13",
            "index": {"prefix": "index_", "period": "24h"},
        }]},
        "limits_config": {"retention_period": "72h", "allow_structured_metadata": true},
        "compactor": {
            "working_directory": format!("{data}/compactor"),
            "retention_enabled": true,
            "delete_request_store": "filesystem",
        },
    }))
}

/// Reads the logs of the pods of a node.
pub fn promtail(loki: &str) -> String {
    let meta = |name: &str| format!("__meta_kubernetes_{name}");
    output::yaml(&json!({
        "server": {"http_listen_port": 3101, "grpc_listen_port": 0},
        "positions": {"filename": "/run/promtail/positions.yaml"},
        "clients": [{"url": format!("{loki}/loki/api/v1/push")}],
        "scrape_configs": [{
            "job_name": "pods",
            "pipeline_stages": [{"cri": {}}],
            "kubernetes_sd_configs": [{"role": "pod"}],
            "relabel_configs": [
                {"source_labels": [meta("pod_node_name")], "target_label": "__host__"},
                {"source_labels": [meta("namespace")], "target_label": "namespace"},
                {"source_labels": [meta("pod_name")], "target_label": "pod"},
                {"source_labels": [meta("pod_container_name")], "target_label": "container"},
                {"source_labels": [meta("pod_label_kuma_io_mesh")], "target_label": "mesh"},
                {
                    "source_labels": [meta("pod_uid"), meta("pod_container_name")],
                    "separator": "/", "replacement": "/var/log/pods/*$1/*.log", "target_label": "__path__",
                },
            ],
        }],
    }))
}

/// Arguments of Prometheus, whose configuration is in `folder`.
pub fn prometheus_arguments(folder: &str) -> Vec<String> {
    vec![
        format!("--config.file={folder}/prometheus.yaml"),
        format!("--storage.tsdb.path={DATA}"),
        "--storage.tsdb.retention.time=72h".to_owned(),
        "--storage.tsdb.retention.size=4GB".to_owned(),
    ]
}

/// Settings of Jaeger: what it receives, and the number of traces that it keeps in memory.
pub const JAEGER_SETTINGS: [(&str, &str); 3] = [
    ("COLLECTOR_ZIPKIN_HOST_PORT", ":9411"),
    ("COLLECTOR_OTLP_ENABLED", "true"),
    ("MEMORY_MAX_TRACES", "50000"),
];

/// Parts that run, in the order in which they are shown.
pub const RUNNING: [Component; 4] =
    [Component::Prometheus, Component::Loki, Component::Jaeger, Component::Grafana];
