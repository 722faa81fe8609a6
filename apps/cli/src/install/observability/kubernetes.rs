//! Manifests of Kubernetes.

use serde_json::{Value, json};

use super::{
    Component, Plan,
    configuration::{
        self, DATA, GRAFANA, GRAFANA_SETTINGS, JAEGER, JAEGER_SETTINGS, LOKI, PROMETHEUS, PROMTAIL,
    },
    embedded::{DASHBOARDS, RULES},
    pods::{Container, Part, Port, from_config_maps, of_machine, scratch},
};
use crate::output;

const CONFIGURATION: &str = "/etc/kuma-observability";
const DASHBOARD_FOLDER: &str = "/var/lib/kuma-dashboards";

/// All manifests in the order in which they can be applied.
pub fn text(plan: &Plan, dashboards_only: bool) -> String {
    let documents = if dashboards_only { dashboards(plan) } else { all(plan) };
    documents.iter().map(|document| format!("---\n{}", output::yaml(document))).collect()
}

fn all(plan: &Plan) -> Vec<Value> {
    let mut documents = vec![json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": plan.namespace, "labels": {"kuma.io/sidecar-injection": "disabled"}},
    })];
    for component in configuration::RUNNING.into_iter().filter(|component| plan.has(*component)) {
        documents.extend(match component {
            Component::Prometheus => prometheus(plan),
            Component::Loki => loki(plan),
            Component::Jaeger => jaeger(plan),
            Component::Grafana => grafana(plan),
        });
    }
    documents
}

fn part<'a>(plan: &'a Plan, name: &'a str) -> Part<'a> {
    Part { name, namespace: &plan.namespace, mesh: &plan.mesh }
}

fn dashboard_map(stem: &str) -> String {
    format!("grafana-dashboard-{stem}")
}

/// A ConfigMap for each dashboard. The label is the one that Grafana's Helm chart looks for.
fn dashboards(plan: &Plan) -> Vec<Value> {
    let part = part(plan, "grafana");
    DASHBOARDS
        .iter()
        .map(|dashboard| {
            let file = [(dashboard.name.to_owned(), dashboard.compact())];
            let mut map = part.config_map(&dashboard_map(dashboard.stem()), file);
            map["metadata"]["labels"]["grafana_dashboard"] = json!("1");
            map
        })
        .collect()
}

fn prometheus(plan: &Plan) -> Vec<Value> {
    const PORTS: [Port; 1] = [Port { name: "http", number: 9090, service: 80 }];
    let part = part(plan, "prometheus");
    let mut files = vec![("prometheus.yaml".to_owned(), configuration::prometheus(plan))];
    files.extend(RULES.iter().map(|rules| (rules.name.to_owned(), rules.text.to_owned())));
    let container = Container {
        image: PROMETHEUS,
        arguments: configuration::prometheus_arguments(CONFIGURATION),
        environment: &[],
        ports: &PORTS,
        ready: "/-/ready",
        // As in the image.
        user: 65534,
        mounts: vec![
            from_config_maps("configuration", CONFIGURATION, &["prometheus".to_owned()]),
            scratch("data", DATA, "5Gi"),
        ],
        memory: "2Gi",
    };
    vec![
        part.config_map("prometheus", files),
        part.deployment(&container),
        part.service("prometheus-server", &PORTS),
    ]
}

fn loki(plan: &Plan) -> Vec<Value> {
    const PORTS: [Port; 1] = [Port { name: "http", number: 3100, service: 3100 }];
    let part = part(plan, "loki");
    let container = Container {
        image: LOKI,
        arguments: vec![format!("-config.file={CONFIGURATION}/loki.yaml")],
        environment: &[],
        ports: &PORTS,
        ready: "/ready",
        user: 10001,
        mounts: vec![
            from_config_maps("configuration", CONFIGURATION, &["loki".to_owned()]),
            scratch("data", DATA, "5Gi"),
            scratch("tmp", "/tmp", "100Mi"),
        ],
        memory: "1Gi",
    };
    let mut documents = vec![
        part.config_map("loki", [("loki.yaml".to_owned(), configuration::loki(DATA))]),
        part.deployment(&container),
        part.service("loki", &PORTS),
    ];
    documents.extend(promtail(plan));
    documents
}

/// Promtail sends the logs of all pods to Loki. They belong to root, so it runs as root, with no right beyond reading
/// them and knowing which pods there are.
fn promtail(plan: &Plan) -> Vec<Value> {
    const PORTS: [Port; 1] = [Port { name: "http", number: 3101, service: 3101 }];
    const NAME: &str = "promtail";
    let part = part(plan, NAME);
    let loki = plan.loki.as_ref().map(|loki| loki.url.as_str()).unwrap_or_default();
    let container = Container {
        image: PROMTAIL,
        arguments: vec![format!("-config.file={CONFIGURATION}/promtail.yaml")],
        environment: &[],
        ports: &PORTS,
        ready: "/ready",
        user: 0,
        mounts: vec![
            from_config_maps("configuration", CONFIGURATION, &[NAME.to_owned()]),
            of_machine("logs", "/var/log/pods"),
            scratch("positions", "/run/promtail", "10Mi"),
        ],
        memory: "256Mi",
    };
    let mut pod = part.pod(&container);
    let spec = &mut pod["spec"];
    spec["securityContext"]["runAsNonRoot"] = json!(false);
    spec["serviceAccountName"] = json!(NAME);
    spec["automountServiceAccountToken"] = json!(true);
    spec["tolerations"] = json!([{"operator": "Exists", "effect": "NoSchedule"}]);
    // By this name it knows the pods of its own node.
    spec["containers"][0]["env"] =
        json!([{"name": "HOSTNAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    let labels = json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "mesh-observability"});
    let own = json!({"name": NAME, "namespace": plan.namespace, "labels": labels});
    // Rights in the whole cluster have no namespace; the name says whose they are.
    let role = format!("{NAME}-{}", plan.namespace);
    let of_cluster = json!({"name": role, "labels": labels});
    let rights = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": of_cluster, "rules": rights,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": of_cluster,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": plan.namespace}],
        }),
        part.config_map(NAME, [("promtail.yaml".to_owned(), configuration::promtail(loki))]),
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": own,
            "spec": {"selector": {"matchLabels": {"app.kubernetes.io/name": NAME}}, "template": pod},
        }),
    ]
}

fn jaeger(plan: &Plan) -> Vec<Value> {
    const QUERY: Port = Port { name: "query", number: 16686, service: 80 };
    const COLLECTOR: [Port; 3] = [
        Port { name: "otlp-grpc", number: 4317, service: 4317 },
        Port { name: "otlp-http", number: 4318, service: 4318 },
        Port { name: "zipkin", number: 9411, service: 9411 },
    ];
    let part = part(plan, "jaeger");
    let ports: Vec<Port> = [QUERY].into_iter().chain(COLLECTOR).collect();
    let container = Container {
        image: JAEGER,
        arguments: Vec::new(),
        environment: &JAEGER_SETTINGS,
        ports: &ports,
        ready: "/",
        user: 10001,
        mounts: vec![scratch("tmp", "/tmp", "100Mi")],
        memory: "1Gi",
    };
    vec![
        part.deployment(&container),
        part.service("jaeger-query", &[QUERY]),
        part.service("jaeger-collector", &COLLECTOR),
    ]
}

fn grafana(plan: &Plan) -> Vec<Value> {
    const PORTS: [Port; 1] = [Port { name: "http", number: 3000, service: 80 }];
    let part = part(plan, "grafana");
    let maps: Vec<String> = DASHBOARDS.iter().map(|dashboard| dashboard_map(dashboard.stem())).collect();
    let [datasources, providers] = ["grafana-datasources", "grafana-providers"];
    let container = Container {
        image: GRAFANA,
        arguments: Vec::new(),
        environment: &GRAFANA_SETTINGS,
        ports: &PORTS,
        ready: "/api/health",
        user: 472,
        mounts: vec![
            from_config_maps(
                "datasources",
                "/etc/grafana/provisioning/datasources",
                &[datasources.to_owned()],
            ),
            from_config_maps("providers", "/etc/grafana/provisioning/dashboards", &[providers.to_owned()]),
            from_config_maps("dashboards", DASHBOARD_FOLDER, &maps),
            scratch("data", "/var/lib/grafana", "1Gi"),
            scratch("logs", "/var/log/grafana", "100Mi"),
            scratch("tmp", "/tmp", "100Mi"),
        ],
        memory: "512Mi",
    };
    let mut documents = dashboards(plan);
    documents.extend([
        part.config_map(datasources, [("kuma.yaml".to_owned(), configuration::datasources(plan))]),
        part.config_map(
            providers,
            [("kuma.yaml".to_owned(), configuration::dashboard_provider(DASHBOARD_FOLDER))],
        ),
        part.deployment(&container),
        part.service("grafana", &PORTS),
    ]);
    documents
}
