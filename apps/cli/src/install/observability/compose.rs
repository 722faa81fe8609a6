//! A file for Docker Compose: everything in one, configuration included.

use serde_json::{Map, Value, json};

use super::{
    Component, Plan,
    configuration::{self, DATA, GRAFANA, GRAFANA_SETTINGS, JAEGER, JAEGER_SETTINGS, LOKI, PROMETHEUS},
    embedded::{DASHBOARDS, RULES},
};
use crate::output;

const CONFIGURATION: &str = "/etc/kuma-observability";
const DASHBOARD_FOLDER: &str = "/var/lib/kuma-dashboards";

/// A file that Compose puts into a container.
struct ConfiguredFile {
    name: String,
    path: String,
    text: String,
}

fn file(name: &str, path: String, text: &str) -> ConfiguredFile {
    ConfiguredFile { name: name.to_owned(), path, text: text.to_owned() }
}

/// A container of the file.
struct Service<'a> {
    image: &'a str,
    command: Vec<String>,
    environment: &'a [(&'a str, &'a str)],
    /// Ports of this machine, which only it can reach, and those of the container.
    ports: &'a [&'a str],
    scratch: &'a [&'a str],
    user: &'a str,
    files: Vec<ConfiguredFile>,
}

impl Service<'_> {
    fn json(&self) -> Value {
        let environment: Map<String, Value> =
            self.environment.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let files = self.files.iter().map(|file| json!({"source": file.name, "target": file.path}));
        let ports = self.ports.iter().map(|port| format!("127.0.0.1:{port}"));
        json!({
            "image": self.image,
            "command": self.command,
            "environment": environment,
            "user": self.user,
            "ports": ports.collect::<Vec<_>>(),
            "configs": files.collect::<Vec<_>>(),
            "tmpfs": self.scratch.iter().map(|path| format!("{path}:mode=1777")).collect::<Vec<_>>(),
            "read_only": true,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            // The control plane and the proxies are on this machine.
            "extra_hosts": ["host.docker.internal:host-gateway"],
            "restart": "unless-stopped",
        })
    }
}

/// Compose puts variables in place of `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

pub fn text(plan: &Plan) -> String {
    let mut services = Map::new();
    let mut configs = Map::new();
    for component in configuration::RUNNING.into_iter().filter(|component| plan.has(*component)) {
        let (name, service) = match component {
            Component::Prometheus => ("prometheus", prometheus(plan)),
            Component::Loki => ("loki", loki()),
            Component::Jaeger => ("jaeger", jaeger()),
            Component::Grafana => ("grafana", grafana(plan)),
        };
        services.insert(name.to_owned(), service.json());
        for file in service.files {
            configs.insert(file.name, json!({"content": literal(&file.text)}));
        }
    }
    let mut document = json!({"name": "kuma-observability", "services": services});
    if !configs.is_empty() {
        document["configs"] = Value::Object(configs);
    }
    output::yaml(&document)
}

fn prometheus(plan: &Plan) -> Service<'static> {
    let mut files = vec![file(
        "prometheus",
        format!("{CONFIGURATION}/prometheus.yaml"),
        &configuration::prometheus(plan),
    )];
    let rules = RULES.iter().map(|it| file(it.stem(), format!("{CONFIGURATION}/{}", it.name), it.text));
    files.extend(rules);
    Service {
        image: PROMETHEUS,
        command: configuration::prometheus_arguments(CONFIGURATION),
        environment: &[],
        ports: &["9090:9090"],
        scratch: &[DATA],
        user: "65534:65534",
        files,
    }
}

fn loki() -> Service<'static> {
    let path = format!("{CONFIGURATION}/loki.yaml");
    Service {
        image: LOKI,
        command: vec![format!("-config.file={path}")],
        environment: &[],
        ports: &["3100:3100"],
        scratch: &[DATA, "/tmp"],
        user: "10001:10001",
        files: vec![file("loki", path, &configuration::loki(DATA))],
    }
}

fn jaeger() -> Service<'static> {
    Service {
        image: JAEGER,
        command: Vec::new(),
        environment: &JAEGER_SETTINGS,
        ports: &["16686:16686", "4317:4317", "4318:4318", "9411:9411"],
        scratch: &["/tmp"],
        user: "10001:10001",
        files: Vec::new(),
    }
}

fn grafana(plan: &Plan) -> Service<'static> {
    const PROVISIONING: &str = "/etc/grafana/provisioning";
    let mut files = vec![
        file(
            "grafana-datasources",
            format!("{PROVISIONING}/datasources/kuma.yaml"),
            &configuration::datasources(plan),
        ),
        file(
            "grafana-providers",
            format!("{PROVISIONING}/dashboards/kuma.yaml"),
            &configuration::dashboard_provider(DASHBOARD_FOLDER),
        ),
    ];
    files.extend(DASHBOARDS.iter().map(|it| {
        file(&format!("dashboard-{}", it.stem()), format!("{DASHBOARD_FOLDER}/{}", it.name), &it.compact())
    }));
    Service {
        image: GRAFANA,
        command: Vec::new(),
        environment: &GRAFANA_SETTINGS,
        ports: &["3000:3000"],
        scratch: &["/var/lib/grafana", "/var/log/grafana", "/tmp"],
        user: "472:0",
        files,
    }
}
