//! Operations on a bare machine: first start, restarts, full disks, lost databases.

use std::{fs, io::Write, process::Command, thread};

use e2e::{
    ControlPlane, Kumactl, Profile, Setup, eventually, program,
    proxy::{Options, RunningProxy, own_address},
    service::dataplane,
};
use serde_json::{Value, json};
use testkit::postgres::Postgres;

fn timeout(name: &str, seconds: u64) -> Value {
    json!({"type": "MeshTimeout", "mesh": "default", "name": name, "spec": {
        "targetRef": {"kind": "Mesh"},
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": format!("{seconds}s")}}]}})
}

fn put_timeout(control_plane: &ControlPlane, name: &str, seconds: u64) -> e2e::Answer {
    control_plane
        .client()
        .put(&format!("/meshes/default/meshtimeouts/{name}"), &timeout(name, seconds))
        .unwrap()
}

/// Everything a user can list, without what differs from process to process.
fn everything(control_plane: &ControlPlane) -> Vec<Value> {
    let client = control_plane.client();
    ["/meshes", "/meshtimeouts", "/hostnamegenerators", "/secrets", "/global-secrets", "/meshservices"]
        .iter()
        .map(|path| {
            let answer = client.get(&format!("{path}?size=1000")).unwrap();
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            answer.json()
        })
        .collect()
}

#[test]
fn a_first_start_has_a_mesh_with_defaults_and_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(dir.path(), Setup::default()).unwrap();
    let client = control_plane.client();
    let mesh = client.get("/meshes/default").unwrap().json();
    assert_eq!(mesh["meshServices"]["mode"], "Exclusive");
    let policies = client.get("/meshes/default/meshtimeouts").unwrap().json();
    let names: Vec<_> =
        policies["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, ["mesh-gateways-timeout-all-default", "mesh-timeout-all-default"]);
    assert_eq!(
        client.get("/meshes/default/secrets/dataplane-token-signing-key-default-1").unwrap().status,
        200
    );
    assert!(dir.path().join("kuma.db").is_file(), "SQLite is the default store");

    let before = (everything(&control_plane), fs::read(dir.path().join("kuma-cp.crt")).unwrap());
    assert!(control_plane.stop().unwrap().success(), "a graceful stop is a success");
    control_plane.start_again().unwrap();
    assert_eq!((everything(&control_plane), fs::read(dir.path().join("kuma-cp.crt")).unwrap()), before);
}

#[test]
fn a_second_control_plane_on_the_same_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(dir.path(), Setup::default()).unwrap();
    let refused = ControlPlane::start(dir.path(), Setup::default()).unwrap_err().to_string();
    assert!(refused.contains("kuma.db"), "{refused}");
    assert_eq!(put_timeout(&control_plane, "still-serving", 3).status, 201);
}

#[test]
fn a_damaged_database_refuses_to_start_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kuma.db"), "this is no database".repeat(1000)).unwrap();
    let refused = ControlPlane::start(dir.path(), Setup::default()).unwrap_err().to_string();
    assert!(refused.contains("kuma.db") && refused.contains("store import"), "{refused}");
}

#[test]
fn a_full_disk_answers_503_and_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::default().on_a_disk_of("3m");
    let control_plane = ControlPlane::start(dir.path(), setup).unwrap();
    let client = control_plane.client();
    let mut stored = Vec::new();
    let refused = loop {
        let name = format!("fat-{}", stored.len());
        let body = json!({"type": "GlobalSecret", "name": name, "data": "A".repeat(64 * 1024)});
        let answer = client.put(&format!("/global-secrets/{name}"), &body).unwrap();
        if answer.status != 201 {
            break answer;
        }
        stored.push(name);
        assert!(stored.len() < 1000, "the disk never filled");
    };
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(!stored.is_empty());
    let refused_name = format!("fat-{}", stored.len());
    assert_eq!(client.get(&format!("/global-secrets/{refused_name}")).unwrap().status, 404);
    for name in &stored {
        assert_eq!(client.get(&format!("/global-secrets/{name}")).unwrap().status, 200, "{name}");
    }
    // What is left is less than the readiness check asks for.
    let fits = |i: i32| {
        let name = format!("thin-{i}");
        let body = json!({"type": "GlobalSecret", "name": name, "data": "A".repeat(1024)});
        client.put(&format!("/global-secrets/{name}"), &body).unwrap().status == 201
    };
    assert!((0..1000).any(|i| !fits(i)), "the disk never filled");
    let ready = || control_plane.diagnostics().get("/ready").unwrap();
    eventually("the control plane to say that it is not ready", || ready().status == 503).unwrap();
    assert!(ready().body.contains("free some space"), "{}", ready().body);
}

#[test]
fn a_full_disk_ends_readiness_and_not_life_until_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(dir.path(), Setup::default().on_a_disk_of("4m")).unwrap();
    let health = control_plane.diagnostics();
    assert_eq!(metric(&control_plane, "store_writable "), Some(1.0));
    // The disk is seen by the control plane alone, and through it.
    let work_dir = dir.path().strip_prefix("/").unwrap();
    let others = format!("/proc/{}/root/{}/others", control_plane.pid(), work_dir.display());
    let mut file = fs::File::create(&others).unwrap();
    let full = std::iter::repeat_with(|| file.write_all(&[0; 4096])).take(2000).find_map(Result::err);
    assert_eq!(full.expect("the disk fills").kind(), std::io::ErrorKind::StorageFull);
    eventually("the control plane to be not ready", || health.get("/ready").unwrap().status == 503).unwrap();
    let ready = health.get("/ready").unwrap();
    assert!(ready.body.contains("free some space"), "{}", ready.body);
    assert_eq!(health.get("/healthy").unwrap().status, 200);
    assert_eq!(health.get("/ready/read").unwrap().status, 200);
    assert_eq!(control_plane.client().get("/meshes/default").unwrap().status, 200);
    assert_eq!(metric(&control_plane, "store_writable "), Some(0.0));
    drop(file);
    fs::remove_file(&others).unwrap();
    eventually("the control plane to be ready again", || health.get("/ready").unwrap().status == 200)
        .unwrap();
    assert_eq!(put_timeout(&control_plane, "after", 1).status, 201);
}

#[test]
fn a_control_plane_killed_on_a_full_disk_starts_and_cannot_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(dir.path(), Setup::default()).unwrap();
    let own = dataplane("web", "web", own_address(), "http", (own_address(), 9000).into());
    let proxy = RunningProxy::start(&control_plane, &own, &Options::default()).unwrap();
    let overview = "/meshes/default/dataplanes/web/_overview";
    let online = |control_plane: &ControlPlane| {
        let seen = control_plane.client().get(overview).map(|answer| answer.json()).unwrap_or_default();
        let last = &seen["dataplaneInsight"]["subscriptions"][0];
        last["connectTime"].is_string() && last["disconnectTime"].is_null()
    };
    // A start has something to write: that no proxy is connected to a predecessor any more.
    eventually("the proxy to be online", || online(&control_plane)).unwrap();
    control_plane.kill().unwrap();
    drop(proxy);

    control_plane.start_again_unable_to_write().unwrap();
    assert_eq!(control_plane.client().get("/meshes/default").unwrap().status, 200);
    assert_eq!(put_timeout(&control_plane, "refused", 1).status, 503);
    let ready = control_plane.diagnostics().get("/ready").unwrap();
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert!(ready.body.contains("kuma.db"), "{}", ready.body);
    assert!(control_plane.stop().unwrap().success());
}

#[test]
fn concurrent_updates_end_in_success_or_conflict_and_never_in_a_mix() {
    let dir = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(dir.path(), Setup::default()).unwrap();
    assert_eq!(put_timeout(&control_plane, "contested", 1).status, 201);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let writers: Vec<_> = (0..8_u64)
            .map(|writer| {
                let control_plane = &control_plane;
                scope.spawn(move || {
                    (0..40)
                        .map(|i| put_timeout(control_plane, "contested", 10 + writer * 100 + i).status)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200));
    let stored = control_plane.client().get("/meshes/default/meshtimeouts/contested").unwrap().json();
    assert_eq!(stored["spec"]["to"].as_array().unwrap().len(), 1);
}

#[test]
fn a_backup_brings_everything_back_verbatim() {
    let dir = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(dir.path(), Setup::default()).unwrap();
    assert_eq!(put_timeout(&control_plane, "kept", 7).status, 201);
    let before = everything(&control_plane);
    control_plane.stop().unwrap();
    let backup = dir.path().join("backup.jsonl");
    let restored = tempfile::tempdir().unwrap();
    for (verb, work_dir) in [("export", dir.path()), ("import", restored.path())] {
        let output = Command::new(program("kuma-cp", Profile::Same).unwrap())
            .args(["store", verb])
            .arg(&backup)
            .env("KUMA_GENERAL_WORK_DIR", work_dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let control_plane = ControlPlane::start(restored.path(), Setup::default()).unwrap();
    assert_eq!(everything(&control_plane), before);
}

#[test]
fn exporting_what_is_not_there_fails_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(program("kuma-cp", Profile::Same).unwrap())
        .args(["store", "export", "-"])
        .env("KUMA_GENERAL_WORK_DIR", dir.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("there is no database"), "{stderr}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn without_postgresql_reads_are_marked_stale_and_writes_are_503() {
    let mut postgres = Postgres::start().unwrap();
    let database = postgres.create_database("lost").unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let control_planes = dirs
        .each_ref()
        .map(|dir| ControlPlane::start(dir.path(), Setup::default().on_postgres(&database)).unwrap());
    assert_eq!(put_timeout(&control_planes[0], "before", 1).status, 201);
    let own = dataplane("web", "web", own_address(), "http", (own_address(), 9000).into());
    let proxy = RunningProxy::start(&control_planes[0], &own, &Options::default()).unwrap();
    let connected = || metric(&control_planes[0], "xds_proxies_connected ");
    eventually("the proxy to be connected", || connected() == Some(1.0)).unwrap();
    eventually("the second control plane to see the timeout", || {
        let answer = control_planes[1].client().get("/meshes/default/meshtimeouts/before");
        answer.is_ok_and(|a| a.status == 200 && a.header("warning").is_none())
    })
    .unwrap();
    let kumactl = Kumactl::of(&control_planes[0]).unwrap();
    postgres.stop().unwrap();
    control_planes.iter().for_each(assert_stale);
    let listed = kumactl.run(&["get", "meshtimeouts"]).unwrap();
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("before"));
    let stderr = String::from_utf8_lossy(&listed.stderr);
    assert_eq!(stderr.matches("no contact with its store since").count(), 1, "{stderr}");
    // Its stream goes on, and Envoy with what it has.
    assert_eq!(connected(), Some(1.0));
    assert_eq!(metric(&control_planes[0], "store_stale "), Some(1.0));
    assert_eq!(metric(&control_planes[0], "store_writable "), Some(0.0));
    postgres.start_again().unwrap();
    eventually("the first control plane to write again", || {
        put_timeout(&control_planes[0], "after", 1).status < 300
    })
    .unwrap();
    eventually("the second control plane to see it", || {
        let answer = control_planes[1].client().get("/meshes/default/meshtimeouts/after");
        answer.is_ok_and(|a| a.status == 200 && a.header("warning").is_none())
    })
    .unwrap();
    for control_plane in &control_planes {
        eventually("the control plane to be ready again", || {
            control_plane.diagnostics().get("/ready").is_ok_and(|answer| answer.status == 200)
        })
        .unwrap();
    }
    assert_eq!(connected(), Some(1.0), "{}", proxy.log());
}

/// Checks the answers of a control plane without its database.
fn assert_stale(control_plane: &ControlPlane) {
    let client = control_plane.client();
    let path = "/meshes/default/meshtimeouts/before";
    eventually("reads to be marked", || client.get(path).is_ok_and(|a| a.header("warning").is_some()))
        .unwrap();
    let answer = client.get(path).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["name"], "before");
    assert_eq!(answer.header("warning"), Some("110 - \"Response is Stale\""));
    assert!(answer.header("x-kuma-stale-since").is_some_and(|since| since.starts_with("20")));
    let refused = put_timeout(control_plane, "during", 1);
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("PostgreSQL"), "{}", refused.body);
    assert_eq!(client.delete("/meshes/default/meshtimeouts/unknown").unwrap().status, 503);
    let health = control_plane.diagnostics();
    assert_eq!(health.get("/healthy").unwrap().status, 200);
    let ready = health.get("/ready").unwrap();
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert!(ready.body.contains("PostgreSQL"), "{}", ready.body);
    let ready = health.get("/ready/read").unwrap();
    assert_eq!(ready.status, 200);
    assert!(ready.body.contains("stale since"), "{}", ready.body);
}

/// The value of a series of the control plane.
fn metric(control_plane: &ControlPlane, series: &str) -> Option<f64> {
    let page = control_plane.diagnostics().get("/metrics").ok()?.body;
    page.lines().find_map(|line| line.strip_prefix(series))?.parse().ok()
}
