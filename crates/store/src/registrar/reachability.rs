//! Labels about trimming outbounds by permissions: when it may be asked for.
//!
//! They are checked when a user writes them. What arrives from another control plane is taken as it is;
//! there an unknown mode is ignored, and `enforce` without permissions has no effect.

use resources::{
    Draft, Key, Kind, Labels, Path, Resource, Violations, checks::sets_reachability_mode, labels,
};

use crate::Snapshot;

const ENFORCE: &str = "enforce";

/// Adds what is wrong with asking for trimming here. What the labels may say is checked with all others.
pub fn validate(draft: &Draft, existing: Option<&Resource>, snapshot: &Snapshot, found: &mut Violations) {
    let is_forced = |labels: &Labels| labels.get(labels::REACHABILITY_FORCE).is_some_and(|it| it == "true");
    match draft.kind() {
        Kind::Mesh => {
            let forced = is_forced(&draft.labels);
            validate_enforcing(draft, existing, (&draft.key.name, forced), snapshot, found);
        }
        Kind::Dataplane => {
            let mesh = snapshot.get(&Key::global(Kind::Mesh, &draft.key.mesh));
            let forced = mesh.is_some_and(|mesh| is_forced(&mesh.labels));
            validate_enforcing(draft, existing, (&draft.key.mesh, forced), snapshot, found);
        }
        _ => {}
    }
}

/// A mesh without permissions allows no call, so trimming by permissions would take everything away.
fn validate_enforcing(
    draft: &Draft,
    existing: Option<&Resource>,
    (mesh, forced): (&str, bool),
    snapshot: &Snapshot,
    found: &mut Violations,
) {
    let permitted = || snapshot.in_mesh(Kind::MeshTrafficPermission, mesh).next().is_some();
    // What was asked for before its permissions were deleted has no effect, and is no reason to refuse other changes.
    let asked_before = |label: &str| existing.is_some_and(|existing| asks(&existing.labels, label));
    let enforcing = draft.labels.keys().filter(|label| sets_reachability_mode(draft.kind(), label));
    let mut enforcing =
        enforcing.filter(|label| asks(&draft.labels, label) && !asked_before(label)).peekable();
    if forced || enforcing.peek().is_none() || permitted() {
        return;
    }
    for label in enforcing {
        let text = format!(
            "mesh {mesh:?} has no MeshTrafficPermission, so every service would be trimmed from {}: write permissions \
             first, set {:?} to see what would go, or force it with the label `{}: \"true\"` on the Mesh",
            if draft.kind() == Kind::Mesh { "every proxy" } else { "the proxy" },
            "report",
            labels::REACHABILITY_FORCE
        );
        found.add(Path::new("labels").key(label), text);
    }
}

fn asks(labels: &Labels, label: &str) -> bool {
    labels.get(label).is_some_and(|value| value == ENFORCE)
}
