//! `wait`: returns when a state is reached, and says what is missing when it is not.

use resources::Kind;
use serde_json::json;

use crate::{
    control_plane::{ZoneControlPlane, offline, synced},
    program::Program,
};

#[test]
fn a_state_that_is_reached_ends_the_wait() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web", json!({ "app": "web" }), synced());
    control_plane.store(json!({ "type": "MeshIdentity", "mesh": "default", "name": "default",
        "spec": { "selector": {}, "provider": { "type": "Bundled" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "" }] } }));
    let program = Program::at(&control_plane.url);
    for state in ["online", "synced", "ready"] {
        program.run(&["wait", "dataplane", "web", "--for", state]).ok().says(&format!("is {state}"));
    }
    program.run(&["wait", "meshidentity", "default", "--for=condition=Ready"]).ok();
    program.run(&["wait", "meshtimeout", "none", "--for=deleted"]).ok().says("is deleted");
}

#[test]
fn what_comes_during_the_wait_is_seen() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let child = program.command(&["wait", "dataplane", "web", "--for=synced"]).spawn().unwrap();
    // It has looked and found nothing before there is something.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while control_plane.lines().is_empty() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    control_plane.dataplane("web", json!({ "app": "web" }), synced());
    assert!(child.wait_with_output().unwrap().status.success());
    let child = program.command(&["wait", "dataplane", "web", "--for=deleted"]).spawn().unwrap();
    control_plane.delete(Kind::Dataplane, "default", "web");
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn a_wait_that_ends_too_early_says_what_is_missing() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("gone", json!({ "app": "gone" }), offline());
    let mut stale = synced();
    stale["subscriptions"][0]["status"]["cds"]["responsesSent"] = json!("2");
    control_plane.dataplane("stale", json!({ "app": "stale" }), stale);
    let mut rejected = synced();
    rejected["subscriptions"][0]["status"]["rejections"] = json!([{ "type": "cds", "name": "backend", "message": "no such thing", "time": "2026-01-02T03:04:06Z" }]);
    control_plane.dataplane("rejected", json!({ "app": "rejected" }), rejected);
    control_plane.store(json!({ "type": "MeshService", "mesh": "default", "name": "empty",
        "spec": { "ports": [{ "port": 80 }] },
        "status": { "dataplaneProxies": { "connected": 0, "healthy": 0, "total": 0 } } }));
    let program = Program::at(&control_plane.url);
    for (kind, name, state, missing) in [
        ("dataplane", "none", "online", "there is no Dataplane \"none\" in mesh \"default\""),
        ("dataplane", "gone", "online", "it is offline; its last connection began "),
        ("dataplane", "stale", "synced", "it has not answered yet to what it was sent (CDS)"),
        ("dataplane", "rejected", "ready", "it rejected backend: no such thing"),
        ("dataplane", "gone", "deleted", "it exists"),
        ("meshservice", "empty", "ready", "it selects no proxy"),
        ("meshservice", "empty", "condition=Healthy", "its status has no condition Healthy"),
    ] {
        let ran = program.run(&["wait", kind, name, "--for", state, "--timeout", "0s"]).failed(1);
        ran.says(missing);
    }
    program.run(&["wait", "mesh", "default", "--for=online"]).failed(2).says("wait for deleted");
    program.run(&["wait", "mesh", "default", "--for=blue"]).failed(2).says("condition=NAME");
}

#[test]
fn a_proxy_is_synced_only_when_it_has_acknowledged_the_last_changes() {
    let control_plane = ZoneControlPlane::start();
    // Their insights were written before the change. One is connected elsewhere and has its insight only.
    control_plane.dataplane("web", json!({ "app": "web" }), synced());
    control_plane.dataplane("elsewhere", json!({ "app": "web" }), synced());
    let program = Program::at(&control_plane.url);
    program.run(&["wait", "dataplane", "elsewhere", "--for=synced", "--timeout", "0s"]).ok();
    let connection = control_plane.connect("web", &[]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let says = |missing: &str| {
        for wanted in ["synced", "ready"] {
            let wait = ["wait", "dataplane", "web", "--for", wanted, "--timeout", "0s"];
            while !program.run(&wait).failed(1).err.contains(missing) {
                assert!(std::time::Instant::now() < deadline, "{missing}");
            }
        }
    };
    says("it has not acknowledged the last changes yet");
    connection.acknowledges(&["backend"]);
    says("it rejected a part of the last changes");
    let child = program.command(&["wait", "dataplane", "web", "--for=synced"]).spawn().unwrap();
    connection.acknowledges(&[]);
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn a_wait_ends_in_time_however_long_an_answer_takes() {
    // It accepts connections, in its queue, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let program = Program::at(&format!("http://{}", silent.local_addr().unwrap()));
    let wait = ["wait", "dataplane", "web", "--for=synced", "--timeout", "200ms", "--api-timeout", "1h"];
    program.run(&wait).failed(1).says("is not synced after 200ms: could not reach the control plane");
}
