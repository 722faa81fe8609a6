//! Faults around a request: limits, stores with faults, paths that do not exist.

use std::{sync::Arc, time::Duration};

use api::Settings;
use async_trait::async_trait;
use axum::body::Body;
use http::Method;
use resources::{Key, Kind};
use serde_json::json;
use store::{Changes, Committed, Error, Memory, Snapshot, Store, Write};

use crate::world::{World, remote, request, setup, zone};

/// Behaviour of a store with this fault.
#[derive(Clone, Copy)]
enum Fault {
    WritesUnavailable,
    ReadsUnavailable,
    Conflicts,
    Damaged,
    Hangs,
}

/// A store that works until the mesh is there, then has its fault.
struct FaultyStore {
    inner: Memory,
    fault: Fault,
}

impl FaultyStore {
    fn begun(&self) -> bool {
        self.inner.snapshot().unwrap().count(Kind::Mesh, None) > 0
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        match self.fault {
            Fault::ReadsUnavailable => Err(Error::Unavailable("no connection".into())),
            _ => self.inner.snapshot(),
        }
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        if !self.begun() {
            return self.inner.write(batch).await;
        }
        let key = Key::global(Kind::Mesh, "one");
        match self.fault {
            Fault::WritesUnavailable => Err(Error::Unavailable("no space left on device".into())),
            Fault::Conflicts => Err(Error::Conflict { key, expected: 1, found: 2 }),
            Fault::Damaged => Err(Error::Damaged("secret details".into())),
            Fault::Hangs => std::future::pending().await,
            Fault::ReadsUnavailable => self.inner.write(batch).await,
        }
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}

async fn world_with(fault: Fault) -> World {
    let store = FaultyStore { inner: Memory::default(), fault };
    let settings = Settings { timeout: Duration::from_millis(50), ..Settings::default() };
    World::on(Arc::new(store), setup(zone()), settings).await
}

#[tokio::test]
async fn a_store_that_cannot_write_is_a_retriable_503_while_reads_go_on() {
    let world = world_with(Fault::WritesUnavailable).await;
    let answer = world.put("/meshes/one", &json!({ "type": "Mesh", "name": "one" })).await;
    assert_eq!(answer.header("retry-after"), "1");
    let problem = answer.expect_problem_titled(503, "Service unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("no space left on device"), "{problem}");
    world.delete("/meshes/default").await.expect_problem_titled(503, "Service unavailable");
    world.get("/meshes/default").await.expect(200);
    world.get("/meshes/one").await.expect(404);
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_a_503() {
    let world = world_with(Fault::ReadsUnavailable).await;
    for path in
        ["/meshes", "/meshes/default", "/meshes/default/meshtimeouts", "/global-insight", "/zones/_overview"]
    {
        world.get(path).await.expect_problem_titled(503, "Service unavailable");
    }
    world.get("/").await.expect(200);
}

#[tokio::test]
async fn a_concurrent_update_is_a_conflict() {
    let world = world_with(Fault::Conflicts).await;
    let answer = world.put("/meshes/one", &json!({ "type": "Mesh", "name": "one" })).await;
    answer.expect_problem_titled(409, "Conflict");
}

#[tokio::test]
async fn an_internal_error_tells_the_client_nothing_about_its_cause() {
    let world = world_with(Fault::Damaged).await;
    let answer = world.put("/meshes/one", &json!({ "type": "Mesh", "name": "one" })).await;
    answer.expect_problem(500, "Could not create a resource", "Internal Server Error");
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up() {
    let world = world_with(Fault::Hangs).await;
    let answer = world.put("/meshes/one", &json!({ "type": "Mesh", "name": "one" })).await;
    answer.expect_problem_titled(504, "Gateway Timeout");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_or_not_it_says_its_length() {
    let world = World::with(zone(), Settings { max_body: 1000, ..Settings::default() }).await;
    let body = |size: usize| json!({ "type": "Mesh", "name": "one", "x": "y".repeat(size) }).to_string();
    world.send(request(Method::PUT, "/meshes/one", Body::from(body(800)))).await.expect(201);
    world
        .send(request(Method::PUT, "/meshes/one", Body::from(body(1000))))
        .await
        .expect_problem_titled(413, "Request Entity Too Large");
    let mut announced = request(Method::PUT, "/meshes/one", Body::empty());
    announced.headers_mut().insert("content-length", "1001".parse().unwrap());
    world.send(announced).await.expect_problem_titled(413, "Request Entity Too Large");
    let token = request(Method::POST, "/tokens/user", Body::from(body(1000)));
    world.send(token).await.expect_problem_titled(413, "Request Entity Too Large");
}

#[track_caller]
fn no_such_path(answer: crate::world::Answer) {
    let answer = answer.expect(404);
    assert_eq!(answer.header("content-type"), "text/plain");
    assert_eq!(answer.body, "404: Page Not Found");
}

#[tokio::test]
async fn paths_that_do_not_exist_are_404_in_plain_words() {
    let world = World::new().await;
    for path in [
        "/no-such-endpoint",
        "/meshes/default/not-a-type",
        "/meshes/default/dataplanes/one/_nothing",
        "/meshes/default/dataplanes/one/_outbounds/kri_msvc_default___one_80",
        "/configs",
    ] {
        no_such_path(world.get(path).await);
        no_such_path(world.put(path, &json!({})).await);
    }
}

#[tokio::test]
async fn a_path_with_another_method_is_405_in_plain_words() {
    let world = World::new().await;
    for (method, path) in [
        (Method::POST, "/meshes"),
        (Method::DELETE, "/meshes"),
        (Method::PATCH, "/meshes/default"),
        (Method::GET, "/tokens/user"),
        (Method::PUT, "/"),
        (Method::PUT, "/zones/_overview"),
    ] {
        let answer = world.send(request(method, path, Body::empty())).await.expect(405);
        assert_eq!(answer.header("content-type"), "text/plain");
        assert_eq!(answer.body, "405: Method Not Allowed");
    }
}

#[tokio::test]
async fn head_answers_as_get_without_the_body() {
    let world = World::new().await;
    let answer = world.send(request(Method::HEAD, "/meshes/default", Body::empty())).await.expect(200);
    assert_eq!((answer.body.as_str(), answer.header("content-type")), ("", "application/json"));
    world.send(request(Method::HEAD, "/meshes/none", Body::empty())).await.expect(404);
}

#[tokio::test]
async fn a_slash_at_the_end_changes_nothing() {
    let world = World::new().await;
    assert_eq!(world.get("/meshes/?size=1").await.expect(200).json()["total"], 1);
    assert_eq!(world.get("/meshes/default//").await.expect(200).json()["name"], "default");
}

#[tokio::test]
async fn everything_is_below_the_base_path_when_there_is_one() {
    let world = World::with(zone(), Settings { base_path: "/cp/".into(), ..Settings::default() }).await;
    world.store(Kind::Mesh, "", "other", json!({})).await;
    let page = world.get("/cp/meshes?size=1").await.expect(200).json();
    assert_eq!(page["next"], "http://localhost:5681/cp/meshes?after=%2Fdefault&offset=1&size=1");
    world.get("/cp").await.expect(200);
    no_such_path(world.get("/meshes").await);
    no_such_path(world.get("/cp/none").await);
}

#[tokio::test]
async fn names_in_paths_may_be_percent_encoded_and_must_be_utf8() {
    let world = World::new().await;
    assert_eq!(world.get("/meshes/def%61ult").await.expect(200).json()["name"], "default");
    world.get("/meshes/%ff").await.expect_problem_titled(400, "Bad Request");
    world.get("/meshes/%00").await.expect(404);
    world.get("/meshes/..%2fetc").await.expect(404);
}

#[tokio::test]
async fn only_allowed_origins_may_read_answers_in_a_browser() {
    let settings =
        Settings { cors_allowed_domains: vec!["https://gui.example.com".into()], ..Settings::default() };
    let world = World::with(zone(), settings).await;
    let from = |method: Method, origin: &str| {
        let mut request = remote(method, "/meshes", Body::empty());
        request.headers_mut().insert("origin", origin.parse().unwrap());
        request
    };
    let allowed = world.send(from(Method::GET, "https://gui.example.com")).await.expect(200);
    assert_eq!(allowed.header("access-control-allow-origin"), "https://gui.example.com");
    let other = world.send(from(Method::GET, "https://evil.example.com")).await.expect(200);
    assert_eq!(other.header("access-control-allow-origin"), "");

    let mut preflight = from(Method::OPTIONS, "https://gui.example.com");
    preflight.headers_mut().insert("access-control-request-method", "PUT".parse().unwrap());
    let answer = world.send(preflight).await.expect(200);
    assert_eq!(answer.header("access-control-allow-methods"), "GET, PUT, POST, DELETE");

    let any = Settings { cors_allowed_domains: vec![".*".into()], ..Settings::default() };
    let answer = World::with(zone(), any).await.send(from(Method::GET, "http://x.example.com")).await;
    assert_eq!(answer.header("access-control-allow-origin"), "http://x.example.com");
}

#[tokio::test]
async fn requests_are_measured_by_route_and_not_by_path() {
    let world = World::new().await;
    world.get("/meshes/default").await;
    world.get("/meshes/none").await;
    world.get("/guess/1").await;
    let text = world.metrics.encode();
    let name = "api_server_http_request_duration_seconds_count";
    for line in [
        format!("{name}{{handler=\"/meshes/{{name}}\",method=\"GET\",code=\"200\"}} 1"),
        format!("{name}{{handler=\"/meshes/{{name}}\",method=\"GET\",code=\"404\"}} 1"),
        format!("{name}{{handler=\"none\",method=\"GET\",code=\"404\"}} 1"),
    ] {
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    let world = Arc::new(World::new().await);
    let puts: Vec<_> = (0..200)
        .map(|i| {
            let world = world.clone();
            tokio::spawn(async move {
                let name = format!("mesh-{i}");
                let created =
                    world.put(&format!("/meshes/{name}"), &json!({ "type": "Mesh", "name": name })).await;
                created.expect(201);
                world.get("/meshes?size=1000").await.expect(200);
            })
        })
        .collect();
    for put in puts {
        put.await.unwrap();
    }
    assert_eq!(world.get("/meshes").await.json()["total"], 201);
}
