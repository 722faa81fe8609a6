//! The messages of `kuma.mesh.v1alpha1` that KDS consists of. Those of discovery are the ones of
//! [`xds::message`].

use std::collections::BTreeMap;

use bytes::Bytes;
use xds::message::Any;

/// A resource of any kind.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KumaResource {
    /// An encoded [`Meta`], whose size is looked at before it is read: nested messages and byte strings look
    /// the same on the wire.
    #[prost(bytes = "bytes", tag = "1")]
    pub meta: Bytes,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<Any>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<Any>,
}

/// Fields common to all kinds.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Meta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub mesh: String,
    /// Kuma leaves it empty.
    #[prost(string, tag = "5")]
    pub version: String,
    #[prost(btree_map = "string, string", tag = "6")]
    pub labels: BTreeMap<String, String>,
}

/// The sign of life of a zone.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ZoneHealthCheckRequest {}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ZoneHealthCheckResponse {
    /// Time until the zone sends the next one.
    #[prost(message, optional, tag = "1")]
    pub interval: Option<prost_types::Duration>,
}

/// Format of the answers of Envoy's admin interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AdminOutputFormat {
    Text = 0,
    Json = 1,
}

/// Asks a zone for the configuration of a proxy.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct XdsConfigRequest {
    /// Repeated in the response.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// `Dataplane`, `ZoneIngress` or `ZoneEgress`.
    #[prost(string, tag = "2")]
    pub resource_type: String,
    /// The name in the zone.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    #[prost(string, tag = "4")]
    pub resource_mesh: String,
    #[prost(bool, tag = "5")]
    pub include_eds: bool,
    /// A view that the zone computes instead of asking the proxy, as JSON. Kuma's zones do not know the field; they refuse
    /// the type that stands in [`VIEW`](XdsConfigRequest::VIEW).
    #[prost(string, tag = "50001")]
    pub view: String,
}

impl XdsConfigRequest {
    /// The type of a request whose subject stands in `view`.
    pub const VIEW: &str = "View";
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct XdsConfigResponse {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(oneof = "XdsConfigResult", tags = "2, 3")]
    pub result: Option<XdsConfigResult>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum XdsConfigResult {
    #[prost(string, tag = "2")]
    Error(String),
    #[prost(bytes = "bytes", tag = "3")]
    Config(Bytes),
}

/// Asks a zone for the statistics of a proxy.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatsRequest {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(string, tag = "2")]
    pub resource_type: String,
    #[prost(string, tag = "3")]
    pub resource_name: String,
    #[prost(string, tag = "4")]
    pub resource_mesh: String,
    #[prost(enumeration = "AdminOutputFormat", tag = "5")]
    pub format: i32,
    /// Leave out statistics that were never written.
    #[prost(bool, tag = "6")]
    pub used_only: bool,
    /// Only what is counted by server name. Kuma's zones do not know the field and answer with everything.
    #[prost(bool, tag = "50001")]
    pub sni_usage: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatsResponse {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(oneof = "StatsResult", tags = "2, 3")]
    pub result: Option<StatsResult>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum StatsResult {
    #[prost(string, tag = "2")]
    Error(String),
    #[prost(bytes = "bytes", tag = "3")]
    Stats(Bytes),
}

/// Asks a zone for the clusters of a proxy.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClustersRequest {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(string, tag = "2")]
    pub resource_type: String,
    #[prost(string, tag = "3")]
    pub resource_name: String,
    #[prost(string, tag = "4")]
    pub resource_mesh: String,
    #[prost(enumeration = "AdminOutputFormat", tag = "5")]
    pub format: i32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClustersResponse {
    #[prost(string, tag = "1")]
    pub request_id: String,
    #[prost(oneof = "ClustersResult", tags = "2, 3")]
    pub result: Option<ClustersResult>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ClustersResult {
    #[prost(string, tag = "2")]
    Error(String),
    #[prost(bytes = "bytes", tag = "3")]
    Clusters(Bytes),
}
