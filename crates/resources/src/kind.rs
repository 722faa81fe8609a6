//! The one table of kinds.
//!
//! Adding a kind is one row here and one file in [`crate::kinds`]; exhaustive matches elsewhere then
//! make the compiler list what the new kind must answer.

use std::{fmt, str::FromStr, sync::Arc};

use serde_json::Value;

use crate::{
    PolicyTraits, Schema, Subject, Violations,
    kinds::{self as k, target_ref::TargetRef},
    policy::{self, Policy},
};

mod administered;
mod words;

pub use administered::Administered;

/// Scope of a resource: one mesh, or the whole control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Global,
    Mesh,
}

/// Form of a kind on the wire: spec fields beside the metadata, or under `spec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Inline,
    Spec,
}

/// Control planes that may write a kind, and the directions of its synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sync {
    pub provided_by_global: bool,
    pub provided_by_zone: bool,
    pub global_to_zones: bool,
    pub zone_to_global: bool,
    pub across_zones: bool,
}

/// Everything that is the same for all resources of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    pub name: &'static str,
    /// The name in KRIs; kinds without one cannot be addressed by a KRI.
    pub short: Option<&'static str>,
    /// The collection's path in the REST API; empty for kinds that have none.
    pub path: &'static str,
    pub alias: Option<&'static str>,
    pub scope: Scope,
    pub form: Form,
    pub sync: Sync,
    pub policy: Option<PolicyTraits>,
    pub read_only: bool,
    pub administered: Administered,
    pub has_status: bool,
    /// The kind that reports on this one; `_overview` joins the two.
    pub insight: Option<Kind>,
}

const fn inline(name: &'static str, path: &'static str, scope: Scope) -> Descriptor {
    Descriptor {
        name,
        short: None,
        path,
        alias: None,
        scope,
        form: Form::Inline,
        sync: Sync {
            provided_by_global: false,
            provided_by_zone: false,
            global_to_zones: false,
            zone_to_global: false,
            across_zones: false,
        },
        policy: None,
        read_only: false,
        administered: Administered::Nothing,
        has_status: false,
        insight: None,
    }
}

const fn spec(name: &'static str, path: &'static str, scope: Scope) -> Descriptor {
    Descriptor { form: Form::Spec, ..inline(name, path, scope) }
}

/// A `targetRef` policy: mesh-scoped, writable on both sides, synchronised everywhere.
const fn policy(
    name: &'static str,
    path: &'static str,
    short: &'static str,
    traits: PolicyTraits,
) -> Descriptor {
    Descriptor {
        policy: Some(traits),
        ..spec(name, path, Scope::Mesh).short(short).global_to_zones().zone_to_global().across_zones()
    }
}

impl Descriptor {
    const fn short(self, short: &'static str) -> Self {
        Descriptor { short: Some(short), ..self }
    }
    const fn alias(self, alias: &'static str) -> Self {
        Descriptor { alias: Some(alias), ..self }
    }
    const fn provided_by_global(mut self) -> Self {
        self.sync.provided_by_global = true;
        self
    }
    const fn provided_by_zone(mut self) -> Self {
        self.sync.provided_by_zone = true;
        self
    }
    const fn global_to_zones(mut self) -> Self {
        self.sync.global_to_zones = true;
        self.provided_by_global()
    }
    const fn zone_to_global(mut self) -> Self {
        self.sync.zone_to_global = true;
        self.provided_by_zone()
    }
    const fn across_zones(mut self) -> Self {
        self.sync.across_zones = true;
        self
    }
    const fn read_only(self) -> Self {
        Descriptor { read_only: true, ..self }
    }
    const fn admin_only(self) -> Self {
        Descriptor { administered: Administered::Everything, ..self }
    }
    const fn admin_writes(self) -> Self {
        Descriptor { administered: Administered::Writes, ..self }
    }
    const fn with_status(self) -> Self {
        Descriptor { has_status: true, ..self }
    }
    const fn insight(self, kind: Kind) -> Self {
        Descriptor { insight: Some(kind), ..self }
    }
    const fn legacy_policy(self) -> Self {
        Descriptor { policy: Some(policy::VIRTUAL_OUTBOUND), ..self }
    }
}

macro_rules! kinds {
    ($($variant:ident($spec:ty) = $descriptor:expr;)*) => {
        /// Every kind of resource.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($variant),* }

        impl Kind {
            pub const ALL: &'static [Kind] = &[$(Kind::$variant),*];

            pub const fn descriptor(self) -> &'static Descriptor {
                match self { $(Kind::$variant => {
                    const DESCRIPTOR: Descriptor = $descriptor;
                    &DESCRIPTOR
                })* }
            }

            /// The JSON Schema of the kind's spec.
            pub fn json_schema(self, generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                match self { $(Kind::$variant => generator.subschema_for::<$spec>()),* }
            }

            /// The JSON Schema of the kind's status.
            pub fn status_schema(self, generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                match self {
                    $(Kind::$variant => generator.subschema_for::<<$spec as Schema>::Status>()),*
                }
            }
        }

        /// The spec of a resource of any kind.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Spec { $($variant(Arc<$spec>)),* }

        impl Spec {
            pub fn kind(&self) -> Kind {
                match self { $(Spec::$variant(_) => Kind::$variant),* }
            }

            /// Reads a spec that has the shape of its kind, as everything stored has; users' input is read by
            /// [`crate::format`]. Unknown fields are dropped and their paths reported through `unknown`.
            pub fn from_json(kind: Kind, value: Value, unknown: &mut Vec<String>) -> Result<Self, ShapeError> {
                match kind { $(Kind::$variant => {
                    let spec: $spec = decode(value, unknown)?;
                    Ok(Spec::$variant(Arc::new(spec)))
                })* }
            }

            pub fn to_json(&self) -> Value {
                match self { $(Spec::$variant(spec) => encode(spec.as_ref())),* }
            }

            pub fn apply_defaults(&mut self) {
                match self { $(Spec::$variant(spec) => Arc::make_mut(spec).apply_defaults()),* }
            }

            pub fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
                match self { $(Spec::$variant(spec) => spec.validate(subject, found)),* }
            }

            /// Deprecation warnings for the user who writes the resource.
            pub fn warnings(&self) -> Vec<String> {
                match self { $(Spec::$variant(spec) => spec.warnings()),* }
            }
        }

        impl serde::Serialize for Spec {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Spec::$variant(spec) => spec.as_ref().serialize(serializer)),* }
            }
        }

        impl serde::Serialize for Status {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Status::$variant(status) => status.as_ref().serialize(serializer)),* }
            }
        }

        /// The status of a resource of any kind.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Status { $($variant(Arc<<$spec as Schema>::Status>)),* }

        impl Status {
            pub fn from_json(kind: Kind, value: Value) -> Result<Self, ShapeError> {
                match kind { $(Kind::$variant => {
                    Ok(Status::$variant(Arc::new(decode(value, &mut Vec::new())?)))
                })* }
            }

            /// The status of a resource about which nothing is known yet.
            pub fn empty(kind: Kind) -> Self {
                match kind { $(Kind::$variant => Status::$variant(Arc::default())),* }
            }

            pub fn to_json(&self) -> Value {
                match self { $(Status::$variant(status) => encode(status.as_ref())),* }
            }
        }

        $(
            impl From<$spec> for Spec {
                fn from(spec: $spec) -> Spec { Spec::$variant(Arc::new(spec)) }
            }
            impl TypedSpec for $spec {
                const KIND: Kind = Kind::$variant;
                fn of(spec: &Spec) -> Option<&Self> {
                    match spec { Spec::$variant(spec) => Some(spec), _ => None }
                }
            }
        )*
    };
}

/// All kinds; policies stand apart, because each has a row in [`crate::policy`] too.
macro_rules! table {
    (
        kinds { $($kinds:tt)* }
        policies { $($variant:ident($spec:ty) = $path:expr, $short:expr, $traits:expr $(, $with:ident)?;)* }
    ) => {
        kinds! {
            $($kinds)*
            $($variant($spec) = policy(stringify!($variant), $path, $short, $traits)$(.$with())?;)*
        }

        impl Kind {
            /// The policies with a `targetRef`.
            pub const POLICIES: &'static [Kind] = &[$(Kind::$variant),*];
        }

        impl Spec {
            /// The reference at the top of a policy, `Some(None)` where it was left out, which means the
            /// whole mesh; `None` for kinds that aren't targetRef policies.
            #[allow(clippy::option_option, reason = "two absences: no policy, and a policy for the whole mesh")]
            pub fn target_ref(&self) -> Option<Option<&TargetRef>> {
                match self {
                    $(Spec::$variant(spec) => Some(Policy::target_ref(spec.as_ref())),)*
                    _ => None,
                }
            }
        }
    };
}

/// Access to a spec by its Rust type: `resource.spec.get::<Mesh>()`.
pub trait TypedSpec: Schema {
    const KIND: Kind;
    fn of(spec: &Spec) -> Option<&Self>;
}

impl Spec {
    pub fn get<T: TypedSpec>(&self) -> Option<&T> {
        T::of(self)
    }
}

use Scope::{Global, Mesh as InMesh};

table! {
    kinds {
        Mesh(k::mesh::Mesh) = inline("Mesh", "meshes", Global).short("m").global_to_zones();
        Dataplane(k::dataplane::Dataplane) =
            inline("Dataplane", "dataplanes", InMesh).short("dp").zone_to_global().insight(Kind::DataplaneInsight);
        DataplaneInsight(k::dataplane_insight::DataplaneInsight) =
            inline("DataplaneInsight", "dataplane-insights", InMesh).zone_to_global().read_only();
        Zone(k::zone::Zone) =
            inline("Zone", "zones", Global).short("z").provided_by_global().provided_by_zone().insight(Kind::ZoneInsight);
        ZoneInsight(k::zone_insight::ZoneInsight) =
            inline("ZoneInsight", "zone-insights", Global).provided_by_global().provided_by_zone().read_only();
        ZoneIngress(k::zone_ingress::ZoneIngress) =
            inline("ZoneIngress", "zoneingresses", Global).alias("zone-ingresses").short("zi")
                .zone_to_global().across_zones().insight(Kind::ZoneIngressInsight);
        ZoneIngressInsight(k::zone_proxy_insight::ZoneIngressInsight) =
            inline("ZoneIngressInsight", "zone-ingress-insights", Global).zone_to_global().read_only();
        ZoneEgress(k::zone_egress::ZoneEgress) =
            inline("ZoneEgress", "zoneegresses", Global).short("ze").zone_to_global().insight(Kind::ZoneEgressInsight);
        ZoneEgressInsight(k::zone_proxy_insight::ZoneEgressInsight) =
            inline("ZoneEgressInsight", "zoneegressinsights", Global).zone_to_global().read_only();
        MeshInsight(k::mesh_insight::MeshInsight) =
            inline("MeshInsight", "mesh-insights", Global).provided_by_global().read_only();
        ServiceInsight(k::service_insight::ServiceInsight) =
            inline("ServiceInsight", "service-insights", InMesh).global_to_zones().read_only();
        Secret(k::secret::Secret) =
            inline("Secret", "secrets", InMesh).global_to_zones().provided_by_zone().admin_only();
        GlobalSecret(k::secret::GlobalSecret) =
            inline("GlobalSecret", "globalsecrets", Global).alias("global-secrets")
                .global_to_zones().provided_by_zone().admin_only();
        Config(k::config::Config) = inline("Config", "", Global).global_to_zones().provided_by_zone();
        VirtualOutbound(k::virtual_outbound::VirtualOutbound) =
            inline("VirtualOutbound", "virtual-outbounds", InMesh).global_to_zones().legacy_policy();
        HostnameGenerator(k::hostname_generator::HostnameGenerator) =
            spec("HostnameGenerator", "hostnamegenerators", Global).short("hg").global_to_zones().zone_to_global();
        MeshService(k::mesh_service::MeshService) =
            spec("MeshService", "meshservices", InMesh).short("msvc").zone_to_global().across_zones().with_status();
        MeshExternalService(k::mesh_external_service::MeshExternalService) =
            spec("MeshExternalService", "meshexternalservices", InMesh).short("extsvc")
                .global_to_zones().zone_to_global().with_status();
        MeshMultiZoneService(k::mesh_multi_zone_service::MeshMultiZoneService) =
            spec("MeshMultiZoneService", "meshmultizoneservices", InMesh).short("mzsvc").global_to_zones().with_status();
        MeshIdentity(k::mesh_identity::MeshIdentity) =
            spec("MeshIdentity", "meshidentities", InMesh).short("mid")
                .global_to_zones().zone_to_global().with_status().admin_writes();
        MeshTrust(k::mesh_trust::MeshTrust) =
            spec("MeshTrust", "meshtrusts", InMesh).short("mtrust")
                .global_to_zones().zone_to_global().with_status().admin_writes();
        MeshOpenTelemetryBackend(k::mesh_open_telemetry_backend::MeshOpenTelemetryBackend) =
            spec("MeshOpenTelemetryBackend", "meshopentelemetrybackends", InMesh).short("motb")
                .global_to_zones().zone_to_global().with_status();
        Workload(k::workload::Workload) =
            spec("Workload", "workloads", InMesh).short("wl").zone_to_global().with_status();
        MeshZoneAddress(k::mesh_zone_address::MeshZoneAddress) =
            spec("MeshZoneAddress", "meshzoneaddresses", InMesh).short("mza").zone_to_global().across_zones();
    }
    policies {
        MeshAccessLog(k::mesh_access_log::MeshAccessLog) =
            "meshaccesslogs", "mal", policy::MESH_ACCESS_LOG, with_status;
        MeshCircuitBreaker(k::mesh_circuit_breaker::MeshCircuitBreaker) =
            "meshcircuitbreakers", "mcb", policy::MESH_CIRCUIT_BREAKER;
        MeshFaultInjection(k::mesh_fault_injection::MeshFaultInjection) =
            "meshfaultinjections", "mfi", policy::MESH_FAULT_INJECTION;
        MeshHealthCheck(k::mesh_health_check::MeshHealthCheck) =
            "meshhealthchecks", "mhc", policy::MESH_HEALTH_CHECK;
        MeshHTTPRoute(k::mesh_http_route::MeshHTTPRoute) =
            "meshhttproutes", "mhttpr", policy::MESH_HTTP_ROUTE;
        MeshLoadBalancingStrategy(k::mesh_load_balancing_strategy::MeshLoadBalancingStrategy) =
            "meshloadbalancingstrategies", "mlbs", policy::MESH_LOAD_BALANCING_STRATEGY;
        MeshMetric(k::mesh_metric::MeshMetric) = "meshmetrics", "mm", policy::MESH_METRIC, with_status;
        MeshPassthrough(k::mesh_passthrough::MeshPassthrough) =
            "meshpassthroughs", "mp", policy::MESH_PASSTHROUGH;
        MeshProxyPatch(k::mesh_proxy_patch::MeshProxyPatch) =
            "meshproxypatches", "mpp", policy::MESH_PROXY_PATCH;
        MeshRateLimit(k::mesh_rate_limit::MeshRateLimit) =
            "meshratelimits", "mrl", policy::MESH_RATE_LIMIT;
        MeshRetry(k::mesh_retry::MeshRetry) = "meshretries", "mr", policy::MESH_RETRY;
        MeshTCPRoute(k::mesh_tcp_route::MeshTCPRoute) =
            "meshtcproutes", "mtcpr", policy::MESH_TCP_ROUTE;
        MeshTLS(k::mesh_tls::MeshTLS) = "meshtlses", "mtls", policy::MESH_TLS;
        MeshTimeout(k::mesh_timeout::MeshTimeout) = "meshtimeouts", "mt", policy::MESH_TIMEOUT;
        MeshTrace(k::mesh_trace::MeshTrace) = "meshtraces", "mtr", policy::MESH_TRACE, with_status;
        MeshTrafficPermission(k::mesh_traffic_permission::MeshTrafficPermission) =
            "meshtrafficpermissions", "mtp", policy::MESH_TRAFFIC_PERMISSION;
    }
}

impl Kind {
    pub const COUNT: usize = Kind::ALL.len();

    pub fn name(self) -> &'static str {
        self.descriptor().name
    }

    /// True for kinds that record observations instead of wishes.
    pub fn is_insight(self) -> bool {
        self.name().ends_with("Insight")
    }

    pub fn by_name(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|k| k.name() == name)
    }

    /// By the REST collection, including its older spelling.
    pub fn by_path(path: &str) -> Option<Kind> {
        if path.is_empty() {
            return None;
        }
        Kind::ALL.iter().copied().find(|k| {
            let d = k.descriptor();
            d.path == path || d.alias == Some(path)
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Kind::by_name(name).ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown resource type {0:?}")]
pub struct UnknownKind(pub String);

/// A value of the wrong type, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ShapeError {
    pub path: String,
    pub message: String,
}

/// Decodes a spec, collecting the paths of fields that nothing read.
fn decode<T: serde::de::DeserializeOwned>(value: Value, unknown: &mut Vec<String>) -> Result<T, ShapeError> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let result = serde_ignored::deserialize(tracked, |path| unknown.push(spelled(&path)));
    result.map_err(|error: serde_json::Error| ShapeError {
        path: track.path().to_string(),
        message: crate::format::keys::hidden(&error.to_string()).into_owned(),
    })
}

/// The path in the same spelling as that of violations: `to[0].default`.
fn spelled(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", spelled(parent)),
        Path::Map { parent, key } => match spelled(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            spelled(parent)
        }
    }
}

pub(crate) fn encode<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| {
        // A spec is plain data with string keys, for which serde_json has no failure.
        debug_assert!(false, "encoding a spec failed: {error}");
        Value::Null
    })
}
