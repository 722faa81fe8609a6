//! The messages of the synchronised kinds, with the numbers that Kuma gives their fields.

use super::{Field, Message, ProtoKind, Shape, Type, Words};

mod dataplane;
mod insight;
mod mesh;
mod zone_proxy;

/// The message of a kind; `None` for those that travel as JSON and those that do not travel.
pub(in crate::wire) fn of(kind: resources::Kind) -> Option<&'static ProtoKind> {
    use resources::Kind as K;
    Some(match kind {
        K::Mesh => &mesh::MESH,
        K::Dataplane => &dataplane::DATAPLANE,
        K::DataplaneInsight => &insight::DATAPLANE_INSIGHT,
        K::ZoneIngress => &zone_proxy::ZONE_INGRESS,
        K::ZoneIngressInsight => &insight::ZONE_INGRESS_INSIGHT,
        K::ZoneEgress => &zone_proxy::ZONE_EGRESS,
        K::ZoneEgressInsight => &insight::ZONE_EGRESS_INSIGHT,
        K::ServiceInsight => &insight::SERVICE_INSIGHT,
        // Both are the same message in Kuma.
        K::Secret | K::GlobalSecret => &SECRET,
        K::Config => &CONFIG,
        K::VirtualOutbound => &VIRTUAL_OUTBOUND,
        _ => return None,
    })
}

const fn one(number: u32, name: &'static str, kind: Type) -> Field {
    Field { number, name, shape: Shape::One(kind) }
}

const fn many(number: u32, name: &'static str, kind: Type) -> Field {
    Field { number, name, shape: Shape::Many(kind) }
}

const fn map(number: u32, name: &'static str, kind: Type) -> Field {
    Field { number, name, shape: Shape::Map(kind) }
}

/// A field that only we have. Kuma skips it: its own numbers are far below.
const fn ours(number: u32, field: Field) -> Field {
    Field { number: 50_000 + number, ..field }
}

/// Words numbered from 0.
const fn words(words: &'static [(i32, &'static str)]) -> Words {
    Words { words, absent: 0 }
}

static SECRET: ProtoKind = ProtoKind {
    name: "kuma.system.v1alpha1.Secret",
    message: Message(&[one(1, "data", Type::Wrapped(&Type::Bytes))]),
};

static CONFIG: ProtoKind =
    ProtoKind { name: "kuma.system.v1alpha1.Config", message: Message(&[one(1, "config", Type::Text)]) };

static VIRTUAL_OUTBOUND: ProtoKind = ProtoKind {
    name: "kuma.mesh.v1alpha1.VirtualOutbound",
    message: Message(&[
        many(1, "selectors", Type::Message(&Message(&[map(1, "match", Type::Text)]))),
        one(2, "conf", Type::Message(&VIRTUAL_OUTBOUND_CONF)),
    ]),
};

static VIRTUAL_OUTBOUND_CONF: Message = Message(&[
    one(1, "host", Type::Text),
    one(2, "port", Type::Text),
    many(
        3,
        "parameters",
        Type::Message(&Message(&[one(1, "name", Type::Text), one(2, "tagKey", Type::Text)])),
    ),
]);
