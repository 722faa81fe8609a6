//! What `apply` refuses before anything is sent, and how it says so.

use serde_json::json;

use crate::{program::Program, server::Server};

/// Runs against a server that must not hear anything.
#[track_caller]
fn refused(files: &[(&str, &str)], expect: &str) {
    let server = Server::start();
    let program = Program::of(&server);
    let mut arguments = vec!["apply".to_owned()];
    for (name, content) in files {
        program.file(name, content);
        arguments.extend(["-f".to_owned(), (*name).to_owned()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    program.run(&arguments).failed(2).says(expect);
    assert_eq!(server.lines(), Vec::<String>::new());
}

#[test]
fn broken_yaml_is_shown_with_file_line_column_and_the_lines_around_it() {
    refused(
        &[("bad.yaml", "type: Mesh\nname: : b\n")],
        "bad.yaml:2:7: mapping values are not allowed in this context\n1 | type: Mesh\n2 | name: : b\n  |       ^\n",
    );
}

#[test]
fn one_bad_file_among_good_ones_stops_everything_and_all_mistakes_are_told() {
    let good = ("good.yaml", "type: Mesh\nname: a\n");
    refused(&[good, ("bad.yaml", "type: Mesh\nname: [\n")], "bad.yaml:2:7:");
    let server = Server::start();
    let program = Program::of(&server);
    program.file("1.yaml", "type: Nothing\nname: a\n---\nname: b\n");
    program.file("2.yaml", "type: Mesh\n");
    program
        .run(&["apply", "-f", "1.yaml", "-f", "2.yaml"])
        .failed(2)
        .says("1.yaml:1: unknown resource type \"Nothing\"")
        .says("1.yaml:4: \"type\" is missing")
        .says("2.yaml:1: Mesh: name: cannot be empty");
    assert_eq!(server.lines(), Vec::<String>::new());
}

#[test]
fn duplicate_names_are_refused_across_files() {
    refused(
        &[("1.yaml", "type: Mesh\nname: a\n"), ("2.yaml", "type: Mesh\nname: b\n---\ntype: Mesh\nname: a\n")],
        "2.yaml:4: Mesh \"a\" is already defined at 1.yaml:1",
    );
}

#[test]
fn violations_and_wrong_types_name_the_field() {
    refused(
        &[("t.yaml", "type: MeshTimeout\nname: t\nspec:\n  to: 5\n")],
        "t.yaml:1: MeshTimeout \"t\" in mesh \"default\": spec.to: in body must be of type array: \"number\"",
    );
    refused(
        &[("t.yaml", "type: MeshTimeout\nname: t\nspec:\n  targetRef:\n    kind: Nonsense\n")],
        "t.yaml:1: MeshTimeout \"t\" in mesh \"default\": spec.targetRef.kind:",
    );
    let everybody = "type: MeshTrafficPermission\nname: p\nspec:\n  from:\n  - targetRef:\n      kind: MeshSubset\n      \
         tags:\n        team:\n    default: {action: Allow}\n";
    refused(
        &[("p.yaml", everybody)],
        "p.yaml:1: MeshTrafficPermission \"p\" in mesh \"default\": spec.from[0].targetRef.tags.team: \
         in body must be of type string: \"null\"",
    );
}

#[test]
fn other_bad_input_is_refused_with_a_reason() {
    refused(&[("a.yaml", "type: mesh\nname: a\n")], "did you mean \"Mesh\"?");
    refused(&[("a.yaml", "just text\n")], "expected an object");
    refused(&[("a.yaml", "type: Mesh\nname: a\nname: b\n")], "a.yaml:3:1: duplicate");
    refused(&[("a.yaml", "# nothing\n")], "the input holds no resources");
    refused(&[("a.yaml", "type: Config\nname: a\nconfig: x\n")], "does not serve this type");
    let program = Program::new();
    program.file("latin.yaml", b"type: Mesh\nname: caf\xe9\n");
    program
        .run(&["apply", "-f", "latin.yaml"])
        .failed(2)
        .says("latin.yaml:2:10: not UTF-8: byte 0xe9 at offset 20");
    program.run(&["apply", "-f", "missing.yaml"]).failed(2).says("missing.yaml: No such file");
    program.file("empty/readme.txt", "");
    program.run(&["apply", "-f", "empty"]).failed(2).says("holds no .yaml, .yml or .json file");
    program.run(&["apply", "-f", "-", "-f", "-"]).failed(2).says("only once");
    program.run(&["apply", "-f", "a", "-v", "novalue"]).failed(2).says("expected KEY=VALUE");
}

#[test]
fn a_url_that_fails_is_named() {
    let server = Server::start();
    server.on("GET", "/gone.yaml", 404, json!({}));
    let url = format!("{}/gone.yaml", server.url);
    Program::of(&server)
        .run(&["apply", "-f", &url])
        .failed(1)
        .says(&format!("could not fetch {url}: answered 404"));
}

#[test]
fn a_control_plane_that_is_not_there_is_named_with_its_context_and_a_hint() {
    let server = Server::start();
    let url = server.url.clone();
    let program = Program::of(&server);
    drop(server);
    program.file("a.yaml", "type: Mesh\nname: a\n");
    program
        .run(&["apply", "-f", "a.yaml"])
        .failed(1)
        .says(&format!("{url}/meshes/a (context \"test\")"))
        .says("hint: is kuma-cp running there?");
}

const EXPORTED: &str = "\
type: MeshServiceInsight
mesh: default
name: logs
---
type: Mesh
name: a
---
type: MeshTimout
mesh: default
name: slip
---
apiVersion: kuma.io/v1alpha1
kind: TrafficRoute
mesh: default
metadata: {name: old}
spec: {}
---
type: MeshInsight
name: a
";

#[test]
fn types_that_kuma_has_are_named_as_such_and_the_way_on_is_shown() {
    let program = Program::new();
    let file = program.file("all.yaml", EXPORTED);
    let ran = program.run(&["apply", "-f", &file]).failed(2);
    ran.says("unknown resource type \"MeshServiceInsight\": Kuma has this type, and it is not known here yet")
        .says("unknown resource type \"MeshTimout\": there is no such type")
        .says("all.yaml:12: TrafficRoute is not supported: use MeshHTTPRoute and MeshTCPRoute instead; `kumactl migrate policies -f FILE` translates it")
        .says("--skip-unknown applies the rest");
}

#[test]
fn what_is_unknown_is_skipped_and_listed_when_asked_for() {
    let server = Server::start();
    server.on("PUT", "/meshes/a", 201, json!({}));
    let program = Program::of(&server);
    let file = program.file("all.yaml", EXPORTED);
    let ran = program.run(&["apply", "--skip-unknown", "-f", &file]).ok();
    assert_eq!(server.lines(), ["GET /meshes/a", "PUT /meshes/a"]);
    ran.says("warning: 4 resources skipped:")
        .says(&format!(
            "* {file}:1: MeshServiceInsight \"logs\": Kuma has this type, and it is not known here yet"
        ))
        .says("MeshTimout \"slip\": there is no such type")
        .says(
            "TrafficRoute \"old\": TrafficRoute is not supported: use MeshHTTPRoute and MeshTCPRoute instead",
        )
        .says("MeshInsight \"a\": a control plane writes this itself")
        .says("Mesh \"a\" created");
    let nothing = program.run_with_stdin(&["apply", "--skip-unknown"], "type: TrafficRoute\nname: x\n").ok();
    nothing.says("1 resource skipped");
}
