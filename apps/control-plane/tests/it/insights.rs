//! Insights: what proxies accept and refuse, and counts over meshes, as they end up in the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use control_plane::config::setting::{Mode, StoreType};
use insights::{ProxyConnection, Writer};
use resources::{
    Draft, Key, Kind,
    kinds::{
        dataplane_insight::{
            CertificateStatus, DataplaneInsight, DiscoveryStatus, DiscoverySubscription, ResponseCounts,
        },
        mesh_insight::{DataplaneStat, MeshInsight},
        service_insight::{self, ServiceInsight, ServiceStatus},
    },
    naming::Kri,
};
use runtime::Shutdown;
use serde_json::{Value, json};
use serving::dp_server::{proxy::IdentifiedProxy, registration::Registration};
use store::{Changes, Committed, Error, Snapshot, Store, Write};
use tempfile::tempdir;
use xds::{Type, message::Node};

use crate::{
    client,
    proxies::ProxyServer,
    streams::DeltaStream,
    world::{SOON, World, dataplane, eventually, mesh, resource, runner, service},
};

/// Time for something that nothing depends on.
const LONG: Duration = Duration::from_secs(3600);

/// The last connection of a proxy, as it is on record.
fn last(store: &Arc<dyn Store>, name: &str) -> DiscoverySubscription {
    let snapshot = store.snapshot().unwrap();
    let stored = snapshot.get(&Key::new(Kind::DataplaneInsight, "default", name));
    let insight = stored.and_then(|stored| stored.spec.get::<DataplaneInsight>());
    insight.and_then(|insight| insight.subscriptions.last().cloned()).unwrap_or_default()
}

fn status(store: &Arc<dyn Store>, name: &str) -> DiscoveryStatus {
    last(store, name).status.unwrap_or_default()
}

/// Sent, acknowledged and rejected.
fn counts(counts: &ResponseCounts) -> (u64, u64, u64) {
    (counts.responses_sent, counts.responses_acknowledged, counts.responses_rejected)
}

/// Something to report that is not like anything reported before.
fn after(responses: u64) -> DiscoveryStatus {
    let total = ResponseCounts { responses_sent: responses, ..ResponseCounts::default() };
    DiscoveryStatus { total, ..DiscoveryStatus::default() }
}

fn node(name: &str, unified: bool) -> Node {
    use prost_types::{ListValue, Struct, Value, value::Kind};
    let feature = Kind::StringValue("feature-unified-resource-naming".to_owned());
    let features = ListValue { values: vec![Value { kind: Some(feature) }] };
    let features = Value { kind: Some(Kind::ListValue(features)) };
    let metadata = Struct { fields: [("features".to_owned(), features)].into() };
    Node { id: format!("default.{name}"), metadata: unified.then_some(metadata), ..Node::default() }
}

/// A server whose mesh has `web`, which calls `backend`.
async fn server() -> ProxyServer {
    let server = ProxyServer::new(false, LONG).await;
    let web = dataplane("default", "web", "127.0.2.1", "web", &["backend"]);
    server.context.registrar.put(Draft::new(web.key, web.spec)).await.unwrap();
    server.world.put([service("default", "backend", &[])]).await;
    server.world.put([dataplane("default", "backend-1", "127.0.1.1", "backend", &[])]).await;
    server
}

fn kri(server: &ProxyServer, key: &Key, section: &str) -> Option<Kri> {
    Kri::of(server.world.store.snapshot().unwrap().get(key).unwrap(), section)
}

async fn connect(server: &ProxyServer, name: &str) -> Registration {
    let proxy = IdentifiedProxy::identify(&format!("default.{name}"), json!({})).unwrap();
    Registration::begin(server.context.clone(), proxy, server.authenticated().await).await.unwrap()
}

/// Complains about one name, in Envoy's words.
fn about(blamed: &str) -> impl Fn(&str) -> Option<String> {
    move |name| (name == blamed).then(|| format!("Error adding/updating resource(s) {name}: is not liked"))
}

#[tokio::test]
async fn a_rejection_is_shown_with_the_resource_to_blame_until_mended() {
    for unified in [false, true] {
        let server = server().await;
        let store = &server.world.store;
        let backend = kri(&server, &Key::new(Kind::MeshService, "default", "backend"), "80").unwrap();
        let inbound = kri(&server, &Key::new(Kind::Dataplane, "default", "web"), "80").unwrap();
        let (cluster, listener) = if unified {
            (backend.to_string(), "self_80".to_owned())
        } else {
            ("default_backend___msvc_80".to_owned(), "inbound:127.0.2.1:80".to_owned())
        };
        let mut stream = DeltaStream::of(&server, node("web", unified), None).await;
        stream.ask(Type::Cluster, &[]).await;
        let (kind, clusters) = stream.judged(about(&cluster)).await;
        assert!(kind == Type::Cluster && clusters.contains(&cluster), "{clusters:?}");
        eventually("the rejection is told", || !status(store, "web").rejections.is_empty()).await;
        let told = status(store, "web");
        let refused = &told.rejections[0];
        assert_eq!((refused.kind.as_str(), &refused.name, &refused.kri), ("cds", &cluster, &Some(backend)));
        assert!(refused.message.contains("is not liked") && refused.time.is_some(), "{refused:?}");
        assert!(counts(&told.cds).2 >= 1 && counts(&told.total) >= counts(&told.cds), "{told:?}");

        // The rest is sent again without it, and what changes is tried anew.
        let (_, others) = stream.response().await;
        assert!(!others.is_empty() && !others.contains(&cluster), "{others:?}");
        let mut mended = service("default", "backend", &[]);
        mended.spec = resource(
            mended.key.clone(),
            &[],
            json!({
                "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
                "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "tcp" }],
                "identities": [{ "type": "ServiceTag", "value": "backend" }]
            }),
        )
        .spec;
        server.world.put([mended]).await;
        assert_eq!(stream.response().await, (Type::Cluster, vec![cluster.clone()]));
        eventually("the rejection is over", || status(store, "web").rejections.is_empty()).await;

        stream.ask(Type::Endpoint, &[&cluster]).await;
        assert_eq!(stream.response().await.0, Type::Endpoint);
        stream.ask(Type::Listener, &[]).await;
        let (kind, listeners) = stream.judged(about(&listener)).await;
        assert!(kind == Type::Listener && listeners.contains(&listener), "{listeners:?}");
        eventually("the listener is refused", || !status(store, "web").rejections.is_empty()).await;
        let refused = &status(store, "web").rejections[0];
        assert_eq!((refused.kind.as_str(), &refused.name, &refused.kri), ("lds", &listener, &Some(inbound)));
        assert_eq!(stream.response().await.0, Type::Listener);

        let at_last = |told: &DiscoveryStatus| (counts(&told.lds), counts(&told.eds), counts(&told.cds));
        let expect = ((2, 1, 1), (1, 1, 0), (3, 2, 1));
        eventually("every answer is counted", || at_last(&status(store, "web")) == expect).await;
        drop(stream);
        eventually("the end is on record", || last(store, "web").disconnect_time.is_some()).await;
        assert_eq!(at_last(&status(store, "web")), expect, "the last word stays on record");
    }
}

#[tokio::test]
async fn it_is_on_record_whether_the_agent_fits_the_control_plane() {
    let server = server().await;
    for (version, fits) in [("2.14.3", true), ("2.11.0", false), (env!("CARGO_PKG_VERSION"), true)] {
        let metadata = json!({ "version": { "kumaDp": { "version": version } } });
        let proxy = IdentifiedProxy::identify("default.web", metadata).unwrap();
        let registration =
            Registration::begin(server.context.clone(), proxy, server.authenticated().await).await;
        let told = last(&server.world.store, "web").version.unwrap().kuma_dp.unwrap();
        assert_eq!((told.version.as_str(), told.kuma_cp_compatible), (version, fits));
        registration.unwrap().end();
    }
}

#[tokio::test]
async fn a_synced_proxy_costs_no_writes_and_no_insight_wakes_a_proxy() {
    let server = server().await;
    let store = &server.world.store;
    let mut stream = DeltaStream::open(&server, None).await;
    stream.ask(Type::Cluster, &[]).await;
    stream.response().await;
    let settled = || counts(&status(store, "web").cds) == (1, 1, 0);
    eventually("the answer is counted", settled).await;

    let key = Key::new(Kind::DataplaneInsight, "default", "web");
    let version = || store.snapshot().unwrap().get(&key).unwrap().version;
    let before = version();
    let woken = server.world.push.woken();
    let encoded = server.world.encoded();
    // Another one's report goes through the same writer: had there been anything to write, it would be written.
    let other = connect(&server, "backend-1").await;
    for round in 1..=3 {
        let revision = store.snapshot().unwrap().revision();
        other.report(after(round));
        eventually("the report is on record", || counts(&status(store, "backend-1").total).0 == round).await;
        assert_eq!(store.snapshot().unwrap().revision(), revision + 1);
    }
    server.world.push.caught_up().await;
    assert_eq!(version(), before);
    assert_eq!((server.world.push.woken(), server.world.encoded_since(&encoded)), (woken, Vec::new()));
}

#[tokio::test]
async fn fifty_proxies_that_report_are_one_batch() {
    const PROXIES: u64 = 50;
    let server = ProxyServer::new(false, LONG).await;
    let store = &server.world.store;
    let name = |i: u64| format!("web-{i}");
    let stored = (0..PROXIES).map(|i| dataplane("default", &name(i), &format!("127.0.2.{i}"), "web", &[]));
    server.world.put(stored).await;
    let mut registrations = Vec::new();
    for i in 0..PROXIES {
        registrations.push(connect(&server, &name(i)).await);
    }
    let revision = store.snapshot().unwrap().revision();
    for round in 1..=10 {
        registrations.iter().for_each(|registration| registration.report(after(round)));
    }
    let told = |i: u64| counts(&status(store, &name(i)).total).0;
    eventually("all reports are on record", || (0..PROXIES).all(|i| told(i) == 10)).await;
    assert_eq!(store.snapshot().unwrap().revision(), revision + 1);
}

#[tokio::test]
async fn a_thousand_proxies_that_connect_at_once_are_a_few_batches() {
    const PROXIES: u64 = 1000;
    let server = Arc::new(ProxyServer::new(false, LONG).await);
    let name = |i: u64| format!("web-{i}");
    server.world.put((0..PROXIES).map(|i| dataplane("default", &name(i), "127.0.2.1", "web", &[]))).await;
    let revision = || server.world.store.snapshot().unwrap().revision();
    let before = revision();
    let mut connecting = tokio::task::JoinSet::new();
    for i in 0..PROXIES {
        let server = server.clone();
        let name = name(i);
        connecting.spawn(async move { connect(&server, &name).await });
    }
    assert_eq!(connecting.join_all().await.len() as u64, PROXIES);
    assert!(revision() - before <= 10, "{} batches", revision() - before);
}

#[tokio::test]
async fn a_control_plane_that_ends_writes_what_is_left() {
    let world = World::new();
    world.put([mesh("default", ""), dataplane("default", "web", "127.0.2.1", "web", &[])]).await;
    let writer = Writer::new(world.store.clone(), LONG, world.shutdown.clone());
    let connection =
        ProxyConnection::begin(Key::new(Kind::Dataplane, "default", "web"), "cp-1", &Value::Null);
    writer.now(&connection).await;
    connection.report(after(7));
    writer.soon(&connection);
    assert_eq!(counts(&status(&world.store, "web").total).0, 0);
    assert!(world.shutdown.finish(SOON).await);
    assert_eq!(counts(&status(&world.store, "web").total).0, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn control_planes_on_one_store_do_not_lose_each_others_reports() {
    let world = World::new();
    world.put([mesh("default", ""), dataplane("default", "web", "127.0.2.1", "web", &[])]).await;
    let report = |instance: &'static str| {
        let store = world.store.clone();
        let shutdown = world.shutdown.clone();
        tokio::spawn(async move {
            let writer = Writer::new(store, Duration::ZERO, shutdown);
            let web = Key::new(Kind::Dataplane, "default", "web");
            let connection = ProxyConnection::begin(web, instance, &Value::Null);
            for round in 1..=200 {
                connection.report(after(round));
                writer.now(&connection).await;
            }
        })
    };
    let one = report("cp-1");
    let other = report("cp-2");
    one.await.unwrap();
    other.await.unwrap();
    let snapshot = world.store.snapshot().unwrap();
    let stored = snapshot.get(&Key::new(Kind::DataplaneInsight, "default", "web")).unwrap();
    let mut found: Vec<_> = stored.spec.get::<DataplaneInsight>().unwrap().subscriptions.clone();
    found.sort_by(|a, b| a.control_plane_instance_id.cmp(&b.control_plane_instance_id));
    let told: Vec<_> = found
        .iter()
        .map(|s| (s.control_plane_instance_id.as_str(), s.status.as_ref().unwrap().total.responses_sent))
        .collect();
    assert_eq!(told, [("cp-1", 200), ("cp-2", 200)]);
}

#[tokio::test]
async fn a_proxy_without_a_dataplane_bothers_nobody_else() {
    let world = World::new();
    world.put([mesh("default", ""), dataplane("default", "web", "127.0.2.1", "web", &[])]).await;
    let writer = Writer::new(world.store.clone(), Duration::ZERO, world.shutdown.clone());
    let begin =
        |name| ProxyConnection::begin(Key::new(Kind::Dataplane, "default", name), "cp-1", &Value::Null);
    let nobody = begin("nobody");
    let web = begin("web");
    writer.at_once(&nobody);
    writer.now(&web).await;
    assert!(last(&world.store, "web").is_online() && !last(&world.store, "nobody").is_online());
    // Its Dataplane may come later: then there is something to tell.
    world.put([dataplane("default", "nobody", "127.0.2.2", "nobody", &[])]).await;
    nobody.report(after(1));
    writer.now(&nobody).await;
    assert!(last(&world.store, "nobody").is_online());
}

/// A store that is away at first.
pub struct Away {
    store: Arc<dyn Store>,
    pub away: AtomicBool,
    /// Writes that were asked for.
    pub attempts: AtomicUsize,
}

impl Away {
    pub fn from(store: Arc<dyn Store>) -> Arc<Away> {
        Arc::new(Away { store, away: AtomicBool::new(true), attempts: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Store for Away {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.store.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            Err(Error::Unavailable("it is away".to_owned()))
        } else {
            self.store.write(batch).await
        }
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }
}

#[tokio::test]
async fn a_store_that_is_away_delays_reports_and_loses_none() {
    let world = World::new();
    world.put([mesh("default", ""), dataplane("default", "web", "127.0.2.1", "web", &[])]).await;
    let away = Away::from(world.store.clone());
    let writer = Writer::new(away.clone(), Duration::ZERO, world.shutdown.clone());
    let connection =
        ProxyConnection::begin(Key::new(Kind::Dataplane, "default", "web"), "cp-1", &Value::Null);
    // A proxy is let in all the same.
    writer.now(&connection).await;
    connection.report(after(1));
    connection.certified(CertificateStatus::default());
    writer.now(&connection).await;
    assert!(!last(&world.store, "web").is_online());
    away.away.store(false, Ordering::Relaxed);
    eventually("the report is on record", || counts(&status(&world.store, "web").total).0 == 1).await;
    let snapshot = world.store.snapshot().unwrap();
    let stored = snapshot.get(connection.insight()).unwrap().spec.get::<DataplaneInsight>().unwrap();
    assert_eq!(stored.mtls.as_ref().unwrap().certificate_regenerations, 1);
}

/// A store that cannot be read once, after the first insight was written.
struct Blinking {
    store: Arc<dyn Store>,
    blinked: AtomicBool,
}

#[async_trait]
impl Store for Blinking {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        let snapshot = self.store.snapshot()?;
        if snapshot.of_kind(Kind::DataplaneInsight).count() > 0 && !self.blinked.swap(true, Ordering::Relaxed)
        {
            return Err(Error::Unavailable("it cannot be read".to_owned()));
        }
        Ok(snapshot)
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        self.store.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }
}

#[tokio::test]
async fn a_proxy_that_is_not_let_in_after_all_does_not_stay_online() {
    let blinking = |store| Arc::new(Blinking { store, blinked: AtomicBool::new(false) }) as Arc<dyn Store>;
    let server = ProxyServer::on(false, LONG, blinking).await;
    let own = json!({
        "type": "Dataplane", "mesh": "default", "name": "web", "networking": { "address": "127.0.2.1",
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }] }
    });
    let metadata = json!({ "dataplane.resource": own.to_string() });
    let proxy = IdentifiedProxy::identify("default.web", metadata).unwrap();
    assert!(Registration::begin(server.context.clone(), proxy, server.authenticated().await).await.is_err());
    let ended = || last(&server.world.store, "web").disconnect_time.is_some();
    eventually("its connection has ended on record", ended).await;
}

#[tokio::test]
async fn connections_left_open_by_a_killed_control_plane_are_closed() {
    let server = server().await;
    let store = &server.world.store;
    let _web = connect(&server, "web").await;
    connect(&server, "backend-1").await.end();
    eventually("one has ended", || last(store, "backend-1").disconnect_time.is_some()).await;
    let ended = last(store, "backend-1").disconnect_time;
    insights::close_connections(store, &last(store, "web").control_plane_instance_id).await.unwrap();
    assert!(last(store, "web").is_online(), "it is connected to this one");
    insights::close_connections(store, "another").await.unwrap();
    assert!(!last(store, "web").is_online());
    assert_eq!(last(store, "backend-1").disconnect_time, ended, "what was over stays as it was");
    let revision = store.snapshot().unwrap().revision();
    insights::close_connections(store, "another").await.unwrap();
    assert_eq!(store.snapshot().unwrap().revision(), revision);
}

fn mesh_insight(store: &Arc<dyn Store>) -> Option<MeshInsight> {
    let snapshot = store.snapshot().unwrap();
    snapshot.get(&Key::global(Kind::MeshInsight, "default"))?.spec.get().cloned()
}

fn service_status(store: &Arc<dyn Store>, service: &str) -> Option<ServiceStatus> {
    let snapshot = store.snapshot().unwrap();
    let name = service_insight::resource_name("default");
    let stored = snapshot.get(&Key::new(Kind::ServiceInsight, "default", &name))?;
    Some(stored.spec.get::<ServiceInsight>()?.services.get(service)?.status)
}

#[tokio::test]
async fn counts_follow_what_happens_in_a_mesh_and_end_with_it() {
    let server = server().await;
    let store = &server.world.store;
    // Two control planes count: they agree.
    let one = Shutdown::default();
    let other = Shutdown::default();
    insights::start(&runner(store, &one));
    insights::start(&runner(store, &other));
    let proxies = |total, online| {
        let offline = total - online;
        let stat = DataplaneStat { total, online, offline, ..DataplaneStat::default() };
        move || mesh_insight(store).is_some_and(|insight| insight.dataplanes == Some(stat))
    };
    eventually("two proxies, none connected", proxies(2, 0)).await;
    assert_eq!(service_status(store, "web"), Some(ServiceStatus::Offline));
    let web = connect(&server, "web").await;
    eventually("one is connected", proxies(2, 1)).await;
    eventually("its service is online", || service_status(store, "web") == Some(ServiceStatus::Online)).await;
    web.end();
    eventually("it has gone", proxies(2, 0)).await;
    eventually("its service is offline", || service_status(store, "web") == Some(ServiceStatus::Offline))
        .await;
    server.world.put([dataplane("default", "web-2", "127.0.2.2", "web", &[])]).await;
    eventually("one more", proxies(3, 0)).await;

    for (kind, name) in [(Kind::Dataplane, "web"), (Kind::Dataplane, "web-2"), (Kind::Dataplane, "backend-1")]
    {
        server.world.delete(kind, "default", name).await;
    }
    store
        .write(vec![Write::Delete { key: Key::global(Kind::Mesh, "default"), expected: None }])
        .await
        .unwrap();
    assert_eq!((mesh_insight(store), service_status(store, "web")), (None, None));
    assert!(one.finish(SOON).await && other.finish(SOON).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_control_plane_sums_up_its_meshes() {
    for mode in [Mode::Zone, Mode::Global] {
        let directory = tempdir().unwrap();
        let mut config = client::config(directory.path(), StoreType::Memory);
        config.mode = mode;
        let running = client::start(config).await;
        let deadline = tokio::time::Instant::now() + SOON;
        let insight = loop {
            let all = client::get(&running, "/mesh-insights").await;
            if all["total"] == 1 {
                break all["items"][0].clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "{mode:?}: {all}");
        };
        assert_eq!(
            (&insight["name"], &insight["policies"]["MeshTimeout"]["total"]),
            (&json!("default"), &json!(2))
        );
        let sum = client::get(&running, "/global-insight").await;
        assert_eq!(sum["resources"]["MeshTimeout"], insight["resources"]["MeshTimeout"]);
        running.finish().await;
    }
}
