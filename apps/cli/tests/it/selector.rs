//! `-l` in the syntax of Kubernetes.

use resources::Kind;
use serde_json::json;

use crate::{control_plane::ZoneControlPlane, program::Program};

/// A control plane with meshes of teams, and one of none.
fn meshes() -> (ZoneControlPlane, Program) {
    let control_plane = ZoneControlPlane::start();
    control_plane.delete(Kind::Mesh, "", "default");
    for (name, team) in [("a", Some("t1")), ("b", Some("t3")), ("c", None), ("d", Some("t4"))] {
        let labels = team.map(|team| json!({"team": team})).unwrap_or_else(|| json!({}));
        control_plane.store(json!({"type": "Mesh", "name": name, "labels": labels}));
    }
    let program = Program::at(&control_plane.url);
    (control_plane, program)
}

#[test]
fn what_the_control_plane_cannot_filter_by_is_filtered_here() {
    let (_control_plane, program) = meshes();
    let names = |arguments: &[&str]| {
        let ran = program.run(&[&["get", "meshes", "-o", "name"], arguments].concat()).ok();
        ran.lines().iter().map(|line| line.replace("mesh/", "")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&["-l", "team!=t3"]), "a c d");
    assert_eq!(names(&["-l", "team in (t1, t3)"]), "a b");
    assert_eq!(names(&["-l", "team notin (t1,t3)"]), "c d");
    assert_eq!(names(&["-l", "team"]), "a b d");
    assert_eq!(names(&["-l", "!team"]), "c");
    assert_eq!(names(&["-l", "team", "-l", "team!=t1"]), "b d");
    let page =
        program.run(&["get", "meshes", "-l", "team", "--size", "1", "--offset", "1", "-o", "name"]).ok();
    assert_eq!(page.out, "mesh/b\n");
    page.says("1 of 3 shown; continue with --offset 2");
    let json = program.run(&["get", "meshes", "-l", "!team", "-o", "json"]).ok().json();
    assert_eq!((&json["total"], &json["items"][0]["name"]), (&json!(1), &json!("c")));
}

#[test]
fn equality_is_filtered_by_the_control_plane() {
    let (control_plane, program) = meshes();
    for selector in ["team=t1", "team==t1", "team in (t1)", "team=t1,team!=t2"] {
        assert_eq!(
            program.run(&["get", "meshes", "-l", selector, "-o", "name"]).ok().out,
            "mesh/a\n",
            "{selector}"
        );
        let path = "GET /meshes?size=1000&filter%5Blabels.team%5D=t1";
        assert_eq!(control_plane.lines().last().unwrap(), path, "{selector}");
    }
}

#[test]
fn what_is_no_selector_is_refused_with_the_place() {
    let program = Program::new();
    for (selector, expect) in [
        ("team=a,,b", "at character 8: expected the key of a label, found `,`"),
        ("team=>a", "at character 6: expected a comma or the end, found `>`"),
        ("te am", "at character 4: expected `=`"),
        ("team!", "at character 5: expected `=`"),
    ] {
        program.run(&["get", "meshes", "-l", selector]).failed(2).says(expect);
    }
}
