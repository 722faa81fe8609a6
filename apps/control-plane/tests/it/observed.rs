//! Calls that agents report: who may report what, what is accepted of it, and that it is kept.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use api::{Inspect, inspect::observed::WantedEdges};
use http::StatusCode;
use inspection::StoredProxies;
use jiff::Timestamp;
use resources::{Key, Kind};
use runtime::{Shutdown, metrics::Metrics};
use serde_json::{Value, json};
use serving::observed::{Observations, Pace};
use store::{Memory, Store};
use topology::{
    DestinationId,
    observed::{Caller, Edge, ObservedEdges, destination_text},
};

use crate::{
    insights::Away,
    proxies::ProxyServer,
    world::{ConnectedProxy, World, dataplane, eventually, mesh, runner, service},
};

const BACKEND: &str = "kri_msvc_default___backend_80";
pub const ALL: WantedEdges = WantedEdges { offset: 0, size: 10_000, would_be_trimmed: false };
const NO_PAUSE: Pace = Pace { edges: Duration::ZERO, counts: Duration::ZERO };
const NEVER: Pace = Pace { edges: Duration::from_secs(3600), counts: Duration::from_secs(3600) };

/// Every edge as texts, with its count.
fn edges(observed: &ObservedEdges) -> Vec<(String, String, u64)> {
    let text = |(edge, seen): (&Edge, &topology::observed::EdgeObservations)| {
        (edge.caller.to_string(), destination_text(&edge.destination), seen.count)
    };
    observed.edges.iter().map(text).collect()
}

fn edge(caller: &str, destination: &str, count: u64) -> (String, String, u64) {
    (caller.to_owned(), destination.to_owned(), count)
}

/// A server with the proxy of `web` connected, which calls `backend`.
async fn with_web(tokens_required: bool, mode: &str) -> (ProxyServer, ConnectedProxy) {
    let server = ProxyServer::new(tokens_required, Duration::ZERO).await;
    let web = dataplane("default", "web", "127.0.2.1", "web", &["backend"]);
    let backend = dataplane("default", "backend", "127.0.2.2", "backend", &[]);
    server.world.put([mesh("default", mode), web, backend, service("default", "backend", &[])]).await;
    let proxy = server.world.proxy("default", "web").await;
    (server, proxy)
}

fn report(name: &str, clusters: Value) -> Value {
    json!({ "mesh": "default", "name": name, "clusters": clusters })
}

async fn post(server: &ProxyServer, report: Value) -> (StatusCode, String) {
    let (status, _, text) = server.post("/observed", &[], report).await;
    (status, text)
}

fn seen(server: &ProxyServer) -> Vec<(String, String, u64)> {
    edges(&server.context.reports.observations.of_mesh("default"))
}

#[tokio::test]
async fn a_report_counts_calls_of_the_proxys_identity_to_what_it_was_given() {
    let (server, _web) = with_web(false, "").await;
    let metrics = Metrics::default();
    let observations = Arc::new(Observations::new(server.world.store.clone(), &metrics));
    let server = server.with(|context| context.reports.observations = observations);
    let clusters = json!({ "default_backend___msvc_80": 3, "default_other___msvc_80": 7, "": 1 });
    let said = json!({ "mesh": "default", "name": "web", "clusters": clusters, "later": [1] });
    assert_eq!(post(&server, said).await.0, StatusCode::NO_CONTENT);
    post(&server, report("web", json!({ "default_backend___msvc_80": 2 }))).await;
    assert_eq!(seen(&server), [edge("spiffe://default/web", BACKEND, 5)]);
    let text = metrics.encode();
    assert!(text.contains("observed_unknown_names_total 2"), "{text}");
    assert!(text.contains("observed_reports_total 2"), "{text}");
    // A proxy whose names were switched reports under the others what it counted before.
    post(&server, report("web", json!({ BACKEND: 2 }))).await;
    assert_eq!(seen(&server), [edge("spiffe://default/web", BACKEND, 7)]);
}

#[tokio::test]
async fn a_proxy_reports_with_its_own_token() {
    let (server, _web) = with_web(true, "").await;
    let token = server.token("default").await;
    let with = |name: &str, token: &str| {
        json!({ "mesh": "default", "name": name, "dataplaneToken": token,
            "clusters": { "default_backend___msvc_80": 1 } })
    };
    for (name, token, expect) in [("web", "", 401), ("web", "x.y.z", 401), ("backend", &token, 401)] {
        let (status, text) = post(&server, with(name, token)).await;
        assert_eq!(status.as_u16(), expect, "{name} {text}");
        assert!(seen(&server).is_empty());
    }
    assert_eq!(post(&server, with("web", &token)).await.0, StatusCode::NO_CONTENT);
    assert_eq!(seen(&server), [edge("spiffe://default/web", BACKEND, 1)]);
}

#[tokio::test]
async fn a_report_of_a_proxy_that_is_not_connected_here_is_to_be_sent_again() {
    let (server, web) = with_web(false, "").await;
    let one = json!({ "default_backend___msvc_80": 1 });
    for name in ["backend", "nobody"] {
        let (status, text) = post(&server, report(name, one.clone())).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    }
    drop(web);
    let (status, text) = post(&server, report("web", one)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("not connected to this control plane"), "{text}");
    assert!(seen(&server).is_empty());
    // A zone proxy has nothing to report.
    assert_eq!(post(&server, json!({ "mesh": "", "name": "gate" })).await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn what_is_too_large_or_no_report_is_refused() {
    let (server, _web) = with_web(false, "").await;
    let clusters: serde_json::Map<String, Value> =
        (0..40_000).map(|i| (format!("service-{i:0>60}"), json!(1))).collect();
    assert_eq!(post(&server, report("web", clusters.into())).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    for nonsense in [
        json!([]),
        json!({ "mesh": "default" }),
        report("web", json!({ "a": -1 })),
        report("web", json!({ "a": 1.5 })),
        report("web", json!([])),
    ] {
        let (status, text) = post(&server, nonsense.clone()).await;
        assert!(status.is_client_error(), "{nonsense}: {status} {text}");
    }
    assert!(seen(&server).is_empty());
}

#[tokio::test]
async fn clients_without_an_identity_are_seen_where_mtls_is_permissive() {
    for (mode, expect) in
        [("PERMISSIVE", vec![edge("outside", BACKEND, 4)]), ("STRICT", Vec::new()), ("", Vec::new())]
    {
        let (server, _web) = with_web(false, mode).await;
        let _backend = server.world.proxy("default", "backend").await;
        let inbounds = json!({ "127.0.2.2_80": 3, "self_80": 1, "127.0.2.9_80": 5 });
        for (name, count) in inbounds.as_object().unwrap() {
            let said = json!({ "mesh": "default", "name": "backend", "inbounds": { name: count } });
            assert_eq!(post(&server, said).await.0, StatusCode::NO_CONTENT);
        }
        assert_eq!(seen(&server), expect, "{mode:?}");
    }
}

#[tokio::test]
async fn what_was_seen_is_listed_with_how_complete_it_is() {
    let (server, _web) = with_web(false, "").await;
    let observations = server.context.reports.observations.clone();
    let proxies =
        StoredProxies::new(server.world.store.clone(), server.world.push.clone(), 0).observing(observations);
    let answer = proxies.observed("default", ALL).await.unwrap();
    assert_eq!((answer.since, answer.edges.len()), (None, 0));
    assert_eq!((answer.proxies.reporting, answer.proxies.connected), (0, 1));
    post(&server, report("web", json!({}))).await;
    let answer = proxies.observed("default", ALL).await.unwrap();
    assert!(answer.since.is_some() && answer.since == answer.until, "{answer:?}");
    assert_eq!(answer.proxies.reporting, 1);
    post(&server, report("web", json!({ "default_backend___msvc_80": 2 }))).await;
    let answer = proxies.observed("default", ALL).await.unwrap();
    let listed = &answer.edges[0];
    assert_eq!((&*listed.caller, &*listed.destination, listed.count), ("spiffe://default/web", BACKEND, 2));
    assert!(!answer.dropped);
    assert!(proxies.observed("none", ALL).await.is_err());
}

fn backend(number: usize) -> Edge {
    let kri = format!("kri_msvc_default___backend-{number}_80").parse().unwrap();
    Edge { caller: Caller::Outside, destination: DestinationId::Port(kri) }
}

/// Observations of one control plane, and the means to end it.
struct Instance {
    observations: Arc<Observations>,
    shutdown: Shutdown,
}

impl Instance {
    fn on(store: &Arc<dyn Store>, pace: Pace, max_edges: usize) -> Instance {
        let metrics = Metrics::default();
        let shutdown = Shutdown::default();
        let observations = Arc::new(Observations::new(store.clone(), &metrics).with(pace, max_edges));
        observations.start(&runner(store, &shutdown));
        Instance { observations, shutdown }
    }

    fn report(&self, edges: &[(Edge, u64)]) {
        self.observations.report("default", edges.iter().cloned(), Timestamp::now());
    }

    fn counts(&self) -> Vec<u64> {
        self.observations.of_mesh("default").edges.values().map(|seen| seen.count).collect()
    }

    async fn end(self) {
        self.shutdown.begin();
        assert!(self.shutdown.finish(Duration::from_secs(20)).await);
    }
}

async fn store_with_mesh() -> (World, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let world = World::on(store.clone());
    world.put([mesh("default", "")]).await;
    (world, store)
}

/// Number of resources that hold observations.
fn shards(store: &Arc<dyn Store>) -> usize {
    let stored = store.snapshot().unwrap();
    stored.of_kind(Kind::Config).filter(|config| config.name().contains("-observed-")).count()
}

#[tokio::test]
async fn a_control_plane_that_ends_has_stored_what_was_reported() {
    let (_world, store) = store_with_mesh().await;
    let one = Instance::on(&store, NEVER, 100);
    let first: Vec<_> = (0..50).map(|i| (backend(i), 1)).collect();
    one.report(&first);
    let since = one.observations.of_mesh("default").since;
    // The first report is stored at once, the next one in its time.
    eventually("the first report to be stored", || shards(&store) > 10).await;
    one.report(&[(backend(0), 5), (backend(50), 7)]);
    let known = one.observations.of_mesh("default");
    assert_eq!(known.edges.len(), 51);
    one.end().await;
    let next = Instance::on(&store, NEVER, 100);
    assert_eq!(next.observations.of_mesh("default"), known);
    assert_eq!(known.since, since);
    assert_eq!(known.edges.get(&backend(0)).unwrap().count, 6);
}

#[tokio::test]
async fn two_control_planes_on_one_store_lose_nothing_and_count_nothing_twice() {
    let (_world, store) = store_with_mesh().await;
    let one = Instance::on(&store, NO_PAUSE, 1000);
    let other = Instance::on(&store, NO_PAUSE, 1000);
    for round in 0..50 {
        for instance in [&one, &other] {
            let reported: Vec<_> = (0..20).map(|i| (backend(i * (round % 3 + 1)), 1)).collect();
            instance.report(&reported);
        }
        tokio::task::yield_now().await;
    }
    let sum = |instance: &Instance| instance.counts().iter().sum::<u64>();
    eventually("both to know everything", || [&one, &other].map(sum) == [2000, 2000]).await;
    one.end().await;
    other.end().await;
    let third = Instance::on(&store, NO_PAUSE, 1000);
    assert_eq!(sum(&third), 2000);
}

#[tokio::test]
async fn calls_that_cannot_be_stored_are_stored_when_the_store_is_back() {
    let (_world, store) = store_with_mesh().await;
    let away = Away::from(store.clone());
    let shared: Arc<dyn Store> = away.clone();
    // After a first write nothing would be due for an hour.
    let one = Instance::on(&shared, NEVER, 100);
    one.report(&[(backend(1), 1)]);
    let attempted = || away.attempts.load(Ordering::Relaxed) > 0;
    eventually("a first write fails", attempted).await;
    assert_eq!(shards(&store), 0);
    away.away.store(false, Ordering::Relaxed);
    eventually("it to be stored", || shards(&store) > 0).await;
    assert_eq!(one.counts(), [1]);
}

#[tokio::test]
async fn there_is_an_end_to_what_is_kept_and_it_is_said() {
    let (_world, store) = store_with_mesh().await;
    let one = Instance::on(&store, NO_PAUSE, 10);
    let many: Vec<_> = (0..25).map(|i| (backend(i), 1)).collect();
    one.report(&many);
    one.report(&many);
    let observed = one.observations.of_mesh("default");
    assert_eq!((observed.edges.len(), observed.truncated), (10, true));
    assert!(observed.edges.values().all(|seen| seen.count == 2), "what is kept goes on being counted");
    one.end().await;
    let next = Instance::on(&store, NO_PAUSE, 10);
    let observed = next.observations.of_mesh("default");
    assert_eq!((observed.edges.len(), observed.truncated), (10, true));
}

#[tokio::test]
async fn a_list_read_page_by_page_has_every_call_and_none_was_dropped() {
    let (server, _web) = with_web(false, "").await;
    let observations = server.context.reports.observations.clone();
    let proxies = StoredProxies::new(server.world.store.clone(), server.world.push.clone(), 0)
        .observing(observations.clone());
    let many = 10_001;
    observations.report("default", (0..many).map(|number| (backend(number), 1)), Timestamp::now());
    let answer = proxies.observed("default", ALL).await.unwrap();
    assert_eq!((answer.total, answer.edges.len(), answer.dropped), (many, 10_000, false));
    let rest = WantedEdges { offset: answer.edges.len(), ..ALL };
    let rest = proxies.observed("default", rest).await.unwrap();
    let listed = answer.edges.iter().chain(&rest.edges).map(|edge| &edge.destination);
    assert_eq!((listed.collect::<BTreeSet<_>>().len(), rest.total), (many, many));
}

#[tokio::test]
async fn what_was_seen_goes_with_its_mesh() {
    let (world, store) = store_with_mesh().await;
    let one = Instance::on(&store, NO_PAUSE, 10);
    one.report(&[(backend(1), 1)]);
    eventually("it to be stored", || shards(&store) > 0).await;
    world.delete(Kind::Mesh, "", "default").await;
    assert_eq!(shards(&store), 0);
    assert_eq!(one.observations.of_mesh("default"), ObservedEdges::default());
    one.report(&[(backend(1), 1)]);
    world.put([mesh("default", "")]).await;
    assert_eq!(one.observations.of_mesh("default"), ObservedEdges::default());
    assert!(store.snapshot().unwrap().get(&Key::global(Kind::Mesh, "default")).is_some());
}
