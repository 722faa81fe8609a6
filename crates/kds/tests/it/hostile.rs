//! Bytes that no control plane should send: every one of them is answered with an error that names the
//! field, or decoded; nothing panics.

use kds::wire::{self, Error};
use resources::{Form, Kind};
use serde_json::json;

use crate::{
    bytes::Bytes,
    samples::{around, full, message_name, resource, spec, synced_kinds},
};

fn refused(kind: Kind, message: Bytes) -> String {
    wire::decode(kind, &around(kind, &message.done())).unwrap_err().to_string()
}

#[test]
fn fields_that_are_unknown_are_skipped() {
    let newer = |bytes: Bytes| {
        bytes.varint(60, u64::MAX).double(61, 1.5).text(62, "newer").key(63, 5).raw(&[1, 2, 3, 4])
    };
    let admin = newer(Bytes::new()).varint(1, 9901);
    let networking = newer(Bytes::new().text(5, "192.168.0.1").message(8, admin));
    let dataplane = newer(Bytes::new().message(1, networking)).done();
    let decoded = wire::decode(Kind::Dataplane, &around(Kind::Dataplane, &dataplane)).unwrap();
    let expect = json!({ "networking": { "address": "192.168.0.1", "admin": { "port": 9901 } } });
    assert_eq!(decoded.spec, spec(Kind::Dataplane, expect));

    let timeout = resource(Kind::MeshTimeout, full(Kind::MeshTimeout));
    let resource = wire::encode(&timeout).unwrap().to_vec();
    let resource = newer(Bytes::new()).raw(&resource).done();
    assert_eq!(wire::decode(Kind::MeshTimeout, &resource).unwrap(), timeout);
}

#[test]
fn a_message_in_two_parts_is_one_message() {
    let networking = |bytes: Bytes| Bytes::new().message(2, bytes);
    let parts = networking(Bytes::new().text(1, "127.0.0.1").varint(2, 1))
        .raw(&networking(Bytes::new().varint(2, 10_002)).done())
        .done();
    let decoded = wire::decode(Kind::ZoneEgress, &around(Kind::ZoneEgress, &parts)).unwrap();
    let expect = json!({ "networking": { "address": "127.0.0.1", "port": 10_002 } });
    assert_eq!(decoded.spec, spec(Kind::ZoneEgress, expect));
}

#[test]
fn what_is_wrong_is_told_with_the_path_of_the_field() {
    let inbound = |bytes: Bytes| {
        let first = Bytes::new().varint(3, 80);
        Bytes::new().message(1, Bytes::new().message(1, first).message(1, bytes))
    };
    let at = |message: Bytes| refused(Kind::Dataplane, inbound(message));
    let port = "cannot decode Dataplane \"sample\" in mesh \"default\": spec.networking.inbound[1]";
    for (message, expect) in [
        (Bytes::new().text(3, "80"), ".port: has the wrong wire type: expected a varint, found a length"),
        (Bytes::new().varint(3, 1 << 32), ".port: is larger than 32 bits"),
        (Bytes::new().varint(9, 7), ".state: has no word for 7, only for Ready, NotReady, Ignored"),
        (Bytes::new().varint(9, u64::MAX), ".state: has no word for -1, only for Ready, NotReady, Ignored"),
        (
            Bytes::new().bytes(10, &[0xff]),
            ".name: is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
        ),
        (
            Bytes::new().message(2, Bytes::new().text(1, "version").varint(2, 1)),
            ".tags[\"version\"]: has the wrong wire type: expected a length, found a varint",
        ),
        (
            Bytes::new().message(2, Bytes::new().varint(1, 1)),
            ".tags.key: has the wrong wire type: expected a length, found a varint",
        ),
        (
            Bytes::new().message(8, Bytes::new().message(1, Bytes::new().varint(1, 1 << 62))),
            ".serviceProbe.interval: 4611686018427387904 s and 0 ns are no duration",
        ),
        (
            Bytes::new().message(8, Bytes::new().message(1, Bytes::new().varint(1, 1).varint(2, u64::MAX))),
            ".serviceProbe.interval: 1 s and -1 ns are no duration",
        ),
        (Bytes::new().key(3, 0), ": the bytes end within a field"),
        (Bytes::new().key(10, 2).number(5).raw(b"abc"), ": the bytes end within a field"),
        (Bytes::new().key(10, 2).number(u64::MAX), ": the bytes end within a field"),
        (Bytes::new().key(3, 0).raw(&[0xff; 10]), ": a varint is longer than 64 bits"),
        (Bytes::new().key(3, 3), ": field 3 has wire type 3, which is not read"),
        (Bytes::new().number(0), ": 0 is no field number"),
        (Bytes::new().number(u64::MAX), ": 2305843009213693951 is no field number"),
    ] {
        assert_eq!(at(message), format!("{port}{expect}"));
    }
    let metadata = |value: Bytes| {
        let entry = Bytes::new().text(1, "k").message(2, value);
        refused(Kind::ZoneEgressInsight, Bytes::new().message(2, Bytes::new().message(1, entry)))
    };
    let field = "cannot decode ZoneEgressInsight \"sample\": spec.metadata[\"k\"]";
    assert_eq!(metadata(Bytes::new().double(2, f64::NAN)), format!("{field}: is not a finite number"));
    let list = Bytes::new().message(1, Bytes::new().text(3, "a")).message(1, Bytes::new().bytes(3, &[0x80]));
    let expect = "[1]: is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0";
    assert_eq!(metadata(Bytes::new().message(6, list)), format!("{field}{expect}"));
    let time = Bytes::new().message(1, Bytes::new().message(3, Bytes::new().varint(2, 1_000_000_000)));
    let expect = "cannot decode ZoneEgressInsight \"sample\": spec.subscriptions[0].connectTime: 0 s and 1000000000 ns are no point in time";
    assert_eq!(refused(Kind::ZoneEgressInsight, time), expect);
}

#[test]
fn what_is_around_the_spec_is_checked_too() {
    let meta = || Bytes::new().text(1, "sample").text(2, "default");
    let any = || Bytes::new().bytes(2, b"{}");
    let refused = |kind, bytes: Bytes| wire::decode(kind, &bytes.done()).unwrap_err().to_string();
    for (kind, bytes, expect) in [
        (Kind::MeshTimeout, Bytes::new(), "a resource of kind MeshTimeout: meta.name: is missing"),
        (
            Kind::MeshTimeout,
            Bytes::new().message(1, Bytes::new().text(1, "sample")).message(2, any()),
            "a resource of kind MeshTimeout: meta.mesh: is missing",
        ),
        (
            Kind::MeshTimeout,
            Bytes::new().message(1, meta()),
            "MeshTimeout \"sample\" in mesh \"default\": spec: is missing",
        ),
        (
            Kind::MeshTimeout,
            Bytes::new().message(1, meta()).message(2, Bytes::new().bytes(2, b"[]")),
            "MeshTimeout \"sample\" in mesh \"default\": spec: expected an object, found a list",
        ),
        (
            Kind::MeshTimeout,
            Bytes::new().message(1, meta()).message(2, Bytes::new().bytes(2, br#"{"to":[{"targetRef":7}]}"#)),
            "MeshTimeout \"sample\" in mesh \"default\": spec.to[0].targetRef: invalid type: integer `7`, expected struct TargetRef",
        ),
        (
            Kind::Mesh,
            Bytes::new()
                .message(1, meta())
                .message(2, Bytes::new().text(1, "a/kuma.mesh.v1alpha1.Dataplane")),
            "Mesh \"sample\": spec: is of type \"a/kuma.mesh.v1alpha1.Dataplane\", expected \"kuma.mesh.v1alpha1.Mesh\"",
        ),
        (
            Kind::MeshService,
            Bytes::new().message(1, meta()).message(2, any()).message(3, Bytes::new().bytes(2, b"{")),
            "MeshService \"sample\" in mesh \"default\": status: is no JSON: EOF while parsing an object at line 1 column 1",
        ),
    ] {
        assert_eq!(refused(kind, bytes), format!("cannot decode {expect}"));
    }
    let damaged = refused(Kind::Mesh, Bytes::new().key(1, 2).number(100));
    assert!(damaged.starts_with("cannot decode a resource of kind Mesh: "), "{damaged}");
}

#[test]
fn what_go_writes_for_nothing_is_nothing() {
    let meta = Bytes::new().text(1, "sample").text(2, "default");
    let null = || Bytes::new().bytes(2, b"null");
    let bytes = Bytes::new().message(1, meta).message(2, null()).message(3, null()).done();
    let decoded = wire::decode(Kind::MeshService, &bytes).unwrap();
    assert_eq!((decoded.spec, decoded.status), (spec(Kind::MeshService, json!({})), None));
}

#[test]
fn values_in_values_have_an_end() {
    let nested = |levels| {
        let mut value = Bytes::new().text(3, "end");
        for _ in 0..levels {
            value = Bytes::new().message(6, Bytes::new().message(1, value));
        }
        let entry = Bytes::new().text(1, "k").message(2, value);
        around(Kind::ZoneEgressInsight, &Bytes::new().message(2, Bytes::new().message(1, entry)).done())
    };
    wire::decode(Kind::ZoneEgressInsight, &nested(60)).unwrap();
    for levels in [64, 2_000] {
        let error = wire::decode(Kind::ZoneEgressInsight, &nested(levels)).unwrap_err().to_string();
        assert!(error.contains("is more than 64 levels deep"), "{error}");
    }
}

/// Two bytes of a message are a hundred in memory, so the size of the input does not bound the work.
#[test]
fn a_resource_has_a_bounded_number_of_values() {
    let empty = Bytes::new().message(3, Bytes::new()).done();
    let services = around(Kind::ZoneIngress, &empty.repeat(600_000));
    let error = wire::decode(Kind::ZoneIngress, &services).unwrap_err().to_string();
    let expect = "cannot decode ZoneIngress \"sample\": spec: has more than 524288 values";
    assert_eq!(error, expect);

    let meta = || Bytes::new().text(1, "sample").text(2, "default");
    let json = format!(r#"{{"to":[{}{{}}]}}"#, "{},".repeat(600_000));
    let policy = Bytes::new().message(1, meta()).message(2, Bytes::new().text(2, &json)).done();
    let error = wire::decode(Kind::MeshTimeout, &policy).unwrap_err().to_string();
    assert!(error.ends_with("spec: has more than 524288 values"), "{error}");

    let label = |i| Bytes::new().text(1, &format!("{i}")).text(2, "");
    let labels = (0..60_000).fold(meta(), |meta, i| meta.message(6, label(i)));
    let labelled = Bytes::new().message(1, labels).done();
    let error = wire::decode(Kind::MeshTimeout, &labelled).unwrap_err().to_string();
    assert!(error.contains("meta: has ") && error.ends_with(" bytes, at most 262144 are read"), "{error}");
}

#[test]
fn bytes_that_end_anywhere_are_refused_or_less_than_the_whole() {
    for kind in synced_kinds() {
        let sent = resource(kind, full(kind));
        let encoded = wire::encode(&sent).unwrap();
        for end in 0..encoded.len() {
            // A message may end after any of its fields, and then it is another message.
            if let Ok(decoded) = wire::decode(kind, &encoded[..end]) {
                assert!(wire::encode(&decoded).unwrap().len() <= encoded.len(), "{kind} up to {end}");
            }
        }
    }
}

/// Almost valid bytes: one change after the other in a valid resource, from a seed.
#[test]
fn damaged_bytes_are_refused_or_decoded_and_never_more() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refused = 0;
    let mut decoded = 0;
    for kind in synced_kinds().filter(|kind| kind.descriptor().form == Form::Inline) {
        let valid = wire::encode(&resource(kind, full(kind))).unwrap();
        for _ in 0..3_000 {
            let mut bytes = valid.to_vec();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at] ^= 1 << random(8),
                    2 => {
                        bytes.remove(at);
                    }
                    _ => bytes.insert(at, random(256) as u8),
                }
            }
            match wire::decode(kind, &bytes) {
                Ok(resource) => {
                    decoded += 1;
                    // What was let in can be passed on.
                    let again = wire::encode(&resource).unwrap();
                    assert_eq!(wire::decode(kind, &again).unwrap(), resource, "{kind}");
                }
                Err(Error::Decode { reason, .. }) => {
                    refused += 1;
                    assert!(!reason.is_empty());
                }
                Err(other) => panic!("{kind}: {other}"),
            }
        }
    }
    assert!(refused > 1_000 && decoded > 1_000, "{refused} refused, {decoded} decoded");
}

#[test]
fn no_error_shows_a_secret() {
    let message = Bytes::new().message(1, Bytes::new().text(1, "hunter2").key(2, 0)).done();
    let any = Bytes::new().text(1, &message_name(Kind::Secret)).bytes(2, &message);
    let meta = Bytes::new().text(1, "s").text(2, "default");
    let error =
        wire::decode(Kind::Secret, &Bytes::new().message(1, meta).message(2, any).done()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[test]
fn the_resources_of_a_message_share_a_bound_of_values() {
    let bytes = wire::encode(&resource(Kind::MeshTimeout, full(Kind::MeshTimeout))).unwrap();
    let mut left = 1000;
    wire::decode_one_of_many(Kind::MeshTimeout, &bytes, &mut left).unwrap();
    let each = 1000 - left;
    assert!(each > 10, "{each}");
    let mut left = each + each / 2;
    wire::decode_one_of_many(Kind::MeshTimeout, &bytes, &mut left).unwrap();
    let error = wire::decode_one_of_many(Kind::MeshTimeout, &bytes, &mut left).unwrap_err().to_string();
    assert!(error.contains("spec: has more than"), "{error}");
    let ingress = wire::encode(&resource(Kind::ZoneIngress, full(Kind::ZoneIngress))).unwrap();
    let mut left = 3;
    let error = wire::decode_one_of_many(Kind::ZoneIngress, &ingress, &mut left).unwrap_err().to_string();
    assert!(error.contains(": has more than 3 values") && left == 0, "{error} {left}");
}
