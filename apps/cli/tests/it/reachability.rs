//! What a proxy reaches, and why.

use serde_json::{Value, json};

use crate::{
    program::{Program, cells},
    server::Server,
};

#[test]
fn what_a_proxy_reaches_is_shown_with_what_trimming_would_save() {
    let server = Server::start();
    let path = "/meshes/default/dataplanes/web/_reachability";
    let mode =
        json!({"asked": "enforce", "saidBy": "Mesh", "active": "off", "inactive": "no mTLS", "stub": false});
    let item = |name: &str, verdict: &str, open: bool, rules: &[&str]| json!({"destination": name, "verdict": verdict, "open": open, "decidedBy": rules, "refusing": rules.len()});
    let rule = "kri_mtp_default___a_rule_0";
    let all = json!({
        "kri": "kri_dp_default___web_", "mode": mode,
        "counts": {"reachable": 2, "trimmed": 1, "denied": 0, "unknown": 3},
        "report": {"done": false, "destinationsBefore": 3, "destinationsAfter": 2, "clusters": 1, "listeners": 1,
            "bytesBefore": 4096, "bytesAfter": 2560, "estimate": {"memoryBytes": 141_312, "cpuMicroseconds": 2800}},
        "destinations": [item("c", "trimmed", false, &[rule]), item("a", "reachable", true, &[])],
        "truncated": true,
    });
    server.on("GET", path, 200, all.clone());
    let program = Program::of(&server);
    let run = |more: &[&str]| {
        let mut words = vec!["inspect", "dataplane", "web", "--type", "reachability"];
        words.extend(more);
        program.run(&words)
    };
    let shown = run(&[]).ok();
    let lines = shown.lines();
    assert_eq!(
        lines[..4],
        [
            "Mode: enforce (said by Mesh), without effect: no mTLS",
            "Destinations: 2 reachable, 1 trimmed, 0 denied, 3 unknown",
            "Would be trimmed: 1 of 3 destinations, 1 clusters, 1 listeners, 1.5 KiB of 4.0 KiB",
            "Estimate: Envoy needs 138.0 KiB of memory and 2 ms of processor time less",
        ]
    );
    assert_eq!(cells(lines[5]), ["DESTINATION", "VERDICT", "REFUSING", "DECIDED BY"]);
    assert_eq!(cells(lines[6]), ["c", "trimmed", "1", rule]);
    assert_eq!(cells(lines[7]), ["a", "reachable", "-", "anyone may call it"]);
    assert_eq!(*lines.last().unwrap(), "There are more: select one with --to.");
    assert_eq!(run(&["-o", "json"]).ok().json(), all);

    let one = json!({"kri": "k", "mode": mode, "destination": "c", "verdict": "denied", "reason": "denied: no",
        "decidedBy": [rule], "answers": [], "truncated": false, "change": {"text": "edit it", "rules": [rule]}});
    server.on("GET", &format!("{path}?to=c%26d"), 200, one);
    let shown = run(&["--to", "c&d"]).ok();
    assert_eq!(
        shown.lines()[1..],
        [
            "Destination: c",
            "Reachability: denied",
            "  denied: no",
            &format!("Decided by: {rule}"),
            "To allow it: edit it"
        ]
    );
    let missing =
        json!({"status": 404, "title": "mesh \"default\" has no destination \"x\"", "detail": "Not found"});
    server.on("GET", &format!("{path}?to=x"), 404, missing);
    run(&["--to", "x"]).failed(1).says("has no destination");
    program
        .run(&["inspect", "dataplane", "web", "--to", "x"])
        .failed(2)
        .says("--to is for --type reachability");
}

#[test]
fn what_trimming_takes_from_each_proxy_is_listed_page_by_page() {
    let server = Server::start();
    let item = |name: &str, report: Value| {
        let mode = json!({"asked": "report", "saidBy": "Mesh", "active": "report", "stub": false});
        json!({"name": name, "mode": mode, "report": report})
    };
    let report = json!({"done": false, "destinationsBefore": 300, "destinationsAfter": 10, "clusters": 290,
        "listeners": 290, "bytesBefore": 4096, "bytesAfter": 2560,
        "estimate": {"memoryBytes": 141_312, "cpuMicroseconds": 2800}});
    let path = "/meshes/shop/_reachability?size=100&offset=";
    let pages = [item("web-1", report), item("gone", Value::Null)];
    for (offset, item) in pages.iter().enumerate() {
        let page = json!({"total": pages.len(), "items": [item]});
        server.on("GET", &format!("{path}{offset}"), 200, page);
    }
    let run = |more: &[&str]| {
        Program::of(&server).run(&[&["inspect", "reachability", "-m", "shop"], more].concat()).ok()
    };
    let shown = run(&[]);
    let titles = ["NAME", "MODE", "DESTINATIONS", "CLUSTERS", "LISTENERS", "SENT", "MEMORY"];
    assert_eq!(cells(shown.lines()[0]), titles);
    let expected =
        ["web-1", "report (said by Mesh)", "300 → 10", "-290", "-290", "4.0 KiB → 2.5 KiB", "-138.0 KiB"];
    assert_eq!(cells(shown.lines()[1]), expected);
    assert_eq!(cells(shown.lines()[2]), ["gone", "report (said by Mesh)", "-", "-", "-", "-", "-"]);
    assert_eq!(run(&["-o", "json"]).json()["items"], json!(pages));
}
