//! `stat` and `top`: rates, success and latencies of calls.

use serde_json::json;
use signals::{Counter, Sample};

use crate::{
    control_plane::ZoneControlPlane,
    observed_mesh::{BACKEND, DB, proxy, service},
    program::Program,
    server::Server,
};

/// Calls of which some failed, each of three milliseconds.
fn calls(requests: u64, failed: u64) -> Sample {
    let mut sample = Sample::default()
        .with(Counter::Requests, requests)
        .with(Counter::Responses2xx, requests - failed)
        .with(Counter::Responses5xx, failed);
    sample.latency.record(3.0, requests);
    sample
}

/// `web` and `batch` call `backend`, and `web` calls `db`.
fn busy() -> ZoneControlPlane {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    control_plane.put([proxy("web-1", "web"), service("backend", 1), service("db", 2)]);
    control_plane.traffic("web", BACKEND, calls(600, 60));
    control_plane.traffic("batch", BACKEND, calls(60, 0));
    control_plane.traffic("web", DB, calls(6, 0));
    control_plane
}

/// The cells of every row, the titles first.
fn cells(lines: &[&str]) -> Vec<Vec<String>> {
    lines.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn calls_are_shown_by_edge_service_workload_and_zone() {
    let control_plane = busy();
    let program = Program::at(&control_plane.url);
    let table = |arguments: &[&str]| {
        let ran = program.run(arguments).ok();
        cells(&ran.lines())
    };
    let edges = table(&["stat", "edges"]);
    let titles = "CLIENT DESTINATION ZONE RPS SUCCESS P50 P95 P99 DENIED CALLS";
    assert_eq!(edges[0].join(" "), titles);
    assert_eq!(edges[1].join(" "), "web backend:80 east 10.0 90.0% 3ms 4ms 4ms 0 600");
    assert_eq!((edges.len(), &*edges[2][0], &*edges[3][1]), (4, "batch", "db:80"));
    let services = table(&["stat", "services"]);
    assert_eq!(services[1].join(" "), "backend east 11.0 90.9% 3ms 4ms 4ms 0 660");
    let workloads = table(&["stat", "workloads", "--client", "web"]);
    assert_eq!(workloads[1][..5].join(" "), "web east calls 10.1 90.1%");
    let zones = table(&["stat", "zones", "--window", "15m"]);
    assert_eq!((&*zones[1][0], zones[1].last().unwrap().as_str()), ("east", "666"));
    let one = table(&["stat", "edges", "--server", "db"]);
    assert_eq!((one.len(), &*one[1][0]), (2, "web"));
    let top = table(&["top", "--once", "--client", "batch"]);
    assert_eq!((top.len(), &*top[1][3]), (2, "2.0"));
}

#[test]
fn the_whole_answer_is_there_as_json() {
    let control_plane = busy();
    let ran = Program::at(&control_plane.url).run(&["stat", "edges", "--client", "batch", "-o", "json"]).ok();
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["items"][0]["traffic"]["counts"]["responses2xx"], 60);
    assert_eq!(answer["items"][0]["client"]["identity"], "spiffe://default/batch");
}

#[test]
fn a_mesh_without_calls_and_a_wrong_question_are_told() {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    let program = Program::at(&control_plane.url);
    program.run(&["stat", "services"]).ok().says("no calls in the last 60 seconds");
    program.run(&["stat", "services", "--window", "1h"]).failed(1).says("no duration from 10s to 15m");
    program.run(&["stat", "services", "-m", "none"]).failed(1).says("mesh \"none\"");
    program.run(&["stat", "nothing"]).failed(2);
}

#[test]
fn what_is_missing_in_an_answer_is_said() {
    let server = Server::start();
    let zones =
        json!([{ "name": "east" }, { "name": "west\nnorth", "missing": "zone \"west\" is not connected" }]);
    let item = json!({ "zone": "east", "server": { "id": "kri_x", "name": "a\u{1b}[2Jb" }, "traffic": {} });
    let answer = json!({ "seconds": 60, "total": 1, "items": [item], "dropped": 7, "zones": zones,
        "proxies": { "reporting": 1, "connected": 3 } });
    server.on("GET", "/meshes/default/_signals?by=services&window=1m", 200, answer);
    let ran = Program::of(&server).run(&["stat", "services"]).ok();
    let ran = ran.says("is not connected").says("7 reports are left out");
    let ran = ran.says("2 of 3 connected proxies have not reported calls yet");
    assert!(!ran.out.contains('\u{1b}'), "{ran:?}");
    assert_eq!(ran.lines().len(), 2, "{ran:?}");
}
