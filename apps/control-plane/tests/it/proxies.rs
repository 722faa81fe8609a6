//! Requests of proxies before and while they run: a bootstrap, a place in the mesh, and leave to go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::{Body, to_bytes},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use control_plane::config::Config;
use events::Events;
use http::{Request, StatusCode, header};
use identity::{
    DataplaneToken, KeyPair, Purpose,
    certificate::{Usage, self_signed},
    signing_key::{self, FIRST_KID},
    token,
};
use inspection::blame;
use jiff::Timestamp;
use resources::{
    Draft, Key, Kind,
    format::{self, universal, yaml},
    kinds::{
        dataplane::{Dataplane, InboundState},
        dataplane_insight::DataplaneInsight,
    },
};
use runtime::{listen::Tally, metrics::Metrics};
use serde_json::{Value, json};
use serving::{
    config::HealthDiscovery,
    dp_server::{
        self, ProxyContext, Reports, ServerCertificate, ShownCertificate,
        bootstrap::Params,
        credentials::{Authentication, Credentials, SignedTokens},
        departures::{Absence, Departures},
        hds::Hds,
        proxy::IdentifiedProxy,
        registration::{Listening, Registration},
        stream_gates::{Limits, StreamGates},
    },
    observed::Observations,
};
use store::{Changes, Committed, Error, Snapshot, Store, Write};
use tower::ServiceExt;

use crate::world::{World, dataplane, eventually, mesh, registrar, traits};

/// Time that insights may wait for each other.
const FLUSH: Duration = Duration::from_millis(50);

/// Limits that do not get in the way. Proxies are registered one by one, which must not matter.
pub const GENEROUS: Limits = Limits {
    streams_per_connection: 100,
    streams_per_proxy: 100,
    unauthenticated: 100,
    registered_at_once: 1,
    wait: Duration::from_secs(60),
    introduction: Duration::from_secs(60),
    first_message: 1 << 20,
    message: 4 << 20,
};

/// A server for proxies, without a port.
pub struct ProxyServer {
    pub world: World,
    pub context: Arc<ProxyContext>,
    pub router: Router,
}

impl ProxyServer {
    pub async fn new(tokens_required: bool, deregistration_delay: Duration) -> ProxyServer {
        ProxyServer::on(tokens_required, deregistration_delay, |store| store).await
    }

    /// A server that soon sends again what a proxy refuses.
    pub async fn impatient() -> ProxyServer {
        let server = ProxyServer::new(false, Duration::ZERO).await;
        server.with(|context| context.second_try_after = Duration::from_millis(1))
    }

    /// The same server with something changed, before it serves.
    pub fn with(mut self, change: impl FnOnce(&mut ProxyContext)) -> ProxyServer {
        self.router = Router::new();
        change(Arc::get_mut(&mut self.context).expect("no request is served yet"));
        self.router = dp_server::router(self.context.clone());
        self
    }

    /// A server with other limits, which counts in `metrics`.
    pub async fn limited(limits: Limits, metrics: &Metrics) -> ProxyServer {
        let server = ProxyServer::new(true, Duration::from_secs(60)).await;
        let tally = Tally::register(metrics, "dp_server");
        let admission = Arc::new(StreamGates::new(limits, tally, server.world.shutdown.clone()));
        server.with(|context| context.gates = admission)
    }

    /// A server with other settings of bootstraps.
    pub async fn configured(change: impl FnOnce(&mut Config)) -> ProxyServer {
        let server = ProxyServer::new(false, Duration::ZERO).await;
        let mut config = Config::default();
        change(&mut config);
        server.with(|context| context.bootstrap = Params::of(&config.serving, 5678).unwrap())
    }

    /// A server that sees its store through something else.
    pub async fn on(
        tokens_required: bool,
        deregistration_delay: Duration,
        through: impl FnOnce(Arc<dyn store::Store>) -> Arc<dyn store::Store>,
    ) -> ProxyServer {
        let world = World::new();
        let store = through(world.store.clone());
        world.put([mesh("default", "")]).await;
        let now = Timestamp::now();
        let names = ["localhost".to_owned(), "*.example.com".to_owned()];
        let pair = self_signed(Usage::Server, &names, &["127.0.0.1".parse().unwrap()], now).unwrap();
        let context = Arc::new(ProxyContext {
            registrar: Arc::new(registrar(store.clone())),
            push: world.push.clone(),
            issuer: dp_server::secrets::Secrets::default(),
            certificate: ServerCertificate::new(ShownCertificate {
                facts: pair.check(now).unwrap(),
                pem: pair.certificate,
            }),
            authentication: Authentication {
                verifier: Arc::new(SignedTokens { zone: "default".into() }),
                tokens_required,
                zone_tokens_required: tokens_required,
            },
            zone: "default".into(),
            bootstrap: Params::of(&serving::Config::default(), 5678).unwrap(),
            hds: Some(Hds::start(&HealthDiscovery::default(), &world.store, &world.shutdown)),
            absence: Absence { deregistration_delay, departures: Departures::new(Duration::from_secs(3600)) },
            reports: Reports {
                insights: insights::Writer::new(store, FLUSH, world.shutdown.clone()),
                observations: Arc::new(Observations::new(world.store.clone(), &Metrics::default())),
                events: Events::default(),
                blame: blame::blamed,
            },
            second_try_after: Duration::from_secs(3600),
            instance: "cp-1".into(),
            gates: Arc::new(StreamGates::new(GENEROUS, Tally::default(), world.shutdown.clone())),
            shutdown: world.shutdown.clone(),
        });
        ProxyServer { world, router: dp_server::router(context.clone()), context }
    }

    pub async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (StatusCode, String, String) {
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The bootstrap an agent gets, read back.
    pub async fn bootstrap(&self, request: Value) -> Value {
        let (status, _, text) = self.post("/bootstrap", &[("host", "localhost:5678")], request).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        yaml::documents(&text).unwrap().remove(0).value
    }

    /// A token for the proxy `web`.
    pub async fn token(&self, mesh: &str) -> String {
        let claims =
            DataplaneToken { name: "web".to_owned(), mesh: mesh.to_owned(), ..DataplaneToken::default() };
        self.token_for(mesh, &claims, Duration::from_secs(60)).await
    }

    pub async fn token_for(&self, mesh: &str, claims: &DataplaneToken, valid_for: Duration) -> String {
        let purpose = Purpose::Dataplane { mesh };
        let key = signing_key::draft(purpose, FIRST_KID, &KeyPair::generate().unwrap());
        self.context.registrar.ensure(vec![key]).await.unwrap();
        let key = signing_key::latest(&self.world.store.snapshot().unwrap(), purpose).unwrap();
        token::issue(claims, &key, Timestamp::now(), valid_for).unwrap()
    }

    /// True if the inbounds of `web` are ready; `None` when it is not stored.
    pub fn ready(&self) -> Option<bool> {
        self.is_ready("web")
    }

    pub fn is_ready(&self, name: &str) -> Option<bool> {
        let snapshot = self.world.store.snapshot().unwrap();
        let stored = snapshot.get(&Key::new(Kind::Dataplane, "default", name))?;
        let inbounds = stored.spec.get::<Dataplane>().unwrap().inbounds();
        Some(inbounds.iter().all(|inbound| inbound.state == InboundState::Ready))
    }

    async fn register(&self) -> Registration {
        let credentials = self.authenticated().await;
        Registration::begin(self.context.clone(), bringing_its_dataplane(), credentials).await.unwrap()
    }

    /// Credentials of every proxy where no tokens are required.
    pub async fn authenticated(&self) -> Credentials {
        let snapshot = self.world.store.snapshot().unwrap();
        Credentials::verify(&self.context, &snapshot, "default", None).await.unwrap()
    }
}

fn web() -> Draft {
    let web = dataplane("default", "web", "127.0.2.1", "web", &[]);
    Draft::new(web.key, web.spec)
}

fn bringing_its_dataplane() -> IdentifiedProxy {
    let metadata = json!({ "dataplane.resource": universal::render_draft(&web()).to_string() });
    IdentifiedProxy::identify("default.web", metadata).unwrap()
}

/// Request of an agent that brings its Dataplane along.
pub fn asking(change: impl FnOnce(&mut Value)) -> Value {
    let mut request = json!({
        "mesh": "default",
        "name": "web",
        "dataplaneToken": "a-token",
        "dataplaneResource": universal::render_draft(&web()).to_string(),
        "features": ["feature-delta-grpc"],
        "workdir": "/tmp/web",
        "readinessPort": 9999,
    });
    change(&mut request);
    request
}

/// Checks how a request for a bootstrap is refused, and that the answer holds every text.
pub async fn refused(server: &ProxyServer, host: &str, request: Value, expect: u16, texts: &[&str]) {
    let (status, _, text) = server.post("/bootstrap", &[("host", &format!("{host}:5678"))], request).await;
    assert_eq!(status.as_u16(), expect, "{text}");
    for part in texts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(!text.contains("a-token"), "{text}");
}

#[tokio::test]
async fn a_bootstrap_that_cannot_work_is_refused_with_the_reason() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    let with = |key: &str, value: &str| asking(|request| request[key] = json!(value));
    refused(&server, "localhost", with("mesh", "none"), 422, &["\"none\" does not exist"]).await;
    refused(&server, "localhost", with("proxyType", "ingress"), 422, &["expected a ZoneIngress"]).await;
    refused(&server, "localhost", with("dataplaneResource", ""), 404, &[]).await;
    refused(&server, "localhost", with("name", "other"), 422, &["\"other\"", "web"]).await;
    let two = with("dataplaneResource", "a: 1\n---\nb: 2");
    refused(&server, "localhost", two, 422, &["found 2 documents"]).await;
    refused(&server, "localhost", json!("?"), 400, &["not valid JSON"]).await;

    let invalid = json!({ "type": "Dataplane", "mesh": "default", "name": "web", "networking": {
        "address": "not an address!", "inbound": [{ "port": 0, "tags": { "kuma.io/service": "web" } }] } });
    let invalid = with("dataplaneResource", &invalid.to_string());
    let violations = ["networking.address", "networking.inbound[0].port"];
    refused(&server, "127.0.0.1", invalid, 422, &violations).await;

    let advice = ["cp.elsewhere", "*.example.com", "--cp-address"];
    refused(&server, "cp.elsewhere", asking(|_| ()), 400, &advice).await;
    refused(&server, "a.b.example.com", asking(|_| ()), 400, &["a.b.example.com"]).await;
}

#[tokio::test]
async fn a_bootstrap_tells_who_the_proxy_is_and_where_to_connect() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    assert_eq!(
        (&bootstrap["node"]["id"], &bootstrap["node"]["cluster"]),
        (&json!("default.web"), &json!("web"))
    );
    let metadata = &bootstrap["node"]["metadata"];
    for (key, expect) in [
        ("dataplane.admin.port", "9901"),
        ("dataplane.readinessReporter.port", "9999"),
        ("dataplane.admin.socketPath", "/tmp/web/kuma-envoy-admin.sock"),
        ("dataplane.proxyType", "dataplane"),
    ] {
        assert_eq!(metadata[key], json!(expect), "{key}");
    }
    // What the proxy sends back when it connects says who it is.
    let proxy = IdentifiedProxy::identify("default.web", metadata.clone()).unwrap();
    assert_eq!(proxy.own_dataplane, Some(web()));
    assert_eq!((proxy.traits.readiness_port, proxy.traits.readiness_address), (9999, None));
    let elsewhere = server.bootstrap(asking(|r| r["readinessAddress"] = json!("::1"))).await;
    let proxy_elsewhere =
        IdentifiedProxy::identify("default.web", elsewhere["node"]["metadata"].clone()).unwrap();
    assert_eq!(proxy_elsewhere.traits.readiness_address, Some("::1".parse().unwrap()));
    assert!(!metadata.to_string().contains("a-token"), "{metadata}");

    let text = bootstrap.to_string();
    assert!(text.contains("DELTA_GRPC") && text.contains("localhost") && text.contains("a-token"), "{text}");
    let other = server.bootstrap(asking(|r| r["features"] = json!([]))).await.to_string();
    assert!(!other.contains("DELTA_GRPC"), "{other}");
}

#[tokio::test]
async fn an_agent_that_reads_json_gets_the_bootstrap_inside_of_it() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    server.context.registrar.put(web()).await.unwrap();
    let stored = asking(|r| {
        r["dataplaneResource"] = json!("");
        r["dataplaneToken"] = json!("");
    });
    let host = ("host", "127.0.0.1:5678");
    let (status, kind, plain) = server.post("/bootstrap", &[host], stored.clone()).await;
    assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/x-yaml"));
    let (status, kind, answer) =
        server.post("/bootstrap", &[host, ("accept", "application/json")], stored).await;
    assert_eq!((status, kind.as_str()), (StatusCode::OK, "application/json"));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let inside = BASE64_STANDARD.decode(answer["bootstrap"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(inside).unwrap(), plain);
    assert_eq!(answer["kumaSidecarConfiguration"]["networking"]["address"], "127.0.2.1");
    let labels = &answer["kumaSidecarConfiguration"]["metrics"]["labels"];
    for (label, value) in [("mesh", "default"), ("dataplane", "web"), ("kuma_proxy_role", "sidecar")] {
        assert_eq!(labels[label], value, "{labels}");
    }
    assert!(labels["zone"].is_string() && labels["kuma_workload"].is_string(), "{labels}");
}

#[tokio::test]
async fn a_dataplane_brought_along_is_called_by_nobody_until_its_proxy_listens() {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    let registration = server.register().await;
    assert_eq!(server.ready(), Some(false));
    assert!(registration.announce(Listening::default()).await);
    assert_eq!(server.ready(), Some(true));
    // One that comes back was ready all the time, as far as others can tell.
    let _again = server.register().await;
    assert_eq!(server.ready(), Some(true));
    let snapshot = server.world.store.snapshot().unwrap();
    let insight = snapshot.get(&Key::new(Kind::DataplaneInsight, "default", "web")).unwrap();
    assert_eq!(insight.spec.get::<DataplaneInsight>().unwrap().subscriptions.len(), 2);
}

#[tokio::test]
async fn a_proxy_that_its_mesh_keeps_out_is_told_why() {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    let restrictions = json!([{ "tags": { "kuma.io/zone": "default", "kuma.io/service": "*" } }]);
    let constraints = json!({ "dataplaneProxy": { "restrictions": restrictions } });
    let mesh = json!({ "type": "Mesh", "name": "default", "constraints": constraints });
    registrar(server.world.store.clone()).put(format::parse(mesh).unwrap().draft).await.unwrap();
    let begun =
        Registration::begin(server.context.clone(), bringing_its_dataplane(), server.authenticated().await)
            .await;
    let refused = begun.err().unwrap().message().to_owned();
    let why = r#"matches restricted tags "kuma.io/service=* kuma.io/zone=default" defined on the Mesh"#;
    assert!(
        refused.starts_with("the Dataplane is refused: dataplane cannot be a member of mesh"),
        "{refused}"
    );
    assert!(refused.ends_with(why), "{refused}");
    assert_eq!(server.ready(), None);
}

#[tokio::test]
async fn a_dataplane_goes_with_its_proxy_unless_that_comes_back() {
    let server = ProxyServer::new(false, Duration::from_millis(100)).await;
    server.register().await.end();
    eventually("the Dataplane is gone", || server.ready().is_none()).await;

    let first = server.register().await;
    first.announce(Listening::default()).await;
    let second = server.register().await;
    let connected = server.context.push.connect(traits("default", "web"));
    first.end();
    let ended = || {
        let snapshot = server.world.store.snapshot().unwrap();
        let insight = snapshot.get(&Key::new(Kind::DataplaneInsight, "default", "web"))?;
        let insight = insight.spec.get::<DataplaneInsight>()?;
        insight.subscriptions.first()?.disconnect_time
    };
    eventually("the end of the first connection is on record", || ended().is_some()).await;
    let enough = Timestamp::now() + Duration::from_millis(300);
    eventually("the delay has passed", || Timestamp::now() > enough).await;
    assert_eq!(server.ready(), Some(true), "its proxy is connected");
    drop(connected);
    second.end();
    eventually("the Dataplane is gone", || server.ready().is_none()).await;
}

/// A store without transactions that goes away in the middle of the first write of several resources.
struct Halving {
    store: Arc<dyn Store>,
    failed: AtomicBool,
}

#[async_trait]
impl Store for Halving {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.store.snapshot()
    }

    async fn write(&self, mut batch: Vec<Write>) -> Result<Committed, Error> {
        if batch.len() > 1 && !self.failed.swap(true, Ordering::Relaxed) {
            self.store.write(vec![batch.remove(0)]).await?;
            return Err(Error::Unavailable("it went away".to_owned()));
        }
        self.store.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }
}

#[tokio::test]
async fn a_dataplane_goes_also_when_the_store_fails_half_way() {
    let halving = |store| Arc::new(Halving { store, failed: AtomicBool::new(false) }) as Arc<dyn Store>;
    let server = ProxyServer::on(false, Duration::ZERO, halving).await;
    server.register().await.end();
    eventually("the Dataplane is gone", || server.ready().is_none()).await;
    let snapshot = server.world.store.snapshot().unwrap();
    assert_eq!(snapshot.count(Kind::DataplaneInsight, None), 0, "nothing of it is left");
}

#[tokio::test]
async fn a_stored_dataplane_outlives_its_proxy() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    server.context.registrar.put(web()).await.unwrap();
    let proxy = IdentifiedProxy::identify("default.web", json!({})).unwrap();
    let registration =
        Registration::begin(server.context.clone(), proxy, server.authenticated().await).await.unwrap();
    assert!(registration.announce(Listening::default()).await);
    registration.end();
    let ended = || {
        let snapshot = server.world.store.snapshot().unwrap();
        let insight = snapshot.get(&Key::new(Kind::DataplaneInsight, "default", "web"))?;
        insight.spec.get::<DataplaneInsight>()?.subscriptions.last()?.disconnect_time
    };
    eventually("the end of the connection is on record", || ended().is_some()).await;
    tokio::task::yield_now().await;
    assert_eq!(server.ready(), Some(true));
}

#[tokio::test]
async fn a_proxy_that_drains_is_taken_out_of_service_if_its_token_is_good() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    server.context.registrar.put(web()).await.unwrap();
    let good = server.token("default").await;
    server.world.put([mesh("next-door", "")]).await;
    let foreign = server.token("next-door").await;
    let drain = |name: &str, token: &str| json!({ "mesh": "default", "name": name, "dataplaneToken": token });
    for (what, token) in [("none", ""), ("garbage", "a.b.c"), ("of another mesh", &foreign)] {
        let (status, _, text) = server.post("/drain", &[], drain("web", token)).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{what}: {text}");
        assert!(token.is_empty() || !text.contains(token), "{what}: {text}");
        assert_eq!(server.ready(), Some(true), "{what}");
    }
    let other = dataplane("default", "other", "127.0.2.2", "other", &[]);
    server.context.registrar.put(Draft::new(other.key, other.spec)).await.unwrap();
    let (status, ..) = server.post("/drain", &[], drain("other", &good)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "the token is for web");

    for _ in 0..2 {
        let (status, ..) = server.post("/drain", &[], drain("web", &good)).await;
        assert_eq!((status, server.ready()), (StatusCode::NO_CONTENT, Some(false)));
    }
}

#[tokio::test]
async fn a_proxy_is_who_its_token_says_for_as_long_as_that_holds() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    server.context.registrar.put(web()).await.unwrap();
    let good = server.token("default").await;
    let proxy = IdentifiedProxy::identify("default.web", json!({})).unwrap();
    let check = async |token: Option<&str>| {
        let snapshot = server.world.store.snapshot().unwrap();
        proxy.authenticate(&server.context, &snapshot, token).await.map(drop).map_err(|status| status.code())
    };
    assert_eq!(check(Some(&good)).await, Ok(()));
    assert_eq!(check(None).await, Err(tonic::Code::Unauthenticated));
    let mut changed = server.context.push.secrets_changed();
    changed.borrow_and_update();
    server.world.delete(Kind::Secret, "default", "dataplane-token-signing-key-default-1").await;
    assert_eq!(check(Some(&good)).await, Err(tonic::Code::Unauthenticated));
    assert!(changed.has_changed().unwrap(), "connected proxies look again");
    let before = changed.borrow_and_update().of("next-door");
    server.world.put([mesh("default", "STRICT")]).await;
    assert_eq!(changed.borrow_and_update().of("next-door"), before, "another mesh has nothing to look at");
}
