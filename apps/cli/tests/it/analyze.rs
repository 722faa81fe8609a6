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

#[test]
fn all_meshes_are_analyzed_at_once_and_the_worst_comes_first() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({"type": "Mesh", "name": "a"}));
    let backend = json!({"name": "ca-1", "type": "builtin", "mode": "PERMISSIVE"});
    control_plane.store(
        json!({"type": "Mesh", "name": "z", "mtls": {"enabledBackend": "ca-1", "backends": [backend]}}),
    );
    let useless = json!({"type": "MeshTimeout", "mesh": "a", "name": "useless", "spec": {
        "targetRef": {"kind": "Dataplane", "labels": {"app": "none"}},
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "1s"}}]}});
    control_plane.store(useless);
    let program = Program::at(&control_plane.url);
    let json = program.run(&["analyze", "-A", "-o", "json"]).answered(0).json();
    let found: Vec<_> =
        json["items"].as_array().unwrap().iter().map(|item| (&item["mesh"], &item["code"])).collect();
    let [a, z] = [json!("a"), json!("z")];
    let codes = ["matches-nothing", "no-permissions", "permissive-mtls"].map(|code| json!(code));
    assert_eq!(found, [(&a, &codes[0]), (&z, &codes[1]), (&z, &codes[2])], "{json}");
    let table = program.run(&["analyze", "--all-meshes"]).answered(0);
    assert!(table.out.contains("kri_mt_a___useless_") && table.out.contains("kri_m____z_"), "{table:#?}");
    program.run(&["analyze", "-A", "--fail-on", "warn"]).answered(3);
    program.run(&["analyze", "-A", "-m", "a"]).failed(2).says("cannot be used with");
}

const SLIP: &str = "type: MeshTimeout\nmesh: default\nname: slip\nspec:\n  to:\n    - targetRef: { kind: Mesh }\n      \
    default: { conectionTimeout: 1s, idleTimeout: 1s }\n";

#[test]
fn strict_analysis_refuses_unknown_fields() {
    let program = Program::at("http://127.0.0.1:1");
    let slip = program.file("slip.yaml", SLIP);
    let lax = program.run(&["analyze", "-f", &slip]).ok();
    assert!(
        lax.out.contains("unknown-field") && lax.out.contains("did you mean \"connectionTimeout\"?"),
        "{lax:#?}"
    );
    let strict = program.run(&["analyze", "-f", &slip, "--strict"]).failed(2);
    let lines = strict.err.lines().collect::<Vec<_>>().join("\n");
    assert!(lines.contains("slip.yaml:7: unknown field spec.to[0].default.conectionTimeout"), "{strict:#?}");
}
