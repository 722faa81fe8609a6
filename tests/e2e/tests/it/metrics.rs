//! Debian's Prometheus scrapes proxies with older, with unified and with both sorts of names.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    thread,
};

use e2e::{
    Setup, eventually,
    prometheus::Prometheus,
    proxy::{RunningProxy, own_address},
    service::{Service, call_tcp, dataplane, with_outbound},
};
use serde_json::{Value, json};

use crate::world::{UNIFIED, World, answered_by, by_reference, client};

/// An application that counts its orders.
fn application() -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 9000)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let page = "# TYPE orders counter\norders{kind=\"book\"} 3\n";
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}", page.len());
            // A client that hangs up early asks again.
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "{head}\r\nconnection: close\r\n\r\n{page}");
        }
    });
    address
}

/// A proxy with two inbounds for HTTP and two for TCP, one of each with a dotted name, and outbounds to a port with a
/// plain and to one with a dotted name.
fn server(name: &str, address: Ipv4Addr, apps: Ipv4Addr) -> Value {
    let mut own = dataplane(name, name, address, "http", (apps, 9001).into());
    for (inbound, port, service_port, protocol) in [
        ("backend-kumahq.com", 8081, 9002, "http"),
        ("line", 8082, 9003, "tcp"),
        ("wire-kumahq.com", 8083, 9004, "tcp"),
    ] {
        let inbound = json!({
            "port": port, "name": inbound, "servicePort": service_port, "serviceAddress": apps.to_string(),
            "tags": {"kuma.io/service": format!("{name}-{port}"), "kuma.io/protocol": protocol}
        });
        own["networking"]["inbound"].as_array_mut().unwrap().push(inbound);
    }
    with_outbound(
        with_outbound(own, address, 10001, by_reference("peer")),
        address,
        10002,
        by_reference("shop"),
    )
}

/// Series every proxy has after one call to each port. `{main}`, `{dotted}`, `{line}` and `{wire}` are the inbounds,
/// `{peer}` and `{shop}` the outbounds; `@` asks for the name of a listener, `~` for that of permissions.
const SERIES: &[&str] = &[
    r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="{main}"}"#,
    r#"envoy_cluster_upstream_rq_total{envoy_cluster_name="{main}"}"#,
    r#"envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="{main}",le="+Inf"}"#,
    r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="{dotted}"}"#,
    r#"envoy_cluster_upstream_rq_time_count{envoy_cluster_name="{dotted}"}"#,
    r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="{line}"}"#,
    r#"envoy_cluster_upstream_rq_total{envoy_cluster_name="{peer}"}"#,
    r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="{shop}"}"#,
    r#"envoy_cluster_upstream_rq_time_count{envoy_cluster_name="{shop}"}"#,
    r#"envoy_http_downstream_rq_xx{envoy_http_conn_manager_prefix="{shop}",envoy_response_code_class="2"}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{shop}",worker=""}"#,
    r#"envoy_http_downstream_rq_xx{envoy_http_conn_manager_prefix="{main}",envoy_response_code_class="2"}"#,
    r#"envoy_http_downstream_rq_xx{envoy_http_conn_manager_prefix="{dotted}",envoy_response_code_class="2"}"#,
    r#"envoy_http_downstream_rq_xx{envoy_http_conn_manager_prefix="{peer}",envoy_response_code_class="2"}"#,
    r#"envoy_tcp_downstream_cx_total{envoy_tcp_prefix="{line}"}"#,
    r#"envoy_tcp_downstream_cx_total{envoy_tcp_prefix="{wire}"}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{wire}",worker=""}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{main}",worker=""}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{dotted}",worker=""}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{line}",worker=""}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{peer}",worker=""}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{main}",worker="0",envoy_worker_id="0"}"#,
    r#"envoy_listener_downstream_cx_total{envoy_listener_address="@{dotted}",worker="0",envoy_worker_id="0"}"#,
    r#"envoy_rbac_allowed{listener="http.{main}",envoy_rbac_http_prefix="~{main}",envoy_http_conn_manager_prefix="{main}"}"#,
    r#"envoy_rbac_allowed{listener="http.{dotted}",envoy_rbac_http_prefix="~{dotted}",envoy_http_conn_manager_prefix="{dotted}"}"#,
    r#"envoy_rbac_allowed{listener="~{line}",envoy_rbac_prefix="~{line}"}"#,
    r#"envoy_rbac_allowed{listener="~{wire}",envoy_rbac_prefix="~{wire}"}"#,
];

/// The same of every proxy, whatever its names.
const NAMELESS: &[&str] = &[
    r#"orders{kind="book",kuma_application="shop"}"#,
    r#"kuma_dp_metrics_source_up{source="envoy"}"#,
    r#"kuma_dp_metrics_source_up{source="shop"}"#,
    "envoy_server_live",
];

fn older(series: &str, address: Ipv4Addr) -> String {
    let inbound = format!("inbound_{}", address.to_string().replace('.', "_"));
    let mut series = series.to_owned();
    for (name, cluster, port) in [
        ("{main}", "localhost_9001", 8080),
        ("{dotted}", "localhost_9002", 8081),
        ("{line}", "localhost_9003", 8082),
        ("{wire}", "localhost_9004", 8083),
        ("{peer}", "default_peer__default_msvc_8080", 10001),
        ("{shop}", "default_shop__default_msvc_8080", 10002),
    ] {
        series = series.replace(&format!("@{name}"), &format!("{address}_{port}"));
        series = series.replace(&format!("~{name}"), &format!("{inbound}_{port}"));
        series = series.replace(name, cluster);
    }
    series
}

fn unified(series: &str) -> String {
    [
        ("{main}", "self_main"),
        ("{dotted}", "self_backend-kumahq.com"),
        ("{line}", "self_line"),
        ("{wire}", "self_wire-kumahq.com"),
        ("{peer}", "kri_msvc_default_default__peer_main"),
        ("{shop}", "kri_msvc_default_default__shop_backend-kumahq.com"),
    ]
    .iter()
    .fold(series.replace(['@', '~'], ""), |series, (name, called)| series.replace(name, called))
}

struct Scraped {
    name: &'static str,
    proxy: RunningProxy,
    address: Ipv4Addr,
    metrics: SocketAddr,
}

impl Scraped {
    fn start(
        world: &World,
        name: &'static str,
        apps: Ipv4Addr,
        orders: SocketAddr,
        further: &[(&str, &str)],
    ) -> Scraped {
        let address = own_address();
        let metrics = SocketAddr::from((address, 9000));
        let at = metrics.to_string();
        let shop = format!("shop=http://{orders}/metrics");
        let mut variables = vec![
            ("KUMA_DATAPLANE_RUNTIME_METRICS_ADDRESS", at.as_str()),
            ("KUMA_DATAPLANE_RUNTIME_METRICS_APPLICATIONS", shop.as_str()),
        ];
        variables.extend(further);
        let proxy = world.proxy_with(&server(name, address, apps), &variables);
        Scraped { name, proxy, address, metrics }
    }

    /// One call to every inbound and through every outbound.
    fn serve_and_call(&self, world: &World) {
        let name = self.name;
        let target = |service: String, port: u16| json!({"backendRef": {"kind": "MeshService", "name": service, "port": port}});
        let mut targets = vec![target(name.to_owned(), 8080)];
        targets.extend((8081..=8083).map(|port| target(format!("{name}-{port}"), port)));
        let (_caller, caller) = client(world, &format!("caller-of-{name}"), &targets);
        assert_eq!(answered_by(caller, 10001), "main");
        assert_eq!(answered_by(caller, 10002), "dotted");
        for (port, service) in [(10003, "line"), (10004, "wire")] {
            let answered = || call_tcp(caller, port, "hello").is_ok_and(|line| line.contains(service));
            eventually("a line to come back", answered).unwrap();
        }
        assert_eq!(answered_by(self.address, 10001), "peer-1");
        assert_eq!(answered_by(self.address, 10002), "dotted");
    }

    /// Metrics of the proxy that could have been meant, or else the proxy's log.
    fn alike(&self, metric: &str) -> String {
        let page = e2e::Client::new(format!("http://{}", self.metrics)).get("/metrics");
        let family = metric.split('_').take(2).collect::<Vec<_>>().join("_");
        match page {
            Ok(page) => {
                page.body.lines().filter(|line| line.starts_with(&family)).collect::<Vec<_>>().join("\n")
            }
            Err(error) => format!("{error:#}\n{}", self.proxy.log()),
        }
    }
}

#[test]
fn prometheus_finds_every_series_under_legacy_unified_and_both_names() {
    let world = World::start(Setup::default());
    let apps = own_address();
    let orders = application();
    let _apps = [
        Service::start("main", "http", (apps, 9001).into()).unwrap(),
        Service::start("dotted", "http", (apps, 9002).into()).unwrap(),
        Service::start("line", "tcp", (apps, 9003).into()).unwrap(),
        Service::start("wire", "tcp", (apps, 9004).into()).unwrap(),
    ];
    let _peer = world.service("peer-1", "peer", "http");
    let mut shop = dataplane("shop-1", "shop", own_address(), "http", (apps, 9002).into());
    shop["networking"]["inbound"][0]["name"] = json!("backend-kumahq.com");
    let _shop = world.proxy(&shop);
    let bridge = ("KUMA_DATAPLANE_RUNTIME_METRICS_LEGACY_NAMES_ENABLED", "true");
    let start = |name, further: &[(&str, &str)]| Scraped::start(&world, name, apps, orders, further);
    let scraped = [start("older", &[]), start("newer", &[UNIFIED]), start("both", &[UNIFIED, bridge])];
    let targets: Vec<_> = scraped.iter().map(|proxy| (proxy.name, proxy.metrics)).collect();
    let prometheus = Prometheus::start(&targets).unwrap();
    scraped.iter().for_each(|proxy| proxy.serve_and_call(&world));

    let is_there = |proxy: &Scraped, series: &str| {
        let (metric, labels) = series.split_once('{').unwrap_or((series, "}"));
        let query = format!("{metric}{{proxy=\"{}\",{labels}", proxy.name);
        let mut found = Vec::new();
        eventually(&format!("{query} to be in Prometheus"), || {
            found = prometheus.query(&query).unwrap();
            matches!(found[..], [(_, value)] if value > 0.0)
        })
        .unwrap_or_else(|error| panic!("{error}: {found:?}\n{}", proxy.alike(metric)));
    };
    let [before, after, both] = &scraped;
    for series in SERIES {
        is_there(before, &older(series, before.address));
        is_there(after, &unified(series));
        is_there(both, &older(series, both.address));
        is_there(both, &unified(series));
    }
    scraped.iter().for_each(|proxy| NAMELESS.iter().for_each(|series| is_there(proxy, series)));

    let is_absent = |query: &str| assert_eq!(prometheus.query(query).unwrap(), [], "{query}");
    // Names that Envoy took apart are nowhere, and each of the first two has the names of one scheme only.
    is_absent(r#"{__name__=~"envoy_(cluster|http|listener|tcp)_com_.*"}"#);
    is_absent(r#"{proxy="older",envoy_cluster_name=~"(self|kri|system)_.*"}"#);
    is_absent(r#"{proxy="newer",envoy_cluster_name=~"localhost_.*|default_.*|ads_cluster"}"#);
    is_absent("up == 0");
    the_queries_of_the_guide_find_something(&prometheus);
}

/// Prometheus takes every query of the guide to migration, and finds series for it.
fn the_queries_of_the_guide_find_something(prometheus: &Prometheus) {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/naming-migration.md");
    let guide = fs::read_to_string(guide).unwrap();
    let blocks = guide.split("```promql\n").skip(1).map(|block| block.split("```").next().unwrap());
    let queries: Vec<&str> = blocks.collect();
    assert!(queries.len() >= 4, "{queries:?}");
    for query in queries {
        // Nothing is redirected to the proxies here, so they have no passthrough.
        let is_passthrough = query.contains("passthrough_ipv");
        let found = || prometheus.query(query).unwrap();
        eventually(&format!("{query} to find something"), || is_passthrough || !found().is_empty()).unwrap();
        assert_eq!(found().is_empty(), is_passthrough, "{query}");
    }
}
