//! A mesh: how its proxies identify themselves and what they do by default.

use std::{collections::BTreeSet, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    duration::ProtoDuration,
    kinds::{
        proto::{Struct, is_default, proto_enum},
        tags::{self, Need, Tags},
    },
    naming::dns,
};

mod access_log_format;
pub mod observability;
pub use observability::{Logging, Metrics, MetricsBackend, Tracing};

const ONE_OF_BACKENDS: &str = "has to be set to one of the backends in the mesh";

/// A mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Mesh {
    /// Mutual TLS between the proxies of the mesh; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtls: Option<Mtls>,
    /// Kept and without effect; MeshTrace replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Tracing>,
    /// Kept and without effect; MeshAccessLog replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,
    /// Kept and without effect; MeshMetric replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Traffic that leaves the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking: Option<Networking>,
    /// Routing between zones and to external services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Conditions on proxies that join the mesh; all may join by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    /// Kinds of policies the control plane does not create with the mesh; `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip_creating_initial_policies: Vec<String>,
    /// Use of MeshServices in place of the tag `kuma.io/service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_services: Option<MeshServices>,
}

/// Authorities that issue certificates to the proxies of a mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Mtls {
    /// The backend in use; mTLS is off without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub enabled_backend: String,
    /// Certificate authorities; all of them are trusted, and the enabled one signs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<CertificateAuthorityBackend>,
    /// Do not check that the enabled backend works before storing the mesh.
    #[serde(skip_serializing_if = "is_default")]
    pub skip_validation: bool,
}

/// A certificate authority.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateAuthorityBackend {
    /// A name that is unique in the mesh.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Source of the authority's key: `builtin` lets the control plane make one, `provided` takes one of
    /// yours.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Settings of the certificates of proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_cert: Option<DpCert>,
    /// Settings of the type: `caCert` of `builtin`, `cert` and `key` of `provided`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<Struct>,
    /// Treatment of plain traffic at inbounds: refused (`STRICT`, the default) or accepted too
    /// (`PERMISSIVE`).
    #[serde(skip_serializing_if = "is_default")]
    pub mode: MtlsMode,
    /// Kept and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_chain: Option<RootChain>,
}

proto_enum! {
    /// Treatment of plain traffic at inbounds.
    pub enum MtlsMode { Strict = "STRICT", Permissive = "PERMISSIVE" }
}

/// The certificates of proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DpCert {
    /// Lifetime of certificates, and so the interval of their replacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// Kept and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<ProtoDuration>,
}

/// Lifetime of certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rotation {
    /// Lifetime of a certificate, such as `1d` or `2h30m`; 24h by default. It is replaced before it expires.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expiration: String,
}

/// The chain of the root certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RootChain {
    /// Kept and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<ProtoDuration>,
}

/// Traffic to and from outside the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Networking {
    /// Traffic that leaves the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbound: Option<OutboundTraffic>,
}

/// Traffic that leaves the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OutboundTraffic {
    /// Let applications call destinations that the mesh does not know; on by default. MeshPassthrough narrows
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passthrough: Option<bool>,
}

/// Routing between zones and to external services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Routing {
    /// Prefer endpoints of the client's zone; off by default. MeshLoadBalancingStrategy overrides it.
    #[serde(skip_serializing_if = "is_default")]
    pub locality_aware_load_balancing: bool,
    /// Send traffic to other zones and external services through a zone egress; off by default.
    #[serde(skip_serializing_if = "is_default")]
    pub zone_egress: bool,
    /// Refuse calls of MeshExternalServices at the zone egress unless a MeshTrafficPermission allows them;
    /// off by default.
    #[serde(skip_serializing_if = "is_default")]
    pub default_forbid_mesh_external_service_access: bool,
}

/// Conditions for joining the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Constraints {
    /// Conditions on the tags of data plane proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_proxy: Option<DataplaneProxyConstraints>,
}

/// Conditions on proxies: one that joins meets at least one requirement and no restriction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneProxyConstraints {
    /// Proxies must meet one of these; without any, all do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<TagRule>,
    /// Proxies must meet none of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restrictions: Vec<TagRule>,
}

/// Tags a proxy has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TagRule {
    /// Tags that every inbound must have; `*` stands for any value.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
}

/// Generation and use of MeshServices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshServices {
    /// Destinations that proxies know; only those by `kuma.io/service` (`Disabled`) by default, only
    /// MeshServices with `Exclusive`.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: MeshServicesMode,
}

proto_enum! {
    /// Progress of a mesh from `kuma.io/service` to MeshServices.
    pub enum MeshServicesMode {
        Disabled = "Disabled",
        Everywhere = "Everywhere",
        ReachableBackends = "ReachableBackends",
        Exclusive = "Exclusive",
    }
}

impl Mesh {
    /// True if clients need a permission to call destinations outside the mesh.
    pub fn forbids_external_services(&self) -> bool {
        self.routing.as_ref().is_some_and(|routing| routing.default_forbid_mesh_external_service_access)
    }

    /// A mesh that does not say is one from before MeshServices.
    pub fn mesh_services_mode(&self) -> MeshServicesMode {
        self.mesh_services.as_ref().map_or(MeshServicesMode::Disabled, |services| services.mode)
    }

    /// The certificate authority in use; `None` when mTLS is off.
    pub fn enabled_backend(&self) -> Option<&CertificateAuthorityBackend> {
        let mtls = self.mtls.as_ref()?;
        mtls.backends.iter().find(|backend| backend.name == mtls.enabled_backend)
    }

    pub fn passthrough(&self) -> bool {
        let outbound = self.networking.as_ref().and_then(|n| n.outbound.as_ref());
        outbound.and_then(|o| o.passthrough).unwrap_or(true)
    }

    pub fn zone_egress(&self) -> bool {
        self.routing.as_ref().is_some_and(|routing| routing.zone_egress)
    }

    /// True if the control plane creates this kind of policy together with the mesh.
    pub fn creates_initial_policy(&self, kind: &str) -> bool {
        !self.skip_creating_initial_policies.iter().any(|skipped| skipped == "*" || skipped == kind)
    }
}

impl Schema for Mesh {
    type Status = NoStatus;

    fn apply_defaults(&mut self) {
        for backend in self.metrics.iter_mut().flat_map(|metrics| &mut metrics.backends) {
            backend.apply_defaults();
        }
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        if let Some(mtls) = &self.mtls {
            mtls.validate(subject.name, &Path::new("mtls"), found);
        }
        if let Some(logging) = &self.logging {
            logging.validate(&Path::new("logging"), found);
        }
        if let Some(tracing) = &self.tracing {
            tracing.validate(&Path::new("tracing"), found);
        }
        if let Some(metrics) = &self.metrics {
            metrics.validate(&Path::new("metrics"), found);
        }
        if let Some(proxies) = self.constraints.as_ref().and_then(|c| c.dataplane_proxy.as_ref()) {
            let path = Path::new("constraints").field("dataplaneProxy");
            for (rules, field) in
                [(&proxies.requirements, "requirements"), (&proxies.restrictions, "restrictions")]
            {
                for (i, rule) in rules.iter().enumerate() {
                    let path = path.field(field).index(i).field("tags");
                    tags::check_selector(&rule.tags, Need::AnyTag, &path, found);
                }
            }
        }
        let mtls_is_on = self.mtls.as_ref().is_some_and(|mtls| !mtls.enabled_backend.is_empty());
        found.require(!self.zone_egress() || mtls_is_on, "mtls", "has to be set when zoneEgress enabled");
    }

    fn warnings(&self) -> Vec<String> {
        let sections = [
            (self.metrics.is_some(), "metrics", "MeshMetric", METRICS_INSTEAD),
            (self.logging.is_some(), "logging", "MeshAccessLog", ""),
            (self.tracing.is_some(), "tracing", "MeshTrace", ""),
        ];
        let given = sections.into_iter().filter(|(given, ..)| *given);
        given.map(|(_, section, policy, instead)| without_effect(section, policy, instead)).collect()
    }
}

/// Advice to get metrics without any policy.
pub(crate) const METRICS_INSTEAD: &str = "; kuma-dp serves metrics with --metrics-address";

/// The warning about a section that is stored for others to read.
pub(crate) fn without_effect(section: &str, policy: &str, instead: &str) -> String {
    format!("{section} is kept and has no effect; {policy} replaces it{instead}")
}

const NOT_A_LIFETIME: &str = "has to be a valid format";
/// X.509 counts whole seconds, so below this there is no time left to rotate.
pub const SHORTEST_LIFETIME: Duration = Duration::from_secs(2);
/// About 292 years, as in Go.
const LONGEST_LIFETIME: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());
const LONGEST_SECRET: usize = 255;

/// Each builtin one costs a key, and every proxy of the mesh is sent the roots of all.
const MOST_BACKENDS: usize = 16;

impl Mtls {
    fn validate(&self, mesh: &str, path: &Path, found: &mut Violations) {
        let few = self.backends.len() <= MOST_BACKENDS;
        found.require(few, path.field("backends"), format!("cannot have more than {MOST_BACKENDS} items"));
        let mut names = BTreeSet::new();
        for (i, backend) in self.backends.iter().enumerate() {
            let at = path.field("backends").index(i);
            check_unused(&backend.name, &mut names, &at, found);
            if let Some(certificate) = &backend.dp_cert {
                let expiration = certificate.rotation.as_ref().map_or("", |r| &r.expiration);
                // The path is Kuma's, which does not say which backend.
                let path = path.field("dpcert.rotation.expiration");
                match parse_lifetime(expiration) {
                    None => found.add(path, NOT_A_LIFETIME),
                    Some(lifetime) => {
                        found.require(lifetime >= SHORTEST_LIFETIME, path, "has to be at least 2s");
                    }
                }
            }
            backend.validate(mesh, &at, found);
        }
        check_chosen(&self.enabled_backend, &names, &path.field("enabledBackend"), ONE_OF_BACKENDS, found);
    }
}

impl CertificateAuthorityBackend {
    fn validate(&self, mesh: &str, path: &Path, found: &mut Violations) {
        match self.kind.as_str() {
            "builtin" => {
                self.check_secret_name(mesh, &path.field("name"), found);
                self.check_authority(&path.field("conf").field("caCert"), found);
            }
            "provided" => {
                for field in ["cert", "key"] {
                    let source = self.conf.as_ref().and_then(|conf| conf.get(field));
                    let path = path.field("conf").field(field);
                    match source {
                        None => found.add(path, "has to be defined"),
                        Some(source) => check_data_source(source, &path, found),
                    }
                }
            }
            _ => found.add(path.field("type"), "could not find installed plugin for this type"),
        }
    }
}

impl CertificateAuthorityBackend {
    /// Checks that the authority's Secrets can have the name that they get.
    fn check_secret_name(&self, mesh: &str, path: &Path, found: &mut Violations) {
        // The checks of names refuse a mesh without one.
        if mesh.is_empty() {
            return;
        }
        let name = builtin_certificate(mesh, &self.name);
        let few = name.len() <= LONGEST_SECRET;
        found.require(few, path, format!("Backend name is too long. Max length: {LONGEST_SECRET}"));
        let is_name = dns::is_dns_name(&name) && !name.bytes().any(|letter| letter.is_ascii_uppercase());
        found.require(is_name, path, format!("{:?} name must be valid dns name", self.name));
    }

    /// Checks the settings of the authority's certificate, because an authority that cannot be made is missing
    /// without a word. Kuma has no limit of keys; making a longer one takes a processor for a minute.
    fn check_authority(&self, path: &Path, found: &mut Violations) {
        let given = self.conf.as_ref().and_then(|conf| conf.get("caCert")).filter(|given| !given.is_null());
        let Some(given) = given else { return };
        if !given.is_object() {
            found.add(path, "could not convert backend config: expected an object");
            return;
        }
        let setting = |name: &str| given.get(name).filter(|value| !value.is_null());
        let bits = setting("RSAbits");
        let number = bits.and_then(|bits| bits.as_f64().or_else(|| bits.as_str()?.parse().ok()));
        let known = number.is_some_and(|bits| [0.0, 2048.0, 3072.0, 4096.0].contains(&bits));
        found.require(bits.is_none() || known, path.field("RSAbits"), "has to be one of: 2048, 3072, 4096");
        let expiration = setting("expiration").filter(|given| given.as_str() != Some(""));
        let lifetime = expiration.and_then(|given| given.as_str()).and_then(parse_lifetime);
        let lives = lifetime.is_some_and(|lifetime| !lifetime.is_zero());
        found.require(expiration.is_none() || lives, path.field("expiration"), NOT_A_LIFETIME);
    }
}

/// The name of the Secret with the certificate of a `builtin` backend.
pub fn builtin_certificate(mesh: &str, backend: &str) -> String {
    format!("{mesh}.ca-builtin-cert-{backend}")
}

/// Checks that a place to read bytes from names a place.
fn check_data_source(source: &serde_json::Value, path: &Path, found: &mut Violations) {
    let chosen = ["secret", "file", "inline", "inlineString"]
        .iter()
        .any(|place| source.get(place).and_then(|v| v.as_str()).is_some_and(|text| !text.is_empty()));
    found.require(chosen, path, "data source cannot be empty");
}

/// Reports a name that an earlier backend has.
fn check_unused<'a>(name: &'a str, names: &mut BTreeSet<&'a str>, path: &Path, found: &mut Violations) {
    let message = format!("{name:?} name is already used for another backend");
    found.require(names.insert(name), path.field("name"), message);
}

/// Reports a choice of a backend that is not there; no choice at all is fine.
fn check_chosen(chosen: &str, names: &BTreeSet<&str>, path: &Path, message: &str, found: &mut Violations) {
    found.require(chosen.is_empty() || names.contains(chosen), path, message);
}

/// Reads a lifetime like `1y2w3d4h5m6s7ms`: units in this order, each at most once; `0` alone is zero. One of 293
/// years is no lifetime.
pub fn parse_lifetime(text: &str) -> Option<Duration> {
    const SECOND: u64 = 1_000;
    const DAY: u64 = 24 * 60 * 60 * SECOND;
    const UNITS: [(&str, u64); 7] = [
        ("y", 365 * DAY),
        ("w", 7 * DAY),
        ("d", DAY),
        ("h", 60 * 60 * SECOND),
        ("m", 60 * SECOND),
        ("s", SECOND),
        ("ms", 1),
    ];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut millis = 0u64;
    let mut units = &UNITS[..];
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let tail = &rest[digits..];
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let at = units.iter().position(|(unit, _)| *unit == &tail[..letters])?;
        millis = millis.checked_add(rest[..digits].parse::<u64>().ok()?.checked_mul(units[at].1)?)?;
        units = &units[at + 1..];
        rest = &tail[letters..];
    }
    let lifetime = Duration::from_millis(millis);
    (!text.is_empty() && lifetime <= LONGEST_LIFETIME).then_some(lifetime)
}

#[cfg(test)]
mod tests;
