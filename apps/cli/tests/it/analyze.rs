//! `analyze`: what is wrong with a mesh, or with files.

use serde_json::json;

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, cells},
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
    let control_plane = ZoneControlPlane::start();
    let backend = json!({"name": "ca-1", "type": "builtin", "mode": "PERMISSIVE"});
    control_plane.store(
        json!({"type": "Mesh", "name": "m", "mtls": {"enabledBackend": "ca-1", "backends": [backend]}}),
    );
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "1s"}}]);
    control_plane.store_all((0..1000).map(|n| {
        let nowhere = json!({"kind": "Dataplane", "labels": {"app": format!("nowhere-{n}")}});
        json!({"type": "MeshTimeout", "mesh": "m", "name": format!("t-{n:03}"), "spec": {"targetRef": nowhere, "to": to}})
    }));
    let program = Program::at(&control_plane.url);
    let done = program.run(&["analyze", "-m", "m"]).answered(0);
    let asked = ["", "&offset=1000"].map(|further| format!("GET /meshes/m/_problems?size=1000{further}"));
    assert_eq!(control_plane.lines(), asked);
    let lines = done.lines();
    assert_eq!(cells(lines[0]), ["SEVERITY", "CODE", "RESOURCE", "MESSAGE"]);
    assert_eq!(
        cells(lines[1]),
        [
            "warning",
            "matches-nothing",
            "kri_mt_m___t-000_",
            "targetRef Dataplane app=nowhere-0 selects no Dataplane"
        ]
    );
    assert_eq!(
        cells(lines[1002]),
        ["info", "permissive-mtls", "kri_m____m_", "backend ca-1 of mesh m is PERMISSIVE"]
    );
    let fixes: Vec<&str> = done.out.split_once("\nWhat to do:\n").unwrap().1.lines().collect();
    let codes: Vec<&str> =
        fixes.iter().filter_map(|fix| fix.split_once(": ")).map(|(code, _)| code).collect();
    assert_eq!(codes, ["  matches-nothing", "  no-permissions", "  permissive-mtls"], "each once");
    program.run(&["analyze", "-m", "m", "--fail-on", "error"]).answered(0);
    program.run(&["analyze", "-m", "m", "--fail-on", "warn"]).answered(3);
    let json = program.run(&["analyze", "-m", "m", "-o", "json"]).answered(0).json();
    assert_eq!(json["total"], 1002);
    assert_eq!(json["items"][1001], control_plane.get("/meshes/m/_problems?offset=1001")["items"][0]);
    assert_eq!(program.run(&["analyze"]).ok().out, "Nothing is wrong.\n", "in another mesh");
    program.run(&["analyze", "-m", "none"]).failed(1).says("could not analyze mesh none");
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

#[test]
fn unknown_fields_of_files_are_findings() {
    let program = Program::new();
    let text = "type: Mesh\nname: m\nmeshServces: {mode: Exclusive}\n---\ntype: MeshTimeout\nmesh: m\nname: t\nspec:\n  bogus: 1\n  \
                to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]\n";
    program.file("slips.yaml", text);
    let analyze = ["analyze", "-f", "slips.yaml", "-o", "json", "--fail-on", "warn"];
    let found = program.run(&analyze).answered(3).json();
    let slips: Vec<(&str, &str)> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["code"] == "unknown-field")
        .map(|item| (item["kri"].as_str().unwrap(), item["message"].as_str().unwrap()))
        .collect();
    assert_eq!(
        slips,
        [
            (
                "kri_m____m_",
                "unknown field meshServces, it has no effect; did you mean \"meshServices\"? (slips.yaml:3)"
            ),
            ("kri_mt_m___t_", "unknown field spec.bogus, it has no effect (slips.yaml:9)"),
        ]
    );
}
