//! Whatever the mesh is like: suggestions allow what was seen, and loosen no deny.

use std::{collections::BTreeSet, sync::Arc};

use policy::{Client, Decision, PolicySelector, permission::resolve};
use proptest::prelude::*;
use resources::{
    Kind, Resource,
    kinds::{
        dataplane::Inbound,
        mesh_service::MeshService,
        mesh_traffic_permission::{Action, MeshTrafficPermission},
        tags,
        target_ref::TargetRefKind,
    },
};
use serde_json::{Value, json};
use topology::{
    DestinationId, MeshSnapshot,
    matching::{self, MemberSelector as Members},
    observed::{Caller, Edge},
};

use super::{World, dataplane, everyone, mesh, permission, resource};

const SERVICES: [&str; 4] = ["a", "b", "c", "d"];

fn pick<'a>(from: &[&'a str], n: u8) -> &'a str {
    from[usize::from(n) % from.len()]
}

fn proxy(n: usize, [service, second, version, label]: [u8; 4]) -> Resource {
    let mut inbounds = vec![json!({ "port": 80, "name": "http", "tags": {
        "kuma.io/service": pick(&SERVICES, service), "version": pick(&["1", "2"], version) } })];
    if second < 4 {
        let tags = json!({ "kuma.io/service": pick(&SERVICES, second), "version": "1" });
        inbounds.push(json!({ "port": 81, "tags": tags }));
    }
    let mut made = dataplane(&format!("dp-{n}"), &format!("10.0.0.{n}"), json!(inbounds));
    if label < 5 {
        made.labels.insert("kuma.io/workload".to_owned(), pick(&SERVICES, label).to_owned());
    }
    made
}

fn of_service(n: usize, [by, target, ..]: [u8; 4]) -> Resource {
    let name = pick(&SERVICES, by);
    let selector = match by % 3 {
        0 => json!({ "dataplaneTags": { "kuma.io/service": name } }),
        1 => json!({ "dataplaneLabels": { "matchLabels": { "kuma.io/workload": name } } }),
        _ => json!({ "dataplaneRef": { "name": format!("dp-{}", target % 5) } }),
    };
    let ports = json!([{ "port": 80, "targetPort": if target % 2 == 0 { 80 } else { 81 } }]);
    resource(Kind::MeshService, &format!("svc-{n}"), &[], json!({ "selector": selector, "ports": ports }))
}

fn target([kind, service, version, _]: [u8; 4]) -> Value {
    let service = pick(&SERVICES, service);
    let version = pick(&["1", "2"], version);
    match kind % 7 {
        0 => json!({ "kind": "Mesh" }),
        1 => json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": service } }),
        2 => json!({ "kind": "MeshSubset", "tags": { "version": version } }),
        3 => json!({ "kind": "MeshService", "name": service }),
        4 => json!({ "kind": "MeshServiceSubset", "name": service, "tags": { "version": version } }),
        5 => json!({ "kind": "Dataplane", "labels": { "kuma.io/workload": service } }),
        _ => json!({ "kind": "Dataplane", "name": format!("dp-{version}"), "sectionName": "http" }),
    }
}

fn policy(n: usize, top: [u8; 4], first: [u8; 4], second: [u8; 4]) -> Resource {
    let name = format!("{}-{n}", pick(&["allow", "m", "zzz"], top[3]));
    if first[3] < 2 {
        return everyone(&name, if first[3] == 0 { "Allow" } else { "Deny" });
    }
    if first[3] < 5 {
        let id =
            json!({ "type": "Exact", "value": format!("spiffe://default/{}", pick(&SERVICES, first[1])) });
        let prefix = json!({ "type": "Prefix", "value": "spiffe://default/" });
        let client = json!({ "spiffeID": if first[2] == 0 { prefix } else { id } });
        let list = pick(&["allow", "deny", "allowWithShadowDeny"], first[0]);
        let rules = json!([{ "default": { list: [client] } }]);
        return permission(&name, json!({ "targetRef": target(top), "rules": rules }));
    }
    let entry = |client: [u8; 4]| {
        let action = pick(&["Allow", "Deny", "AllowWithShadowDeny"], client[3]);
        json!({ "targetRef": target([client[0] % 5, client[1], client[2], 0]), "default": { "action": action } })
    };
    permission(&name, json!({ "targetRef": target(top), "from": [entry(first), entry(second)] }))
}

fn worlds() -> impl Strategy<Value = World> {
    let numbers = || prop::array::uniform4(0u8..8);
    (
        prop::collection::vec(numbers(), 1..6),
        prop::collection::vec(numbers(), 0..4),
        prop::collection::vec((numbers(), numbers(), numbers()), 0..6),
        prop::collection::vec(numbers(), 1..8),
    )
        .prop_map(|(proxies, services, policies, edges)| {
            let mut resources = vec![mesh("STRICT")];
            resources.extend(proxies.iter().enumerate().map(|(n, it)| proxy(n, *it)));
            resources.extend(services.iter().enumerate().map(|(n, it)| of_service(n, *it)));
            resources.extend(policies.iter().enumerate().map(|(n, it)| policy(n, it.0, it.1, it.2)));
            let mut world = World::of(resources);
            for [caller, by, called, _] in edges {
                let destination = match by % 2 {
                    0 => pick(&SERVICES, called).to_owned(),
                    _ => format!("svc-{}:80", called % 3),
                };
                world = world.seen(pick(&SERVICES, caller), &destination);
            }
            world
        })
}

/// The permissions of a world.
fn permissions(world: &World) -> Vec<Arc<Resource>> {
    let all = world.resources.iter().filter(|it| it.kind() == Kind::MeshTrafficPermission);
    all.map(|it| Arc::new(it.clone())).collect()
}

fn decided(policies: &[Arc<Resource>], dataplane: &Resource, inbound: &Inbound, client: &Client) -> Decision {
    resolve(policies, dataplane, inbound, &PolicySelector::default()).decide(client)
}

/// The inbounds of a destination, asked in another way than suggestions do.
fn serving<'m>(
    world: &World,
    mesh: &'m MeshSnapshot,
    called: &DestinationId,
) -> Vec<(&'m Resource, &'m Inbound)> {
    let of_port = |dataplane: &'m Resource| match called {
        DestinationId::Tags(wanted) => {
            matching::inbounds(dataplane).iter().filter(|it| tags::matches(wanted, &it.tags)).collect()
        }
        DestinationId::Port(kri) => {
            let stored =
                world.resources.iter().find(|it| it.kri("").as_ref() == Some(&kri.without_section()));
            let spec = stored.and_then(|it| it.spec.get::<MeshService>());
            spec.map_or_else(Vec::new, |spec| {
                Members::of(&spec.selector).serving(dataplane, spec.ports[0].target_port.as_ref().unwrap())
            })
        }
    };
    mesh.dataplanes
        .values()
        .flat_map(|it| of_port(it).into_iter().map(move |inbound| (&**it, inbound)))
        .collect()
}

/// The clients that report under an identity.
fn clients(mesh: &MeshSnapshot, edge: &Edge) -> Vec<Client> {
    let Caller::Identity(id) = &edge.caller else { return Vec::new() };
    let all = mesh.dataplanes.values().map(|it| Client::of_dataplane(it));
    all.filter(|client| client.spiffe_ids.first() == Some(id)).collect()
}

fn is_default(world: &World, decision: &Decision) -> bool {
    let policy = decision.origin.as_ref().map(|origin| origin.without_section());
    let policy = world.resources.iter().find(|it| policy.is_some() && it.kri("") == policy);
    let spec = policy.and_then(|it| it.spec.get::<MeshTrafficPermission>());
    spec.is_none_or(|spec| {
        let mesh = spec.target_ref.as_ref().is_none_or(|top| top.kind == TargetRefKind::Mesh);
        // The last entry decides, and all of them are about everyone.
        let everyone = spec.from.iter().all(|entry| entry.target_ref.kind == TargetRefKind::Mesh);
        let last = spec.from.last().and_then(|entry| entry.default.action.clone());
        mesh && everyone && last == Some(Action::Deny)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn suggestions_allow_what_was_seen_and_loosen_no_deny(world in worlds()) {
        let suggestions = world.suggestions();
        let denied: BTreeSet<&Edge> = suggestions.denied.iter().map(|it| &it.edge).collect();
        for draft in suggestions.permissions.iter().map(|it| &it.resource).chain(&suggestions.closing) {
            prop_assert!(draft.validate().into_vec().is_empty(), "{draft:?}");
        }
        let copy = || World { resources: world.resources.clone(), observed: world.observed.clone(), ..World::of(Vec::new()) };
        let opened = copy().followed(&suggestions);
        let closed = copy().followed(&suggestions).closed(&suggestions);
        let mesh = world.mesh();
let before = permissions(&world);
let after = [permissions(&opened), permissions(&closed)];
        for edge in world.observed.edges.keys().filter(|edge| !denied.contains(edge)) {
            for client in clients(&mesh, edge) {
                for (dataplane, inbound) in serving(&world, &mesh, &edge.destination) {
                    for after in &after {
                        let decision = decided(after, dataplane, inbound, &client);
                        prop_assert!(decision.is_allowed(), "{edge:?} {decision:?} {suggestions:#?}");
                    }
                }
            }
        }
        for dataplane in mesh.dataplanes.values() {
            for inbound in matching::inbounds(dataplane) {
                for client in mesh.dataplanes.values().map(|it| Client::of_dataplane(it)) {
                    let was = decided(&before, dataplane, inbound, &client);
                    if was.is_allowed() || is_default(&world, &was) {
                        continue;
                    }
                    for after in &after {
                        let decision = decided(after, dataplane, inbound, &client);
                        prop_assert!(!decision.is_allowed(), "{was:?} {decision:?} {suggestions:#?}");
                    }
                }
            }
        }
        let edges = world.observed.edges.len();
        prop_assert!(suggestions.already_allowed + denied.len() <= edges);
        let again = opened.suggestions();
        prop_assert!(again.permissions.is_empty(), "following them is enough: {again:#?}");
    }
}
