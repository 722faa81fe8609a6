//! Permissions that select nothing, contradict each other, or are about what does not exist yet.

use resources::Resource;
use topology::{AllMeshes, MeshSnapshot};

use super::world::{
    class, consistent, instance, listed, pairs, permission, permissions, plain, port, reaches, tagged, ways,
};
use crate::fixtures::{gone, mesh, present, resource, service};

fn found(policies: &[(&str, &str)]) -> std::collections::BTreeSet<String> {
    pairs(&ways(&[plain(), permissions(policies)].concat()))
}

const ALLOW_ALL: &str = "from: [{ targetRef: { kind: Mesh }, default: { action: Allow } }]";

#[test]
fn a_permission_that_selects_nothing_changes_nothing() {
    let opening = format!("{{ {ALLOW_ALL} }}");
    for target in [
        "{ kind: MeshService, name: absent }",
        "{ kind: MeshServiceSubset, name: a, tags: { version: absent } }",
        "{ kind: MeshSubset, tags: { kuma.io/service: absent } }",
        "{ kind: Dataplane, name: absent }",
        "{ kind: Dataplane, labels: { app: absent } }",
        "{ kind: Dataplane, name: dp-a, sectionName: absent }",
    ] {
        let denying = format!(
            "{{ targetRef: {target}, from: [{{ targetRef: {{ kind: Mesh }}, default: {{ action: Deny }} }}] }}"
        );
        let allowing = format!("{{ targetRef: {target}, {ALLOW_ALL} }}");
        assert_eq!(found(&[("all", &opening), ("none", &denying)]), listed("*>*"), "{target}");
        assert_eq!(found(&[("none", &allowing)]), listed(""), "{target}");
    }
}

#[test]
fn permissions_that_contradict_each_other_are_decided_as_servers_decide() {
    let say = |action: &str| {
        format!(
            "{{ targetRef: {{ kind: MeshService, name: b }}, from: [{{ targetRef: {{ kind: MeshService, name: a }}, default: {{ action: {action} }} }}] }}"
        )
    };
    // Of two that are alike the smaller name has the last word.
    assert_eq!(found(&[("x", &say("Allow")), ("y", &say("Deny"))]), listed("a>b"));
    assert_eq!(found(&[("x", &say("Deny")), ("y", &say("Allow"))]), listed(""));
    let both = "{ targetRef: { kind: MeshService, name: b }, from: [{ targetRef: { kind: Mesh }, default: { action: Allow } }, \
                { targetRef: { kind: Mesh }, default: { action: Deny } }] }";
    assert_eq!(found(&[("x", both)]), listed(""), "the last entry counts");
    let id = "{ spiffeID: { type: Prefix, value: 'spiffe://default/' } }";
    let rules =
        format!("{{ rules: [{{ default: {{ allow: [{id}] }} }}, {{ default: {{ deny: [{id}] }} }}] }}");
    assert_eq!(found(&[("x", &rules)]), listed(""));
}

/// Such entries do not pass validation; one that is there all the same, from another control plane, is read as servers
/// read it.
#[test]
fn an_action_that_is_unknown_denies() {
    let spec = serde_json::json!({ "from": [{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Maybe" } }] });
    let unknown = resource(resources::Kind::MeshTrafficPermission, "unknown", &[], spec);
    let opening = permission("zzz", &format!("{{ {ALLOW_ALL} }}"));
    let snapshot = ways(&[plain(), vec![unknown, opening]].concat());
    assert_eq!(pairs(&snapshot), listed(""));
}

fn snapshot(state: &AllMeshes) -> &MeshSnapshot {
    let snapshot = state.mesh("default").unwrap();
    consistent(snapshot);
    snapshot
}

fn apply(state: &mut AllMeshes, resources: impl IntoIterator<Item = Resource>) {
    state.apply(&resources.into_iter().map(present).collect::<Vec<_>>());
}

#[test]
fn a_permission_may_be_there_before_the_service_it_selects() {
    let policy = "{ targetRef: { kind: MeshService, name: new }, from: [{ targetRef: { kind: MeshService, name: a }, default: { action: Allow } }] }";
    let mut state = AllMeshes::in_zone("east");
    apply(&mut state, plain().into_iter().chain([permission("p", policy)]));
    assert_eq!(pairs(snapshot(&state)), listed(""));
    apply(&mut state, [service("new")]);
    assert_eq!(["dp-a", "dp-b"].map(|client| reaches(snapshot(&state), client, &port("new"))), [true, false]);
    apply(&mut state, [instance("dp-new", "new", &[])]);
    assert_eq!(["dp-a", "dp-b"].map(|client| reaches(snapshot(&state), client, &port("new"))), [true, false]);
    state.apply(&[gone(&permission("p", policy))]);
    assert_eq!(
        ["dp-a", "dp-b"].map(|client| reaches(snapshot(&state), client, &port("new"))),
        [false, false]
    );
}

#[test]
fn a_permission_may_be_there_before_the_client_it_is_about() {
    let by_tags = "{ targetRef: { kind: MeshService, name: b }, from: [{ targetRef: { kind: MeshServiceSubset, name: new, tags: { version: v1 } }, default: { action: Allow } }] }";
    let by_identity = "{ targetRef: { kind: Dataplane, labels: { app: b } }, rules: [{ default: { allow: [{ spiffeID: { type: Prefix, value: 'spiffe://default/new' } }] } }] }";
    for (policy, old) in [(by_tags, false), (by_identity, true)] {
        let mut state = AllMeshes::in_zone("east");
        apply(&mut state, plain().into_iter().chain([permission("p", policy)]));
        assert_eq!(pairs(snapshot(&state)), listed(""));
        apply(&mut state, [instance("v1", "new", &[("version", "v1")]), instance("v0", "new", &[])]);
        let of = |state: &AllMeshes| ["v1", "v0"].map(|client| reaches(snapshot(state), client, &port("b")));
        assert_eq!(of(&state), [true, old], "{policy}");
        // Who becomes somebody else loses what it might do.
        apply(&mut state, [instance("v1", "other", &[("version", "v1")])]);
        assert_eq!(of(&state), [false, old], "{policy}");
        assert_eq!(pairs(snapshot(&state)), listed(""));
    }
}

/// Deleted resources leave nothing behind.
#[test]
fn services_and_clients_may_go_in_any_order() {
    let mut state = AllMeshes::in_zone("east");
    let allow = permission("p", &format!("{{ {ALLOW_ALL} }}"));
    apply(&mut state, plain().into_iter().chain([allow.clone()]));
    for gone_now in plain().iter().filter(|resource| resource.kind() != resources::Kind::Mesh) {
        state.apply(&[gone(gone_now)]);
        snapshot(&state);
    }
    state.apply(&[gone(&allow)]);
    let left = snapshot(&state);
    assert_eq!(left.access.classes().count(), 0);
    let mut fresh = AllMeshes::in_zone("east");
    apply(&mut fresh, [mesh("STRICT")]);
    assert_eq!(left.access, snapshot(&fresh).access);
    apply(&mut state, plain());
    assert!(!snapshot(&state).access.reaches(&class(snapshot(&state), "dp-a"), &tagged("b")));
}
