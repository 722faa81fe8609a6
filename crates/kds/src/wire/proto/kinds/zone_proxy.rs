use super::{Message, ProtoKind, Type, many, map, one};

pub(super) static ZONE_INGRESS: ProtoKind = ProtoKind {
    name: "kuma.mesh.v1alpha1.ZoneIngress",
    message: Message(&[
        one(1, "zone", Type::Text),
        one(2, "networking", Type::Message(&INGRESS_NETWORKING)),
        many(3, "availableServices", Type::Message(&AVAILABLE_SERVICE)),
    ]),
};

static INGRESS_NETWORKING: Message = Message(&[
    one(1, "address", Type::Text),
    one(2, "advertisedAddress", Type::Text),
    one(3, "port", Type::Uint32),
    one(4, "advertisedPort", Type::Uint32),
    one(5, "admin", Type::Message(&ENVOY_ADMIN)),
]);

static AVAILABLE_SERVICE: Message = Message(&[
    map(1, "tags", Type::Text),
    one(2, "instances", Type::Uint32),
    one(3, "mesh", Type::Text),
    one(4, "externalService", Type::Bool),
]);

pub(super) static ZONE_EGRESS: ProtoKind = ProtoKind {
    name: "kuma.mesh.v1alpha1.ZoneEgress",
    message: Message(&[one(1, "zone", Type::Text), one(2, "networking", Type::Message(&EGRESS_NETWORKING))]),
};

static EGRESS_NETWORKING: Message = Message(&[
    one(1, "address", Type::Text),
    one(2, "port", Type::Uint32),
    one(3, "admin", Type::Message(&ENVOY_ADMIN)),
]);

/// Dataplanes have one, too.
pub(super) static ENVOY_ADMIN: Message = Message(&[one(1, "port", Type::Uint32)]);
