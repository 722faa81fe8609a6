//! What is known about MeshOpenTelemetryBackends.

use control_plane::telemetry_backends;
use resources::{Key, Kind, Resource, Status};
use runtime::Shutdown;
use serde_json::json;

use crate::world::{World, eventually, mesh, registrar, resource};

fn backend(name: &str, labels: &[(&str, &str)]) -> Resource {
    resource(Key::new(Kind::MeshOpenTelemetryBackend, "default", name), labels, json!({}))
}

/// What the only condition of a backend says.
fn condition(world: &World, name: &str) -> Option<String> {
    let snapshot = world.store.snapshot().unwrap();
    let stored = snapshot.get(&Key::new(Kind::MeshOpenTelemetryBackend, "default", name))?;
    let Some(Status::MeshOpenTelemetryBackend(status)) = &stored.status else { return None };
    let [condition] = &status.conditions[..] else { panic!("{status:?}") };
    assert_eq!(condition.type_, "ReferencedByPolicies");
    Some(format!("{} {}: {}", condition.status, condition.reason, condition.message))
}

#[tokio::test]
async fn a_backend_that_no_policy_refers_to_says_so() {
    let (world, shutdown) = (World::new(), Shutdown::default());
    telemetry_backends::start(&registrar(world.store.clone()), &shutdown);
    world.put([mesh("default", ""), backend("otel", &[])]).await;
    let expected = "False NotReferenced: Not referenced by any observability policy";
    eventually("the status is written", || condition(&world, "otel").as_deref() == Some(expected)).await;
    shutdown.begin();
}

fn policy(kind: Kind, name: &str, spec: serde_json::Value) -> Resource {
    resource(Key::new(kind, "default", name), &[], spec)
}

#[tokio::test]
async fn references_are_counted_at_the_oldest_backend_that_carries_the_labels() {
    let (world, shutdown) = (World::new(), Shutdown::default());
    telemetry_backends::start(&registrar(world.store.clone()), &shutdown);
    let reference = json!({ "kind": "MeshOpenTelemetryBackend", "labels": { "team": "obs" } });
    let otel = json!({ "type": "OpenTelemetry", "openTelemetry": { "backendRef": reference } });
    let entry = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "backends": [otel, otel] } }]);
    let logs = policy(Kind::MeshAccessLog, "logs", json!({ "to": entry, "from": entry }));
    let traces = policy(Kind::MeshTrace, "spans", json!({ "default": { "backends": [otel] } }));
    let younger = Resource {
        created: jiff::Timestamp::from_second(1).unwrap(),
        ..backend("a-younger", &[("team", "obs")])
    };
    world.put([mesh("default", ""), backend("otel", &[("team", "obs")]), younger, logs, traces]).await;
    let says = |name: &str, expected: &str| condition(&world, name).as_deref() == Some(expected);
    let unused = "False NotReferenced: Not referenced by any observability policy";
    eventually("the references are counted", || {
        says("otel", "True Referenced: Referenced by 5 policy backend(s)") && says("a-younger", unused)
    })
    .await;
    world.delete(Kind::MeshAccessLog, "default", "logs").await;
    eventually("the references that are left are counted", || {
        says("otel", "True Referenced: Referenced by 1 policy backend(s)")
    })
    .await;
    world.delete(Kind::MeshOpenTelemetryBackend, "default", "otel").await;
    eventually("the other one is referred to now", || {
        says("a-younger", "True Referenced: Referenced by 1 policy backend(s)")
    })
    .await;
    shutdown.begin();
}
