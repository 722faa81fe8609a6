//! Proxies whose outbounds are trimmed by permissions: whatever changes who may call whom, each has what a control plane
//! would tell it that has just started.

use proptest::prelude::*;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};

use super::{
    PROXIES, compare_with_scratch, connected, policies, random_dataplane, random_route, random_service, tags,
    write,
};
use crate::world::{ConnectedProxy, World, mesh, resource};

/// A write in a few small numbers: which resource, and what is in it (`None` deletes it).
type Write = (u8, u8, Option<[u8; 4]>);

/// Some writes in one batch, and which proxies get their turn afterwards.
type Step = (Vec<Write>, u8);

const KINDS: u8 = 20;
/// Positions among the kinds of [`policies`].
const IDENTITY: u8 = 12;
const TRUST: u8 = 13;
const VIRTUAL_OUTBOUND: u8 = 15;
const ADDRESSES: u8 = 16;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content = prop::option::weighted(0.85, prop::array::uniform4(0u8..4));
    let write = (0..KINDS, 0u8..PROXIES, content);
    let steps = prop::collection::vec((prop::collection::vec(write, 1..4), any::<u8>()), 1..16);
    steps.prop_map(|steps| std::iter::once(full()).chain(steps).collect())
}

/// All proxies, what they call, and a permission.
fn full() -> Step {
    let content = |i: u8| Some([i, (i + 1) % 4, 0, 3]);
    let everyone = (0..PROXIES).flat_map(|i| [(1, i, content(i)), (5, i, content(i)), (9, i, content(i))]);
    (everyone.collect(), u8::MAX)
}

fn built(kind: u8, name: u8, content: [u8; 4]) -> Resource {
    match kind {
        0 => modal(content),
        1..=4 => dataplane(name, content),
        5..=7 => random_service(name, [content[0], content[1], content[2], 2 + content[3] % 2]),
        8..=14 => permission(name, content),
        15 => policies::built(IDENTITY, name, (content, 0)),
        16 => policies::built(TRUST, name, (content, 0)),
        17 => policies::built(VIRTUAL_OUTBOUND, name, (content, 0)),
        18 => policies::built(ADDRESSES, name, (content, 0)),
        _ => random_route(Kind::MeshHTTPRoute, name, content),
    }
}

/// The mesh with a mode of trimming, mostly the one that does it.
fn modal([mtls, mode, zone, extra]: [u8; 4]) -> Resource {
    let mtls = ["STRICT", "PERMISSIVE", "STRICT", ""][usize::from(mtls)];
    let mode = ["enforce", "enforce", "shadow", "off"][usize::from(mode)];
    let mut made = mesh("default", mtls);
    let mut label = |name: &str, value: &str| made.labels.insert(name.to_owned(), value.to_owned());
    label("reachability.kuma.io/mode", mode);
    if zone == 3 {
        label("default.reachability.kuma.io/mode", "enforce");
    }
    if extra > 1 {
        label("reachability.kuma.io/force", "true");
    }
    if extra % 2 == 1 {
        label("reachability.kuma.io/stub", "true");
    }
    made
}

/// A proxy that is offered everything it may call; some say a mode of their own.
fn dataplane(name: u8, [first, second, mode, extra]: [u8; 4]) -> Resource {
    let mut made = random_dataplane(name, [first, second, 3, if extra == 0 { 2 } else { 3 }]);
    if mode == 3 {
        made.labels.insert("reachability.kuma.io/mode".to_owned(), "off".to_owned());
    }
    made
}

fn permission(name: u8, [whom, client, effect, form]: [u8; 4]) -> Resource {
    let id = match client {
        0 => json!({ "type": "Exact", "value": "spiffe://default/a" }),
        1 => json!({ "type": "Prefix", "value": "spiffe://default/" }),
        2 => json!({ "type": "Prefix", "value": "spiffe://td/" }),
        _ => json!({ "type": "Exact", "value": "spiffe://default/b" }),
    };
    let mut spec = json!({ "targetRef": target(name, whom) });
    if form < 2 {
        let list = ["allow", "deny", "allowWithShadowDeny", "allow"][usize::from(effect)];
        let mut matched = json!({ "spiffeID": id });
        if form == 1 {
            matched["sni"] = json!({ "type": "Exact", "value": format!("sni.msvc.default.s-{client}.80") });
        }
        spec["rules"] = json!([{ "default": { list: [matched] } }]);
    } else {
        let action = ["Allow", "Deny", "AllowWithShadowDeny", "Allow"][usize::from(effect)];
        let from = match client {
            0 => json!({ "kind": "Mesh" }),
            client => json!({ "kind": "MeshSubset", "tags": tags(client) }),
        };
        spec["from"] = json!([{ "targetRef": from, "default": { "action": action } }]);
    }
    resource(Key::new(Kind::MeshTrafficPermission, "default", &format!("p-{name}")), &[], spec)
}

fn target(name: u8, whom: u8) -> Value {
    match (name % 2, whom) {
        (0, 0) => json!({ "kind": "Mesh" }),
        (0, 1) => json!({ "kind": "MeshService", "name": "a" }),
        (0, 2) => json!({ "kind": "MeshSubset", "tags": { "version": "1" } }),
        (0, _) => json!({ "kind": "MeshServiceSubset", "name": "b", "tags": { "version": "*" } }),
        (_, 0) => json!({ "kind": "Dataplane", "labels": { "team": "x" } }),
        (_, 1) => json!({ "kind": "Dataplane", "name": "dp-1", "sectionName": "web" }),
        (_, 2) => json!({ "kind": "Dataplane", "sectionName": "81" }),
        _ => json!({ "kind": "Dataplane", "name": "dp-2" }),
    }
}

async fn store(world: &World, batch: &[Write]) {
    let changes = batch
        .iter()
        .map(|&(kind, name, content)| (built(kind, name, content.unwrap_or_default()), content.is_some()));
    write(world, changes).await;
}

async fn follow(steps: &[Step]) {
    let world = World::new();
    world.put([modal([0; 4])]).await;
    compare_with_scratch(&world, &mut connected(&world), steps, store).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_permissions_ends_where_a_rebuild_from_scratch_does(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(follow(&steps));
    }
}

/// A route answers calls to all services with a label: one that takes on the label is offered, although no permission
/// allows to call it.
#[tokio::test]
async fn a_service_that_gets_the_label_of_a_route_reaches_a_trimmed_proxy() {
    let identities = vec![(15, 0, Some([0; 4])), (16, 0, Some([0; 4])), (8, 3, None)];
    let routed = vec![(5, 0, Some([0, 0, 2, 0])), (19, 0, Some([3, 0, 0, 1]))];
    let labelled = vec![(5, 1, Some([0, 0, 2, 0]))];
    follow(&[full(), (identities, 0), (routed, 1), (labelled, 0)]).await;
}

fn listeners(proxy: &ConnectedProxy) -> usize {
    let told = proxy.received().unwrap_or_default();
    told.iter().filter(|(kind, ..)| *kind == xds::Type::Listener).count()
}

/// Sequences in which nothing is ever trimmed would prove nothing.
#[tokio::test]
async fn permissions_change_a_trimmed_proxy_and_no_other() {
    let world = World::new();
    world.put([modal([0; 4])]).await;
    let services = (0..PROXIES).map(|name| (5, name, Some([0, 0, 0, name])));
    let proxies = (0..PROXIES).map(|name| (1, name, Some([name, name, if name == 1 { 3 } else { 0 }, 3])));
    store(&world, &services.chain(proxies).collect::<Vec<_>>()).await;
    let mut proxies = connected(&world);
    // Everyone is denied, then everyone is allowed.
    let mut counts = Vec::new();
    for effect in [1, 0] {
        store(&world, &[(8, 0, Some([0, 0, effect, 3]))]).await;
        for proxy in &mut proxies {
            proxy.turn().await;
        }
        counts.push(proxies.iter().map(listeners).collect::<Vec<_>>());
    }
    let [denied, allowed]: [Vec<usize>; 2] = counts.try_into().unwrap();
    assert!(denied[0] < allowed[0] && denied[2] < allowed[2], "{denied:?} {allowed:?}");
    assert_eq!(denied[1], allowed[1]);
}
