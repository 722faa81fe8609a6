//! Access logs and spans as they arrive at real collectors.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::collector::{Collector, LogRecord, Span};

use crate::{
    support::{traits, unified},
    telemetry::{BACKEND_REF, both_ways, log, otel_backend, with_work_dir},
    traffic::World,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a file has a line.
pub fn wait_for_line(path: &Path, what: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let content = fs::read_to_string(path).unwrap_or_default();
        if let Some(line) = content.lines().find(|line| what(line)) {
            return line.to_owned();
        }
        assert!(Instant::now() < deadline, "no such line in {}: {content}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn logs_of_all_backends_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().unwrap();
    let at = |name: &str| folder.path().join(name);
    let policies = both_ways(&format!(
        "{{ type: File, file: {{ path: '{}' }} }}, \
         {{ type: Tcp, tcp: {{ address: '127.0.0.1:1', format: {{ type: Json, json: [{{ key: code, value: '%RESPONSE_CODE%' }}, {{ key: way, value: '%KUMA_TRAFFIC_DIRECTION%' }}] }} }} }}, \
         {{ type: OpenTelemetry, openTelemetry: {{ endpoint: '{}', attributes: [{{ key: way, value: '%KUMA_TRAFFIC_DIRECTION%' }}] }} }}",
        at("access.log").display(),
        collector.address
    ));
    let traits = with_work_dir(unified("web"), &folder.path().display().to_string());
    let world = World::with("http", &policies, &traits);
    assert_eq!(world.get("/hello", "").0, "200");
    let line = wait_for_line(&at("access.log"), |line| line.contains("\"one\" \"one\" \"127.0.0.2\""));
    assert!(line.contains("default \"GET /hello HTTP/1.1\" 200 - 0 "), "{line}");
    wait_for_line(&at("access.log"), |line| line.contains("\"unknown\" \"one\" \"127.0.0.2\""));
    for way in ["INBOUND", "OUTBOUND"] {
        // What the agent would send.
        let record = wait_for_line(&at("kuma-al-web-default.sock"), |line| line.contains(way));
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record, json!({"address": "127.0.0.1:1", "message": {"code": 200, "way": way}}));
        let sent = |log: &LogRecord| log.attributes.get("way").is_some_and(|told| told == way);
        let log = collector.wait("a record", |got| got.logs().into_iter().find(|log| sent(log))).unwrap();
        assert_eq!(log.path, "/opentelemetry.proto.collector.logs.v1.LogsService/Export");
        assert!(log.body.contains("\"GET /hello HTTP/"), "{}", log.body);
        assert_eq!(log.resource.get("kuma.mesh").map(String::as_str), Some("default"));
    }
}

#[test]
fn records_may_be_sent_over_http() {
    let collector = Collector::start().unwrap();
    let backend = otel_backend(&format!(
        "{{ protocol: http, endpoint: {{ address: 127.0.0.1, port: {}, path: /in }} }}",
        collector.address.port()
    ));
    let policy = both_ways(&format!(
        "{{ type: OpenTelemetry, openTelemetry: {{ body: '%PATH%', backendRef: {BACKEND_REF} }} }}"
    ));
    let trace =
        tracing(&format!("{{ type: OpenTelemetry, openTelemetry: {{ backendRef: {BACKEND_REF} }} }}"));
    let world = World::with("http", &[backend, policy, trace].join("\n---\n"), &unified("web"));
    for _ in 0..6 {
        assert_eq!(world.get("/hello", "").0, "200");
    }
    let log = collector.wait("a record", |got| got.logs().into_iter().next()).unwrap();
    assert_eq!((log.path.as_str(), log.body.as_str()), ("/in/v1/logs", "/hello"));
    let span = collector.wait("a span", |got| got.spans().into_iter().next()).unwrap();
    assert_eq!((span.path.as_str(), span.service.as_str()), ("/in/v1/traces", "one"));
}

#[test]
fn a_route_may_have_a_log_of_its_own_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let route = |name: &str| {
        format!(
            "type: MeshHTTPRoute\nmesh: default\nname: {name}\nspec: {{ to: [{{ targetRef: {{ kind: MeshService, name: one }}, \
             rules: [{{ matches: [{{ path: {{ type: PathPrefix, value: /{name} }} }}], default: {{}} }}] }}] }}"
        )
    };
    let entry = |target: &str, backends: &str| {
        format!("{{ targetRef: {{ {target} }}, default: {{ backends: [{backends}] }} }}")
    };
    let to_file = |name: &str| {
        format!(
            "{{ type: File, file: {{ path: '{}', format: {{ type: Plain, plain: '%PATH%' }} }} }}",
            at(name).display()
        )
    };
    let logs = log(&format!(
        "{{ to: [{}, {}, {}] }}",
        entry("kind: Mesh", &to_file("service")),
        entry("kind: MeshHTTPRoute, name: loud", &to_file("route")),
        entry("kind: MeshHTTPRoute, name: silent", "")
    ));
    for traits in [unified("web"), traits("web")] {
        let policies = [route("loud"), route("silent"), logs.clone()].join("\n---\n");
        let world = World::with("http", &policies, &traits);
        for path in ["/loud", "/silent", "/other", "/last"] {
            world.get(path, "");
        }
        wait_for_line(&at("service"), |line| line == "/last");
        wait_for_line(&at("route"), |line| line == "/loud");
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("service").as_str(), read("route").as_str()), ("/other\n/last\n", "/loud\n"));
        fs::remove_file(at("service")).unwrap();
        fs::remove_file(at("route")).unwrap();
    }
}

fn tracing(backend: &str) -> String {
    format!(
        "type: MeshTrace\nmesh: default\nname: t\nspec: {{ default: {{ backends: [{backend}], \
         tags: [{{ name: team, literal: core }}, {{ name: env, header: {{ name: x-env, default: prod }} }}, \
         {{ name: kuma.zone, literal: mine }}] }} }}"
    )
}

/// Sends requests until a span for each way has arrived.
fn spans(collector: &Collector, backend: &str) -> Vec<Span> {
    let world = World::with("http", &tracing(backend), &unified("web"));
    for _ in 0..6 {
        assert_eq!(world.get("/traced", "x-env: test\r\n").0, "200");
    }
    collector.wait("spans", |got| Some(got.spans()).filter(|spans| spans.len() >= 10)).unwrap()
}

fn check_spans(spans: &[Span], path: &str, services: &[&str]) {
    for service in services {
        let span = spans.iter().find(|span| span.service == *service);
        let span = span.unwrap_or_else(|| panic!("no span of {service}: {spans:#?}"));
        assert_eq!(span.path, path);
        let tags =
            ["team", "env", "kuma.mesh", "kuma.zone"].map(|tag| span.tags.get(tag).map(String::as_str));
        assert_eq!(tags, [Some("core"), Some("test"), Some("default"), Some("mine")], "{span:?}");
        let url = ["http.url", "http.target"].iter().find_map(|tag| span.tags.get(*tag));
        assert!(url.is_some_and(|url| url.ends_with("/traced")), "{span:?}");
    }
}

#[test]
fn spans_arrive_at_zipkin() {
    let collector = Collector::start().unwrap();
    let backend =
        format!("{{ type: Zipkin, zipkin: {{ url: 'http://{}/api/v2/spans' }} }}", collector.address);
    // Envoy names the service that its bootstrap names.
    check_spans(&spans(&collector, &backend), "/api/v2/spans", &["web"]);
}

#[test]
fn spans_arrive_at_datadog_with_services_by_direction() {
    let collector = Collector::start().unwrap();
    let backend = format!(
        "{{ type: Datadog, datadog: {{ url: 'http://{}', splitService: true }} }}",
        collector.address
    );
    let services = ["one_INBOUND", "one_OUTBOUND_kri_msvc_default___one_80"];
    check_spans(&spans(&collector, &backend), "/v0.4/traces", &services);
}

#[test]
fn spans_arrive_at_opentelemetry() {
    let collector = Collector::start().unwrap();
    let backend =
        format!("{{ type: OpenTelemetry, openTelemetry: {{ endpoint: '{}' }} }}", collector.address);
    let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    check_spans(&spans(&collector, &backend), path, &["one"]);
}
