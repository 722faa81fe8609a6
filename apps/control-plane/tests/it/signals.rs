//! Signals: what agents report of their traffic, how it is added up, and which reports are refused.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::{
    Inspect,
    inspect::signals::{SignalGroup, WantedSignals},
};
use contract::signals::{SignalItem, SignalList};
use http::StatusCode;
use inspection::StoredProxies;
use jiff::Timestamp;
use resources::Kind;
use runtime::metrics::Metrics;
use serde_json::{Value, json};
use serving::observed::{
    Observations,
    signals::{EdgeClient, InboundOf, InboundTraffic, OutboundTraffic, ProxyTraffic},
};
use signals::{Counter, Sample};
use topology::DestinationId;

use crate::{
    proxies::ProxyServer,
    world::{ConnectedProxy, dataplane, mesh, service},
};

const BACKEND: &str = "kri_msvc_default___backend_80";
const WEB: &str = "spiffe://default/web";

fn wanted(by: SignalGroup) -> WantedSignals {
    WantedSignals { by, seconds: 60, client: None, server: None, zone: None, offset: 0, size: 10_000 }
}

/// A server with metrics of its own, and the proxies of `web`, which calls `backend`, and of `backend`.
struct Reported {
    server: ProxyServer,
    metrics: Metrics,
    _proxies: [ConnectedProxy; 2],
}

impl Reported {
    async fn new(tokens_required: bool, mode: &str) -> Reported {
        let server = ProxyServer::new(tokens_required, Duration::ZERO).await;
        let web = dataplane("default", "web", "127.0.2.1", "web", &["backend"]);
        let backend = dataplane("default", "backend", "127.0.2.2", "backend", &[]);
        server.world.put([mesh("default", mode), web, backend, service("default", "backend", &[])]).await;
        let web = server.world.proxy("default", "web").await;
        let backend = server.world.proxy("default", "backend").await;
        let metrics = Metrics::default();
        let observations = Arc::new(Observations::new(server.world.store.clone(), &metrics));
        let server = server.with(|context| context.reports.observations = observations);
        Reported { server, metrics, _proxies: [web, backend] }
    }

    async fn post(&self, name: &str, traffic: Value) -> StatusCode {
        self.post_with(name, "", traffic).await
    }

    async fn post_with(&self, name: &str, token: &str, traffic: Value) -> StatusCode {
        let report = json!({ "mesh": "default", "name": name, "dataplaneToken": token, "traffic": traffic });
        self.server.post("/observed", &[], report).await.0
    }

    async fn list(&self, wanted: WantedSignals) -> SignalList {
        let world = &self.server.world;
        let observations = self.server.context.reports.observations.clone();
        let proxies = StoredProxies::new(world.store.clone(), world.push.clone(), 0).observing(observations);
        proxies.signals("default", wanted).await.unwrap()
    }

    async fn by(&self, by: SignalGroup) -> Vec<SignalItem> {
        self.list(wanted(by)).await.items
    }
}

#[tokio::test]
async fn traffic_is_listed_by_edge_service_workload_and_zone() {
    let world = Reported::new(false, "").await;
    let latency = json!([{ "bucket": 4, "count": 90 }, { "bucket": 16, "count": 10 }]);
    let called = json!({ "requests": 100, "responses2xx": 70, "responses5xx": 30, "latency": latency,
        "later": { "a": 1 } });
    let traffic = json!({ "outbounds": { "default_backend___msvc_80": called, "nobody": called } });
    assert_eq!(world.post("web", traffic).await, StatusCode::NO_CONTENT);
    let served = json!({ "requests": 12, "responses2xx": 12 });
    let traffic = json!({ "inbounds": { "localhost_80": served, "localhost_81": served } });
    assert_eq!(world.post("backend", traffic).await, StatusCode::NO_CONTENT);

    let edges = world.list(wanted(SignalGroup::Edges)).await;
    assert_eq!((edges.seconds, edges.total, edges.dropped), (60, 1, 0));
    let edge = &edges.items[0];
    let client = edge.client.as_ref().unwrap();
    assert_eq!((&*client.workload, &*client.identity), ("web", WEB));
    assert_eq!(edge.server.as_ref().unwrap().id, BACKEND);
    assert_eq!((edge.traffic.success, edge.traffic.per_second), (Some(0.7), 100.0 / 60.0));
    let latency = edge.traffic.latency.unwrap();
    assert!(latency.p50 < 6.0 && (200.0..300.0).contains(&latency.p99), "{latency:?}");

    let services = world.by(SignalGroup::Services).await;
    let server = services[0].server.as_ref().unwrap();
    assert_eq!((&*server.id, &*server.name), ("kri_msvc_default___backend_", "backend"));
    let workloads = world.by(SignalGroup::Workloads).await;
    let backend = workloads.iter().find(|item| item.client.as_ref().unwrap().workload == "backend").unwrap();
    assert_eq!(backend.served.as_ref().unwrap().counts.requests, 12);
    assert_eq!((workloads.len(), backend.traffic.counts.requests), (2, 0));
    let zones = world.by(SignalGroup::Zones).await;
    assert_eq!((zones.len(), zones[0].traffic.counts.requests), (1, 100));

    let text = world.metrics.encode();
    assert!(text.contains("observed_unknown_names_total 2"), "{text}");
}

#[tokio::test]
async fn signals_are_filtered_by_their_ends_and_paged() {
    let world = Reported::new(false, "").await;
    for _ in 0..2 {
        let counts = json!({ "requests": 4, "responses2xx": 4 });
        world
            .post("web", json!({ "outbounds": { BACKEND: counts, "default_backend___msvc_80": counts } }))
            .await;
    }
    let edge = wanted(SignalGroup::Edges);
    let some = |value: &str| Some(value.to_owned());
    let cases = [
        (WantedSignals { client: some("web"), ..edge.clone() }, 1),
        (WantedSignals { client: some(WEB), server: some("backend"), ..edge.clone() }, 1),
        (WantedSignals { server: some(BACKEND), ..edge.clone() }, 1),
        (WantedSignals { server: some("kri_msvc_default___backend_"), ..edge.clone() }, 1),
        (WantedSignals { client: some("backend"), ..edge.clone() }, 0),
        (WantedSignals { server: some("web"), ..edge.clone() }, 0),
        (WantedSignals { zone: some("elsewhere"), ..edge.clone() }, 0),
    ];
    for (wanted, expected) in cases {
        assert_eq!(world.list(wanted.clone()).await.total, expected, "{wanted:?}");
    }
    let behind = world.list(WantedSignals { offset: 1, ..edge }).await;
    assert_eq!((behind.total, behind.items.len()), (1, 0));
}

#[tokio::test]
async fn a_proxy_reports_its_own_traffic_with_its_own_token() {
    let world = Reported::new(true, "").await;
    let token = world.server.token("default").await;
    let counts = json!({ "requests": 1000 });
    let traffic = json!({ "outbounds": { "default_backend___msvc_80": counts }, "inbounds": { "localhost_80": counts } });
    for token in ["", "x.y.z"] {
        assert_eq!(world.post_with("web", token, traffic.clone()).await, StatusCode::UNAUTHORIZED);
    }
    // The token is for web: it cannot make backend look busy or broken.
    assert_eq!(world.post_with("backend", &token, traffic.clone()).await, StatusCode::UNAUTHORIZED);
    assert!(world.by(SignalGroup::Workloads).await.is_empty());
    assert_eq!(world.post_with("web", &token, traffic).await, StatusCode::NO_CONTENT);
    let workloads = world.by(SignalGroup::Workloads).await;
    let names: Vec<&str> = workloads.iter().map(|item| &*item.client.as_ref().unwrap().workload).collect();
    assert_eq!(names, ["web"]);
}

#[tokio::test]
async fn answers_403_are_denied_calls_only_where_permissions_deny() {
    let counts = json!({ "requests": 5, "responses4xx": 5, "denied": 5 });
    for (mode, denied, success) in [("STRICT", 5, 0.0), ("", 0, 1.0)] {
        let world = Reported::new(false, mode).await;
        world.post("web", json!({ "outbounds": { "default_backend___msvc_80": counts } })).await;
        let edges = world.by(SignalGroup::Edges).await;
        let traffic = &edges[0].traffic;
        assert_eq!((traffic.counts.denied, traffic.success), (denied, Some(success)), "{mode:?}");
    }
}

#[tokio::test]
async fn a_proxy_that_floods_is_refused_and_the_others_are_not() {
    let world = Reported::new(false, "").await;
    let traffic = json!({ "outbounds": { "default_backend___msvc_80": { "requests": 1 } } });
    let mut refused = 0;
    for _ in 0..200 {
        if world.post("web", traffic.clone()).await == StatusCode::TOO_MANY_REQUESTS {
            refused += 1;
        }
    }
    assert!(refused > 0, "200 reports were taken");
    let text = world.metrics.encode();
    assert!(text.contains(&format!("observed_reports_refused_total {refused}")), "{text}");
    let edges = world.by(SignalGroup::Edges).await;
    assert_eq!(edges[0].traffic.counts.requests, 200 - refused);
    assert_eq!(world.post("backend", json!({})).await, StatusCode::NO_CONTENT);
}

/// Traffic of web, so many seconds ago.
fn record(observations: &Observations, destination: &str, seconds_ago: i64, requests: u64) {
    let client = EdgeClient { workload: "web".into(), identity: WEB.into() };
    let sample = Sample::default().with(Counter::Requests, requests);
    let destination = DestinationId::Port(destination.parse().unwrap());
    let inbound = InboundOf { dataplane: "web".into(), section: destination_section(&destination) };
    let traffic = ProxyTraffic {
        client,
        outbounds: vec![OutboundTraffic { destination, sample: sample.clone() }],
        inbounds: vec![InboundTraffic { inbound, sample }],
    };
    let now = Timestamp::try_from(SystemTime::now()).unwrap();
    let then = Timestamp::from_second(now.as_second() - seconds_ago).unwrap();
    observations.signals.record(&"default".into(), &traffic, then, |_| true);
}

fn destination_section(destination: &DestinationId) -> Arc<str> {
    match destination {
        DestinationId::Port(kri) => kri.name.as_str().into(),
        DestinationId::Tags(_) => "".into(),
    }
}

#[tokio::test]
async fn a_window_ends_where_it_says() {
    let world = Reported::new(false, "").await;
    let observations = world.server.context.reports.observations.clone();
    for seconds_ago in [800, 400, 30] {
        record(&observations, BACKEND, seconds_ago, 1);
    }
    for (seconds, requests) in [(60, 1), (480, 2), (900, 3)] {
        let list = world.list(WantedSignals { seconds, ..wanted(SignalGroup::Zones) }).await;
        assert_eq!((list.seconds, list.items[0].traffic.counts.requests), (seconds, requests));
    }
}

#[tokio::test]
async fn a_mesh_has_so_many_edges_and_says_what_is_left_out() {
    let metrics = Metrics::default();
    let world = Reported::new(false, "").await;
    let store = world.server.world.store.clone();
    let mut observations = Observations::new(store, &metrics);
    observations.signals = observations.signals.with_limit(10);
    let observations = Arc::new(observations);
    let server = world.server.with(|context| context.reports.observations = observations.clone());
    let world = Reported { server, ..world };
    for number in 0..25 {
        record(&observations, &format!("kri_msvc_default___backend-{number}_80"), 0, 1);
    }
    let list = world.list(wanted(SignalGroup::Edges)).await;
    assert_eq!((list.total, list.dropped), (10, 30));
    let text = metrics.encode();
    assert!(text.contains("signals_dropped_total 30"), "{text}");
}

#[tokio::test]
async fn signals_of_a_mesh_go_with_it() {
    let world = Reported::new(false, "").await;
    let traffic = json!({ "outbounds": { "default_backend___msvc_80": { "requests": 1 } } });
    world.post("web", traffic).await;
    assert_eq!(world.by(SignalGroup::Edges).await.len(), 1);
    let inner = &world.server.world;
    inner.put([mesh("other", "")]).await;
    inner.delete(Kind::Mesh, "", "default").await;
    let observations = &world.server.context.reports.observations;
    let nothing = ProxyTraffic {
        client: EdgeClient { workload: "a".into(), identity: "".into() },
        outbounds: Vec::new(),
        inbounds: Vec::new(),
    };
    let exists = |mesh: &str| inner.push.mesh(mesh).is_some();
    observations.signals.record(&"other".into(), &nothing, Timestamp::now(), exists);
    assert!(observations.signals.read("default", Timestamp::now(), |_, _| ()).is_none());
}
