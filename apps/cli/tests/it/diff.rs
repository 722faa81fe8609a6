//! `diff` and `apply --dry-run=server`: what applying something would do, as the control plane tells it.

use serde_json::{Value, json};

use crate::{
    program::{Program, cells},
    server::Server,
};

const PATH: &str = "/meshes/default/_what-if";

const INPUT: &str = "type: MeshTimeout\nname: slow\nmesh: default\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: {idleTimeout: 7s}\n";

fn answer(action: &str, consequences: &Value) -> Value {
    let mut answer = json!({
        "changes": [{"type": "MeshTimeout", "mesh": "default", "name": "slow", "action": action}],
        "refused": [],
        "proxies": {"connected": 3, "affected": 0, "compared": 0, "changed": 0, "classes": []},
        "problems": [],
        "edges": {"opened": [], "closed": [], "truncated": false},
        "policies": [],
    });
    for (field, value) in consequences.as_object().unwrap() {
        answer[field] = value.clone();
    }
    answer
}

fn everything() -> Value {
    json!({
        "proxies": {"connected": 3, "affected": 2, "compared": 2, "changed": 2, "classes": [
            {"mesh": "default", "proxies": ["web-1", "web-2"], "count": 2, "added": 1, "changed": 1, "removed": 0,
             "bytesBefore": 100, "bytesAfter": 220, "truncated": false, "resources": [
                {"type": "listener", "name": "out", "action": "changed", "before": 100, "after": 120},
                {"type": "cluster", "name": "new", "action": "added", "before": 0, "after": 100}]}],
            "diffs": [{"mesh": "default", "name": "web-1", "patch": [
                {"op": "test", "path": "/L/out/idle", "value": "1s"}, {"op": "remove", "path": "/L/out/idle"},
                {"op": "add", "path": "/L/out/idle", "value": "7s"}]}]},
        "problems": [{"code": "unknown-backend", "about": null, "text": "there is no MeshService \"x\"", "mesh": "default",
            "proxy": "web-1", "count": 2}],
        "edges": {"opened": [{"mesh": "default", "from": "web", "to": "db", "inbound": "5432", "before": "Denied",
            "after": "Allowed", "rule": "kri_mtp_default___new_", "reason": "allowed: a rule allows it"}],
            "closed": [], "truncated": false},
        "policies": [{"type": "MeshTimeout", "mesh": "default", "name": "old", "kri": null, "reason": "Shadowed",
            "text": "others override it"}],
    })
}

fn taught(path: &str, status: u16, answer: Value) -> (Server, Program, String) {
    let server = Server::start();
    server.on("POST", path, status, answer);
    let program = Program::of(&server);
    let file = program.file("in.yaml", INPUT);
    (server, program, file)
}

#[test]
fn the_exit_code_says_whether_something_would_change() {
    for (action, code) in [("unchanged", 0), ("create", 1), ("update", 1)] {
        let (_server, program, file) = taught(PATH, 200, answer(action, &json!({})));
        for format in ["table", "json", "yaml"] {
            let ran = program.run(&["diff", "-f", &file, "-o", format]).answered(code);
            assert!(ran.out.contains("slow"), "{ran:#?}");
        }
        program.run_with_stdin(&["diff", "-f", "-"], INPUT).answered(code);
        // A dry run is not a question.
        program.run(&["apply", "-f", &file, "--dry-run=server"]).ok().says("nothing was written");
    }
}

#[test]
fn what_goes_wrong_is_more_than_one() {
    let problem =
        json!({"type": "/std-errors", "status": 503, "title": "Service unavailable", "detail": "later"});
    let (_server, program, file) = taught(PATH, 503, problem);
    program.run(&["diff", "-f", &file]).failed(2).says("later");
    program.run(&["diff", "-f", "/none.yaml"]).failed(2);
    program
        .run(&["diff", "-f", &program.file("bad.yaml", "type: MeshTimeout\nname: x\nspec: 7\n")])
        .failed(2);
    let refused = json!({"refused": [{"type": "MeshTimeout", "mesh": "default", "name": "slow", "place": "resources[0]",
        "problem": {"status": 400, "title": "Could not process a resource", "detail": "Resource is not valid",
                    "invalid_parameters": [{"field": "spec.to", "reason": "must not be"}]}}]});
    let (_server, program, file) = taught(PATH, 200, answer("create", &refused));
    let said = "MeshTimeout \"slow\" in mesh \"default\": spec.to: must not be";
    program.run(&["diff", "-f", &file]).failed(2).says(said);
    program.run(&["apply", "-f", &file, "--dry-run=server"]).failed(1).says(said);
}

#[test]
fn everything_the_control_plane_says_is_told() {
    let (server, program, file) = taught(&format!("{PATH}?diff=web-1"), 200, answer("create", &everything()));
    let ran = program.run(&["diff", "-f", &file, "--proxy", "web-1"]).answered(1);
    for line in [
        "MeshTimeout \"slow\" in mesh \"default\" would be created",
        "2 of 3 connected proxies would get another configuration:",
        "  ~ listener out",
        "  + cluster new",
        "web-1 and 1 alike: there is no MeshService \"x\" (unknown-backend)",
        "Who could call, and cannot now:",
        "MeshTimeout \"old\" in mesh \"default\": others override it",
        "@ /L/out/idle",
        "- \"1s\"",
        "+ \"7s\"",
    ] {
        assert!(ran.lines().contains(&line), "{line}: {}", ran.out);
    }
    let row =
        |begin: &str| ran.lines().into_iter().filter(|line| line.contains(begin)).map(cells).next().unwrap();
    assert_eq!(row("and 1 alike"), ["default", "web-1 and 1 alike", "1", "1", "0", "100 → 220"]);
    assert_eq!(
        row("db:5432"),
        ["default", "web", "db:5432", "Denied → Allowed", "allowed: a rule allows it"]
    );
    let sent = server.requests().pop().unwrap().json();
    assert_eq!((&sent["resources"][0]["name"], &sent["delete"]), (&json!("slow"), &json!([])));
    let ran = program.run(&["diff", "-f", &file, "--proxy", "web-1", "-o", "json"]).answered(1);
    assert_eq!(ran.json(), answer("create", &everything()));
}

#[test]
fn deletions_can_be_asked_about_without_input() {
    let (server, program, _) = taught("/meshes/shop/_what-if", 200, answer("delete", &json!({})));
    let arguments = ["diff", "--delete", "meshtimeout/slow", "--delete", "zone/east", "-m", "shop"];
    let ran = program.run(&arguments).answered(1);
    assert!(ran.out.contains("would be deleted"), "{ran:#?}");
    let sent = server.requests().pop().unwrap().json();
    let expect =
        json!([{"type": "MeshTimeout", "name": "slow", "mesh": "shop"}, {"type": "Zone", "name": "east"}]);
    assert_eq!(sent, json!({"resources": [], "delete": expect}));
    program.run(&["diff", "--delete", "slow"]).failed(2);
}

#[test]
fn the_question_is_put_to_the_mesh_it_is_about() {
    let (server, program, _) = taught("/meshes/new/_what-if", 200, answer("create", &json!({})));
    let mesh = "type: Mesh\nname: new\n";
    program.run_with_stdin(&["apply", "--dry-run=server", "-o", "json"], mesh).ok();
    let timeout = INPUT.replace("mesh: default", "mesh: new");
    program.run_with_stdin(&["diff"], &format!("{mesh}---\n{timeout}")).answered(1);
    assert_eq!(server.requests().len(), 2);
}
