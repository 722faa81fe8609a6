use super::{Message, ProtoKind, Type, Words, many, map, one, ours, words};

pub(super) static DATAPLANE_INSIGHT: ProtoKind = ProtoKind {
    name: "kuma.mesh.v1alpha1.DataplaneInsight",
    message: Message(&[
        many(1, "subscriptions", Type::Message(&SUBSCRIPTION)),
        one(2, "mTLS", Type::Message(&CERTIFICATE)),
        one(3, "metadata", Type::Struct),
        one(4, "openTelemetry", Type::Message(&OPEN_TELEMETRY)),
    ]),
};

pub(super) static ZONE_INGRESS_INSIGHT: ProtoKind =
    ProtoKind { name: "kuma.mesh.v1alpha1.ZoneIngressInsight", message: ZONE_PROXY_INSIGHT };

pub(super) static ZONE_EGRESS_INSIGHT: ProtoKind =
    ProtoKind { name: "kuma.mesh.v1alpha1.ZoneEgressInsight", message: ZONE_PROXY_INSIGHT };

const ZONE_PROXY_INSIGHT: Message =
    Message(&[many(1, "subscriptions", Type::Message(&SUBSCRIPTION)), one(2, "metadata", Type::Struct)]);

static SUBSCRIPTION: Message = Message(&[
    one(1, "id", Type::Text),
    one(2, "controlPlaneInstanceId", Type::Text),
    one(3, "connectTime", Type::Timestamp),
    one(4, "disconnectTime", Type::Timestamp),
    one(5, "status", Type::Message(&DISCOVERY_STATUS)),
    one(6, "version", Type::Message(&VERSION)),
    one(7, "generation", Type::Uint32),
    ours(1, one(0, "controlPlaneAddress", Type::Text)),
]);

static DISCOVERY_STATUS: Message = Message(&[
    one(1, "lastUpdateTime", Type::Timestamp),
    one(2, "total", Type::Message(&RESPONSE_COUNTS)),
    one(3, "cds", Type::Message(&RESPONSE_COUNTS)),
    one(4, "eds", Type::Message(&RESPONSE_COUNTS)),
    one(5, "lds", Type::Message(&RESPONSE_COUNTS)),
    one(6, "rds", Type::Message(&RESPONSE_COUNTS)),
    ours(1, one(0, "sds", Type::Message(&RESPONSE_COUNTS))),
    ours(2, many(0, "rejections", Type::Message(&REJECTION))),
]);

static RESPONSE_COUNTS: Message = Message(&[
    one(1, "responsesSent", Type::Uint64),
    one(2, "responsesAcknowledged", Type::Uint64),
    one(3, "responsesRejected", Type::Uint64),
]);

/// Kuma has none.
static REJECTION: Message = Message(&[
    one(1, "type", Type::Text),
    one(2, "name", Type::Text),
    one(3, "kri", Type::Text),
    many(4, "policies", Type::Text),
    one(5, "message", Type::Text),
    one(6, "time", Type::Timestamp),
]);

static VERSION: Message = Message(&[
    one(1, "kumaDp", Type::Message(&KUMA_DP_VERSION)),
    one(2, "envoy", Type::Message(&ENVOY_VERSION)),
    map(3, "dependencies", Type::Text),
]);

static KUMA_DP_VERSION: Message = Message(&[
    one(1, "version", Type::Text),
    one(2, "gitTag", Type::Text),
    one(3, "gitCommit", Type::Text),
    one(4, "buildDate", Type::Text),
    one(5, "kumaCpCompatible", Type::Bool),
]);

static ENVOY_VERSION: Message = Message(&[
    one(1, "version", Type::Text),
    one(2, "build", Type::Text),
    one(3, "kumaDpCompatible", Type::Bool),
]);

static CERTIFICATE: Message = Message(&[
    one(1, "certificateExpirationTime", Type::Timestamp),
    one(2, "lastCertificateRegeneration", Type::Timestamp),
    one(3, "certificateRegenerations", Type::Uint32),
    one(4, "issuedBackend", Type::Text),
    many(5, "supportedBackends", Type::Text),
]);

static OPEN_TELEMETRY: Message = Message(&[many(
    1,
    "backends",
    Type::Message(&Message(&[
        one(1, "name", Type::Text),
        one(2, "traces", Type::Message(&TELEMETRY_SIGNAL)),
        one(3, "logs", Type::Message(&TELEMETRY_SIGNAL)),
        one(4, "metrics", Type::Message(&TELEMETRY_SIGNAL)),
    ])),
)]);

static TELEMETRY_SIGNAL: Message = Message(&[
    one(1, "enabled", Type::Bool),
    one(2, "envAllowed", Type::Bool),
    one(3, "envInputPresent", Type::Bool),
    one(4, "state", Type::Text),
    many(5, "overrideKinds", Type::Text),
    many(6, "missingFields", Type::Text),
    many(7, "blockedReasons", Type::Text),
]);

pub(super) static SERVICE_INSIGHT: ProtoKind = ProtoKind {
    name: "kuma.mesh.v1alpha1.ServiceInsight",
    message: Message(&[map(2, "services", Type::Message(&SERVICE))]),
};

static SERVICE: Message = Message(&[
    one(1, "status", Type::Enum(&SERVICE_STATUS)),
    one(2, "dataplanes", Type::Message(&DATAPLANE_STAT)),
    map(3, "issuedBackends", Type::Uint32),
    one(4, "serviceType", Type::Enum(&SERVICE_TYPE)),
    one(5, "addressPort", Type::Text),
    many(6, "zones", Type::Text),
]);

/// Zero is a word that Kuma never uses; what we leave out has a number of its own.
static SERVICE_STATUS: Words = Words {
    words: &[(1, "offline"), (2, "partially_degraded"), (3, "online"), (4, "not_available")],
    absent: 4,
};

static SERVICE_TYPE: Words =
    words(&[(0, "internal"), (1, "external"), (2, "gateway_delegated"), (3, "gateway_builtin")]);

static DATAPLANE_STAT: Message = Message(&[
    one(1, "total", Type::Uint32),
    one(2, "online", Type::Uint32),
    one(3, "offline", Type::Uint32),
    ours(1, one(0, "partiallyDegraded", Type::Uint32)),
]);
