//! Presence of a zone: shown on both sides, in the API and as metrics.

use super::*;

/// Overview of the zone, which both sides have.
async fn presence(running: &Running) -> Value {
    get(running, "/zones/east/_overview").await
}

async fn is_shown(world: &World, status: &str) {
    for (side, running) in [("global", &world.global), ("the zone", &world.zone)] {
        eventually(&format!("{side} shows {status}"), || async {
            let shown = presence(running).await["presence"].clone();
            shown["status"] == status && shown["since"].is_string()
        })
        .await;
    }
}

/// The value of a line of `/metrics`.
async fn metric(running: &Running, line: &str) -> i64 {
    let url = format!("http://{}/metrics", running.diagnostics.unwrap());
    let (_, page) = get_with(agent(None, None), url).await;
    let value = page.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_shown_on_both_sides_with_reason_and_time() {
    let world = World::new().await;
    is_shown(&world, "Online").await;
    assert_eq!(metric(&world.zone, "kds_global_connected").await, 1);
    assert_eq!(metric(&world.global, "kds_zones{status=\"Online\"}").await, 1);
    let changed = "kds_global_connection_changed_timestamp_seconds";
    let since = metric(&world.zone, changed).await;
    assert!(since > 1_700_000_000, "{since}");
    let own = presence(&world.zone).await["zoneInsight"].clone();
    assert_eq!(own["subscriptions"][0]["version"]["kumaCp"]["version"], "2.14.3", "{own}");
    assert_eq!(own["subscriptions"][0]["globalInstanceId"], Value::Null, "{own}");

    world.wire.cut();
    is_shown(&world, "Unknown").await;
    assert_eq!(metric(&world.zone, "kds_global_connected").await, 0);
    assert!(metric(&world.zone, changed).await >= since);
    assert_eq!(metric(&world.global, "kds_zones{status=\"Unknown\"}").await, 1);
    eventually("the reason is there", || async {
        let absence = presence(&world.zone).await["zoneInsight"]["absence"].clone();
        absence["reason"].as_str().is_some_and(|reason| !reason.is_empty())
    })
    .await;
    world.wire.lead_to(local(world.global.kds));
    is_shown(&world, "Online").await;
    assert!(presence(&world.zone).await["zoneInsight"]["absence"].is_null());
    world.zone.finish().await;
    world.global.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_stored_and_refused_is_counted_on_both_sides() {
    let world = World::new().await;
    let name = hashed_name("default", "taken", None, None);
    let own = timeout(&name, json!({ "kuma.io/origin": "zone" }));
    assert_eq!(put(&world.zone, &format!("/meshes/default/meshtimeouts/{name}"), own).await, 201);
    let sent = "kds_resources_sent_total{type=\"MeshTimeout\"}";
    let received = "kds_resources_received_total{type=\"MeshTimeout\"}";
    let before = (metric(&world.global, sent).await, metric(&world.zone, received).await);
    assert!(before.0 >= 2 && before.1 >= 2, "{before:?}");
    let mut taken = timeout("taken", json!({}));
    taken["spec"]["to"][0]["default"]["connectionTimeout"] = json!("1s");
    assert_eq!(put(&world.global, "/meshes/default/meshtimeouts/taken", taken).await, 201);
    eventually("the rejection is counted", || async {
        metric(&world.global, "kds_responses_rejected_total{type=\"MeshTimeout\"}").await == 1
    })
    .await;
    assert_eq!(metric(&world.zone, "kds_resources_refused_total{type=\"MeshTimeout\"}").await, 1);
    assert_eq!(metric(&world.global, sent).await, before.0 + 1);
    assert_eq!(metric(&world.zone, received).await, before.1 + 1);
    // The zone says so, too.
    eventually("the zone shows what it refuses", || async {
        presence(&world.zone).await["zoneInsight"]["problems"].to_string().contains("rejected by the zone")
    })
    .await;
    for running in [&world.global, &world.zone] {
        eventually("nothing waits for an answer", || async {
            metric(running, "kds_responses_unanswered").await == 0
        })
        .await;
    }
    world.zone.finish().await;
    world.global.finish().await;
}
