//! `delete` by type and name, by `type/name`, and by files.

use serde_json::{Value, json};

use crate::{control_plane::ZoneControlPlane, program::Program};

fn policy(kind: &str, name: &str) -> Value {
    let default = match kind {
        "MeshRetry" => json!({"tcp": {"maxConnectAttempt": 2}}),
        _ => json!({"connectionTimeout": "1s"}),
    };
    json!({"type": kind, "mesh": "shop", "name": name,
        "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]}})
}

/// A control plane with a mesh `shop` and some policies in it.
fn shop() -> (ZoneControlPlane, Program) {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    for (kind, name) in [("MeshTimeout", "t"), ("MeshTimeout", "u"), ("MeshRetry", "r")] {
        control_plane.store(policy(kind, name));
    }
    let program = Program::at(&control_plane.url);
    (control_plane, program)
}

#[test]
fn several_names_and_types_with_names_are_deleted() {
    let (control_plane, program) = shop();
    let ran = program.run(&["delete", "mt", "t", "u", "-m", "shop"]).ok();
    assert_eq!(
        ran.err,
        "deleted MeshTimeout \"t\" in mesh \"shop\"\ndeleted MeshTimeout \"u\" in mesh \"shop\"\n"
    );
    control_plane.store(policy("MeshTimeout", "t"));
    let ran = program.run(&["delete", "meshtimeout/t", "meshretry/r", "mesh/shop", "-m", "shop"]).ok();
    assert_eq!(ran.err.lines().count(), 3, "{}", ran.err);
    assert_eq!(control_plane.get("/meshes")["total"], 1, "the mesh is gone, and all that was in it");
    for (arguments, expect) in [
        (&["delete", "mesh"][..], "the name of a Mesh is missing"),
        (&["delete", "mt", "a/b"], "write either TYPE NAME… or TYPE/NAME…"),
        (
            &["delete", "mt/t", "u"],
            "expected TYPE/NAME, such as meshtimeout/slow, or TYPE/MESH/NAME instead of \"u\"",
        ),
        (&["delete", "mt/", "mt/u"], "instead of \"mt/\""),
        (&["delete"], "<TYPE"),
        (&["delete", "mt", "t", "-f", "x.yaml"], "cannot be used with"),
    ] {
        program.run(arguments).failed(2).says(expect);
    }
}

#[test]
fn what_name_output_prints_is_accepted_by_get_and_delete() {
    let (control_plane, program) = shop();
    let stored = control_plane.get("/meshes/shop/meshtimeouts/t");
    let listed = program.run(&["get", "mt", "-m", "shop", "-o", "name"]).ok();
    assert_eq!(listed.lines(), ["meshtimeout/t", "meshtimeout/u"]);
    let again = program.run(&[&["get", "-m", "shop", "-o", "name"], listed.lines().as_slice()].concat()).ok();
    assert_eq!(again.out, listed.out);
    let one = program.run(&["get", "-m", "shop", "meshtimeout/t", "-o", "json"]).ok();
    assert_eq!(one.json(), stored);
    let both = program.run(&["get", "-m", "shop", "mesh/shop", "meshtimeout/t", "-o", "json"]).ok().json();
    assert_eq!((&both["total"], &both["items"][1]), (&json!(2), &stored));
    let tables = program.run(&["get", "-m", "shop", "mesh/shop", "mt/t", "mt/u"]).ok();
    assert_eq!(tables.out.lines().filter(|line| line.contains("NAME")).count(), 2, "{}", tables.out);
    program
        .run(&["get", "-m", "shop", "mt", "t", "x", "y"])
        .failed(1)
        .says("there is no MeshTimeout \"x\"")
        .says("\"y\"");
    program.run(&["get", "mt/t", "-A"]).failed(2);
    program.run(&["get", "mt/t", "-l", "a=b"]).failed(2).says("are for lists");
    program.run(&[&["delete", "-m", "shop"], listed.lines().as_slice()].concat()).ok();
}

#[test]
fn files_name_what_to_delete_and_meshes_go_last() {
    let (control_plane, program) = shop();
    let file = program.file(
        "all.yaml",
        "type: Mesh\nname: shop\n---\ntype: MeshTimeout\nmesh: shop\nname: t\nspec: {to: 5}\n---\n\
         apiVersion: kuma.io/v1alpha1\nkind: MeshRetry\nmetadata:\n  name: r\n  labels: {kuma.io/mesh: shop}\n",
    );
    program.run(&["delete", "-f", &file]).ok();
    let deleted = ["meshes/shop/meshtimeouts/t", "meshes/shop/meshretries/r", "meshes/shop"];
    assert_eq!(control_plane.lines(), deleted.map(|path| format!("DELETE /{path}")));
    let requests = control_plane.lines().len();
    let bad = "type: Mesh\nname: a\n---\nname: b\ntype: Nothing\n";
    program
        .run_with_stdin(&["delete", "-f", "-"], bad)
        .failed(2)
        .says("stdin:5: unknown resource type \"Nothing\"");
    program
        .run_with_stdin(&["delete", "-f", "-"], "type: Mesh\n")
        .failed(2)
        .says("stdin:1: Mesh: name: cannot be empty");
    program.run_with_stdin(&["delete", "-f", "-"], "# nothing\n").failed(2).says("holds no resources");
    assert_eq!(control_plane.lines().len(), requests, "nothing is deleted of a file with a mistake");
}

#[test]
fn what_is_missing_is_a_failure_unless_ignored_and_the_rest_is_deleted() {
    let (control_plane, program) = shop();
    let delete = ["delete", "mt", "none", "t", "-m", "shop"];
    program
        .run(&delete)
        .failed(1)
        .says("deleted MeshTimeout \"t\" in mesh \"shop\"\nerror: there is no MeshTimeout \"none\"");
    control_plane.store(policy("MeshTimeout", "t"));
    let ignored = program.run(&[&delete[..], &["--ignore-not-found"]].concat()).ok();
    ignored
        .says("there is no MeshTimeout \"none\" in mesh \"shop\"; ignored")
        .says("deleted MeshTimeout \"t\"");
    program.run(&["delete", "mt/t", "-m", "gone"]).failed(1).says("Failed to retrieve Mesh");
    program.run(&["delete", "mt/t", "-m", "gone", "--ignore-not-found"]).ok();
    control_plane.store(json!({"type": "Dataplane", "mesh": "shop", "name": "web",
        "networking": {"address": "10.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}}));
    let refused = program.run(&["delete", "mesh/shop", "--ignore-not-found"]).failed(1);
    refused.says("there are still some dataplanes attached");
}
