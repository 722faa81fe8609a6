//! The messages are those of Envoy: what one side encodes, the other decodes.

use bytes::Bytes;
use envoy_types::pb::{
    envoy::{
        config::core::v3 as envoy_core,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
        },
    },
    google::{protobuf as google, rpc},
};
use prost::Message;
use xds::message::{self, DeltaRequest, DeltaResponse, DeltaSender, Request, Response, Sender};

fn through<From: Message, To: Message + Default>(message: &From) -> To {
    To::decode(&message.encode_to_vec()[..]).unwrap()
}

fn envoy_node() -> envoy_core::Node {
    let value = google::Value { kind: Some(google::value::Kind::StringValue("9901".into())) };
    envoy_core::Node {
        id: "default.web".into(),
        cluster: "web".into(),
        metadata: Some(google::Struct { fields: [("port".to_owned(), value)].into() }),
        user_agent_name: "envoy".into(),
        extensions: vec![envoy_core::Extension { name: "router".into(), ..Default::default() }],
        ..Default::default()
    }
}

fn envoy_error() -> Option<rpc::Status> {
    Some(rpc::Status { code: 13, message: "bad".into(), details: vec![google::Any::default()] })
}

fn check_node(node: Option<message::Node>) {
    let node = node.unwrap();
    assert_eq!((&*node.id, &*node.cluster), ("default.web", "web"));
    assert_eq!(xds::identify::metadata(&node).string("port"), Some("9901"));
}

#[test]
fn requests_of_envoy_are_understood() {
    let delta: DeltaRequest = through(&DeltaDiscoveryRequest {
        node: Some(envoy_node()),
        type_url: "type".into(),
        resource_names_subscribe: vec!["a".into(), "b".into()],
        resource_names_unsubscribe: vec!["c".into()],
        initial_resource_versions: [("a".to_owned(), "1".to_owned())].into(),
        response_nonce: "7".into(),
        error_detail: envoy_error(),
        ..Default::default()
    });
    check_node(delta.node);
    assert_eq!((&*delta.type_url, &*delta.response_nonce), ("type", "7"));
    assert_eq!(delta.resource_names_subscribe, ["a", "b"]);
    assert_eq!(delta.resource_names_unsubscribe, ["c"]);
    assert_eq!(delta.initial_resource_versions["a"], "1");
    assert_eq!(delta.error_detail.unwrap(), message::RpcStatus { code: 13, message: "bad".into() });

    let sotw: Request = through(&DiscoveryRequest {
        version_info: "v".into(),
        node: Some(envoy_node()),
        resource_names: vec!["a".into()],
        type_url: "type".into(),
        response_nonce: "7".into(),
        error_detail: envoy_error(),
        ..Default::default()
    });
    check_node(sotw.node);
    assert_eq!((&*sotw.version_info, &*sotw.type_url, &*sotw.response_nonce), ("v", "type", "7"));
    assert_eq!(sotw.resource_names, ["a"]);
    assert_eq!(sotw.error_detail.unwrap().message, "bad");
}

#[test]
fn the_sender_of_a_request_is_read_and_its_metadata_is_not() {
    let node = Some(envoy_node());
    let metadata = envoy_node().metadata.unwrap().encode_to_vec();
    let type_url = "type".to_owned();
    let delta =
        DeltaDiscoveryRequest { node: node.clone(), type_url: type_url.clone(), ..Default::default() };
    let sotw = DiscoveryRequest { version_info: "v".into(), node, type_url, ..Default::default() };
    let (delta, sotw): (DeltaSender, Sender) = (through(&delta), through(&sotw));
    for sender in [delta.node, sotw.node] {
        let sender = sender.unwrap();
        assert_eq!((&*sender.id, &sender.metadata[..]), ("default.web", &metadata[..]));
    }
}

#[test]
fn responses_are_understood_by_envoy() {
    let any = message::Any { type_url: "type".into(), value: Bytes::from_static(b"body") };
    let control_plane = Some(message::ControlPlane { identifier: "cp".into() });
    let of_wire = message::Resource { version: "1".into(), resource: Some(any.clone()), name: "a".into() };
    let ours = DeltaResponse {
        system_version_info: "s".into(),
        resources: vec![of_wire.encode_to_vec().into()],
        type_url: "type".into(),
        nonce: "7".into(),
        removed_resources: vec!["b".into()],
        control_plane: control_plane.clone(),
    };
    let envoy_any = google::Any { type_url: "type".into(), value: b"body".to_vec() };
    let envoy_control_plane = Some(envoy_core::ControlPlane { identifier: "cp".into() });
    let resource = Some(envoy_any.clone());
    let theirs = DeltaDiscoveryResponse {
        system_version_info: "s".into(),
        resources: vec![Resource { version: "1".into(), resource, name: "a".into(), ..Default::default() }],
        type_url: "type".into(),
        nonce: "7".into(),
        removed_resources: vec!["b".into()],
        control_plane: envoy_control_plane.clone(),
        ..Default::default()
    };
    assert_eq!(through::<_, DeltaDiscoveryResponse>(&ours), theirs);
    assert_eq!(through::<_, DeltaResponse>(&theirs).decoded().unwrap(), [of_wire]);

    let ours = Response {
        version_info: "v".into(),
        resources: vec![any.encode_to_vec().into()],
        type_url: "type".into(),
        nonce: "7".into(),
        control_plane,
    };
    let theirs = DiscoveryResponse {
        version_info: "v".into(),
        resources: vec![envoy_any],
        type_url: "type".into(),
        nonce: "7".into(),
        control_plane: envoy_control_plane,
        ..Default::default()
    };
    assert_eq!(through::<_, DiscoveryResponse>(&ours), theirs);
    assert_eq!(through::<_, Response>(&theirs).decoded().unwrap(), [any]);
}

#[test]
fn the_body_of_a_decoded_resource_is_not_copied() {
    let any = message::Any { type_url: "type".into(), value: Bytes::from(vec![1; 4096]) };
    let wire = Bytes::from(any.encode_to_vec());
    let decoded = message::Any::decode(wire.clone()).unwrap();
    let start = wire.as_ptr() as usize;
    let end = wire.as_ptr() as usize + wire.len();
    assert!((start..end).contains(&(decoded.value.as_ptr() as usize)));
}
