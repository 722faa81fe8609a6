//! Messages between control planes: services, and resources as bytes.
//!
//! ```text
//!   DeltaDiscoveryResponse ─▶ Resource ─▶ Any ─▶ KumaResource ─▶ Any ─▶ spec
//!    type_url "MeshTimeout"   name,       type   meta: name,     JSON, or the protobuf
//!                             version            mesh, labels    message of the kind
//! ```
//!
//! Kinds in spec form are JSON in an `Any` without a type. The older kinds are the protobuf messages that
//! Kuma defines; [`proto`] converts between them and the JSON of their specs.

use std::borrow::Cow;

use bytes::Bytes;
use prost::Message as _;
use resources::{Form, Key, Kind, Labels, Scope, Spec, Status as StoredStatus};

mod error;
mod fault;
pub mod frame;
mod json;
mod message;
mod proto;
pub mod service;

pub use error::Error;
use fault::Fault;
pub use message::{
    AdminOutputFormat, ClustersRequest, ClustersResponse, ClustersResult, StatsRequest, StatsResponse,
    StatsResult, XdsConfigRequest, XdsConfigResponse, XdsConfigResult, ZoneHealthCheckRequest,
    ZoneHealthCheckResponse,
};
use message::{KumaResource, Meta};
pub use xds::message::{
    Any, ControlPlane, DeltaRequest as DeltaDiscoveryRequest, DeltaResponse as DeltaDiscoveryResponse, Node,
    Resource, RpcStatus as Status,
};

/// Value of a response's `system_version_info` when other parts of a complete set follow.
pub const MORE_PARTS: &str = "more-parts-follow";
/// The type of the `Any` in which [`encode`]d bytes travel.
pub const KUMA_RESOURCE: &str = "type.googleapis.com/kuma.mesh.v1alpha1.KumaResource";

/// The most bytes of a name, a mesh and labels together. Kubernetes has a limit of this size, too.
const MOST_META: usize = 256 * 1024;

/// The most values in a spec or a status. A value of two bytes takes a hundred in memory, so the size of a
/// message alone does not bound what reading it allocates.
const MOST_VALUES: usize = 1 << 19;

/// The most values in all resources of a message: twice as many as a message of 10 MiB has that is full of Dataplanes.
pub const MOST_VALUES_OF_MESSAGE: usize = 1 << 20;

/// A resource on its way: encoded on departure, decoded on arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Synced {
    pub key: Key,
    pub labels: Labels,
    pub spec: Spec,
    pub status: Option<StoredStatus>,
}

/// The spec in the form that its message has fields for.
fn shipped(spec: &Spec) -> Cow<'_, Spec> {
    match spec {
        Spec::VirtualOutbound(policy) => Cow::Owned(policy.shipped().into()),
        spec => Cow::Borrowed(spec),
    }
}

/// The bytes of a `KumaResource`. The same resource gives the same bytes.
pub fn encode(resource: &Synced) -> Result<Bytes, Error> {
    let Synced { key, labels, spec, status } = resource;
    let spec = match encoding(key.kind)? {
        Encoding::Json => json::encode(spec),
        Encoding::Proto(kind) => kind.encode(&shipped(spec).to_json()),
    };
    let status = key.kind.descriptor().has_status.then(|| match status {
        Some(status) => json::encode(status),
        // Kuma sends a status for every resource of these kinds.
        None => Ok(json::any("{}")),
    });
    let failed = |fault: Fault, field| {
        let Fault { path, reason } = fault.inside(field);
        Error::Encode { key: key.clone(), field: path, reason }
    };
    let encoded = KumaResource {
        meta: Meta {
            name: key.name.to_string(),
            mesh: key.mesh.to_string(),
            version: String::new(),
            labels: labels.clone(),
        }
        .encode_to_vec()
        .into(),
        spec: Some(spec.map_err(|fault| failed(fault, "spec"))?),
        status: status.transpose().map_err(|fault| failed(fault, "status"))?,
    };
    Ok(encoded.encode_to_vec().into())
}

/// Reads the bytes of a `KumaResource` of a kind. Unknown fields are dropped; an error names the field.
pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Synced, Error> {
    decode_within(kind, bytes, &mut { MOST_VALUES })
}

/// The same for a resource of a message of which so many values may still be read.
pub fn decode_one_of_many(kind: Kind, bytes: &[u8], left: &mut usize) -> Result<Synced, Error> {
    let most = MOST_VALUES.min(*left);
    let mut own = most;
    let decoded = decode_within(kind, bytes, &mut own);
    *left -= most - own;
    decoded
}

fn decode_within(kind: Kind, bytes: &[u8], left: &mut usize) -> Result<Synced, Error> {
    let encoding = encoding(kind)?;
    let unnamed = |fault: Fault| Error::decode(format!("a resource of kind {kind}"), fault);
    let encoded = KumaResource::decode(bytes).map_err(|why| unnamed(Fault::new(why.to_string())))?;
    let (key, labels) = read_meta(kind, &encoded.meta).map_err(|fault| unnamed(fault.inside("meta")))?;
    let failed = |fault: Fault, field| Error::decode(key.to_string(), fault.inside(field));
    let spec = match &encoded.spec {
        Some(spec) => read_spec(kind, encoding, spec, left),
        None => Err(Fault::new("is missing")),
    };
    let spec = spec.map_err(|fault| failed(fault, "spec"))?;
    let status = match encoded.status {
        Some(status) if kind.descriptor().has_status => read_status(kind, &status, left),
        _ => Ok(None),
    };
    let status = status.map_err(|fault| failed(fault, "status"))?;
    Ok(Synced { key, labels, spec, status })
}

/// Encoding of the specs of a kind.
#[derive(Clone, Copy)]
enum Encoding {
    Json,
    Proto(&'static proto::ProtoKind),
}

fn encoding(kind: Kind) -> Result<Encoding, Error> {
    let sync = kind.descriptor().sync;
    let is_synced = sync.global_to_zones || sync.zone_to_global || sync.across_zones;
    let encoding = match kind.descriptor().form {
        Form::Spec => Some(Encoding::Json),
        Form::Inline => proto::of(kind).map(Encoding::Proto),
    };
    encoding.filter(|_| is_synced).ok_or(Error::NotSynced { kind })
}

fn read_meta(kind: Kind, bytes: &[u8]) -> Result<(Key, Labels), Fault> {
    if bytes.len() > MOST_META {
        return Err(Fault::new(format!("has {} bytes, at most {MOST_META} are read", bytes.len())));
    }
    let Meta { name, mesh, version: _, labels } =
        Meta::decode(bytes).map_err(|why| Fault::new(why.to_string()))?;
    if name.is_empty() {
        return Err(Fault::new("is missing").inside("name"));
    }
    if mesh.is_empty() && kind.descriptor().scope == Scope::Mesh {
        return Err(Fault::new("is missing").inside("mesh"));
    }
    Ok((Key::new(kind, &mesh, &name), labels))
}

fn read_spec(kind: Kind, encoding: Encoding, any: &Any, left: &mut usize) -> Result<Spec, Fault> {
    let value = match encoding {
        Encoding::Json => json::decode(any, left)?,
        Encoding::Proto(kind) => kind.decode(any, left)?,
    };
    Ok(Spec::from_json(kind, value, &mut Vec::new())?)
}

/// An empty status is none.
fn read_status(kind: Kind, any: &Any, left: &mut usize) -> Result<Option<StoredStatus>, Fault> {
    let value = json::decode(any, left)?;
    if value.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(None);
    }
    Ok(Some(StoredStatus::from_json(kind, value)?))
}
