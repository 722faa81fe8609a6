//! A control plane without ports, and a loop that feeds it.

use std::{
    cell::Cell,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use admission::{ControlPlaneRole, Registrar, RuleSettings};
use axum::{Router, body::Body};
use fuzz::Mutator;
use http::Request;
use http_body_util::BodyExt;
use identity::{
    ca::Files,
    certificate::{Usage, self_signed},
};
use inspection::{StoredProxies, blame, findings::Findings};
use jiff::Timestamp;
use monitoring::Targets;
use plan::{AdminTarget, ProxyTraits};
use resources::format;
use runtime::{Shutdown, listen::Tally, metrics::Metrics};
use serde_json::Value;
use serving::{
    dp_server::{
        self, ProxyContext, Reports, ServerCertificate, ShownCertificate,
        bootstrap::Params,
        hds::Hds,
        stream_gates::{Limits, StreamGates},
    },
    observed::Observations,
    push::{PendingWork, Push},
};
use store::{Memory, Store};
use tower::ServiceExt;

use crate::ALLOCATOR;

/// Inputs of a test that has no time to run set.
const INPUTS: u64 = 400;
/// Inputs before the first look at what is allocated: caches are filled, a runtime has its threads.
const WARM: u64 = 50;
/// Limit of bytes that stay allocated after all inputs. Each is a few kilobytes, and those that are stored
/// are counted.
const KEPT: usize = 64 << 20;
/// Time after which a single answer counts as one that never comes.
const NEVER: Duration = Duration::from_secs(60);

thread_local! {
    /// Tasks of a test run on its own thread.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

pub struct Target {
    pub rest: Router,
    pub proxies: Router,
    push: Arc<Push>,
    shutdown: Shutdown,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

/// An answer: its status and its text.
#[derive(Debug)]
pub struct FuzzAnswer {
    pub status: u16,
    pub text: String,
    /// The code of gRPC and its message, at the end of a stream.
    pub end: Option<(String, String)>,
}

impl Target {
    pub async fn new() -> Target {
        let shutdown = Shutdown::default();
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let push = Arc::new(Push::new(store.clone(), "default"));
        let targets = Targets::new(store.clone(), push.clone(), Duration::ZERO);
        push.start(&shutdown);
        let registrar = Arc::new(Registrar::new(store.clone(), setup()));
        let mesh = format::parse(serde_json::json!({ "type": "Mesh", "name": "default" })).unwrap().draft;
        registrar.put(mesh).await.unwrap();
        let metrics = runtime::metrics::Metrics::default();
        let context = api::Context {
            registrar: registrar.clone(),
            settings: api::Settings::default(),
            metrics: api::ApiMetrics::register(&metrics),
            inspect: Arc::new(StoredProxies::new(store.clone(), push.clone(), 0)),
            findings: Findings::new(store.clone(), push.clone(), Files::default(), &metrics),
            events: events::Events::default(),
            targets,
            gates: api::Gates::default(),
        };
        let proxies = dp_server::router(Arc::new(for_proxies(registrar, store, push.clone(), &shutdown)));
        Target { rest: api::router(context), proxies, push, shutdown }
    }

    /// Checks that the configuration of a proxy can be computed from everything that is stored now.
    pub async fn plan(&self) {
        self.push.caught_up().await;
        let connected = self.push.connect(ProxyTraits {
            resolver: true,
            ipv6: false,
            admin_target: AdminTarget::Pipe("/tmp/web.sock".to_owned()),
            readiness_port: 9902,
            ..ProxyTraits::assumed("default", "web")
        });
        connected.compute(PendingWork::Everything, None).await;
    }
}

fn setup() -> RuleSettings {
    RuleSettings {
        mode: ControlPlaneRole::Zone { name: "default".to_owned(), federated: false },
        disable_origin_label_validation: false,
        environment: resources::Environment::Universal,
        health_discovery: true,
        unsafe_delete: false,
        companions: Box::new(|_, _| Vec::new()),
        check: envoy::patch::check,
        now: Timestamp::now,
    }
}

fn for_proxies(
    registrar: Arc<Registrar>,
    store: Arc<dyn Store>,
    push: Arc<Push>,
    shutdown: &Shutdown,
) -> ProxyContext {
    let config = serving::Config::default();
    let now = Timestamp::now();
    let pair = self_signed(Usage::Server, &["localhost".to_owned()], &[], now).unwrap();
    let limits = Limits {
        streams_per_connection: 100,
        streams_per_proxy: 100,
        unauthenticated: 100,
        registered_at_once: 10,
        wait: NEVER,
        introduction: NEVER,
        first_message: 1 << 20,
        message: 4 << 20,
    };
    ProxyContext {
        registrar,
        push,
        issuer: dp_server::secrets::Secrets::default(),
        hds: Some(Hds::start(&config.dp_server.hds, &store, shutdown)),
        reports: Reports {
            observations: Arc::new(Observations::new(store.clone(), &Metrics::default())),
            insights: insights::Writer::new(store, Duration::from_millis(50), shutdown.clone()),
            events: events::Events::default(),
            blame: blame::blamed,
        },
        certificate: ServerCertificate::new(ShownCertificate {
            facts: pair.check(now).unwrap(),
            pem: pair.certificate,
        }),
        authentication: dp_server::credentials::Authentication {
            verifier: Arc::new(dp_server::credentials::SignedTokens { zone: "default".into() }),
            tokens_required: false,
            zone_tokens_required: false,
        },
        bootstrap: Params::of(&config, 5678).unwrap(),
        absence: dp_server::departures::Absence {
            deregistration_delay: Duration::ZERO,
            departures: dp_server::departures::Departures::new(Duration::ZERO),
        },
        second_try_after: Duration::from_secs(3600),
        instance: "cp-1".into(),
        zone: "default".into(),
        gates: Arc::new(StreamGates::new(limits, Tally::default(), shutdown.clone())),
        shutdown: shutdown.clone(),
    }
}

/// Sends a request and waits for the whole answer. One that never comes is a failure.
pub async fn send(router: &Router, request: Request<Body>) -> FuzzAnswer {
    let whole = async {
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let collected = response.into_body().collect().await.unwrap();
        let end = collected.trailers().map(|trailers| {
            let text = |name: &str| trailers.get(name).map(|value| value.to_str().unwrap().to_owned());
            (text("grpc-status").unwrap_or_default(), text("grpc-message").unwrap_or_default())
        });
        let text = String::from_utf8_lossy(&collected.to_bytes()).into_owned();
        FuzzAnswer { status, text, end }
    };
    tokio::time::timeout(NEVER, whole).await.expect("an answer to every request")
}

/// A request with a body of JSON.
pub fn request(method: &str, path: &str, body: Vec<u8>) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json").header("host", "localhost:5678");
    request.body(Body::from(body)).unwrap()
}

/// Feeds inputs to a target. `one` sends one input and checks the answer.
pub async fn feed<F: Future<Output = ()>>(mut one: impl FnMut(Mutator) -> F) {
    count_panics();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("FUZZ_SEED").unwrap_or_default();
    let deadline = number("FUZZ_MINUTES").map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let mut before = live();
    let mut input = 0;
    while deadline.map_or(input < INPUTS, |deadline| Instant::now() < deadline) {
        let panics = PANICS.get();
        let named = Named(seed.wrapping_add(input));
        one(Mutator::new(named.0)).await;
        assert_eq!(PANICS.get(), panics, "a task panicked");
        drop(named);
        input += 1;
        if input == WARM {
            before = live();
        }
    }
    let kept = live().saturating_sub(before);
    assert!(kept < KEPT, "{kept} bytes are kept after {input} inputs");
}

/// The seed of an input, which a failure names.
struct Named(u64);

impl Drop for Named {
    #[allow(clippy::print_stderr, reason = "the output of a test that fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was the input of FUZZ_SEED={}", self.0);
        }
    }
}

/// Tasks that panic end silently; here each is counted.
fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            usual(panic);
        }));
    });
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// The Dataplane of the proxy `web`.
pub fn web() -> Value {
    serde_json::json!({
        "type": "Dataplane", "mesh": "default", "name": "web", "labels": { "team": "a" },
        "networking": {
            "address": "127.0.2.1",
            "inbound": [{ "name": "main", "port": 80, "servicePort": 8080, "serviceAddress": "127.0.0.1",
                "serviceProbe": { "tcp": {}, "timeout": "2s" },
                "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } }],
            "outbound": [{ "port": 10001, "backendRef": { "kind": "MeshService", "name": "backend", "port": 80 } },
                { "port": 10002, "tags": { "kuma.io/service": "backend" } }],
            "admin": { "port": 9901 }
        }
    })
}
