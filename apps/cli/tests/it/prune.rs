//! `apply --set NAME --prune`: what the set contained before and does not any more is deleted, and nothing else.

use serde_json::{Value, json};

use crate::{control_plane::ZoneControlPlane, program::Program, server::Server};

const SET: &str = "kumactl.kuma.io/set";
const MESH: &str = "type: Mesh\nname: a\n";

fn resource(kind: &str, name: &str, labels: &[(&str, &str)]) -> Value {
    let mut resource = json!({"type": kind, "name": name, "labels": {SET: "shop"}});
    if kind != "Mesh" {
        resource["mesh"] = "a".into();
        let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "1s"}}]);
        resource["spec"] = json!({"to": to});
    }
    for (label, value) in labels {
        resource["labels"][*label] = (*value).into();
    }
    resource
}

/// A control plane with a mesh `a` and these resources, the meshes first.
fn filled(control_plane: ZoneControlPlane, resources: &[Value]) -> (ZoneControlPlane, Program) {
    control_plane.store(json!({"type": "Mesh", "name": "a"}));
    resources.iter().for_each(|resource| control_plane.store(resource.clone()));
    let program = Program::at(&control_plane.url);
    (control_plane, program)
}

fn deletions(control_plane: &ZoneControlPlane) -> Vec<String> {
    control_plane.lines().into_iter().filter(|line| line.starts_with("DELETE")).collect()
}

#[test]
fn what_is_no_longer_in_the_set_is_deleted_and_meshes_go_last() {
    let (control_plane, program) =
        filled(ZoneControlPlane::start(), &[resource("Mesh", "old", &[]), resource("MeshTimeout", "t", &[])]);
    let run = |more: &[&str]| {
        program.run_with_stdin(&[&["apply", "--set", "shop", "--prune"], more].concat(), MESH).ok()
    };

    run(&["--dry-run"])
        .says("MeshTimeout \"t\" in mesh \"a\" would be pruned\nMesh \"old\" would be pruned\ndry run: 1 resource valid");
    assert_eq!(
        (deletions(&control_plane).len(), control_plane.puts().len()),
        (0, 0),
        "a dry run changes nothing"
    );

    let ran = run(&["-o", "json"]);
    assert_eq!(ran.err, "Mesh \"a\" updated\nMeshTimeout \"t\" in mesh \"a\" pruned\nMesh \"old\" pruned\n");
    assert_eq!(ran.json()[2], json!({"type": "Mesh", "mesh": "", "name": "old", "action": "pruned"}));
    assert_eq!(deletions(&control_plane), ["DELETE /meshes/a/meshtimeouts/t", "DELETE /meshes/old"]);
    let stored = control_plane.get("/meshes/a");
    assert_eq!(stored["labels"][SET], "shop", "what is applied joins the set");
    let again = run(&[]);
    assert_eq!(again.err, "Mesh \"a\" unchanged\n", "nothing is left to prune");
}

#[test]
fn what_is_not_the_users_is_never_pruned() {
    let timeouts = [
        resource("MeshTimeout", "generated", &[("kuma.io/managed-by", "k8s-controller")]),
        resource("MeshTimeout", "synced", &[("kuma.io/origin", "global")]),
        resource("MeshTimeout", "system", &[("kuma.io/policy-role", "system")]),
        resource("MeshTimeout", "in-kuma", &[("k8s.kuma.io/namespace", "kuma-system")]),
    ];
    let other = resource("MeshTimeout", "other", &[(SET, "another")]);
    let (zone, program) = filled(ZoneControlPlane::start(), &[&timeouts[..], &[other]].concat());
    let prune = ["apply", "--set", "shop", "--prune"];
    let ran = program.run_with_stdin(&prune, MESH).ok();
    for name in ["generated", "synced", "system", "in-kuma"] {
        assert!(
            ran.err.contains(&format!("warning: MeshTimeout {name:?} in mesh \"a\" is not pruned: ")),
            "{}",
            ran.err
        );
    }
    assert!(!ran.err.contains("other"), "{}", ran.err);
    assert_eq!(deletions(&zone), Vec::<String>::new());

    let of_zone = resource("MeshTimeout", "east", &[("kuma.io/origin", "zone")]);
    let (global, program) = filled(ZoneControlPlane::global(), &[of_zone, timeouts[1].clone()]);
    let ran = program.run_with_stdin(&prune, MESH).ok();
    ran.says("MeshTimeout \"east\" in mesh \"a\" is not pruned: it comes from a zone");
    assert_eq!(
        deletions(&global),
        ["DELETE /meshes/a/meshtimeouts/synced"],
        "on the global control plane it is one's own"
    );
}

/// An older control plane may give everything, whatever the filter.
#[test]
fn a_control_plane_that_does_not_filter_loses_nothing() {
    let server = Server::start();
    let kinds = json!([{"name": "MeshTimeout", "path": "meshtimeouts", "scope": "Mesh"}]);
    server.on("GET", "/_resources", 200, json!({"resources": kinds}));
    let other = resource("MeshTimeout", "other", &[(SET, "another")]);
    let list = json!({"total": 1, "items": [other], "next": null});
    server.on("GET", "/meshtimeouts?size=1000&filter%5Blabels.kumactl.kuma.io/set%5D=shop", 200, list);
    server.on("PUT", "/meshes/a", 201, json!({}));
    let ran = Program::of(&server).run_with_stdin(&["apply", "--set", "shop", "--prune"], MESH).ok();
    ran.says("MeshTimeout \"other\" in mesh \"a\" is not pruned: it is not in the set");
    assert!(!server.lines().iter().any(|line| line.starts_with("DELETE")), "{:?}", server.lines());
}

#[test]
fn pruning_needs_a_set_and_a_resource_is_in_one_set() {
    let (control_plane, program) =
        filled(ZoneControlPlane::start(), &[resource("Mesh", "a", &[(SET, "another")])]);
    program.run_with_stdin(&["apply", "--prune"], MESH).failed(2).says("--set <NAME>");
    program.run_with_stdin(&["apply", "--prune", "--set", ""], MESH).failed(2).says("cannot be empty");
    program.run_with_stdin(&["apply", "--prune", "--set", "a b"], MESH).failed(2);
    program
        .run_with_stdin(&["apply", "--set", "shop"], MESH)
        .failed(2)
        .says("Mesh \"a\" is in set \"another\"")
        .says("hint: a resource belongs to one set");
    program
        .run_with_stdin(&["apply", "--prune", "--set", "shop"], "# nothing\n")
        .failed(2)
        .says("holds no resources");
    assert_eq!((control_plane.puts().len(), deletions(&control_plane).len()), (0, 0));
}

#[test]
fn nothing_is_pruned_when_something_was_not_applied() {
    let (control_plane, program) =
        filled(ZoneControlPlane::start(), &[resource("Mesh", "old", &[]), resource("MeshTimeout", "t", &[])]);
    let dataplane = json!({"networking": {"address": "10.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "w"}}]}});
    let in_mesh = |mesh: &str| {
        let mut of = dataplane.clone();
        of["type"] = "Dataplane".into();
        (of["mesh"], of["name"]) = (mesh.into(), "web".into());
        of
    };
    let prune = ["apply", "--set", "shop", "--prune"];
    let text = format!("{MESH}---\n{}\n", in_mesh("none"));
    program
        .run_with_stdin(&prune, &text)
        .failed(1)
        .says("the control plane would refuse this, nothing was written");
    assert_eq!(deletions(&control_plane), Vec::<String>::new());

    control_plane.store(in_mesh("old"));
    program
        .run_with_stdin(&prune, MESH)
        .failed(1)
        .says("MeshTimeout \"t\" in mesh \"a\" pruned\n")
        .says("everything was applied, but not pruned:\ncould not delete Mesh \"old\"");
}

#[test]
fn the_control_plane_is_asked_what_pruning_would_do() {
    let (control_plane, program) = filled(ZoneControlPlane::start(), &[resource("MeshTimeout", "t", &[])]);
    let ran = program.run_with_stdin(&["apply", "--set", "shop", "--prune", "--dry-run=server"], MESH).ok();
    assert!(ran.out.contains("MeshTimeout \"t\" in mesh \"a\" would be deleted"), "{}", ran.out);
    let asked = control_plane.requests().into_iter().find(|request| request.method == "POST").unwrap().json();
    assert_eq!(asked["delete"], json!([{"type": "MeshTimeout", "mesh": "a", "name": "t"}]));
    assert_eq!(control_plane.get("/meshes/a/meshtimeouts")["total"], 1, "it is still there");
}

#[test]
fn nothing_is_pruned_when_something_was_skipped() {
    let (control_plane, program) = filled(ZoneControlPlane::start(), &[resource("MeshTimeout", "t", &[])]);
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
    assert_eq!((control_plane.puts().len(), deletions(&control_plane).len()), (0, 0));
}
