//! What `apply` sends, and what it says about it.

use std::fs;

use serde_json::json;

use crate::{program::Program, server::Server};

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
    let server = Server::start();
    server.on("PUT", TIMEOUT_PATH, 201, json!({}));
    let program = Program::of(&server);
    let file = program.file("slow.yaml", TIMEOUT);
    let ran = program.run(&["apply", "-f", &file]).ok();
    assert_eq!(ran.err, "MeshTimeout \"slow\" in mesh \"default\" created\n");
    assert_eq!(ran.out, "", "no data was asked for");
    let selected = format!("GET {TIMEOUT_PATH}/_resources/dataplanes?size=1");
    assert_eq!(server.lines(), [format!("GET {TIMEOUT_PATH}"), format!("PUT {TIMEOUT_PATH}"), selected]);
    let sent = server.puts().remove(0);
    assert_eq!(sent.headers["content-type"], "application/json");
    assert_eq!(
        sent.json(),
        json!({"type": "MeshTimeout", "mesh": "default", "name": "slow", "spec": {
            "targetRef": {"kind": "Mesh"},
            "to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "5s"}}}],
        }})
    );
}

#[test]
fn what_the_control_plane_has_already_is_left_unchanged() {
    let server = Server::start();
    let mut stored = json!({
        "type": "MeshTimeout", "mesh": "default", "name": "slow",
        "creationTime": "2024-01-01T00:00:00Z", "modificationTime": "2024-01-01T00:00:00Z",
        "labels": {"kuma.io/mesh": "default", "kuma.io/origin": "zone"}, "kri": "kri_mt_default___slow_",
        "spec": {
            "targetRef": {"kind": "Mesh"},
            "to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "5s"}}}],
        },
    });
    server.on("GET", TIMEOUT_PATH, 200, stored.clone());
    stored["labels"]["team"] = "a".into();
    server.on("GET", TIMEOUT_PATH, 200, stored);
    server.on("PUT", TIMEOUT_PATH, 200, json!({}));
    let program = Program::of(&server);
    let file = program.file("slow.yaml", TIMEOUT);
    program.run(&["apply", "-f", &file]).ok().says("unchanged");
    assert!(server.puts().is_empty(), "{:?}", server.lines());
    program.run(&["apply", "-f", &file]).ok().says("updated");
    assert_eq!(server.puts().len(), 1, "a label of the user's is gone, which is a change");
}

#[test]
fn what_the_control_plane_calls_unchanged_is_unchanged() {
    let server = Server::start();
    let stored = json!({"type": "Mesh", "name": "a", "mtls": {}});
    server.on("GET", "/meshes/a", 200, stored);
    server.reply("PUT", "/meshes/a", 200, &[("X-Kuma-Outcome", "unchanged")], "{}");
    let ran = Program::of(&server).run_with_stdin(&["apply"], &mesh("a")).ok();
    assert_eq!(ran.err, "Mesh \"a\" unchanged\n");
    assert_eq!(server.puts().len(), 1);
}

#[test]
fn directories_stdin_and_urls_are_sources_and_meshes_go_first() {
    let server = Server::start();
    for name in ["a", "b", "c", "d"] {
        server.on("PUT", &format!("/meshes/{name}"), 201, json!({}));
    }
    server.on("PUT", TIMEOUT_PATH, 201, json!({}));
    server.reply("GET", "/files/mesh.yaml", 200, &[], &mesh("d"));
    let program = Program::of(&server);
    program.file("dir/1.yaml", TIMEOUT);
    program.file("dir/2.yml", mesh("a"));
    program.file("dir/3.json", "{\"type\": \"Mesh\", \"name\": \"b\"}");
    program.file("dir/notes.txt", "not: [yaml");
    program.file("dir/deeper/4.yaml", mesh("never"));
    let url = format!("{}/files/mesh.yaml", server.url);
    let ran =
        program.run_with_stdin(&["apply", "-f", "dir", "-f", "-", "-f", &url, "-o", "name"], &mesh("c")).ok();
    assert_eq!(ran.lines(), ["mesh/a", "mesh/b", "mesh/c", "mesh/d", "meshtimeout/slow"]);
    let piped = program.run_with_stdin(&["apply"], &mesh("c")).ok();
    assert_eq!(piped.err, "Mesh \"c\" created\n");
    program.run(&["apply", "-f", "dir", "-R", "--dry-run"]).ok().says("4 resources");
}

#[test]
fn the_kubernetes_form_is_sent_in_universal_form() {
    let server = Server::start();
    server.on("PUT", "/meshes/shop/meshtimeouts/slow.demo", 201, json!({}));
    let program = Program::of(&server);
    let text = "apiVersion: kuma.io/v1alpha1\nkind: MeshTimeout\nmetadata:\n  name: slow\n  namespace: demo\n  \
                labels: {kuma.io/mesh: shop}\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: {idleTimeout: 5s}\n";
    program.run_with_stdin(&["apply", "-f", "-"], text).ok().says("created");
    let sent = server.puts().remove(0).json();
    assert_eq!(
        (&sent["type"], &sent["mesh"], &sent["name"]),
        (&json!("MeshTimeout"), &json!("shop"), &json!("slow.demo"))
    );
    assert_eq!(sent["labels"]["k8s.kuma.io/namespace"], "demo");
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
    let server = Server::start();
    server.on("PUT", "/meshes/a", 201, json!({"warnings": ["something is deprecated"]}));
    server.on("PUT", TIMEOUT_PATH, 201, json!({"warnings": ["unknown field \"spec.bogus\" was dropped"]}));
    let program = Program::of(&server);
    let ran = program.run_with_stdin(&["apply", "-f", "-"], "type: Mesh\nname: a\nbogus: 1\n").ok();
    assert_eq!(
        ran.err,
        "warning: Mesh \"a\": something is deprecated\nwarning: Mesh \"a\": unknown field bogus, it has no effect\n\
         Mesh \"a\" created\n"
    );
    assert_eq!(server.puts()[0].json()["bogus"], 1, "a newer control plane may know the field");
    let ran = program
        .run_with_stdin(&["apply", "-f", "-"], &TIMEOUT.replace("spec:\n", "spec:\n  bogus: 1\n"))
        .ok();
    assert_eq!(ran.err.matches("spec.bogus").count(), 1, "{}", ran.err);
}

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
    let server = Server::start();
    server.on("PUT", "/meshes/a", 201, json!({}));
    let program = Program::of(&server);
    fs::write(program.home.path().join("a.yaml"), mesh("a")).unwrap();
    let run = |format| program.run(&["apply", "-f", "a.yaml", "-o", format]).ok();
    assert_eq!(run("json").json(), json!([{"type": "Mesh", "mesh": "", "name": "a", "action": "created"}]));
    assert_eq!(run("table").lines(), ["TYPE   MESH   NAME   ACTION", "Mesh   -      a      created"]);
    assert_eq!(run("name").out, "mesh/a\n");
    assert!(run("yaml").out.contains("action: created"));
}

#[test]
fn a_virtual_outbound_as_proposed_is_sent_as_written_and_a_dry_run_shows_the_shipped_form() {
    let server = Server::start();
    server.on(
        "PUT",
        "/meshes/default/virtual-outbounds/my-service",
        201,
        json!({ "warnings": ["as shipped"] }),
    );
    let program = Program::of(&server);
    let text = include_str!("../../../../crates/resources/tests/proposal/my-service.yaml");
    let file = program.file("my-service.yaml", text);
    let dry = program.run(&["apply", "-f", &file, "--dry-run"]).ok();
    let shipped = "write {\"match\":{\"kuma.io/service\":\"my-service\"}}";
    assert!(dry.err.contains(shipped), "{}", dry.err);
    let ran = program.run(&["apply", "-f", &file]).ok();
    assert!(ran.err.contains("as shipped"), "{}", ran.err);
    let sent = server.puts().remove(0).json();
    assert_eq!(sent["selectors"], json!([{ "match": null, "kuma.io/service": "my-service" }]));
}
