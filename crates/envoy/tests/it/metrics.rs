//! Metrics of a real Envoy: pages that an agent writes, documents for the agent, and which statistics there are.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::{UnixListener, UnixStream},
    sync::Arc,
    thread,
    time::Duration,
};

use envoy::bootstrap::ClusterNames;
use plan::{CertificateFiles, Counting, ProxyTraits};
use resources::kinds::mesh_metric::{
    Conf,
    profile::{BASIC_BEGINNINGS, BASIC_NAMES, BASIC_PARTS},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use xds::Type;

use crate::{
    live::Live,
    real_envoy::certificate,
    support::{BACKEND, PLAIN, SECURED, plan, traits, unified},
    view::{check, shown, target},
};

const PATIENCE: Duration = Duration::from_secs(30);

fn proxy(address: &str) -> String {
    format!(
        "
type: Dataplane
mesh: default
name: web
networking:
  address: {address}
  inbound: [{{ name: http, port: 8091, servicePort: 18091, tags: {{ kuma.io/service: web, kuma.io/protocol: http }} }}]
  outbound: [{{ port: 10011, address: {address}, backendRef: {{ kind: MeshService, name: backend, port: 80 }} }}]
"
    )
}

const POLICY: &str = "
type: MeshMetric
mesh: default
name: all
spec:
  default:
    backends:
      - { type: Prometheus, prometheus: { clientId: first, port: 5670 } }
      - { type: Prometheus, prometheus: { clientId: second, port: 5671, path: /stats } }
      - { type: OpenTelemetry, openTelemetry: { endpoint: 'otel-collector.observability.svc:4317' } }
";

fn in_folder(folder: &tempfile::TempDir, traits: ProxyTraits) -> ProxyTraits {
    ProxyTraits { work_dir: folder.path().display().to_string(), ..traits }
}

/// An agent that answers with the path it was asked for.
fn agent(folder: &tempfile::TempDir) {
    let listener = UnixListener::bind(folder.path().join("kuma-mh-web-default.sock")).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let asked = line.split(' ').nth(1).unwrap_or_default();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}", asked.len());
            let _ = write!(stream, "{head}\r\nconnection: close\r\n\r\n{asked}");
        }
    });
}

fn asked(mut stream: impl Read + Write, path: &str, headers: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn pages_ask_the_agent_and_the_agent_finds_its_document() {
    let folder = tempfile::tempdir().unwrap();
    agent(&folder);
    for (traits, names, address) in [
        (traits("web"), ClusterNames::LEGACY, "127.77.0.21"),
        (unified("web"), ClusterNames::UNIFIED, "127.77.0.22"),
    ] {
        let plan = plan(&[SECURED, BACKEND, POLICY, &proxy(address)], &in_folder(&folder, traits));
        assert_eq!(plan.findings(), vec![]);
        let _live = Live::start(&plan, names);
        let page = |port: u16, path: &str| {
            let stream = TcpStream::connect((address, port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            asked(stream, path, "")
        };
        for (port, path, expect) in [
            (5670, "/metrics", "/meshmetric"),
            (5671, "/stats", "/meshmetric"),
            (5671, "/stats?a=b", "/meshmetric?a=b"),
        ] {
            let answer = page(port, path);
            assert!(answer.ends_with(&format!("\r\n\r\n{expect}")), "{path}: {answer}");
        }
        assert!(page(5671, "/metrics").starts_with("HTTP/1.1 404"));

        let part = &plan.own.metrics.as_ref().unwrap().document;
        let document = |headers: &str| {
            let socket = UnixStream::connect(folder.path().join("kuma-mesh-metric-config.sock")).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            asked(socket, "/meshmetric", headers)
        };
        let answer = document("");
        assert!(answer.to_lowercase().contains(&format!("etag: {}", part.etag)), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{}", part.body)), "{answer}");
        assert!(document(&format!("if-none-match: {}\r\n", part.etag)).starts_with("HTTP/1.1 304"));
        assert!(document("if-none-match: other\r\n").starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn a_page_with_a_certificate_answers_over_tls_only() {
    let folder = tempfile::tempdir().unwrap();
    agent(&folder);
    let (certificate, key) = certificate();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let files = CertificateFiles { certificate: file("cert.pem", &certificate), key: file("key.pem", &key) };
    let traits = ProxyTraits { metrics_certificate: Some(Arc::new(files)), ..unified("web") };
    let policy = "type: MeshMetric\nmesh: default\nname: all\nspec: { default: { backends: [{ type: Prometheus, \
                  prometheus: { tls: { mode: ProvidedTLS } } }] } }\n";
    let plan = plan(&[SECURED, policy, BACKEND, &proxy("127.77.0.24")], &in_folder(&folder, traits));
    assert_eq!(plan.findings(), []);
    let _live = Live::start(&plan, ClusterNames::UNIFIED);
    let connect = || {
        let stream = TcpStream::connect(("127.77.0.24", 5670)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut plain = connect();
    let _ = write!(plain, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1 200"), "{answer:?}");

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let session = ClientConnection::new(config, ServerName::try_from("web").unwrap()).unwrap();
    let answer = asked(StreamOwned::new(session, connect()), "/metrics", "");
    assert!(answer.ends_with("\r\n\r\n/meshmetric"), "{answer}");
}

#[test]
fn pages_are_as_kuma_makes_them() {
    let folder = tempfile::tempdir().unwrap();
    let of = |traits| target(&[SECURED, POLICY, &proxy("192.168.0.1")], &in_folder(&folder, traits));
    let at = |name: &str| folder.path().join(name).display().to_string();
    let older = of(traits("web"));
    let newer = of(unified("web"));
    let manager = "/filterChains/0/filters/0/typedConfig";
    let page = shown(&newer, Type::Listener, "system_meshmetric_prometheus_first");
    check(
        &page,
        &[
            ("/statPrefix", json!("system_meshmetric_prometheus_first")),
            ("/address/socketAddress/portValue", json!(5670)),
            ("/trafficDirection", json!("INBOUND")),
            (&format!("{manager}/statPrefix"), json!("system_meshmetric_prometheus_first")),
            (&format!("{manager}/routeConfig/virtualHosts/0/routes/0/match/prefix"), json!("/metrics")),
            (
                &format!("{manager}/routeConfig/virtualHosts/0/routes/0/route"),
                json!({"cluster": "system_meshmetric_prometheus_first", "prefixRewrite": "/meshmetric"}),
            ),
        ],
    );
    let page = shown(&older, Type::Listener, "_kuma:metrics:prometheus:second");
    check(
        &page,
        &[
            ("/statPrefix", Value::Null),
            (&format!("{manager}/statPrefix"), json!("_kuma_metrics_prometheus_second")),
            (
                &format!("{manager}/routeConfig/virtualHosts/0/routes/0/route/cluster"),
                json!("_kuma:metrics:hijacker"),
            ),
        ],
    );
    let pipe = "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/pipe/path";
    let hijacker = shown(&older, Type::Cluster, "_kuma:metrics:hijacker");
    let stats = json!("_kuma_metrics_hijacker");
    check(&hijacker, &[(pipe, json!(at("kuma-mh-web-default.sock"))), ("/altStatName", stats)]);
}

#[test]
fn what_the_agent_reads_and_sends_is_as_kuma_makes_it() {
    let folder = tempfile::tempdir().unwrap();
    let newer = target(&[SECURED, POLICY, &proxy("192.168.0.1")], &in_folder(&folder, unified("web")));
    let at = |name: &str| folder.path().join(name).display().to_string();
    let manager = "/filterChains/0/filters/0/typedConfig";
    let name = "system_meshmetric_otel_otel-collector-observability-svc-4317";
    let to = shown(&newer, Type::Listener, name);
    check(
        &to,
        &[
            ("/address/pipe/path", json!(at("kuma-otel-otel-collector.observability.svc-4317.sock"))),
            (&format!("{manager}/httpFilters/0/name"), json!("envoy.filters.http.grpc_stats")),
            (&format!("{manager}/routeConfig/virtualHosts/0/routes/0/route/cluster"), json!(name)),
        ],
    );
    let collector = shown(&newer, Type::Cluster, name);
    let address = "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/socketAddress";
    check(
        &collector,
        &[
            ("/type", json!("STRICT_DNS")),
            ("/connectTimeout", json!("5s")),
            (address, json!({"address": "otel-collector.observability.svc", "portValue": 4317})),
        ],
    );
    let agent = shown(&newer, Type::Listener, "system_dynamicconfig");
    let routes = format!("{manager}/routeConfig/virtualHosts/0/routes");
    check(
        &agent,
        &[
            ("/address/pipe/path", json!(at("kuma-mesh-metric-config.sock"))),
            (&format!("{routes}/0/name"), json!("system_dynamicconfig_meshmetric_not_modified")),
            (&format!("{routes}/0/directResponse/status"), json!(304)),
            (&format!("{routes}/0/match/headers/0/name"), json!("If-None-Match")),
            (&format!("{routes}/1/name"), json!("system_dynamicconfig_meshmetric")),
            (&format!("{routes}/1/match/path"), json!("/meshmetric")),
            (&format!("{routes}/1/responseHeadersToAdd/0/header/key"), json!("Etag")),
        ],
    );
}

/// Families of Prometheus, without those that are there once Envoy was slow.
fn families(live: &Live) -> BTreeSet<String> {
    let text = live.get("/stats/prometheus");
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.filter(|name| !name.contains("watchdog")).map(str::to_owned).collect()
}

fn is_basic(family: &str) -> bool {
    BASIC_NAMES.contains(&family)
        || BASIC_BEGINNINGS.iter().any(|begin| family.starts_with(begin))
        || BASIC_PARTS.iter().any(|part| family.contains(part))
}

/// Returns the statistics counted for a MeshMetric with these profiles; `unused` includes those without
/// traffic.
fn counting(profiles: &Value, unused: bool) -> Option<Counting> {
    let sidecar = json!({"profiles": profiles, "includeUnused": unused});
    let page = json!({"type": "Prometheus", "prometheus": {}});
    let conf: Conf = serde_json::from_value(json!({"sidecar": sidecar, "backends": [page]})).unwrap();
    Counting::of(&conf)
}

#[test]
fn an_unused_cluster_is_counted_only_if_unused_metrics_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let address = "127.77.0.25";
    let plan = plan(&[PLAIN, BACKEND, &proxy(address)], &in_folder(&folder, unified("web")));
    for profile in ["All", "Basic"] {
        let profiles = json!({"appendProfiles": [{"name": profile}]});
        let stats = |live: &Live| -> BTreeSet<String> {
            let text = live.get("/stats");
            let names = text.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned()));
            names.filter(|name| name.starts_with("cluster.kri_")).collect()
        };
        let unused = {
            let live = Live::counting(&plan, ClusterNames::UNIFIED, counting(&profiles, true));
            stats(&live)
        };
        let live = Live::counting(&plan, ClusterNames::UNIFIED, counting(&profiles, false));
        let before = stats(&live);
        assert!(before.iter().any(|name| name.ends_with(".membership_total")), "{before:?}");
        assert!(!before.iter().any(|name| name.contains(".upstream_rq_")), "{before:?}");
        let stream = TcpStream::connect((address, 10011)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // There is no endpoint.
        assert!(asked(stream, "/", "").starts_with("HTTP/1.1 503"));
        let after = stats(&live);
        assert!(unused.is_subset(&after), "{:?}", unused.difference(&after).collect::<Vec<_>>());
        assert!(before.len() * 10 < unused.len() * 7, "{} of {}", before.len(), unused.len());
    }
}

#[test]
fn an_envoy_keeps_all_that_its_profile_wants_and_little_else() {
    let folder = tempfile::tempdir().unwrap();
    let counting = |profiles: Value| counting(&profiles, true);
    let plan = plan(&[SECURED, BACKEND, &proxy("127.77.0.23")], &in_folder(&folder, unified("web")));
    let kept = |counted: Option<Counting>| {
        let live = Live::counting(&plan, ClusterNames::UNIFIED, counted);
        (families(&live), live.get("/stats").lines().count(), live.get("/stats"))
    };
    let (all, lines_of_all, _) = kept(None);
    let (basic, lines_of_basic, _) = kept(counting(json!({})));
    let wanted: BTreeSet<String> = all.iter().filter(|family| is_basic(family)).cloned().collect();
    assert_eq!(wanted.difference(&basic).collect::<Vec<_>>(), Vec::<&String>::new());
    let unwanted = "envoy_cluster_assignment_stale";
    assert!(all.contains(unwanted) && !basic.contains(unwanted));
    assert!(lines_of_basic < lines_of_all, "{lines_of_basic} of {lines_of_all}");

    let none =
        json!({"appendProfiles": [{"name": "None"}], "include": [{"type": "Exact", "match": unwanted}]});
    let (none, lines_of_none, text) = kept(counting(none));
    assert!(none.contains(unwanted), "{none:?}");
    assert!(!none.contains("envoy_cluster_upstream_cx_active"), "{none:?}");
    assert!(lines_of_none * 3 < lines_of_all, "{lines_of_none} of {lines_of_all}");
    // One of each thing that the outbound has, what signals are made of, and the one that was added.
    let of_signals = signals::envoy::of_clusters().count();
    let of_outbound: Vec<&str> = text.lines().filter(|line| line.contains("kri_msvc_")).collect();
    assert!(of_outbound.len() < 12 + of_signals, "{of_outbound:#?}");
    // What the agent and inspection find the names of objects by, and what tells that a destination is called.
    for name in [
        "cluster.kri_msvc_default_east__backend_http.upstream_rq_total",
        "cluster.self_http.membership_total",
        "listener.self_http.no_filter_chain_match",
        "http.self_http.downstream_cx_destroy",
        "listener.self_http.downstream_cx_active",
        "listener_manager.total_listeners_active",
        "server.live",
    ] {
        assert!(text.contains(&format!("{name}: ")), "{name} is not in\n{text}");
    }

    let without = json!({"exclude": [{"type": "Contains", "match": "healthy_panic"}]});
    let (without, ..) = kept(counting(without));
    let left_out = |family: &&String| family.contains("healthy_panic");
    assert!(basic.iter().any(|family| left_out(&family)) && !without.iter().any(|family| left_out(&family)));
}
