//! Labels about trimming outbounds by permissions: what they may say, and when it may be asked for.
//!
//! They are checked when a user writes them. What arrives from another control plane is taken as it is; there an unknown
//! mode is as good as none, and `enforce` without permissions has no effect.

use resources::{Draft, Kind, Labels, Path, Resource, Violations, labels};

use crate::Snapshot;

const MODES: [&str; 4] = ["off", "report", "shadow", ENFORCE];
const ENFORCE: &str = "enforce";
const SWITCH: [&str; 2] = ["true", "false"];

/// Whether a label sets a mode: of the mesh or the proxy, or of one zone.
fn is_mode(kind: Kind, label: &str) -> bool {
    let of_zone = || label.strip_suffix(labels::REACHABILITY_MODE).is_some_and(|zone| zone.ends_with('.'));
    label == labels::REACHABILITY_MODE || kind == Kind::Mesh && of_zone()
}

/// Adds what is wrong with the labels of a draft about trimming.
pub fn validate(draft: &Draft, existing: Option<&Resource>, snapshot: &Snapshot, found: &mut Violations) {
    let kind = draft.kind();
    if !matches!(kind, Kind::Mesh | Kind::Dataplane) {
        return;
    }
    for (label, value) in &draft.labels {
        let known: &[&str] = match label.as_str() {
            label if is_mode(kind, label) => &MODES,
            labels::REACHABILITY_STUB => &SWITCH,
            labels::REACHABILITY_FORCE if kind == Kind::Mesh => &SWITCH,
            _ => continue,
        };
        if !known.contains(&value.as_str()) {
            let known = known.join(", ");
            found.add(
                Path::new("labels").key(label),
                format!("unknown value {value:?}, available values: {known}"),
            );
        }
    }
    if kind == Kind::Mesh {
        validate_enforcing(draft, existing, snapshot, found);
    }
}

/// A mesh without permissions allows no call, so trimming by permissions would take everything away.
fn validate_enforcing(
    draft: &Draft,
    existing: Option<&Resource>,
    snapshot: &Snapshot,
    found: &mut Violations,
) {
    let forced = draft.labels.get(labels::REACHABILITY_FORCE).is_some_and(|value| value == "true");
    let permitted = || snapshot.in_mesh(Kind::MeshTrafficPermission, &draft.key.name).next().is_some();
    // What was asked for before its permissions were deleted has no effect, and is no reason to refuse other changes.
    let asked_before = |label: &str| existing.is_some_and(|mesh| asks(&mesh.labels, label));
    let enforcing = draft.labels.keys().filter(|label| is_mode(Kind::Mesh, label));
    let mut enforcing =
        enforcing.filter(|label| asks(&draft.labels, label) && !asked_before(label)).peekable();
    if forced || enforcing.peek().is_none() || permitted() {
        return;
    }
    for label in enforcing {
        let text = format!(
            "mesh {:?} has no MeshTrafficPermission, so every service would be trimmed from every proxy: write permissions \
             first, set {:?} to see what would go, or force it with the label `{}: \"true\"`",
            draft.key.name,
            "report",
            labels::REACHABILITY_FORCE
        );
        found.add(Path::new("labels").key(label), text);
    }
}

fn asks(labels: &Labels, label: &str) -> bool {
    labels.get(label).is_some_and(|value| value == ENFORCE)
}
