//! Offered changes, applied to random meshes: the call is allowed then, and no other unless the notes say so.

use std::collections::BTreeSet;

use policy::Client;
use proptest::prelude::*;
use resources::{Kind, Resource, kinds::dataplane::Dataplane};
use serde_json::{Value, json};
use testkit::build::{self, Builder};
use topology::{
    ClientClass, MeshSnapshot,
    access::explain::{AccessChange, ReachabilityVerdict},
    matching,
};

use super::{anyone, asked, from, of, of_service, offered, permission};
use crate::fixtures::mesh;

const SERVICES: [&str; 3] = ["a", "b", "c"];

/// Labels, whether the second inbound is there, and a version.
type Proxy = (usize, Option<&'static str>, bool, &'static str);

fn proxies() -> impl Strategy<Value = Vec<Proxy>> {
    let label = prop::option::of(prop::sample::select(vec!["x", "y"]));
    let one = (0..SERVICES.len(), label, any::<bool>(), prop::sample::select(vec!["1", "2"]));
    prop::collection::vec(one, 3..9)
}

fn dataplane(at: usize, &(service, label, two, version): &Proxy) -> Resource {
    let service = SERVICES[service];
    let labels: Vec<(&str, &str)> = label.iter().map(|value| ("app", *value)).collect();
    let proxy = build::dataplane(&format!("{service}-{at}")).labels(&labels);
    let proxy = proxy.address(&format!("10.0.0.{}", at + 1));
    let ports = if two { &[80, 81][..] } else { &[80] };
    let serve =
        |proxy: Builder<Dataplane>, port: &u32| proxy.inbound(*port).service(service).tag("version", version);
    ports.iter().fold(proxy, serve).complete()
}

fn targets() -> impl Strategy<Value = Value> {
    let service = prop::sample::select(SERVICES.to_vec());
    prop_oneof![
        Just(anyone()),
        service.prop_map(|name| json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": name } })),
        prop::sample::select(vec!["1", "2"])
            .prop_map(|version| json!({ "kind": "MeshSubset", "tags": { "version": version } })),
        prop::sample::select(vec!["x", "y"])
            .prop_map(|app| json!({ "kind": "Dataplane", "labels": { "app": app } })),
        Just(json!({ "kind": "Dataplane", "labels": { "app": "x" }, "sectionName": "81" })),
    ]
}

fn permissions() -> impl Strategy<Value = Vec<Resource>> {
    let action = prop::sample::select(vec!["Allow", "Deny", "AllowWithShadowDeny"]);
    let who = prop_oneof![Just(anyone()), prop::sample::select(SERVICES.to_vec()).prop_map(of_service),];
    let by_tags = (targets(), prop::collection::vec((who, action), 1..3));
    let by_tags = by_tags.prop_map(|(target, entries)| from("x", target, &entries));
    let ids = || {
        let id = prop::sample::select(SERVICES.to_vec()).prop_map(
            |name| json!({ "spiffeID": { "type": "Exact", "value": format!("spiffe://default/{name}") } }),
        );
        prop::collection::vec(id, 0..2)
    };
    let by_id = (targets(), ids(), ids());
    let by_id = by_id.prop_map(|(target, allow, deny)| {
        permission(
            "x",
            json!({ "targetRef": target, "rules": [{ "default": { "allow": allow, "deny": deny } }] }),
        )
    });
    let one = prop_oneof![by_tags, by_id];
    prop::collection::vec(one, 0..5).prop_map(|list| {
        let numbered = list.into_iter().enumerate().map(|(at, it)| {
            let key = resources::Key::new(Kind::MeshTrafficPermission, "default", &format!("p{at}"));
            Resource { key, ..it }
        });
        numbered.collect()
    })
}

/// Returns the pairs of clients and inbounds that accept them.
fn allowed(mesh: &MeshSnapshot) -> BTreeSet<(Client, String)> {
    let selector = policy::PolicySelector::default();
    let clients: BTreeSet<Client> =
        mesh.dataplanes.values().map(|it| ClientClass::of(mesh, it).client().clone()).collect();
    let mut allowed = BTreeSet::new();
    for dataplane in mesh.dataplanes.values() {
        for inbound in matching::inbounds(dataplane) {
            let policies = mesh.policies_of(Kind::MeshTrafficPermission);
            let asked = policy::permission::resolve(policies, dataplane, inbound, &selector);
            let place = dataplane.kri(&inbound.section_name()).unwrap().to_string();
            let in_here = clients.iter().filter(|client| asked.decide(client).is_allowed());
            allowed.extend(in_here.map(|client| (client.clone(), place.clone())));
        }
    }
    allowed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn an_offered_permission_allows_the_call_and_nothing_unsaid(
        proxies in proxies(),
        permissions in permissions(),
    ) {
        let mut resources = vec![mesh("STRICT")];
        resources.extend(proxies.iter().enumerate().map(|(at, proxy)| dataplane(at, proxy)));
        resources.extend(permissions);
        let before = of(resources.clone());
        let clients: Vec<&Resource> = before.dataplanes.values().map(|it| &**it).collect();
        for client in clients {
            for service in SERVICES {
                let prefix = format!("{service}-");
                let found = asked(&before, client.name(), &prefix, false, false);
                let Some(change @ AccessChange::Write(offer)) = &found.change else { continue };
                let after = of(resources.iter().cloned().chain(offered(change)).collect());
                let then = asked(&after, client.name(), &prefix, false, false);
                prop_assert_eq!(then.verdict, ReachabilityVerdict::Reachable, "{:?}", change);
                // A permission names an identity, which clients with other tags may have as well.
                let then = allowed(&after);
let first = allowed(&before);
                prop_assert!(first.is_subset(&then), "nothing is closed");
                let own = ClientClass::of(&before, client);
                for (opened, place) in then.difference(&first) {
                    prop_assert_eq!(&opened.spiffe_ids, &own.client().spiffe_ids, "{} is opened by {:?}", place, change);
                    if opened != own.client() {
                        continue;
                    }
                    let said = found.refusing.iter().chain(&offer.besides);
                    prop_assert!(said.map(ToString::to_string).any(|it| it == *place), "{} in {:?}", place, change);
                }
            }
        }
    }
}
