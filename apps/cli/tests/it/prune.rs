//! `apply --set NAME --prune`: what the set contained before and does not any more is deleted, and nothing else.

use serde_json::{Value, json};

use crate::{program::Program, server::Server};

const SET: &str = "kumactl.kuma.io/set";
const FILTER: &str = "size=1000&filter%5Blabels.kumactl.kuma.io/set%5D=shop";
const MESH: &str = "type: Mesh\nname: a\n";

fn resource(kind: &str, name: &str, labels: &[(&str, &str)]) -> Value {
    let mut resource = json!({"type": kind, "name": name, "labels": {SET: "shop"}});
    if kind != "Mesh" {
        resource["mesh"] = "a".into();
    }
    for (label, value) in labels {
        resource["labels"][*label] = (*value).into();
    }
    resource
}

/// A control plane with two kinds, where the set has these members.
fn server(mode: &str, meshes: &[Value], timeouts: &[Value]) -> Server {
    let server = Server::start();
    let served = |name: &str, path: &str, scope: &str| json!({"name": name, "path": path, "scope": scope});
    server.on(
        "GET",
        "/_resources",
        200,
        json!({"resources": [
            served("Mesh", "meshes", "Global"),
            served("MeshInsight", "mesh-insights", "Global"),
            served("MeshTimeout", "meshtimeouts", "Mesh"),
            served("Unheard", "unheards", "Mesh"),
        ]}),
    );
    server.on("GET", "/config", 200, json!({"mode": mode}));
    for (path, items) in [("meshes", meshes), ("meshtimeouts", timeouts)] {
        let list = json!({"total": items.len(), "items": items, "next": null});
        server.on("GET", &format!("/{path}?{FILTER}"), 200, list);
    }
    server.on("PUT", "/meshes/a", 201, json!({}));
    server
}

fn deletions(server: &Server) -> Vec<String> {
    server.lines().into_iter().filter(|line| line.starts_with("DELETE")).collect()
}

#[test]
fn what_is_no_longer_in_the_set_is_deleted_and_meshes_go_last() {
    let meshes = [resource("Mesh", "a", &[]), resource("Mesh", "old", &[])];
    let server = server("zone", &meshes, &[resource("MeshTimeout", "t", &[])]);
    server.on("DELETE", "/meshes/old", 200, json!({}));
    server.on("DELETE", "/meshes/a/meshtimeouts/t", 200, json!({}));
    let program = Program::of(&server);
    let run = |more: &[&str]| {
        program.run_with_stdin(&[&["apply", "--set", "shop", "--prune"], more].concat(), MESH).ok()
    };

    run(&["--dry-run"])
        .says("MeshTimeout \"t\" in mesh \"a\" would be pruned\nMesh \"old\" would be pruned\ndry run: 1 resource valid");
    assert_eq!((deletions(&server).len(), server.puts().len()), (0, 0), "a dry run changes nothing");

    let ran = run(&["-o", "json"]);
    assert_eq!(ran.err, "Mesh \"a\" created\nMeshTimeout \"t\" in mesh \"a\" pruned\nMesh \"old\" pruned\n");
    assert_eq!(ran.json()[2], json!({"type": "Mesh", "mesh": "", "name": "old", "action": "pruned"}));
    assert_eq!(deletions(&server), ["DELETE /meshes/a/meshtimeouts/t", "DELETE /meshes/old"]);
    assert_eq!(server.puts()[0].json()["labels"], json!({SET: "shop"}), "what is applied joins the set");
}

#[test]
fn what_is_not_the_users_is_never_pruned() {
    let timeouts = [
        resource("MeshTimeout", "generated", &[("kuma.io/managed-by", "k8s-controller")]),
        resource("MeshTimeout", "synced", &[("kuma.io/origin", "global")]),
        resource("MeshTimeout", "system", &[("kuma.io/policy-role", "system")]),
        resource("MeshTimeout", "in-kuma", &[("k8s.kuma.io/namespace", "kuma-system")]),
        resource("MeshTimeout", "other", &[(SET, "another")]),
    ];
    let zone = server("zone", &[], &timeouts);
    let ran = Program::of(&zone).run_with_stdin(&["apply", "--set", "shop", "--prune"], MESH).ok();
    for name in ["generated", "synced", "system", "in-kuma", "other"] {
        assert!(
            ran.err.contains(&format!("warning: MeshTimeout {name:?} in mesh \"a\" is not pruned: ")),
            "{}",
            ran.err
        );
    }
    assert_eq!(deletions(&zone), Vec::<String>::new());

    let of_zone = [resource("MeshTimeout", "east", &[("kuma.io/origin", "zone")])];
    let global = server("global", &[], &[&of_zone[..], &timeouts[1..2]].concat());
    global.on("DELETE", "/meshes/a/meshtimeouts/synced", 200, json!({}));
    let ran = Program::of(&global).run_with_stdin(&["apply", "--set", "shop", "--prune"], MESH).ok();
    ran.says("MeshTimeout \"east\" in mesh \"a\" is not pruned: it comes from a zone");
    assert_eq!(
        deletions(&global),
        ["DELETE /meshes/a/meshtimeouts/synced"],
        "on the global control plane it is one's own"
    );
}

#[test]
fn pruning_needs_a_set_and_a_resource_is_in_one_set() {
    let server = server("zone", &[], &[]);
    server.on("GET", "/meshes/a", 200, json!({"type": "Mesh", "name": "a", "labels": {SET: "another"}}));
    let program = Program::of(&server);
    program.run_with_stdin(&["apply", "--prune"], MESH).failed(2).says("--set <NAME>");
    program.run_with_stdin(&["apply", "--prune", "--set", ""], MESH).failed(2).says("cannot be empty");
    program.run_with_stdin(&["apply", "--prune", "--set", "a b"], MESH).failed(2);
    program
        .run_with_stdin(&["apply", "--set", "shop"], MESH)
        .failed(2)
        .says("Mesh \"a\" is in set \"another\"")
        .says("hint: a resource is in one set");
    program
        .run_with_stdin(&["apply", "--prune", "--set", "shop"], "# nothing\n")
        .failed(2)
        .says("holds no resources");
    assert_eq!((server.puts().len(), deletions(&server).len()), (0, 0));
}

#[test]
fn nothing_is_pruned_when_something_was_not_applied() {
    let server = server("zone", &[], &[resource("MeshTimeout", "t", &[])]);
    server.replace("PUT", "/meshes/a", 400, json!({"title": "no"}));
    let program = Program::of(&server);
    program.run_with_stdin(&["apply", "--set", "shop", "--prune"], MESH).failed(1).says("was not applied");
    assert_eq!(deletions(&server), Vec::<String>::new());

    server.replace("PUT", "/meshes/a", 201, json!({}));
    server.on("DELETE", "/meshes/a/meshtimeouts/t", 403, json!({"title": "Access Denied"}));
    program
        .run_with_stdin(&["apply", "--set", "shop", "--prune"], MESH)
        .failed(1)
        .says("everything was applied, but not pruned:\ncould not delete MeshTimeout \"t\"");
}

#[test]
fn the_control_plane_is_asked_what_pruning_would_do() {
    let server = server("zone", &[], &[resource("MeshTimeout", "t", &[])]);
    let change = json!({"type": "MeshTimeout", "mesh": "a", "name": "t", "action": "delete"});
    server.on("POST", "/meshes/a/_what-if", 200, json!({"changes": [change]}));
    let program = Program::of(&server);
    let ran = program.run_with_stdin(&["apply", "--set", "shop", "--prune", "--dry-run=server"], MESH).ok();
    assert!(ran.out.contains("MeshTimeout \"t\" in mesh \"a\" would be deleted"), "{}", ran.out);
    let asked = server.requests().into_iter().find(|request| request.method == "POST").unwrap().json();
    assert_eq!(asked["delete"], json!([{"type": "MeshTimeout", "mesh": "a", "name": "t"}]));
}

#[test]
fn nothing_is_pruned_when_something_was_skipped() {
    let server = server("zone", &[], &[resource("MeshTimeout", "t", &[])]);
    let program = Program::of(&server);
    let misspelled = "type: MeshTimout\nmesh: a\nname: t\n";
    for text in [format!("{MESH}---\n{misspelled}"), misspelled.to_owned()] {
        for dry_run in [&[][..], &["--dry-run"], &["--dry-run=server"]] {
            let arguments = [&["apply", "--set", "shop", "--prune", "--skip-unknown"], dry_run].concat();
            program
                .run_with_stdin(&arguments, &text)
                .failed(2)
                .says("did you mean \"MeshTimeout\"?")
                .says("nothing was sent: --prune cannot tell what to delete");
        }
    }
    assert_eq!((server.puts().len(), deletions(&server).len()), (0, 0));
}
