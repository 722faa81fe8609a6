//! One resource as it travels: encoded once, shared by every proxy that gets it.

use std::{
    borrow::Borrow,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use prost::Message;

use crate::{
    message::{Any, Resource},
    target::Type,
};

/// A named and versioned resource, with the bytes of its `Resource` message.
///
/// The `Any` is the last field of that message and the body the last of the `Any`, so one buffer serves
/// delta responses, state-of-the-world responses and inspection. The end of the body may be shared with other
/// resources: then it is kept once and joined when a response is made.
#[derive(Clone)]
pub struct Encoded {
    pub name: Arc<str>,
    /// A hash of the content: the same on every control plane and after every restart.
    pub version: u128,
    resource: Bytes,
    /// Shared end of the body; most resources have none, and there are many.
    shared: Option<Box<Bytes>>,
    any_len: u32,
    body_len: u32,
}

impl Encoded {
    /// `body` is the protobuf message of the resource, without an `Any` around it.
    pub fn new(kind: Type, name: &str, version: u128, body: &[u8]) -> Encoded {
        Encoded::joined(kind, name, version, body, Bytes::new())
    }

    /// `body` and then `shared` are the protobuf message of the resource. `shared` is not copied.
    pub fn joined(kind: Type, name: &str, version: u128, body: &[u8], shared: Bytes) -> Encoded {
        let whole = body.len() + shared.len();
        let head = Resource { version: version_text(version), resource: None, name: name.to_owned() };
        let any = Any { type_url: kind.url().to_owned(), value: Bytes::new() }.encode_to_vec();
        let any_len = any.len() + field_len(whole);
        let mut buffer = Vec::with_capacity(head.encoded_len() + field_len(any_len) - shared.len());
        buffer.extend(head.encode_to_vec());
        // Both the `Any` in a `Resource` and the value in an `Any` are field 2, length-delimited.
        put_field(&mut buffer, any_len);
        buffer.extend(any);
        put_field(&mut buffer, whole);
        buffer.extend(body);
        // Messages of more than 4 GiB cannot be sent over gRPC.
        let len = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let any_len = len(any_len);
        let body_len = len(whole);
        let shared = (!shared.is_empty()).then(|| Box::new(shared));
        Encoded { name: name.into(), version, resource: buffer.into(), shared, any_len, body_len }
    }

    /// The `Resource` message of a delta response.
    pub fn resource(&self) -> Bytes {
        match &self.shared {
            Some(shared) => [&self.resource[..], shared].concat().into(),
            None => self.resource.clone(),
        }
    }

    /// The `Any` of a state-of-the-world response.
    pub fn any(&self) -> Bytes {
        self.tail(self.any_len)
    }

    /// The message itself.
    pub fn body(&self) -> Bytes {
        self.tail(self.body_len)
    }

    /// Bytes of the resource in a response.
    pub fn size(&self) -> usize {
        self.resource.len() + self.shared.as_ref().map_or(0, |shared| shared.len())
    }

    /// Bytes kept for this resource alone.
    pub fn own_size(&self) -> usize {
        self.resource.len()
    }

    /// Formats the version for a message.
    pub fn version_text(&self) -> String {
        version_text(self.version)
    }

    fn tail(&self, len: u32) -> Bytes {
        let whole = self.resource();
        whole.slice(whole.len().saturating_sub(len as usize)..)
    }
}

/// The tag and the length of field 2.
fn put_field(buffer: &mut Vec<u8>, len: usize) {
    prost::encoding::encode_key(2, prost::encoding::WireType::LengthDelimited, buffer);
    prost::encoding::encode_varint(len as u64, buffer);
}

fn field_len(len: usize) -> usize {
    prost::encoding::key_len(2) + prost::encoding::encoded_len_varint(len as u64) + len
}

/// Equal names and versions mean equal content.
impl PartialEq for Encoded {
    fn eq(&self, other: &Encoded) -> bool {
        self.version == other.version && self.name == other.name
    }
}

impl Eq for Encoded {}

impl fmt::Debug for Encoded {
    /// Some bodies hold private keys, which do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version_text();
        let bytes = self.body_len;
        f.debug_struct("Encoded")
            .field("name", &self.name)
            .field("version", &version)
            .field("bytes", &bytes)
            .finish()
    }
}

/// A resource in a set, where it is found by its name.
#[derive(Debug, Clone)]
pub(crate) struct ByName(pub Arc<Encoded>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &ByName) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

pub(crate) fn version_text(version: u128) -> String {
    format!("{version:032x}")
}

/// Reads a version that this crate wrote; anything else was written by another control plane.
pub(crate) fn parse_version(text: &str) -> Option<u128> {
    let ours = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    ours.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_buffer_holds_the_resource_its_any_and_its_body() {
        for body in [&b""[..], b"x", &[7; 100], &[7; 20_000], &[7; 3_000_000]] {
            let encoded = Encoded::new(Type::Cluster, "backend", 7, body);
            let resource = Resource::decode(encoded.resource()).unwrap();
            assert_eq!((&*resource.name, resource.version), ("backend", version_text(7)));
            let any = resource.resource.unwrap();
            assert_eq!((&*any.type_url, &any.value[..]), (Type::Cluster.url(), body));
            assert_eq!(Any::decode(encoded.any()).unwrap(), any);
            assert_eq!(&encoded.body()[..], body);
            for at in [0, body.len() / 2, body.len()] {
                let (own, shared) = body.split_at(at);
                let joined =
                    Encoded::joined(Type::Cluster, "backend", 7, own, Bytes::copy_from_slice(shared));
                assert_eq!((joined.resource(), joined.any()), (encoded.resource(), encoded.any()));
                assert_eq!((joined.body(), joined.size()), (encoded.body(), encoded.size()));
            }
        }
    }

    #[test]
    fn only_versions_written_here_are_read() {
        assert_eq!(parse_version(&version_text(7)), Some(7));
        assert_eq!(parse_version(&version_text(u128::MAX)), Some(u128::MAX));
        for foreign in ["", "7", "v1", "+0000000000000000000000000000007", "0000000000000000000000000000000G"]
        {
            assert_eq!(parse_version(foreign), None, "{foreign}");
        }
    }
}
