//! Names and labels are checked before anything is sent, by the rules of the control plane.

use serde_json::json;

use crate::{control_plane::ZoneControlPlane, program::Program};

/// Three documents, of which the second has a bad name.
const THREE: &str = "type: Mesh\nname: a\n---\ntype: Mesh\nname: bad_name\n---\ntype: Mesh\nname: c\n";

#[test]
fn a_dry_run_refuses_a_name_that_the_control_plane_refuses() {
    let program = Program::new();
    let file = program.file("m.yaml", THREE);
    program
        .run(&["apply", "-f", &file, "--dry-run"])
        .failed(2)
        .says(&format!(
            "{file}:5: Mesh \"bad_name\": name: invalid characters. A lowercase RFC 1123 subdomain"
        ))
        .says("a resource that exists may keep such a name");
}

#[test]
fn one_bad_name_of_three_sends_nothing() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let file = program.file("m.yaml", THREE);
    program
        .run(&["apply", "-f", &file])
        .failed(2)
        .says("nothing was sent")
        .says("m.yaml:5: Mesh \"bad_name\": name:");
    assert_eq!(control_plane.lines(), ["GET /meshes/bad_name"], "only whether it exists is asked");
    let labels = "type: Mesh\nname: a\n---\ntype: Mesh\nname: b\nlabels:\n  good: x\n  bad/: x\n  team: -x\n";
    let ran = program.run_with_stdin(&["apply"], labels).failed(2);
    ran.says("stdin:8: Mesh \"b\": labels[\"bad/\"]: ").says("stdin:9: Mesh \"b\": labels[\"team\"]: ");
    let long = format!("type: Mesh\nname: {}\n", "a".repeat(254));
    program
        .run_with_stdin(&["apply"], &long)
        .failed(2)
        .says("stdin:2: Mesh \"aaaa")
        .says("must less or equal 253");
    let upper = "type: MeshTimeout\nmesh: Shop\nname: A\nspec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}\n";
    let ran = program.run_with_stdin(&["apply"], upper).failed(2);
    ran.says("stdin:3: MeshTimeout \"A\" in mesh \"Shop\": name: invalid")
        .says("stdin:2: MeshTimeout \"A\" in mesh \"Shop\": mesh: invalid");
    assert_eq!(control_plane.lines().len(), 1);
}

#[test]
fn what_exists_with_an_older_name_can_be_updated() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({"type": "Mesh", "name": "bad_name", "labels": {"a": "b"}}));
    let program = Program::at(&control_plane.url);
    program.run_with_stdin(&["apply"], "type: Mesh\nname: bad_name\n").ok().says("Mesh \"bad_name\" updated");
}

#[test]
fn resources_written_by_control_planes_are_refused_before_sending() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let text = "type: Mesh\nname: a\n---\nname: a\ntype: MeshInsight\n";
    program
        .run_with_stdin(&["apply"], text)
        .failed(2)
        .says("stdin:5: MeshInsight \"a\": type: a control plane writes this itself; --skip-unknown applies the rest");
    assert_eq!(control_plane.lines(), Vec::<String>::new());
}
