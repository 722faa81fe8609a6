//! Discovery streams from the first request to the last: what is sent, and how they end.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use contract::sync::ProxySyncState;
use http::Request;
use http_body_util::BodyExt;
use identity::DataplaneToken;
use prost::Message;
use resources::{Draft, Key, Kind};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tower::ServiceExt;
use xds::{
    Type,
    message::{DeltaRequest, DeltaResponse, Node, RpcStatus},
};

use crate::{
    proxies::ProxyServer,
    world::{SOON, dataplane, eventually, mesh, resource, service},
};

pub const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

type Requests = mpsc::Sender<Result<Bytes, Infallible>>;

/// A proxy's end of a delta stream.
pub struct DeltaStream {
    requests: Requests,
    answers: Body,
    unread: BytesMut,
    /// Identity of the proxy, until it has said so.
    node: Option<Node>,
}

/// Next message or end of the stream.
#[derive(Debug)]
pub enum Next {
    Response(DeltaResponse),
    /// The code of gRPC and the message.
    End(String, String),
}

impl DeltaStream {
    /// The proxy `web`.
    pub async fn open(server: &ProxyServer, token: Option<&str>) -> DeltaStream {
        let web = Node { id: "default.web".to_owned(), ..Node::default() };
        DeltaStream::of(server, web, token).await
    }

    pub async fn of(server: &ProxyServer, node: Node, token: Option<&str>) -> DeltaStream {
        let (requests, request) = DeltaStream::request(DELTA, token);
        let answer = server.router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        DeltaStream::begun(requests, answer.into_body(), node)
    }

    /// The request that opens a stream, and where its messages go.
    pub fn request(uri: &str, token: Option<&str>) -> (Requests, Request<Body>) {
        let (requests, incoming) = mpsc::channel(16);
        let mut request =
            Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        (requests, request.body(Body::from_stream(ReceiverStream::new(incoming))).unwrap())
    }

    pub fn begun(requests: Requests, answers: Body, node: Node) -> DeltaStream {
        DeltaStream { requests, answers, unread: BytesMut::new(), node: Some(node) }
    }

    pub async fn ask(&mut self, kind: Type, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let node = self.node.take();
        let type_url = kind.url().to_owned();
        self.send(DeltaRequest {
            node,
            type_url,
            resource_names_subscribe: names,
            ..DeltaRequest::default()
        })
        .await;
    }

    /// Sends bytes as they are.
    pub async fn send_bytes(&mut self, bytes: impl Into<Bytes>) {
        self.requests.send(Ok(bytes.into())).await.unwrap();
    }

    pub async fn send(&mut self, request: DeltaRequest) {
        self.send_message(&request.encode_to_vec()).await;
    }

    pub async fn send_message(&mut self, body: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(u32::try_from(body.len()).unwrap());
        frame.put_slice(body);
        self.send_bytes(frame).await;
    }

    pub async fn next(&mut self) -> Next {
        loop {
            if self.unread.len() >= 5 {
                let length = u32::from_be_bytes(self.unread[1..5].try_into().unwrap()) as usize;
                if self.unread.len() >= 5 + length {
                    let message = self.unread.split_to(5 + length).freeze().slice(5..);
                    return Next::Response(DeltaResponse::decode(message).unwrap());
                }
            }
            let frame = tokio::time::timeout(SOON, self.answers.frame()).await.expect("an answer in time");
            let Some(frame) = frame else { return Next::End(String::new(), String::new()) };
            match frame.unwrap().into_data() {
                Ok(data) => self.unread.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap();
                    let status = tonic::Status::from_header_map(&trailers).unwrap();
                    return Next::End((status.code() as i32).to_string(), status.message().to_owned());
                }
            }
        }
    }

    pub async fn acknowledge(&mut self, response: &DeltaResponse) {
        let type_url = response.type_url.clone();
        let response_nonce = response.nonce.clone();
        self.send(DeltaRequest { type_url, response_nonce, ..DeltaRequest::default() }).await;
    }

    /// The next response, acknowledged: its type, and the names it holds.
    pub async fn response(&mut self) -> (Type, Vec<String>) {
        self.judged(|_| None).await
    }

    /// The next response, refused if there is something wrong with one of its resources.
    pub async fn judged(&mut self, wrong: impl Fn(&str) -> Option<String>) -> (Type, Vec<String>) {
        let next = self.next().await;
        let Next::Response(response) = next else { panic!("{next:?}") };
        let kind = Type::by_url(&response.type_url).unwrap();
        let names: Vec<String> =
            response.decoded().unwrap().into_iter().map(|resource| resource.name).collect();
        let complaint = names.iter().find_map(|name| wrong(name));
        let error_detail = complaint.map(|message| RpcStatus { code: 13, message });
        let answer = DeltaRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            error_detail,
            ..DeltaRequest::default()
        };
        self.send(answer).await;
        (kind, names)
    }
}

/// A server with `web`, which calls `backend`, and a stream that has everything.
pub async fn connected(server: &ProxyServer, token: &str) -> DeltaStream {
    let web = dataplane("default", "web", "127.0.2.1", "web", &["backend"]);
    let web = Draft::new(web.key, web.spec);
    server.context.registrar.put(web).await.unwrap();
    server.world.put([service("default", "backend", &[])]).await;
    server.world.put([dataplane("default", "backend-1", "127.0.1.1", "backend", &[])]).await;
    let mut stream = DeltaStream::open(server, Some(token)).await;
    stream.ask(Type::Cluster, &[]).await;
    let (kind, clusters) = stream.response().await;
    assert_eq!(kind, Type::Cluster);
    let backend = clusters.iter().find(|name| name.contains("backend")).unwrap();
    stream.ask(Type::Endpoint, &[backend]).await;
    assert_eq!(stream.response().await, (Type::Endpoint, vec![backend.clone()]));
    stream.ask(Type::Listener, &[]).await;
    assert_eq!(stream.response().await.0, Type::Listener);
    stream
}

#[tokio::test]
async fn a_proxy_is_sent_what_changed_for_it_and_nothing_else() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let token = server.token("default").await;
    let mut stream = connected(&server, &token).await;
    server.world.put([mesh("next-door", "STRICT")]).await;
    let secret = |mesh: &str| resource(Key::new(Kind::Secret, mesh, "s"), &[], json!({ "data": "c2VjcmV0" }));
    server.world.put([secret("next-door"), secret("default"), service("default", "unloved", &[])]).await;
    server.world.put([dataplane("default", "unloved-1", "127.0.1.5", "unloved", &[])]).await;
    // Had anything been sent for those, it would come before this.
    server.world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    let (kind, names) = stream.response().await;
    assert_eq!((kind, names.len()), (Type::Endpoint, 1));
}

#[tokio::test]
async fn a_revoked_token_ends_the_stream_it_opened() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let token = server.token("default").await;
    let mut stream = connected(&server, &token).await;
    server.world.delete(Kind::Secret, "default", "dataplane-token-signing-key-default-1").await;
    let Next::End(code, text) = stream.next().await else { panic!() };
    assert_eq!(code, (tonic::Code::Unauthenticated as i32).to_string(), "{text}");
    assert!(!text.contains(&token), "{text}");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_does() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let claims = DataplaneToken { mesh: "default".to_owned(), ..DataplaneToken::default() };
    server.world.put([dataplane("default", "web", "127.0.2.1", "web", &[])]).await;
    let token = server.token_for("default", &claims, Duration::from_secs(5)).await;
    let mut stream = DeltaStream::open(&server, Some(&token)).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    let Next::End(code, text) = stream.next().await else { panic!() };
    assert_eq!(code, (tonic::Code::Unauthenticated as i32).to_string(), "{text}");
    assert!(text.contains("expired"), "{text}");
}

#[tokio::test]
async fn whoever_cannot_be_let_in_is_told_why() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let token = server.token("default").await;
    let codes = BTreeMap::from([
        ("no token", (None, tonic::Code::Unauthenticated)),
        ("no such Dataplane", (Some(token.as_str()), tonic::Code::NotFound)),
    ]);
    for (what, (token, code)) in codes {
        let mut stream = DeltaStream::open(&server, token).await;
        stream.ask(Type::Cluster, &[]).await;
        let Next::End(found, text) = stream.next().await else { panic!("{what}") };
        assert_eq!(found, (code as i32).to_string(), "{what}: {text}");
    }
    let mut nobody = DeltaStream::open(&server, Some(&token)).await;
    nobody.send(DeltaRequest { type_url: Type::Cluster.url().to_owned(), ..DeltaRequest::default() }).await;
    let Next::End(code, text) = nobody.next().await else { panic!() };
    assert_eq!(code, (tonic::Code::InvalidArgument as i32).to_string(), "{text}");
    // Encoded for the wire once, as gRPC says, so that it can be read after one decoding.
    assert_eq!(text, r#"node id "" is not of the form <mesh>.<name>"#);
}

#[tokio::test]
async fn the_end_of_the_control_plane_waits_for_no_proxy() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let token = server.token("default").await;
    let _silent = DeltaStream::open(&server, Some(&token)).await;
    let _idle = connected(&server, &token).await;
    assert!(server.world.shutdown.finish(SOON).await, "every stream has ended by itself");
}

#[tokio::test]
async fn certificates_are_made_once_whatever_changes_elsewhere() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    server.world.put([mesh("default", "STRICT"), mesh("next-door", "STRICT")]).await;
    let token = server.token("default").await;
    let mut stream = connected(&server, &token).await;
    stream.ask(Type::Secret, &["identity_cert:secret:default", "mesh_ca:secret:default"]).await;
    let (kind, secrets) = stream.response().await;
    assert_eq!((kind, secrets.len()), (Type::Secret, 2), "{secrets:?}");
    let encoded = server.world.encoded();
    let secret = |mesh: &str| resource(Key::new(Kind::Secret, mesh, "s"), &[], json!({ "data": "c2VjcmV0" }));
    server.world.put([secret("next-door")]).await;
    server.world.put([secret("default")]).await;
    server.world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    assert_eq!(stream.response().await.0, Type::Endpoint);
    assert_eq!(server.world.encoded_since(&encoded), [(Type::Endpoint, 1)]);
}

#[tokio::test]
async fn whoever_sends_nonsense_is_told_so_and_bothers_nobody_else() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let token = server.token("default").await;
    let mut bystander = connected(&server, &token).await;

    let mut changing = connected(&server, &token).await;
    let node = Node { id: "default.other".to_owned(), ..Node::default() };
    let type_url = Type::Cluster.url().to_owned();
    changing.send(DeltaRequest { node: Some(node), type_url, ..DeltaRequest::default() }).await;
    let Next::End(code, text) = changing.next().await else { panic!() };
    assert_eq!(code, (tonic::Code::InvalidArgument as i32).to_string(), "{text}");
    assert!(text.contains("default.other"), "{text}");

    let huge = [&[0][..], &u32::MAX.to_be_bytes()[..]].concat();
    for (what, bytes) in [("garbage", vec![0, 0, 0, 0, 3, 255, 255, 255]), ("too much", huge)] {
        let mut stream = DeltaStream::open(&server, Some(&token)).await;
        stream.send_bytes(bytes).await;
        let Next::End(code, text) = stream.next().await else { panic!("{what}") };
        assert!(code != "0" && !text.is_empty(), "{what}: {code} {text}");
    }

    server.world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    assert_eq!(bystander.response().await.0, Type::Endpoint);
}

#[tokio::test]
async fn what_a_proxy_refuses_is_sent_again_until_it_takes_it() {
    let server = ProxyServer::impatient().await;
    server.world.put([dataplane("default", "web", "127.0.2.1", "web", &[])]).await;
    let mut stream = DeltaStream::open(&server, None).await;
    stream.ask(Type::Cluster, &[]).await;
    let inbound = "localhost:80".to_owned();
    let in_use = |name: &str| (name == inbound).then(|| format!("cluster(s) {inbound}: address in use"));
    for _ in 0..3 {
        assert_eq!(stream.judged(in_use).await, (Type::Cluster, vec![inbound.clone()]));
    }
    assert_eq!(stream.response().await, (Type::Cluster, vec![inbound]));
}

/// `envoy.config.core.v3.Node` and its extensions, as far as a proxy lists them.
#[derive(Clone, PartialEq, prost::Message)]
struct Listing {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<prost_types::Struct>,
    #[prost(message, repeated, tag = "9")]
    extensions: Vec<Extension>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Extension {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    category: String,
}

/// A `DeltaDiscoveryRequest` of such a node.
#[derive(Clone, PartialEq, prost::Message)]
struct Introduction {
    #[prost(message, optional, tag = "1")]
    node: Option<Listing>,
    #[prost(string, tag = "2")]
    type_url: String,
}

/// The listeners of a Kafka broker's proxy, which lists these extensions and says `told` in its metadata.
async fn broker_listeners(extensions: &[&str], told: &str) -> Vec<u8> {
    let server = ProxyServer::new(false, Duration::from_secs(60)).await;
    let tags = json!({ "kuma.io/service": "web", "kuma.io/protocol": "kafka" });
    let networking = json!({ "address": "127.0.2.1", "inbound": [{ "port": 9092, "tags": tags }] });
    let key = Key::new(Kind::Dataplane, "default", "web");
    server.world.put([resource(key, &[], json!({ "networking": networking }))]).await;
    let extension =
        |name: &&str| Extension { name: (*name).to_owned(), category: "envoy.filters.network".to_owned() };
    let told = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(told.to_owned())) };
    let introduction = Introduction {
        node: Some(Listing {
            id: "default.web".to_owned(),
            metadata: Some(prost_types::Struct { fields: BTreeMap::from([("told".to_owned(), told)]) }),
            extensions: extensions.iter().map(extension).collect(),
        }),
        type_url: Type::Listener.url().to_owned(),
    };
    let mut stream = DeltaStream::open(&server, None).await;
    stream.send_message(&introduction.encode_to_vec()).await;
    match stream.next().await {
        Next::Response(response) => response.encode_to_vec(),
        end => panic!("{end:?}"),
    }
}

#[tokio::test]
async fn a_proxy_that_lists_the_kafka_filter_gets_it() {
    let tcp = "envoy.filters.network.tcp_proxy";
    let kafka = "envoy.filters.network.kafka_broker";
    let has =
        |listeners: &[u8], name: &str| listeners.windows(name.len()).any(|part| part == name.as_bytes());
    for (extensions, told, expected) in
        [(&[tcp, kafka][..], "", true), (&[tcp], "", false), (&[], "", false), (&[tcp], kafka, false)]
    {
        let listeners = broker_listeners(extensions, told).await;
        assert!(has(&listeners, tcp));
        assert_eq!(has(&listeners, kafka), expected, "{extensions:?} {told:?}");
    }
}

#[tokio::test]
async fn a_proxy_is_synced_once_it_acknowledged_every_change_affecting_it() {
    let server = ProxyServer::new(true, Duration::from_secs(60)).await;
    let token = server.token("default").await;
    let mut stream = connected(&server, &token).await;
    let push = server.context.push.clone();
    let state = || push.sync_state(&Key::new(Kind::Dataplane, "default", "web"));
    let synced = async || eventually("it is synced", || state() == Some(ProxySyncState::Synced)).await;
    synced().await;

    server.world.put([dataplane("default", "backend-2", "127.0.1.2", "backend", &[])]).await;
    assert_eq!(state(), Some(ProxySyncState::Behind), "the change was made and not acknowledged");
    let next = stream.next().await;
    let Next::Response(response) = next else { panic!("{next:?}") };
    assert_eq!(state(), Some(ProxySyncState::Behind), "it was sent and not acknowledged");
    stream.acknowledge(&response).await;
    synced().await;

    // What does not affect it leaves it as it is, and secrets make it look again.
    server.world.put([mesh("next-door", "STRICT")]).await;
    assert_eq!(state(), Some(ProxySyncState::Synced));
    let secret = resource(Key::new(Kind::Secret, "default", "s"), &[], json!({ "data": "c2VjcmV0" }));
    server.world.put([secret]).await;
    synced().await;
    assert_eq!(push.sync_state(&Key::new(Kind::Dataplane, "default", "backend-1")), None);
}
