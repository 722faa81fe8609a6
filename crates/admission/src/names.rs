//! Names that resources may have here.

use resources::{
    Draft, Kind, Violations,
    checks::{self, LONGEST_NAME},
    naming::dns,
};

use super::ControlPlaneRole;

pub fn validate(draft: &Draft, exists: bool, mode: &ControlPlaneRole, found: &mut Violations) {
    if let ControlPlaneRole::Zone { name: zone, federated: true } = mode {
        // Global shows the resource as `<zone>.<name>`.
        found.require(
            zone.len() + 1 + draft.key.name.len() < LONGEST_NAME,
            "name",
            "the length of the name must be shorter",
        );
    }
    checks::names(draft, exists, found);
}

/// Advice about a name that cannot be a part of a hostname.
pub fn warning(draft: &Draft) -> Option<String> {
    let kind = draft.kind();
    let named_by_hosts = matches!(
        kind,
        Kind::Mesh | Kind::MeshService | Kind::MeshExternalService | Kind::MeshMultiZoneService
    );
    let name = draft.subject().display_name();
    let errors = dns::rfc1035_label_errors(name);
    (named_by_hosts && !errors.is_empty()).then(|| {
        let errors = errors.join("; ");
        format!(
            "Invalid {kind} resource name: '{name}'. It does not conform to the DNS format (RFC 1035). This is \
             deprecated. Errors: {errors}"
        )
    })
}
