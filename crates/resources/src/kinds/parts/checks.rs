//! The checks and message texts many kinds share.

use crate::kinds::open_enum::OpenEnum;
use crate::{Path, Subject, Violations, duration::GoDuration, naming::dns};

pub(crate) const MUST_BE_DEFINED: &str = "must be defined";
pub(crate) const MUST_NOT_BE_DEFINED: &str = "must not be defined";
pub(crate) const MUST_BE_SET: &str = "must be set";
pub(crate) const MUST_NOT_BE_SET: &str = "must not be set";
pub(crate) const MUST_NOT_BE_EMPTY: &str = "must not be empty";
/// About `from` of a policy that has `to` for gateways.
pub(crate) const FROM_OF_GATEWAYS: &str = "must not be defined when the scope includes a Gateway, select only \
     proxyType Sidecar or select only gateways and use spec.to";
pub(crate) const EXTERNAL_FOR_ALL: &str = "kind MeshExternalService is only allowed with targetRef.kind: Mesh as it \
     is configured on the Zone Egress and shared by all clients in the mesh";
const MAX_SERVICE_NAME: usize = 63;

/// `"mode" must be one of ["a", "b"]`.
pub(crate) fn must_be_one_of(field: &str, words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("{field:?} must be one of [{}]", quoted.join(", "))
}

/// Checks that a word the user must give is one the enumeration knows.
pub(crate) fn known<E: OpenEnum>(value: &E, parent: &Path, field: &str, found: &mut Violations) {
    if !value.is_known() {
        found.add(parent.field(field), must_be_one_of(field, E::WORDS));
    }
}

/// Checks a TCP port number.
pub(crate) fn port(value: u32, path: &Path, found: &mut Violations) {
    found.require((1..=65535).contains(&value), path, "port must be a valid (1-65535)");
}

/// Checks the length of the name users gave a service, which becomes one DNS label.
pub(crate) fn service_name(subject: Subject<'_>, found: &mut Violations) {
    found.require(
        subject.display_name().len() <= MAX_SERVICE_NAME,
        "name",
        format!("must not be longer than {MAX_SERVICE_NAME} characters"),
    );
}

/// Checks a name that is matched against TLS server names.
pub(crate) fn rfc1123_subdomain(value: &str, path: &Path, found: &mut Violations) {
    for message in dns::rfc1123_subdomain_errors(value) {
        found.add(path, message);
    }
}

/// Checks a duration that may be zero.
pub(crate) fn not_negative(value: Option<GoDuration>, path: &Path, found: &mut Violations) {
    found.require(value.is_none_or(|d| d.nanoseconds() >= 0), path, "must not be negative when defined");
}

/// Checks a duration for which zero has no meaning.
pub(crate) fn positive_duration(value: Option<GoDuration>, path: &Path, found: &mut Violations) {
    found.require(value.is_none_or(|d| d.nanoseconds() > 0), path, "must be greater than zero when defined");
}

/// Checks a number for which zero has no meaning.
pub(crate) fn positive(value: Option<u32>, path: &Path, found: &mut Violations) {
    found.require(value != Some(0), path, "must be greater than 0");
}
