//! Limits of the server of proxies: on their number, and on those that waste its time.

use std::{fs, sync::Arc, time::Duration};

use axum::body::Body;
use control_plane::{
    boot::Running,
    config::{Config, setting::StoreType},
};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use identity::DataplaneToken;
use runtime::metrics::Metrics;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::json;
use serving::config::DpAuthnType;
use serving::dp_server::{
    introduction::{MAX_DATAPLANE, MAX_INBOUNDS, MAX_METADATA, MAX_TAGS},
    stream_gates::Limits,
};
use tempfile::{TempDir, tempdir};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;
use xds::{
    Type,
    message::{DeltaRequest, Node},
};

use crate::{
    client::{agent, config, get_with, start},
    proxies::{GENEROUS, ProxyServer},
    streams::{DELTA, DeltaStream, Next, connected},
    world::SOON,
};

const SHORT: Duration = Duration::from_millis(20);

/// Expects the end of a stream: its code, and a part of its message.
async fn ends(stream: &mut DeltaStream, code: Code, part: &str) -> String {
    let next = stream.next().await;
    let Next::End(found, text) = next else { panic!("{next:?}") };
    let text = text.replace("%20", " ");
    assert_eq!(found, (code as i32).to_string(), "{text}");
    assert!(text.contains(part), "{part}: {text}");
    text
}

/// Tries until it works.
async fn soon(mut works: impl AsyncFnMut() -> bool) {
    let works = async { while !works().await {} };
    tokio::time::timeout(SOON, works).await.expect("it works in time");
}

fn count(metrics: &Metrics, reason: &str) -> u32 {
    let line = format!("dp_server_rejected_total{{reason=\"{reason}\"}} ");
    let text = metrics.encode();
    text.lines().find_map(|it| it.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_message_over_its_bound_is_refused_by_its_length_alone() {
    let metrics = Metrics::default();
    let server =
        ProxyServer::limited(Limits { first_message: 1000, message: 2000, ..GENEROUS }, &metrics).await;
    let token = server.token("default").await;
    let mut stranger = DeltaStream::open(&server, Some(&token)).await;
    // In pieces, as the network may cut it, and without a single byte of the message.
    stranger.send_bytes(&[0, 0][..]).await;
    stranger.send_bytes(&[0, 3, 233][..]).await;
    let refused =
        ends(&mut stranger, Code::ResourceExhausted, "first discovery request has 1001 bytes").await;
    assert!(!refused.contains("try again"), "the next one would be as long: {refused}");
    assert_eq!(count(&metrics, "first_message_size"), 1);

    let mut proxy = connected(&server, &token).await;
    // More than a first one may have; its nonce is unknown, so there is no answer.
    let type_url = Type::Cluster.url().to_owned();
    let response_nonce = "x".repeat(1500);
    proxy.send(DeltaRequest { type_url, response_nonce, ..DeltaRequest::default() }).await;
    proxy.send_bytes(&[0, 0, 0, 7, 209][..]).await;
    ends(&mut proxy, Code::ResourceExhausted, "discovery request has 2001 bytes, and the limit is 2000")
        .await;
    assert_eq!(count(&metrics, "message_size"), 1);
}

#[tokio::test]
async fn nothing_of_a_stream_is_read_before_its_token_is_verified() {
    let server =
        ProxyServer::limited(Limits { first_message: 1 << 20, ..GENEROUS }, &Metrics::default()).await;
    let good = server.token("default").await;
    let (head, _) = good.rsplit_once('.').unwrap();
    let forged = format!("{head}.AAAA");
    for (token, part) in [(None, "no dataplane token"), (Some(&forged), "the dataplane token is refused")] {
        // It has not sent a byte.
        let mut stranger = DeltaStream::open(&server, token.map(String::as_str)).await;
        ends(&mut stranger, Code::Unauthenticated, part).await;
    }
    // A token that names no mesh is verified when the mesh is known: after a message that is not long.
    let anywhere = DataplaneToken { name: "web".to_owned(), ..DataplaneToken::default() };
    let anywhere = server.token_for("default", &anywhere, Duration::from_secs(60)).await;
    let mut unverified = DeltaStream::open(&server, Some(&anywhere)).await;
    let prefix = |length: u32| [&[0][..], &length.to_be_bytes()[..]].concat();
    unverified.send_bytes(prefix((256 << 10) + 1)).await;
    ends(&mut unverified, Code::ResourceExhausted, "262145 bytes, and the limit is 262144").await;
    let mut verified = DeltaStream::open(&server, Some(&good)).await;
    verified.send_bytes(prefix((1 << 20) + 1)).await;
    ends(&mut verified, Code::ResourceExhausted, "1048577 bytes, and the limit is 1048576").await;
}

#[tokio::test]
async fn a_token_is_taken_with_and_without_its_scheme() {
    let server = ProxyServer::limited(GENEROUS, &Metrics::default()).await;
    let token = server.token("default").await;
    for scheme in ["", "Bearer ", "bearer "] {
        connected(&server, &format!("{scheme}{token}")).await;
    }
}

/// The proxy `web` with this much in its metadata.
fn telling(key: &str, bytes: usize) -> Node {
    let text = prost_types::value::Kind::StringValue("x".repeat(bytes));
    let fields = [(key.to_owned(), prost_types::Value { kind: Some(text) })].into();
    let metadata = Some(prost_types::Struct { fields });
    Node { id: "default.web".to_owned(), metadata, ..Node::default() }
}

#[tokio::test]
async fn a_proxy_with_too_much_metadata_is_refused_and_nothing_is_kept() {
    let metrics = Metrics::default();
    let server = ProxyServer::limited(Limits { first_message: 4 << 20, ..GENEROUS }, &metrics).await;
    let token = server.token("default").await;
    drop(connected(&server, &token).await);
    let kept = || {
        let snapshot = server.world.store.snapshot().unwrap();
        let bytes = |resource: &Arc<resources::Resource>| format!("{:?}", resource.spec).len();
        snapshot.iter().map(bytes).sum::<usize>()
    };
    let before = kept();
    for (key, bytes, part) in [
        ("dataplane.resource", MAX_DATAPLANE + 1, "has 262145 bytes, and the limit is 262144"),
        ("dynamicMetadata", MAX_METADATA + 1, "and the limit is 65536"),
        ("dynamicMetadata", 3 << 20, "and the limit is 327680"),
    ] {
        for _ in 0..20 {
            let mut stream = DeltaStream::of(&server, telling(key, bytes), Some(&token)).await;
            stream.ask(Type::Cluster, &[]).await;
            let refused = ends(&mut stream, Code::InvalidArgument, part).await;
            assert!(!refused.contains("try again"), "{refused}");
        }
    }
    assert!(kept() < before + 10_000, "{} bytes are {} now", before, kept());
    // Of as much as is allowed, the record keeps a bounded part.
    let mut stream =
        DeltaStream::of(&server, telling("dynamicMetadata", MAX_METADATA - 100), Some(&token)).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    assert!(kept() < before + MAX_METADATA / 2, "{before} bytes are {} now", kept());
}

/// The proxy `web` with so many inbounds, each with so many tags.
fn serving(inbounds: usize, tags: usize) -> Node {
    let inbound = |at: usize| {
        let mut all: serde_json::Map<_, _> = (1..tags).map(|tag| (format!("t{tag}"), json!("x"))).collect();
        all.insert("kuma.io/service".to_owned(), json!("web"));
        json!({ "port": 1 + at, "tags": all })
    };
    let inbounds: Vec<_> = (0..inbounds).map(inbound).collect();
    let dataplane = json!({ "type": "Dataplane", "mesh": "default", "name": "web",
        "networking": { "address": "127.0.0.1", "inbound": inbounds } });
    let text = prost_types::value::Kind::StringValue(dataplane.to_string());
    let fields = [("dataplane.resource".to_owned(), prost_types::Value { kind: Some(text) })].into();
    let metadata = Some(prost_types::Struct { fields });
    Node { id: "default.web".to_owned(), metadata, ..Node::default() }
}

#[tokio::test]
async fn a_dataplane_of_too_many_inbounds_or_tags_is_refused_with_the_limit() {
    let server = ProxyServer::limited(GENEROUS, &Metrics::default()).await;
    let token = server.token("default").await;
    for (inbounds, tags, part) in [
        (MAX_INBOUNDS + 1, 1, "the Dataplane has 129 inbounds, and the limit is 128"),
        (1, MAX_TAGS + 1, "the inbound at port 1 has 65 tags, and the limit is 64"),
    ] {
        let mut stream = DeltaStream::of(&server, serving(inbounds, tags), Some(&token)).await;
        stream.ask(Type::Cluster, &[]).await;
        ends(&mut stream, Code::InvalidArgument, part).await;
    }
    let mut stream = DeltaStream::of(&server, serving(MAX_INBOUNDS, MAX_TAGS), Some(&token)).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
}

#[tokio::test]
async fn a_stream_that_stays_silent_ends_with_a_status_and_is_counted() {
    let metrics = Metrics::default();
    let server = ProxyServer::limited(Limits { introduction: SHORT, ..GENEROUS }, &metrics).await;
    let token = server.token("default").await;
    let mut silent = DeltaStream::open(&server, Some(&token)).await;
    ends(&mut silent, Code::DeadlineExceeded, "no discovery request came within 20ms").await;
    assert_eq!(count(&metrics, "introduction"), 1);
}

#[tokio::test]
async fn strangers_wait_in_line_and_come_back_later_when_it_takes_too_long() {
    let metrics = Metrics::default();
    let limits = Limits { unauthenticated: 1, wait: SHORT, ..GENEROUS };
    let server = ProxyServer::limited(limits, &metrics).await;
    let token = server.token("default").await;
    // One that has been let in is no stranger and takes no place.
    let _inside = connected(&server, &token).await;
    let silent = DeltaStream::open(&server, Some(&token)).await;
    let exhausted = (Code::ResourceExhausted as i32).to_string();
    soon(async || {
        let mut next = DeltaStream::open(&server, Some(&token)).await;
        next.ask(Type::Cluster, &[]).await;
        matches!(next.next().await, Next::End(code, _) if code == exhausted)
    })
    .await;
    assert!(count(&metrics, "unauthenticated_streams") >= 1);
    drop(silent);
    soon(async || {
        let mut next = DeltaStream::open(&server, Some(&token)).await;
        next.ask(Type::Cluster, &[]).await;
        matches!(next.next().await, Next::Response(_))
    })
    .await;
}

#[tokio::test]
async fn a_name_has_limited_streams_and_a_new_one_once_another_ended() {
    let metrics = Metrics::default();
    let server = ProxyServer::limited(Limits { streams_per_proxy: 1, ..GENEROUS }, &metrics).await;
    let token = server.token("default").await;
    let first = connected(&server, &token).await;
    let mut second = DeltaStream::open(&server, Some(&token)).await;
    second.ask(Type::Cluster, &[]).await;
    ends(&mut second, Code::ResourceExhausted, "has 1 streams open already; try again in 5 s").await;
    assert_eq!(count(&metrics, "streams_per_proxy"), 1);
    drop(first);
    soon(async || {
        let mut next = DeltaStream::open(&server, Some(&token)).await;
        next.ask(Type::Cluster, &[]).await;
        matches!(next.next().await, Next::Response(_))
    })
    .await;
    let mut stranger = DeltaStream::open(&server, None).await;
    stranger.ask(Type::Cluster, &[]).await;
    ends(&mut stranger, Code::Unauthenticated, "no dataplane token").await;
    assert_eq!(count(&metrics, "unauthenticated"), 1);
}

/// A control plane with TLS on real ports.
async fn control_plane(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let directory = tempdir().unwrap();
    let mut config = config(directory.path(), StoreType::Memory);
    change(&mut config);
    (start(config).await, directory)
}

/// A connection as Envoy makes it.
async fn connect(running: &Running, directory: &TempDir) -> SendRequest<Body> {
    let pem = fs::read_to_string(directory.path().join("kuma-cp.crt")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(runtime::tls::certificates(&pem).unwrap().remove(0)).unwrap();
    let mut tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let addr = ("127.0.0.1", running.dp_server.unwrap().port());
    let stream = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Opens a stream on a connection: the code of gRPC in the head of the answer, if it ends there, and the stream.
async fn open(connection: &mut SendRequest<Body>) -> (Option<String>, DeltaStream) {
    let (requests, request) = DeltaStream::request(&format!("https://localhost{DELTA}"), None);
    let sent = tokio::time::timeout(SOON, connection.send_request(request)).await;
    let answer = sent.expect("an answer in time").unwrap();
    let code = answer.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
    (code, DeltaStream::begun(requests, Body::new(answer.into_body()), Node::default()))
}

async fn told(running: &Running, line: &str) {
    let url = format!("http://{}/metrics", running.diagnostics.unwrap());
    soon(async || {
        let (_, text) = get_with(agent(None, None), url.clone()).await;
        text.lines().any(|it| it == line)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_streams_and_connections_over_the_limit_get_a_reason() {
    let (running, directory) = control_plane(|config| {
        config.serving.dp_server.authn.dp_proxy.kind = DpAuthnType::None;
        config.serving.dp_server.limits.max_streams_per_connection = 1;
        config.serving.dp_server.limits.max_connections = 1;
    })
    .await;
    let exhausted = Some((Code::ResourceExhausted as i32).to_string());
    let mut first = connect(&running, &directory).await;
    let (code, stream) = open(&mut first).await;
    assert_eq!(code, None);
    assert_eq!(open(&mut first).await.0, exhausted);
    told(&running, r#"dp_server_rejected_total{reason="streams_per_connection"} 1"#).await;
    told(&running, "dp_server_connections 1").await;

    let mut second = connect(&running, &directory).await;
    assert_eq!(open(&mut second).await.0, exhausted);
    told(&running, r#"dp_server_rejected_total{reason="connection_limit"} 1"#).await;
    drop((first, stream));
    told(&running, "dp_server_connections 0").await;
    assert_eq!(open(&mut connect(&running, &directory).await).await.0, None);
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_message_many_times_longer_than_http2_windows_gets_through() {
    let (running, directory) =
        control_plane(|config| config.serving.dp_server.authn.dp_proxy.kind = DpAuthnType::None).await;
    let mut connection = connect(&running, &directory).await;
    let (code, mut stream) = open(&mut connection).await;
    assert_eq!(code, None);
    let node = Node { id: "default.web".to_owned(), ..Node::default() };
    let names = (0..10_000).map(|number| format!("a-cluster-with-a-long-name-{number}")).collect();
    let request = DeltaRequest {
        node: Some(node),
        type_url: Type::Cluster.url().to_owned(),
        resource_names_subscribe: names,
        ..DeltaRequest::default()
    };
    stream.send(request).await;
    ends(&mut stream, Code::NotFound, "store it first, or start the proxy with its definition").await;
    told(&running, r#"dp_server_rejected_total{reason="unknown_proxy"} 1"#).await;
    running.finish().await;
}
