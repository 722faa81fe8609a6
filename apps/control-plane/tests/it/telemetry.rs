//! Statuses of MeshOpenTelemetryBackends and of the policies that refer to them.

use reconcilers::telemetry_backends;
use resources::{Key, Kind, Resource, Status};
use runtime::Shutdown;
use serde_json::json;
use testkit::resource::policy;

use crate::world::{World, eventually, mesh, resource, runner};

fn backend(name: &str, labels: &[(&str, &str)]) -> Resource {
    resource(Key::new(Kind::MeshOpenTelemetryBackend, "default", name), labels, json!({}))
}

/// Text of the only condition of a backend.
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
    let world = World::new();
    let shutdown = Shutdown::default();
    telemetry_backends::start(&runner(&world.store, &shutdown));
    world.put([mesh("default", ""), backend("otel", &[])]).await;
    let expected = "False NotReferenced: Not referenced by any observability policy";
    eventually("the status is written", || condition(&world, "otel").as_deref() == Some(expected)).await;
    shutdown.begin();
}

#[tokio::test]
async fn references_are_counted_at_the_oldest_backend_that_carries_the_labels() {
    let world = World::new();
    let shutdown = Shutdown::default();
    telemetry_backends::start(&runner(&world.store, &shutdown));
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

/// Text of the only condition of a policy.
fn of_policy(world: &World, kind: Kind) -> Option<String> {
    let snapshot = world.store.snapshot().unwrap();
    let stored = snapshot.get(&Key::new(kind, "default", "observed"))?;
    let status = stored.status.as_ref()?.to_json();
    let [condition] = &status["conditions"].as_array()?[..] else { panic!("{status}") };
    assert_eq!(condition["type"], "BackendRefsResolved");
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    Some(format!("{} {}: {}", text("status"), text("reason"), text("message")))
}

const REFERRING: [Kind; 3] = [Kind::MeshAccessLog, Kind::MeshMetric, Kind::MeshTrace];

/// A policy of each kind with these backends.
fn observing(backends: serde_json::Value) -> [Resource; 3] {
    REFERRING.map(|kind| {
        let default = json!({ "backends": backends });
        let spec = match kind {
            Kind::MeshAccessLog => json!({ "rules": [{ "default": default }] }),
            _ => json!({ "default": default }),
        };
        policy(kind, "observed", spec)
    })
}

async fn all_say(world: &World, expected: &str) {
    let says = || REFERRING.map(|kind| of_policy(world, kind));
    eventually(expected, || says().iter().all(|said| said.as_deref() == Some(expected))).await;
}

#[tokio::test]
async fn a_policy_says_which_backends_it_refers_to_that_are_not_there() {
    let world = World::new();
    let shutdown = Shutdown::default();
    telemetry_backends::start(&runner(&world.store, &shutdown));
    let to = |labels: serde_json::Value| {
        let reference = json!({ "kind": "MeshOpenTelemetryBackend", "labels": labels });
        json!({ "type": "OpenTelemetry", "openTelemetry": { "backendRef": reference } })
    };
    let obs = to(json!({ "team": "obs", "env": "prod" }));
    let dev = to(json!({ "team": "dev" }));
    world.put([mesh("default", "")]).await;
    world.put(observing(json!([]))).await;
    let none = "True AllBackendRefsResolved: No MeshOpenTelemetryBackend references configured";
    all_say(&world, none).await;
    world.put(observing(json!([obs, dev, obs]))).await;
    let unresolved = "False UnresolvedBackendRefs: Unresolved MeshOpenTelemetryBackend references: ";
    all_say(&world, &format!("{unresolved}labels:env=prod,team=obs, labels:team=dev")).await;

    world.put([backend("dev", &[("team", "dev")])]).await;
    all_say(&world, &format!("{unresolved}labels:env=prod,team=obs")).await;
    world.put([backend("obs", &[("team", "obs"), ("env", "prod"), ("more", "labels")])]).await;
    let resolved = "True AllBackendRefsResolved: All MeshOpenTelemetryBackend references are resolved";
    all_say(&world, resolved).await;
    world.put([backend("dev", &[("team", "other")])]).await;
    all_say(&world, &format!("{unresolved}labels:team=dev")).await;
    world.put(observing(json!([obs]))).await;
    all_say(&world, resolved).await;
    world.delete(Kind::MeshOpenTelemetryBackend, "default", "obs").await;
    all_say(&world, &format!("{unresolved}labels:env=prod,team=obs")).await;
    shutdown.begin();
}

#[tokio::test]
async fn a_policy_is_written_when_what_it_refers_to_changes_and_not_otherwise() {
    let world = World::new();
    let shutdown = Shutdown::default();
    telemetry_backends::start(&runner(&world.store, &shutdown));
    let reference = json!({ "kind": "MeshOpenTelemetryBackend", "labels": { "team": "obs" } });
    let otel = json!([{ "type": "OpenTelemetry", "openTelemetry": { "backendRef": reference } }]);
    world.put([mesh("default", "")]).await;
    world.put(observing(otel)).await;
    world.put([backend("obs", &[("team", "obs")])]).await;
    all_say(&world, "True AllBackendRefsResolved: All MeshOpenTelemetryBackend references are resolved")
        .await;
    let versions = || {
        let snapshot = world.store.snapshot().unwrap();
        REFERRING.map(|kind| snapshot.get(&Key::new(kind, "default", "observed")).unwrap().version)
    };
    let before = versions();
    // A second backend of the same labels, and one that has nothing to do with it.
    world.put([backend("obs-2", &[("team", "obs")]), backend("other", &[])]).await;
    let known = |name: &str| condition(&world, name).is_some();
    eventually("both are looked at", || known("obs-2") && known("other")).await;
    world.delete(Kind::MeshOpenTelemetryBackend, "default", "obs").await;
    let counted = "True Referenced: Referenced by 3 policy backend(s)";
    eventually("the second one is meant", || condition(&world, "obs-2").as_deref() == Some(counted)).await;
    assert_eq!(versions(), before);
    shutdown.begin();
}
