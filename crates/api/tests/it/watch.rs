//! Lists that go on.

use std::time::Duration;

use api::Settings;
use axum::body::Body;
use contract::watch::WatchEvent;
use http::Method;
use http_body_util::BodyExt;
use resources::Kind;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::world::{World, request, zone};

/// The lines of a stream, read one at a time.
struct Lines {
    body: Body,
    buffer: String,
}

impl Lines {
    async fn open(world: &World, path: &str) -> Lines {
        let response = world.router.clone().oneshot(request(Method::GET, path, Body::empty())).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Lines { body: response.into_body(), buffer: String::new() }
    }

    /// The next event; bookmarks, which only say where the stream stands, are passed over.
    async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some((line, rest)) = self.buffer.split_once('\n') {
                let event: Value = serde_json::from_str(line).unwrap();
                let read: WatchEvent = serde_json::from_str(line).unwrap();
                assert_eq!(serde_json::to_string(&read).unwrap(), line);
                self.buffer = rest.to_owned();
                assert!(event["revision"].is_u64(), "{event}");
                if event["type"] != "BOOKMARK" {
                    return Some(event);
                }
            }
            let frame = tokio::time::timeout(Duration::from_secs(20), self.body.frame())
                .await
                .expect("no event came");
            let data = frame?.unwrap().into_data().unwrap();
            self.buffer.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    async fn expect(&mut self, change: &str, name: &str) -> Value {
        let event = self.next().await.expect("the stream ended");
        assert_eq!((&event["type"], &event["object"]["name"]), (&json!(change), &json!(name)), "{event}");
        event
    }
}

fn zone_body(name: &str, enabled: bool) -> Value {
    json!({ "type": "Zone", "name": name, "enabled": enabled })
}

#[tokio::test]
async fn a_watch_sends_what_is_there_and_then_every_change() {
    let world = World::new().await;
    world.put("/zones/a", &zone_body("a", true)).await.expect(201);
    let mut lines = Lines::open(&world, "/zones?watch=true").await;
    let added = lines.expect("ADDED", "a").await;
    assert_eq!(added["object"]["type"], "Zone");

    world.put("/zones/b", &zone_body("b", true)).await.expect(201);
    lines.expect("ADDED", "b").await;
    world.put("/zones/a", &zone_body("a", false)).await.expect(200);
    assert_eq!(lines.expect("MODIFIED", "a").await["object"]["enabled"], false);
    world.put("/meshes/other", &json!({ "type": "Mesh", "name": "other" })).await.expect(201);
    world.delete("/zones/b").await.expect(200);
    assert_eq!(lines.expect("DELETED", "b").await["object"], json!({ "type": "Zone", "name": "b" }));
}

#[tokio::test]
async fn a_deleted_resource_is_told_by_its_type_mesh_and_name() {
    let world = World::new().await;
    world.store(Kind::Dataplane, "default", "web", json!({ "networking": { "address": "192.0.2.1" } })).await;
    let mut lines = Lines::open(&world, "/meshes/default/dataplanes?watch=true").await;
    lines.expect("ADDED", "web").await;
    world.delete("/meshes/default/dataplanes/web").await.expect(200);
    let gone = lines.expect("DELETED", "web").await;
    let object = r#"{"type":"Dataplane","mesh":"default","name":"web"}"#;
    let line = format!(r#"{{"type":"DELETED","revision":{},"object":{object}}}"#, gone["revision"]);
    assert_eq!(gone.to_string(), line);
}

#[tokio::test]
async fn a_watch_resumes_after_a_revision_without_missing_anything() {
    let world = World::new().await;
    world.put("/zones/changed", &zone_body("changed", true)).await.expect(201);
    world.put("/zones/deleted", &zone_body("deleted", true)).await.expect(201);
    world.put("/zones/kept", &zone_body("kept", true)).await.expect(201);
    let revision = world.get("/zones").await.header("x-kuma-revision").to_owned();
    world.put("/zones/changed", &zone_body("changed", false)).await.expect(200);
    world.delete("/zones/deleted").await.expect(200);
    world.put("/zones/fresh", &zone_body("fresh", true)).await.expect(201);

    let mut lines = Lines::open(&world, &format!("/zones?watch=true&revision={revision}")).await;
    lines.expect("MODIFIED", "changed").await;
    lines.expect("DELETED", "deleted").await;
    lines.expect("ADDED", "fresh").await;
    world.delete("/zones/kept").await.expect(200);
    lines.expect("DELETED", "kept").await;
}

#[tokio::test]
async fn a_watch_concerns_its_mesh_and_its_filter_only() {
    let world = World::new().await;
    world.store(Kind::Mesh, "", "other", json!({})).await;
    let mut lines =
        Lines::open(&world, "/meshes/default/meshtimeouts?watch=true&filter[labels.team]=a").await;
    let body = |mesh: &str, name: &str, team: &str| {
        json!({ "type": "MeshTimeout", "mesh": mesh, "name": name, "labels": { "team": team }, "spec": { "to": [
            { "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } },
        ] } })
    };
    for (mesh, name, team) in
        [("other", "elsewhere", "a"), ("default", "another", "b"), ("default", "ours", "a")]
    {
        let path = format!("/meshes/{mesh}/meshtimeouts/{name}");
        world.put(&path, &body(mesh, name, team)).await.expect(201);
    }
    lines.expect("ADDED", "ours").await;
    // What no longer matches is gone for this watcher.
    world.put("/meshes/default/meshtimeouts/ours", &body("default", "ours", "b")).await.expect(200);
    lines.expect("DELETED", "ours").await;
}

#[tokio::test]
async fn a_revision_that_never_was_is_refused() {
    let world = World::new().await;
    world.get("/zones?watch=true&revision=999999").await.expect_problem_titled(410, "Gone");
    world.get("/zones?watch=true&revision=x").await.expect_problem_titled(400, "Bad Request");
}

#[tokio::test]
async fn a_watch_ends_after_the_request_timeout() {
    let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    let mut lines = Lines::open(&world, "/zones?watch=true").await;
    assert_eq!(lines.next().await, None);
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_and_nothing_is_made_for_it() {
    let settings = Settings { watch_patience: Duration::from_millis(50), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    for i in 0..100 {
        world.store(Kind::Zone, "", &format!("zone-{i:03}"), json!({})).await;
    }
    let mut unread = Lines::open(&world, "/zones?watch=true").await;
    let ended = r#"api_server_watches_ended_total{reason="not_read"} 1"#;
    eventually("it is counted", || world.metrics.encode().contains(ended)).await;
    let mut lines = 0;
    let end = loop {
        match unread.body.frame().await {
            Some(Ok(_)) => lines += 1,
            end => break end,
        }
    };
    assert_eq!(lines, 1, "one line waits for its reader, and no other is made");
    // It must not look complete.
    assert!(matches!(end, Some(Err(_))), "{end:?}");
}

#[tokio::test]
async fn watches_are_limited_for_each_client_and_for_all() {
    let settings = Settings { max_watches: 3, max_watches_per_peer: 2, ..Settings::default() };
    let world = World::with(zone(), settings).await;
    let open = async |addr: &str| {
        let mut request = request(Method::GET, "/zones?watch=true", Body::empty());
        request.extensions_mut().insert(crate::world::peer(addr));
        world.router.clone().oneshot(request).await.unwrap()
    };
    let refused = async |addr: &str, says: &str| {
        let response = open(addr).await;
        assert_eq!(response.status(), 503);
        let text =
            String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert!(text.contains(says), "{text}");
    };
    let first = [open("192.0.2.1:1").await, open("192.0.2.1:2").await];
    refused("192.0.2.1:3", "2 watches are open from this address").await;
    let other = open("192.0.2.2:1").await;
    assert_eq!(other.status(), 200);
    refused("192.0.2.3:1", "3 watches are open, which is the limit of this control plane").await;
    drop(first);
    // The next line finds out that they are gone.
    world.store(Kind::Zone, "", "one", json!({})).await;
    let gone = r#"api_server_watches_ended_total{reason="client_gone"} 2"#;
    eventually("their places are free", || world.metrics.encode().contains(gone)).await;
    assert_eq!(open("192.0.2.1:4").await.status(), 200);
    assert!(world.metrics.encode().contains(r#"api_server_watches_ended_total{reason="refused"} 2"#));
}
