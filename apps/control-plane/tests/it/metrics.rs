//! Metrics of proxies, the store, certificates and the process; and the reference page of them.

use std::{collections::BTreeSet, time::Duration};

use control_plane::{
    boot::Running,
    config::setting::{Mode, StoreType},
};
use runtime::metrics::{MetricDescription, Metrics};
use serde_json::json;
use serving::push;
use xds::Type;

use crate::{
    client::{agent, config, get_with, put, start},
    proxies::{GENEROUS, ProxyServer},
    streams::{DeltaStream, Next, connected},
    world::{dataplane, eventually, mesh},
};

/// The value of a series, with its labels as they are written out.
fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

fn now() -> f64 {
    f64::from(u32::try_from(jiff::Timestamp::now().as_second()).unwrap())
}

/// A server for proxies, and its metrics.
async fn server(mode: &str) -> (ProxyServer, Metrics) {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    server.world.put([mesh("default", mode)]).await;
    let metrics = Metrics::default();
    push::metrics::register(&server.world.push, &metrics);
    (server, metrics)
}

fn answers(kind: Type, confirmation: &str) -> String {
    format!("xds_requests_received{{type_url=\"{}\",confirmation=\"{confirmation}\"}}", kind.url())
}

#[tokio::test]
async fn a_change_is_measured_from_the_store_to_the_acknowledgement() {
    let (server, metrics) = server("").await;
    let token = server.token("default").await;
    let mut stream = connected(&server, &token).await;
    let read = |series: &str| value(&metrics.encode(), series);
    eventually("the last acknowledgement is counted", || read(&answers(Type::Listener, "ACK")) == Some(1.0))
        .await;
    let before = read("xds_delivery_duration_seconds_count").unwrap();
    server.world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    eventually("the proxy has something to follow", || read("xds_proxies_delivering") == Some(1.0)).await;
    assert_eq!(read("xds_delivery_duration_seconds_count"), Some(before), "it has not answered yet");
    let sent = format!("xds_responses_sent{{type_url=\"{}\"}}", Type::Endpoint.url());
    eventually("the response is counted", || read(&sent) == Some(2.0)).await;
    assert_eq!(stream.response().await.0, Type::Endpoint);
    eventually("the proxy has followed", || read("xds_proxies_delivering") == Some(0.0)).await;
    assert_eq!(read("xds_delivery_duration_seconds_count"), Some(before + 1.0));
    assert_eq!(read(&answers(Type::Endpoint, "ACK")), Some(2.0));
    assert_eq!(read(&answers(Type::Endpoint, "NACK")), Some(0.0));
    assert!(read("xds_generation_duration_seconds_count").unwrap() >= 2.0);
    assert_eq!(read("xds_streams_active"), Some(1.0));
    assert_eq!(read("xds_mesh_proxies_connected{mesh=\"default\"}"), Some(1.0));
}

#[tokio::test]
async fn a_proxy_that_leaves_without_an_answer_has_not_followed_the_change() {
    let (server, metrics) = server("").await;
    let token = server.token("default").await;
    let stream = connected(&server, &token).await;
    let read = |series: &str| value(&metrics.encode(), series);
    eventually("the last acknowledgement is counted", || read(&answers(Type::Listener, "ACK")) == Some(1.0))
        .await;
    let before = read("xds_delivery_duration_seconds_count").unwrap();
    assert_eq!(read("xds_oldest_delivery_seconds"), Some(0.0));
    server.world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    eventually("the proxy has something to follow", || read("xds_proxies_delivering") == Some(1.0)).await;
    let age = read("xds_oldest_delivery_seconds").unwrap();
    assert!(age > 0.0, "{age}");
    eventually("the change grows old", || read("xds_oldest_delivery_seconds").unwrap() > age).await;
    drop(stream);
    eventually("the proxy has left", || read("xds_proxies_delivering") == Some(0.0)).await;
    assert_eq!(read("xds_delivery_duration_seconds_count"), Some(before), "it has not answered");
    assert_eq!(read("xds_oldest_delivery_seconds"), Some(0.0));
}

#[tokio::test]
async fn a_proxy_that_rejects_is_counted_until_it_accepts_or_leaves() {
    let (server, metrics) = server("").await;
    let token = server.token("default").await;
    let mut stream = connected(&server, &token).await;
    let read = |series: &str| value(&metrics.encode(), series);
    server.world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    stream.judged(|_| Some("no such thing".to_owned())).await;
    eventually("the rejection is counted", || read("xds_proxies_rejecting") == Some(1.0)).await;
    assert_eq!(read(&answers(Type::Endpoint, "NACK")), Some(1.0));
    server.world.put([dataplane("default", "backend-3", "127.0.1.3", "backend", &[])]).await;
    stream.response().await;
    eventually("the proxy has accepted", || read("xds_proxies_rejecting") == Some(0.0)).await;
    server.world.put([dataplane("default", "backend-4", "127.0.1.4", "backend", &[])]).await;
    stream.judged(|_| Some("no such thing".to_owned())).await;
    eventually("the rejection is counted", || read("xds_proxies_rejecting") == Some(1.0)).await;
    drop(stream);
    eventually("the proxy has left", || read("xds_proxies_rejecting") == Some(0.0)).await;
    assert_eq!(read("xds_proxies_delivering"), Some(0.0));
}

#[tokio::test]
async fn the_first_certificate_of_a_connected_proxy_to_expire_is_known() {
    let (server, metrics) = server("STRICT").await;
    let read = || value(&metrics.encode(), "proxy_certificate_soonest_expiry_timestamp_seconds");
    assert_eq!(read(), None);
    let token = server.token("default").await;
    let stream = connected(&server, &token).await;
    let hours = (read().unwrap() - now()) / 3600.0;
    assert!((1.0..=24.0).contains(&hours), "{hours}");
    drop(stream);
    eventually("no proxy is connected", || read().is_none()).await;
}

#[tokio::test]
async fn proxies_that_cannot_prove_who_they_are_are_counted_by_reason() {
    let metrics = Metrics::default();
    let server = ProxyServer::limited(GENEROUS, &metrics).await;
    let token = server.token("default").await;
    // Another signature, which can be read as one.
    let (kept, rest) = token.split_at(token.len() - 10);
    let other = if rest.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{kept}{other}{}", &rest[1..]);
    for (token, reason) in
        [(None, "missing"), (Some(forged.as_str()), "signature"), (Some("a.b.c"), "malformed")]
    {
        let mut stream = DeltaStream::open(&server, token).await;
        stream.ask(Type::Cluster, &[]).await;
        let Next::End(..) = stream.next().await else { panic!("{reason}") };
        let series = format!("auth_failures_total{{server=\"dp_server\",reason=\"{reason}\"}}");
        assert_eq!(value(&metrics.encode(), &series), Some(1.0), "{series} in {}", metrics.encode());
    }
}

async fn page(running: &Running) -> String {
    let url = format!("http://{}/metrics", running.diagnostics.unwrap());
    let (status, page) = get_with(agent(None, None), url).await;
    assert_eq!(status, 200);
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_tells_about_its_store_its_certificates_and_itself() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(config(dir.path(), StoreType::Sqlite)).await;
    let backend = json!({ "name": "ca-1", "type": "builtin" });
    let mesh = json!({ "type": "Mesh", "name": "shop", "mtls": { "enabledBackend": "ca-1", "backends": [backend] } });
    assert_eq!(put(&running, "/meshes/shop", mesh).await, 201);
    let page = page(&running).await;
    let read = |series: &str| value(&page, series).unwrap_or_else(|| panic!("{series} is not in {page}"));
    let is =
        |series: &str, expected: f64| assert_eq!(value(&page, series), Some(expected), "{series} in {page}");
    assert!(read("store_count{operation=\"create\",resource_type=\"Mesh\"}") >= 1.0);
    is("store_errors_total{operation=\"create\",reason=\"unavailable\"}", 0.0);
    is("store_writable", 1.0);
    is("store_stale", 0.0);
    for server in ["api_server", "dp_server"] {
        let series = format!("tls_certificate_expiry_timestamp_seconds{{server=\"{server}\"}}");
        assert!(read(&series) > now() + 86_400.0, "{server}");
    }
    assert!(read("process_resident_memory_bytes") > 1_000_000.0);
    let (version, commit) = (version::VERSION, version::COMMIT);
    let build = format!("build_info{{version=\"{version}\",commit=\"{commit}\",based_on_kuma=\"2.14.3\"}}");
    is(&build, 1.0);
    assert!(page.contains("cp_info{product=\"kuma-rs\"") && page.contains("mode=\"zone\""), "{page}");
    running.finish().await;
}

/// A global control plane, and a zone that looks for one.
async fn both(dirs: &[tempfile::TempDir; 2]) -> [Running; 2] {
    let mut global = config(dirs[0].path(), StoreType::Memory);
    (global.mode, global.synchronisation.multizone.global.kds.grpc_port) = (Mode::Global, 0);
    let mut zone = config(dirs[1].path(), StoreType::Memory);
    zone.synchronisation.multizone.zone.name = "east".to_owned();
    zone.synchronisation.multizone.zone.global_address = "grpcs://127.0.0.1:1".to_owned();
    zone.audit.file = dirs[1].path().join("audit.log").to_str().unwrap().to_owned();
    [start(global).await, start(zone).await]
}

/// Every metric of a zone and of a global control plane.
async fn described() -> BTreeSet<MetricDescription> {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut found = BTreeSet::new();
    for running in both(&dirs).await {
        found.extend(running.metrics.described());
        running.finish().await;
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reconciler_tells_how_far_behind_it_is_and_the_guide_explains_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut found = BTreeSet::new();
    for running in both(&dirs).await {
        let page = page(&running).await;
        let lags = page.lines().filter_map(|line| line.strip_prefix("reconciler_lag_seconds{reconciler=\""));
        found.extend(lags.map(|rest| rest.split('"').next().unwrap().to_owned()));
        running.finish().await;
    }
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/alerts.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let section = guide.split("### KumaReconcilerBehind").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `reconciler`"));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let explained: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(found.len() > 10, "{found:?}");
    assert_eq!(found, explained);
}

/// A page of the reference, the same as what is registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_of_metrics_is_up_to_date() {
    let mut page = String::from(
        "# Metrics of the control plane\n\n<!-- Generated by `cargo xtask gen`; do not edit. -->\n\nMetrics at \
        `/metrics` of the diagnostics port (5680), in OpenMetrics format. A metric without any series \
        yet is not on the page. \
         `store`, `cp_info`, `xds_streams_active`, `xds_responses_sent`, `xds_requests_received` and \
         `api_server_http_request_duration_seconds` are named as in Kuma. No metric has a label for each proxy. \
         [The guide to alerts](../guide/alerts.md) explains each alert.\n\n| Metric | Type | Meaning |\n|---|---|---|\n",
    );
    for MetricDescription { name, kind, help } in described().await {
        page.push_str(&format!("| `{name}` | {kind} | {help} |\n"));
    }
    crate::config::committed("control-plane-metrics.md", &page);
}
