//! `docs/reference/naming.md`: what things are called in a real Envoy, before and with unified names.
//!
//! Two Envoys run the same proxy, one per scheme. Names of resources are read from their configuration,
//! names of statistics are looked up in what they count; what is at the same address belongs together.

mod policies;
mod zone_proxies;

use std::{collections::BTreeSet, fmt::Write, fs, path::Path, sync::Arc};

use envoy::bootstrap::ClusterNames;
use plan::{AdminTls, ProxyTraits};
use serde_json::Value;

use policies::{INBOUND_POLICIES, LET_OUT, METRICS, TELEMETRY};

use crate::{
    live::Live,
    real_envoy::certificate,
    support::{self, SECURED, plan, traits, unified},
};

pub const PROXY: &str = "
type: Dataplane
mesh: default
name: web
networking:
  address: 127.77.0.2
  inbound:
    - { name: http, port: 8080, servicePort: 18080, tags: { kuma.io/service: web, kuma.io/protocol: http } }
    - { port: 9000, servicePort: 19000, tags: { kuma.io/service: web, kuma.io/protocol: tcp } }
    - { name: backend-kumahq.com, port: 8081, tags: { kuma.io/service: web, kuma.io/protocol: grpc } }
    - { name: a, port: 8082, address: '::1', tags: { kuma.io/service: web, kuma.io/protocol: tcp } }
  outbound:
    - { port: 10001, tags: { kuma.io/service: backend } }
    - { port: 10002, tags: { kuma.io/service: backend, version: v1 } }
    - { port: 10003, tags: { kuma.io/service: shop } }
  transparentProxying: {}
";

pub const DESTINATIONS: &str = "
type: MeshService
mesh: default
name: backend
labels: { kuma.io/zone: east, app: backend }
spec:
  selector: { dataplaneTags: { kuma.io/service: backend } }
  ports:
    - { name: http, port: 80, targetPort: 8080, appProtocol: http }
    - { port: 9000, targetPort: 9000, appProtocol: tcp }
status:
  vips: [{ ip: 241.0.0.1 }]
  tls: { status: Ready }
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 127.77.0.3
  inbound:
    - { port: 8080, tags: { kuma.io/service: backend, kuma.io/protocol: http, version: v1 } }
    - { port: 9000, tags: { kuma.io/service: backend, kuma.io/protocol: tcp } }
---
type: MeshMultiZoneService
mesh: default
name: everywhere
spec:
  selector: { meshService: { matchLabels: { app: backend } } }
  ports: [{ name: http, port: 80, appProtocol: http }]
status:
  vips: [{ ip: 243.0.0.1 }]
  meshServices: [{ name: backend, zone: east, mesh: default }]
---
type: MeshExternalService
mesh: default
name: payments
labels: { kuma.io/zone: east }
spec:
  match: { type: HostnameGenerator, port: 443, protocol: tcp }
  endpoints: [{ address: 192.0.2.1, port: 443 }]
status:
  vip: { ip: 242.0.0.1 }
---
type: MeshHTTPRoute
mesh: default
name: canary
labels: { kuma.io/zone: east }
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: backend, sectionName: http }
      rules:
        - matches: [{ path: { type: PathPrefix, value: /v2 } }]
          default: { backendRefs: [{ kind: MeshService, name: backend, port: 80 }] }
    - targetRef: { kind: MeshService, name: shop }
      rules:
        - matches: [{ path: { type: PathPrefix, value: /v2 } }]
          default: { backendRefs: [{ kind: MeshServiceSubset, name: shop, tags: { version: v2 } }] }
---
type: Dataplane
mesh: default
name: shop
networking:
  address: 127.77.0.4
  inbound: [{ port: 8080, tags: { kuma.io/service: shop, kuma.io/protocol: http, version: v2 } }]
";

/// Objects by their address.
const OBJECTS: &[(&str, &str)] = &[
    ("127.77.0.2:8080", "An inbound with a name, HTTP: `{ name: http, port: 8080, servicePort: 18080 }`"),
    ("127.77.0.2:9000", "An inbound without a name, TCP: `{ port: 9000, servicePort: 19000 }`"),
    ("127.77.0.2:8081", "An inbound whose name has a dot, gRPC: `{ name: backend-kumahq.com, port: 8081 }`"),
    ("[::1]:8082", "An inbound at an address of IPv6, TCP: `{ name: a, port: 8082, address: '::1' }`"),
    ("241.0.0.1:80", "A port with a name of a MeshService, HTTP, with a MeshHTTPRoute"),
    ("241.0.0.1:9000", "A port without a name of a MeshService, TCP"),
    ("243.0.0.1:80", "A port of a MeshMultiZoneService, HTTP"),
    ("242.0.0.1:443", "A MeshExternalService, TCP"),
    ("127.0.0.1:10001", "A service by its tag: `{ port: 10001, tags: { kuma.io/service: backend } }`"),
    ("127.0.0.1:10002", "A part of a service by tags: `tags: { kuma.io/service: backend, version: v1 }`"),
    (
        "127.0.0.1:10003",
        "A service by its tag, HTTP, with a MeshHTTPRoute to the part with `version: v2`: `tags: { kuma.io/service: shop }`",
    ),
    ("0.0.0.0:15006", "Passthrough, inbound, IPv4, with `--strict-inbound-ports=false`"),
    ("0.0.0.0:15001", "Passthrough, outbound, IPv4"),
    ("[::]:15006", "Passthrough, inbound, IPv6, with `--strict-inbound-ports=false`"),
    ("[::]:15001", "Passthrough, outbound, IPv6"),
    ("127.77.0.2:9901", "Envoy's admin interface, for the control plane"),
    ("127.77.0.2:5670", "A page of metrics of a MeshMetric, whose backend has no `clientId`"),
];

/// One proxy as its Envoy shows it.
struct EnvoyView {
    listeners: Vec<Value>,
    clusters: Vec<Value>,
    endpoints: Vec<String>,
    secrets: Vec<String>,
    statistics: BTreeSet<String>,
}

/// A row of a table: what, and its name in this scheme.
type Row = (&'static str, String);

impl EnvoyView {
    fn of(traits: &ProxyTraits, names: ClusterNames) -> EnvoyView {
        EnvoyView::with("", traits, names)
    }

    fn with(policy: &str, traits: &ProxyTraits, names: ClusterNames) -> EnvoyView {
        let policies: &[&str] = if policy.is_empty() { &[] } else { &[policy] };
        let folder = tempfile::tempdir().unwrap();
        let traits = &ProxyTraits { work_dir: folder.path().display().to_string(), ..traits.clone() };
        let all = [SECURED, DESTINATIONS, TELEMETRY, METRICS, INBOUND_POLICIES, PROXY];
        let mut plan = plan(&[&all, policies].concat(), traits);
        assert_eq!(plan.findings(), []);
        let (certificate, key) = certificate();
        let authority = certificate.clone();
        plan.own.admin.as_mut().unwrap().tls =
            Some(Arc::new(AdminTls { certificate, key, authority: authority.into() }));
        EnvoyView::by(&Live::start(&plan, names))
    }

    fn by(live: &Live) -> EnvoyView {
        let dump: Value = serde_json::from_str(&live.get("/config_dump?include_eds")).unwrap();
        let all = |list: &str| -> Vec<Value> {
            let configs = dump["configs"].as_array().unwrap().iter();
            configs.filter_map(|config| config[list].as_array()).flatten().cloned().collect()
        };
        let statistics = live.get("/stats");
        EnvoyView {
            listeners: all("static_listeners").into_iter().map(|one| one["listener"].clone()).collect(),
            clusters: all("static_clusters").into_iter().map(|one| one["cluster"].clone()).collect(),
            endpoints: ["static_endpoint_configs", "dynamic_endpoint_configs"]
                .into_iter()
                .flat_map(all)
                .map(|one| text(&one["endpoint_config"]["cluster_name"]))
                .collect(),
            secrets: all("dynamic_active_secrets").iter().map(|one| text(&one["name"])).collect(),
            statistics: statistics.lines().map(|line| line.split(": ").next().unwrap().to_owned()).collect(),
        }
    }

    fn listener_at(&self, address: &str) -> &Value {
        let is_there = |listener: &&Value| {
            let also = listener["additional_addresses"].as_array().into_iter().flatten();
            let addresses = also.map(|also| &also["address"]).chain([&listener["address"]]);
            addresses.into_iter().any(|at| socket(at) == address)
        };
        let known: Vec<&Value> = self.listeners.iter().map(|listener| &listener["address"]).collect();
        self.listeners.iter().find(is_there).unwrap_or_else(|| panic!("nobody at {address}: {known:?}"))
    }

    /// Everything that belongs to the listener at an address.
    fn rows(&self, address: &str) -> Vec<Row> {
        let listener = self.listener_at(address);
        let mut rows = vec![("listener", text(&listener["name"]))];
        let filters = listener["filter_chains"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|chain| chain["filters"].as_array().unwrap());
        let filters: Vec<&Value> = filters.map(|filter| &filter["typed_config"]).collect();
        let last = filters.last().unwrap();
        let is_http = text(&last["@type"]).ends_with("HttpConnectionManager");
        let cluster = if is_http { http_cluster(last) } else { text(&last["cluster"]) };
        rows.push(("cluster", cluster.clone()));
        if self.cluster(&cluster)["type"] == "EDS" {
            assert!(self.endpoints.contains(&cluster), "{cluster} is not in {:?}", self.endpoints);
            rows.push(("endpoints", cluster.clone()));
        }
        if is_http {
            rows.extend(http_rows(last));
            rows.extend(self.other_clusters(last, &cluster));
        }
        let stats = match text(&listener["stat_prefix"]) {
            none if none.is_empty() => address.replace(':', "_"),
            stats => stats,
        };
        rows.push(("statistics of the listener", format!("listener.{stats}.downstream_cx_total")));
        rows.push(("statistics of the cluster", self.cluster_statistic(&cluster)));
        let prefix = text(&last["stat_prefix"]);
        if is_http {
            rows.push(("statistics of requests", format!("http.{prefix}.downstream_rq_total")));
        } else {
            rows.push(("statistics of connections", format!("tcp.{prefix}.downstream_cx_total")));
        }
        rows.extend(permissions(last, &filters, is_http, &prefix));
        rows.extend(faults_and_limits(last, &filters, &prefix));
        self.assert_counted(&rows);
        rows
    }

    /// Returns the rows of a MeshPassthrough.
    fn let_out(&self) -> Vec<Row> {
        let listener = self.listener_at("0.0.0.0:15001");
        let mut rows = vec![("listener", text(&listener["name"]))];
        for chain in listener["filter_chains"].as_array().unwrap() {
            let filter = &chain["filters"][0]["typed_config"];
            let first = &filter["route_config"]["virtual_hosts"][0];
            let (cluster, statistics) = if first.is_null() {
                (text(&filter["cluster"]), "tcp")
            } else {
                (text(&first["routes"][0]["route"]["cluster"]), "http")
            };
            rows.push(("chain of filters", text(&chain["name"])));
            rows.push(("cluster", cluster.clone()));
            rows.push(("statistics of the cluster", self.cluster_statistic(&cluster)));
            let prefix = text(&filter["stat_prefix"]);
            rows.push(("statistics of connections", format!("{statistics}.{prefix}.downstream_cx_total")));
        }
        self.assert_counted(&rows);
        rows
    }

    /// Returns the clusters that routes lead to, except the cluster that takes the rest.
    fn other_clusters(&self, manager: &Value, rest: &str) -> Vec<Row> {
        let all: BTreeSet<String> = routes(manager).map(|route| text(&route["route"]["cluster"])).collect();
        let others = all.into_iter().filter(|name| !name.is_empty() && name != rest);
        let rows = |name: String| {
            [("statistics of another cluster", self.cluster_statistic(&name)), ("another cluster", name)]
        };
        others.flat_map(|name| rows(name).into_iter().rev()).collect()
    }

    fn cluster(&self, name: &str) -> &Value {
        self.clusters.iter().find(|cluster| cluster["name"] == name).unwrap()
    }

    fn cluster_statistic(&self, name: &str) -> String {
        let stats = match text(&self.cluster(name)["alt_stat_name"]) {
            none if none.is_empty() => name.to_owned(),
            stats => stats,
        };
        format!("cluster.{stats}.upstream_cx_total")
    }

    fn assert_counted(&self, rows: &[Row]) {
        for (what, name) in rows.iter().filter(|(what, _)| what.contains("statistics")) {
            assert!(self.statistics.contains(name), "{what}: {name} is not in {:#?}", self.statistics);
        }
    }

    /// Returns the rows that belong to no listener.
    fn others(&self) -> Vec<Row> {
        let beginning = |names: [&str; 2]| -> String {
            let mut names = names.into_iter();
            names
                .find(|name| self.clusters.iter().any(|cluster| cluster["name"] == *name))
                .unwrap()
                .to_owned()
        };
        let secret = |word: &str| self.secrets.iter().find(|name| name.contains(word)).unwrap().clone();
        let mut rows = Vec::new();
        for (what, statistics, names) in [
            ("cluster of the control plane", "its statistics", ["ads_cluster", "system_ads"]),
            ("cluster for access logs", "its statistics", ["access_log_sink", "system_access_log_sink"]),
            (
                "cluster of the readiness probe",
                "its statistics",
                ["kuma:readiness", "system_probe_readiness"],
            ),
            (
                "cluster of a MeshAccessLog's collector at `127.0.0.1:4317`",
                "its statistics",
                ["meshaccesslog:opentelemetry:0", "system_meshaccesslog_127-0-0-1-4317"],
            ),
            (
                "cluster of a MeshTrace's collector at `http://127.0.0.1:9411/api/v2/spans`",
                "its statistics",
                ["meshtrace:zipkin", "system_meshtrace_zipkin_http---127-0-0-1-9411-api-v2-spans"],
            ),
        ] {
            let name = beginning(names);
            rows.push((what, name.clone()));
            rows.push((statistics, self.cluster_statistic(&name)));
        }
        for (what, word) in
            [("secret: identity of the proxy", "identity"), ("secret: authorities of the mesh", "ca")]
        {
            let name = secret(word);
            rows.push((what, name.clone()));
            rows.push(("its statistics", format!("sds.{}.update_success", name.replace(':', "_"))));
        }
        rows.extend(self.of_metrics());
        self.assert_counted(&rows);
        rows
    }

    /// Returns the rows of a MeshMetric apart from its pages: its listener is at a socket on disk.
    fn of_metrics(&self) -> Vec<Row> {
        let of = |names: [&str; 2]| {
            let called = |listener: &&Value| names.contains(&listener["name"].as_str().unwrap());
            self.listeners.iter().find(called).unwrap()
        };
        let statistic =
            |listener: &Value| format!("listener.{}.downstream_cx_total", text(&listener["stat_prefix"]));
        let agent = of(["_kuma:dynamicconfig", "system_dynamicconfig"]);
        let manager = &agent["filter_chains"][0]["filters"][0]["typed_config"];
        let routes: Vec<String> = routes(manager)
            .map(|route| Some(text(&route["name"])).filter(|name| !name.is_empty()))
            .map(|name| name.unwrap_or_else(|| "(no name)".to_owned()))
            .collect();
        let [not_modified, route] = &routes[..] else { panic!("{routes:?}") };
        let out =
            of(["_kuma:metrics:opentelemetry:otel.example-4317", "system_meshmetric_otel_otel-example-4317"]);
        let name = text(&out["name"]);
        vec![
            ("listener of what the agent reads", text(&agent["name"])),
            ("its statistics", statistic(agent)),
            ("route of what a MeshMetric says", route.clone()),
            ("route for an agent that has it already", not_modified.clone()),
            ("listener and cluster of a MeshMetric for the collector `otel.example:4317`", name.clone()),
            ("statistics of the listener", statistic(out)),
            ("statistics of the cluster", self.cluster_statistic(&name)),
        ]
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn socket(address: &Value) -> String {
    let socket = &address["socket_address"];
    let host = text(&socket["address"]);
    let port = &socket["port_value"];
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn virtual_hosts(manager: &Value) -> &Vec<Value> {
    manager["route_config"]["virtual_hosts"].as_array().unwrap()
}

fn routes(manager: &Value) -> impl Iterator<Item = &Value> {
    virtual_hosts(manager).iter().flat_map(|host| host["routes"].as_array().unwrap())
}

/// The cluster of the last route, which takes what no other takes.
fn http_cluster(manager: &Value) -> String {
    let route = &routes(manager).last().unwrap()["route"];
    let shares = route["weighted_clusters"]["clusters"].as_array();
    text(shares.map_or(&route["cluster"], |shares| &shares[0]["name"]))
}

fn http_rows(manager: &Value) -> Vec<Row> {
    let mut rows = vec![("route configuration", text(&manager["route_config"]["name"]))];
    rows.extend(virtual_hosts(manager).iter().map(|host| ("virtual host", text(&host["name"]))));
    let mut named: Vec<String> = routes(manager).map(|route| text(&route["name"])).collect();
    named.dedup();
    rows.extend(named.into_iter().filter(|name| !name.is_empty()).map(|name| ("route", name)));
    rows
}

fn permissions(last: &Value, filters: &[&Value], is_http: bool, prefix: &str) -> Option<Row> {
    let inside = last["http_filters"].as_array().into_iter().flatten().map(|filter| &filter["typed_config"]);
    let asked =
        filters.iter().copied().chain(inside).find(|filter| text(&filter["@type"]).ends_with(".RBAC"))?;
    let statistic = if is_http {
        format!("http.{prefix}.rbac.{}denied", text(&asked["rules_stat_prefix"]))
    } else {
        format!("{}rbac.denied", text(&asked["stat_prefix"]))
    };
    Some(("statistics of permissions", statistic))
}

fn faults_and_limits(last: &Value, filters: &[&Value], prefix: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for filter in last["http_filters"].as_array().into_iter().flatten() {
        match text(&filter["name"]) {
            policy if policy.starts_with("kri_mfi_") => {
                rows.push(("filter of a MeshFaultInjection", policy));
                rows.push(("statistics of faults", format!("http.{prefix}.fault.aborts_injected")));
            }
            limit if limit.ends_with(".local_ratelimit") => {
                let prefix = text(&filter["typed_config"]["stat_prefix"]);
                let statistic = format!("{prefix}.http_local_rate_limit.rate_limited");
                rows.push(("statistics of limited requests", statistic));
            }
            _ => {}
        }
    }
    for filter in filters.iter().filter(|filter| text(&filter["@type"]).ends_with(".LocalRateLimit")) {
        let statistic = format!("local_rate_limit.{}.rate_limited", text(&filter["stat_prefix"]));
        rows.push(("statistics of limited connections", statistic));
    }
    rows
}

fn table(page: &mut String, older: &[Row], unified: &[Row]) {
    let whats = |rows: &[Row]| -> Vec<&str> { rows.iter().map(|(what, _)| *what).collect() };
    assert_eq!(whats(older), whats(unified));
    page.push_str("| | Older name | Unified name |\n|---|---|---|\n");
    for ((what, older), (_, unified)) in older.iter().zip(unified) {
        let unified = if older == unified { "the same".to_owned() } else { format!("`{unified}`") };
        let older = if older.is_empty() { "(empty)".to_owned() } else { format!("`{older}`") };
        writeln!(page, "| {what} | {older} | {unified} |").unwrap();
    }
}

fn page() -> String {
    let older = EnvoyView::of(&traits("web"), ClusterNames::LEGACY);
    let unified = EnvoyView::of(&unified("web"), ClusterNames::UNIFIED);
    let mut page = include_str!("naming_reference.txt").to_owned();
    for (address, title) in OBJECTS {
        write!(page, "\n### {title}\n\n").unwrap();
        table(&mut page, &older.rows(address), &unified.rows(address));
    }
    let with = |traits: &ProxyTraits, names| EnvoyView::with(LET_OUT, traits, names).let_out();
    page.push_str(
        "\n### What a MeshPassthrough lets out: TLS and HTTP to `api.example.com`, TCP to `192.0.2.1:5432`\n\n",
    );
    table(
        &mut page,
        &with(&traits("web"), ClusterNames::LEGACY),
        &with(&support::unified("web"), ClusterNames::UNIFIED),
    );
    page.push_str("\n### What a proxy needs for itself\n\n");
    table(&mut page, &older.others(), &unified.others());
    zone_proxies::tables(&mut page);
    page
}

#[test]
fn the_naming_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/naming.md");
    let current = page();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &current).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == current,
        "docs/reference/naming.md is out of date: run `cargo xtask gen`\n{current}"
    );
}
