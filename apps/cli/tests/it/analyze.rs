//! `analyze`: what is wrong with a mesh, or with files.

use serde_json::json;

use crate::{
    program::{Program, cells},
    server::Server,
};

const FILES: &str = r#"
type: Mesh
name: default
meshServices: { mode: Exclusive }
---
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.2
  inbound:
    - { port: 80, tags: { kuma.io/service: web, kuma.io/protocol: http } }
    - { name: twice, port: 80, tags: { kuma.io/service: web } }
---
type: MeshTimeout
mesh: default
name: to-web
spec:
  to: [{ targetRef: { kind: MeshService, name: web }, default: { connectionTimeout: 1s } }]
---
type: MeshTimeout
mesh: default
name: lost
spec:
  targetRef: { kind: Dataplane, labels: { app: nowhere } }
  to: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 1s } }]
"#;

#[test]
fn a_control_plane_is_asked_page_by_page() {
    let server = Server::start();
    let item = |n: usize, severity: &str| {
        json!({"code": "shadowed", "severity": severity, "kri": format!("kri_mt_m___t-{n}_"), "message": "overridden",
            "fix": "Delete it.", "explanation": "", "reference": ""})
    };
    let first: Vec<_> = (0..1000).map(|n| item(n, "warning")).collect();
    let path = "/meshes/m/_problems?size=1000";
    let next = format!("http://cp{path}&offset=1000");
    server.on("GET", path, 200, json!({"total": 1001, "items": first, "next": next}));
    let last = json!({"total": 1001, "items": [item(1000, "info")]});
    server.on("GET", &format!("{path}&offset=1000"), 200, last);
    let program = Program::of(&server);
    let done = program.run(&["analyze", "-m", "m"]).answered(0);
    let lines = done.lines();
    assert_eq!(cells(lines[0]), ["SEVERITY", "CODE", "RESOURCE", "MESSAGE"]);
    assert_eq!(cells(lines[1001]), ["info", "shadowed", "kri_mt_m___t-1000_", "overridden"]);
    assert!(done.out.ends_with("What to do:\n  shadowed: Delete it.\n"), "{}", done.out);
    program.run(&["analyze", "-m", "m", "--fail-on", "error"]).answered(0);
    program.run(&["analyze", "-m", "m", "--fail-on", "warn"]).answered(3);
}

#[test]
fn files_are_looked_at_without_a_control_plane() {
    let program = Program::new();
    let file = program.file("all.yaml", FILES);
    let done = program.run(&["analyze", "-f", &file, "-o", "json", "--fail-on", "error"]).answered(3);
    let found = done.json();
    let shown: Vec<[&str; 3]> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| ["severity", "code", "kri"].map(|field| item[field].as_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ["error", "port-conflict", "kri_dp_default___web_"],
            ["warning", "matches-nothing", "kri_mt_default___lost_"],
        ],
        "the service is there, because the control plane makes it from the Dataplane"
    );
    let good = program.file("good.yaml", "type: MeshTimeout\nmesh: other\nname: all\nspec: { to: [{ targetRef: { kind: Mesh }, default: { connectionTimeout: 1s } }] }");
    let done = program.run(&["analyze", "-f", &good, "--fail-on", "info"]).ok();
    assert_eq!(done.out, "Nothing is wrong.\n");
    assert!(done.err.contains("mesh other is not in the input"), "{}", done.err);
}
