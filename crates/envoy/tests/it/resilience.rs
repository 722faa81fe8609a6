//! Retries, and endpoints that get no more traffic.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use envoy::bootstrap::ClusterNames;
use plan::{ProxyPlan, ProxyTraits};
use serde_json::{Value, json};
use testkit::body::yaml_to_all;
use xds::Type;

use crate::{
    enforcement::free_port,
    live::Live,
    pair::ServiceOfTwo,
    real_envoy,
    support::{BACKEND, PLAIN, plan, unified, web},
    traffic::{World, application},
    view::{check, shown, target},
};

const HTTP: &str = "kri_msvc_default_east__backend_http";
const TCP: &str = "kri_msvc_default_east__backend_9000";
const FILTER: &str = "/filterChains/0/filters/0/typedConfig";
const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
    - { port: 10003, tags: { kuma.io/service: backend } }\n\
    inbound: [{ port: 80, servicePort: 8080, name: own, tags: { kuma.io/service: web, kuma.io/protocol: http } }]";

/// Policies of all new meshes.
const DEFAULTS: &str = r#"
type: MeshRetry
mesh: default
name: mesh-retry-all-default
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Mesh }
      default:
        tcp: { maxConnectAttempt: 5 }
        http: &requests { numRetries: 5, perTryTimeout: 16s, backOff: { baseInterval: 25ms, maxInterval: 250ms } }
        grpc: *requests
---
type: MeshCircuitBreaker
mesh: default
name: mesh-circuit-breaker-all-default
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: Mesh }
      default: { connectionLimits: { maxConnections: 1024, maxPendingRequests: 1024, maxRequests: 1024, maxRetries: 3 } }
"#;

const EVERYTHING: &str = r#"
type: MeshRetry
mesh: default
name: r
spec:
  to:
    - targetRef: { kind: Mesh }
      default:
        http:
          numRetries: 2
          perTryTimeout: 0s
          backOff: { maxInterval: 10ms }
          rateLimitedBackOff: { maxInterval: 7s, resetHeaders: [{ name: retry-after, format: Seconds }, { name: x-reset, format: UnixTimestamp }] }
          retryOn: [5xx, Reset, Retriable4xx, EnvoyRatelimited, Http3PostConnectFailure, HttpMethodGet, HttpMethodPut, "429", "503"]
          retriableResponseHeaders: [{ type: Exact, name: x-again, value: "yes" }]
          retriableRequestHeaders: [{ type: Present, name: x-safe }]
          hostSelection:
            - { predicate: OmitPreviousHosts }
            - { predicate: OmitHostsWithTags, tags: { version: v1, a: b } }
            - { predicate: OmitPreviousPriorities, updateFrequency: 3 }
          hostSelectionMaxAttempts: 4
---
type: MeshCircuitBreaker
mesh: default
name: b
spec:
  to: &entries
    - targetRef: { kind: Mesh }
      default:
        connectionLimits: { maxConnections: 1111, maxConnectionPools: 2222, maxPendingRequests: 3333, maxRetries: 4444, maxRequests: 5555 }
        outlierDetection:
          interval: 5s
          baseEjectionTime: 30s
          maxEjectionPercent: 90
          splitExternalAndLocalErrors: true
          healthyPanicThreshold: "0.5"
          detectors:
            totalFailures: { consecutive: 6 }
            localOriginFailures: {}
            successRate: { minimumHosts: 7, requestVolume: 8, standardDeviationFactor: "1.9" }
  from: *entries
"#;

fn shown_for(policies: &str, protocol: &str, kind: Type, name: &str) -> Value {
    let backend = BACKEND.replace("appProtocol: http", &format!("appProtocol: {protocol}"));
    shown(&target(&[PLAIN, &backend, policies, &web(CALLS)], &unified("web")), kind, name)
}

fn retry_policy(policies: &str, protocol: &str) -> Value {
    let listener = shown_for(policies, protocol, Type::Listener, HTTP);
    let route = format!("{FILTER}/routeConfig/virtualHosts/0/routes/0/route/retryPolicy");
    listener.pointer(&route).cloned().unwrap_or_default()
}

#[test]
fn a_new_mesh_tries_again_and_limits_what_is_open() {
    // What the policy leaves out: a retry goes elsewhere.
    let config = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
    let another =
        json!([{"name": "envoy.retry_host_predicates.previous_hosts", "typedConfig": {"@type": config}}]);
    let requests = |on: &str| {
        json!({"retryOn": on, "numRetries": 5, "perTryTimeout": "16s",
               "retryBackOff": {"baseInterval": "0.025s", "maxInterval": "0.250s"},
               "retryHostPredicate": another, "hostSelectionRetryMaxAttempts": "5"})
    };
    let http = requests("gateway-error,connect-failure,refused-stream");
    for protocol in ["http", "http2"] {
        assert_eq!(retry_policy(DEFAULTS, protocol), http, "{protocol}");
    }
    assert_eq!(
        retry_policy(DEFAULTS, "grpc"),
        requests(
            "cancelled,connect-failure,gateway-error,refused-stream,reset,resource-exhausted,unavailable"
        )
    );
    check(
        &shown_for(DEFAULTS, "http", Type::Listener, TCP),
        &[(&format!("{FILTER}/maxConnectAttempts"), json!(5))],
    );
    let limits = json!({"thresholds": [{"maxConnections": 1024, "maxPendingRequests": 1024, "maxRequests": 1024,
                                        "maxRetries": 3, "trackRemaining": true}]});
    for cluster in [HTTP, TCP, "backend"] {
        let cluster = shown_for(DEFAULTS, "http", Type::Cluster, cluster);
        check(&cluster, &[("/circuitBreakers", limits.clone()), ("/outlierDetection", Value::Null)]);
    }
    check(
        &shown_for(DEFAULTS, "http", Type::Cluster, "self_own"),
        &[("/circuitBreakers", json!({"thresholds": [{"trackRemaining": true}]}))],
    );
}

#[test]
fn every_word_about_retries_is_put_in_envoys() {
    let url = |name: &str| format!("type.googleapis.com/envoy.extensions.retry.{name}");
    let omitted = json!({"@type": url("host.omit_host_metadata.v3.OmitHostMetadataConfig"),
        "metadataMatch": {"filterMetadata": {"envoy.lb": {"version": "v1", "a": "b"}}}});
    let method = |name: &str| json!({"name": ":method", "stringMatch": {"exact": name}});
    assert_eq!(
        retry_policy(EVERYTHING, "http"),
        json!({
            "retryOn": "5xx,reset,retriable-4xx,envoy-ratelimited,http3-post-connect-failure,retriable-status-codes,retriable-headers",
            "numRetries": 2,
            "perTryTimeout": "0s",
            // Envoy takes no maximum below the base.
            "retryBackOff": {"baseInterval": "0.025s", "maxInterval": "0.025s"},
            "rateLimitedRetryBackOff": {"maxInterval": "7s", "resetHeaders":
                [{"name": "retry-after"}, {"name": "x-reset", "format": "UNIX_TIMESTAMP"}]},
            "retriableStatusCodes": [429, 503],
            "retriableHeaders": [{"name": "x-again", "stringMatch": {"exact": "yes"}}],
            "retriableRequestHeaders":
                [method("GET"), method("PUT"), {"name": "x-safe", "presentMatch": true}],
            "retryHostPredicate": [
                {"name": "envoy.retry_host_predicates.previous_hosts",
                 "typedConfig": {"@type": url("host.previous_hosts.v3.PreviousHostsPredicate")}},
                {"name": "envoy.retry_host_predicates.omit_host_metadata", "typedConfig": omitted}],
            "retryPriority": {"name": "envoy.retry_priorities.previous_priorities", "typedConfig":
                {"@type": url("priority.previous_priorities.v3.PreviousPrioritiesConfig"), "updateFrequency": 3}},
            "hostSelectionRetryMaxAttempts": "4",
        })
    );
    let words = |conf: &str| {
        retry_policy(
            &format!(
                "type: MeshRetry\nmesh: default\nname: r\n\
                 spec: {{ to: [{{ targetRef: {{ kind: Mesh }}, default: {{ grpc: {conf}, http: {conf} }} }}] }}"
            ),
            "grpc",
        )
    };
    let on = words("{ retryOn: [Canceled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable] }");
    check(&on, &[("/retryOn", json!("cancelled,deadline-exceeded,internal,resource-exhausted,unavailable"))]);
    assert_eq!(words("{ numRetries: 0, retryOn: [Canceled] }"), Value::Null);
}

#[test]
fn methods_and_codes_alone_leave_the_usual_conditions() {
    let policy = "type: MeshRetry\nmesh: default\nname: r\nspec: { to: [{ targetRef: { kind: Mesh }, \
        default: { http: { retryOn: [HttpMethodGet, '500'] } } }] }";
    check(
        &retry_policy(policy, "http"),
        &[
            ("/retryOn", json!("gateway-error,connect-failure,refused-stream,retriable-status-codes")),
            ("/retriableStatusCodes", json!([500])),
        ],
    );
}

#[test]
fn every_word_about_limits_is_put_in_envoys_both_ways() {
    for cluster in [HTTP, "self_own"] {
        check(
            &shown_for(EVERYTHING, "http", Type::Cluster, cluster),
            &[
                (
                    "/circuitBreakers",
                    json!({"thresholds": [{"maxConnections": 1111, "maxConnectionPools": 2222,
                        "maxPendingRequests": 3333, "maxRetries": 4444, "maxRequests": 5555, "trackRemaining": true}]}),
                ),
                (
                    "/outlierDetection",
                    json!({
                        "interval": "5s", "baseEjectionTime": "30s", "maxEjectionPercent": 90,
                        "splitExternalLocalOriginErrors": true,
                        "consecutive5xx": 6, "enforcingConsecutive5xx": 100,
                        "enforcingConsecutiveGatewayFailure": 0,
                        "enforcingConsecutiveLocalOriginFailure": 100,
                        "enforcingSuccessRate": 100, "enforcingLocalOriginSuccessRate": 100,
                        "successRateMinimumHosts": 7, "successRateRequestVolume": 8, "successRateStdevFactor": 1900,
                        "enforcingFailurePercentage": 0, "enforcingFailurePercentageLocalOrigin": 0,
                    }),
                ),
                ("/commonLbConfig", json!({"healthyPanicThreshold": {"value": 0.5}})),
            ],
        );
    }
    let disabled = EVERYTHING.replace("interval: 5s", "disabled: true");
    check(
        &shown_for(&disabled, "http", Type::Cluster, HTTP),
        &[("/outlierDetection", Value::Null), ("/commonLbConfig", Value::Null)],
    );
}

#[test]
fn envoy_accepts_every_word_about_retries_and_limits() {
    let backend = BACKEND.replace("appProtocol: http", "appProtocol: grpc");
    for (backend, policies) in [(BACKEND, EVERYTHING), (BACKEND, DEFAULTS), (&backend, DEFAULTS)] {
        real_envoy::check(&plan(&[PLAIN, backend, policies, &web(CALLS)], &unified("web")));
    }
}

/// A service with two endpoints, one of which does not listen.
fn half_dead(protocol: &str, policies: &str, outbound: u16) -> ProxyPlan {
    let port = free_port();
    let application = application("one");
    let tags = format!("tags: {{ kuma.io/service: one, kuma.io/protocol: {protocol} }}");
    let service = format!(
        "type: MeshService\nmesh: default\nname: one\nspec:\n\
         \x20 selector: {{ dataplaneTags: {{ kuma.io/service: one }} }}\n\
         \x20 ports: [{{ port: 80, targetPort: {port}, appProtocol: {protocol} }}]"
    );
    let dead = format!(
        "type: Dataplane\nmesh: default\nname: dead\n\
         networking: {{ address: 127.0.0.9, inbound: [{{ port: {port}, {tags} }}] }}"
    );
    let web = web(&format!(
        "inbound: [{{ address: 127.0.0.1, port: {port}, servicePort: {application}, {tags} }}]\n\
         outbound: [{{ port: {outbound}, backendRef: {{ kind: MeshService, name: one, port: 80 }} }}]"
    ));
    let traits = ProxyTraits { admin_port: 0, ..unified("web") };
    plan(&[PLAIN, policies, &service, &dead, &web], &traits)
}

fn world(protocol: &str, policies: &str) -> World {
    let outbound = free_port();
    let plan = half_dead(protocol, policies, outbound);
    assert_eq!(plan.outgoing.backends[0].endpoints.0.len(), 2);
    World { envoy: Live::start(&plan, ClusterNames::UNIFIED), outbound }
}

#[test]
fn a_dead_endpoint_is_not_noticed_by_requests_that_are_tried_again() {
    let failed = |world: &World| (0..40).filter(|_| world.get("/", "").0 != "200").count();
    assert_ne!(failed(&world("http", PLAIN)), 0, "without retries, every other request fails");
    assert_eq!(failed(&world("http", DEFAULTS)), 0);
}

/// Returns the answer to a connection; empty if it is reset.
fn hello(port: u16) -> String {
    let mut answer = String::new();
    if let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = socket.write_all(b"hello\n").and_then(|()| socket.read_to_string(&mut answer));
    }
    answer
}

#[test]
fn a_dead_endpoint_is_not_noticed_by_connections_that_are_tried_again() {
    let failed = |world: &World| (0..40).filter(|_| hello(world.outbound) != "one\n").count();
    assert_ne!(failed(&world("tcp", PLAIN)), 0, "without retries, every other connection fails");
    assert_eq!(failed(&world("tcp", DEFAULTS)), 0);
}

#[test]
fn a_request_that_fails_is_tried_as_often_as_the_policy_says() {
    for (conf, tries) in [
        ("{ numRetries: 3, retryOn: [5xx] }", 4),
        ("{ numRetries: 2, retryOn: ['507'] }", 3),
        ("{ numRetries: 3, retryOn: [5xx, HttpMethodPost] }", 1),
        ("{ numRetries: 3, retryOn: [Retriable4xx] }", 1),
        ("{ numRetries: 0, retryOn: [5xx] }", 1),
    ] {
        let pair = ServiceOfTwo::start("http", &yaml_to_all("MeshRetry", &format!("{{ http: {conf} }}")));
        for endpoint in &pair.endpoints {
            endpoint.status.store(507, Ordering::SeqCst);
        }
        assert!(pair.ask("/", "").starts_with("HTTP/1.1 507"), "{conf}");
        let asked: usize = pair.endpoints.iter().map(|endpoint| endpoint.asked.load(Ordering::SeqCst)).sum();
        assert_eq!(asked, tries, "{conf}");
    }
}

#[test]
fn a_response_with_a_header_that_the_policy_names_is_tried_again() {
    // Responses have 6 bytes and status 200, which no other condition is about.
    let header = |value: u32| {
        format!("retriableResponseHeaders: [{{ type: Exact, name: content-length, value: '{value}' }}]")
    };
    for (conf, tries) in [
        (header(6), 3),
        (format!("{}, retryOn: [Reset]", header(6)), 3),
        (header(7), 1),
        ("retryOn: [Reset]".to_owned(), 1),
    ] {
        let policy = yaml_to_all("MeshRetry", &format!("{{ http: {{ numRetries: 2, {conf} }} }}"));
        let pair = ServiceOfTwo::start("http", &policy);
        assert!(pair.ask("/", "").starts_with("HTTP/1.1 200"), "{conf}");
        let asked: usize = pair.endpoints.iter().map(|endpoint| endpoint.asked.load(Ordering::SeqCst)).sum();
        assert_eq!(asked, tries, "{conf}");
    }
}

#[test]
fn what_is_over_the_limit_of_a_breaker_fails_at_once() {
    let limits = yaml_to_all("MeshCircuitBreaker", "{ connectionLimits: { maxRequests: 1 } }");
    for (policies, status) in [(limits.as_str(), "503"), (PLAIN, "200")] {
        let pair = Arc::new(ServiceOfTwo::start("http", policies));
        let busy = pair.clone();
        // There is no answer to this one, so it stays open.
        std::thread::spawn(move || busy.ask("/slow", ""));
        let deadline = Instant::now() + Duration::from_secs(30);
        while pair.endpoints.iter().all(|endpoint| endpoint.asked.load(Ordering::SeqCst) == 0) {
            assert!(Instant::now() < deadline, "the first request does not arrive");
            std::thread::sleep(Duration::from_millis(5));
        }
        let answer = pair.ask("/", "");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert_eq!(answer.contains("reset reason: overflow"), status == "503", "{answer}");
    }
}

#[test]
fn an_endpoint_that_fails_again_and_again_is_left_out() {
    let detection = "{ outlierDetection: { baseEjectionTime: 1m, maxEjectionPercent: 100, \
        healthyPanicThreshold: 0, detectors: { totalFailures: { consecutive: 3 } } } }";
    let pair = ServiceOfTwo::start("http", &yaml_to_all("MeshCircuitBreaker", detection));
    pair.wait_for(&["one", "two"]);
    pair.endpoints[0].status.store(500, Ordering::SeqCst);
    pair.wait_for(&["two"]);
}
