use super::{
    Message, ProtoKind, Type, Words, many, map, mesh::METRICS_BACKEND, one, ours, words,
    zone_proxy::ENVOY_ADMIN,
};

pub(super) static DATAPLANE: ProtoKind = ProtoKind {
    name: "kuma.mesh.v1alpha1.Dataplane",
    message: Message(&[
        one(1, "networking", Type::Message(&NETWORKING)),
        one(2, "metrics", Type::Message(&METRICS_BACKEND)),
        one(3, "probes", Type::Message(&PROBES)),
    ]),
};

static NETWORKING: Message = Message(&[
    many(1, "inbound", Type::Message(&INBOUND)),
    many(2, "outbound", Type::Message(&OUTBOUND)),
    one(3, "gateway", Type::Message(&GATEWAY)),
    one(4, "transparentProxying", Type::Message(&TRANSPARENT_PROXYING)),
    one(5, "address", Type::Text),
    one(7, "advertisedAddress", Type::Text),
    one(8, "admin", Type::Message(&ENVOY_ADMIN)),
    many(9, "listeners", Type::Message(&LISTENER)),
]);

static INBOUND: Message = Message(&[
    map(2, "tags", Type::Text),
    one(3, "port", Type::Uint32),
    one(4, "servicePort", Type::Uint32),
    one(5, "address", Type::Text),
    one(6, "serviceAddress", Type::Text),
    one(7, "health", Type::Message(&Message(&[one(1, "ready", Type::Bool)]))),
    one(8, "serviceProbe", Type::Message(&SERVICE_PROBE)),
    one(9, "state", Type::Enum(&INBOUND_STATE)),
    one(10, "name", Type::Text),
    one(11, "protocol", Type::Text),
]);

static SERVICE_PROBE: Message = Message(&[
    one(1, "interval", Type::Duration),
    one(2, "timeout", Type::Duration),
    one(3, "unhealthyThreshold", Type::Wrapped(&Type::Uint32)),
    one(4, "healthyThreshold", Type::Wrapped(&Type::Uint32)),
    one(5, "tcp", Type::Message(&Message(&[]))),
]);

static INBOUND_STATE: Words = words(&[(0, "Ready"), (1, "NotReady"), (2, "Ignored")]);

static OUTBOUND: Message = Message(&[
    one(3, "address", Type::Text),
    one(4, "port", Type::Uint32),
    map(5, "tags", Type::Text),
    one(6, "backendRef", Type::Message(&BACKEND_REF)),
    ours(1, one(0, "hostname", Type::Text)),
]);

static BACKEND_REF: Message = Message(&[
    one(1, "kind", Type::Text),
    one(2, "name", Type::Text),
    one(3, "port", Type::Uint32),
    map(4, "labels", Type::Text),
]);

static GATEWAY: Message = Message(&[map(1, "tags", Type::Text), one(2, "type", Type::Enum(&GATEWAY_TYPE))]);

static GATEWAY_TYPE: Words = words(&[(0, "DELEGATED"), (1, "BUILTIN")]);

static TRANSPARENT_PROXYING: Message = Message(&[
    one(1, "redirectPortInbound", Type::Uint32),
    one(2, "redirectPortOutbound", Type::Uint32),
    many(3, "directAccessServices", Type::Text),
    many(5, "reachableServices", Type::Text),
    one(6, "ipFamilyMode", Type::Enum(&IP_FAMILY_MODE)),
    one(
        7,
        "reachableBackends",
        Type::Message(&Message(&[many(1, "refs", Type::Message(&REACHABLE_BACKEND))])),
    ),
]);

static IP_FAMILY_MODE: Words = words(&[(0, "UnSpecified"), (1, "DualStack"), (2, "IPv4"), (3, "IPv6")]);

static REACHABLE_BACKEND: Message = Message(&[
    one(1, "kind", Type::Text),
    one(2, "name", Type::Text),
    one(3, "namespace", Type::Text),
    one(4, "port", Type::Wrapped(&Type::Uint32)),
    map(5, "labels", Type::Text),
]);

static LISTENER: Message = Message(&[
    one(1, "type", Type::Enum(&LISTENER_TYPE)),
    one(2, "address", Type::Text),
    one(3, "port", Type::Uint32),
    one(4, "name", Type::Text),
    one(5, "state", Type::Enum(&LISTENER_STATE)),
]);

static LISTENER_TYPE: Words = words(&[(0, "Unspecified"), (1, "ZoneIngress"), (2, "ZoneEgress")]);

static LISTENER_STATE: Words = words(&[(0, "Ready"), (1, "NotReady")]);

static PROBES: Message =
    Message(&[one(1, "port", Type::Uint32), many(2, "endpoints", Type::Message(&PROBE_ENDPOINT))]);

static PROBE_ENDPOINT: Message = Message(&[
    one(1, "inboundPort", Type::Uint32),
    one(2, "inboundPath", Type::Text),
    one(3, "path", Type::Text),
]);
