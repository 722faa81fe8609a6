//! `apply` says how many proxies a policy selects.

use serde_json::json;

use crate::{program::Program, server::Server};

const TIMEOUT: &str = "type: MeshTimeout\nname: slow\nspec:\n  to:\n  - targetRef: {kind: Mesh}\n    default: \
                       {connectionTimeout: 5s}\n";
const PATH: &str = "/meshes/default/meshtimeouts/slow";
const SELECTED: &str = "/meshes/default/meshtimeouts/slow/_resources/dataplanes?size=1";

#[test]
fn a_policy_that_was_applied_is_said_to_select_so_many_proxies() {
    let server = Server::start();
    server.on("PUT", PATH, 201, json!({}));
    for total in [3, 1, 0] {
        server.on("GET", SELECTED, 200, json!({"total": total, "items": []}));
    }
    let program = Program::of(&server);
    let file = program.file("slow.yaml", TIMEOUT);
    let label = "MeshTimeout \"slow\" in mesh \"default\"";
    for expect in ["  selects 3 proxies", "  selects 1 proxy", &format!("warning: {label} selects 0 proxies")]
    {
        let ran = program.run(&["apply", "-f", &file]).ok();
        assert_eq!(ran.err, format!("{label} created\n{expect}\n"));
    }
    let ran = program.run(&["apply", "-f", &file, "-o", "json"]).ok();
    assert_eq!(ran.json()[0]["selects"], 0);
}

#[test]
fn an_inspection_that_fails_is_no_failure_of_apply() {
    let server = Server::start();
    server.on("PUT", PATH, 201, json!({}));
    server.on("GET", SELECTED, 500, json!({"title": "boom"}));
    let ran = Program::of(&server).run_with_stdin(&["apply"], TIMEOUT).ok();
    assert_eq!(ran.err, "MeshTimeout \"slow\" in mesh \"default\" created\n");
}

#[test]
fn only_policies_are_asked_about_and_only_a_bounded_number() {
    let server = Server::start();
    server.on("PUT", "/meshes/a", 201, json!({}));
    let mut text = "type: Mesh\nname: a\n".to_owned();
    for index in 0..110 {
        server.on("PUT", &format!("/meshes/default/meshtimeouts/t{index}"), 201, json!({}));
        text.push_str(&format!("---\n{}", TIMEOUT.replace("slow", &format!("t{index}"))));
    }
    Program::of(&server).run_with_stdin(&["apply"], &text).ok();
    let asked: Vec<String> = server.lines().into_iter().filter(|line| line.contains("_resources")).collect();
    assert_eq!(asked.len(), 100);
    assert_eq!(server.puts().len(), 111);
}
