//! `suggest permissions`: what to write for calls that were observed.

use serde_json::{Value, json};
use testkit::spec;

use crate::{
    control_plane::ZoneControlPlane,
    observed_mesh::{
        BACKEND, DB, SINCE, SOON_AFTER, UNTIL, add_service, allow, complete, deny, everybody, observed,
        permission, proxy, suggestions,
    },
    program::{Program, cells},
    server::Server,
};

fn allow_to(server: &str, client: &str) -> Value {
    json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": format!("allow-to-{server}-80"),
        "labels": { "kuma.io/origin": "zone" },
        "spec": { "targetRef": spec::tagged(server),
            "from": [{ "targetRef": spec::tagged(client), "default": { "action": "Allow" } }] } })
}

#[test]
fn suggestions_are_yaml_to_apply_with_who_called_in_comments() {
    let control_plane = observed("off", SINCE);
    let old_web = json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "web", "version": "old" } });
    control_plane.put([
        everybody(),
        deny("db", "backend"),
        permission("no-old", spec::tagged("backend"), &[(old_web, "Deny")]),
    ]);
    for (number, name) in [(2, "db"), (3, "cron")] {
        add_service(&control_plane, name, number, SINCE);
    }
    control_plane.observe(SOON_AFTER, &[("web", DB, 1), ("db", BACKEND, 7)]);
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["suggest", "permissions"]).ok();
    let called =
        |server: &str, calls: &str| format!("# spiffe://default/web called {server} (calls: {calls})");
    let first = called(BACKEND, "7, first 2026-01-01T00:00:00Z, last 2026-01-01T00:00:00Z");
    let note = "# note: kri_mtp_default_east__no-old_rule_0 denies clients tagged kuma.io/service=web, version=old, \
                which no proxy of web is now: this permission would let it in";
    assert_eq!(&ran.lines()[..2], [first.as_str(), note]);
    let documents = resources::format::yaml::documents(&ran.out).unwrap();
    let values: Vec<&Value> = documents.iter().map(|document| &document.value).collect();
    assert_eq!(values, [&allow_to("backend", "web"), &allow_to("db", "web")]);
    for said in [
        "warning: observed for 3 h: a daily or weekly job would not have been seen",
        "warning: spiffe://default/db called kri_msvc_default_east__backend_80 (calls: 7, last \
         2026-01-01T03:00:00Z); kri_mtp_default_east__no_rule_0 denies it, and no suggestion allows it\n",
        "warning: kri_msvc_default_east__cron_80 was called by no one: once all else is refused, no client can \
         call it",
    ] {
        assert!(ran.err.contains(said), "{said} in {ran:#?}");
    }
    let applied = program.run_with_stdin(&["apply", "--dry-run", "-f", "-"], &ran.out);
    assert!(applied.ok().err.contains("2 resources valid"));
    let answer = suggestions(&control_plane);
    assert_eq!(program.run(&["suggest", "permissions", "-o", "json"]).ok().json(), answer);
    let table = program.run(&["suggest", "permissions", "-o", "table"]).ok();
    let row = ["allow-to-backend-80", "spiffe://default/web", BACKEND, "7"];
    assert_eq!(cells(table.lines()[1])[..4], row);
}

#[test]
fn what_is_refused_now_says_so_in_its_comment() {
    let control_plane = observed("off", SOON_AFTER);
    let ran = Program::at(&control_plane.url).run(&["suggest", "permissions"]).ok();
    assert!(ran.lines()[0].ends_with("last 2026-01-01T03:00:00Z); it is refused now"), "{ran:#?}");
}

#[test]
fn what_was_suggested_is_applied_and_not_suggested_again() {
    let control_plane = observed("off", SOON_AFTER);
    let program = Program::at(&control_plane.url);
    let suggested = program.run(&["suggest", "permissions"]).ok().out;
    program.run_with_stdin(&["apply", "-f", "-"], &suggested).ok();
    let again = program.run(&["suggest", "permissions"]).ok();
    assert_eq!(again.out, "");
    again.says("nothing to suggest: 1 observed call is allowed already");
}

#[test]
fn one_service_is_queried_by_name_and_an_empty_answer_says_so() {
    let control_plane = complete("off");
    control_plane.put([proxy("db-1", "db"), allow("db", "backend")]);
    control_plane.observe(UNTIL, &[("db", BACKEND, 1)]);
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["suggest", "permissions", "--service", "backend"]).ok();
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("nothing to suggest: 2 observed calls are allowed already"), "{ran:#?}");
    program
        .run(&["suggest", "permissions", "--service", "x"])
        .failed(1)
        .says("could not get suggestions for mesh \"default\"")
        .says("nothing in the mesh is called \"x\"");
}

#[test]
fn names_of_meshes_and_services_arrive_as_they_were_given() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({ "type": "Mesh", "name": "my shop" }));
    let program = Program::at(&control_plane.url);
    program
        .run(&["suggest", "permissions", "-m", "my shop", "--service", "a&b"])
        .failed(1)
        .says("could not get suggestions for mesh \"my shop\"")
        .says("nothing in the mesh is called \"a&b\"");
    assert_eq!(control_plane.lines(), ["GET /meshes/my%20shop/_suggestions?service=a%26b"]);
    program.run(&["suggest", "permissions", "-m", "your shop"]).failed(1).says("mesh \"your shop\"");
}

/// No control plane of ours writes a note of two lines; a broken or hostile one may.
#[test]
fn a_comment_stays_one_whatever_a_control_plane_says() {
    let server = Server::start();
    let called =
        json!({ "caller": "spiffe://default/web\nname: other", "destination": "backend", "count": 1 });
    let resource = allow_to("backend", "web");
    let permission = json!({ "resource": resource, "evidence": [called], "notes": ["it selects\nmore"] });
    server.on("GET", "/meshes/default/_suggestions", 200, json!({ "permissions": [permission] }));
    let ran = Program::of(&server).run(&["suggest", "permissions"]).ok();
    assert!(ran.lines()[0].starts_with(r"# spiffe://default/web\nname: other called backend"), "{ran:#?}");
    assert_eq!(ran.lines()[1], r"# note: it selects\nmore");
    assert_eq!(resources::format::yaml::documents(&ran.out).unwrap()[0].value, resource);
}
