//! Health discovery: what a proxy is asked to check, and what its reports make of its Dataplane.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use envoy::health::{
    ClusterReport, EndpointHealthResponse, EndpointReport, HealthRequest, Introduction, LocalityReport,
    Specifier,
};
use http::StatusCode;
use http_body_util::BodyExt;
use identity::DataplaneToken;
use prost::Message;
use resources::{Draft, Key, Kind, format::universal};
use serde_json::{Value, json};
use serving::dp_server::{
    proxy::IdentifiedProxy,
    registration::{Listening, Registration},
};
use tokio::sync::mpsc;
use tower::ServiceExt;
use xds::message::Node;

use crate::{
    proxies::ProxyServer,
    streams::DeltaStream,
    world::{SOON, eventually, mesh, resource},
};

const SERVICE: &str = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck";
const ADMIN: &str = "kuma:envoy:admin";
const HEALTHY: i32 = 1;
const UNHEALTHY: i32 = 2;

/// Envoy's end of a stream.
struct Checker {
    requests: mpsc::Sender<Result<Bytes, Infallible>>,
    answers: Body,
    unread: BytesMut,
}

impl Checker {
    /// The checker of the proxy `web`, which has said who it is.
    async fn open(server: &ProxyServer, token: Option<&str>) -> Checker {
        let (requests, request) = DeltaStream::request(SERVICE, token);
        let answer = server.router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut checker = Checker { requests, answers: answer.into_body(), unread: BytesMut::new() };
        let metadata = json!({ "dataplane.admin.port": "9901", "dataplane.admin.address": "127.0.0.1" });
        let text = |value: &Value| prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue(value.as_str().unwrap().to_owned())),
        };
        let fields = metadata.as_object().unwrap().iter().map(|(key, value)| (key.clone(), text(value)));
        let metadata = prost_types::Struct { fields: fields.collect() };
        let node = Node { id: "default.web".to_owned(), metadata: Some(metadata), ..Node::default() };
        checker
            .send(HealthRequest { introduction: Some(Introduction { node: Some(node) }), report: None })
            .await;
        checker
    }

    async fn send(&mut self, request: HealthRequest) {
        let body = request.encode_to_vec();
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(u32::try_from(body.len()).unwrap());
        frame.put_slice(&body);
        self.requests.send(Ok(frame.freeze())).await.unwrap();
    }

    async fn report(&mut self, found: &[(&str, i32)]) {
        let cluster = |(name, status): &(&str, i32)| ClusterReport {
            name: (*name).to_owned(),
            localities: vec![LocalityReport { endpoints: vec![EndpointReport { status: *status }] }],
        };
        let report = EndpointHealthResponse { clusters: found.iter().map(cluster).collect() };
        self.send(HealthRequest { introduction: None, report: Some(report) }).await;
    }

    /// Checks that are to be made, or the code and message that end the stream.
    async fn next(&mut self) -> Result<Specifier, (String, String)> {
        loop {
            if self.unread.len() >= 5 {
                let length = u32::from_be_bytes(self.unread[1..5].try_into().unwrap()) as usize;
                if self.unread.len() >= 5 + length {
                    let message = self.unread.split_to(5 + length).freeze().slice(5..);
                    return Ok(Specifier::decode(message).unwrap());
                }
            }
            let frame = tokio::time::timeout(SOON, self.answers.frame()).await.expect("an answer in time");
            match frame.expect("a status").unwrap().into_data() {
                Ok(data) => self.unread.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap();
                    let text = |name: &str| trailers[name].to_str().unwrap().to_owned();
                    return Err((text("grpc-status"), text("grpc-message")));
                }
            }
        }
    }

    /// The clusters that are to be checked.
    async fn clusters(&mut self) -> Vec<String> {
        let specifier = self.next().await.unwrap();
        specifier.cluster_health_checks.into_iter().map(|check| check.cluster_name).collect()
    }

    /// Ends the stream, so that everything sent before is known to be handled.
    async fn finish(mut self) {
        self.report(&[("no-such-cluster", HEALTHY)]).await;
        let (code, message) = self.next().await.unwrap_err();
        assert_eq!(code, "3", "{message}");
    }
}

/// The proxy `web`, whose applications are probed.
fn web(ports: &[u16]) -> Draft {
    let inbound = |port: &u16| {
        json!({ "port": port, "servicePort": port + 8000, "serviceProbe": { "tcp": {} },
                "tags": { "kuma.io/service": "web" } })
    };
    let inbounds: Vec<Value> = ports.iter().map(inbound).collect();
    let networking = json!({ "address": "127.0.2.1", "inbound": inbounds });
    let key = Key::new(Kind::Dataplane, "default", "web");
    let web = resource(key, &[], json!({ "networking": networking }));
    Draft::new(web.key, web.spec)
}

async fn register(server: &ProxyServer) -> Registration {
    let metadata = json!({ "dataplane.resource": universal::render_draft(&web(&[80])).to_string() });
    let proxy = IdentifiedProxy::identify("default.web", metadata).unwrap();
    let registration =
        Registration::begin(server.context.clone(), proxy, server.authenticated().await).await.unwrap();
    assert!(registration.announce(Listening::default()).await);
    registration
}

#[tokio::test]
async fn an_inbound_with_a_probe_is_ready_while_its_application_answers() {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    let _registration = register(&server).await;
    assert_eq!(server.ready(), Some(false), "a proxy that listens says nothing about its application");
    let mut checker = Checker::open(&server, None).await;
    assert_eq!(checker.clusters().await, [ADMIN, "localhost:8080"]);

    checker.report(&[(ADMIN, HEALTHY), ("localhost:8080", UNHEALTHY)]).await;
    checker.report(&[(ADMIN, HEALTHY), ("localhost:8080", HEALTHY)]).await;
    eventually("the application answers", || server.ready() == Some(true)).await;
    let _again = register(&server).await;
    assert_eq!(server.ready(), Some(true), "one that comes back is as ready as it was");

    checker.report(&[(ADMIN, HEALTHY), ("localhost:8080", UNHEALTHY)]).await;
    eventually("the application is gone", || server.ready() == Some(false)).await;
    let _again = register(&server).await;
    assert_eq!(server.ready(), Some(false), "one that comes back is not ready either");

    checker.report(&[(ADMIN, HEALTHY), ("localhost:8080", HEALTHY)]).await;
    eventually("the application answers again", || server.ready() == Some(true)).await;
    checker.report(&[(ADMIN, UNHEALTHY), ("localhost:8080", HEALTHY)]).await;
    eventually("Envoy does not serve", || server.ready() == Some(false)).await;
}

#[tokio::test]
async fn what_to_check_is_sent_when_it_changes_and_only_then() {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    server.context.registrar.put(web(&[80])).await.unwrap();
    let mut checker = Checker::open(&server, None).await;
    let first = checker.next().await.unwrap();
    assert_eq!(first.interval.unwrap().seconds, 5);
    let check = &first.cluster_health_checks[1].health_checks[0];
    assert_eq!((check.timeout.unwrap().seconds, check.interval.unwrap().seconds), (2, 1));

    let mut labelled = web(&[80]);
    labelled.labels.insert("team".to_owned(), "a".to_owned());
    server.context.registrar.put(labelled).await.unwrap();
    server.context.registrar.put(web(&[80, 81])).await.unwrap();
    assert_eq!(checker.clusters().await, [ADMIN, "localhost:8080", "localhost:8081"]);
    checker.finish().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_token_does() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    server.context.registrar.put(web(&[80])).await.unwrap();
    let claims = DataplaneToken { mesh: "default".to_owned(), ..DataplaneToken::default() };
    let token = server.token_for("default", &claims, Duration::from_secs(5)).await;
    let mut checker = Checker::open(&server, Some(&token)).await;
    assert!(!checker.clusters().await.is_empty());
    let (code, message) = checker.next().await.unwrap_err();
    assert_eq!(code, (tonic::Code::Unauthenticated as i32).to_string(), "{message}");
    assert!(message.contains("expired"), "{message}");
}

#[tokio::test]
async fn a_stream_is_let_in_by_the_token_that_fits_the_stored_dataplane() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let token = server.token("default").await;
    // Its discovery stream may be slower: this one waits.
    let mut early = Checker::open(&server, Some(&token)).await;
    server.context.registrar.put(web(&[80])).await.unwrap();
    assert_eq!(early.clusters().await, [ADMIN, "localhost:8080"]);

    let mut stranger = Checker::open(&server, None).await;
    assert_eq!(stranger.next().await.unwrap_err().0, "16");
    server.world.put([mesh("other", "")]).await;
    let other = server.token("other").await;
    let mut stranger = Checker::open(&server, Some(&other)).await;
    assert_eq!(stranger.next().await.unwrap_err().0, "16");

    let (requests, request) = DeltaStream::request(SERVICE, Some(&token));
    let answer = server.router.clone().oneshot(request).await.unwrap();
    let mut nobody = Checker { requests, answers: answer.into_body(), unread: BytesMut::new() };
    nobody.send(HealthRequest::default()).await;
    assert_eq!(nobody.next().await.unwrap_err().0, "3");
}

#[tokio::test]
async fn a_proxy_that_drains_is_not_made_ready_by_its_checks() {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    let _registration = register(&server).await;
    let mut checker = Checker::open(&server, None).await;
    checker.clusters().await;
    checker.report(&[(ADMIN, HEALTHY), ("localhost:8080", HEALTHY)]).await;
    eventually("the application answers", || server.ready() == Some(true)).await;
    let (status, _, text) = server.post("/drain", &[], json!({ "mesh": "default", "name": "web" })).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{text}");
    checker.report(&[(ADMIN, HEALTHY), ("localhost:8080", HEALTHY)]).await;
    checker.finish().await;
    assert_eq!(server.ready(), Some(false));
}

#[tokio::test]
async fn health_discovery_that_is_switched_off_says_so() {
    let mut server = ProxyServer::new(false, Duration::ZERO).await;
    server.router = axum::Router::new();
    std::sync::Arc::get_mut(&mut server.context).expect("no request is served yet").hds = None;
    server.router = serving::dp_server::router(server.context.clone());
    let (_requests, request) = DeltaStream::request(SERVICE, None);
    let answer = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "12");
}
