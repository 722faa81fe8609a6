use std::cmp::Ordering;

use policy::{Precedence, order::entry_rank};
use resources::kinds::target_ref::TargetRef;
use serde_json::{Value, json};

use crate::support::labels;

fn top(value: &Value) -> TargetRef {
    serde_json::from_value(value.clone()).unwrap()
}

/// A policy: its top-level reference, its labels and its name.
type Policy<'a> = (Value, &'a [(&'a str, &'a str)], &'a str);

fn precedence((target, with, name): &Policy<'_>) -> Precedence {
    Precedence::of(&top(target), &labels(with), name, name)
}

/// Asserts that each policy has less precedence than the next.
#[track_caller]
fn ascending(policies: &[Policy<'_>]) {
    for pair in policies.windows(2) {
        let order = precedence(&pair[0]).cmp(&precedence(&pair[1]));
        assert_eq!(order, Ordering::Less, "{:?} before {:?}", pair[0], pair[1]);
    }
}

const ZONE: &[(&str, &str)] = &[("kuma.io/origin", "zone")];
const GLOBAL: &[(&str, &str)] = &[("kuma.io/origin", "global")];

#[test]
fn narrower_kinds_override_wider_ones() {
    // The later criteria all speak for the wider kind.
    ascending(&[
        (json!({"kind": "Mesh"}), ZONE, "a"),
        (json!({"kind": "Dataplane", "name": "x", "sectionName": "http"}), GLOBAL, "b"),
        (json!({"kind": "MeshSubset"}), GLOBAL, "c"),
        (json!({"kind": "MeshGateway", "name": "x"}), GLOBAL, "d"),
        (json!({"kind": "MeshService", "name": "x"}), GLOBAL, "e"),
        (json!({"kind": "MeshExternalService", "name": "x"}), GLOBAL, "f"),
        (json!({"kind": "MeshMultiZoneService", "name": "x"}), GLOBAL, "g"),
        (json!({"kind": "MeshServiceSubset", "name": "x"}), GLOBAL, "h"),
        (json!({"kind": "MeshHTTPRoute", "name": "x"}), GLOBAL, "i"),
    ]);
}

#[test]
fn names_override_labels_and_sections_override_whole_proxies() {
    ascending(&[
        (json!({"kind": "Dataplane"}), ZONE, "a"),
        (json!({"kind": "Dataplane", "labels": {"app": "x"}}), ZONE, "b"),
        (json!({"kind": "Dataplane", "labels": {"app": "x"}, "sectionName": "http"}), ZONE, "c"),
        (json!({"kind": "Dataplane", "name": "x"}), GLOBAL, "d"),
        (json!({"kind": "Dataplane", "name": "x", "sectionName": "http"}), GLOBAL, "e"),
    ]);
}

#[test]
fn zones_override_the_unknown_and_the_unknown_overrides_global() {
    let role: &[(&str, &str)] = &[("kuma.io/origin", "global"), ("kuma.io/policy-role", "workload-owner")];
    ascending(&[
        (json!({"kind": "Mesh"}), role, "a"),
        (json!({"kind": "Mesh"}), &[], "b"),
        (json!({"kind": "Mesh"}), ZONE, "c"),
    ]);
}

#[test]
fn more_gateway_tags_override_fewer() {
    ascending(&[
        (
            json!({"kind": "MeshGateway", "name": "x", "tags": {"a": "1"}}),
            &[("kuma.io/policy-role", "producer")],
            "a",
        ),
        (json!({"kind": "MeshGateway", "name": "x", "tags": {"a": "1", "b": "2"}}), &[], "b"),
    ]);
}

#[test]
fn roles_closer_to_the_workload_override() {
    ascending(&[
        (json!({"kind": "Mesh"}), &[("kuma.io/policy-role", "system")], "a"),
        (json!({"kind": "Mesh"}), &[("kuma.io/policy-role", "producer")], "b"),
        (json!({"kind": "Mesh"}), &[("kuma.io/policy-role", "consumer")], "c"),
        (json!({"kind": "Mesh"}), &[("kuma.io/policy-role", "workload-owner")], "d"),
    ]);
}

#[test]
fn the_alphabetically_first_name_overrides() {
    ascending(&[
        (json!({"kind": "Mesh"}), &[], "default-demo-app-b"),
        (json!({"kind": "Mesh"}), &[], "default-demo-app"),
    ]);
}

#[test]
fn copies_with_one_display_name_are_still_ordered() {
    let of = |name| Precedence::of(&TargetRef::mesh(), &labels(&[]), "shown", name);
    assert_eq!(of("shown-a").cmp(&of("shown-b")), Ordering::Greater);
}

#[test]
fn entries_rank_by_policy_then_target_then_section_then_name() {
    let target = |value: Value| top(&value);
    let mesh = target(json!({"kind": "Mesh"}));
    let service = target(json!({"kind": "MeshService", "name": "x"}));
    let port = target(json!({"kind": "MeshService", "name": "x", "sectionName": "http"}));
    let a = Precedence::of(&mesh, &labels(&[]), "a", "a");
    let b = Precedence::of(&mesh, &labels(&[]), "b", "b");
    let zone = Precedence::of(&mesh, &labels(ZONE), "z", "z");
    let ranks = [
        entry_rank(&b, &mesh),
        entry_rank(&a, &mesh),
        entry_rank(&b, &service),
        entry_rank(&a, &service),
        entry_rank(&b, &port),
        entry_rank(&zone, &mesh),
    ];
    assert!(ranks.is_sorted(), "{ranks:?}");
    assert_eq!(entry_rank(&a, &mesh), entry_rank(&a, &mesh));
}
