use super::{Field, Message, ProtoKind, Type, Words, many, map, one, words};

pub(super) static MESH: ProtoKind = ProtoKind {
    name: "kuma.mesh.v1alpha1.Mesh",
    message: Message(&[
        one(1, "mtls", Type::Message(&MTLS)),
        one(2, "tracing", Type::Message(&Message(&backends("defaultBackend", &TRACING_BACKEND)))),
        one(3, "logging", Type::Message(&Message(&backends("defaultBackend", &LOGGING_BACKEND)))),
        one(4, "metrics", Type::Message(&Message(&backends("enabledBackend", &METRICS_BACKEND)))),
        one(5, "networking", Type::Message(&NETWORKING)),
        one(6, "routing", Type::Message(&ROUTING)),
        one(7, "constraints", Type::Message(&CONSTRAINTS)),
        many(8, "skipCreatingInitialPolicies", Type::Text),
        one(9, "meshServices", Type::Message(&Message(&[one(1, "mode", Type::Enum(&MESH_SERVICES_MODE))]))),
    ]),
};

/// Several backends of which one is chosen.
const fn backends(chosen: &'static str, backend: &'static Message) -> [Field; 2] {
    [one(1, chosen, Type::Text), many(2, "backends", Type::Message(backend))]
}

static MTLS: Message = Message(&[
    one(1, "enabledBackend", Type::Text),
    many(2, "backends", Type::Message(&CERTIFICATE_AUTHORITY)),
    one(3, "skipValidation", Type::Bool),
]);

static CERTIFICATE_AUTHORITY: Message = Message(&[
    one(1, "name", Type::Text),
    one(2, "type", Type::Text),
    one(3, "dpCert", Type::Message(&DP_CERT)),
    one(4, "conf", Type::Struct),
    one(5, "mode", Type::Enum(&MTLS_MODE)),
    one(6, "rootChain", Type::Message(&Message(&[one(1, "requestTimeout", Type::Duration)]))),
]);

static DP_CERT: Message = Message(&[
    one(1, "rotation", Type::Message(&Message(&[one(1, "expiration", Type::Text)]))),
    one(2, "requestTimeout", Type::Duration),
]);

static MTLS_MODE: Words = words(&[(0, "STRICT"), (1, "PERMISSIVE")]);

static TRACING_BACKEND: Message = Message(&[
    one(1, "name", Type::Text),
    one(2, "sampling", Type::Wrapped(&Type::Double)),
    one(3, "type", Type::Text),
    one(4, "conf", Type::Struct),
]);

static LOGGING_BACKEND: Message = Message(&[
    one(1, "name", Type::Text),
    one(2, "format", Type::Text),
    one(3, "type", Type::Text),
    one(4, "conf", Type::Struct),
]);

/// Dataplanes have one, too.
pub(super) static METRICS_BACKEND: Message =
    Message(&[one(1, "name", Type::Text), one(2, "type", Type::Text), one(3, "conf", Type::Struct)]);

static NETWORKING: Message = Message(&[one(
    1,
    "outbound",
    Type::Message(&Message(&[one(1, "passthrough", Type::Wrapped(&Type::Bool))])),
)]);

static ROUTING: Message = Message(&[
    one(1, "localityAwareLoadBalancing", Type::Bool),
    one(2, "zoneEgress", Type::Bool),
    one(3, "defaultForbidMeshExternalServiceAccess", Type::Bool),
]);

static CONSTRAINTS: Message = Message(&[one(
    1,
    "dataplaneProxy",
    Type::Message(&Message(&[
        many(1, "requirements", Type::Message(&TAG_RULE)),
        many(2, "restrictions", Type::Message(&TAG_RULE)),
    ])),
)]);

static TAG_RULE: Message = Message(&[map(1, "tags", Type::Text)]);

static MESH_SERVICES_MODE: Words =
    words(&[(0, "Disabled"), (1, "Everywhere"), (2, "ReachableBackends"), (3, "Exclusive")]);
