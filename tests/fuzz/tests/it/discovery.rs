//! Messages of discovery and health discovery.

use axum::body::Body;
use bytes::{BufMut, BytesMut};
use envoy::health;
use fuzz::Mutator;
use http::Request;
use prost::Message;
use prost_types::{ListValue, Struct, value::Kind};
use serde_json::{Value, json};
use xds::{
    Type,
    message::{DeltaRequest, Node, Request as WorldRequest, RpcStatus},
};

use crate::target::{Target, feed, send, web};

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const WORLD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const HEALTH: &str = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck";

fn protobuf(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(protobuf).collect() }),
        Value::Object(_) => Kind::StructValue(structure(value)),
    };
    prost_types::Value { kind: Some(kind) }
}

fn structure(value: &Value) -> Struct {
    let fields = value.as_object().into_iter().flatten();
    Struct { fields: fields.map(|(key, value)| (key.clone(), protobuf(value))).collect() }
}

/// A proxy as it introduces itself, with changes.
fn node(mutator: &mut Mutator) -> Node {
    let dataplane = if mutator.once_in(2) { mutator.json(&web()) } else { web() };
    let metadata = json!({
        "dataplane.resource": dataplane.to_string(), "dataplane.proxyType": "dataplane",
        "dataplane.admin.port": "9901", "dataplane.readinessReporter.port": "9902",
        "features": ["feature-unified-resource-naming"], "dynamicMetadata": {}, "workdir": "/tmp/web",
        "version": { "kumaDp": { "version": "2.14.3" }, "envoy": { "version": "1.36.0" } }
    });
    let metadata = if mutator.once_in(2) { mutator.json(&metadata) } else { metadata };
    let ids =
        ["default.web", "default.web", "default.web", "default.", ".web", "", "none.web", "default.a.b"];
    let id = (*mutator.one_of(&ids)).to_owned();
    Node { id, cluster: "web".to_owned(), metadata: Some(structure(&metadata)) }
}

/// A few messages of one stream. The first says who asks, as a rule.
fn messages(mutator: &mut Mutator) -> (&'static str, Vec<Vec<u8>>) {
    let service = *mutator.one_of(&[DELTA, WORLD, HEALTH]);
    let mut introduction = Some(node(mutator)).filter(|_| !mutator.once_in(10));
    let count = *mutator.one_of(&[1_usize, 2, 5]);
    let messages = (0..count).map(|_| {
        let node = introduction.take();
        let urls = [Type::Cluster.url(), Type::Listener.url(), Type::Secret.url(), "", "no/such.Type"];
        let type_url = (*mutator.one_of(&urls)).to_owned();
        let error_detail =
            mutator.once_in(4).then(|| RpcStatus { code: 13, message: "\u{1b}[31mrejected".repeat(100) });
        let names = vec!["*".to_owned(), String::new(), "a".repeat(300)];
        let nonce = (*mutator.one_of(&["", "1", "2", "x"])).to_owned();
        let bytes = match service {
            HEALTH => report(mutator, node),
            DELTA => DeltaRequest {
                node,
                type_url,
                resource_names_subscribe: names,
                response_nonce: nonce,
                error_detail,
                ..DeltaRequest::default()
            }
            .encode_to_vec(),
            _ => WorldRequest {
                version_info: nonce.clone(),
                node,
                resource_names: names,
                type_url,
                response_nonce: nonce,
                error_detail,
            }
            .encode_to_vec(),
        };
        if mutator.once_in(3) { mutator.bytes(&bytes) } else { bytes }
    });
    (service, messages.collect())
}

fn report(mutator: &mut Mutator, node: Option<Node>) -> Vec<u8> {
    let clusters = ["kuma:envoy:admin", "localhost:8080", "localhost:99999", "localhost:", ""];
    let cluster = health::ClusterReport {
        name: (*mutator.one_of(&clusters)).to_owned(),
        localities: vec![health::LocalityReport {
            endpoints: vec![health::EndpointReport { status: *mutator.one_of(&[0, 1, 2, 99, -1]) }],
        }],
    };
    let report = health::EndpointHealthResponse { clusters: vec![cluster] };
    let introduction = node.map(|node| health::Introduction { node: Some(node) });
    health::HealthRequest { report: introduction.is_none().then_some(report), introduction }.encode_to_vec()
}

async fn one(target: &Target, mut mutator: Mutator) {
    let (service, messages) = messages(&mut mutator);
    let mut body = BytesMut::new();
    for message in &messages {
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).unwrap());
        body.put_slice(message);
    }
    let body = if mutator.once_in(6) { mutator.bytes(&body) } else { body.to_vec() };
    let request = Request::post(service).header("content-type", "application/grpc").header("te", "trailers");
    let answer = send(&target.proxies, request.body(Body::from(body)).unwrap()).await;
    let (code, reason) = answer.end.expect("every stream ends with a status");
    assert!(code == "0" || !reason.is_empty(), "code {code} without a reason");
    assert!(!reason.contains('\u{1b}'), "{reason:?}");
    assert!(reason.len() < 8 << 10, "a proxy breaks off the connection when trailers are long: {reason}");
}

#[tokio::test]
async fn every_stream_ends_with_a_status_and_a_reason() {
    let target = Target::new().await;
    feed(|mutator| one(&target, mutator)).await;
}
