//! `suggest permissions` and `migrate permissions`: what was observed, what that needs, and the steps to it.

use resources::Kind;
use serde_json::{Value, json};

use crate::{
    control_plane::{ControlPlane, synced},
    program::{Program, Ran, cells},
    server::Server,
};

const MODE: &str = "reachability.kuma.io/mode";
const BACKEND: &str = "kri_msvc_default___backend_80";
const WEB: &str = "spiffe://default/web";
const DB: &str = "spiffe://default/db";
/// More than the week that is asked for.
const LONG: i64 = 8 * 24;

/// A mesh with mTLS in this mode, where everyone may call `backend`.
fn mesh(mode: &str) -> ControlPlane {
    let control_plane = ControlPlane::start();
    control_plane.secure(json!({ MODE: mode, "mine": "kept" }));
    for app in ["web", "db", "backend"] {
        control_plane.dataplane(app, json!({ "app": app }), synced());
    }
    control_plane.service("backend");
    control_plane.store(permission("everybody", &json!({ "kind": "Mesh" }), "Allow"));
    control_plane
}

/// What it says about calls of all services from this one, or from everyone.
fn permission(name: &str, from: &Value, action: &str) -> Value {
    // As the control plane of a zone labels what users write there.
    let labels = json!({ "kuma.io/origin": "zone" });
    json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": name, "labels": labels, "spec": {
        "targetRef": { "kind": "Mesh" }, "from": [{ "targetRef": from, "default": { "action": action } }] } })
}

fn client(service: &str) -> Value {
    json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": service } })
}

/// The same, where `web` was seen to call `backend` for long enough.
fn observed(mode: &str) -> ControlPlane {
    let control_plane = mesh(mode);
    control_plane.observe(WEB, BACKEND, 7, LONG);
    control_plane
}

/// The same, where that is permitted.
fn permitted(mode: &str) -> ControlPlane {
    let control_plane = observed(mode);
    control_plane.store(permission("web", &client("web"), "Allow"));
    control_plane
}

fn migrate(control_plane: &ControlPlane, flags: &[&str]) -> Ran {
    Program::at(&control_plane.url).run(&[&["migrate", "permissions"], flags].concat())
}

fn writes(control_plane: &ControlPlane) -> Vec<String> {
    control_plane.lines().into_iter().filter(|line| !line.starts_with("GET")).collect()
}

#[track_caller]
fn refused(control_plane: &ControlPlane, step: &str, missing: &str) {
    let ran = migrate(control_plane, &["--yes", "--step", step]);
    assert_eq!(ran.code, 3, "{ran:#?}");
    let line = format!("{step}: missing: {missing}");
    assert!(ran.err.contains(&line), "expected {line:?} in {ran:#?}");
    assert!(ran.err.contains("refused, nothing was changed"), "{ran:#?}");
    assert_eq!(writes(control_plane), Vec::<String>::new());
    let forced = migrate(control_plane, &["--yes", "--step", step, "--force"]).ok();
    assert!(forced.err.contains("continuing because of --force"), "{forced:#?}");
}

#[test]
fn suggestions_are_yaml_to_apply_with_who_called_in_comments() {
    let control_plane = mesh("off");
    control_plane.service("web");
    control_plane.store(permission("no-db", &client("db"), "Deny"));
    control_plane.observe(WEB, BACKEND, 7, 3);
    control_plane.observe(DB, BACKEND, 2, 2);
    let program = Program::at(&control_plane.url);
    let answer = program.run(&["suggest", "permissions", "-o", "json"]).ok().json();
    let mut again = control_plane.get("/meshes/default/_suggestions");
    again["window"] = answer["window"].clone();
    assert_eq!(answer, again, "as the REST API says it, at its time");
    let ran = program.run(&["suggest", "permissions"]).ok();
    let (permission, denied) = (&answer["permissions"][0], &answer["denied"][0]);
    let time = |of: &Value, field: &str| of[field].as_str().unwrap().to_owned();
    let seen = &permission["evidence"][0];
    let first = format!(
        "# {WEB} called {BACKEND} (calls: 7, first {}, last {})",
        time(seen, "firstSeen"),
        time(seen, "lastSeen")
    );
    assert_eq!(ran.lines()[0], first);
    let documents = resources::format::yaml::documents(&ran.out).unwrap();
    let values: Vec<&Value> = documents.iter().map(|document| &document.value).collect();
    assert_eq!(values, [&permission["resource"]]);
    for said in [
        "warning: observed for 3 h: a daily or weekly job would not have been seen",
        &format!(
            "warning: {DB} called {BACKEND} (calls: 2, last {}); kri_mtp_default___no-db_rule_0 denies it, and no suggestion \
             allows it",
            time(denied, "lastSeen")
        ),
        "warning: kri_msvc_default___web_80 was called by no one: once all else is refused, no client can call it",
    ] {
        assert!(ran.err.contains(said), "{said} in {ran:#?}");
    }
    let applied = program.run_with_stdin(&["apply", "-f", "-"], &ran.out).ok();
    assert!(
        applied.err.contains("MeshTrafficPermission \"allow-to-backend-80\" in mesh \"default\" created"),
        "{applied:#?}"
    );
    assert!(applied.err.contains("selects 1 proxy"), "{applied:#?}");
    let table = program.run(&["suggest", "permissions", "-o", "table"]).ok();
    assert_eq!(table.lines().len(), 1, "it is permitted now: {table:#?}");
    control_plane.delete(Kind::MeshTrafficPermission, "default", "allow-to-backend-80");
    let table = program.run(&["suggest", "permissions", "-o", "table"]).ok();
    assert_eq!(cells(table.lines()[1])[..4], ["allow-to-backend-80", WEB, BACKEND, "7"]);
}

/// A note with two lines, which our control plane never writes.
#[test]
fn a_comment_stays_a_comment_whatever_the_control_plane_notes() {
    let server = Server::start();
    let resource = permission("p", &client("web"), "Allow");
    let permissions = json!([{ "resource": resource, "evidence": [], "notes": ["it selects\nmore"] }]);
    server.on("GET", "/meshes/default/_suggestions", 200, json!({ "permissions": permissions }));
    let ran = Program::of(&server).run(&["suggest", "permissions"]).ok();
    assert_eq!(ran.lines()[0], "# note: it selects more");
}

#[test]
fn one_service_is_asked_about_by_its_name_and_nothing_is_said_to_be_nothing() {
    let control_plane = permitted("off");
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["suggest", "permissions", "--service", "backend"]).ok();
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("nothing to suggest: 1 observed calls are allowed already"), "{ran:#?}");
    program
        .run(&["suggest", "permissions", "--service", "x&y"])
        .failed(1)
        .says("could not get suggestions for mesh \"default\"")
        .says("nothing in the mesh is called \"x&y\"");
    program.run(&["suggest", "permissions", "-m", "my shop"]).failed(1);
    assert_eq!(control_plane.lines().last().unwrap(), "GET /meshes/my%20shop/_suggestions");
}

#[test]
fn the_walk_takes_every_step_in_order_and_denies_everyone_last() {
    let control_plane = observed("off");
    let ran = migrate(&control_plane, &["--yes"]).ok();
    assert_eq!(
        writes(&control_plane),
        [
            "PUT /meshes/default/meshtrafficpermissions/allow-to-backend-80",
            "PUT /meshes/default",
            "PUT /meshes/default",
            "DELETE /meshes/default/meshtrafficpermissions/everybody",
            "PUT /meshes/default/meshtrafficpermissions/zz-deny-all",
        ]
    );
    let puts = control_plane.puts();
    let labels = |n: usize| puts[n].json()["labels"].clone();
    assert_eq!((&labels(1)[MODE], &labels(1)["mine"]), (&json!("shadow"), &json!("kept")));
    assert_eq!((&labels(2)[MODE], &labels(2)["mine"]), (&json!("enforce"), &json!("kept")));
    for said in [
        "check: mTLS is STRICT",
        "permissions: 1 permission would be written",
        "enforce: MeshTrafficPermissions everybody allow everyone: nothing is trimmed before the step deny",
        "deny: MeshTrafficPermission everybody deleted",
        "done: permissions decide about the mesh",
    ] {
        assert!(ran.err.contains(said), "{said} in {ran:#?}");
    }
    let program = Program::at(&control_plane.url);
    program.run(&["access", "web", "backend"]).answered(0);
    program.run(&["access", "db", "backend"]).answered(3);

    let done = writes(&control_plane);
    let ran = migrate(&control_plane, &["--yes"]).ok();
    assert_eq!(writes(&control_plane), done, "a mesh where everything is done is left alone");
    assert!(ran.err.contains("the mode of the mesh is enforce already"), "{ran:#?}");
    assert!(ran.err.contains("a policy states it already"), "{ran:#?}");
}

#[test]
fn observation_that_is_too_short_or_not_complete_is_refused() {
    let short = mesh("shadow");
    short.observe(WEB, BACKEND, 7, 3);
    let ran = migrate(&short, &["--step", "check", "--min-window", "2h"]).ok();
    assert!(ran.err.contains("calls are observed since 20"), "{ran:#?}");
    refused(&short, "check", "time: calls were observed for 3 h, and 7 d are required (--min-window)");
    refused(&mesh("shadow"), "check", "reports of calls: no proxy has sent one yet");
    let partial = permitted("shadow");
    partial.connect("web", &[]).reports();
    let _silent = partial.connect("db", &[]);
    refused(&partial, "check", "reports of 1 of 2 connected proxies");
    let too_many = permitted("shadow");
    (0..=1000).for_each(|n| too_many.observe(&format!("spiffe://default/client-{n}"), BACKEND, 1, 1));
    refused(&too_many, "check", "some of the calls: there were more than the control plane keeps");
}

#[test]
fn a_step_without_its_evidence_is_refused_and_says_what_is_missing() {
    let unseen = permitted("shadow");
    unseen.service("db");
    let missing = "a caller, or a permission that says who may call, of kri_msvc_default___db_80";
    refused(&unseen, "enforce", missing);
    refused(&observed("shadow"), "enforce", &format!("a permission for {WEB} to {BACKEND}"));
    let kept_out = observed("shadow");
    kept_out.delete(Kind::MeshTrafficPermission, "default", "everybody");
    let missing =
        "a decision, apply what `kumactl suggest permissions` says or deny by name what is refused now";
    refused(&kept_out, "permissions", &format!("{missing}: {WEB} to {BACKEND}"));
    refused(&permitted("shadow"), "deny", "the mode of the mesh is not enforce: run the step enforce first");
    refused(&permitted("off"), "enforce", "the mode of the mesh was never shadow");
}

#[test]
fn calls_that_get_through_at_some_servers_need_a_decision() {
    let control_plane = permitted("shadow");
    // One of two servers denies what the other lets in.
    control_plane.dataplane("backend-2", json!({ "app": "backend", "open": "no" }), synced());
    let mut deny = permission("no-db", &client("db"), "Deny");
    deny["spec"]["targetRef"] = json!({ "kind": "Dataplane", "labels": { "open": "no" } });
    control_plane.store(deny);
    control_plane.observe(DB, BACKEND, 7, 1);
    refused(&control_plane, "enforce", &format!("a decision: {DB} called {BACKEND} (calls: 7"));
}

#[test]
fn calls_that_would_be_trimmed_stop_the_walk_unless_a_policy_denies_them_by_name() {
    let control_plane = permitted("shadow");
    control_plane.delete(Kind::MeshTrafficPermission, "default", "everybody");
    control_plane.observe(DB, BACKEND, 7, 1);
    refused(&control_plane, "enforce", &format!("a permission for what would be trimmed: {DB} to {BACKEND}"));
    let control_plane = permitted("shadow");
    control_plane.delete(Kind::MeshTrafficPermission, "default", "everybody");
    control_plane.observe(DB, BACKEND, 7, 1);
    control_plane.store(permission("no-db", &client("db"), "Deny"));
    migrate(&control_plane, &["--yes", "--step", "enforce"]).ok();
}

#[test]
fn a_mesh_without_mtls_is_not_moved() {
    let control_plane = permitted("off");
    control_plane.store(json!({ "type": "Mesh", "name": "default" }));
    refused(&control_plane, "check", "mTLS, without which permissions have no effect");
    control_plane.store(json!({ "type": "MeshIdentity", "mesh": "default", "name": "identity",
        "spec": { "selector": {}, "provider": { "type": "Bundled" } } }));
    migrate(&control_plane, &["--step", "check"]).ok();
}

#[test]
fn nothing_is_changed_without_agreement_and_in_a_dry_run() {
    let control_plane = observed("off");
    let program = Program::at(&control_plane.url);
    let suggested = program.run(&["suggest", "permissions", "-o", "json"]).ok().json();
    let walk = ["migrate", "permissions", "--step", "permissions"];
    let ran = program.run(&walk);
    assert_eq!(ran.code, 4, "{ran:#?}");
    assert!(ran.err.contains("not confirmed, nothing was changed"), "{ran:#?}");
    let dry = migrate(&control_plane, &["--dry-run"]);
    assert_eq!(dry.code, 4, "{dry:#?}");
    let shown = resources::format::yaml::documents(&dry.out).unwrap();
    assert_eq!(shown[0].value, suggested["permissions"][0]["resource"]);
    assert_eq!(writes(&control_plane), Vec::<String>::new());
    program.run_with_stdin(&walk, "y\n").ok();
    assert_eq!(writes(&control_plane).len(), 1);
}

#[test]
fn a_policy_that_says_more_than_that_everyone_is_allowed_keeps_the_rest() {
    let control_plane = permitted("enforce");
    let mut everybody = permission("everybody", &json!({ "kind": "Mesh" }), "Allow");
    let deny = json!({ "targetRef": client("db"), "default": { "action": "Deny" } });
    everybody["spec"]["from"].as_array_mut().unwrap().push(deny.clone());
    control_plane.store(everybody);
    let ran = migrate(&control_plane, &["--yes", "--step", "deny"]).ok();
    assert!(ran.err.contains("would lose that; what else they say stays"), "{ran:#?}");
    let paths =
        ["everybody", "zz-deny-all"].map(|name| format!("PUT /meshes/default/meshtrafficpermissions/{name}"));
    assert_eq!(writes(&control_plane), paths);
    let rest = control_plane.spec(Kind::MeshTrafficPermission, "default", "everybody");
    assert_eq!(rest["from"], json!([deny]));
}

#[test]
fn the_walk_is_not_done_while_a_policy_lets_in_clients_that_no_rule_names() {
    let control_plane = permitted("enforce");
    let mut public = permission("public", &json!({ "kind": "Mesh" }), "Allow");
    public["spec"]["targetRef"] = json!({ "kind": "Dataplane", "labels": { "app": "backend" } });
    control_plane.store(public);
    let ran = migrate(&control_plane, &["--yes"]);
    let line = format!("open: kri_mtp_default___public_rule_0 lets every client call {BACKEND}");
    assert!(ran.code == 3 && ran.err.contains(&line) && ran.err.contains("not done"), "{ran:#?}");
    let forced = migrate(&control_plane, &["--yes", "--force"]).ok();
    assert!(forced.err.contains(&line) && forced.err.contains("done: permissions decide"), "{forced:#?}");
}

#[test]
fn one_service_is_closed_while_others_stay_open() {
    let control_plane = permitted("enforce");
    migrate(&control_plane, &["--yes", "--service", "backend"]).ok();
    assert_eq!(writes(&control_plane), ["PUT /meshes/default/meshtrafficpermissions/zz-deny-all-backend-80"]);
    let program = Program::at(&control_plane.url);
    program.run(&["access", "web", "backend"]).answered(0);
    program.run(&["access", "db", "backend"]).answered(3);
    program.run(&["access", "db", "web"]).answered(0);
}
