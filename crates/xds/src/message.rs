//! The messages of `envoy.service.discovery.v3`, as far as a control plane needs them.
//!
//! They are our own for two reasons: responses carry resources as reference-counted [`Bytes`], so all
//! streams share one encoding, and a proxy's long list of extensions is skipped instead of parsed.

use std::collections::HashMap;

use bytes::Bytes;
use prost::{DecodeError, Message};

/// `google.protobuf.Any` with a shared value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `google.rpc.Status`: why a proxy rejects a response.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `envoy.config.core.v3.Node`: who the proxy is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Node {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub cluster: String,
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<prost_types::Struct>,
}

/// A [`Node`] whose metadata is not read yet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UnreadNode {
    #[prost(string, tag = "1")]
    pub id: String,
    /// An encoded `google.protobuf.Struct`: nested messages and byte strings look the same on the wire.
    #[prost(bytes = "bytes", tag = "3")]
    pub metadata: Bytes,
}

/// A [`Request`] of which only the sender is read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sender {
    #[prost(message, optional, tag = "2")]
    pub node: Option<UnreadNode>,
}

/// A [`DeltaRequest`] of which only the sender is read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeltaSender {
    #[prost(message, optional, tag = "1")]
    pub node: Option<UnreadNode>,
}

/// `envoy.config.core.v3.ControlPlane`: which control plane answers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ControlPlane {
    #[prost(string, tag = "1")]
    pub identifier: String,
}

/// `DiscoveryRequest`: the state of the world, asked for or acknowledged.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<RpcStatus>,
}

/// `DiscoveryResponse`: the state of the world of one type.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Response {
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// Encoded [`Any`]s: nested messages and byte strings look the same on the wire.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(message, optional, tag = "6")]
    pub control_plane: Option<ControlPlane>,
}

/// `DeltaDiscoveryRequest`: a change of what is subscribed, an acknowledgement, or both.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeltaRequest {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(string, tag = "2")]
    pub type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub resource_names_unsubscribe: Vec<String>,
    #[prost(map = "string, string", tag = "5")]
    pub initial_resource_versions: HashMap<String, String>,
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<RpcStatus>,
}

/// `DeltaDiscoveryResponse`: what is to be added, replaced and removed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeltaResponse {
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    /// Encoded [`Resource`]s: nested messages and byte strings look the same on the wire.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
    #[prost(message, optional, tag = "7")]
    pub control_plane: Option<ControlPlane>,
}

/// `Resource`: one named and versioned resource of a delta response.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Resource {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(message, optional, tag = "2")]
    pub resource: Option<Any>,
    #[prost(string, tag = "3")]
    pub name: String,
}

impl Response {
    /// Decodes the resources of the response, for clients.
    pub fn decoded(&self) -> Result<Vec<Any>, DecodeError> {
        self.resources.iter().map(|any| Any::decode(any.clone())).collect()
    }
}

impl DeltaResponse {
    /// Decodes the resources of the response, for clients.
    pub fn decoded(&self) -> Result<Vec<Resource>, DecodeError> {
        self.resources.iter().map(|resource| Resource::decode(resource.clone())).collect()
    }
}
