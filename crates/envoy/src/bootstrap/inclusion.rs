//! Statistics that Envoy keeps.
//!
//! A MeshMetric speaks of families of Prometheus, and Envoy of names before they become families: a family is the
//! name without what became labels, with `_` for every other character. So a list of names that is certain to
//! have every wanted family in it has some more; it never lacks one.

use plan::Counting;
use serde_json::{Value, json};

/// Statistics that Envoy counts once, not once for each object, and that operators of a proxy need.
const GLOBAL: [&str; 10] = [
    "server.",
    "control_plane.",
    "cluster_manager.",
    "listener_manager.",
    "http.admin.",
    "listener.admin.",
    "main_thread.",
    "workers.",
    // Calls to what was trimmed, by either choice of names: the only sign that someone makes them.
    "http.system_trimmed_outbound.downstream_rq_4xx",
    "http.outbound_trimmed.downstream_rq_4xx",
];

/// Statistics kept of every object: its name is found by one of the first four, and the last shows that a proxy may end
/// now.
const OF_OBJECTS: [&str; 5] = [
    "membership_total",
    "no_filter_chain_match",
    "downstream_cx_destroy",
    "downstream_cx_no_route",
    "downstream_cx_active",
];

/// Statistics that show clients without an identity: all connections, and those that try TLS of the mesh.
const OF_LISTENERS: &str =
    r"listener\..*\.(?:downstream_cx_total|ssl\.(?:handshake|connection_error|fail_verify_.*))";

/// Calls that permissions refused.
const OF_PERMISSIONS: &str = r".*\.rbac\.(?:.*\.)?denied";

/// The beginning of every family of Envoy, which its own names do not have.
const FAMILIES: &str = "envoy_";

/// `None` where every name is kept.
pub(super) fn matcher(counted: &Counting) -> Option<Value> {
    if counted.is_all() {
        return None;
    }
    let prefixes = GLOBAL.iter().map(|prefix| json!({ "prefix": prefix }));
    let suffixes = OF_OBJECTS.iter().map(|name| json!({"suffix": format!(".{name}")}));
    let of_signals = [OF_LISTENERS.to_owned(), OF_PERMISSIONS.to_owned(), of_clusters()];
    let expressions = expression(counted).into_iter().chain(of_signals);
    let expressions = expressions.map(|regex| json!({"safeRegex": {"regex": regex}}));
    let patterns: Vec<Value> = prefixes.chain(suffixes).chain(expressions).collect();
    Some(json!({"inclusionList": {"patterns": patterns}}))
}

/// Statistics that signals are made of. Envoy creates them with the first traffic of a cluster.
fn of_clusters() -> String {
    let names: Vec<String> = signals::envoy::of_clusters().map(|name| name.replace('.', r"\.")).collect();
    format!(r"cluster\..*\.(?:{})", names.join("|"))
}

/// One expression for all names: Envoy compares each new name with every pattern.
fn expression(counted: &Counting) -> Option<String> {
    // Parts that stand in one piece of a name: no label was taken out of them.
    let parts = counted.parts().into_iter().map(|part| part.replace('_', "[._]"));
    // A label may have stood at every `_` of a longer name.
    let whole = counted.whole().into_iter().filter_map(|name| {
        let words = name.strip_prefix(FAMILIES).unwrap_or(name).split('_');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        (!words.is_empty()).then(|| words.join(".*"))
    });
    let alternatives: Vec<String> = parts.chain(whole).collect();
    (!alternatives.is_empty()).then(|| format!(".*(?:{}).*", alternatives.join("|")))
}
