//! What is recorded of writes.

use api::{Audit, Settings};
use axum::body::Body;
use http::Method;
use identity::{KeyPair, Purpose, signing_key};
use resources::Kind;
use runtime::logs::Journal;
use serde_json::{Value, json};
use testkit::body::timeout;

use crate::{
    log::Log,
    world::{World, remote, zone},
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
    let (here, there) = ("127.0.0.1:40000", "192.0.2.7:40000");
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

/// Whether the lines say what is expected, in its order, whatever else they say.
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
