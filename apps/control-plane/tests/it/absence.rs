//! Proxies that are away, listen at a part of their inbounds, run twice, or whose Dataplane is taken from them: who is
//! called, and what is on record.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use resources::{
    Key, Kind, Resource,
    kinds::{
        dataplane::{Dataplane, InboundState},
        dataplane_insight::DataplaneInsight,
    },
};
use serde_json::json;
use serving::dp_server::departures::Departures;
use store::{Changes, Committed, Error, Snapshot, Store, Write};
use tonic::Code;
use xds::{
    Type,
    message::{DeltaRequest, Node},
};

use crate::{
    impostors::bringing,
    proxies::ProxyServer,
    streams::{DeltaStream, Next},
    world::{SOON, dataplane, eventually, resource},
};

const LONG: Duration = Duration::from_secs(3600);
const GRACE: Duration = Duration::from_millis(50);

async fn server(deregistration_delay: Duration) -> ProxyServer {
    let server = ProxyServer::new(false, deregistration_delay).await;
    server.with(|context| context.absence.departures = Departures::new(GRACE))
}

fn proxy(name: &str) -> Resource {
    dataplane("default", name, "127.0.2.1", name, &[])
}

fn key(name: &str) -> Key {
    Key::new(Kind::Dataplane, "default", name)
}

fn stored(server: &ProxyServer, name: &str) -> Option<Arc<Resource>> {
    server.world.store.snapshot().unwrap().get(&key(name)).cloned()
}

fn insight(server: &ProxyServer, name: &str) -> Option<DataplaneInsight> {
    let key = Key::new(Kind::DataplaneInsight, "default", name);
    server.world.store.snapshot().unwrap().get(&key)?.spec.get().cloned()
}

/// Ports of the inbounds that are ready.
fn ready_inbounds(server: &ProxyServer, name: &str) -> Vec<u32> {
    let Some(stored) = stored(server, name) else { return Vec::new() };
    let inbounds = stored.spec.get::<Dataplane>().unwrap().inbounds().to_vec();
    inbounds
        .iter()
        .filter(|inbound| inbound.state == InboundState::Ready)
        .map(|inbound| inbound.port)
        .collect()
}

/// A proxy that brings its Dataplane along and has what it asked for.
async fn listening(server: &ProxyServer, dataplane: &Resource) -> DeltaStream {
    let mut stream = DeltaStream::of(server, bringing(dataplane), None).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    stream.ask(Type::Listener, &[]).await;
    assert_eq!(stream.response().await.0, Type::Listener);
    let name = dataplane.key.name.to_string();
    eventually("it is ready", || server.is_ready(&name) == Some(true)).await;
    stream
}

/// A store that counts how often the Dataplane `web` is written.
struct Counting {
    store: Arc<dyn Store>,
    writes: Arc<AtomicUsize>,
}

#[async_trait]
impl Store for Counting {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.store.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        let of_web = batch.iter().filter(|write| *write.key() == key("web")).count();
        self.writes.fetch_add(of_web, Ordering::Relaxed);
        self.store.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }
}

#[tokio::test]
async fn a_proxy_that_is_away_is_not_called_and_called_again_when_it_is_back() {
    let writes = Arc::new(AtomicUsize::new(0));
    let counting = |store| Arc::new(Counting { store, writes: writes.clone() }) as Arc<dyn Store>;
    let server = ProxyServer::on(false, LONG, counting).await;
    let server = server.with(|context| context.absence.departures = Departures::new(GRACE));
    let _others = (listening(&server, &proxy("a")).await, listening(&server, &proxy("b")).await);
    let stream = listening(&server, &proxy("web")).await;
    let before = writes.load(Ordering::Relaxed);
    drop(stream);
    eventually("it is not called", || server.is_ready("web") == Some(false)).await;
    assert_eq!(writes.load(Ordering::Relaxed), before + 1);
    let _back = listening(&server, &proxy("web")).await;
    assert_eq!(writes.load(Ordering::Relaxed), before + 2);
}

/// The next response as it is, with the versions of what it holds.
async fn versions(stream: &mut DeltaStream) -> HashMap<String, String> {
    let next = stream.next().await;
    let Next::Response(response) = next else { panic!("{next:?}") };
    let resources = response.decoded().unwrap();
    let versions = resources.into_iter().map(|resource| (resource.name, resource.version)).collect();
    let type_url = response.type_url;
    let response_nonce = response.nonce;
    stream.send(DeltaRequest { type_url, response_nonce, ..DeltaRequest::default() }).await;
    versions
}

#[tokio::test]
async fn a_proxy_that_comes_back_with_everything_is_called_and_sent_nothing() {
    let server = server(LONG).await;
    let _others = (listening(&server, &proxy("a")).await, listening(&server, &proxy("b")).await);
    let mut stream = DeltaStream::of(&server, bringing(&proxy("web")), None).await;
    stream.ask(Type::Cluster, &[]).await;
    let clusters = versions(&mut stream).await;
    stream.ask(Type::Listener, &[]).await;
    let listeners = versions(&mut stream).await;
    eventually("it is ready", || server.is_ready("web") == Some(true)).await;
    drop(stream);
    eventually("it is not called", || server.is_ready("web") == Some(false)).await;

    let mut back = DeltaStream::of(&server, Node::default(), None).await;
    let node = Some(bringing(&proxy("web")));
    let request = |kind: Type, node, initial_resource_versions| DeltaRequest {
        node,
        type_url: kind.url().to_owned(),
        initial_resource_versions,
        ..DeltaRequest::default()
    };
    back.send(request(Type::Cluster, node, clusters)).await;
    assert_eq!(versions(&mut back).await, HashMap::new());
    back.send(request(Type::Listener, None, listeners)).await;
    assert_eq!(versions(&mut back).await, HashMap::new());
    eventually("it is called again", || server.is_ready("web") == Some(true)).await;
}

#[tokio::test]
async fn proxies_stay_ready_when_most_of_them_are_cut_off_at_once() {
    let server = server(10 * GRACE).await;
    let mut streams = Vec::new();
    for name in ["a", "b", "c"] {
        streams.push(listening(&server, &proxy(name)).await);
    }
    drop(streams);
    for name in ["a", "b", "c"] {
        let gone = || {
            assert_ne!(server.is_ready(name), Some(false), "{name}");
            server.is_ready(name).is_none()
        };
        eventually("it is gone as late as ever", gone).await;
    }
}

#[tokio::test]
async fn a_control_plane_that_ends_leaves_its_proxies_ready() {
    let server = server(LONG).await;
    let stream = listening(&server, &proxy("web")).await;
    drop(stream);
    assert!(server.world.shutdown.finish(SOON).await);
    assert_eq!(server.is_ready("web"), Some(true));
}

#[tokio::test]
async fn a_dataplane_stored_by_an_operator_says_what_the_operator_said() {
    let server = server(LONG).await;
    let _others = (listening(&server, &proxy("a")).await, listening(&server, &proxy("b")).await);
    server.world.put([proxy("stored")]).await;
    let mut stream =
        DeltaStream::of(&server, Node { id: "default.stored".to_owned(), ..Node::default() }, None).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    drop(stream);
    drop(listening(&server, &proxy("web")).await);
    eventually("the one that left later is not called", || server.is_ready("web") == Some(false)).await;
    assert_eq!(server.is_ready("stored"), Some(true));
}

/// A proxy with two inbounds.
fn two_inbounds() -> Resource {
    let inbound =
        |port: u32| json!({ "port": port, "tags": { "kuma.io/service": "web", "kuma.io/protocol": "http" } });
    let networking = json!({ "address": "127.0.2.1", "inbound": [inbound(80), inbound(81)] });
    resource(key("web"), &[], json!({ "networking": networking }))
}

#[tokio::test]
async fn an_inbound_with_a_rejected_listener_is_not_called_until_accepted() {
    let server = ProxyServer::impatient().await;
    let mut stream = DeltaStream::of(&server, bringing(&two_inbounds()), None).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    stream.ask(Type::Listener, &[]).await;
    let refused = "inbound:127.0.2.1:80";
    let in_use = |name: &str| (name == refused).then(|| format!("listener(s) {refused}: address in use"));
    stream.judged(in_use).await;
    // The others are sent without it, and it alone again and again.
    while ready_inbounds(&server, "web") != [81] {
        stream.judged(in_use).await;
    }
    let told = insight(&server, "web").unwrap();
    assert!(told.is_online());
    // The proxy takes it, and later refuses another version of it, which changes nothing: it listens.
    while !stream.response().await.1.contains(&refused.to_owned()) {}
    eventually("both are called", || ready_inbounds(&server, "web") == [80, 81]).await;
    let mut other = Resource::clone(&stored(&server, "web").unwrap());
    let mut spec = other.spec.get::<Dataplane>().unwrap().clone();
    let tags = &mut spec.networking.as_mut().unwrap().inbound[0].tags;
    tags.insert("kuma.io/protocol".to_owned(), "tcp".to_owned());
    other.spec = spec.into();
    server.world.put([other]).await;
    let is_refused = || {
        let last = insight(&server, "web")?.subscriptions.last()?.status.clone()?;
        last.rejections.first().map(|rejection| rejection.name.clone())
    };
    while is_refused().as_deref() != Some(refused) {
        stream.judged(in_use).await;
    }
    assert_eq!(ready_inbounds(&server, "web"), [80, 81]);
}

#[tokio::test]
async fn a_deleted_dataplane_is_brought_back_by_its_proxy() {
    let server = server(LONG).await;
    let mut stream = listening(&server, &proxy("web")).await;
    server.world.delete(Kind::Dataplane, "default", "web").await;
    eventually("it is back, and ready", || server.is_ready("web") == Some(true)).await;
    let online = || insight(&server, "web").is_some_and(|insight| insight.is_online());
    eventually("its connection is on record", online).await;
    stream.ask(Type::Secret, &["identity_cert:secret:default"]).await;

    server.world.put([proxy("stored")]).await;
    let node = Node { id: "default.stored".to_owned(), ..Node::default() };
    let mut stream = DeltaStream::of(&server, node, None).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    server.world.delete(Kind::Dataplane, "default", "stored").await;
    let Next::End(code, text) = stream.next().await else { panic!() };
    assert_eq!(code, (Code::NotFound as i32).to_string(), "{text}");
    assert!(text.contains("was deleted"), "{text}");
}

#[tokio::test]
async fn a_deleted_mesh_takes_the_streams_of_its_proxies_along() {
    let server = server(LONG).await;
    let mut stream = listening(&server, &proxy("web")).await;
    server.world.delete(Kind::Mesh, "", "default").await;
    let Next::End(code, text) = stream.next().await else { panic!() };
    assert_eq!(code, (Code::NotFound as i32).to_string(), "{text}");
    assert!(text.contains("mesh \"default\" was deleted"), "{text}");
}

#[tokio::test]
async fn of_two_proxies_with_one_dataplane_either_may_stop() {
    for first in [0, 1] {
        let server = server(2 * GRACE).await;
        let mut both = vec![listening(&server, &proxy("web")).await, listening(&server, &proxy("web")).await];
        let open = || {
            insight(&server, "web").map_or(0, |i| i.subscriptions.iter().filter(|s| s.is_online()).count())
        };
        eventually("both are on record", || open() == 2).await;
        drop(both.remove(first));
        eventually("one is on record", || open() == 1).await;
        assert!(insight(&server, "web").unwrap().is_online());
        // Another one that stops after it is gone.
        drop(listening(&server, &proxy("other")).await);
        eventually("the other one is gone", || server.is_ready("other").is_none()).await;
        assert_eq!(server.is_ready("web"), Some(true));
        assert!(insight(&server, "web").unwrap().is_online());
        drop(both);
        eventually("the last one takes the Dataplane along", || server.is_ready("web").is_none()).await;
    }
}
