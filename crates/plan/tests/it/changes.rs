//! Calls that a change opens and closes, policies that it leaves without effect, and outbounds that trimming
//! would remove.

use std::sync::Arc;

use plan::{
    ProxyTraits,
    access::{AccessVerdict, EdgeChange, EdgeChanges, ShadowedClients, edges, why_not_offered},
    budget::Budget,
    effective::{IdleReason, becoming_idle},
};
use resources::{Key, Kind, Resource, naming::SpiffeId};
use serde_json::json;
use testkit::{
    resource::{dataplane, mesh, permission, service, timeout, with_labels},
    spec::{all, tagged},
};
use topology::{
    AllMeshes, MeshUpdate, ResourceChange,
    observed::{Caller, Edge},
};

/// One instance of a service at port 80, which calls these.
fn instance(name: &str, service: &str, calls: &[&str]) -> Resource {
    let outbound =
        |(port, service): (u32, &&str)| json!({ "port": port, "tags": { "kuma.io/service": service } });
    dataplane(
        name,
        &[],
        json!({
            "address": "127.0.0.9",
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": service } }],
            "outbound": (10001..).zip(calls).map(outbound).collect::<Vec<_>>()
        }),
    )
}

fn state(resources: impl IntoIterator<Item = Resource>) -> AllMeshes {
    let mut state = AllMeshes::default();
    apply(&mut state, resources);
    state
}

fn apply(state: &mut AllMeshes, resources: impl IntoIterator<Item = Resource>) -> Vec<MeshUpdate> {
    let changes = resources.into_iter().map(|resource| (resource.key.clone(), Some(Arc::new(resource))));
    state.apply(&changes.collect::<Vec<ResourceChange>>())
}

/// A mesh in which `db` runs twice and `web` and `batch` once.
fn services() -> AllMeshes {
    state([
        mesh("default", "STRICT"),
        instance("db-1", "db", &[]),
        instance("db-2", "db", &[]),
        instance("web-1", "web", &[]),
        instance("batch-1", "batch", &[]),
    ])
}

fn opened(before: &AllMeshes, change: impl IntoIterator<Item = Resource>) -> EdgeChanges {
    edges(before, &apply(&mut before.clone(), change), &ample())
}

/// More than any of these tests takes.
fn ample() -> Budget {
    Budget::new(usize::MAX, Arc::default())
}

fn pairs(edges: &[EdgeChange]) -> Vec<String> {
    edges.iter().map(|edge| format!("{}>{}", edge.from, edge.to)).collect()
}

#[test]
fn a_permission_opens_the_edges_it_allows_and_its_removal_closes_them() {
    let mut state = services();
    let allow = permission("web-to-db", tagged("db"), &[(tagged("web"), "Allow")]);
    let found = opened(&state, [allow.clone()]);
    assert_eq!((pairs(&found.opened), pairs(&found.closed)), (vec!["web>db".to_owned()], vec![]));
    let edge = &found.opened[0];
    assert_eq!((edge.before, edge.after), (Some(AccessVerdict::Denied), Some(AccessVerdict::Allowed)));
    assert_eq!((&*edge.mesh, &*edge.inbound, found.truncated), ("default", "80", false));
    assert_eq!(edge.rule.as_ref().unwrap().to_string(), "kri_mtp_default___web-to-db_rule_0");

    let key = allow.key.clone();
    apply(&mut state, [allow]);
    let found = edges(&state, &state.clone().apply(&[(key, None)]), &ample());
    assert_eq!((pairs(&found.opened), pairs(&found.closed)), (vec![], vec!["web>db".to_owned()]));
    assert_eq!(found.closed[0].rule, None, "no rule decides afterwards");
}

#[test]
fn a_permission_for_one_of_two_instances_opens_half_an_edge() {
    let one = json!({ "kind": "Dataplane", "name": "db-1" });
    let found = opened(&services(), [permission("one", one, &[(tagged("web"), "Allow")])]);
    assert_eq!(pairs(&found.opened), ["web>db"]);
    assert_eq!(found.opened[0].after, Some(AccessVerdict::Mixed));
}

#[test]
fn a_service_that_goes_closes_its_edges_and_an_instance_none() {
    let mut state = services();
    apply(&mut state, [permission("all", all(), &[(all(), "Allow")])]);
    let gone = |name: &str| state.clone().apply(&[(Key::new(Kind::Dataplane, "default", name), None)]);
    assert_eq!(edges(&state, &gone("db-1"), &ample()), EdgeChanges::default());
    let found = edges(&state, &gone("batch-1"), &ample());
    let mut closed = pairs(&found.closed);
    closed.sort();
    assert_eq!(closed, ["batch>batch", "batch>db", "batch>web", "db>batch", "web>batch"]);
    assert!(found.closed.iter().all(|edge| edge.after.is_none()), "{found:#?}");
}

#[test]
fn more_edges_than_the_limit_are_counted_as_truncated_and_not_listed() {
    let many = (0..30).map(|i| instance(&format!("s{i}-1"), &format!("s{i}"), &[]));
    let state = state(many.chain([mesh("default", "STRICT")]));
    let found = opened(&state, [permission("all", all(), &[(all(), "Allow")])]);
    assert_eq!((found.opened.len(), found.closed.len(), found.truncated), (500, 0, true));
}

/// A mesh of as many services with an instance each, and permissions for all of them.
fn large(services: usize, permissions: usize) -> AllMeshes {
    let instances = (0..services).map(|i| instance(&format!("s{i}-1"), &format!("s{i}"), &[]));
    let one = |i: usize| (tagged(&format!("s{i}")), "Allow");
    let permissions = (0..permissions).map(|i| permission(&format!("p{i}"), all(), &[one(i)]));
    state(instances.chain([mesh("default", "STRICT")]).chain(permissions.collect::<Vec<_>>()))
}

#[test]
fn a_budget_ends_the_work_and_what_is_left_out_is_counted() {
    let state = large(60, 40);
    let change = || [permission("all", all(), &[(all(), "Deny")])];
    let whole = opened(&state, change());
    assert_eq!((whole.left_out, whole.truncated, whole.closed.len()), (0, true, 500));
    let mut before = usize::MAX;
    for steps in [0, 20_000, 80_000, 320_000] {
        let updates = apply(&mut state.clone(), change());
        let found = edges(&state, &updates, &Budget::new(steps, Arc::default()));
        assert!(found.truncated && found.left_out < before, "{steps}: {}", found.left_out);
        assert_eq!(found.closed, whole.closed[..found.closed.len()]);
        before = found.left_out;
    }
    // No caller waits any more.
    let updates = apply(&mut state.clone(), change());
    let gone = edges(&state, &updates, &Budget::new(usize::MAX, Arc::new(true.into())));
    assert_eq!((gone.closed.len(), gone.left_out), (0, 60));

    let timeouts = (0..30)
        .map(|i| timeout(&format!("t{i}"), json!({ "kind": "MeshService", "name": format!("s{i}") }), 7));
    let mut after = state.clone();
    let updates = apply(&mut after, timeouts);
    let idle = |budget| becoming_idle(&state, &after, &updates, &budget);
    let whole = idle(ample());
    assert_eq!(whole.left_out, 0);
    let some = idle(Budget::new(2_000, Arc::default()));
    assert!(some.left_out > 0 && some.found.len() < whole.found.len(), "{some:?}");
    assert_eq!(idle(Budget::new(usize::MAX, Arc::new(true.into()))).left_out, 30);
}

#[test]
fn a_policy_becomes_idle_when_it_selects_nothing_or_others_override_it() {
    let mut state = state([
        mesh("default", "STRICT"),
        service("default", "db", &[]),
        instance("db-1", "db", &[]),
        instance("web-1", "web", &["db"]),
    ]);
    let idle = |state: &AllMeshes, change: Resource| {
        let mut after = state.clone();
        let updates = apply(&mut after, [change]);
        let idle = becoming_idle(state, &after, &updates, &ample());
        assert_eq!(idle.left_out, 0);
        idle.found.into_iter().map(|it| (it.policy.name().to_owned(), it.reason)).collect::<Vec<_>>()
    };
    let nothing = timeout("nothing", json!({ "kind": "Dataplane", "name": "absent" }), 7);
    assert_eq!(idle(&state, nothing), [("nothing".to_owned(), IdleReason::MatchesNothing)]);
    apply(&mut state, [timeout("wide", json!({ "kind": "MeshService", "name": "web" }), 9)]);
    let narrow = json!({ "kind": "MeshServiceSubset", "name": "web", "tags": {} });
    let found = idle(&state, timeout("narrow", narrow.clone(), 7));
    assert_eq!(found, [("wide".to_owned(), IdleReason::Shadowed)]);
    // One that is idle already is no consequence of another change.
    apply(&mut state, [timeout("narrow", narrow.clone(), 7)]);
    assert_eq!(idle(&state, timeout("narrow", narrow, 8)), []);
}

#[test]
fn shadowed_trimming_takes_denied_calls_and_spares_listed_outbounds() {
    let redirected = |service: &str, listed: &[&str]| {
        let mut redirect = json!({ "redirectPortInbound": 15006, "redirectPortOutbound": 15001 });
        if !listed.is_empty() {
            let refs = listed.iter().map(|name| json!({ "kind": "MeshService", "name": name }));
            redirect["reachableBackends"] = json!({ "refs": refs.collect::<Vec<_>>() });
        }
        let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": service } }]);
        let networking =
            json!({ "address": "127.0.0.8", "inbound": inbound, "transparentProxying": redirect });
        dataplane(service, &[], networking)
    };
    let vip = json!({ "vips": [{ "ip": "241.0.0.1" }], "tls": { "status": "Ready" } });
    let db = testkit::resource::with_status(service("default", "db", &[]), vip);
    let shadow = with_labels(mesh("default", "STRICT"), &[("reachability.kuma.io/mode", "shadow")]);
    let open = permission("ops", tagged("db"), &[(tagged("ops"), "Allow")]);
    let state = state([
        shadow,
        db,
        instance("db-1", "db", &[]),
        redirected("web", &[]),
        redirected("ops", &[]),
        redirected("batch", &["db"]),
        open,
    ]);
    let mesh = state.mesh("default").unwrap();
    let destination = mesh.destinations.keys().find(|id| format!("{id:?}").contains("db")).unwrap();
    let traits = |dataplane: &Resource| ProxyTraits::assumed(dataplane.mesh(), dataplane.name());
    let mut clients = ShadowedClients::of(mesh, traits);
    let mut would_trim = |service: &str| {
        let caller = Caller::Identity(SpiffeId::of_service("default", service));
        clients.would_trim(&Edge { caller, destination: destination.clone() })
    };
    assert_eq!(["web", "ops", "batch", "absent"].map(&mut would_trim), [true, false, false, false]);
}

#[test]
fn why_a_destination_is_not_offered_names_the_field_of_the_dataplane() {
    let with = |redirect: serde_json::Value| {
        dataplane("web-1", &[], json!({ "address": "127.0.0.8", "transparentProxying": redirect }))
    };
    let ports = json!({ "redirectPortInbound": 15006, "redirectPortOutbound": 15001 });
    let mut listed = ports.clone();
    listed["reachableServices"] = json!(["db"]);
    let mut backends = ports.clone();
    backends["reachableBackends"] = json!({ "refs": [{ "kind": "MeshService", "name": "db" }] });
    for (dataplane, expected) in [
        (instance("web-1", "web", &[]), "`networking.outbound`"),
        (with(ports), "no virtual address yet"),
        (with(listed), "reachableServices"),
        (with(backends), "reachableBackends"),
    ] {
        assert!(why_not_offered(&dataplane).contains(expected), "{expected}");
    }
}
