//! `delete` by type and name, by `type/name`, and by files.

use serde_json::json;

use crate::{program::Program, server::Server};

fn server() -> Server {
    let server = Server::start();
    for path in ["meshtimeouts/t", "meshtimeouts/u", "meshretries/r"] {
        server.on("DELETE", &format!("/meshes/shop/{path}"), 200, json!({}));
    }
    server.on("DELETE", "/meshes/shop", 200, json!({}));
    server
}

#[test]
fn several_names_and_types_with_names_are_deleted() {
    let server = server();
    let program = Program::of(&server);
    let ran = program.run(&["delete", "mt", "t", "u", "-m", "shop"]).ok();
    assert_eq!(
        ran.err,
        "deleted MeshTimeout \"t\" in mesh \"shop\"\ndeleted MeshTimeout \"u\" in mesh \"shop\"\n"
    );
    let ran = program.run(&["delete", "meshtimeout/t", "meshretry/r", "mesh/shop", "-m", "shop"]).ok();
    assert_eq!(ran.err.lines().count(), 3, "{}", ran.err);
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
    let server = server();
    let timeout = |name: &str| json!({"type": "MeshTimeout", "mesh": "shop", "name": name});
    let list = json!({"total": 2, "items": [timeout("t"), timeout("u")], "next": null});
    server.on("GET", "/meshes/shop/meshtimeouts?size=1000", 200, list);
    for name in ["t", "u"] {
        server.on("GET", &format!("/meshes/shop/meshtimeouts/{name}"), 200, timeout(name));
    }
    server.on("GET", "/meshes/shop", 200, json!({"type": "Mesh", "name": "shop"}));
    let program = Program::of(&server);
    let listed = program.run(&["get", "mt", "-m", "shop", "-o", "name"]).ok();
    assert_eq!(listed.lines(), ["meshtimeout/t", "meshtimeout/u"]);
    let again = program.run(&[&["get", "-m", "shop", "-o", "name"], listed.lines().as_slice()].concat()).ok();
    assert_eq!(again.out, listed.out);
    let one = program.run(&["get", "-m", "shop", "meshtimeout/t", "-o", "json"]).ok();
    assert_eq!(one.json(), timeout("t"));
    let both = program.run(&["get", "-m", "shop", "mesh/shop", "meshtimeout/t", "-o", "json"]).ok().json();
    assert_eq!((&both["total"], &both["items"][1]), (&json!(2), &timeout("t")));
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
    let server = server();
    let program = Program::of(&server);
    let file = program.file(
        "all.yaml",
        "type: Mesh\nname: shop\n---\ntype: MeshTimeout\nmesh: shop\nname: t\nspec: {to: 5}\n---\n\
         apiVersion: kuma.io/v1alpha1\nkind: MeshRetry\nmetadata:\n  name: r\n  labels: {kuma.io/mesh: shop}\n",
    );
    program.run(&["delete", "-f", &file]).ok();
    let deleted = ["meshes/shop/meshtimeouts/t", "meshes/shop/meshretries/r", "meshes/shop"];
    assert_eq!(server.lines(), deleted.map(|path| format!("DELETE /{path}")));
    let requests = server.lines().len();
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
    assert_eq!(server.lines().len(), requests, "nothing is deleted of a file with a mistake");
}

#[test]
fn what_is_missing_is_a_failure_unless_ignored_and_the_rest_is_deleted() {
    let server = server();
    let gone = json!({"title": "Failed to retrieve Mesh", "detail": "Not found"});
    server.on("DELETE", "/meshes/gone/meshtimeouts/t", 404, gone);
    let program = Program::of(&server);
    let delete = ["delete", "mt", "none", "t", "-m", "shop"];
    program
        .run(&delete)
        .failed(1)
        .says("deleted MeshTimeout \"t\" in mesh \"shop\"\nerror: there is no MeshTimeout \"none\"");
    let ignored = program.run(&[&delete[..], &["--ignore-not-found"]].concat()).ok();
    ignored
        .says("there is no MeshTimeout \"none\" in mesh \"shop\"; ignored")
        .says("deleted MeshTimeout \"t\"");
    program.run(&["delete", "mt/t", "-m", "gone"]).failed(1).says("Failed to retrieve Mesh");
    program.run(&["delete", "mt/t", "-m", "gone", "--ignore-not-found"]).ok();
    server.on("DELETE", "/meshes/shop/meshtimeouts/x", 400, json!({"title": "no", "detail": "must stay"}));
    program.run(&["delete", "mt/x", "-m", "shop", "--ignore-not-found"]).failed(1).says("must stay");
}
