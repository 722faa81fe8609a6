//! Groups say what every policy, asked about every server, would say.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use policy::{Client, Effect, Permissions, Policy, Rule, permission};
use proptest::prelude::*;
use resources::{Kind, Resource, labels};
use serde_json::{Value, json};

use crate::{AllMeshes, ClientClass, DestinationId, MeshSnapshot, access::Unseen};

const ZONES: [&str; 2] = ["west", "north"];
const SERVICES: [&str; 3] = ["a", "b", "c"];

/// Generates selectors of a service of another zone, in the ways in which control planes and users write
/// them.
fn selectors() -> impl Strategy<Value = (Value, bool)> {
    let service = prop::sample::select(&SERVICES[..]);
    let version = prop::sample::select(&["v1", "v2"][..]);
    (service, version, 0..4_u8, any::<bool>()).prop_map(|(service, version, way, generated)| {
        let selector = match way {
            0 => json!({ "dataplaneTags": { "kuma.io/service": service } }),
            1 => json!({ "dataplaneTags": { "kuma.io/service": service, "version": version } }),
            2 => json!({ "dataplaneLabels": { "matchLabels": { "app": service } } }),
            _ => json!({ "dataplaneTags": { "app": service } }),
        };
        (selector, generated)
    })
}

fn targets() -> impl Strategy<Value = Value> {
    let service = prop::sample::select(&SERVICES[..]);
    let version = prop::sample::select(&["v1", "v2", "*"][..]);
    let zone = prop::sample::select(&["west", "north", "east"][..]);
    (service, version, zone, 0..9_u8).prop_map(|(service, version, zone, way)| match way {
        0 => json!({ "kind": "Mesh" }),
        1 => json!({ "kind": "MeshService", "name": service }),
        2 => json!({ "kind": "MeshServiceSubset", "name": service, "tags": { "version": version } }),
        3 => json!({ "kind": "MeshSubset", "tags": { "version": version } }),
        4 => json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": service, "version": version } }),
        5 => json!({ "kind": "Dataplane", "labels": { "app": service } }),
        6 => json!({ "kind": "Dataplane", "labels": { "app": service, "kuma.io/zone": zone } }),
        7 => json!({ "kind": "Dataplane", "labels": { "kuma.io/zone": zone } }),
        _ => json!({ "kind": "Dataplane", "name": "dp", "namespace": "ns" }),
    })
}

fn specs() -> impl Strategy<Value = Value> {
    let client = prop::sample::select(&["a", "b", "c", "*"][..]);
    (targets(), prop::collection::vec((client, 0..6_u8), 1..4)).prop_map(|(target, clauses)| {
        let mut from = Vec::new();
        let mut rules = Vec::new();
        for (client, way) in clauses {
            let tags = if client == "*" {
                json!({ "kind": "Mesh" })
            } else {
                json!({ "kind": "MeshService", "name": client })
            };
            let id = if client == "*" {
                json!({ "spiffeID": { "type": "Prefix", "value": "spiffe://default" } })
            } else {
                json!({ "spiffeID": { "type": "Exact", "value": format!("spiffe://default/{client}") } })
            };
            match way {
                0 => from.push(json!({ "targetRef": tags, "default": { "action": "Allow" } })),
                1 => from.push(json!({ "targetRef": tags, "default": { "action": "Deny" } })),
                2 => from.push(json!({ "targetRef": tags, "default": { "action": "AllowWithShadowDeny" } })),
                3 => rules.push(json!({ "default": { "allow": [id] } })),
                4 => rules.push(json!({ "default": { "deny": [id] } })),
                _ => rules.push(json!({ "default": { "allowWithShadowDeny": [id] } })),
            }
        }
        json!({ "targetRef": target, "from": from, "rules": rules })
    })
}

fn permissions() -> impl Strategy<Value = Vec<Resource>> {
    let role = prop::sample::select(&["", "producer", "workload-owner"][..]);
    let origin = prop::sample::select(&["", "west", "east"][..]);
    let one = (specs(), role, origin);
    prop::collection::vec(one, 0..7).prop_map(|all| {
        let named = all.into_iter().enumerate().map(|(n, (spec, role, zone))| {
            let mut labels = Vec::new();
            labels.extend((!role.is_empty()).then_some((labels::POLICY_ROLE, role)));
            if !zone.is_empty() {
                labels.extend([(labels::ORIGIN, labels::ORIGIN_ZONE), (labels::ZONE, zone)]);
            }
            let key = resources::Key::new(Kind::MeshTrafficPermission, "default", &format!("p-{n}"));
            testkit::resource::complete(key, &labels, spec)
        });
        named.collect()
    })
}

fn remote(number: usize, selector: &Value, generated: bool) -> Resource {
    let zone = ZONES[number % ZONES.len()];
    let spec = json!({ "selector": selector, "ports": [{ "port": 80, "targetPort": 80 }] });
    let mut labels = vec![(labels::ORIGIN, labels::ORIGIN_GLOBAL), (labels::ZONE, zone)];
    labels.extend(generated.then_some((labels::MANAGED_BY, "k8s-controller")));
    let key = resources::Key::new(Kind::MeshService, "default", &format!("r-{number}"));
    testkit::resource::complete(key, &labels, spec)
}

fn client(service: &str) -> Resource {
    let proxy = testkit::build::dataplane(&format!("dp-{service}")).address("10.0.0.1");
    proxy.inbound(80).service(service).complete()
}

/// Answers of all policies about these servers, each asked.
struct Asked {
    at_most: Permissions,
    denies: usize,
    /// Allows in `from` of policies that select the servers or not.
    possible_from: Vec<Rule>,
}

impl Asked {
    fn of(mesh: &MeshSnapshot, service: &Resource) -> Asked {
        let unseen = Unseen::of_service(service, service.label(labels::ZONE).unwrap());
        let policies: Vec<&Arc<Policy>> = mesh.policies.values().collect();
        let unsure = policies.iter().filter(|policy| unseen.is_selected_by(policy).is_none());
        let possible = unsure.flat_map(|policy| permission::allowing(policy));
        let by_tags = |rule: &Rule| !matches!(rule.client, policy::ClientMatch::SpiffeExact(_));
        let possible_from = possible.filter(by_tags).collect();
        let asked = unseen.permissions(policies.into_iter());
        Asked { at_most: asked.permissions, denies: asked.denies, possible_from }
    }

    fn lets_in(&self, client: &Client) -> bool {
        self.at_most.decide(client).effect != Effect::Deny
    }

    /// Only the order of entries of `from` keeps the client out, which groups do not regard.
    fn may_let_in(&self, client: &Client) -> bool {
        let denied = self.at_most.rules[..self.denies].iter().any(|rule| rule.client.matches(client));
        self.lets_in(client) || !denied && self.possible_from.iter().any(|rule| rule.client.matches(client))
    }
}

fn agree(mesh: &MeshSnapshot, services: &[Resource]) {
    for service in services {
        let asked = Asked::of(mesh, service);
        let id = DestinationId::Port(service.kri("80").unwrap());
        for name in SERVICES {
            let class = ClientClass::of(mesh, &mesh.dataplanes[format!("dp-{name}").as_str()]);
            let reaches = mesh.access.reaches(&class, &id);
            let context = || format!("{name} to {}: {:?}", service.name(), mesh.access.to(&id));
            assert!(reaches || !asked.lets_in(class.client()), "kept from what may let it in: {}", context());
            assert!(!reaches || asked.may_let_in(class.client()), "let in by no one: {}", context());
            let listed = mesh.access.destinations(&class).contains(&id);
            assert_eq!(listed, reaches, "listed: {}", context());
            if let Some(access) = mesh.access.to(&id) {
                let decision = |ruleset| mesh.access.asked(ruleset, class.client()).decide(class.client());
                let explained = access.rulesets.iter().any(|ruleset| decision(ruleset).is_allowed());
                assert_eq!(explained, reaches, "explained: {}", context());
                let excepted = mesh.access.exceptions(access).contains(&class);
                assert_eq!(excepted, reaches != access.default, "an exception: {}", context());
            }
        }
    }
}

proptest! {
    #[test]
    fn groups_of_servers_are_asked_what_each_server_would_be_asked(
        selectors in prop::collection::vec(selectors(), 1..5),
        policies in permissions(),
        changed in permissions(),
    ) {
        let mesh = testkit::resource::mesh("default", "STRICT");
        let numbered = selectors.iter().enumerate();
        let services: Vec<Resource> =
            numbered.map(|(n, (selector, generated))| remote(n, selector, *generated)).collect();
        let present = |resource: &Resource| (resource.key.clone(), Some(Arc::new(resource.clone())));
        let clients = SERVICES.map(client);
        let all = clients.iter().chain([&mesh]).chain(&services).chain(&policies);
        let mut state = AllMeshes::in_zone("east");
        state.apply(&all.map(present).collect::<Vec<_>>());
        agree(state.mesh("default").unwrap(), &services);
        for policy in &changed {
            let before = state.mesh("default").unwrap().clone();
            let updates = state.apply(&[present(policy)]);
            let after = state.mesh("default").unwrap();
            agree(after, &services);
            for name in SERVICES {
                let class = ClientClass::of(after, &after.dataplanes[format!("dp-{name}").as_str()]);
                let differs = before.access.destinations(&class) != after.access.destinations(&class);
                let woken = updates.iter().any(|update| {
                    let affected = &update.affected;
                    affected.whole_mesh || affected.reachability_by_default || affected.reachability.contains(&class)
                });
                prop_assert!(woken || !differs, "{name} reaches something else and is not woken");
            }
        }
    }
}
