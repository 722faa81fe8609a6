//! Checks of the name, mesh and labels of a draft that need no control plane.
//!
//! A control plane calls this when it admits a write, and `kumactl` before it sends one. Admission itself
//! checks whatever depends on the mode of the control plane or on stored resources.

use crate::{
    Draft, Form, Kind, Path, Scope, Violations, labels,
    naming::dns::{self, is_rfc1123_subdomain},
};

/// The longest name of a resource.
pub const LONGEST_NAME: usize = 253;

const NOT_A_SUBDOMAIN: &str = "invalid characters. A lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
     characters, '-' or '.', and must start and end with an alphanumeric character";
const NOT_A_NAME: &str =
    "invalid characters. Valid characters are numbers, lowercase latin letters and '-', '_', '.' symbols.";
const MODES: [&str; 4] = ["off", "report", "shadow", "enforce"];
const SWITCH: [&str; 2] = ["true", "false"];

/// Checks name and mesh. New names are DNS subdomains; what exists may have an older name with `_`.
pub fn names(draft: &Draft, exists: bool, found: &mut Violations) {
    let name = &*draft.key.name;
    if exists {
        check_name(name, "name", is_lenient, NOT_A_NAME, found);
    } else {
        check_name(name, "name", is_rfc1123_subdomain, NOT_A_SUBDOMAIN, found);
    }
    if draft.kind().descriptor().scope == Scope::Mesh {
        check_name(&draft.key.mesh, "mesh", is_lenient, NOT_A_NAME, found);
    }
}

fn check_name(name: &str, field: &str, is_valid: fn(&str) -> bool, otherwise: &str, found: &mut Violations) {
    if name.is_empty() {
        found.add(field, "cannot be empty");
    } else if name.len() > LONGEST_NAME {
        found.add(field, "value length must less or equal 253");
    } else if !is_valid(name) {
        found.add(field, otherwise);
    }
}

fn is_lenient(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'))
}

/// Checks the labels that the author gave.
pub fn labels(draft: &Draft, found: &mut Violations) {
    let path = Path::new("labels");
    let given = &draft.labels;
    if let Some(origin) = given.get(labels::ORIGIN)
        && origin != labels::ORIGIN_GLOBAL
        && origin != labels::ORIGIN_ZONE
    {
        found.add(path.key(labels::ORIGIN), format!("unknown resource origin {origin:?}"));
    }
    let descriptor = draft.kind().descriptor();
    if descriptor.form == Form::Spec
        && descriptor.policy.is_some()
        && let Some(role) = given.get(labels::POLICY_ROLE)
        && role != "system"
    {
        let key = labels::POLICY_ROLE;
        found.add(path.key(key), format!("{key} label should have system value, got {role}"));
    }
    for (key, value) in given {
        for message in dns::qualified_name_errors(key) {
            found.add(path.key(key), message);
        }
        for message in dns::label_value_errors(value) {
            found.add(path.key(key), message);
        }
    }
    if draft.kind() == Kind::Dataplane
        && let Some(workload) = given.get(labels::WORKLOAD)
    {
        for message in dns::rfc1035_label_errors(workload) {
            found.add(path.key(labels::WORKLOAD), message);
        }
    }
    reachability(draft, found);
}

/// Labels about trimming outbounds by permissions.
fn reachability(draft: &Draft, found: &mut Violations) {
    let kind = draft.kind();
    if !matches!(kind, Kind::Mesh | Kind::Dataplane) {
        return;
    }
    for (label, value) in &draft.labels {
        let known: &[&str] = match label.as_str() {
            label if sets_reachability_mode(kind, label) => &MODES,
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
}

/// True for labels that set the trimming mode of a mesh, of a proxy, or of one zone.
pub fn sets_reachability_mode(kind: Kind, label: &str) -> bool {
    let of_zone = || label.strip_suffix(labels::REACHABILITY_MODE).is_some_and(|zone| zone.ends_with('.'));
    label == labels::REACHABILITY_MODE || kind == Kind::Mesh && of_zone()
}
