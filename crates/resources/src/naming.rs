//! Every name that leaves the control plane, built and read in one place.
//!
//! | Name | Module | Example |
//! |---|---|---|
//! | KRI, the identifier of a resource | [`kri`] | `kri_msvc_default_east__backend_http` |
//! | name of an object inside one proxy | [`self_name`] | `self_http` |
//! | name of an object the proxy needs for itself | [`system`] | `system_envoy_admin` |
//! | names from before these three | [`legacy`] | `inbound:10.0.0.1:80` |
//! | Kuma's spelling of a proxy's own objects, for those who ask | [`KumaSpelling`] | `self_inbound_dp_http` |
//! | SNI, the destination inside a TLS connection between zones | [`sni`] | `sni.msvc.default.backend.http` |
//! | name of a resource in a namespace | [`namespaced`] | `redis.kuma-demo` |
//! | name of a synchronised resource | [`kds`] | `foo-zxw6c95d42zfz9cc` |
//! | identity in a certificate | [`spiffe`] | `spiffe://default/backend` |
//! | hostname of a service that is called by its tag | [`service_hosts`] | `backend.mesh` |
//! | socket between an agent and its Envoy | [`socket`] | `kuma-mh-web-default.sock` |
//!
//! Parsers accept any string and never panic; [`classify`] tells which of these a proxy's name is.

pub mod choice;
mod classify;
pub mod dns;
mod fnv;
pub mod kds;
pub mod kri;
mod kuma_spelling;
pub mod legacy;
pub mod namespaced;
pub mod section;
pub mod self_name;
pub mod service_hosts;
pub mod sni;
pub mod socket;
pub mod spiffe;
pub mod system;

pub use choice::{NamingChoice, NamingSource, RecordedNaming};
pub use classify::{Class, classify, classify_stat};
pub use kri::{Fields as KriFields, Kri, ShortName};
pub use kuma_spelling::KumaSpelling;
pub use legacy::LegacyName;
pub use section::SectionName;
pub use self_name::{Direction, IpVersion, SelfName};
pub use spiffe::{SpiffeId, SpiffePrefix};
pub use system::SystemName;

/// The feature by which a proxy says that its objects have unified names, and how a later Kuma spells it.
pub const UNIFIED_NAMING: [&str; 2] =
    ["feature-unified-proxy-resources-and-stats-naming", "feature-unified-resource-naming"];

/// True if a proxy with these features has unified names.
pub fn unified_naming<'a>(features: impl IntoIterator<Item = &'a str>) -> bool {
    features.into_iter().any(|feature| UNIFIED_NAMING.contains(&feature))
}

/// A string that is not the name it was taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid identifier string: {0:?}")]
    KriShape(String),
    #[error("identifier must start with 'kri': {0:?}")]
    KriPrefix(String),
    #[error("unknown short name of resource type: {0:?}")]
    UnknownShortName(String),
    #[error("invalid section name {section:?}: {reason}")]
    Section { section: String, reason: &'static str },
    #[error(
        "cannot read {0:?} as a self_ name: expected self_<section> or self_passthrough_ipv4|6_inbound|outbound"
    )]
    SelfName(String),
    #[error("cannot read {0:?} as a system_ name: expected system_ and then a KRI or a-z, 0-9, '-' and '_'")]
    SystemName(String),
    #[error("cannot parse tags from sni: {0}")]
    SniBraces(String),
    #[error(
        "invalid format of tags, pairs should be separated by , and key should be separated from value by ="
    )]
    SniTags,
    #[error(
        "{0} has no SNI: only MeshService, MeshExternalService and MeshMultiZoneService are destinations"
    )]
    NotADestination(&'static str),
    #[error("cannot build an SNI for {kri}: {}", reasons.join(", "))]
    SniOfKri { kri: String, reasons: Vec<String> },
    #[error("cannot read {sni:?} as a KRI SNI: {reason}")]
    KriSni { sni: String, reason: String },
}

/// True for parts of a name that can be a hash of 64 bits: 16 lower-case hex digits.
fn is_hash(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
