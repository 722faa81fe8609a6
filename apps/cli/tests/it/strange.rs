//! Answers of a control plane of another version: fields that this one does not know, and fields of other types than it
//! knows, which hide neither other fields nor other rows.

use serde_json::{Value, json};

use crate::{
    program::{Program, cells},
    server::Server,
};

fn list(items: &[Value]) -> Value {
    json!({ "total": items.len(), "items": items, "next": null })
}

fn answering(path: &str, items: &[Value]) -> (Server, Program) {
    let server = Server::start();
    server.on("GET", &format!("{path}?size=1000"), 200, list(items));
    let program = Program::of(&server);
    (server, program)
}

/// Cells of the lines below the titles, without their ages.
fn rows(program: &Program, arguments: &[&str], columns: usize) -> Vec<Vec<String>> {
    let ran = program.run(arguments).ok();
    let row = |line: &&str| cells(line).into_iter().take(columns).map(str::to_owned).collect();
    ran.lines()[1..].iter().map(row).collect()
}

#[test]
fn a_field_of_another_type_hides_no_other_field_and_no_row() {
    let whole = json!({ "mesh": "default", "name": "a", "networking": {
        "address": "10.0.0.1", "inbound": [{ "port": 80, "protocol": "http", "tags": { "kuma.io/service": "web" } }] } });
    let strange = json!({ "mesh": "default", "name": "b", "labels": [7], "creationTime": {}, "networking": {
        "address": { "v4": "10.0.0.2" }, "inbound": [
            "all", { "port": "81", "health": 3 }, { "port": [], "tags": { "kuma.io/service": "api", "n": 1 } } ] } });
    let bare = json!({ "name": "c", "networking": [] });
    let (_server, program) = answering("/meshes/default/dataplanes", &[whole, strange, bare, json!("d")]);
    assert_eq!(
        rows(&program, &["get", "dataplanes"], 5),
        [
            ["default", "a", "10.0.0.1", "80/http", "web"],
            ["default", "b", "-", "81/tcp,/tcp", "api"],
            ["-", "c", "-", "-", "-"],
            ["-", "-", "-", "-", "-"],
        ]
    );
}

#[test]
fn policies_are_listed_whatever_their_confs_say() {
    let policy = json!({ "mesh": "default", "name": "p", "spec": {
        "targetRef": { "kind": "MeshOfTheFuture", "name": "x", "labels": "all" },
        "to": [{ "targetRef": { "kind": "MeshService", "name": ["a"] }, "default": 7 }, 7],
        "rules": [{}, null, 3] } });
    let (_server, program) = answering("/meshes/default/meshtimeouts", &[policy]);
    assert_eq!(
        rows(&program, &["get", "meshtimeouts"], 4),
        [["default", "p", "MeshOfTheFuture/x", "to MeshService; rules 3"]]
    );
}

#[test]
fn proxies_are_counted_though_a_part_of_their_insights_is_strange() {
    let subscription = |status: Value| json!({ "connectTime": "2024-05-01T10:00:00Z", "status": status });
    let overview = |name: &str, insight: Value| json!({ "type": "DataplaneOverview", "mesh": "default", "name": name, "dataplane": 5, "dataplaneInsight": insight });
    let counted =
        json!({ "cds": { "responsesSent": "2", "responsesAcknowledged": 2 }, "lds": "none", "total": [] });
    let rejections = json!([{ "type": "cds", "name": "kri_msvc", "kri": "not one", "message": "no", "policies": [1, "x"] }, 9]);
    let refused = json!({ "cds": { "responsesSent": 1e3 }, "rejections": rejections, "lastUpdateTime": 7 });
    let items = [
        overview("a", json!({ "subscriptions": [subscription(counted)], "mTLS": "on", "metadata": [] })),
        overview("b", json!({ "subscriptions": [4, subscription(refused)] })),
        overview("c", json!("never")),
    ];
    let (_server, program) = answering("/meshes/default/dataplanes/_overview", &items);
    let status = program.run(&["proxy", "status"]);
    assert_eq!(status.code, 3, "{status:#?}");
    let found: Vec<Vec<&str>> = status.lines()[1..4].iter().map(|line| cells(line)[1..4].to_vec()).collect();
    assert_eq!(found, [["a", "Online", "synced"], ["b", "Online", "rejected"], ["c", "Offline", "-"]]);
    assert!(status.out.contains("\nb rejected cluster kri_msvc:\n  no\n"), "{status:#?}");
    assert_eq!(
        rows(&program, &["inspect", "dataplanes"], 4),
        [["default", "a", "-", "Online"], ["default", "b", "-", "Online"], ["default", "c", "-", "Offline"]]
    );
}
