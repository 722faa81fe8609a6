//! Effects of a MeshMetric on a proxy.

use std::{net::SocketAddr, sync::Arc};

use plan::{CertificateFiles, Code, ProxyMetrics, ProxyPlan, ProxyTraits};
use serde_json::{Value, json};

use crate::support::{PLAIN, plan, traits, unified};

const WEB: &str = "
type: Dataplane
mesh: default
name: dp-1
labels: { kuma.io/zone: zone-1, kuma.io/workload: backend }
networking:
  address: 192.168.0.1
  inbound: [{ port: 80, tags: { kuma.io/service: backend } }]
";

const PAGE: &str = "{ type: Prometheus, prometheus: {} }";

fn policy(conf: &str) -> String {
    format!("type: MeshMetric\nmesh: default\nname: all\nspec: {{ default: {conf} }}\n")
}

fn of_backends(backends: &str) -> String {
    policy(&format!("{{ backends: [{backends}] }}"))
}

fn planned(policy: &str, traits: &ProxyTraits) -> ProxyPlan {
    plan(&[PLAIN, WEB, policy], traits)
}

fn metrics(policy: &str, traits: &ProxyTraits) -> ProxyMetrics {
    let plan = planned(policy, traits);
    assert_eq!(plan.findings(), vec![]);
    plan.own.metrics.unwrap()
}

fn document(metrics: &ProxyMetrics) -> Value {
    serde_json::from_str::<Value>(&metrics.document.body).unwrap()["observability"]["metrics"].take()
}

#[test]
fn a_page_leads_to_the_agent() {
    let of = |metrics: &ProxyMetrics| {
        let [page] = &metrics.pages[..] else { panic!("{metrics:?}") };
        let names = &page.names;
        (
            SocketAddr::new(page.address, page.port).to_string(),
            page.path.clone(),
            page.socket.clone(),
            names.clone(),
        )
    };
    let backend = "{ type: Prometheus, prometheus: { clientId: main, port: 1234, path: stats } }";
    let (address, path, socket, names) = of(&metrics(&of_backends(backend), &unified("dp-1")));
    assert_eq!((address.as_str(), path.as_str()), ("192.168.0.1:1234", "/stats"));
    assert_eq!(socket, "/tmp/kuma-dp/kuma-mh-dp-1-default.sock");
    let name = "system_meshmetric_prometheus_main";
    assert_eq!((names.listener.as_str(), names.cluster.as_str()), (name, name));
    let (address, path, _, names) = of(&metrics(&of_backends(PAGE), &traits("dp-1")));
    assert_eq!((address.as_str(), path.as_str()), ("192.168.0.1:5670", "/metrics"));
    let names = (names.listener.as_str(), names.cluster.as_str(), names.filter_stats.as_str());
    let expect = (
        "_kuma:metrics:prometheus:default-backend",
        "_kuma:metrics:hijacker",
        "_kuma_metrics_prometheus_default-backend",
    );
    assert_eq!(names, expect);
}

#[test]
fn the_agent_gets_the_very_document_that_kumas_control_plane_sends() {
    let conf = format!(
        "{{ sidecar: {{ includeUnused: false }}, applications: [{{ port: 8080 }}], backends: [{PAGE}] }}"
    );
    let made = metrics(&policy(&conf), &traits("dp-1"));
    let part = &made.document;
    assert_eq!(part.body.len(), 355, "{}", part.body);
    assert_eq!(part.etag, "03282959788b7fa4a49421e6e72acfa756ffcf8f69284d1064c7b4117ea156c1");
    assert_eq!((part.path, part.route.as_str()), ("/meshmetric", "_kuma:dynamicconfig:/meshmetric"));
}

#[test]
fn with_unified_names_tags_are_no_labels() {
    let made = metrics(&of_backends(PAGE), &unified("dp-1"));
    assert_eq!(
        document(&made)["extraLabels"],
        json!({"kuma.proxy_role": "sidecar", "kuma.workload": "backend", "mesh": "default", "zone": "zone-1"})
    );
    let part = &made.document;
    assert_eq!(part.route, "system_dynamicconfig_meshmetric");
    assert_eq!(part.not_modified, "system_dynamicconfig_meshmetric_not_modified");
}

#[test]
fn without_a_workload_the_service_is_a_label_and_all_values_of_a_tag_are() {
    let two = WEB
        .replace("inbound: [", "inbound: [{ port: 81, tags: { kuma.io/service: admin } }, ")
        .replace("labels: { kuma.io/zone: zone-1, kuma.io/workload: backend }\n", "");
    let plan = plan(&[PLAIN, &two, &of_backends(PAGE)], &traits("dp-1"));
    assert_eq!(
        document(&plan.own.metrics.unwrap())["extraLabels"],
        json!({"kuma.proxy_role": "sidecar", "kuma.workload": "admin", "mesh": "default",
               "dataplane": "dp-1", "service": "admin",
               "kuma_io_service": "admin", "kuma_io_services": ",admin,backend,"})
    );
}

#[test]
fn with_unified_names_a_page_says_whose_it_is_without_a_workload_too() {
    let labels = |dataplane: &str| {
        let plan = plan(&[PLAIN, dataplane, &of_backends(PAGE)], &unified("dp-1"));
        document(&plan.own.metrics.unwrap())["extraLabels"].take()
    };
    let bare = WEB.replace(", kuma.io/workload: backend", "");
    assert_eq!(
        labels(&bare),
        json!({"kuma.proxy_role": "sidecar", "kuma.workload": "backend", "mesh": "default", "zone": "zone-1"})
    );
    let untagged = bare.replace(", tags: { kuma.io/service: backend }", "");
    assert_eq!(labels(&untagged)["kuma.workload"], "dp-1");
}

#[test]
fn pages_that_are_found_are_those_that_a_proxy_has() {
    let mut compared = 0;
    for backends in [
        PAGE.to_owned(),
        format!("{PAGE}, {PAGE}"),
        format!("{PAGE}, {{ type: Prometheus, prometheus: {{ clientId: b, port: 80 }} }}"),
        "{ type: Prometheus, prometheus: { clientId: b, port: 1, path: x } }, \
         { type: Prometheus, prometheus: { clientId: c, port: 1 } }"
            .to_owned(),
        "{ type: OpenTelemetry, openTelemetry: { endpoint: 'otel:4317' } }".to_owned(),
    ] {
        let policy = of_backends(&backends);
        let snapshot = crate::support::mesh(&[PLAIN, WEB, &policy]);
        let dataplane = &snapshot.dataplanes["dp-1"];
        let found = plan::metrics::scrape_pages(&snapshot, dataplane);
        let found: Vec<_> = found.into_iter().map(|page| (page.address, page.path)).collect();
        for traits in [traits("dp-1"), unified("dp-1")] {
            let planned = planned(&policy, &traits).own.metrics.unwrap().pages;
            let planned: Vec<_> = planned
                .into_iter()
                .map(|page| (SocketAddr::new(page.address, page.port), page.path))
                .collect();
            assert_eq!(found, planned, "{backends}");
            compared += planned.len();
        }
    }
    assert!(compared >= 8, "{compared}");
}

#[test]
fn a_collector_is_reached_through_the_proxy() {
    let endpoint =
        "{ type: OpenTelemetry, openTelemetry: { endpoint: 'otel-collector.observability.svc:4317' } }";
    let made = metrics(&of_backends(endpoint), &unified("dp-1"));
    assert_eq!(made.pages, []);
    let [to] = &made.collectors[..] else { panic!("{made:?}") };
    assert_eq!((to.host.as_str(), to.port), ("otel-collector.observability.svc", 4317));
    assert_eq!(to.names.listener, "system_meshmetric_otel_otel-collector-observability-svc-4317");
    let socket = "/tmp/kuma-dp/kuma-otel-otel-collector.observability.svc-4317.sock";
    assert_eq!(to.socket, socket);
    assert_eq!(
        document(&made)["backends"],
        json!([{"type": "OpenTelemetry", "name": "otel-collector.observability.svc-4317",
                "openTelemetry": {"endpoint": socket, "refreshInterval": "1m0s"}}])
    );
}

#[test]
fn a_backend_is_found_by_its_labels_as_soon_as_it_is_there() {
    let reference = of_backends(
        "{ type: OpenTelemetry, openTelemetry: { refreshInterval: 10s, backendRef: \
         { kind: MeshOpenTelemetryBackend, labels: { team: shop } } } }",
    );
    let before = planned(&reference, &unified("dp-1"));
    assert_eq!(
        before.findings().iter().map(|finding| finding.code).collect::<Vec<_>>(),
        [Code::UnknownBackend]
    );
    assert_eq!(before.own.metrics.unwrap().collectors, []);
    let backend = |spec: &str| {
        format!(
            "type: MeshOpenTelemetryBackend\nmesh: default\nname: otel\nlabels: {{ team: shop }}\nspec: {spec}\n"
        )
    };
    let with = |spec: &str| plan(&[PLAIN, WEB, &reference, &backend(spec)], &unified("dp-1"));
    let after = with("{ endpoint: { address: otel.example, port: 4318 } }");
    assert_eq!(after.findings(), vec![]);
    let to = after.own.metrics.unwrap().collectors.remove(0);
    assert_eq!((to.host.as_str(), to.port, to.interval.as_str()), ("otel.example", 4318, "10s"));
    assert_eq!(to.names.cluster, "system_meshmetric_otel_otel");
    assert_eq!(to.socket, "/tmp/kuma-dp/kuma-otel-otel.sock");
    let near = with("{}").own.metrics.unwrap().collectors.remove(0);
    assert_eq!((near.host.as_str(), near.port), ("127.0.0.1", 4317));
    let http = with("{ protocol: http }").findings();
    assert_eq!(http.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::NoUsableBackend]);
}

#[test]
fn policies_add_up_and_without_a_backend_nothing_happens() {
    let own = "type: MeshMetric\nmesh: default\nname: own\nspec:\n  targetRef: { kind: Dataplane, labels: { kuma.io/workload: backend } }\n  \
               default: { sidecar: { profiles: { appendProfiles: [{ name: All }] } } }\n";
    let plan = plan(&[PLAIN, WEB, &of_backends(PAGE), own], &traits("dp-1"));
    let profiles = &document(plan.own.metrics.as_ref().unwrap())["sidecar"]["profiles"];
    assert_eq!(profiles, &json!({"appendProfiles": [{"name": "All"}]}));
    assert_eq!(planned(&policy("{ applications: [{ port: 1 }] }"), &traits("dp-1")).own.metrics, None);
}

#[test]
fn what_a_page_cannot_have_is_said() {
    let said = |policy: &str, traits: &ProxyTraits| -> Vec<(Code, String)> {
        let findings = planned(policy, traits).findings();
        findings
            .into_iter()
            .map(|finding| {
                assert_eq!(finding.about.unwrap().to_string(), "kri_mm_default___all_", "{}", finding.text);
                (finding.code, finding.text)
            })
            .collect()
    };
    let codes = |policy: &str, traits: &ProxyTraits| -> Vec<Code> {
        said(policy, traits).into_iter().map(|(code, _)| code).collect()
    };
    let older = traits("dp-1");
    let port = "{ type: Prometheus, prometheus: { clientId: b, port: 80 } }";
    let found = said(&of_backends(&format!("{PAGE}, {PAGE}, {port}")), &older);
    let [(Code::NameConflict, _), (Code::PortConflict, text)] = &found[..] else { panic!("{found:?}") };
    assert!(text.contains("192.168.0.1:80"), "{text}");
    let nowhere = ProxyTraits { work_dir: String::new(), ..traits("dp-1") };
    assert_eq!(codes(&of_backends(PAGE), &nowhere), [Code::NoWorkDirectory]);
    let secured = |mode: &str| {
        of_backends(&format!("{{ type: Prometheus, prometheus: {{ tls: {{ mode: {mode} }} }} }}"))
    };
    assert_eq!(codes(&secured("ProvidedTLS"), &older), [Code::MetricsWithoutTls]);
    assert_eq!(codes(&secured("ActiveMTLSBackend"), &older), [Code::MetricsWithoutTls]);
    let files = CertificateFiles { certificate: "/c".to_owned(), key: "/k".to_owned() };
    let able = ProxyTraits { metrics_certificate: Some(Arc::new(files.clone())), ..traits("dp-1") };
    assert_eq!(metrics(&secured("ProvidedTLS"), &able).pages[0].tls, Some(files));
    assert_eq!(metrics(&secured("Disabled"), &able).pages[0].tls, None);
}

#[test]
fn a_proxy_that_was_started_for_less_says_so() {
    let started = |counted: &str| ProxyTraits { counted: Some(counted.into()), ..traits("dp-1") };
    assert_eq!(planned(&of_backends(PAGE), &started("Basic")).findings(), vec![]);
    let all = policy(&format!(
        "{{ sidecar: {{ profiles: {{ appendProfiles: [{{ name: All }}] }} }}, backends: [{PAGE}] }}"
    ));
    let findings = planned(&all, &started("Basic")).findings();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::StatisticsNotKept]);
    assert_eq!(planned(&all, &traits("dp-1")).findings(), vec![]);
}
