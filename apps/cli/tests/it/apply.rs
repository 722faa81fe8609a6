//! Requests of `apply`, and its output.

use resources::Kind;
use serde_json::json;

use crate::{
    control_plane::{ZoneControlPlane, synced},
    program::Program,
    server::Server,
};

const TIMEOUT: &str = "\
type: MeshTimeout
mesh: default
name: slow
spec:
  targetRef:
    kind: Mesh
  to:
  - targetRef:
      kind: Mesh
    default:
      http:
        requestTimeout: 5s
";
const TIMEOUT_PATH: &str = "/meshes/default/meshtimeouts/slow";

fn mesh(name: &str) -> String {
    format!("type: Mesh\nname: {name}\n")
}

#[test]
fn a_file_is_created_when_the_control_plane_has_nothing_of_that_name() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web", json!({}), synced());
    let program = Program::at(&control_plane.url);
    let file = program.file("slow.yaml", TIMEOUT);
    let ran = program.run(&["apply", "-f", &file]).ok();
    assert_eq!(ran.err, "MeshTimeout \"slow\" in mesh \"default\" created\n  selects 1 proxy\n");
    assert_eq!(ran.out, "", "no data was asked for");
    let selected = format!("GET {TIMEOUT_PATH}/_resources/dataplanes?size=1");
    assert_eq!(
        control_plane.lines(),
        [format!("GET {TIMEOUT_PATH}"), format!("PUT {TIMEOUT_PATH}"), selected]
    );
    let sent = control_plane.puts().remove(0);
    assert_eq!(sent.headers["content-type"], "application/json");
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "5s"}}}]);
    let spec = json!({"targetRef": {"kind": "Mesh"}, "to": to});
    assert_eq!(sent.json(), json!({"type": "MeshTimeout", "mesh": "default", "name": "slow", "spec": spec}));
    assert_eq!(control_plane.spec(Kind::MeshTimeout, "default", "slow"), spec);
}

#[test]
fn what_the_control_plane_has_already_is_left_unchanged() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let file = program.file("slow.yaml", TIMEOUT);
    let labelled = program.file("mine.yaml", TIMEOUT.replace("spec:", "labels: {team: a}\nspec:"));
    program.run(&["apply", "-f", &file]).ok().says("created");
    let stored = control_plane.get(TIMEOUT_PATH);
    assert_eq!(stored["labels"]["kuma.io/origin"], "zone", "the control plane adds labels");
    program.run(&["apply", "-f", &file]).ok().says("unchanged");
    assert_eq!(control_plane.puts().len(), 1, "{:?}", control_plane.lines());
    program.run(&["apply", "-f", &labelled]).ok().says("updated");
    program.run(&["apply", "-f", &file]).ok().says("updated");
    assert_eq!(control_plane.puts().len(), 3, "a label of the user's is gone, which is a change");
}

#[test]
fn what_the_control_plane_calls_unchanged_is_unchanged() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    // The control plane adds the zone to the tags, so what is stored is not what was sent.
    let dataplane = "type: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 10.0.0.1\n  inbound:\n  \
                     - {port: 80, tags: {kuma.io/service: web}}\n";
    program.run_with_stdin(&["apply"], dataplane).ok().says("created");
    let ran = program.run_with_stdin(&["apply"], dataplane).ok();
    assert_eq!(ran.err, "Dataplane \"web\" in mesh \"default\" unchanged\n");
    assert_eq!(control_plane.puts().len(), 2);
}

#[test]
fn directories_stdin_and_urls_are_sources_and_meshes_go_first() {
    let control_plane = ZoneControlPlane::start();
    let files = Server::start();
    files.reply("GET", "/files/mesh.yaml", 200, &[], &mesh("d"));
    let program = Program::at(&control_plane.url);
    program.file("dir/1.yaml", TIMEOUT);
    program.file("dir/2.yml", mesh("a"));
    program.file("dir/3.json", "{\"type\": \"Mesh\", \"name\": \"b\"}");
    program.file("dir/notes.txt", "not: [yaml");
    program.file("dir/deeper/4.yaml", mesh("never"));
    let url = format!("{}/files/mesh.yaml", files.url);
    let ran =
        program.run_with_stdin(&["apply", "-f", "dir", "-f", "-", "-f", &url, "-o", "name"], &mesh("c")).ok();
    assert_eq!(ran.lines(), ["mesh/a", "mesh/b", "mesh/c", "mesh/d", "meshtimeout/slow"]);
    let piped = program.run_with_stdin(&["apply"], &mesh("e")).ok();
    assert_eq!(piped.err, "Mesh \"e\" created\n");
    program.run(&["apply", "-f", "dir", "-R", "--dry-run"]).ok().says("4 resources");
}

#[test]
fn the_kubernetes_form_is_sent_in_universal_form() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    let program = Program::at(&control_plane.url);
    let text = "apiVersion: kuma.io/v1alpha1\nkind: MeshTimeout\nmetadata:\n  name: slow\n  namespace: demo\n  \
                labels: {kuma.io/mesh: shop}\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: {idleTimeout: 5s}\n";
    program.run_with_stdin(&["apply", "-f", "-"], text).ok().says("created");
    let stored = control_plane.get("/meshes/shop/meshtimeouts/slow.demo");
    assert_eq!(
        (&stored["type"], &stored["mesh"], &stored["name"]),
        (&json!("MeshTimeout"), &json!("shop"), &json!("slow.demo"))
    );
    assert_eq!(stored["labels"]["k8s.kuma.io/namespace"], "demo");
    assert_eq!(stored["kri"].as_str().unwrap().split('_').skip(4).collect::<Vec<_>>(), ["demo", "slow", ""]);
}

#[test]
fn a_list_is_as_good_as_its_members() {
    let program = Program::new();
    let list = json!({"total": 2, "next": null, "items": [{"type": "Mesh", "name": "a"}, {"type": "Mesh", "name": "b"}]});
    let ran =
        program.run_with_stdin(&["apply", "-f", "-", "--dry-run", "-o", "name"], &list.to_string()).ok();
    assert_eq!(ran.lines(), ["mesh/a", "mesh/b"]);
}

#[test]
fn variables_are_filled_in_and_those_without_a_value_are_refused() {
    let program = Program::new();
    let file = program.file("t.yaml", "type: Mesh\nname: {{ name }}\n");
    let ran = program.run(&["apply", "-f", &file, "-v", "name=shop", "--dry-run"]).ok();
    assert_eq!(ran.out, "type: Mesh\nname: shop\n");
    program
        .run(&["apply", "-f", &file, "-v", "other=shop", "--dry-run"])
        .failed(2)
        .says(&format!("{file}:2:7: no value for {{{{ name }}}}"));
}

#[test]
fn a_dry_run_prints_what_would_be_sent_and_needs_no_control_plane() {
    let program = Program::new();
    let text = format!("{TIMEOUT}---\n{}", mesh("a"));
    let ran = program.run_with_stdin(&["apply", "-f", "-", "--dry-run"], &text).ok().says("nothing was sent");
    assert!(
        ran.out.starts_with("type: Mesh\nname: a\n---\ntype: MeshTimeout\nmesh: default\nname: slow\n"),
        "{}",
        ran.out
    );
    let ran = program.run_with_stdin(&["apply", "-f", "-", "--dry-run", "-o", "json"], &text).ok();
    assert_eq!(ran.json()[1]["name"], "slow");
}

#[test]
fn warnings_of_the_server_are_shown_and_unknown_fields_are_named_once() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let ran = program
        .run_with_stdin(&["apply", "-f", "-"], "type: Mesh\nname: a\nbogus: 1\ntracing: {backends: []}\n")
        .ok();
    assert!(ran.err.contains("warning: Mesh \"a\": tracing"), "{}", ran.err);
    assert_eq!(ran.err.matches("bogus").count(), 1, "{}", ran.err);
    assert!(ran.err.ends_with("Mesh \"a\" created\n"), "{}", ran.err);
    assert_eq!(control_plane.puts()[0].json()["bogus"], 1, "a newer control plane may know the field");
    let ran = program
        .run_with_stdin(&["apply", "-f", "-"], &TIMEOUT.replace("spec:\n", "spec:\n  bogus: 1\n"))
        .ok();
    assert_eq!(ran.err.matches("spec.bogus").count(), 1, "{}", ran.err);
}

/// A control plane that refuses what it accepted when it was asked before.
#[test]
fn a_failure_midway_says_what_was_applied_and_what_was_not() {
    let server = Server::start();
    server.on("PUT", "/meshes/a", 201, json!({}));
    server.on(
        "PUT",
        "/meshes/b",
        400,
        json!({"title": "Could not process a resource", "detail": "Resource is not valid", "status": 400,
               "invalid_parameters": [{"field": "mtls", "reason": "must be right"}]}),
    );
    let program = Program::of(&server);
    let text = [mesh("a"), mesh("b"), mesh("c"), mesh("d")].join("---\n");
    let ran = program.run_with_stdin(&["apply", "-f", "-"], &text).failed(1);
    assert_eq!(
        ran.err,
        "Mesh \"a\" created\nerror: Mesh \"b\" was not applied: the control plane refused it: Could not process a \
         resource (Resource is not valid)\n* mtls: must be right [400]\n1 resource applied before it (1 written, 0 \
         unchanged); not applied:\n* Mesh \"c\"\n* Mesh \"d\"\n"
    );
    assert_eq!(server.puts().len(), 2, "nothing is sent after a failure");
}

#[test]
fn results_have_every_form() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let run =
        |name: &str, format| program.run_with_stdin(&["apply", "-f", "-", "-o", format], &mesh(name)).ok();
    assert_eq!(
        run("a", "json").json(),
        json!([{"type": "Mesh", "mesh": "", "name": "a", "action": "created"}])
    );
    assert_eq!(run("b", "table").lines(), ["TYPE   MESH   NAME   ACTION", "Mesh   -      b      created"]);
    assert_eq!(run("c", "name").out, "mesh/c\n");
    assert!(run("d", "yaml").out.contains("action: created"));
    assert!(run("a", "yaml").out.contains("action: unchanged"));
}

#[test]
fn a_proposed_virtual_outbound_is_sent_as_written_and_shown_as_shipped() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let text = include_str!("../../../../crates/resources/tests/proposal/my-service.yaml");
    let file = program.file("my-service.yaml", text);
    let dry = program.run(&["apply", "-f", &file, "--dry-run"]).ok();
    let shipped = "write {\"match\":{\"kuma.io/service\":\"my-service\"}}";
    assert!(dry.err.contains(shipped), "{}", dry.err);
    let ran = program.run(&["apply", "-f", &file]).ok();
    assert!(ran.err.contains(shipped), "{}", ran.err);
    let sent = control_plane.puts().remove(0).json();
    assert_eq!(sent["selectors"], json!([{ "match": null, "kuma.io/service": "my-service" }]));
    let stored = control_plane.spec(Kind::VirtualOutbound, "default", "my-service");
    assert_eq!(stored["selectors"], json!([{ "match": { "kuma.io/service": "my-service" } }]));
}
