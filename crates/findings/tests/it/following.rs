//! Findings follow changes, and looking costs what changed.

use findings::MeshFindings;
use proptest::prelude::*;
use resources::Key;
use topology::{AllMeshes, ResourceChange};

use crate::support::{BACKEND, PLAIN, SECURED, WEB, changes, timeout};

/// Everything that a random history may create, change and delete.
fn pool() -> Vec<Vec<ResourceChange>> {
    let to = |name: &str, top: &str, to: &str, conf: &str| {
        timeout(
            name,
            &format!(
                "{{ targetRef: {{ {top} }}, to: [{{ targetRef: {{ {to} }}, default: {{ {conf} }} }}] }}"
            ),
        )
    };
    let [web, mesh] = ["kind: Dataplane, labels: { app: web }", "kind: Mesh"];
    let [backend, labelled] =
        ["kind: MeshService, name: backend", "kind: MeshService, labels: { team: shop }"];
    let permission = |name: &str, action: &str| {
        format!(
            "type: MeshTrafficPermission\nmesh: default\nname: {name}\nspec:\n  from: [{{ targetRef: {{ kind: Mesh }}, \
             default: {{ action: {action} }} }}]"
        )
    };
    let named = |name: &str, client: &str| {
        permission(name, "Deny").replacen("{ kind: Mesh }", &format!("{{ {client} }}"), 1)
    };
    let route = |top: &str| {
        format!(
            "type: MeshHTTPRoute\nmesh: default\nname: canary\nspec:\n  targetRef: {{ {top} }}\n  to: [{{ targetRef: {{ \
             kind: MeshService, name: backend }}, rules: [] }}]"
        )
    };
    let texts = [
        PLAIN.to_owned(),
        SECURED.split("---").next().unwrap().to_owned(),
        WEB.to_owned(),
        WEB.replace("app: web", "app: shop"),
        BACKEND.to_owned(),
        BACKEND.replace("name: backend\n", "name: backend\nlabels: { team: shop }\n"),
        BACKEND.replace("name: http,", "name: grpc,"),
        to("a", mesh, mesh, "connectionTimeout: 1s"),
        to("b", mesh, mesh, "connectionTimeout: 2s"),
        to("b", mesh, mesh, "idleTimeout: 2s"),
        to("c", web, backend, "connectionTimeout: 3s"),
        to("d", web, backend, "connectionTimeout: 3s, idleTimeout: 1s"),
        to("d", web, labelled, "idleTimeout: 1s"),
        to("e", mesh, "kind: MeshHTTPRoute, name: canary", "connectionTimeout: 4s"),
        permission("p", "Allow"),
        permission("p", "Deny"),
        permission("q", "Allow"),
        route(mesh),
        route(web),
        named("r", "kind: MeshService, name: web"),
        named("r", "kind: MeshService, name: shop"),
        WEB.replace("kuma.io/service: web", "kuma.io/service: shop"),
        WEB.replace("app: web", "app: web, reachability.kuma.io/mode: enforce"),
        PLAIN.replace("name: default", "name: default\nlabels: { reachability.kuma.io/mode: report }"),
        SECURED.split("---").next().unwrap().replace(
            "name: default",
            "name: default\nlabels: { reachability.kuma.io/mode: enforce, default.reachability.kuma.io/mode: never }",
        ),
    ];
    texts.iter().map(|text| changes(&[text])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_followed_changes_equals_what_is_read_anew(
        history in prop::collection::vec((0..25_usize, any::<bool>()), 1..40),
    ) {
        let pool = pool();
        let mut state = AllMeshes::default();
        state.apply(&pool[0]);
        let mut followed = MeshFindings::of(state.mesh("default").unwrap().clone());
        for (at, delete) in history {
            let mut step = pool[at].clone();
            // The mesh itself stays.
            if delete && (2..23).contains(&at) {
                step.iter_mut().for_each(|(_, resource)| *resource = None);
            }
            for update in state.apply(&step) {
                followed.update(update.snapshot.unwrap(), &update.affected);
            }
            let anew = MeshFindings::of(state.mesh("default").unwrap().clone());
            prop_assert_eq!(&followed, &anew);
        }
    }
}

#[test]
fn a_changed_policy_or_proxy_costs_what_it_has_to_do_with() {
    let of = |i: usize, value: &str| {
        timeout(
            &format!("t-{i}"),
            &format!(
                "{{ targetRef: {{ kind: Dataplane, labels: {{ app: a-{i} }} }}, to: [{{ targetRef: {{ kind: Mesh }}, \
                 default: {{ connectionTimeout: {value} }} }}] }}"
            ),
        )
    };
    let dataplane = |i: usize, port: u16| {
        let named = WEB.replace("name: web\n", &format!("name: web-{i}\n"));
        named.replace("app: web", &format!("app: a-{i}")).replace("8080", &port.to_string())
    };
    let mut state = AllMeshes::default();
    state.apply(&changes(&[PLAIN]));
    for i in 0..1_000 {
        state.apply(&changes(&[&dataplane(i, 8080), &of(i, "1s")]));
    }
    let mut findings = MeshFindings::of(state.mesh("default").unwrap().clone());
    assert_eq!((findings.iter().count(), findings.examined()), (0, 1_000));
    let mut cost = |step: &[ResourceChange]| {
        let before = findings.examined();
        for update in state.apply(step) {
            findings.update(update.snapshot.unwrap(), &update.affected);
        }
        (findings.examined() - before, findings.iter().count())
    };
    assert_eq!(cost(&changes(&[&of(7, "2s")])), (1, 0));
    assert_eq!(cost(&changes(&[&dataplane(8, 8081)])), (1, 0));
    let gone: Vec<(Key, _)> =
        changes(&[&dataplane(9, 8080)]).into_iter().map(|(key, _)| (key, None)).collect();
    assert_eq!(cost(&gone), (1, 1), "what selects nothing now is found");
}
