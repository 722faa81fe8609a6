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
