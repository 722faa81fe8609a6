//! A MeshMetric: Debian's Prometheus scrapes the pages of proxies, a collector of OpenTelemetry gets metrics, and
//! Envoy keeps what the profile wants.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use e2e::{
    Setup, eventually,
    prometheus::Prometheus,
    proxy::{RunningProxy, own_address},
    service::{Service, dataplane},
};
use serde_json::{Value, json};
use testkit::collector::{Collector, MetricKind};

use crate::world::{UNIFIED, World, answered_by, by_reference, client};

const PORT: u16 = 5670;
const PATH: &str = "/meshes/default/meshmetrics/all";

/// An application that counts its orders.
fn orders() -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 9000)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let page = "# TYPE orders counter\norders{kind=\"book\"} 3\n";
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}", page.len());
            // A client that hangs up early asks again.
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "{head}\r\nconnection: close\r\n\r\n{page}");
        }
    });
    address
}

fn policy(profile: &str, applications: &Value, collector: SocketAddr) -> Value {
    json!({"type": "MeshMetric", "mesh": "default", "name": "all", "spec": {"default": {
        "sidecar": {"profiles": {
            "appendProfiles": [{"name": profile}],
            "exclude": [{"type": "Contains", "match": "circuit_breakers"}, {"type": "Contains", "match": "healthy_panic"}],
        }},
        "applications": applications,
        "backends": [
            {"type": "Prometheus", "prometheus": {"port": PORT, "path": "/metrics"}},
            {"type": "OpenTelemetry", "openTelemetry": {
                "endpoint": collector.to_string(), "refreshInterval": "1s",
            }},
        ],
    }}})
}

struct Scraped {
    name: &'static str,
    proxy: RunningProxy,
    address: Ipv4Addr,
    _app: Service,
}

impl Scraped {
    fn start(world: &World, name: &'static str, variables: &[(&str, &str)]) -> Scraped {
        let address = own_address();
        let app = (own_address(), 9001).into();
        let app = Service::start(name, "http", app).unwrap();
        let proxy = world.proxy_with(&dataplane(name, name, address, "http", app.address), variables);
        Scraped { name, proxy, address, _app: app }
    }
}

fn is_there(prometheus: &Prometheus, proxy: &Scraped, series: &str) {
    let (metric, labels) = series.split_once('{').unwrap();
    let query = format!("{metric}{{proxy=\"{}\",{labels}", proxy.name);
    let mut found = Vec::new();
    eventually(&format!("{query} to be in Prometheus"), || {
        found = prometheus.query(&query).unwrap();
        matches!(found[..], [(_, value)] if value > 0.0)
    })
    .unwrap_or_else(|error| panic!("{error}: {found:?}\n{}", proxy.proxy.log()));
}

#[test]
fn a_mesh_metric_is_scraped_and_sent_and_keeps_envoy_small() {
    let world = World::start(Setup::default());
    let orders = orders();
    let collector = Collector::start().unwrap();
    let applications = json!([
        {"name": "shop", "address": orders.ip().to_string(), "port": orders.port()},
        // Nothing listens there.
        {"name": "gone", "address": orders.ip().to_string(), "port": 1},
    ]);
    world.put(PATH, &policy("Basic", &applications, collector.address));
    let scraped = [Scraped::start(&world, "older", &[]), Scraped::start(&world, "newer", &[UNIFIED])];
    let targets: Vec<_> =
        scraped.iter().map(|one| (one.name, SocketAddr::from((one.address, PORT)))).collect();
    let prometheus = Prometheus::start(&targets).unwrap();
    let (_caller, caller) = client(&world, "caller", &[by_reference("older"), by_reference("newer")]);
    assert_eq!(answered_by(caller, 10001), "older");
    assert_eq!(answered_by(caller, 10002), "newer");

    let [older, newer] = &scraped;
    for (proxy, series) in [
        (
            older,
            r#"envoy_cluster_upstream_rq_total{envoy_cluster_name="localhost_9001",mesh="default",dataplane="older",kuma_io_service="older"}"#,
        ),
        (
            newer,
            r#"envoy_cluster_upstream_rq_total{envoy_cluster_name="self_main",mesh="default",kuma_proxy_role="sidecar",kuma_io_service=""}"#,
        ),
        (
            newer,
            r#"envoy_http_downstream_rq_xx{envoy_http_conn_manager_prefix="self_main",envoy_response_code_class="2"}"#,
        ),
        (older, r#"orders{kind="book",kuma_application="shop",mesh="default"}"#),
        (newer, r#"orders{kind="book",kuma_application="shop",mesh="default"}"#),
        (newer, r#"kuma_dp_metrics_source_failures_total{source="gone"}"#),
    ] {
        is_there(&prometheus, proxy, series);
    }
    let is_absent = |query: &str| assert_eq!(prometheus.query(query).unwrap(), [], "{query}");
    is_absent(r#"{__name__=~".*circuit_breakers.*"}"#);
    is_absent(r#"{envoy_cluster_name=~"system_.*|ads_cluster|_kuma.*"}"#);
    is_absent("up == 0");
    the_collector_gets_them(&collector);

    // What the profile leaves out is not there at all.
    let kept = newer.proxy.admin("/stats").unwrap();
    assert!(kept.contains("cluster.self_main.upstream_rq_total: "), "{kept}");
    assert!(!kept.contains("lb_healthy_panic") && !kept.contains("assignment_stale"), "{kept}");

    // More than Envoy was started for is said to be missing.
    world.put(PATH, &policy("All", &applications, collector.address));
    eventually("a finding", || world.control_plane.log().contains("statistics-not-kept")).unwrap();
    let answer = world.control_plane.client().delete(PATH).unwrap();
    assert!(answer.status < 300, "{}", answer.body);
    eventually("the page to go", || TcpStream::connect((newer.address, PORT)).is_err()).unwrap();
}

fn the_collector_gets_them(collector: &Collector) {
    let has = |scope: &str, metric: &str, kind: MetricKind, attribute: (&str, &str)| {
        let (name, value) = attribute;
        collector.points().iter().any(|point| {
            point.scope == scope
                && point.metric == metric
                && point.kind == kind
                && point.attributes.get(name).map(String::as_str) == Some(value)
                && point.attributes.get("mesh").map(String::as_str) == Some("default")
        })
    };
    for (scope, metric, kind, attribute) in [
        ("shop", "orders", MetricKind::Sum, ("kind", "book")),
        ("", "envoy_cluster_upstream_rq_total", MetricKind::Sum, ("envoy_cluster_name", "self_main")),
        ("", "envoy_cluster_upstream_rq_time", MetricKind::Histogram, ("kuma.proxy_role", "sidecar")),
        ("", "envoy_server_live", MetricKind::Gauge, ("dataplane", "older")),
    ] {
        let what = format!("{metric} at the collector");
        eventually(&what, || has(scope, metric, kind, attribute)).unwrap();
    }
}
