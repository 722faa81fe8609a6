//! Endpoints are asked how they are.

use std::{
    fs,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xds::Type;

use crate::{
    pair::ServiceOfTwo,
    real_envoy,
    support::{BACKEND, PLAIN, plan, unified, web},
    view::{check, shown, target},
};

const HTTP: &str = "kri_msvc_default_east__backend_http";
const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, tags: { kuma.io/service: backend } }\n\
    - { port: 10003, backendRef: { kind: MeshExternalService, name: shop } }";
const SHOP: &str = "
type: MeshExternalService
mesh: default
name: shop
spec: { match: { type: HostnameGenerator, port: 80, protocol: http }, endpoints: [{ address: 127.0.0.9, port: 80 }] }
";

const EVERYTHING: &str = r#"
type: MeshHealthCheck
mesh: default
name: h
spec:
  to:
    - targetRef: { kind: Mesh }
      default:
        interval: 10s
        timeout: 2s
        unhealthyThreshold: 3
        healthyThreshold: 2
        initialJitter: 13s
        intervalJitter: 15s
        intervalJitterPercent: 10
        healthyPanicThreshold: "62.9"
        failTrafficOnPanic: true
        noTrafficInterval: 16s
        eventLogPath: /tmp/log.txt
        alwaysLogHealthCheckFailures: true
        reuseConnection: true
        http:
          path: /health
          requestHeadersToAdd:
            add: [{ name: x-some-header, value: "value,100%" }]
            set: [{ name: x-some-other-header, value: "a,b" }, { name: host, value: shop.test }]
          expectedStatuses: [200, 201]
        tcp: { send: cGluZwo=, receive: [cG9uZw==, ""] }
        grpc: { serviceName: shop, authority: shop.test }
"#;

fn cluster(policies: &str, protocol: &str, name: &str) -> Value {
    let backend = BACKEND.replace("appProtocol: http", &format!("appProtocol: {protocol}"));
    let documents = [PLAIN, &backend, SHOP, policies, &web(CALLS)];
    shown(&target(&documents, &unified("web")), Type::Cluster, name)
}

fn policy(conf: &str) -> String {
    testkit::body::yaml_to_all("MeshHealthCheck", conf)
}

#[test]
fn every_word_about_health_is_put_in_envoys() {
    let header = |key: &str, value: &str| json!({"header": {"key": key, "value": value}});
    let set = json!({"header": {"key": "x-some-other-header", "value": "a"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"});
    let sink =
        "type.googleapis.com/envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink";
    let common = json!({
        "interval": "10s", "timeout": "2s", "unhealthyThreshold": 3, "healthyThreshold": 2,
        "initialJitter": "13s", "intervalJitter": "15s", "intervalJitterPercent": 10, "noTrafficInterval": "16s",
        "alwaysLogHealthCheckFailures": true, "reuseConnection": true,
        "eventLogger": [{"name": "envoy.health_check.event_sinks.file",
                         "typedConfig": {"@type": sink, "eventLogPath": "/tmp/log.txt"}}],
    });
    let request = json!({
        "host": "shop.test", "path": "/health",
        "expectedStatuses": [{"start": "200", "end": "201"}, {"start": "201", "end": "202"}],
        "requestHeadersToAdd": [header("x-some-header", "value"), header("x-some-header", "100%%"), set,
                                header("x-some-other-header", "b")],
    });
    let mut http2 = request.clone();
    http2["codecClientType"] = json!("HTTP2");
    for (protocol, name, kind, probe) in [
        ("http", HTTP, "httpHealthCheck", request.clone()),
        ("http", "kri_extsvc_default___shop_80", "httpHealthCheck", request),
        ("http2", HTTP, "httpHealthCheck", http2),
        ("grpc", HTTP, "grpcHealthCheck", json!({"serviceName": "shop", "authority": "shop.test"})),
        (
            "tcp",
            HTTP,
            "tcpHealthCheck",
            json!({"send": {"text": "70696e670a"}, "receive": [{"text": "706f6e67"}]}),
        ),
        (
            "kafka",
            HTTP,
            "tcpHealthCheck",
            json!({"send": {"text": "70696e670a"}, "receive": [{"text": "706f6e67"}]}),
        ),
    ] {
        let mut expected = common.clone();
        expected[kind] = probe;
        check(
            &cluster(EVERYTHING, protocol, name),
            &[
                ("/healthChecks", json!([expected])),
                ("/ignoreHealthOnHostRemoval", json!(true)),
                (
                    "/commonLbConfig",
                    json!({"healthyPanicThreshold": {"value": 62.9}, "zoneAwareLbConfig": {"failTrafficOnPanic": true}}),
                ),
            ],
        );
    }
}

#[test]
fn what_is_left_out_has_kumas_defaults() {
    let expected = json!([{"interval": "60s", "timeout": "15s", "unhealthyThreshold": 5, "healthyThreshold": 1,
                           "httpHealthCheck": {"path": "/"}}]);
    let cluster = cluster(&policy("{ http: {} }"), "http", HTTP);
    check(&cluster, &[("/healthChecks", expected), ("/commonLbConfig", Value::Null)]);
}

#[test]
fn the_protocol_of_a_destination_chooses_how_it_is_checked() {
    let kind = |conf: &str, protocol: &str| {
        let checks = cluster(&policy(conf), protocol, HTTP)["healthChecks"].clone();
        let kinds = ["httpHealthCheck", "grpcHealthCheck", "tcpHealthCheck"];
        kinds.into_iter().find(|kind| checks[0].get(kind).is_some()).unwrap_or("none")
    };
    for (conf, protocol, expected) in [
        ("{ http: {}, tcp: {} }", "http", "httpHealthCheck"),
        ("{ http: {}, tcp: {} }", "http2", "httpHealthCheck"),
        ("{ http: {}, tcp: {} }", "tcp", "tcpHealthCheck"),
        ("{ http: {}, tcp: {} }", "grpc", "none"),
        ("{ grpc: {}, tcp: {} }", "grpc", "grpcHealthCheck"),
        ("{ http: { disabled: true }, tcp: {} }", "http", "tcpHealthCheck"),
        ("{ grpc: { disabled: true }, tcp: {} }", "grpc", "tcpHealthCheck"),
        ("{ http: { disabled: true }, tcp: { disabled: true } }", "http", "none"),
        ("{ http: { disabled: true } }", "http", "none"),
        ("{ tcp: { disabled: true } }", "tcp", "none"),
        ("{ tcp: {} }", "http", "none"),
    ] {
        assert_eq!(kind(conf, protocol), expected, "{conf} {protocol}");
    }
}

#[test]
fn the_panic_threshold_of_a_circuit_breaker_overrides_a_health_checks() {
    let both = format!(
        "{}---\ntype: MeshCircuitBreaker\nmesh: default\nname: b\nspec:\n  to:\n\
         \x20   - {{ targetRef: {{ kind: Mesh }}, default: {{ outlierDetection: {{ healthyPanicThreshold: 0, \
         detectors: {{ successRate: {{ standardDeviationFactor: 1900 }} }} }} }} }}\n",
        policy("{ healthyPanicThreshold: 80, http: {} }")
    );
    check(
        &cluster(&both, "http", HTTP),
        &[
            ("/commonLbConfig", json!({"healthyPanicThreshold": {}})),
            ("/outlierDetection/successRateStdevFactor", json!(1_900_000)),
        ],
    );
}

#[test]
fn envoy_accepts_every_word_about_health() {
    for protocol in ["http", "http2", "grpc", "tcp"] {
        let backend = BACKEND.replace("appProtocol: http", &format!("appProtocol: {protocol}"));
        real_envoy::check(&plan(&[PLAIN, &backend, SHOP, EVERYTHING, &web(CALLS)], &unified("web")));
    }
}

/// Checks often, and takes one answer at its word.
fn often(conf: &str) -> String {
    let quick = "interval: 20ms, noTrafficInterval: 20ms, timeout: 10s, unhealthyThreshold: 1";
    policy(&format!("{{ {quick}, healthyPanicThreshold: 0, {conf} }}"))
}

fn an_unhealthy_endpoint_is_left_out(protocol: &'static str, conf: &str) {
    let pair = ServiceOfTwo::start(protocol, &often(conf));
    pair.wait_for(&["one", "two"]);
    pair.endpoints[0].well.store(false, Ordering::SeqCst);
    pair.wait_for(&["two"]);
    pair.endpoints[0].well.store(true, Ordering::SeqCst);
    pair.wait_for(&["one", "two"]);
}

#[test]
fn an_endpoint_whose_answers_are_not_as_expected_is_not_called() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("events.log");
    let conf = format!(
        "eventLogPath: {}, http: {{ path: /health, expectedStatuses: [204], \
         requestHeadersToAdd: {{ set: [{{ name: x-check, value: 100% }}] }} }}",
        log.display()
    );
    an_unhealthy_endpoint_is_left_out("http", &conf);
    // Who was taken out and put back is on record, as the file's owner reads it later.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.contains("eject_unhealthy_event") && said.contains("add_healthy_event") {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_endpoint_that_does_not_answer_in_bytes_is_not_called() {
    an_unhealthy_endpoint_is_left_out("tcp", "tcp: { send: cGluZwo=, receive: [cG9uZw==] }");
}

#[test]
fn an_endpoint_that_says_in_grpc_that_it_does_not_serve_is_not_called() {
    an_unhealthy_endpoint_is_left_out("grpc", "grpc: {}");
}
