//! What a change of a permission costs, counted: it follows what the permission may select, not the size of the mesh.

use resources::{Kind, Resource};
use serde_json::json;
use topology::State;

use super::world::{instance, permission, reaches};
use crate::fixtures::{mesh, present, resource, service};

/// A service of another zone, which a control plane made there of inbounds with this tag.
fn remote(name: &str) -> Resource {
    let spec = json!({ "selector": { "dataplaneTags": { "kuma.io/service": name } },
        "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }] });
    let labels = [
        ("kuma.io/origin", "global"),
        ("kuma.io/zone", "west"),
        ("kuma.io/display-name", name),
        ("kuma.io/managed-by", "k8s-controller"),
    ];
    resource(Kind::MeshService, name, &labels, spec)
}

/// A mesh with so many services of either sort, and a client.
fn state(services: usize) -> State {
    let mut state = State::in_zone("east");
    let here = (0..services).flat_map(|n| {
        let name = format!("here-{n}");
        [service(&name), instance(&format!("dp-{n}"), &name, &[])]
    });
    let there = (0..services).map(|n| remote(&format!("there-{n}")));
    // The first permission of a mesh is about everything: whether trimming has an effect depends on it.
    let first = permission("first", &format!("{{ targetRef: {{ kind: MeshService, name: a }}, {ALLOW_A} }}"));
    let all = [mesh("STRICT"), instance("dp-a", "a", &[]), first].into_iter().chain(here).chain(there);
    state.apply(&all.map(present).collect::<Vec<_>>());
    state
}

/// How much is worked out when this permission comes.
fn work(state: &mut State, policy: &Resource) -> u64 {
    let before = state.reach_work();
    state.apply(&[present(policy.clone())]);
    state.reach_work() - before
}

const ALLOW_A: &str = "from: [{ targetRef: { kind: MeshService, name: a }, default: { action: Allow } }]";

#[test]
fn a_permission_costs_the_same_whatever_else_there_is() {
    let (mut small, mut large) = (state(100), state(1_000));
    for (target, opened) in [
        ("{ kind: MeshService, name: here-7 }", "kri_msvc_default___here-7_80"),
        ("{ kind: MeshService, name: there-7 }", "kri_msvc_default_west__there-7_80"),
        ("{ kind: MeshSubset, tags: { kuma.io/service: there-8 } }", "kri_msvc_default_west__there-8_80"),
    ] {
        let policy = permission("p", &format!("{{ targetRef: {target}, {ALLOW_A} }}"));
        let done = [work(&mut small, &policy), work(&mut large, &policy)];
        assert!(done[0] > 0 && done[0] == done[1], "{target}: {done:?}");
        for state in [&small, &large] {
            assert!(reaches(state.mesh("default").unwrap(), "dp-a", opened), "{target}");
        }
    }
}
