//! `apply` of several resources: the control plane accepts all of them, or nothing is written.

use resources::Kind;
use serde_json::json;

use crate::{control_plane::ZoneControlPlane, program::Program, server::Server};

const SPEC: &str = "spec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: {connectionTimeout: 5s}\n";

fn timeout(mesh: &str, name: &str) -> String {
    format!("type: MeshTimeout\nmesh: {mesh}\nname: {name}\n{SPEC}")
}

fn puts(control_plane: &ZoneControlPlane) -> usize {
    control_plane.lines().iter().filter(|line| line.starts_with("PUT")).count()
}

#[test]
fn nothing_is_written_when_the_control_plane_would_refuse_one_of_several() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    // Only the control plane knows which meshes there are, and in which zone it is.
    let elsewhere = timeout("default", "c").replacen("name: ", "labels:\n  kuma.io/zone: west\nname: ", 1);
    let text =
        [timeout("default", "a"), timeout("none", "b"), elsewhere, timeout("default", "d")].join("---\n");
    let file = program.file("several.yaml", &text);
    program
        .run(&["apply", "-f", &file])
        .failed(1)
        .says("error: the control plane would refuse this, nothing was written\n")
        .says(&format!(
            "{file}:10: MeshTimeout \"b\" in mesh \"none\": mesh: mesh of name none is not found\n"
        ))
        .says(&format!("{file}:20: MeshTimeout \"c\" in mesh \"default\": labels[\"kuma.io/zone\"]: "));
    assert_eq!(puts(&control_plane), 0);
}

#[test]
fn a_mesh_of_the_input_is_there_for_the_rest_of_it_however_much_that_is() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let mut text = "type: Mesh\nname: new\n".to_owned();
    // More than one request may hold.
    for index in 0..600 {
        let service = json!({"type": "MeshService", "mesh": "new", "name": format!("s{index}"), "spec": {
            "selector": {"dataplaneTags": {"app": "web"}}, "ports": [{"port": 80, "targetPort": 80}]}});
        text.push_str(&format!("---\n{service}\n"));
    }
    program.run_with_stdin(&["apply"], &text).ok();
    let asked = control_plane.lines().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!((asked, puts(&control_plane)), (2, 601));
    control_plane.spec(Kind::MeshService, "new", "s599");
}

#[test]
fn a_server_without_preflight_is_written_to_and_a_failing_one_is_not() {
    let server = Server::start();
    for mesh in ["a", "b"] {
        server.on("PUT", &format!("/meshes/{mesh}"), 201, json!({}));
    }
    let program = Program::of(&server);
    let text = "type: Mesh\nname: a\n---\ntype: Mesh\nname: b\n";
    program.run_with_stdin(&["apply"], text).ok();
    assert_eq!(server.puts().len(), 2);
    server.on(
        "POST",
        "/meshes/default/_what-if?only=admission",
        503,
        json!({ "title": "the store is away" }),
    );
    program
        .run_with_stdin(&["apply"], text)
        .failed(1)
        .says("nothing was written, because the control plane could not check it: the store is away");
    assert_eq!(server.puts().len(), 2);
}

#[test]
fn a_dry_run_without_a_control_plane_shows_what_is_worth_a_warning() {
    let deprecated = "type: MeshTimeout\nname: old\nspec:\n  targetRef: {kind: MeshSubset, tags: {a: b}}\n  to:\n  - \
                      targetRef: {kind: Mesh}\n    default: {connectionTimeout: 5s}\n";
    let control_plane = ZoneControlPlane::start();
    let applied = Program::at(&control_plane.url).run_with_stdin(&["apply"], deprecated).ok();
    let warned: Vec<&str> = applied.err.lines().filter(|line| line.contains("MeshSubset")).collect();
    assert!(!warned.is_empty(), "{applied:#?}");
    let dry = Program::new().run_with_stdin(&["apply", "--dry-run"], deprecated).ok();
    for warning in warned {
        assert!(dry.err.contains(warning), "{warning:?} in {dry:#?}");
    }
}
