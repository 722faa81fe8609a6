//! Events as a control plane records them: proxies that come and go, their answers, writes, findings.

use std::{sync::Arc, time::Duration};

use contract::events::{Event, EventKind};
use control_plane::config::setting::StoreType;
use events::Events;
use http::StatusCode;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use serving::push::PendingWork;
use xds::{Type, message::Node};

use crate::{
    client::{config, get, put, start},
    findings::Found,
    impostors::bringing,
    proxies::ProxyServer,
    streams::{DeltaStream, connected},
    world::{dataplane, eventually, mesh, resource, service, traits},
};

const LONG: Duration = Duration::from_secs(3600);

/// Events that were recorded about a resource.
fn of(events: &Events, name: &str) -> Vec<Event> {
    let page = events.page(0, usize::MAX, |event| event.name == name);
    page.events.iter().map(|event| serde_json::from_slice(event.json(true)).unwrap()).collect()
}

fn kinds(events: &Events, name: &str) -> Vec<&'static str> {
    of(events, name).iter().map(|event| event.kind.name()).collect()
}

async fn wait_for(events: &Events, name: &str, expected: &[&str]) {
    eventually(&format!("the events of {name} are {expected:?}"), || kinds(events, name) == expected).await;
}

async fn stream_of(server: &ProxyServer, dataplane: &Resource) -> DeltaStream {
    let mut stream = DeltaStream::of(server, bringing(dataplane), None).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    stream.ask(Type::Listener, &[]).await;
    stream
}

#[tokio::test]
async fn two_proxies_come_and_one_leaves_while_the_other_is_lost() {
    let server = ProxyServer::new(false, LONG).await;
    let events = &server.context.reports.events;
    let a = dataplane("default", "a", "127.0.2.1", "a", &[]);
    let b = dataplane("default", "b", "127.0.2.2", "b", &[]);
    let mut streams = Vec::new();
    for proxy in [&a, &b] {
        let mut stream = stream_of(&server, proxy).await;
        assert_eq!(stream.response().await.0, Type::Listener);
        streams.push(stream);
    }
    for name in ["a", "b"] {
        wait_for(events, name, &["proxy-registered", "proxy-connected", "configuration-accepted"]).await;
    }
    let (status, ..) = server.post("/drain", &[], json!({ "mesh": "default", "name": "a" })).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    drop(streams);
    eventually("both are gone", || {
        kinds(events, "a").last() == Some(&"proxy-left") && kinds(events, "b").last() == Some(&"proxy-lost")
    })
    .await;
    let lost = of(events, "b").pop().unwrap();
    assert_eq!((lost.mesh.as_str(), lost.r#type.as_str()), ("default", "Dataplane"));
    assert_eq!(lost.message, "disconnected without a farewell");

    // It comes back and is lost: the farewell was for the other end.
    let stream = stream_of(&server, &a).await;
    drop(stream);
    eventually("it is lost", || kinds(events, "a").last() == Some(&"proxy-lost")).await;
    let registrations = kinds(events, "a").into_iter().filter(|kind| *kind == "proxy-registered").count();
    assert_eq!(registrations, 1, "its Dataplane was still stored");
}

#[tokio::test]
async fn a_farewell_without_the_right_token_makes_no_proxy_leave() {
    let server = ProxyServer::new(true, LONG).await;
    let events = &server.context.reports.events;
    let token = server.token("default").await;
    let stream = connected(&server, &token).await;
    let (status, ..) = server.post("/drain", &[], json!({ "mesh": "default", "name": "web" })).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, ..) = server.post("/drain", &[], json!({ "mesh": "", "name": "web" })).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    drop(stream);
    eventually("it is lost", || kinds(events, "web").last() == Some(&"proxy-lost")).await;
}

#[tokio::test]
async fn streams_that_end_with_the_control_plane_are_not_lost() {
    let server = ProxyServer::new(true, LONG).await;
    let events = server.context.reports.events.clone();
    let token = server.token("default").await;
    let _stream = connected(&server, &token).await;
    wait_for(&events, "web", &["proxy-connected", "configuration-accepted"]).await;
    assert!(server.world.shutdown.finish(crate::world::SOON).await);
    assert_eq!(kinds(&events, "web").len(), 2, "{:?}", kinds(&events, "web"));
}

#[tokio::test]
async fn every_rejection_is_an_event_and_so_is_the_acceptance_after_it() {
    let server = ProxyServer::impatient().await;
    let events = &server.context.reports.events;
    server.world.put([dataplane("default", "web", "127.0.2.1", "web", &[])]).await;
    let mut stream = DeltaStream::open(&server, None).await;
    stream.ask(Type::Cluster, &[]).await;
    let inbound = "localhost:80".to_owned();
    let hostile = "no\r\n\r\ndata: forged\u{1b}[2J";
    let in_use = |name: &str| (name == inbound).then(|| format!("cluster(s) {inbound}: {hostile}"));
    for _ in 0..3 {
        assert_eq!(stream.judged(in_use).await, (Type::Cluster, vec![inbound.clone()]));
    }
    assert_eq!(stream.response().await, (Type::Cluster, vec![inbound.clone()]));
    stream.ask(Type::Listener, &[]).await;
    assert_eq!(stream.response().await.0, Type::Listener);
    let rejected = "configuration-rejected";
    let expected = ["proxy-connected", rejected, rejected, rejected, "configuration-accepted"];
    wait_for(events, "web", &expected).await;
    let all = of(events, "web");
    let first = &all[1];
    let last = all.last().unwrap();
    assert!(first.message.starts_with("rejected cds localhost:80: cluster(s)"), "{first:?}");
    assert!(first.message.ends_with("data: forged\u{1b}[2J"), "{first:?}");
    assert_eq!(last.message, "accepted its configuration, after it had rejected a part");
}

#[tokio::test]
async fn a_certificate_that_replaces_another_is_an_event() {
    let server = ProxyServer::new(true, LONG).await;
    let events = &server.context.reports.events;
    server.world.put([mesh("default", "STRICT")]).await;
    let token = server.token("default").await;
    let mut stream = connected(&server, &token).await;
    stream.ask(Type::Secret, &["identity_cert:secret:default", "mesh_ca:secret:default"]).await;
    assert_eq!(stream.response().await.0, Type::Secret);
    assert!(!kinds(events, "web").contains(&"certificate-renewed"), "the first one replaces none");
    server.world.put([dataplane("default", "web", "127.0.2.1", "other-service", &[])]).await;
    while stream.response().await.0 != Type::Secret {}
    let all = of(events, "web");
    let renewed: Vec<&Event> = all.iter().filter(|it| it.kind == EventKind::CertificateRenewed).collect();
    assert_eq!(renewed.len(), 1, "{all:?}");
    let accepted = all.iter().filter(|it| it.kind == EventKind::ConfigurationAccepted).count();
    assert_eq!(accepted, 1, "the first one, and not each: {all:?}");
    assert!(renewed[0].message.starts_with("has a new certificate of "), "{renewed:?}");
}

#[tokio::test]
async fn zone_proxies_leave_with_a_farewell_too() {
    let server = ProxyServer::new(false, LONG).await;
    let events = &server.context.reports.events;
    let spec = json!({ "networking": { "address": "127.0.3.1", "port": 10_002 } });
    server.world.put([resource(Key::global(Kind::ZoneEgress, "out"), &[], spec)]).await;
    let told = prost_types::Struct {
        fields: [("dataplane.proxyType".to_owned(), text("egress"))].into_iter().collect(),
    };
    for expected in ["proxy-left", "proxy-lost"] {
        let node = Node { id: ".out".to_owned(), metadata: Some(told.clone()), ..Node::default() };
        let mut stream = DeltaStream::of(&server, node, None).await;
        stream.ask(Type::Cluster, &[]).await;
        eventually("it is connected", || kinds(events, "out").last() == Some(&"proxy-connected")).await;
        if expected == "proxy-left" {
            let (status, ..) = server.post("/drain", &[], json!({ "mesh": "", "name": "out" })).await;
            assert_eq!(status, StatusCode::NO_CONTENT);
        }
        drop(stream);
        eventually(expected, || kinds(events, "out").last() == Some(&expected)).await;
    }
    assert_eq!(of(events, "out")[0].r#type, "ZoneEgress");
}

fn text(text: &str) -> prost_types::Value {
    prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(text.to_owned())) }
}

#[tokio::test]
async fn findings_are_events_when_they_are_opened_and_closed() {
    let found = Found::new();
    let world = &found.world;
    let events = &found.events;
    world.put([mesh("default", ""), dataplane("default", "web", "192.0.2.1", "web", &["backend"])]).await;
    let connected = world.push.connect(traits("default", "web"));
    let current = connected.compute(PendingWork::Everything, None).await;
    // The insight of a proxy that connects is written, which leads to a look.
    world.put([resource(Key::new(Kind::DataplaneInsight, "default", "web"), &[], json!({}))]).await;
    wait_for(events, "web", &["finding-opened"]).await;
    world.put([service("default", "backend", &[])]).await;
    let _now = connected.compute(PendingWork::Outbounds, current.as_ref()).await;
    wait_for(events, "web", &["finding-opened", "finding-closed"]).await;
    let [opened, closed] = &of(events, "web")[..] else { panic!() };
    assert_eq!((opened.code.as_str(), opened.mesh.as_str()), ("unknown-destination", "default"));
    assert!(opened.kri.starts_with("kri_dp_default_"), "{opened:?}");
    assert_eq!((opened.r#type.as_str(), opened.since.as_str()), ("Dataplane", ""));
    assert_eq!(closed.message, opened.message);
    assert!(closed.since <= opened.time && !closed.since.is_empty(), "{opened:?} {closed:?}");
}

#[tokio::test]
async fn what_was_wrong_before_the_start_is_no_event() {
    let store: Arc<dyn store::Store> = Arc::new(store::Memory::default());
    let before = crate::world::World::on(store.clone());
    before.put([mesh("default", "STRICT")]).await;
    let found = Found::on(store);
    found.world.push.caught_up().await;
    assert_eq!(found.findings.list("default", jiff::Timestamp::now(), |_| true).len(), 1);
    let deadline = tokio::time::Instant::now() + crate::world::SOON;
    let mut meshes = Vec::new();
    // What comes before the first look is from before the start, too.
    while !meshes.iter().any(|name: &String| kinds(&found.events, name) == ["finding-opened"]) {
        assert!(tokio::time::Instant::now() < deadline, "no finding of {meshes:?}");
        meshes.push(format!("new-{}", meshes.len()));
        found.world.put([mesh(meshes.last().unwrap(), "STRICT")]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(kinds(&found.events, "default"), [""; 0]);
}

#[tokio::test]
async fn a_write_is_an_event_of_a_control_plane_and_a_change_for_pages() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let mut config = config(directory.path(), StoreType::Memory);
    config.audit.file = audit.to_str().unwrap().to_owned();
    let running = start(config).await;
    let to = json!({ "targetRef": { "kind": "MeshExternalService", "name": "bank" }, "default": { "connectionTimeout": "1s" } });
    let timeout = json!({ "type": "MeshTimeout", "mesh": "default", "name": "slow", "spec": { "to": [to] } });
    assert_eq!(put(&running, "/meshes/default/meshtimeouts/slow", timeout).await, 201);
    let written = get(&running, "/_events?kind=written").await;
    assert_eq!(written["total"], 1, "{written:#}");
    let item = &written["items"][0];
    assert_eq!(
        (&item["type"], &item["name"], &item["action"]),
        (&json!("MeshTimeout"), &json!("slow"), &json!("create"))
    );
    let opened = "/_events?kind=finding-opened&type=MeshTimeout&name=slow";
    crate::kds::eventually("its finding is an event", || async {
        get(&running, opened).await["items"][0]["code"] == "unknown-target"
    })
    .await;
    running.finish().await;
    let lines = std::fs::read_to_string(&audit).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().filter(|line| line["name"] == "slow").count(), 1, "{lines:?}");
    let logged = lines.iter().find(|line| line["event"]["kind"] == "finding-opened").unwrap();
    assert_eq!(logged["event"]["name"], "slow", "{logged}");
}
