//! Messages on discovery streams: who the proxy is, what it asks for, and what it acknowledges.

use anyhow::{Context, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message;
use prost_types::{
    Struct,
    value::Kind::{BoolValue, ListValue, NullValue, NumberValue, StringValue, StructValue},
};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use xds::{
    Type,
    message::{DeltaRequest, Node, Request as WorldRequest, RpcStatus},
};

use crate::{bootstrap, mutate, server::Server};

const SERVICE: &str = "https://localhost/envoy.service.discovery.v3.AggregatedDiscoveryService";

/// Opens one stream, sends a few messages, and waits for the control plane to end it or to answer.
pub async fn input(server: &Server, random: &mut StdRng) -> anyhow::Result<()> {
    let delta = random.random_bool(0.5);
    let method = if delta { "DeltaAggregatedResources" } else { "StreamAggregatedResources" };
    let (sender, messages) = mpsc::unbounded_channel::<Result<Frame<Bytes>, std::convert::Infallible>>();
    let request = Request::post(format!("{SERVICE}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", &server.token)
        .body(BodyExt::boxed(StreamBody::new(UnboundedReceiverStream::new(messages))))?;
    let node = node(random);
    for number in 0..random.random_range(1..6) {
        let who = (number == 0 || random.random_ratio(1, 10)).then(|| node.clone());
        let message = if delta { delta_request(who, random) } else { world_request(who, random) };
        // Fails once the control plane has ended the stream, which is what it may do.
        let _ = sender.send(Ok(Frame::data(framed(message, random))));
    }
    // The proxy has said all it has to say, so that the control plane ends the stream at the latest now.
    drop(sender);
    let answer = server.connect().await?.send_request(request).await?;
    let head = answer.headers().clone();
    let body = answer.into_body().collect().await.context("a stream that breaks off instead of ending")?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let text = |name| head.get(name).or_else(|| trailers.get(name)).cloned();
    let status = text("grpc-status").context("a stream that ends without a status")?;
    // 2 and 13 are "unknown" and "internal": errors of the control plane.
    ensure!(status != "2" && status != "13", "the stream ends with {status:?}: {:?}", text("grpc-message"));
    Ok(())
}

/// A message as gRPC sends it; the length is sometimes a lie.
fn framed(mut message: Vec<u8>, random: &mut StdRng) -> Bytes {
    if random.random_ratio(1, 10) {
        mutate::damage(&mut message, random);
    }
    let length = match random.random_range(0..50) {
        0 => u32::MAX,
        1 => 0,
        _ => u32::try_from(message.len()).unwrap_or(u32::MAX),
    };
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(if random.random_ratio(1, 50) { 1 } else { 0 });
    frame.put_u32(length);
    frame.put_slice(&message);
    frame.freeze()
}

fn node(random: &mut StdRng) -> Node {
    let mut dataplane = bootstrap::dataplane();
    if random.random_bool(0.5) {
        dataplane = mutate::json(dataplane, random);
    }
    let mut metadata = json!({
        "dataplane.resource": dataplane.to_string(), "dataplane.proxyType": "dataplane",
        "dataplane.admin.port": "9901", "features": ["feature-unified-resource-naming"],
        "version": {"kumaDp": {"version": "2.14.3"}}, "dynamicMetadata": {"a": "b"}, "ipv6Enabled": true,
    });
    if random.random_bool(0.5) {
        metadata = mutate::json(metadata, random);
    }
    let ids = [
        "default.fuzzed",
        "default.fuzzed",
        "default.fuzzed",
        "",
        ".",
        "default.",
        "nowhere.fuzzed",
        "a.b.c",
    ];
    let id = ids.choose(random).map_or_else(String::new, |id| (*id).to_owned());
    let StructValue(metadata) = protobuf(metadata) else { return Node { id, ..Node::default() } };
    Node { id, cluster: "fuzzed".to_owned(), metadata: Some(metadata) }
}

fn protobuf(value: Value) -> prost_types::value::Kind {
    let wrapped = |value| prost_types::Value { kind: Some(protobuf(value)) };
    match value {
        Value::Null => NullValue(0),
        Value::Bool(value) => BoolValue(value),
        Value::Number(number) => NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => StringValue(text),
        Value::Array(items) => {
            ListValue(prost_types::ListValue { values: items.into_iter().map(wrapped).collect() })
        }
        Value::Object(fields) => StructValue(Struct {
            fields: fields.into_iter().map(|(name, value)| (name, wrapped(value))).collect(),
        }),
    }
}

fn type_url(random: &mut StdRng) -> String {
    let known = [Type::Cluster, Type::Listener, Type::Secret, Type::Endpoint, Type::Route];
    match random.random_range(0..12) {
        0 => String::new(),
        1 => "type.googleapis.com/nonsense".to_owned(),
        _ => known.choose(random).map_or_else(String::new, |kind| kind.url().to_owned()),
    }
}

fn names(random: &mut StdRng) -> Vec<String> {
    let count = if random.random_ratio(1, 50) { 5_000 } else { random.random_range(0..4) };
    (0..count)
        .map(|number| if random.random_bool(0.5) { "*".to_owned() } else { format!("name-{number}") })
        .collect()
}

fn rejection(random: &mut StdRng) -> Option<RpcStatus> {
    let message = "x\u{1b}[0m".repeat(random.random_range(0..1_000));
    random.random_ratio(1, 4).then_some(RpcStatus { code: random.random(), message })
}

fn delta_request(node: Option<Node>, random: &mut StdRng) -> Vec<u8> {
    DeltaRequest {
        node,
        type_url: type_url(random),
        resource_names_subscribe: names(random),
        resource_names_unsubscribe: names(random),
        initial_resource_versions: names(random).into_iter().map(|name| (name, "1".to_owned())).collect(),
        response_nonce: random.random_range(0..4).to_string(),
        error_detail: rejection(random),
    }
    .encode_to_vec()
}

fn world_request(node: Option<Node>, random: &mut StdRng) -> Vec<u8> {
    WorldRequest {
        version_info: random.random_range(0..4).to_string(),
        node,
        resource_names: names(random),
        type_url: type_url(random),
        response_nonce: random.random_range(0..4).to_string(),
        error_detail: rejection(random),
    }
    .encode_to_vec()
}
