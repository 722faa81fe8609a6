//! A change of permissions reaches servers before the clients that it opens or closes a way for.

use std::{sync::Arc, time::Duration};

use serving::push::{HoldTimes, PendingWork};
use store::{Memory, Store};
use tokio::time::{Instant, sleep};
use xds::{Type, message::Node};

use crate::{
    proxies::ProxyServer,
    streams::{DeltaStream, Next},
    trimmed::{callable, dataplane, mesh, permission, server, service},
    world::{ConnectedProxy, SOON, World, traits},
};

const TIME: Duration = Duration::from_secs(5);
const TIMES: HoldTimes = HoldTimes { opening: TIME, closing: Duration::from_secs(12) };

/// `web`, which may call `s1`, and the servers of three services, all connected.
struct Scene {
    world: World,
    web: ConnectedProxy,
    servers: Vec<ConnectedProxy>,
}

fn world(store: Arc<dyn Store>, times: HoldTimes) -> World {
    let world = World::holding_for(store, times);
    world.push.start(&world.shutdown);
    world
}

impl Scene {
    async fn set() -> Scene {
        let world = world(Arc::new(Memory::default()), TIMES);
        world.put([mesh(), dataplane("web-1", "web", "127.0.2.1")]).await;
        world.put((1..=3).flat_map(|n| [service(n), server(n), permission(n, &[])])).await;
        world.put([permission(1, &["web"])]).await;
        let web = world.proxy("default", "web-1").await;
        let mut servers = Vec::new();
        for n in 1..=3 {
            servers.push(world.proxy("default", &format!("s{n}-1")).await);
        }
        let scene = Scene { world, web, servers };
        assert_eq!(callable(&scene.web), [1]);
        scene
    }

    /// The server of this number takes in what it has to and acknowledges it.
    async fn acknowledge(&mut self, number: usize) {
        let server = &mut self.servers[number - 1];
        assert_eq!(server.turn().await, PendingWork::Everything, "a server is told at once");
        server.connected.acknowledged();
    }

    async fn web_has(&mut self, expected: &[u8]) {
        assert_eq!(self.web.turn().await, PendingWork::Outbounds);
        assert_eq!(callable(&self.web), expected);
    }

    async fn web_is_left_alone(&mut self, why: &str) {
        assert_eq!(self.web.turn().await, PendingWork::Nothing, "{why}");
    }

    /// Waits until all times of a hold are over; the clock does not run, it jumps.
    async fn time_is_over(&self) {
        sleep(TIMES.closing).await;
        // The loop wakes up at the same moment.
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_opens_waits_until_servers_have_acknowledged() {
    let mut scene = Scene::set().await;
    let before = Instant::now();
    scene.world.put([permission(2, &["web"])]).await;
    scene.web_is_left_alone("the server does not know yet").await;
    scene.servers[1].connected.acknowledged();
    scene.web_is_left_alone("that was about something else").await;
    scene.acknowledge(2).await;
    scene.web_has(&[1, 2]).await;
    assert!(before.elapsed() < TIME, "nobody waited for the time to be over");
    scene.time_is_over().await;
    scene.web_is_left_alone("it has everything").await;
}

#[tokio::test(start_paused = true)]
async fn what_closes_stays_until_servers_refuse_it() {
    let mut scene = Scene::set().await;
    scene.world.put([permission(1, &[])]).await;
    scene.acknowledge(1).await;
    scene.web_is_left_alone("connections that the server had go on for a while").await;
    sleep(TIMES.closing - Duration::from_millis(1)).await;
    scene.web_is_left_alone("the server may still drain them").await;
    sleep(Duration::from_millis(2)).await;
    scene.web_has(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn what_opens_comes_before_what_closes_with_it_goes() {
    let mut scene = Scene::set().await;
    scene.world.put([permission(1, &[]), permission(2, &["web"])]).await;
    scene.acknowledge(1).await;
    scene.web_is_left_alone("another server is awaited").await;
    scene.acknowledge(2).await;
    scene.web_has(&[1, 2]).await;
    scene.time_is_over().await;
    scene.web_has(&[2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_delays_others_for_so_long_only() {
    let mut scene = Scene::set().await;
    scene.world.put([permission(2, &["web"])]).await;
    assert_eq!(scene.servers[1].turn().await, PendingWork::Everything);
    sleep(TIME / 2).await;
    scene.web_is_left_alone("half the time").await;
    // A further change does not make it longer, and has its own time.
    scene.world.put([permission(3, &["web"])]).await;
    sleep(TIME / 2 + Duration::from_millis(1)).await;
    scene.web_has(&[1, 2]).await;
    sleep(TIME / 2).await;
    scene.web_has(&[1, 2, 3]).await;
    scene.time_is_over().await;
    scene.web_is_left_alone("it has everything").await;
}

#[tokio::test(start_paused = true)]
async fn each_change_waits_for_its_own_servers() {
    let mut scene = Scene::set().await;
    scene.world.put([permission(2, &["web"])]).await;
    scene.world.put([permission(3, &["web"])]).await;
    scene.acknowledge(3).await;
    scene.web_has(&[1, 3]).await;
    // A change that concerns no connected server does not set free what others hold.
    scene.world.put([service(4), server(4), permission(4, &["web"])]).await;
    while scene.web.turn().await != PendingWork::Nothing {}
    assert_eq!(callable(&scene.web), [1, 3, 4]);
    scene.acknowledge(2).await;
    scene.web_has(&[1, 2, 3, 4]).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_mesh_in_the_same_round_does_not_let_clients_go_first() {
    let mut scene = Scene::set().await;
    let mut changed = mesh();
    changed.labels.insert("team".to_owned(), "shop".to_owned());
    scene.world.put([changed, permission(2, &["web"])]).await;
    while scene.web.turn().await != PendingWork::Nothing {}
    assert_eq!(callable(&scene.web), [1], "the server does not know yet");
    // A change of the mesh is for all proxies, so all of them are waited for.
    scene.web.connected.acknowledged();
    for number in 1..=3 {
        scene.acknowledge(number).await;
    }
    scene.web_has(&[1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_is_not_waited_for() {
    let mut scene = Scene::set().await;
    scene.world.put([permission(2, &["web"])]).await;
    drop(scene.servers.remove(1));
    scene.web_has(&[1, 2]).await;
    // Nor is one that is not connected.
    scene.world.put([permission(2, &[])]).await;
    scene.time_is_over().await;
    scene.web_has(&[1]).await;
    scene.world.put([permission(2, &["web"])]).await;
    scene.web_has(&[1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn everything_else_reaches_a_client_that_waits() {
    let mut scene = Scene::set().await;
    scene.world.put([permission(2, &["web"])]).await;
    scene.web_is_left_alone("the server does not know yet").await;
    scene.world.put([dataplane("s1-2", "s1", "127.0.3.1")]).await;
    assert_eq!(scene.web.turn().await, PendingWork::Endpoints);
    let mut changed = service(1);
    changed.spec = crate::world::service("default", "s1", &[]).spec;
    changed.status = None;
    scene.world.put([changed]).await;
    scene.web_has(&[]).await;
    scene.world.put([service(1)]).await;
    scene.web_has(&[1]).await;
    scene.acknowledge(2).await;
    scene.web_has(&[1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_taken_back_leaves_clients_alone() {
    let mut scene = Scene::set().await;
    scene.world.put([permission(1, &[])]).await;
    scene.acknowledge(1).await;
    scene.world.put([permission(1, &["web"])]).await;
    scene.acknowledge(1).await;
    while scene.web.turn().await != PendingWork::Nothing {}
    assert_eq!(callable(&scene.web), [1]);
    scene.time_is_over().await;
    scene.web_is_left_alone("the time of the first change is over").await;
    assert_eq!(callable(&scene.web), [1]);
}

#[tokio::test(start_paused = true)]
async fn of_several_changes_the_last_counts_and_none_is_lost() {
    let mut scene = Scene::set().await;
    for round in 0..20_u8 {
        let clients: &[&str] = if round % 2 == 0 { &["web"] } else { &[] };
        scene.world.put([permission(2 + round % 2, clients), permission(1, clients)]).await;
        if round % 3 == 0 {
            for server in &mut scene.servers {
                while server.turn().await != PendingWork::Nothing {}
                server.connected.acknowledged();
            }
        }
        if round % 5 == 0 {
            sleep(TIME / 3).await;
        }
        while scene.web.turn().await != PendingWork::Nothing {}
    }
    scene.world.put([permission(1, &["web"]), permission(2, &[]), permission(3, &["web"])]).await;
    scene.time_is_over().await;
    while scene.web.turn().await != PendingWork::Nothing {}
    assert_eq!(callable(&scene.web), [1, 3]);
}

/// A proxy that says what it has and acknowledges what the test asks for.
async fn stream(server: &ProxyServer, name: &str) -> DeltaStream {
    let node = Node { id: format!("default.{name}"), ..Node::default() };
    let mut stream = DeltaStream::of(server, node, None).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    stream.ask(Type::Listener, &[]).await;
    assert_eq!(stream.response().await.0, Type::Listener);
    stream
}

#[tokio::test]
async fn a_stream_tells_that_its_proxy_has_acknowledged_its_listeners() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    // So long that the test would fail if it waited for it.
    let world = world(server.world.store.clone(), HoldTimes { opening: 2 * SOON, closing: 2 * SOON });
    let server = server.with(|context| context.push = world.push.clone());
    world.put([mesh(), dataplane("web-1", "web", "127.0.2.1")]).await;
    world.put([service(1), crate::trimmed::server(1), permission(1, &[])]).await;
    let mut backend = stream(&server, "s1-1").await;
    let mut web = ConnectedProxy::connect(&world, traits("default", "web-1"));
    web.turn().await;
    assert_eq!(callable(&web), [0_u8; 0]);

    world.put([permission(1, &["web"])]).await;
    let Next::Response(sent) = backend.next().await else { panic!("the stream ended") };
    assert_eq!(sent.type_url, Type::Listener.url());
    assert_eq!(web.turn().await, PendingWork::Nothing, "the server has it and has not answered");
    backend.acknowledge(&sent).await;
    let watcher = web.connected.watcher.clone();
    let work = tokio::time::timeout(SOON, watcher.work()).await.expect("the client is woken");
    assert_eq!(work, PendingWork::Outbounds);
    web.current = web.connected.compute(work, web.current.as_ref()).await;
    assert_eq!(callable(&web), [1]);
}
