//! Bytes that another implementation of protobuf (Google's, for Python) made from the messages that Kuma 2.14
//! defines, and from the JSON beside them.

use kds::wire;
use resources::Kind;
use serde_json::Value;

use crate::{
    bytes::Bytes,
    samples::{around, resource, spec, spec_of, synced_kinds},
};

struct Vector {
    kind: Kind,
    what: String,
    type_name: String,
    spec: Value,
    bytes: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let read = |vector: &Value| {
        let text = |field: &str| vector[field].as_str().unwrap().to_owned();
        let hex = text("hex");
        let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        Vector {
            kind: text("kind").parse().unwrap(),
            what: text("what"),
            type_name: text("type"),
            spec: vector["spec"].clone(),
            bytes: (0..hex.len()).step_by(2).map(byte).collect(),
        }
    };
    let all: Value = serde_json::from_str(include_str!("vectors.json")).unwrap();
    all.as_array().unwrap().iter().map(read).collect()
}

#[test]
fn older_specs_are_encoded_as_another_implementation_does() {
    for Vector { kind, what, type_name, spec, bytes } in vectors() {
        let encoded = wire::encode(&resource(kind, spec)).unwrap();
        let any = spec_of(&encoded);
        assert_eq!(any.type_url, format!("type.googleapis.com/{type_name}"), "{kind}, {what}");
        assert_eq!(hex(&any.value), hex(&bytes), "{kind}, {what}");
    }
}

#[test]
fn bytes_of_another_implementation_decode_to_their_spec() {
    for vector in vectors() {
        let decoded = wire::decode(vector.kind, &around(vector.kind, &vector.bytes)).unwrap();
        assert_eq!(decoded.spec, spec(vector.kind, vector.spec), "{}, {}", vector.kind, vector.what);
    }
}

#[test]
fn every_older_kind_has_a_vector() {
    for kind in synced_kinds().filter(|kind| kind.descriptor().form == resources::Form::Inline) {
        assert!(vectors().iter().any(|vector| vector.kind == kind), "{kind}");
    }
}

/// Worked out from the description of the wire format, byte by byte.
#[test]
fn a_small_mesh_has_the_bytes_it_has_by_hand() {
    let spec = serde_json::json!({
        "mtls": { "enabledBackend": "ca", "backends": [{ "name": "ca", "type": "builtin", "mode": "PERMISSIVE" }] },
        "meshServices": { "mode": "Exclusive" },
    });
    #[rustfmt::skip]
    let backend = [
        0x0a, 2, b'c', b'a',                                          // 1: "ca"
        0x12, 7, b'b', b'u', b'i', b'l', b't', b'i', b'n',            // 2: "builtin"
        0x28, 1,                                                      // 5: 1
    ];
    let mut mesh = vec![0x0a, 4 + 2 + backend.len() as u8, 0x0a, 2, b'c', b'a', 0x12, backend.len() as u8];
    mesh.extend_from_slice(&backend);
    mesh.extend_from_slice(&[0x4a, 2, 0x08, 3]); // 9: { 1: 3 }
    let mut whole = vec![0x0a, 40, 0x0a, 6];
    whole.extend_from_slice(b"sample");
    // Labels in the order of their keys; an empty value is not written.
    whole.extend_from_slice(&[0x32, 22, 0x0a, 14]);
    whole.extend_from_slice(b"kuma.io/origin");
    whole.extend_from_slice(&[0x12, 4]);
    whole.extend_from_slice(b"zone");
    whole.extend_from_slice(&[0x32, 6, 0x0a, 4]);
    whole.extend_from_slice(b"team");
    let type_url = b"type.googleapis.com/kuma.mesh.v1alpha1.Mesh";
    whole.extend_from_slice(&[0x12, (2 + type_url.len() + 2 + mesh.len()) as u8, 0x0a, type_url.len() as u8]);
    whole.extend_from_slice(type_url);
    whole.extend_from_slice(&[0x12, mesh.len() as u8]);
    whole.extend_from_slice(&mesh);

    let encoded = wire::encode(&resource(Kind::Mesh, spec)).unwrap();
    assert_eq!(hex(&encoded), hex(&whole));
}

/// The numbers are ours, and Kuma skips them; see the decision about tables.
#[test]
fn fields_that_kuma_does_not_have_travel_under_numbers_it_does_not_use() {
    let sent = serde_json::json!({ "subscriptions": [{ "status": { "sds": { "responsesSent": "7" } } }] });
    let any = spec_of(&wire::encode(&resource(Kind::DataplaneInsight, sent)).unwrap());
    let empty = || Bytes::new();
    let status = empty()
        .message(2, empty())
        .message(3, empty())
        .message(4, empty())
        .message(5, empty())
        .message(6, empty())
        .message(50_001, empty().varint(1, 7));
    let insight = empty().message(1, empty().message(5, status));
    assert_eq!(hex(&any.value), hex(&insight.done()));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
