//! `diff` and `apply --dry-run=server`: what applying something would do, as the control plane computes it.

use serde_json::{Value, json};

use crate::{
    control_plane::{ConnectedProxy, ZoneControlPlane},
    program::{Program, cells},
    server::Server,
};

const INPUT: &str = "type: MeshTimeout\nname: slow\nmesh: default\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: {idleTimeout: 7s}\n";

/// As the control plane stores it, with a label that says its name.
fn slow(mesh: &str) -> Value {
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "7s"}}]);
    json!({"type": "MeshTimeout", "mesh": mesh, "name": "slow", "spec": {"to": to}})
}

fn started() -> (ZoneControlPlane, Program, String) {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let file = program.file("in.yaml", INPUT);
    (control_plane, program, file)
}

#[test]
fn the_exit_code_says_whether_something_would_change() {
    for (stored, action, code) in
        [(None, "create", 1), (Some("7s"), "unchanged", 0), (Some("8s"), "update", 1)]
    {
        let (_control_plane, program, file) = started();
        if let Some(timeout) = stored {
            program.run_with_stdin(&["apply", "-f", "-"], &INPUT.replace("7s", timeout)).ok();
        }
        let json = program.run(&["diff", "-f", &file, "-o", "json"]).answered(code).json();
        assert_eq!(json["changes"][0]["action"], action);
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
    let (control_plane, program, _) = started();
    let elsewhere = INPUT.replace("mesh: default", "mesh: none");
    let said = "could not determine what this would do: Failed to retrieve Mesh";
    program.run_with_stdin(&["diff"], &elsewhere).failed(2).says(said);
    program.run(&["diff", "-f", "/none.yaml"]).failed(2);
    program
        .run(&["diff", "-f", &program.file("bad.yaml", "type: MeshTimeout\nname: x\nspec: 7\n")])
        .failed(2);
    control_plane.store(slow("default"));
    let renamed = INPUT.replace("spec:", "labels: {kuma.io/display-name: fast}\nspec:");
    let file = program.file("renamed.yaml", renamed);
    let said = "MeshTimeout \"slow\" in mesh \"default\": labels[\"kuma.io/display-name\"]: is immutable, cannot be \
                changed from \"slow\" to \"fast\"";
    program.run(&["diff", "-f", &file]).failed(2).says(said);
    program.run(&["apply", "-f", &file, "--dry-run=server"]).failed(1).says(said);
    // What is refused for no field says what was attempted.
    let said = "MeshTimeout \"none\" in mesh \"default\": Could not delete a resource: Not found";
    program.run(&["diff", "--delete", "meshtimeout/none"]).failed(2).says(said);
}

#[test]
fn a_control_plane_that_cannot_tell_now_is_more_than_one() {
    // The one of these tests can always tell: its store is always there.
    let server = Server::start();
    let problem =
        json!({"type": "/std-errors", "status": 503, "title": "Service unavailable", "detail": "later"});
    server.on("POST", "/meshes/default/_what-if", 503, problem);
    let program = Program::of(&server);
    program.run_with_stdin(&["diff"], INPUT).failed(2).says("later");
    // Another version of Kuma answers something else.
    server.replace("POST", "/meshes/default/_what-if", 200, json!({}));
    program.run_with_stdin(&["diff"], INPUT).failed(2).says("the answer has no changes");
}

/// Policies that change something and others that change nothing, a service that proxies call already, and a route to
/// one that there is not.
const EVERYTHING: &str = r#"
type: MeshTimeout
mesh: default
name: slow
spec:
  targetRef: { kind: Dataplane, labels: { app: web } }
  to: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 7s } }]
---
type: MeshTimeout
mesh: default
name: lost
spec:
  targetRef: { kind: Dataplane, labels: { app: nowhere } }
  to: [{ targetRef: { kind: Mesh }, default: { idleTimeout: 7s } }]
---
type: MeshService
mesh: default
name: db
spec:
  selector: { dataplaneLabels: { matchLabels: { app: db } } }
  ports: [{ port: 80, targetPort: 80, appProtocol: http }]
---
type: MeshTrafficPermission
mesh: default
name: web-to-db
spec:
  targetRef: { kind: Dataplane, labels: { app: db } }
  rules: [{ default: { allow: [{ spiffeID: { type: Exact, value: "spiffe://default/web" } }] } }]
---
type: MeshHTTPRoute
mesh: default
name: nowhere
spec:
  targetRef: { kind: Dataplane, labels: { app: web } }
  to:
  - targetRef: { kind: MeshService, name: backend }
    rules:
    - matches: [{ path: { type: PathPrefix, value: /x } }]
      default: { backendRefs: [{ kind: MeshService, name: x, port: 80 }] }
"#;

/// Two connected clients, and a server that they may not call yet.
fn connected() -> (ZoneControlPlane, Program, Vec<ConnectedProxy>) {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    control_plane.service("backend");
    for name in ["web-1", "web-2"] {
        control_plane.client(name, json!({"app": "web"}), &["backend", "db"]);
    }
    control_plane.client("db-1", json!({"app": "db"}), &[]);
    control_plane.store(json!({"type": "MeshTimeout", "mesh": "default", "name": "old", "spec": {
        "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "5s"}}]}}));
    let connections = ["web-1", "web-2", "db-1"].map(|name| control_plane.connect(name, &[])).into();
    let program = Program::at(&control_plane.url);
    (control_plane, program, connections)
}

#[test]
fn everything_the_control_plane_says_is_told() {
    let (control_plane, program, _connections) = connected();
    let file = program.file("in.yaml", EVERYTHING);
    let ran = program.run(&["diff", "-f", &file, "--proxy", "web-1"]).answered(1);
    let asked = control_plane.requests().pop().unwrap();
    assert_eq!(asked.path, "/meshes/default/_what-if?diff=web-1");
    let sent = asked.json();
    assert_eq!((&sent["resources"][0]["name"], &sent["delete"]), (&json!("slow"), &json!([])));
    let backend = "default_backend__east_msvc_80";
    let idle = "typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/\
                commonHttpProtocolOptions/idleTimeout";
    let same = "every proxy that it selects would be configured the same without it: others set the same values or \
                override it, or what it refers to does not exist";
    for line in [
        "MeshTimeout \"slow\" in mesh \"default\" would be created",
        "3 of 3 connected proxies would get another configuration:",
        "  ~ listener inbound:127.0.0.1:80",
        &format!("  ~ cluster {backend}"),
        "  + cluster default_db__east_msvc_80",
        "web-1 and 1 alike: kri_mhttpr_default_east__nowhere_rule_0: there is no MeshService with name \"x\" and port 80 in \
         the mesh (unknown-backend)",
        "Who could call, and cannot now:",
        &format!("MeshTimeout \"old\" in mesh \"default\": {same}"),
        "MeshTimeout \"lost\" in mesh \"default\": it selects no Dataplane: check its targetRef",
        &format!("@ /type.googleapis.com~1envoy.config.cluster.v3.Cluster/{backend}/{idle}"),
        "- \"5s\"",
        "+ \"7s\"",
    ] {
        assert!(ran.lines().contains(&line), "{line}: {}", ran.out);
    }
    let answer = control_plane.post(&asked.path, &sent);
    let class = &answer["proxies"]["classes"][1];
    let bytes = format!("{} → {}", class["bytesBefore"], class["bytesAfter"]);
    let row =
        |begin: &str| ran.lines().into_iter().filter(|line| line.contains(begin)).map(cells).next().unwrap();
    assert_eq!(row("and 1 alike"), ["default", "web-1 and 1 alike", "3", "1", "0", &bytes]);
    let allowed = "allowed: kri_mtp_default_east__web-to-db_rule_0 allows spiffe://default/web";
    assert_eq!(row("db:80"), ["default", "web", "db:80", "Denied → Allowed", allowed]);
    let ran = program.run(&["diff", "-f", &file, "--proxy", "web-1", "-o", "json"]).answered(1);
    assert_eq!(ran.json(), answer, "as the REST API says it");
}

#[test]
fn deletions_can_be_asked_about_without_input() {
    let (_control_plane, program, _connections) = connected();
    program.run_with_stdin(&["apply", "-f", "-"], EVERYTHING).ok();
    let ran = program.run(&["diff", "--delete", "meshservice/db", "--delete", "mtp/web-to-db"]).answered(1);
    for line in [
        "MeshService \"db\" in mesh \"default\" would be deleted",
        "  - cluster default_db__east_msvc_80",
        "Who can call now, and could not any more:",
    ] {
        assert!(ran.lines().contains(&line), "{line}: {}", ran.out);
    }

    let control_plane = ZoneControlPlane::global();
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    control_plane.store(json!({"type": "Zone", "name": "east"}));
    control_plane.store(slow("shop"));
    let program = Program::at(&control_plane.url);
    let arguments = ["diff", "--delete", "meshtimeout/slow", "--delete", "zone/east", "-m", "shop"];
    let ran = program.run(&arguments).answered(1);
    let deleted =
        ["MeshTimeout \"slow\" in mesh \"shop\" would be deleted", "Zone \"east\" would be deleted"];
    assert_eq!(ran.lines()[..2], deleted);
    let asked = control_plane.requests().pop().unwrap();
    let expect =
        json!([{"type": "MeshTimeout", "name": "slow", "mesh": "shop"}, {"type": "Zone", "name": "east"}]);
    assert_eq!(asked.path, "/meshes/shop/_what-if");
    assert_eq!(asked.json(), json!({"resources": [], "delete": expect}));
    program.run(&["diff", "--delete", "slow"]).failed(2);
}

#[test]
fn the_question_is_put_to_the_mesh_it_is_about() {
    let (control_plane, program, _) = started();
    let mesh = "type: Mesh\nname: new\n";
    program.run_with_stdin(&["apply", "--dry-run=server", "-o", "json"], mesh).ok();
    let timeout = INPUT.replace("mesh: default", "mesh: new");
    program.run_with_stdin(&["diff"], &format!("{mesh}---\n{timeout}")).answered(1);
    assert_eq!(control_plane.lines(), ["POST /meshes/new/_what-if"; 2]);
}
