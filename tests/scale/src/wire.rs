//! The discovery protocol as raw bytes: only what a simulated proxy looks at is parsed.
//!
//! Every length-delimited field is a slice of the message as it came in, so that taking a response of
//! two megabytes apart copies nothing.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// The types of resources a proxy asks for, in the order in which Envoy needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    Cluster,
    Endpoint,
    Secret,
    Listener,
    Route,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Cluster, Kind::Endpoint, Kind::Secret, Kind::Listener, Kind::Route];

    pub fn url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Kind::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Kind::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub fn by_url(url: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.url().as_bytes() == url)
    }
}

/// `DeltaDiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct DeltaRequest {
    /// `Node`, encoded once per proxy.
    #[prost(bytes = "bytes", tag = "1")]
    pub node: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub type_url: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub subscribe: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub unsubscribe: Vec<Bytes>,
    #[prost(message, repeated, tag = "5")]
    pub initial_versions: Vec<MapEntry>,
    #[prost(bytes = "bytes", tag = "6")]
    pub nonce: Bytes,
    #[prost(message, optional, tag = "7")]
    pub error: Option<RpcStatus>,
}

/// An entry of a map from string to string.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MapEntry {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `DeltaDiscoveryResponse`, each resource still encoded.
#[derive(Clone, PartialEq, Message)]
pub struct DeltaResponse {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "4")]
    pub type_url: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub nonce: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub removed: Vec<Bytes>,
}

/// `WireResource` of a delta response.
#[derive(Clone, PartialEq, Message)]
pub struct WireResource {
    #[prost(bytes = "bytes", tag = "1")]
    pub version: Bytes,
    #[prost(message, optional, tag = "2")]
    pub any: Option<Any>,
    #[prost(bytes = "bytes", tag = "3")]
    pub name: Bytes,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `DiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct WorldRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub version: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub node: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub names: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "4")]
    pub type_url: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub nonce: Bytes,
    #[prost(message, optional, tag = "6")]
    pub error: Option<RpcStatus>,
}

/// `DiscoveryResponse`, each `Any` still encoded.
#[derive(Clone, PartialEq, Message)]
pub struct WorldResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub version: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "4")]
    pub type_url: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub nonce: Bytes,
}

/// Messages that pass through gRPC as they are: the sender encodes what it sends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Vec<Bytes>;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    /// The parts of one message.
    type Item = Vec<Bytes>;
    type Error = Status;

    fn encode(&mut self, parts: Vec<Bytes>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(parts.iter().map(Bytes::len).sum());
        for part in parts {
            buffer.put(part);
        }
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let whole = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(whole)))
    }
}
