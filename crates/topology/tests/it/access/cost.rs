//! Cost of a changed permission, counted: it follows the Dataplanes that the permission may select, not the
//! size of the mesh.

use resources::{Kind, Resource};
use serde_json::json;
use topology::AllMeshes;

use super::world::{external, instance, permission, reaches};
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
fn state(services: usize) -> AllMeshes {
    let mut state = AllMeshes::in_zone("east");
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

/// Returns the amount of work for this permission when it comes.
fn work(state: &mut AllMeshes, policy: &Resource) -> u64 {
    let before = state.access_work();
    state.apply(&[present(policy.clone())]);
    state.access_work() - before
}

const ALLOW_A: &str = "from: [{ targetRef: { kind: MeshService, name: a }, default: { action: Allow } }]";
const ALLOW_A_BY_ID: &str =
    "rules: [{ default: { allow: [{ spiffeID: { type: Exact, value: spiffe://default/a } }] } }]";

#[test]
fn a_permission_costs_the_same_whatever_else_there_is() {
    let mut small = state(100);
    let mut large = state(1_000);
    for (target, opened) in [
        ("{ kind: MeshService, name: here-7 }", "kri_msvc_default___here-7_80"),
        ("{ kind: MeshService, name: there-7 }", "kri_msvc_default_west__there-7_80"),
        ("{ kind: MeshSubset, tags: { kuma.io/service: there-8 } }", "kri_msvc_default_west__there-8_80"),
        // Every service of the other zone may have such proxies, and none of them is asked.
        ("{ kind: Dataplane, labels: { app: here-9 } }", "kri_msvc_default_west__there-9_80"),
        ("{ kind: Dataplane, name: dp-9, namespace: ns }", "kri_msvc_default_west__there-1_80"),
        ("{ kind: MeshSubset, tags: { version: v1 } }", "kri_msvc_default_west__there-2_80"),
        (
            "{ kind: MeshServiceSubset, name: there-3, tags: { version: v1 } }",
            "kri_msvc_default_west__there-3_80",
        ),
    ] {
        for allow in [ALLOW_A, ALLOW_A_BY_ID] {
            let policy = permission("p", &format!("{{ targetRef: {target}, {allow} }}"));
            let done = [work(&mut small, &policy), work(&mut large, &policy)];
            assert!(done[0] > 0 && done[0] == done[1], "{target}: {done:?}");
            for state in [&small, &large] {
                assert!(reaches(state.mesh("default").unwrap(), "dp-a", opened), "{target}");
                assert!(!reaches(state.mesh("default").unwrap(), "dp-0", opened), "{target}: not named");
            }
        }
    }
}

#[test]
fn a_service_of_another_zone_costs_the_same_with_any_permissions() {
    let with = |permissions: usize| {
        let mut state = state(10);
        let policies = (0..permissions).map(|n| {
            let target = format!("{{ kind: Dataplane, labels: {{ app: app-{n} }} }}");
            let name = format!("p-{n}");
            permission(&name, &format!("{{ targetRef: {target}, {ALLOW_A} }}"))
        });
        state.apply(&policies.map(present).collect::<Vec<_>>());
        let before = state.access_work();
        state.apply(&[present(remote("fresh"))]);
        assert!(reaches(state.mesh("default").unwrap(), "dp-a", "kri_msvc_default_west__fresh_80"));
        state.access_work() - before
    };
    let done = [with(10), with(500)];
    assert!(done[0] > 0 && done[0] == done[1], "{done:?}");
}

#[test]
fn a_permission_by_server_name_costs_the_same_whatever_lies_outside() {
    let with = |externals: usize| {
        let mut state = AllMeshes::in_zone("east");
        let mut mesh_spec = mesh("STRICT").spec.to_json();
        mesh_spec["routing"] = json!({ "zoneEgress": true });
        let egress = json!({ "zone": "east", "networking": { "address": "10.9.0.1", "port": 10002 } });
        let all = [
            resource(Kind::Mesh, "default", &[], mesh_spec),
            resource(Kind::ZoneEgress, "exit", &[], egress),
            instance("dp-a", "a", &[]),
            permission("first", &format!("{{ targetRef: {{ kind: MeshService, name: a }}, {ALLOW_A} }}")),
        ];
        let outside = (0..externals).map(|n| external(&format!("out-{n}")));
        state.apply(&all.into_iter().chain(outside).map(present).collect::<Vec<_>>());
        let client = "sni: { type: Exact, value: sni.extsvc.default.out-7.443 }, \
                      spiffeID: { type: Exact, value: spiffe://default/a }";
        let policy = permission("p", &format!("{{ rules: [{{ default: {{ deny: [{{ {client} }}] }} }}] }}"));
        let done = work(&mut state, &policy);
        let reaches = |n: u32| {
            reaches(state.mesh("default").unwrap(), "dp-a", &format!("kri_extsvc_default___out-{n}_443"))
        };
        assert_eq!((reaches(7), reaches(8)), (false, true));
        done
    };
    let done = [with(10), with(200)];
    assert!(done[0] > 0 && done[0] == done[1], "{done:?}");
}
