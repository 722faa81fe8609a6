//! Records of writes.

use std::{sync::Arc, time::Duration};

use api::{Audit, Settings};
use async_trait::async_trait;
use axum::body::Body;
use http::Method;
use identity::{KeyPair, Purpose, signing_key};
use resources::{Key, Kind};
use runtime::{
    Shutdown,
    listen::{Limits, Listener, Tally},
    logs::Journal,
};
use serde_json::{Value, json};
use store::{Changes, Committed, Error, Memory, Snapshot, Store, Write};
use testkit::body::timeout;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::Semaphore};

use crate::{
    log::Log,
    world::{World, remote, setup, zone},
};

const ADMIN: &str = "mesh-system:admin/mesh-system:admin,mesh-system:authenticated";
const ANONYMOUS: &str = "mesh-system:anonymous/mesh-system:unauthenticated";

/// Writes of several kinds, and what is to be recorded of them.
async fn write(world: &World) -> Vec<Value> {
    let pair = KeyPair::generate().unwrap();
    world.store_draft(signing_key::draft(Purpose::User, "1", &pair)).await;
    let path = "/meshes/default/meshtimeouts/one";
    world.put(path, &timeout("one", "1s")).await.expect(201);
    world.put(path, &timeout("one", "1s")).await.expect(200);
    world.get(path).await.expect(200);
    world.delete(path).await.expect(200);
    world.send(remote(Method::DELETE, path, Body::empty())).await.expect(404);
    let secret = json!({ "type": "Secret", "mesh": "default", "name": "s", "data": "dG9wIHNlY3JldA==" });
    let body = Body::from(secret.to_string());
    world.send(remote(Method::PUT, "/meshes/default/secrets/s", body)).await.expect(403);
    world.put("/meshes/default/secrets/s", &secret).await.expect(201);
    let request = json!({ "name": "jane", "groups": ["team-a"], "validFor": "1h" });
    world.post("/tokens/user", &request).await.expect(200);
    let networking = json!({ "networking": { "address": "192.0.2.1" } });
    world.store(Kind::Dataplane, "default", "web", networking).await;
    world.post("/meshes/default/dataplanes/web/logging?level=debug", &json!({})).await.expect(200);
    let here = "127.0.0.1:40000";
    let there = "192.0.2.7:40000";
    let line = |user: &str, peer: &str, verb: &str, kind: &str, (mesh, name): (&str, &str), status: u16| json!({ "user": user, "peer": peer, "verb": verb, "kind": kind, "mesh": mesh, "name": name, "status": status });
    let one = ("default", "one");
    let secret = ("default", "s");
    vec![
        line(ADMIN, here, "put", "MeshTimeout", one, 201),
        line(ADMIN, here, "put", "MeshTimeout", one, 200),
        line(ADMIN, here, "delete", "MeshTimeout", one, 200),
        line(ANONYMOUS, there, "delete", "MeshTimeout", one, 404),
        line(ANONYMOUS, there, "put", "Secret", secret, 403),
        line(ADMIN, here, "put", "Secret", secret, 201),
        line(ADMIN, here, "issue", "UserToken", ("", "jane"), 200),
        line(ADMIN, here, "change", "LogLevel", ("default", "web"), 200),
    ]
}

/// Checks that the lines have the expected fields, in order, whatever else they have.
#[track_caller]
fn check(found: &[Value], expected: &[Value]) {
    let fields = ["user", "peer", "verb", "kind", "mesh", "name", "status"];
    let shown = |line: &Value| fields.iter().map(|field| line[*field].clone()).collect::<Vec<_>>();
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected.iter().map(shown).collect::<Vec<_>>());
    assert!(!format!("{found:?}").contains("dG9wIHNlY3JldA"), "no secrets: {found:?}");
}

#[tokio::test]
async fn every_write_has_a_line_with_user_address_resource_and_result() {
    let world = World::new().await;
    let log = Log::default();
    let _guard = log.listen();
    let expected = write(&world).await;
    let mut lines = log.lines();
    lines.retain(|line| line["target"] == "audit");
    check(&lines, &expected);
    assert_eq!(lines[1]["outcome"], "unchanged");
}

#[tokio::test]
async fn the_audit_log_can_have_a_file_of_its_own_or_be_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let journal = Journal::open(&path).unwrap();
    let settings = Settings { audit: Audit::File(journal.clone()), ..Settings::default() };
    let world = World::with(zone(), settings).await;
    let log = Log::default();
    let _guard = log.listen();
    let expected = write(&world).await;
    assert!(journal.flush(std::time::Duration::from_secs(60)));
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    check(&lines, &expected);
    assert!(lines[0]["timestamp"].as_str().unwrap().starts_with("20"), "{}", lines[0]);

    let world = World::with(zone(), Settings { audit: Audit::Off, ..Settings::default() }).await;
    write(&world).await;
    assert!(log.lines().iter().all(|line| line["target"] != "audit"), "{:?}", log.lines());
}

/// A store whose writes after the first one wait until a test lets them end.
struct SlowStore {
    inner: Memory,
    begun: Semaphore,
    may_end: Semaphore,
}

#[async_trait]
impl Store for SlowStore {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.inner.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        self.begun.add_permits(1);
        self.may_end.acquire().await.unwrap().forget();
        self.inner.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}

#[tokio::test]
async fn a_write_whose_client_closes_the_connection_has_its_line() {
    let store = Arc::new(SlowStore {
        inner: Memory::default(),
        begun: Semaphore::new(0),
        // The mesh of the test.
        may_end: Semaphore::new(1),
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let journal = Journal::open(&path).unwrap();
    let settings = Settings { audit: Audit::File(journal.clone()), ..Settings::default() };
    let world = World::on(store.clone(), setup(zone()), settings).await;
    store.begun.acquire().await.unwrap().forget();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let listener = listener.counted(Tally::register(&world.metrics, "api_server"));
    let addr = listener.addr();
    let shutdown = Shutdown::default();
    listener.serve(world.router.clone(), None, Limits::default(), &shutdown);

    let mut client = TcpStream::connect(addr).await.unwrap();
    let body = timeout("one", "1s").to_string();
    let request = format!(
        "PUT /meshes/default/meshtimeouts/one HTTP/1.1\r\nhost: {addr}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    store.begun.acquire().await.unwrap().forget();
    drop(client);
    while !world.metrics.encode().contains("\napi_server_connections 0\n") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.may_end.add_permits(1);
    let mut changes = store.changes();
    let key = Key::new(Kind::MeshTimeout, "default", "one");
    while store.snapshot().unwrap().get(&key).is_none() {
        changes.next().await.unwrap();
    }
    let line = async {
        loop {
            assert!(journal.flush(Duration::from_secs(60)));
            match std::fs::read_to_string(&path).unwrap() {
                text if text.is_empty() => tokio::time::sleep(Duration::from_millis(5)).await,
                text => break text,
            }
        }
    };
    let line = tokio::time::timeout(Duration::from_secs(60), line).await.expect("a line of the write");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["verb"], &line["name"], &line["status"]), (&"put".into(), &"one".into(), &201.into()));
    assert!(shutdown.finish(Duration::from_secs(60)).await);
}
