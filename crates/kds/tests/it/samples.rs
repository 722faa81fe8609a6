//! Specs with every field in them, and the bytes of a `KumaResource` in pieces.

use std::sync::LazyLock;

use kds::wire::{Any, Synced};
use resources::{Key, Kind, Spec, Status, format::yaml};
use serde_json::{Value, json};

use crate::bytes::Bytes;

static EXAMPLES: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../resources/tests/it/round_trip/examples.yaml");
    yaml::documents(text).unwrap().swap_remove(0).value
});

/// Every kind that goes from one control plane to another.
pub fn synced_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| {
        let sync = kind.descriptor().sync;
        sync.global_to_zones || sync.zone_to_global || sync.across_zones
    })
}

/// A spec with every field in it; a test of `resources` sees to that.
pub fn full(kind: Kind) -> Value {
    EXAMPLES.get(kind.name()).unwrap_or_else(|| panic!("no example of {kind}")).clone()
}

pub fn spec(kind: Kind, value: Value) -> Spec {
    let text = value.to_string();
    Spec::from_json(kind, value, &mut Vec::new()).unwrap_or_else(|why| panic!("{kind} {text}: {why}"))
}

pub fn resource(kind: Kind, value: Value) -> Synced {
    let labels = [("kuma.io/origin", "zone"), ("team", "")];
    Synced {
        key: Key::new(kind, "default", "sample"),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        spec: spec(kind, value),
        status: None,
    }
}

/// Returns the resource as it arrives: a VirtualOutbound in the form that Kuma ships, everything else
/// unchanged.
pub fn on_arrival(sent: &Synced) -> Synced {
    let spec = match &sent.spec {
        Spec::VirtualOutbound(policy) => policy.shipped().into(),
        spec => spec.clone(),
    };
    Synced { spec, ..sent.clone() }
}

/// A status that is not empty, for kinds that have one.
pub fn status(kind: Kind) -> Option<Status> {
    let value = match kind {
        Kind::MeshService => json!({
            "addresses": [{ "hostname": "a.mesh" }],
            "vips": [{ "ip": "241.0.0.1" }],
            "tls": { "status": "Ready" },
            "dataplaneProxies": { "connected": 1, "healthy": 1, "total": 2 },
        }),
        Kind::MeshExternalService => json!({ "vip": { "ip": "242.0.0.1" } }),
        Kind::Workload => json!({ "dataplaneProxies": { "connected": 1, "healthy": 1, "total": 2 } }),
        _ => return None,
    };
    Some(Status::from_json(kind, value).unwrap())
}

/// The name of the message of an older kind.
pub fn message_name(kind: Kind) -> String {
    match kind {
        Kind::Secret | Kind::GlobalSecret => "kuma.system.v1alpha1.Secret".to_owned(),
        Kind::Config => "kuma.system.v1alpha1.Config".to_owned(),
        other => format!("kuma.mesh.v1alpha1.{other}"),
    }
}

/// A `KumaResource` called "sample" around the bytes of a message.
pub fn around(kind: Kind, message: &[u8]) -> Vec<u8> {
    let meta = Bytes::new().text(1, "sample").text(2, "default");
    let any = Bytes::new().text(1, &format!("type.googleapis.com/{}", message_name(kind))).bytes(2, message);
    Bytes::new().message(1, meta).message(2, any).done()
}

/// The `Any` with the spec in encoded bytes.
pub fn spec_of(encoded: &[u8]) -> Any {
    use prost::Message;

    #[derive(Clone, PartialEq, prost::Message)]
    struct KumaResource {
        #[prost(message, optional, tag = "2")]
        spec: Option<Any>,
    }
    KumaResource::decode(encoded).unwrap().spec.unwrap()
}
