//! Writes that depend on the version that was read: `ETag` and `If-Match`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use api::Settings;
use async_trait::async_trait;
use axum::body::Body;
use http::Method;
use resources::{Key, Kind, Resource};
use serde_json::Value;
use store::{Changes, Committed, Error, Memory, Snapshot, Store, Write};
use testkit::body::timeout;

use crate::world::{Answer, World, remote, request, setup, zone};

const PATH: &str = "/meshes/default/meshtimeouts/one";

impl World {
    async fn send_if(&self, method: Method, path: &str, tag: &str, body: &Value) -> Answer {
        let mut request = request(method, path, Body::from(body.to_string()));
        request.headers_mut().insert("if-match", tag.parse().unwrap());
        self.send(request).await
    }

    async fn put_if(&self, tag: &str, value: &str) -> Answer {
        self.send_if(Method::PUT, PATH, tag, &timeout("one", value)).await
    }

    async fn delete_if(&self, tag: &str) -> Answer {
        self.send_if(Method::DELETE, PATH, tag, &Value::Null).await
    }

    async fn tag(&self) -> String {
        self.get(PATH).await.expect(200).header("etag").to_owned()
    }

    async fn value(&self) -> String {
        let found = self.get(PATH).await.expect(200).json();
        found["spec"]["to"][0]["default"]["connectionTimeout"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_resource_is_read_with_a_tag_that_changes_with_it() {
    let world = World::new().await;
    world.put(PATH, &timeout("one", "1s")).await.expect(201);
    let first = world.tag().await;
    assert!(first.len() > 2 && first.starts_with('"') && first.ends_with('"'), "{first}");
    world.put(PATH, &timeout("two", "1s")).await.expect(400);
    world.put(PATH, &timeout("one", "1s")).await.expect(200);
    assert_eq!(world.tag().await, first, "nothing was written");
    let by_kri = world.get("/_kri/kri_mt_default_east__one_").await.expect(200);
    assert_eq!(by_kri.header("etag"), first);
    world.put(PATH, &timeout("one", "2s")).await.expect(200);
    assert_ne!(world.tag().await, first);
    // Also one that is made again with the same content is another one.
    let second = world.tag().await;
    world.delete(PATH).await.expect(200);
    world.put(PATH, &timeout("one", "2s")).await.expect(201);
    assert_ne!(world.tag().await, second);
}

#[tokio::test]
async fn a_write_with_an_older_tag_is_refused_and_says_what_to_do() {
    let world = World::new().await;
    world.put(PATH, &timeout("one", "1s")).await.expect(201);
    let old = world.tag().await;
    world.put_if(&old, "2s").await.expect(200);
    let now = world.tag().await;
    for answer in
        [world.put_if(&old, "3s").await, world.put_if(&old, "2s").await, world.delete_if(&old).await]
    {
        let problem = answer.expect_problem_titled(412, "Precondition Failed");
        let detail = problem["detail"].as_str().unwrap();
        for part in [&*old, &*now, "was changed since it was read", "last modified at 20", "Read it again"] {
            assert!(detail.contains(part), "{part} in {detail}");
        }
    }
    assert_eq!(world.value().await, "2s");
    world.delete_if(&now).await.expect(200);
    let problem = world.put_if(&now, "3s").await.expect_problem_titled(412, "Precondition Failed");
    assert!(problem["detail"].as_str().unwrap().contains("does not exist any more"), "{problem}");
    world.get(PATH).await.expect(404);
    world.delete_if(&now).await.expect(404);
}

#[tokio::test]
async fn a_condition_may_name_several_versions_or_any() {
    let world = World::new().await;
    world.put_if("*", "1s").await.expect_problem_titled(412, "Precondition Failed");
    world.put(PATH, &timeout("one", "1s")).await.expect(201);
    world.put_if("*", "2s").await.expect(200);
    let tag = world.tag().await;
    world.put_if(&format!("\"1\", {tag}"), "3s").await.expect(200);
    // A weak tag and one of another server are those of no version.
    let tag = world.tag().await;
    for other in [format!("W/{tag}"), "\"some-hash\"".to_owned()] {
        world.put_if(&other, "4s").await.expect_problem_titled(412, "Precondition Failed");
    }
    for malformed in [tag.trim_matches('"'), "\"1"] {
        let problem = world.put_if(malformed, "4s").await.expect_problem_titled(400, "Bad Request");
        assert!(problem["detail"].as_str().unwrap().contains("with its quotes"), "{problem}");
    }
    assert_eq!(world.value().await, "3s");
}

#[tokio::test]
async fn what_is_invalid_or_forbidden_without_a_condition_is_so_with_one() {
    let world = World::new().await;
    world.put(PATH, &timeout("one", "1s")).await.expect(201);
    let tag = world.tag().await;
    world.put_if(&tag, "-1s").await.expect_problem_titled(400, "Could not process a resource");
    world
        .send_if(Method::PUT, "/meshes/none/meshtimeouts/one", &tag, &timeout("one", "2s"))
        .await
        .expect(404);
}

#[tokio::test]
async fn of_writers_that_read_the_same_version_one_succeeds() {
    let world = World::new().await;
    world.put(PATH, &timeout("one", "1s")).await.expect(201);
    for round in 0..20 {
        let tag = world.tag().await;
        let values = [1, 2].map(|writer| format!("{}s", 10 + 2 * round + writer));
        let (first, second) = tokio::join!(world.put_if(&tag, &values[0]), world.put_if(&tag, &values[1]));
        let mut statuses = [first.status, second.status].map(|status| status.as_u16());
        let winner = if statuses[0] == 200 { &values[0] } else { &values[1] };
        assert_eq!(&world.value().await, winner);
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "{} {}", first.body, second.body);
    }
}

/// A store on which another writer changes a resource right before a write is made, or which learns of such a change only
/// when it catches up.
struct OtherWriter {
    inner: Arc<Memory>,
    armed: AtomicBool,
    /// Snapshot that is shown until the store catches up.
    before: Option<Arc<Snapshot>>,
    caught_up: AtomicBool,
}

impl OtherWriter {
    fn new(before: Option<Arc<Snapshot>>, inner: Arc<Memory>) -> Arc<OtherWriter> {
        let (armed, caught_up) = Default::default();
        Arc::new(OtherWriter { inner, armed, before, caught_up })
    }

    async fn change(&self, name: &str, kind: Kind) {
        let mesh = if kind == Kind::Mesh { "" } else { "default" };
        let stored = self.inner.snapshot().unwrap().get(&Key::new(kind, mesh, name)).unwrap().clone();
        let resource = Resource::clone(&stored);
        self.inner.write(vec![Write::Update { resource, expected: stored.version }]).await.unwrap();
    }
}

#[async_trait]
impl Store for OtherWriter {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        match &self.before {
            Some(before) if !self.caught_up.load(Ordering::Relaxed) => Ok(before.clone()),
            _ => self.inner.snapshot(),
        }
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        if self.armed.swap(false, Ordering::Relaxed) {
            let key = batch[0].key().clone();
            self.change(&key.name, key.kind).await;
        }
        self.inner.write(batch).await
    }

    async fn caught_up(&self, _: std::time::Duration) -> Result<Arc<Snapshot>, Error> {
        self.caught_up.store(true, Ordering::Relaxed);
        self.inner.snapshot()
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}

#[tokio::test]
async fn a_change_after_the_last_look_is_noticed_by_the_write_itself() {
    let store = OtherWriter::new(None, Arc::default());
    let world = World::on(store.clone(), setup(zone()), Settings::default()).await;
    world.put(PATH, &timeout("one", "1s")).await.expect(201);
    for method in [Method::PUT, Method::DELETE] {
        let tag = world.tag().await;
        store.armed.store(true, Ordering::Relaxed);
        let answer = world.send_if(method.clone(), PATH, &tag, &timeout("one", "2s")).await;
        answer.expect_problem_titled(412, "Precondition Failed");
        assert_eq!(world.value().await, "1s", "{method}");
    }
    // A user who may not change authorities deletes what was judged.
    let path = "/meshes/default";
    world.delete(PATH).await.expect(200);
    let tag = world.get(path).await.expect(200).header("etag").to_owned();
    let deletion = || {
        let mut request = remote(Method::DELETE, path, Body::empty());
        request.headers_mut().insert("if-match", tag.parse().unwrap());
        request
    };
    store.armed.store(true, Ordering::Relaxed);
    world.send(deletion()).await.expect_problem_titled(412, "Precondition Failed");
    world.get(path).await.expect(200);
}

#[tokio::test]
async fn a_version_that_was_read_on_another_control_plane_is_waited_for() {
    let inner = Arc::<Memory>::default();
    let earlier = World::on(OtherWriter::new(None, inner.clone()), setup(zone()), Settings::default()).await;
    earlier.put(PATH, &timeout("one", "1s")).await.expect(201);
    let before = inner.snapshot().unwrap();
    earlier.put(PATH, &timeout("one", "2s")).await.expect(200);
    let tag = earlier.tag().await;
    for method in [Method::PUT, Method::DELETE] {
        let tag = if method == Method::PUT { tag.clone() } else { earlier.tag().await };
        let behind = OtherWriter::new(Some(before.clone()), inner.clone());
        let world = World::on(behind, setup(zone()), Settings::default()).await;
        world.send_if(method, PATH, &tag, &timeout("one", "3s")).await.expect(200);
    }
    earlier.get(PATH).await.expect(404);
}
