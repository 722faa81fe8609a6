//! Types: all of them in help, and what to write instead of one that there is not.

use resources::{Kind, superseded::SUPERSEDED};

use crate::{control_plane::ZoneControlPlane, program::Program};

#[test]
fn help_of_get_lists_every_type_with_its_short_name() {
    let help = Program::new().run(&["get", "--help"]).ok().out;
    for kind in Kind::ALL.iter().map(|kind| kind.descriptor()).filter(|kind| !kind.path.is_empty()) {
        let expect = [Some(kind.name), kind.short];
        let words: Vec<&str> = expect.into_iter().flatten().collect();
        let listed = help.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == words);
        assert!(listed, "{words:?} in {help}");
    }
    let told = help.split_once("Known in Kuma, not supported by kuma-rs:").expect("what is not supported").1;
    for kind in SUPERSEDED {
        assert!(told.contains(kind.name), "{}", kind.name);
    }
}

#[test]
fn a_slip_in_a_type_is_answered_with_the_type_meant() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    for (spelling, meant) in
        [("meshtimout", "meshtimeouts"), ("MeshRetyr", "MeshRetry"), ("dataplnaes", "dataplanes")]
    {
        let ran = program.run(&["get", spelling]).failed(2);
        let expect = format!("unknown resource type {spelling:?}; did you mean ");
        let said = ran.err.split_once(&expect).expect(&ran.err).1;
        assert!(
            said.to_lowercase().starts_with(&format!("\"{}", meant.to_lowercase().trim_end_matches('s'))),
            "{said}"
        );
    }
    program.run(&["get", "deployments"]).failed(2).says("known types: meshes, ");
    program.run_with_stdin(&["apply", "--dry-run"], "name: a\ntype: MeshTimout\n").failed(2).says(
        "stdin:2: unknown resource type \"MeshTimout\": there is no such type; did you mean \"MeshTimeout\"?",
    );
    program.run(&["delte", "mesh", "a"]).failed(2).says("similar");
    program.run(&["get", "meshes", "--selctor", "a=b"]).failed(2).says("similar");
}

#[test]
fn types_of_kuma_that_are_not_supported_say_what_to_use() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    for spelling in ["traffic-permissions", "TrafficPermission", "trafficpermissions"] {
        program.run(&["get", spelling]).failed(2).says(
            "TrafficPermission is known in Kuma, not supported by kuma-rs: use MeshTrafficPermission instead",
        );
    }
    program
        .run(&["delete", "meshgateway", "a"])
        .failed(2)
        .says("MeshGateway is known in Kuma, not supported by kuma-rs: use a delegated gateway");
}
