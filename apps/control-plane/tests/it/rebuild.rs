//! After any changes every proxy has, byte for byte, what a control plane would tell it that has just
//! started and knows nothing of the past.

mod policies;
mod trimmed;

use std::{net::IpAddr, sync::Arc};

use plan::ProxyTraits;
use proptest::prelude::*;
use resources::{Key, Kind, Resource, Status};
use runtime::Shutdown;
use serde_json::{Value, json};
use serving::push::{Current, PendingWork, Push};
use store::Write as Stored;

use crate::world::{ConnectedProxy, World, dataplane, mesh, resource, service, traits};

/// A write in a few small numbers: which resource, and what is in it (`None` deletes it).
pub type Write = (u8, u8, Option<Content>);

/// The second number says which proxies it selects, if it is a policy.
pub type Content = ([u8; 4], u8);

/// Some writes in one batch, and which proxies get their turn afterwards.
pub type Step = (Vec<Write>, u8);

pub const PROXIES: u8 = 4;
/// The first kind of those in [`policies`].
const NEWER: u8 = 22;
const KINDS: u8 = NEWER + policies::KINDS;

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let content = prop::option::weighted(0.85, (prop::array::uniform4(0u8..4), 0u8..12));
    // More often one of the kinds without which there is nothing to configure.
    let write = (prop_oneof![2 => 0..NEWER, 1 => NEWER..KINDS], 0u8..PROXIES, content);
    prop::collection::vec((prop::collection::vec(write, 1..4), any::<u8>()), 1..20)
}

/// Mostly policies, in a mesh in which all proxies are there already: which ones does each of them affect?
pub fn policies_in_a_full_mesh() -> impl Strategy<Value = Vec<Step>> {
    let content = || (prop::array::uniform4(0u8..4), 0u8..12);
    let policy = (14..KINDS, 0u8..PROXIES, prop::option::weighted(0.8, content()));
    let dataplane = (Just(1u8), 0u8..PROXIES, content().prop_map(Some));
    let write = prop_oneof![5 => policy, 1 => dataplane];
    let steps = prop::collection::vec((prop::collection::vec(write, 1..3), any::<u8>()), 1..16);
    steps.prop_map(|steps| std::iter::once(full_mesh()).chain(steps).collect())
}

/// All proxies and what they call.
fn full_mesh() -> Step {
    // One of them has its traffic redirected, which some policies are about.
    let calls = |i| if i == 3 { [i, 1, 3, 3] } else { [i, 1, i % 3, 0] };
    let everybody = (0..PROXIES).flat_map(|i| [(1, i, Some((calls(i), 0))), (7, i, Some(([i, 0, i, 2], 0)))]);
    (everybody.collect(), u8::MAX)
}

fn key(kind: Kind, name: &str) -> Key {
    Key::new(kind, "default", name)
}

pub fn built(kind: u8, name: u8, (content, whom): Content) -> Resource {
    match kind {
        0 => mesh("default", ["", "STRICT", "PERMISSIVE", "STRICT"][usize::from(content[0])]),
        1..=6 => random_dataplane(name, content),
        7..=10 => random_service(name, content),
        11 | 12 => random_external(name, content),
        13 => {
            let certified = if content[0] < 2 { "ca-1" } else { "" };
            let spec = json!({ "mTLS": { "issuedBackend": certified } });
            resource(key(Kind::DataplaneInsight, &format!("dp-{name}")), &[], spec)
        }
        16 | 17 => for_some(whom, name, random_route(Kind::MeshHTTPRoute, name, content)),
        18 => for_some(whom, name, random_route(Kind::MeshTCPRoute, name, content)),
        19..=21 => for_some(whom, name, random_timeout(name, content)),
        NEWER.. => policies::built(kind - NEWER, name, (content, whom)),
        _ => {
            let from = json!({ "targetRef": { "kind": "MeshSubset", "tags": tags(content[0]) },
                "default": { "action": if content[1] < 2 { "Allow" } else { "Deny" } } });
            let spec = json!({ "from": [from] });
            let policy = resource(key(Kind::MeshTrafficPermission, &format!("p-{name}")), &[], spec);
            for_some(whom, name, policy)
        }
    }
}

/// The policy, written for some proxies in one of the many ways of saying so.
fn for_some(whom: u8, name: u8, policy: Resource) -> Resource {
    let mut spec = policy.spec.to_json();
    spec["targetRef"] = match whom {
        0 => json!({ "kind": "Mesh" }),
        1 => json!({ "kind": "Mesh", "proxyTypes": ["Gateway"] }),
        2 => json!({ "kind": "Dataplane", "name": "dp-0" }),
        3 => json!({ "kind": "Dataplane", "name": "dp-1" }),
        4 => json!({ "kind": "Dataplane", "name": "dp-1", "sectionName": "web" }),
        5 => json!({ "kind": "Dataplane", "labels": { "team": "x" } }),
        6 => json!({ "kind": "Dataplane", "labels": { "team": "x" }, "sectionName": "81" }),
        7 => json!({ "kind": "MeshSubset", "tags": { "version": "1" } }),
        8 => json!({ "kind": "MeshService", "name": "a" }),
        9 => json!({ "kind": "MeshServiceSubset", "name": "b", "tags": { "version": "*" } }),
        10 => json!({ "kind": "MeshHTTPRoute", "name": format!("r-{name}") }),
        _ => json!({ "kind": "Dataplane" }),
    };
    let shadow: &[(&str, &str)] = if whom == 11 { &[("kuma.io/effect", "shadow")] } else { &[] };
    resource(policy.key, shadow, spec)
}

fn tags(seed: u8) -> Value {
    match seed {
        0 => json!({ "kuma.io/service": "a" }),
        1 => json!({ "kuma.io/service": "b", "version": "1" }),
        2 => json!({ "kuma.io/service": "b", "kuma.io/protocol": "http" }),
        _ => json!({ "kuma.io/service": "a", "kuma.io/protocol": "grpc", "version": "1" }),
    }
}

fn random_dataplane(name: u8, [first, second, calls, extra]: [u8; 4]) -> Resource {
    let state = ["Ready", "NotReady", "Ignored", "Ready"][usize::from(extra)];
    let backend =
        |kind: &str, name: u8, port: u16| json!({ "kind": kind, "name": format!("s-{name}"), "port": port });
    let outbounds = match calls {
        0 => json!([{ "port": 1001, "backendRef": backend("MeshService", second, 80) },
                    { "port": 1002, "tags": tags(first) }]),
        1 => json!([{ "port": 1001, "backendRef":
                        { "kind": "MeshService", "labels": { "team": "x" }, "port": 80 } },
                    { "port": 1002, "backendRef": backend("MeshExternalService", first, 443) }]),
        2 => json!([{ "port": 1001, "backendRef": backend("MeshService", first, 0) },
                    { "port": 1002, "backendRef": backend("MeshService", first, 81) },
                    { "port": 1003, "backendRef": backend("MeshExternalService", second, 0) }]),
        _ => json!([{ "port": 1001, "tags": { "kuma.io/service": "a" } },
                    { "port": 1001, "tags": { "kuma.io/service": "b" } }]),
    };
    let mut networking = json!({
        "address": format!("127.0.3.{}", name + 4 * (extra / 3)),
        "inbound": [
            { "port": 80, "name": "web", "tags": tags(first) },
            { "port": 81, "tags": tags(second), "state": state },
        ],
        "outbound": outbounds
    });
    if calls == 3 && extra > 1 {
        networking["transparentProxying"] =
            json!({ "redirectPortInbound": 15006, "redirectPortOutbound": 15001 });
        // What is listed or asked for by service is all that is offered.
        if extra == 2 {
            networking["transparentProxying"]["reachableServices"] = json!([tags(second)["kuma.io/service"]]);
        }
    }
    let labels: &[(&str, &str)] = if second % 2 == 1 { &[("team", "x")] } else { &[] };
    resource(key(Kind::Dataplane, &format!("dp-{name}")), labels, json!({ "networking": networking }))
}

fn random_service(name: u8, [selector, port, label, status]: [u8; 4]) -> Resource {
    let selector = match selector {
        0 => json!({ "dataplaneTags": { "kuma.io/service": "a" } }),
        1 => json!({ "dataplaneTags": { "version": "*" } }),
        2 => json!({ "dataplaneRef": { "name": format!("dp-{label}") } }),
        _ => json!({ "dataplaneLabels": { "matchLabels": { "team": "x" } } }),
    };
    let ports = match port {
        0 => json!([{ "port": 80, "targetPort": 80, "appProtocol": "http" }]),
        1 => json!([{ "port": 80, "targetPort": 81, "appProtocol": "grpc" }]),
        2 => json!([{ "port": 80, "targetPort": "web" }, { "port": 81, "targetPort": 81 }]),
        _ => json!([{ "port": 81, "name": "x", "targetPort": 80 }]),
    };
    let labels: &[(&str, &str)] = if label > 1 { &[("team", "x")] } else { &[] };
    let spec = json!({ "selector": selector, "ports": ports });
    let mut service = resource(key(Kind::MeshService, &format!("s-{name}")), labels, spec);
    if status > 1 {
        let status = json!({ "vips": [{ "ip": format!("241.0.{name}.{status}") }], "tls": { "status": "Ready" },
                "addresses": [{ "hostname": format!("s-{status}.mesh") }] });
        service.status = Some(Status::from_json(Kind::MeshService, status).unwrap());
    }
    service
}

fn random_external(name: u8, [endpoint, tls, label, status]: [u8; 4]) -> Resource {
    let address = ["host.example", "192.0.2.1", "", "unix:///tmp/x.sock"][usize::from(endpoint)];
    let mut spec = json!({
        "match": { "port": 443, "protocol": "tcp" },
        "endpoints": [{ "address": address, "port": 443 + u16::from(tls) }]
    });
    if tls == 3 {
        spec["tls"] = json!({ "enabled": true });
    }
    let labels: &[(&str, &str)] = if label == 3 { &[("kuma.io/zone", "west")] } else { &[] };
    let mut external = resource(key(Kind::MeshExternalService, &format!("s-{name}")), labels, spec);
    if status > 1 {
        let status = json!({ "vip": { "ip": format!("242.0.{name}.{status}") } });
        external.status = Some(Status::from_json(Kind::MeshExternalService, status).unwrap());
    }
    external
}

fn random_route(kind: Kind, name: u8, [target, backend, weight, how]: [u8; 4]) -> Resource {
    let mirrored = json!({ "kind": "MeshService", "name": format!("s-{backend}"), "port": 80 });
    let first = match how {
        0 => json!({ "kind": "MeshService", "labels": { "team": "x" }, "port": 80 }),
        1 => json!({ "kind": "MeshService", "name": format!("s-{backend}") }),
        2 if weight > 1 => json!({ "kind": "MeshServiceSubset", "name": "b", "tags": { "version": "1" } }),
        2 => json!({ "kind": "MeshService", "name": format!("s-{backend}"), "sectionName": "x" }),
        _ => json!({ "kind": "MeshExternalService", "name": format!("s-{backend}") }),
    };
    let second =
        json!({ "kind": "MeshService", "name": format!("s-{target}"), "port": 80, "weight": weight });
    let mut rule = json!({ "default": { "backendRefs": [first, second] } });
    if kind == Kind::MeshHTTPRoute {
        let prefix = ["/", "/a", "/a", "/b"][usize::from(weight)];
        rule["matches"] = json!([{ "path": { "type": "PathPrefix", "value": prefix } }]);
        rule["default"]["filters"] =
            json!([{ "type": "RequestMirror", "requestMirror": { "backendRef": mirrored } }]);
    }
    let to = match target {
        3 => json!({ "kind": "MeshService", "labels": { "team": "x" } }),
        2 if backend > 1 => json!({ "kind": "MeshService", "name": "a" }),
        _ => json!({ "kind": "MeshService", "name": format!("s-{target}") }),
    };
    let spec = json!({ "to": [{ "targetRef": to, "rules": [rule] }] });
    resource(key(kind, &format!("r-{name}")), &[], spec)
}

fn random_timeout(name: u8, [target, section, how, seconds]: [u8; 4]) -> Resource {
    let section = ["80", "81", "x", "80"][usize::from(section)];
    let target = match how {
        0 => json!({ "kind": "Mesh" }),
        1 => json!({ "kind": "MeshService", "labels": { "team": "x" } }),
        2 => {
            json!({ "kind": "MeshService", "name": format!("s-{target}"), "sectionName": section })
        }
        _ => json!({ "kind": "MeshHTTPRoute", "name": format!("r-{target}") }),
    };
    let conf =
        json!({ "idleTimeout": format!("{seconds}s"), "http": { "requestTimeout": format!("{seconds}s") } });
    let spec = json!({ "to": [{ "targetRef": target, "default": conf }], "rules": [{ "default": conf }] });
    resource(key(Kind::MeshTimeout, &format!("t-{name}")), &[], spec)
}

/// Writes a batch as far as it makes sense: what is not there cannot be deleted.
pub async fn store(world: &World, batch: &[Write]) {
    let changes = batch
        .iter()
        .map(|&(kind, name, content)| (built(kind, name, content.unwrap_or_default()), content.is_some()));
    write(world, changes).await;
}

/// Writes resources that are to be there, and deletes the others.
pub async fn write(world: &World, changes: impl Iterator<Item = (Resource, bool)>) {
    let snapshot = world.store.snapshot().unwrap();
    let mut writes: Vec<Stored> = Vec::new();
    for (resource, present) in changes {
        let key = resource.key.clone();
        // The last one of a batch counts.
        writes.retain(|write| *write.key() != key);
        match (present, snapshot.get(&key)) {
            (true, Some(old)) => writes.push(Stored::Update { resource, expected: old.version }),
            (true, None) => writes.push(Stored::Create(resource)),
            (false, Some(_)) => writes.push(Stored::Delete { key, expected: None }),
            (false, None) => {}
        }
    }
    if writes.is_empty() {
        return;
    }
    world.store.write(writes).await.unwrap();
    world.push.caught_up().await;
}

/// Configuration from a control plane that has started just now.
pub async fn from_scratch(world: &World, traits: &ProxyTraits) -> ConnectedProxy {
    let fresh = World::on(world.store.clone());
    fresh.push.caught_up().await;
    let mut proxy = ConnectedProxy::connect(&fresh, traits.clone());
    proxy.turn().await;
    proxy
}

pub fn same(incremental: &ConnectedProxy, scratch: &ConnectedProxy) {
    // A proxy that has lost its Dataplane keeps what it has; there is nothing to compare it with.
    let Some(expect) = scratch.received() else { return };
    let told = incremental.received().unwrap_or_default();
    let names = |all: &[(xds::Type, String, Vec<u8>)]| -> Vec<String> {
        all.iter().map(|(kind, name, _)| format!("{kind:?} {name}")).collect()
    };
    assert_eq!(names(&told), names(&expect));
    for (told, expect) in told.iter().zip(&expect) {
        assert_eq!(told, expect);
    }
    let secrets = |proxy: &ConnectedProxy| -> Vec<_> {
        proxy.current.iter().flat_map(Current::secrets).cloned().collect()
    };
    assert_eq!(secrets(incremental), secrets(scratch));
}

/// Proxies of both ways of naming, with and without IPv6 and a node that says where it is. Their agents have a place
/// for sockets, and answer queries for hostnames or not.
pub fn connected(world: &World) -> Vec<ConnectedProxy> {
    let proxy = |name| {
        let traits = ProxyTraits {
            unified_naming: name > 1,
            ipv6: name % 2 == 1,
            host_ip: (name == 1).then_some(IpAddr::from([192, 0, 2, 99])),
            work_dir: "/tmp/kuma".to_owned(),
            resolver: name != 1,
            ..traits("default", &format!("dp-{name}"))
        };
        ConnectedProxy::connect(world, traits)
    };
    (0..PROXIES).map(proxy).collect()
}

/// Stores batch after batch, and compares what proxies have with what they would be sent if they started now.
pub async fn compare_with_scratch<W>(
    world: &World,
    proxies: &mut [ConnectedProxy],
    steps: &[(Vec<W>, u8)],
    store: impl AsyncFn(&World, &[W]),
) {
    for (batch, turns) in steps {
        store(world, batch).await;
        for (name, proxy) in proxies.iter_mut().enumerate() {
            // Who does not get its turn now has more to do later.
            if turns & (1 << name) != 0 {
                proxy.turn().await;
                same(proxy, &from_scratch(world, &proxy.connected.watcher.traits).await);
            }
        }
    }
    for proxy in proxies {
        proxy.turn().await;
        same(proxy, &from_scratch(world, &proxy.connected.watcher.traits).await);
        assert_eq!(proxy.turn().await, PendingWork::Nothing);
    }
}

async fn follow(steps: &[Step]) {
    let world = World::new();
    world.put([mesh("default", "STRICT")]).await;
    compare_with_scratch(&world, &mut connected(&world), steps, store).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_ends_where_a_rebuild_from_scratch_does(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(follow(&steps));
    }
}

proptest! {
    // Each of them is long, and most of its writes matter to somebody.
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_policies_ends_where_a_rebuild_from_scratch_does(steps in policies_in_a_full_mesh()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(follow(&steps));
    }
}

/// Policies that mean nothing to anybody would prove nothing.
#[tokio::test]
async fn every_kind_of_policy_that_is_made_up_here_changes_what_some_proxy_has() {
    let (everybody, _) = full_mesh();
    for kind in NEWER..KINDS {
        let world = World::new();
        world.put([mesh("default", "STRICT")]).await;
        store(&world, &everybody).await;
        // An identity needs a trusted authority, and a collector needs a sender.
        world.put(policies::referred_to_and_referring()).await;
        let mut proxies = connected(&world);
        let mut changed = false;
        for content in (0..4).flat_map(|a| (0..4).map(move |b| [a, b, 0, a])) {
            let mut before = Vec::new();
            for proxy in &mut proxies {
                proxy.turn().await;
                before.push(proxy.received());
            }
            store(&world, &[(kind, 1, Some((content, 0)))]).await;
            for (proxy, before) in proxies.iter_mut().zip(before) {
                proxy.turn().await;
                changed |= proxy.received() != before;
            }
        }
        assert!(changed, "{}", built(kind, 1, Content::default()).key);
    }
}

/// A proxy as the server runs it: it works whenever it is woken, until it is asked what it has.
async fn live(push: Arc<Push>, traits: ProxyTraits, ending: Shutdown) -> ConnectedProxy {
    let mut proxy = ConnectedProxy { connected: push.connect(traits), current: None };
    loop {
        let watcher = proxy.connected.watcher.clone();
        tokio::select! {
            biased;
            work = watcher.work() => {
                if let Some(next) = proxy.connected.compute(work, proxy.current.as_ref()).await {
                    proxy.current = Some(next);
                }
            }
            () = ending.begun() => return proxy,
        }
    }
}

/// Proxies work all the time, while policies change their targets, and Dataplanes their labels.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_missed_by_proxies_that_policies_start_and_cease_to_select() {
    let world = World::new();
    world.put([mesh("default", "STRICT"), random_service(0, [0; 4])]).await;
    world.put((0..PROXIES).map(|name| random_dataplane(name, [name, 0, 0, 0]))).await;
    let ending = Shutdown::default();
    let live = |name| live(world.push.clone(), traits("default", &format!("dp-{name}")), ending.clone());
    let proxies: Vec<_> = (0..PROXIES).map(|name| tokio::spawn(live(name))).collect();
    for round in 0..300u16 {
        let [a, b, c] = [round % 4, round / 4 % 4, round / 16 % 4].map(|digit| digit as u8);
        let kind = [1, 14, 16, 19][usize::from(a)];
        let whom = (round % 11) as u8;
        let resource = built(kind, b, ([b, c, 0, a], whom));
        // Not waited for, so that some rounds are of several writes and others of one.
        world.put_unheard([resource]).await;
    }
    world.push.caught_up().await;
    ending.begin();
    for proxy in proxies {
        let proxy = proxy.await.unwrap();
        same(&proxy, &from_scratch(&world, &proxy.connected.watcher.traits).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_missed_by_proxies_that_connect_while_everything_changes() {
    let world = World::new();
    world.put([mesh("default", ""), service("default", "a", &[]), service("default", "b", &[])]).await;
    let ending = Shutdown::default();
    let mut proxies = Vec::new();
    for round in 0..150u8 {
        let name = format!("web-{}", round % 30);
        let calls: &[&str] = if round % 3 == 0 { &["a"] } else { &["b", "a"] };
        world.put([dataplane("default", &name, &format!("127.0.4.{}", round % 30), "web", calls)]).await;
        if round < 30 {
            proxies.push(tokio::spawn(live(world.push.clone(), traits("default", &name), ending.clone())));
        }
        let server = ["a", "b"][usize::from(round % 2)];
        let address = format!("127.0.5.{}", 1 + round / 2);
        // Not waited for: a proxy that is planned now may see it or not, but must be woken by it.
        let resource = dataplane("default", &format!("server-{}", round % 20), &address, server, &[]);
        world.put_unheard([resource]).await;
    }
    world.push.caught_up().await;
    // A proxy that still has something to do does that before it ends.
    ending.begin();
    for proxy in proxies {
        let proxy = proxy.await.unwrap();
        same(&proxy, &from_scratch(&world, &proxy.connected.watcher.traits).await);
    }
}
