//! Cost of a change: the proxies that are woken by it, and the resources that are encoded for them.

use std::sync::Arc;

use resources::{Key, Kind, Resource, Status};
use serde_json::json;
use serving::push::PendingWork;
use xds::Type;

use crate::world::{ConnectedProxy, World, dataplane, mesh, resource, service, traits};

const CALLERS: usize = 20;

/// Twenty callers of `backend`, one of `other`, and a mesh next door, all connected.
struct Busy {
    world: World,
    callers: Vec<ConnectedProxy>,
    /// A server of `backend`, the caller of `other`, and the proxy next door.
    bystanders: Vec<ConnectedProxy>,
}

impl Busy {
    async fn new() -> Busy {
        let world = World::new();
        world.put([mesh("default", "STRICT"), mesh("next-door", "STRICT")]).await;
        world.put([service("default", "backend", &[]), service("default", "other", &[])]).await;
        world
            .put([
                dataplane("default", "backend-1", "127.0.1.1", "backend", &[]),
                dataplane("default", "other-1", "127.0.1.2", "other", &[]),
                dataplane("default", "loner", "127.0.1.3", "loner", &["other"]),
                dataplane("next-door", "web", "127.0.1.4", "web", &[]),
            ])
            .await;
        let caller =
            |i| dataplane("default", &format!("web-{i}"), &format!("127.0.2.{i}"), "web", &["backend"]);
        world.put((0..CALLERS).map(caller)).await;
        let mut callers = Vec::new();
        for i in 0..CALLERS {
            callers.push(world.proxy("default", &format!("web-{i}")).await);
        }
        let bystanders = vec![
            world.proxy("default", "backend-1").await,
            world.proxy("default", "loner").await,
            world.proxy("next-door", "web").await,
        ];
        Busy { world, callers, bystanders }
    }

    /// Lets all proxies do what there is to do: what the callers did, and what the others did.
    async fn turns(&mut self) -> (Vec<PendingWork>, Vec<PendingWork>) {
        let mut callers = Vec::new();
        let mut bystanders = Vec::new();
        for proxy in &mut self.callers {
            callers.push(proxy.turn().await);
        }
        for proxy in &mut self.bystanders {
            bystanders.push(proxy.turn().await);
        }
        (callers, bystanders)
    }

    /// Checks that storing this wakes no proxy and costs nothing.
    async fn nobody_notices(&mut self, what: &str, resource: Resource) {
        let encoded = self.world.encoded();
        let woken = self.world.push.woken();
        self.world.put([resource]).await;
        let (callers, bystanders) = self.turns().await;
        assert!(callers.iter().chain(&bystanders).all(|work| *work == PendingWork::Nothing), "{what}");
        assert_eq!(self.world.push.woken(), woken, "{what}");
        assert_eq!(self.world.encoded_since(&encoded), [], "{what}");
    }
}

#[tokio::test]
async fn one_endpoint_encodes_one_assignment_and_wakes_only_its_callers() {
    let mut busy = Busy::new().await;
    for joins in [true, false] {
        let encoded = busy.world.encoded();
        let woken = busy.world.push.woken();
        if joins {
            busy.world.put([dataplane("default", "backend-2", "127.0.1.9", "backend", &[])]).await
        } else {
            busy.world.delete(Kind::Dataplane, "default", "backend-2").await
        }
        let (callers, bystanders) = busy.turns().await;
        assert!(callers.iter().all(|work| matches!(work, PendingWork::Endpoints)), "{callers:?}");
        assert_eq!(bystanders, [PendingWork::Nothing, PendingWork::Nothing, PendingWork::Nothing]);
        assert_eq!(busy.world.push.woken() - woken, CALLERS as u64);
        assert_eq!(busy.world.encoded_since(&encoded), [(Type::Endpoint, 1)]);
        let assignments: Vec<_> = busy
            .callers
            .iter()
            .map(|caller| caller.current.as_ref().unwrap().target.of(Type::Endpoint).values().next().unwrap())
            .collect();
        assert!(assignments.iter().all(|one| Arc::ptr_eq(one, assignments[0])), "it is shared, not copied");
        assert_eq!(assignments[0].body().windows(9).any(|text| text == b"127.0.1.9"), joins);
    }
}

#[tokio::test]
async fn metrics_tell_what_was_done() {
    let busy = Busy::new().await;
    let metrics = runtime::metrics::Metrics::default();
    serving::push::metrics::register(&busy.world.push, &metrics);
    let text = metrics.encode();
    let endpoints = busy.world.push.encoder().encoded(Type::Endpoint);
    for line in [
        format!("xds_proxies_connected {}", CALLERS + 3),
        format!("xds_proxies_woken_total {}", busy.world.push.woken()),
        format!("xds_resources_encoded_total{{type=\"endpoint\"}} {endpoints}"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn a_second_proxy_like_the_first_encodes_only_its_own() {
    let world = World::new();
    world.put([mesh("default", "STRICT"), service("default", "backend", &[])]).await;
    world.put([dataplane("default", "backend-1", "127.0.1.1", "backend", &[])]).await;
    let caller = |i| dataplane("default", &format!("web-{i}"), &format!("127.0.2.{i}"), "web", &["backend"]);
    world.put([caller(1), caller(2)]).await;
    let first = world.proxy("default", "web-1").await;
    let encoded = world.encoded();
    let second = world.proxy("default", "web-2").await;

    let known = first.received().unwrap();
    let fresh: Vec<_> = second.received().unwrap().into_iter().filter(|one| !known.contains(one)).collect();
    let mut own: Vec<&str> = fresh.iter().map(|(_, name, _)| name.as_str()).collect();
    own.sort_unstable();
    assert_eq!(own, ["inbound:127.0.2.2:80", "localhost:80"], "where it listens, and its application");
    assert_eq!(world.encoded_since(&encoded), [(Type::Cluster, 1), (Type::Listener, 1)]);
}

#[tokio::test]
async fn the_same_proxy_coming_back_encodes_nothing() {
    let busy = Busy::new().await;
    let encoded = busy.world.encoded();
    let again = busy.world.proxy("default", "web-0").await;
    assert_eq!(busy.world.encoded_since(&encoded), []);
    assert_eq!(again.received(), busy.callers[0].received());
}

#[tokio::test]
async fn what_concerns_no_proxy_wakes_and_encodes_nothing() {
    let mut busy = Busy::new().await;
    let mut status = service("default", "backend", &[]);
    let counts = json!({ "dataplaneProxies": { "connected": 7, "healthy": 7, "total": 7 } });
    status.status = Some(Status::from_json(Kind::MeshService, counts).unwrap());
    busy.nobody_notices("a status", status).await;

    let insight = json!({ "subscriptions": [{ "id": "1", "connectTime": "2024-05-01T10:00:00Z" }] });
    let key = Key::new(Kind::DataplaneInsight, "default", "backend-1");
    busy.nobody_notices("an insight", resource(key.clone(), &[], insight)).await;
    let rejection = json!({ "type": "cds", "name": "backend", "message": "is not liked" });
    let status = json!({ "cds": { "responsesRejected": "1" }, "rejections": [rejection] });
    let insight = json!({ "subscriptions": [{ "id": "1", "status": status }] });
    busy.nobody_notices("what a proxy refuses", resource(key, &[], insight)).await;
    let counts =
        resource(Key::global(Kind::MeshInsight, "default"), &[], json!({ "dataplanes": { "total": 7 } }));
    busy.nobody_notices("counts", counts).await;
    let services = json!({ "services": { "backend": { "status": "online", "dataplanes": { "total": 1 } } } });
    let key = Key::new(Kind::ServiceInsight, "default", "all-services-default");
    busy.nobody_notices("counts of services", resource(key, &[], services)).await;

    let secret = || json!({ "data": "c2VjcmV0" });
    let key = Key::new(Kind::Secret, "default", "some-secret");
    busy.nobody_notices("a secret", resource(key, &[], secret())).await;
    let key = Key::global(Kind::GlobalSecret, "some-secret");
    busy.nobody_notices("a global secret", resource(key, &[], secret())).await;

    busy.nobody_notices("a Dataplane next door", dataplane("next-door", "b", "127.0.1.8", "b", &[])).await;
    let same = dataplane("default", "backend-1", "127.0.1.1", "backend", &[]);
    busy.nobody_notices("the same again", same).await;
    busy.nobody_notices("a service nobody calls", service("default", "unloved", &[])).await;
}

#[tokio::test]
async fn a_permission_changes_listeners_of_servers_in_its_mesh_alone() {
    let mut busy = Busy::new().await;
    let encoded = busy.world.encoded();
    let spec = json!({
        "targetRef": { "kind": "Mesh" },
        "from": [{ "targetRef": { "kind": "MeshSubset", "tags": { "kuma.io/service": "web" } },
                   "default": { "action": "Allow" } }]
    });
    let key = Key::new(Kind::MeshTrafficPermission, "default", "let-web-in");
    busy.world.put([resource(key, &[], spec)]).await;
    let (callers, bystanders) = busy.turns().await;
    assert!(callers.iter().all(|work| *work == PendingWork::Everything), "{callers:?}");
    assert_eq!(bystanders, [PendingWork::Everything, PendingWork::Everything, PendingWork::Nothing]);
    // One inbound each: the callers', the server's and the loner's. Outbounds stay as they are.
    assert_eq!(busy.world.encoded_since(&encoded), [(Type::Listener, CALLERS as u64 + 2)]);
}

/// A hundred servers of `web` that call nothing; every tenth is of team `x` and has the tag `version: 1`.
struct Hundred {
    world: World,
    proxies: Vec<ConnectedProxy>,
    /// Number woken until the last look.
    before: u64,
}

async fn hundred() -> Hundred {
    let world = World::new();
    world.put([mesh("default", "STRICT"), mesh("next-door", "STRICT")]).await;
    let server = |i: usize| {
        let mut tags = json!({ "kuma.io/service": "web", "kuma.io/protocol": "http" });
        let labels: &[(&str, &str)] = if i.is_multiple_of(10) { &[("team", "x")] } else { &[] };
        if i.is_multiple_of(10) {
            tags["version"] = json!("1");
        }
        let inbounds = json!([{ "port": 80, "tags": tags }, { "port": 81, "name": "second", "tags": tags }]);
        let networking = json!({ "address": format!("127.0.2.{i}"), "inbound": inbounds });
        let key = Key::new(Kind::Dataplane, "default", &format!("web-{i}"));
        resource(key, labels, json!({ "networking": networking }))
    };
    world.put((0..100).map(server)).await;
    let mut proxies = Vec::new();
    for i in 0..100 {
        proxies.push(world.proxy("default", &format!("web-{i}")).await);
    }
    let before = world.push.woken();
    Hundred { world, proxies, before }
}

impl Hundred {
    /// Checks that these have something to do now, and how often they were woken for it.
    async fn awake(&mut self, expect: &[usize], times: usize, what: &str) {
        let mut busy = Vec::new();
        for (i, proxy) in self.proxies.iter_mut().enumerate() {
            if proxy.turn().await != PendingWork::Nothing {
                busy.push(i);
            }
        }
        let woken = self.world.push.woken();
        assert_eq!((busy.as_slice(), woken - self.before), (expect, times as u64), "{what}");
        self.before = woken;
    }

    /// Checks that storing this wakes these proxies and no other.
    async fn put_wakes<const N: usize>(&mut self, resources: [Resource; N], expect: &[usize]) {
        let what = format!("{:?}", resources.iter().map(|r| (&r.key, r.spec.to_json())).collect::<Vec<_>>());
        self.world.put(resources).await;
        self.awake(expect, expect.len(), &what).await;
    }

    async fn delete_wakes(&mut self, kind: Kind, name: &str, expect: &[usize]) {
        self.world.delete(kind, "default", name).await;
        self.awake(expect, expect.len(), name).await;
    }
}

fn timeout(mesh: &str, name: &str, top: serde_json::Value, to: serde_json::Value) -> Resource {
    let entry = json!({ "targetRef": to, "default": { "idleTimeout": "7s" } });
    let spec = json!({ "targetRef": top, "to": [entry] });
    resource(Key::new(Kind::MeshTimeout, mesh, name), &[], spec)
}

#[tokio::test]
async fn a_policy_wakes_whom_it_selected_before_and_whom_it_selects_now() {
    let mut hundred = hundred().await;
    let all: Vec<usize> = (0..100).collect();
    let tenths: Vec<usize> = (0..100).step_by(10).collect();
    let with = |mut more: Vec<usize>| {
        more.extend(&tenths);
        more.sort_unstable();
        more
    };
    for (top, expect) in [
        (json!({ "kind": "Dataplane", "name": "web-7" }), vec![7]),
        (json!({ "kind": "Dataplane", "name": "web-8" }), vec![7, 8]),
        (json!({ "kind": "Dataplane", "name": "web-8", "sectionName": "second" }), vec![8]),
        (json!({ "kind": "Dataplane", "name": "web-9", "sectionName": "third" }), vec![8]),
        (json!({ "kind": "Dataplane", "name": "nobody" }), vec![]),
        (json!({ "kind": "Dataplane", "labels": { "team": "x" } }), tenths.clone()),
        (json!({ "kind": "MeshSubset", "tags": { "version": "1" } }), tenths.clone()),
        (json!({ "kind": "Dataplane", "name": "web-7" }), with(vec![7])),
        (json!({ "kind": "MeshService", "name": "web" }), all.clone()),
        (json!({ "kind": "Mesh", "proxyTypes": ["Gateway"] }), all.clone()),
        (json!({ "kind": "Mesh" }), all.clone()),
        (json!({ "kind": "Dataplane", "name": "web-7" }), all),
    ] {
        hundred.put_wakes([timeout("default", "p", top, json!({ "kind": "Mesh" }))], &expect).await;
    }
    hundred.delete_wakes(Kind::MeshTimeout, "p", &[7]).await;
    let mesh = json!({ "kind": "Mesh" });
    hundred.put_wakes([timeout("next-door", "p", mesh.clone(), mesh)], &[]).await;
}

#[tokio::test]
async fn a_policy_of_a_kind_without_effect_wakes_nobody() {
    let mut hundred = hundred().await;
    for (kind, spec) in [(Kind::VirtualOutbound, json!({}))] {
        hundred.put_wakes([resource(Key::new(kind, "default", "p"), &[], spec)], &[]).await;
        hundred.delete_wakes(kind, "p", &[]).await;
    }
}

#[tokio::test]
async fn a_route_wakes_whom_it_selects_and_those_whose_policies_speak_of_routes() {
    let mut hundred = hundred().await;
    let all: Vec<usize> = (0..100).collect();
    let dataplane = |i: usize| json!({ "kind": "Dataplane", "name": format!("web-{i}") });
    let route = |i: usize| {
        let key = Key::new(Kind::MeshHTTPRoute, "default", "r");
        resource(key, &[], json!({ "targetRef": dataplane(i), "to": [] }))
    };
    hundred.put_wakes([route(1)], &[1]).await;
    let named = json!({ "kind": "MeshHTTPRoute", "name": "r" });
    hundred.put_wakes([timeout("default", "of-the-route", dataplane(2), named.clone())], &[2]).await;
    hundred.put_wakes([route(3)], &[1, 2, 3]).await;

    // Proxies that are selected through a route are not followed further.
    hundred.put_wakes([timeout("default", "through", named, json!({ "kind": "Mesh" }))], &all).await;
    hundred.put_wakes([route(4)], &all).await;
}

#[tokio::test]
async fn a_proxy_that_is_woken_late_has_missed_no_policy() {
    let mut hundred = hundred().await;
    let dataplane = |i: usize| json!({ "kind": "Dataplane", "name": format!("web-{i}") });
    // Selected in between, and not any more when its turn comes.
    for i in [7, 8, 9] {
        hundred.world.put([timeout("default", "p", dataplane(i), json!({ "kind": "Mesh" }))]).await;
    }
    hundred.awake(&[7, 8, 9], 5, "two of them twice").await;
    // Its labels and the policy that selects it by them come in one batch.
    let team = json!({ "kind": "Dataplane", "labels": { "team": "y" } });
    let policy = timeout("default", "q", team, json!({ "kind": "Mesh" }));
    hundred.put_wakes([dataplane_of_team(&[("team", "y")]), policy], &[5]).await;
    hundred.put_wakes([dataplane_of_team(&[])], &[5]).await;
    hundred.delete_wakes(Kind::MeshTimeout, "q", &[]).await;
}

fn dataplane_of_team(team: &[(&str, &str)]) -> Resource {
    let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": "web" } }]);
    let spec = json!({ "networking": { "address": "127.0.2.5", "inbound": inbound } });
    resource(Key::new(Kind::Dataplane, "default", "web-5"), team, spec)
}

#[tokio::test]
async fn whoever_asks_by_labels_follows_the_service_that_is_meant_now() {
    let world = World::new();
    let team = [("team", "x")];
    world.put([mesh("default", ""), service("default", "b", &team)]).await;
    let outbound = json!({ "port": 10_000, "backendRef":
        { "kind": "MeshService", "labels": { "team": "x" }, "port": 80 } });
    let networking = json!({ "address": "127.0.2.1", "outbound": [outbound], "inbound":
        [{ "port": 80, "tags": { "kuma.io/service": "web" } }] });
    let key = Key::new(Kind::Dataplane, "default", "web");
    world.put([resource(key, &[], json!({ "networking": networking }))]).await;
    let mut proxy = world.proxy("default", "web").await;
    let cluster = |proxy: &ConnectedProxy| {
        let target = &proxy.current.as_ref().unwrap().target;
        target.of(Type::Endpoint).keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    let before = cluster(&proxy);
    world.put([service("default", "a", &team)]).await;
    assert_eq!(proxy.turn().await, PendingWork::Outbounds);
    assert_ne!(cluster(&proxy), before);
    world.delete(Kind::MeshService, "default", "a").await;
    proxy.turn().await;
    assert_eq!(cluster(&proxy), before);
}

#[tokio::test]
async fn a_change_between_connecting_and_the_first_configuration_is_not_missed() {
    let world = World::new();
    world.put([mesh("default", ""), service("default", "backend", &[])]).await;
    let mut early = ConnectedProxy::connect(&world, traits("default", "web"));
    assert_eq!(early.turn().await, PendingWork::Everything);
    assert!(early.current.is_none(), "there is no Dataplane yet");
    world.put([dataplane("default", "web", "127.0.2.1", "web", &["backend"])]).await;
    assert_eq!(early.turn().await, PendingWork::Everything);

    let mut proxy = ConnectedProxy::connect(&world, traits("default", "web"));
    world.put([dataplane("default", "backend-1", "127.0.1.1", "backend", &[])]).await;
    proxy.turn().await;
    early.turn().await;
    assert!(proxy.received().is_some());
    assert_eq!(proxy.received(), early.received());
}

#[tokio::test]
async fn proxies_that_call_the_same_are_planned_once() {
    let busy = Busy::new().await;
    // The callers of `backend`, the loner, and two that call nothing, in one mesh each.
    assert_eq!(busy.world.push.classes(), 4);
    let shared = |proxy: &ConnectedProxy| proxy.current.as_ref().unwrap().target.shared.clone();
    let first = shared(&busy.callers[0]);
    assert!(busy.callers.iter().all(|caller| Arc::ptr_eq(&shared(caller), &first)));
    let Busy { world, callers, bystanders } = busy;
    drop((callers, bystanders));
    assert_eq!((world.push.classes(), world.push.connected()), (0, 0), "the last to leave takes it along");
}

#[tokio::test]
async fn an_application_is_not_offered_a_service_where_it_answers_itself() {
    let world = World::new();
    let mut backend = service("default", "backend", &[]);
    backend.status =
        Some(Status::from_json(Kind::MeshService, json!({ "vips": [{ "ip": "241.0.0.1" }] })).unwrap());
    world.put([mesh("default", ""), backend]).await;
    let transparent = |name: &str, address: &str| {
        let inbound = json!([{ "address": address, "port": 80, "tags": { "kuma.io/service": name } }]);
        let networking = json!({ "address": "127.0.2.1", "inbound": inbound,
            "transparentProxying": { "redirectPortInbound": 15006, "redirectPortOutbound": 15001 } });
        testkit::resource::dataplane(name, &[], networking)
    };
    world.put([transparent("one", "127.0.2.1"), transparent("odd", "241.0.0.1")]).await;
    let listeners =
        |proxy: &ConnectedProxy| proxy.current.as_ref().unwrap().target.shared.len(Type::Listener);
    let one = world.proxy("default", "one").await;
    let odd = world.proxy("default", "odd").await;
    assert_eq!((listeners(&one), listeners(&odd)), (1, 0));
}

/// A thousand proxies, of which every hundredth is of team `x`, and for each of them a policy of its own.
#[tokio::test]
async fn one_policy_of_a_thousand_costs_what_it_selects() {
    const MANY: usize = 1000;
    let world = World::new();
    world.put([mesh("default", "STRICT")]).await;
    let server = |i: usize| {
        let labels: &[(&str, &str)] = if i.is_multiple_of(100) { &[("team", "x")] } else { &[] };
        let inbound =
            json!([{ "port": 80, "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } }]);
        let address = format!("127.1.{}.{}", i / 250, i % 250);
        let spec = json!({ "networking": { "address": address, "inbound": inbound } });
        resource(Key::new(Kind::Dataplane, "default", &format!("web-{i}")), labels, spec)
    };
    let policy = |i: usize, top: serde_json::Value, seconds: usize| {
        let rule = json!({ "default": { "idleTimeout": format!("{seconds}s") } });
        let key = Key::new(Kind::MeshTimeout, "default", &format!("p-{i}"));
        resource(key, &[], json!({ "targetRef": top, "rules": [rule] }))
    };
    let of = |i: usize| json!({ "kind": "Dataplane", "name": format!("web-{i}") });
    world.put((0..MANY).map(server)).await;
    world.put((0..MANY).map(|i| policy(i, of(i), 1))).await;
    let mut proxies = Vec::new();
    for i in 0..MANY {
        proxies.push(world.proxy("default", &format!("web-{i}")).await);
    }
    let snapshot = world.push.mesh("default").unwrap();
    let candidates = snapshot.candidates(&snapshot.dataplanes["web-7"]).count();
    assert_eq!(candidates, 1, "a proxy looks at the policies that may be for it");

    let team = json!({ "kind": "Dataplane", "labels": { "team": "x" } });
    for (changed, selects) in [(policy(7, of(7), 2), 1), (policy(7, team, 3), 11)] {
        let asked = world.push.what_if(&[(changed.key.clone(), Some(Arc::new(changed.clone())))]);
        assert_eq!(asked.proxies.len(), selects);
        let before = world.push.policy_views();
        let woken = world.push.woken();
        let encoded = world.encoded();
        world.put([changed]).await;
        assert_eq!(world.push.policy_views(), before + 1, "one view of one policy");
        let mut busy = 0;
        for proxy in &mut proxies {
            busy += usize::from(proxy.turn().await != PendingWork::Nothing);
        }
        assert_eq!((busy, world.push.woken() - woken), (selects, selects as u64));
        // The inbound of each, unless it has that already.
        let encoded = world.encoded_since(&encoded);
        assert!(encoded.iter().all(|(_, count)| *count <= selects as u64), "{encoded:?}");
    }
}

#[tokio::test]
async fn what_a_change_would_do_is_asked_without_doing_it() {
    let mut busy = Busy::new().await;
    let before = busy.world.push.mesh("default").unwrap();
    let moved = dataplane("default", "backend-1", "127.0.1.77", "backend", &[]);
    let would = busy.world.push.what_if(&[(moved.key.clone(), Some(Arc::new(moved)))]);
    let [update] = &would.updates[..] else { panic!("{} updates", would.updates.len()) };
    assert_eq!(would.proxies.len(), CALLERS + 1, "the callers, and the one that moves");
    assert_eq!(update.affected.endpoints.len(), 1);
    let asked = plan::for_proxy(update.snapshot.as_ref().unwrap(), &traits("default", "web-0")).unwrap();
    assert_eq!(asked.outgoing.backends[0].endpoints.0[0].address, "127.0.1.77");
    assert!(Arc::ptr_eq(&busy.world.push.mesh("default").unwrap(), &before));
    let (callers, bystanders) = busy.turns().await;
    assert!(callers.iter().chain(&bystanders).all(|work| *work == PendingWork::Nothing));
}
