//! Labels about trimming outbounds by permissions: when it may be asked for.
//!
//! They are checked when a user writes them. What arrives from another control plane is taken as it is;
//! there an unknown mode is ignored, and `enforce` without permissions has no effect.

use resources::{
    Draft, Key, Kind, Labels, Path, Resource, Violations, checks::sets_reachability_mode, labels,
};

use store::Snapshot;

const ENFORCE: &str = "enforce";

/// Adds what is wrong with asking for trimming here. What the labels may say is checked with all others.
pub fn validate(draft: &Draft, existing: Option<&Resource>, snapshot: &Snapshot, found: &mut Violations) {
    if draft.kind() != Kind::Mesh || is_forced(&draft.labels) || has_permissions(snapshot, &draft.key.name) {
        return;
    }
    // What was asked for before its permissions were deleted has no effect, and is no reason to refuse other changes.
    let asked_before = |label: &str| existing.is_some_and(|existing| asks(&existing.labels, label));
    let modes = draft.labels.keys().filter(|label| sets_reachability_mode(Kind::Mesh, label));
    for label in modes.filter(|label| asks(&draft.labels, label) && !asked_before(label)) {
        let text = format!(
            "mesh {:?} has no MeshTrafficPermission, so every service would be trimmed from every proxy: write \
             permissions first, set {:?} to see what would go, or force it with the label `{}: \"true\"`",
            draft.key.name,
            "report",
            labels::REACHABILITY_FORCE
        );
        found.add(Path::new("labels").key(label), text);
    }
}

/// Advice for the writer of a Dataplane. Refusing it would keep a proxy from registering again after the last
/// permission of its mesh was deleted; without permissions its mode has no effect.
pub fn warning(draft: &Draft, snapshot: &Snapshot) -> Option<String> {
    let mesh = snapshot.get(&Key::global(Kind::Mesh, &draft.key.mesh));
    let has_no_effect = draft.kind() == Kind::Dataplane
        && asks(&draft.labels, labels::REACHABILITY_MODE)
        && !mesh.is_some_and(|mesh| is_forced(&mesh.labels))
        && !has_permissions(snapshot, &draft.key.mesh);
    has_no_effect.then(|| {
        format!(
            "the label `{}: {ENFORCE}` has no effect: mesh {:?} has no MeshTrafficPermission, so every service would be \
             trimmed from the proxy; write permissions, or force it with the label `{}: \"true\"` on the Mesh",
            labels::REACHABILITY_MODE,
            draft.key.mesh,
            labels::REACHABILITY_FORCE
        )
    })
}

fn is_forced(labels: &Labels) -> bool {
    labels.get(labels::REACHABILITY_FORCE).is_some_and(|value| value == "true")
}

/// A mesh without permissions allows no call, so trimming by permissions would remove everything.
fn has_permissions(snapshot: &Snapshot, mesh: &str) -> bool {
    snapshot.in_mesh(Kind::MeshTrafficPermission, mesh).next().is_some()
}

fn asks(labels: &Labels, label: &str) -> bool {
    labels.get(label).is_some_and(|value| value == ENFORCE)
}
