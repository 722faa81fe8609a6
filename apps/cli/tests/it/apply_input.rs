//! Input that `apply` refuses before anything is sent, and its messages.

use crate::{control_plane::ZoneControlPlane, program::Program};

/// Runs against a control plane that must not be asked anything.
#[track_caller]
fn refused(files: &[(&str, &str)], expect: &str) {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let mut arguments = vec!["apply".to_owned()];
    for (name, content) in files {
        program.file(name, content);
        arguments.extend(["-f".to_owned(), (*name).to_owned()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    program.run(&arguments).failed(2).says(expect);
    assert_eq!(control_plane.lines(), Vec::<String>::new());
}

#[test]
fn broken_yaml_is_shown_with_file_line_column_and_the_lines_around_it() {
    refused(
        &[("bad.yaml", "type: Mesh\nname: : b\n")],
        "bad.yaml:2:7: mapping values are not allowed in this context\n1 | type: Mesh\n2 | name: : b\n  |       ^\n",
    );
}

#[test]
fn one_bad_file_stops_everything_and_all_mistakes_are_reported() {
    let good = ("good.yaml", "type: Mesh\nname: a\n");
    refused(&[good, ("bad.yaml", "type: Mesh\nname: [\n")], "bad.yaml:2:7:");
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    program.file("1.yaml", "type: Nothing\nname: a\n---\nname: b\n");
    program.file("2.yaml", "type: Mesh\n");
    program
        .run(&["apply", "-f", "1.yaml", "-f", "2.yaml"])
        .failed(2)
        .says("1.yaml:1: unknown resource type \"Nothing\"")
        .says("1.yaml:4: \"type\" is missing")
        .says("2.yaml:1: Mesh: name: cannot be empty");
    assert_eq!(control_plane.lines(), Vec::<String>::new());
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
        "t.yaml:4: MeshTimeout \"t\" in mesh \"default\": spec.to: in body must be of type array: \"number\"",
    );
    refused(
        &[("t.yaml", "type: MeshTimeout\nname: t\nspec:\n  targetRef:\n    kind: Nonsense\n")],
        "t.yaml:5: MeshTimeout \"t\" in mesh \"default\": spec.targetRef.kind:",
    );
    let tagged = "type: MeshTrafficPermission\nname: p\nspec:\n  from:\n  - targetRef:\n      kind: MeshSubset\n      \
         tags:\n        team:\n    default: {action: Allow}\n";
    refused(
        &[("p.yaml", tagged)],
        "p.yaml:8: MeshTrafficPermission \"p\" in mesh \"default\": spec.from[0].targetRef.tags.team: \
         in body must be of type string: \"null\"",
    );
}

#[test]
fn a_mistake_has_the_line_of_its_field_in_every_form() {
    // A list, in JSON.
    refused(
        &[(
            "l.json",
            "{\"items\": [\n  {\"type\": \"Mesh\", \"name\": \"a\"},\n  {\"type\": \"Mesh\",\n   \"name\": \"b\",\n   \
             \"mtls\": {\n    \"enabledBackend\": \"x\"}}]}\n",
        )],
        "l.json:6: Mesh \"b\": mtls.enabledBackend: ",
    );
    // Kubernetes has some fields elsewhere.
    let object = "# first\n---\napiVersion: kuma.io/v1alpha1\nkind: MeshTimeout\nmetadata:\n  name: t\n  labels:\n    \
                  kuma.io/mesh: Shop\n    team: -x\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default:\n      \
                  connectionTimeout: soon\n";
    refused(
        &[("k.yaml", object)],
        "k.yaml:14: invalid MeshTimeout object: spec.to[0].default.connectionTimeout: ",
    );
    let object = object.replace("soon", "1s");
    refused(&[("k.yaml", &object)], "k.yaml:8: MeshTimeout \"t\" in mesh \"Shop\": mesh: invalid characters");
    refused(&[("k.yaml", &object)], "k.yaml:9: MeshTimeout \"t\" in mesh \"Shop\": labels[\"team\"]: ");
    let mesh = "apiVersion: kuma.io/v1alpha1\nkind: Mesh\nmetadata:\n  name: m\nspec:\n  mtls:\n    enabledBackend: x\n";
    refused(&[("m.yaml", mesh)], "m.yaml:7: Mesh \"m\": mtls.enabledBackend: ");
    // What is missing is reported where it should stand.
    let route = "type: MeshTimeout\nname: t\nspec:\n  targetRef:\n    kind: Mesh\n  to:\n  - default:\n      http: {}\n";
    refused(&[("t.yaml", route)], "t.yaml:7: MeshTimeout \"t\" in mesh \"default\": spec.to[0]");
}

#[test]
fn a_variable_without_a_value_is_named_with_its_line() {
    let text = "type: Mesh\nlabels:\n  team: {{ TEAM }}\nname: {{ NAME }}\n";
    refused(&[("t.yaml", text)], "t.yaml:4:7: no value for {{ NAME }}; pass -v NAME=…");
    refused(&[("t.yaml", text)], "nothing was sent\nt.yaml:3:9: no value for {{ TEAM }}; pass -v TEAM=…\n");
    let quoted = "type: Mesh\nname: \"{{ NAME }}\"\n";
    refused(&[("t.yaml", quoted)], "t.yaml:2:8: no value for {{ NAME }}; pass -v NAME=…");
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
    let control_plane = ZoneControlPlane::start();
    let url = format!("{}/gone.yaml", control_plane.url);
    Program::at(&control_plane.url)
        .run(&["apply", "-f", &url])
        .failed(1)
        .says(&format!("could not fetch {url}: answered 404"));
}

#[test]
fn a_control_plane_that_is_not_there_is_named_with_its_context_and_a_hint() {
    let control_plane = ZoneControlPlane::start();
    let url = control_plane.url.clone();
    let program = Program::at(&url);
    drop(control_plane);
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
    ran.says("unknown resource type \"MeshServiceInsight\": it is known in Kuma, not supported by kuma-rs")
        .says("unknown resource type \"MeshTimout\": there is no such type")
        .says("all.yaml:13: TrafficRoute is known in Kuma, not supported by kuma-rs: use MeshHTTPRoute and MeshTCPRoute instead; `kumactl migrate policies -f FILE` translates it")
        .says("--skip-unknown applies the rest");
}

#[test]
fn what_is_unknown_is_skipped_and_listed_when_asked_for() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let file = program.file("all.yaml", EXPORTED);
    let ran = program.run(&["apply", "--skip-unknown", "-f", &file]).ok();
    assert_eq!(control_plane.lines(), ["GET /meshes/a", "PUT /meshes/a"]);
    ran.says("warning: 4 resources skipped:")
        .says(&format!(
            "* {file}:1: MeshServiceInsight \"logs\": it is known in Kuma, not supported by kuma-rs"
        ))
        .says("MeshTimout \"slip\": there is no such type")
        .says(
            "TrafficRoute \"old\": TrafficRoute is known in Kuma, not supported by kuma-rs: use MeshHTTPRoute and MeshTCPRoute instead",
        )
        .says("MeshInsight \"a\": a control plane writes this itself")
        .says("Mesh \"a\" created");
    let nothing = program.run_with_stdin(&["apply", "--skip-unknown"], "type: TrafficRoute\nname: x\n").ok();
    nothing.says("1 resource skipped");
}

#[test]
fn a_slip_in_a_field_is_told_before_what_is_missing_because_of_it() {
    let told = |text: &str| {
        let program = Program::new();
        program.file("t.yaml", text);
        let said = program.run(&["apply", "--dry-run", "-f", "t.yaml"]).failed(2).err;
        said.lines().skip(1).map(str::to_owned).collect::<Vec<String>>()
    };
    // The schema misses a field, the rules of the kind miss one, a value cannot be read.
    let told_first = told(
        "type: MeshTimeout\nname: t\nspec:\n  to:\n  - targetRfe: {kind: Mesh}\n    default: {connectionTimeout: 1s}\n",
    );
    assert_eq!(
        told_first[0],
        "t.yaml:5: unknown field spec.to[0].targetRfe, it has no effect; did you mean \"targetRef\"?"
    );
    assert!(told_first[1].contains("spec.to[0].targetRef"), "{told_first:?}");
    let told_first = told(
        "type: MeshTimeout\nname: t\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default:\n      conectionTimeout: 1s\n",
    );
    assert_eq!(
        told_first[0],
        "t.yaml:7: unknown field spec.to[0].default.conectionTimeout, it has no effect; did you mean \"connectionTimeout\"?"
    );
    assert!(told_first[1].contains("at least one timeout should be configured"), "{told_first:?}");
    let told_first = told(
        "apiVersion: kuma.io/v1alpha1\nkind: Mesh\nmetadata: {name: m}\nspec:\n  mtsl: {}\n  mtls:\n    enabledBackend: [1]\n",
    );
    assert_eq!(told_first[0], "t.yaml:5: unknown field spec.mtsl, it has no effect; did you mean \"mtls\"?");
    assert!(told_first[1].contains("enabledBackend"), "{told_first:?}");
}

#[test]
fn apply_without_a_file_says_so() {
    let program = Program::new();
    program.run(&["apply"]).failed(2).says("no -f was given, and stdin holds no resources: pass -f FILE");
    program.run_with_stdin(&["apply", "-f", "-"], "").failed(2).says("the input holds no resources");
    // An input that stays silent, as that of a job may.
    let mut child =
        program.command(&["apply", "--dry-run"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let silent = child.stdin.take().unwrap();
    let mut said = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut said).unwrap();
    assert_eq!(said, "no -f was given: waiting for the end of stdin; -f FILE reads a file\n");
    drop(silent);
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn strict_apply_refuses_unknown_fields_and_sends_nothing() {
    let slip = "type: MeshTimeout\nname: t\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default:\n      \
        conectionTimeout: 1s\n      idleTimeout: 1s\n";
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    program.file("t.yaml", slip);
    program.file("mesh.yaml", "type: Mesh\nname: default\nmeshServces: {}\n");
    for command in
        [&["apply"][..], &["apply", "--dry-run"], &["apply", "--dry-run=server"], &["diff"], &["analyze"]]
    {
        let arguments = [command, &["--strict", "-f", "t.yaml", "-f", "mesh.yaml"]].concat();
        program
            .run(&arguments)
            .failed(2)
            .says("the input has unknown fields (--strict), nothing was sent")
            .says("t.yaml:7: unknown field spec.to[0].default.conectionTimeout, it has no effect; did you mean \"connectionTimeout\"?")
            .says("mesh.yaml:3: unknown field meshServces, it has no effect; did you mean \"meshServices\"?");
    }
    assert_eq!(control_plane.lines(), Vec::<String>::new());
    program.run(&["apply", "-f", "t.yaml"]).ok().says("conectionTimeout, it has no effect");
    program.file("good.yaml", "type: Mesh\nname: default\n");
    program.run(&["apply", "--strict", "-f", "good.yaml"]).ok();
    program.run(&["delete", "--strict", "-f", "good.yaml"]).failed(2).says("--strict is about fields");
}
