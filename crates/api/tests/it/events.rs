//! Events, as pages and as streams.

use std::{collections::VecDeque, time::Duration};

use api::{Authn, Settings};
use axum::body::Body;
use contract::events::{Event, EventKind};
use events::Occurrence;
use http::{Method, Request};
use http_body_util::BodyExt;
use resources::{Key, Kind};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::world::{World, remote, request, setup, zone};

const SOON: Duration = Duration::from_secs(60);

/// A message of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
struct Message {
    id: Option<String>,
    r#type: Option<String>,
    data: Value,
}

/// A stream as a browser reads it.
struct Stream {
    body: Body,
    unread: String,
    messages: VecDeque<Message>,
    /// The `Last-Event-ID` that a browser would send.
    last_id: String,
}

impl Stream {
    async fn open(world: &World, path: &str) -> Stream {
        Stream::of(world, request(Method::GET, path, Body::empty())).await
    }

    async fn resume(world: &World, path: &str, id: &str) -> Stream {
        let mut again = request(Method::GET, path, Body::empty());
        again.headers_mut().insert("last-event-id", id.parse().unwrap());
        Stream::of(world, again).await
    }

    async fn of(world: &World, mut request: Request<Body>) -> Stream {
        request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        let response = world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let body = response.into_body();
        Stream { body, unread: String::new(), messages: VecDeque::new(), last_id: String::new() }
    }

    /// The next message with data; `None` at the end.
    async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Some(message);
            }
            let frame = tokio::time::timeout(SOON, self.body.frame()).await.expect("a message in time")?;
            self.unread.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
            while let Some((block, rest)) = self.unread.split_once("\n\n") {
                let mut message = Message::default();
                let mut data = None;
                for line in block.lines().filter(|line| !line.starts_with(':')) {
                    let (field, value) = line.split_once(": ").unwrap();
                    match field {
                        "id" => message.id = Some(value.to_owned()),
                        "event" => message.r#type = Some(value.to_owned()),
                        "data" => data = Some(serde_json::from_str(value).unwrap()),
                        "retry" => assert_eq!(value, "1000"),
                        other => panic!("{other}"),
                    }
                }
                self.last_id = message.id.clone().unwrap_or(std::mem::take(&mut self.last_id));
                self.messages.extend(data.map(|data| Message { data, ..message }));
                self.unread = rest.to_owned();
            }
        }
    }

    async fn event(&mut self) -> Event {
        let message = self.next().await.expect("the stream goes on");
        assert_eq!(message.r#type, None, "{message:?}");
        let event: Event = serde_json::from_value(message.data.clone()).unwrap();
        assert_eq!(serde_json::to_value(&event).unwrap(), message.data, "it is read as it was written");
        assert_eq!(message.id.as_ref(), Some(&event.id));
        event
    }

    async fn expect(&mut self, kind: EventKind, name: &str) -> Event {
        let event = self.event().await;
        assert_eq!((event.kind, event.name.as_str()), (kind, name), "{event:?}");
        event
    }

    /// A message about the stream itself.
    async fn notice(&mut self, r#type: &str) -> Value {
        let message = self.next().await.expect("the stream goes on");
        assert_eq!(message.r#type.as_deref(), Some(r#type), "{message:?}");
        message.data
    }
}

fn connected(mesh: &str, name: &str) -> Occurrence {
    Occurrence::of(EventKind::ProxyConnected, &Key::new(Kind::Dataplane, mesh, name), "connected")
}

fn timeout(name: &str) -> Value {
    let to = json!({ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } });
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": { "to": [to] } })
}

async fn names(world: &World, query: &str) -> Vec<String> {
    let list = world.get(&format!("/_events{query}")).await.expect(200).json();
    let items = list["items"].as_array().unwrap();
    assert!(list["total"].as_u64().unwrap() >= items.len() as u64);
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn events_are_listed_by_mesh_kind_and_resource_and_in_pages() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.events.record(connected("default", name));
    }
    world.events.record(connected("other", "a"));
    let zone = Key::global(Kind::Zone, "east");
    world.events.record(Occurrence::of(EventKind::ZoneJoined, &zone, "connected"));
    assert_eq!(names(&world, "").await, ["a", "b", "c", "a", "east"]);
    assert_eq!(names(&world, "?mesh=default").await, ["a", "b", "c"]);
    assert_eq!(names(&world, "?kind=zone-joined,zone-left").await, ["east"]);
    assert_eq!(names(&world, "?kind=zone-joined&kind=proxy-connected&mesh=other").await, ["a"]);
    assert_eq!(names(&world, "?type=Dataplane&name=a").await, ["a", "a"]);
    assert_eq!(names(&world, "?since=1h").await.len(), 5);
    assert_eq!(names(&world, "?since=2999-01-01T00:00:00Z").await.len(), 0);

    let mut seen = Vec::new();
    let mut path = "/_events?size=2".to_owned();
    loop {
        let page = world.get(&path).await.expect(200).json();
        assert_eq!(page["total"], 5);
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["name"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = next.strip_prefix("http://localhost:5681").unwrap().to_owned();
    }
    assert_eq!(seen, ["a", "b", "c", "a", "east"]);
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_with_what_can() {
    let world = World::new().await;
    for (query, advice) in [
        ("kind=proxy", "proxy-connected, proxy-lost"),
        ("type=Dataplan", "/_resources"),
        ("since=yesterday", "10m"),
        ("after=7", "not the id of an event"),
    ] {
        let problem = world.get(&format!("/_events?{query}")).await.expect_problem_titled(400, "Bad Request");
        assert!(problem["detail"].as_str().unwrap().contains(advice), "{problem}");
    }
    world.get("/_events?after=0123456789abcdef-7").await.expect_problem_titled(410, "Gone");
    let mut wrong = request(Method::GET, "/_events?changes=maybe", Body::empty());
    wrong.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    world.send(wrong).await.expect_problem_titled(400, "Bad Request");
}

#[tokio::test]
async fn writes_are_events_with_their_user_and_unchanged_ones_are_not() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, "/_events").await;
    let path = "/meshes/default/meshtimeouts/slow";
    world.put(path, &timeout("slow")).await.expect(201);
    world.put(path, &timeout("slow")).await.expect(200);
    world.put(path, &json!({ "type": "MeshTimeout" })).await.expect(400);
    world.delete(path).await.expect(200);
    world.delete(path).await.expect(404);
    for (action, message) in [("create", "created"), ("delete", "deleted")] {
        let event = stream.expect(EventKind::Written, "slow").await;
        assert_eq!((event.action.as_str(), event.message.as_str()), (action, message));
        assert_eq!((event.mesh.as_str(), event.r#type.as_str()), ("default", "MeshTimeout"));
        assert!(event.user.starts_with("mesh-system:admin/"), "{event:?}");
    }
    world.put("/meshes/third", &json!({ "type": "Mesh", "name": "third" })).await.expect(201);
    assert_eq!(stream.expect(EventKind::Written, "third").await.mesh, "third", "a Mesh counts as its own");
}

/// Anybody who is not an administrator, from another machine.
fn stranger(path: &str) -> Request<Body> {
    remote(Method::GET, path, Body::empty())
}

#[tokio::test]
async fn an_event_tells_nobody_what_get_would_not_tell() {
    let authn = Authn { localhost_is_admin: true, ..Authn::default() };
    let world = World::with(zone(), Settings { authn, ..Settings::default() }).await;
    let mut administrator = Stream::open(&world, "/_events?changes=true").await;
    let mut other = Stream::of(&world, stranger("/_events?changes=true")).await;
    let secret = json!({ "type": "Secret", "mesh": "default", "name": "hush", "data": "aHVzaA==" });
    world.put("/meshes/default/secrets/hush", &secret).await.expect(201);
    world.put("/meshes/default/meshtimeouts/slow", &timeout("slow")).await.expect(201);

    let seen_by = async |stream: &mut Stream, last: &str| {
        let mut events = Vec::new();
        let mut changed = Vec::new();
        while !(events.iter().any(|event: &Event| event.name == last)
            && changed.iter().any(|notice: &Value| notice["type"] == "MeshTimeout"))
        {
            let message = stream.next().await.unwrap();
            match message.r#type.as_deref() {
                None => events.push(serde_json::from_value(message.data).unwrap()),
                Some("changed") => changed.push(message.data),
                other => panic!("{other:?}"),
            }
        }
        (events, changed)
    };
    let (events, changed) = seen_by(&mut administrator, "slow").await;
    assert_eq!(events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["hush", "slow"]);
    assert!(events.iter().all(|event| !event.user.is_empty()));
    assert!(changed.contains(&json!({ "type": "Secret", "mesh": "default" })), "{changed:?}");
    let (events, changed) = seen_by(&mut other, "slow").await;
    assert_eq!(events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["slow"]);
    assert_eq!(events[0].user, "");
    assert!(changed.iter().all(|notice| notice["type"] != "Secret"), "{changed:?}");

    let page = world.send(stranger("/_events")).await.expect(200);
    assert!(!page.body.contains("hush") && !page.body.contains("admin"), "{}", page.body);
    world.send(stranger("/_events?type=Secret")).await.expect_problem_titled(403, "Access Denied");
    assert_eq!(names(&world, "?type=Secret").await, ["hush"]);
}

#[tokio::test]
async fn a_stream_resumes_after_an_event_and_says_what_it_cannot_know() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, "/_events?mesh=default").await;
    world.events.record(connected("default", "a"));
    let first = stream.expect(EventKind::ProxyConnected, "a").await;
    drop(stream);
    world.events.record(connected("other", "x"));
    world.events.record(connected("default", "b"));
    let mut again = Stream::resume(&world, "/_events?mesh=default", &first.id).await;
    again.expect(EventKind::ProxyConnected, "b").await;
    world.events.record(connected("default", "c"));
    again.expect(EventKind::ProxyConnected, "c").await;

    // Another process counts from one, too.
    let number = first.id.split_once('-').unwrap().1;
    let mut anew =
        Stream::resume(&world, "/_events?mesh=default", &format!("00000000000000ab-{number}")).await;
    let gap = anew.notice("gap").await;
    assert!(gap["reason"].as_str().unwrap().contains("started anew"), "{gap}");
    for name in ["a", "b", "c"] {
        anew.expect(EventKind::ProxyConnected, name).await;
    }
    let mut wrong = request(Method::GET, "/_events", Body::empty());
    wrong.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    wrong.headers_mut().insert("last-event-id", "7".parse().unwrap());
    world.send(wrong).await.expect_problem_titled(400, "Bad Request");
}

#[tokio::test]
async fn a_resume_from_an_event_that_is_not_kept_any_more_says_so() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, "/_events").await;
    world.events.record(connected("default", "first"));
    let first = stream.expect(EventKind::ProxyConnected, "first").await;
    drop(stream);
    // More than are kept of one mesh.
    for _ in 0..9_000 {
        world.events.record(connected("default", "noisy"));
    }
    world.events.record(connected("default", "last"));
    let mut again = Stream::resume(&world, "/_events", &first.id).await;
    let gap = again.notice("gap").await;
    assert!(gap["reason"].as_str().unwrap().contains("not kept any more"), "{gap}");
    loop {
        let event = again.event().await;
        if event.name == "last" {
            break;
        }
        assert_eq!(event.name, "noisy");
    }
}

#[tokio::test]
async fn a_stream_can_begin_in_the_past() {
    let world = World::new().await;
    world.events.record(connected("default", "a"));
    let mut since = Stream::open(&world, "/_events?since=10m").await;
    let mut from_now = Stream::open(&world, "/_events").await;
    world.events.record(connected("default", "b"));
    since.expect(EventKind::ProxyConnected, "a").await;
    since.expect(EventKind::ProxyConnected, "b").await;
    from_now.expect(EventKind::ProxyConnected, "b").await;
    // Before any event, a browser knows where to resume.
    let mut idle = Stream::open(&world, "/_events").await;
    world.events.record(connected("default", "c"));
    idle.expect(EventKind::ProxyConnected, "c").await;
    assert!(!idle.last_id.is_empty());
}

#[tokio::test]
async fn changes_of_a_kind_are_told_without_bodies_and_together() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, "/_events?changes=only&mesh=default").await;
    for number in 0..200 {
        world.events.record(connected("default", "not of interest"));
        world.store(Kind::Dataplane, "default", &format!("dp-{number}"), json!({})).await;
        world.store(Kind::Dataplane, "other", &format!("dp-{number}"), json!({})).await;
    }
    world.store(Kind::MeshTimeout, "default", "end", json!({})).await;
    let mut told = Vec::new();
    while !told.iter().any(|notice: &Value| notice["type"] == "MeshTimeout") {
        told.push(stream.notice("changed").await);
    }
    assert!(told.iter().all(|notice| notice["mesh"] == "default"), "{told:?}");
    assert!(told.iter().any(|notice| notice["type"] == "Dataplane"), "{told:?}");
    let again =
        Stream::resume(&world, "/_events?changes=only", &stream.last_id).await.notice("changed").await;
    assert_eq!(again, json!({}), "anything may have changed meanwhile");
}

#[tokio::test]
async fn a_subscriber_that_never_reads_is_cut_off_and_can_read_why() {
    let settings = Settings { watch_patience: Duration::from_millis(50), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    let mut unread = Stream::open(&world, "/_events").await;
    for number in 0..100 {
        world.events.record(connected("default", &format!("p{number}")));
    }
    let ended = r#"api_server_event_streams_ended_total{reason="not_read"} 1"#;
    eventually("it is counted", || world.metrics.encode().contains(ended)).await;
    eventually("its place is free", || world.metrics.encode().contains("\napi_server_event_streams 0\n"))
        .await;
    let mut events = 0;
    let cut = loop {
        let message = unread.next().await.expect("a reason before the end");
        match message.r#type {
            None => events += 1,
            Some(r#type) => break (r#type, message.data),
        }
    };
    assert!(events < 5, "what waits for a reader is bounded: {events}");
    assert_eq!(cut.0, "cut");
    assert!(cut.1["reason"].as_str().unwrap().contains("not read for 50ms"), "{cut:?}");
    assert_eq!(unread.next().await, None);
    let mut again = Stream::resume(&world, "/_events", &unread.last_id).await;
    again.expect(EventKind::ProxyConnected, &format!("p{events}")).await;
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn two_hundred_subscribers_get_every_event_and_more_are_refused() {
    let settings =
        Settings { max_event_streams: 201, max_event_streams_per_peer: 200, ..Settings::default() };
    let world = World::with(zone(), settings).await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        streams.push(Stream::open(&world, "/_events").await);
    }
    let ask = |mut request: Request<Body>| {
        request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        request
    };
    let refused = world.send(ask(request(Method::GET, "/_events", Body::empty()))).await;
    let problem = refused.expect_problem_titled(429, "Too Many Requests");
    assert!(problem["detail"].as_str().unwrap().contains("200 streams of events"), "{problem}");
    let _elsewhere = Stream::of(&world, stranger("/_events")).await;
    let refused = world.send(ask(stranger("/_events"))).await;
    let problem = refused.expect_problem_titled(503, "Service unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("ask for pages instead"), "{problem}");
    assert!(world.metrics.encode().contains("\napi_server_event_streams 201\n"));

    for number in 0..20 {
        world.events.record(connected("default", &format!("p{number}")));
    }
    for stream in &mut streams {
        for number in 0..20 {
            stream.expect(EventKind::ProxyConnected, &format!("p{number}")).await;
        }
    }
    drop(streams);
    eventually("places are free again", || world.metrics.encode().contains("\napi_server_event_streams 1\n"))
        .await;
    Stream::open(&world, "/_events").await;
}

#[tokio::test]
async fn a_stream_ends_after_its_time_and_with_the_control_plane() {
    let settings = Settings { event_stream_lifetime: Duration::from_millis(10), ..Settings::default() };
    let world = World::on(std::sync::Arc::new(store::Memory::default()), setup(zone()), settings).await;
    assert_eq!(Stream::open(&world, "/_events").await.next().await, None);

    let world = World::new().await;
    let mut stream = Stream::open(&world, "/_events").await;
    world.events.record(connected("default", "a"));
    stream.expect(EventKind::ProxyConnected, "a").await;
    world.shutdown.begin();
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn hostile_names_stay_in_their_event() {
    let world = World::new().await;
    let mut stream = Stream::open(&world, "/_events").await;
    let name = "a\r\n\r\nevent: cut\ndata: {}\n\nid: 0123456789abcdef-9\u{2028}\u{0}";
    world.events.record(connected("default", name));
    assert_eq!(stream.event().await.name, name);
    world.events.record(connected("default", &"n".repeat(100_000)));
    assert_eq!(stream.event().await.name.len(), 256);
}

#[tokio::test]
async fn events_are_counted_by_kind() {
    let metrics = runtime::metrics::Metrics::default();
    let events = events::Events::new(events::EventLog::Off, &metrics);
    assert!(metrics.encode().contains("events_total{kind=\"proxy-lost\"} 0"), "{}", metrics.encode());
    for _ in 0..9_000 {
        events.record(connected("default", "noisy"));
    }
    let shown = metrics.encode();
    assert!(shown.contains("events_total{kind=\"proxy-connected\"} 9000"), "{shown}");
    assert!(shown.contains("events_evicted_total 1000"), "{shown}");
}

#[tokio::test]
async fn events_are_in_the_file_of_the_audit_log_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let journal = runtime::logs::Journal::open(&path).unwrap();
    let log = events::EventLog::File(journal.clone());
    let events = events::Events::new(log, &runtime::metrics::Metrics::default());
    events.record(connected("default", "a\nb"));
    let slow = Key::new(Kind::MeshTimeout, "default", "slow");
    events.record(Occurrence::of(EventKind::Written, &slow, "created").by("john", "create"));
    assert!(journal.flush(SOON));
    let text = std::fs::read_to_string(&path).unwrap();
    let [line] = &text.lines().collect::<Vec<_>>()[..] else {
        panic!("a write has its line already: {text}")
    };
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["event"]["kind"], &line["event"]["name"]), (&json!("proxy-connected"), &json!("a\nb")));
}
