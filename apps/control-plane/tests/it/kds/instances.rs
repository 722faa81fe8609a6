//! Two global control planes on one database, and a zone that is connected to one of them at a time.

use std::sync::Mutex;

use control_plane::config::setting::Password;
use testkit::postgres::{Database, fresh_database};

use super::*;

fn instance(dir: &Path, database: &Database) -> Config {
    let mut config = global_config(dir);
    config.store.kind = StoreType::Postgres;
    let postgres = &mut config.store.postgres;
    postgres.host.clone_from(&database.host);
    postgres.port = database.port;
    postgres.user.clone_from(&database.user);
    postgres.password = Password(database.password.clone());
    postgres.db_name.clone_from(&database.name);
    config.synchronisation.inter_cp.server.port = 0;
    config
}

/// Status and text of an answer.
async fn asked(running: &Running, path: &str) -> (u16, String) {
    get_with(agent(None, None), format!("http://{}{path}", running.http.unwrap())).await
}

async fn insight(running: &Running) -> Value {
    get(running, "/zones/_overview").await["items"][0]["zoneInsight"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_instance_answers_for_proxies_of_a_zone_and_follows_its_move() {
    let database = tokio::task::spawn_blocking(|| fresh_database().unwrap()).await.unwrap();
    let dirs = [tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap()];
    let first = start(instance(dirs[0].path(), &database)).await;
    let second = start(instance(dirs[1].path(), &database)).await;
    let wire = Wire::to(local(first.kds)).await;
    let mut config = zone_config(dirs[2].path(), "east", wire.addr, dirs[0].path());
    // Each instance has a certificate of its own.
    config.synchronisation.multizone.zone.kds.tls_skip_verify = true;
    let zone = start(config).await;
    eventually("the zone has the mesh", || async { has(&zone, "/meshes/default").await }).await;
    let mut web = dataplane("web");
    // No process listens there, which is found out at once.
    web["networking"]["address"] = json!("127.0.0.77");
    assert_eq!(put(&zone, "/meshes/default/dataplanes/web", web).await, 201);
    let name = hashed_name("default", "web", Some("east"), None);
    let path = format!("/meshes/default/dataplanes/{name}");
    for running in [&first, &second] {
        eventually("every instance knows the Dataplane", || async { has(running, &path).await }).await;
    }

    let mut moved_from = String::new();
    for to in [&first, &second] {
        wire.lead_to(local(to.kds));
        // What was seen last: the streams may go and come once more.
        let seen = Mutex::new(String::new());
        eventually("the zone is connected to it", || async {
            let streams = insight(to).await["kdsStreams"].clone();
            let holder = streams["stats"]["globalInstanceId"].as_str().unwrap_or_default().to_owned();
            let is_there = !holder.is_empty() && holder != moved_from;
            seen.lock().unwrap().clone_from(&holder);
            is_there && streams["clusters"]["globalInstanceId"] == holder
        })
        .await;
        moved_from = seen.into_inner().unwrap();
        // The proxy does not run: the zone says so, through either instance.
        for running in [&first, &second] {
            for view in ["xds", "stats", "clusters"] {
                eventually("the zone to answer", || async {
                    let (status, text) = asked(running, &format!("{path}/{view}")).await;
                    status != 200 && text.contains("zone \\\"east\\\": ") && !text.contains("ask that one")
                })
                .await;
            }
        }
    }
    eventually("the move is no absence, for either instance", || async {
        let here = insight(&first).await;
        let there = insight(&second).await;
        [here, there].iter().all(|insight| online(insight) && insight["absence"].is_null())
    })
    .await;
    assert!(!names(&zone, "/global-secrets").await.contains(&"inter-cp-certificate".to_owned()));
    for running in [zone, second, first] {
        running.finish().await;
    }
}
