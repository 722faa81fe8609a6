//! `migrate permissions`: a mesh moves step by step to one where permissions decide, and no step is taken without
//! its evidence.

use serde_json::{Value, json};
use testkit::spec;

use crate::{
    control_plane::ZoneControlPlane,
    observed_mesh::{
        BACKEND, DB, MODE, SINCE, SOON_AFTER, UNTIL, add_service, allow, complete, deny, deny_all, everybody,
        observed, permission, proxy, stored, suggestions, unobserved,
    },
    program::{Program, Ran},
    server::Server,
};

const SHADOW_SINCE: &str = "reachability.kuma.io/shadow-since";

fn migrate(control_plane: &ZoneControlPlane, flags: &[&str]) -> Ran {
    let arguments: Vec<&str> = ["migrate", "permissions"].into_iter().chain(flags.iter().copied()).collect();
    Program::at(&control_plane.url).run(&arguments)
}

fn writes(control_plane: &ZoneControlPlane) -> Vec<String> {
    control_plane.lines().into_iter().filter(|line| !line.starts_with("GET")).collect()
}

#[track_caller]
fn refused(control_plane: &ZoneControlPlane, step: &str, missing: &str) {
    let ran = migrate(control_plane, &["--yes", "--step", step]);
    assert_eq!(ran.code, 3, "{ran:#?}");
    let line = format!("{step}: missing: {missing}");
    assert!(ran.err.contains(&line), "expected {line:?} in {ran:#?}");
    assert!(ran.err.contains("refused, nothing was changed"), "{ran:#?}");
    assert_eq!(writes(control_plane), Vec::<String>::new());
    let forced = migrate(control_plane, &["--yes", "--step", step, "--force"]).ok();
    assert!(forced.err.contains("continuing because of --force"), "{forced:#?}");
}

/// Everyone may call everyone, and `web` called `backend` for a week.
fn open(mode: &str) -> ZoneControlPlane {
    let control_plane = observed(mode, UNTIL);
    control_plane.put([everybody()]);
    control_plane
}

#[test]
fn the_walk_takes_every_step_in_order_and_denies_everyone_last() {
    let control_plane = open("off");
    let before = suggestions(&control_plane);
    let ran = migrate(&control_plane, &["--yes", "--min-shadow", "0s"]).ok();
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
    assert_eq!(puts[0].json(), before["permissions"][0]["resource"]);
    let labels = |n: usize| puts[n].json()["labels"].clone();
    let since = &labels(1)[SHADOW_SINCE];
    assert!(since.as_str().unwrap().parse::<i64>().is_ok(), "{since}");
    let with_mode = |mode: &str| json!({ MODE: mode, "mine": "kept", SHADOW_SINCE: since, "kuma.io/display-name": "default" });
    assert_eq!(labels(1), with_mode("shadow"));
    assert_eq!(labels(2), with_mode("enforce"));
    assert_eq!(puts[3].json(), before["closing"][0]);
    for said in [
        "check: mTLS is STRICT",
        "permissions: 1 permission would be written",
        "permissions: MeshTrafficPermission allow-to-backend-80 created",
        "enforce: MeshTrafficPermissions everybody allow everyone: nothing is trimmed before the step deny",
        "deny: MeshTrafficPermission everybody deleted",
        "done: permissions decide about the mesh",
    ] {
        assert!(ran.err.contains(said), "{said} in {ran:#?}");
    }
    // What was observed is allowed, and nothing else.
    let after = suggestions(&control_plane);
    assert_eq!((&after["alreadyAllowed"], &after["permissions"]), (&json!(1), &json!([])), "{after:#}");
    let again = migrate(&control_plane, &["--yes"]).ok();
    assert_eq!(writes(&control_plane).len(), 5, "{again:#?}");
}

#[test]
fn a_mesh_where_everything_is_done_is_left_alone() {
    let control_plane = complete("enforce");
    let ran = migrate(&control_plane, &["--yes"]).ok();
    assert_eq!(writes(&control_plane), Vec::<String>::new());
    assert!(ran.err.contains("the mode of the mesh is enforce already"), "{ran:#?}");
    assert!(ran.err.contains("a policy states it already"), "{ran:#?}");
}

#[test]
fn what_was_not_observed_for_long_enough_is_refused() {
    let short = || {
        let control_plane = observed("shadow", SOON_AFTER);
        control_plane.put([allow("web", "backend"), deny_all()]);
        control_plane
    };
    refused(&short(), "check", "time: calls were observed for 3 h, and 7 d are required (--min-window)");
    let ran = migrate(&short(), &["--step", "check", "--min-window", "2h"]).ok();
    assert!(ran.err.contains("calls are observed since 2026-01-01T00:00:00Z (10800 s)"), "{ran:#?}");
    refused(&unobserved("shadow"), "check", "reports of calls: no proxy has sent one yet");
    let joined = complete("shadow");
    add_service(&joined, "db", 2, "2026-01-07T21:00:00Z");
    refused(&joined, "check", &format!("time: calls to {DB} were observed for 3 h"));
}

#[test]
fn the_shortest_of_several_windows_counts() {
    let control_plane = complete("off");
    add_service(&control_plane, "db", 2, "2026-01-07T23:00:00Z");
    let flags = ["--step", "check", "--service", "backend", "--service", "db"];
    let ran = migrate(&control_plane, &flags);
    assert!(ran.code == 3 && ran.err.contains("observed for 1 h, and 7 d"), "{ran:#?}");
    migrate(&control_plane, &flags[..4]).ok();
}

#[test]
fn calls_that_are_not_known_here_are_missing() {
    let zones = complete("shadow");
    zones.secure(json!({ MODE: "shadow", "kuma.io/origin": "global" }));
    zones.store(
        json!({ "type": "ZoneIngress", "name": "in", "labels": { "kuma.io/zone": "east" }, "zone": "east",
        "networking": { "address": "127.0.0.1", "port": 10001, "advertisedAddress": "192.0.2.1",
            "advertisedPort": 10001 } }),
    );
    refused(&zones, "check", "the callers of other zones, which only their control planes know");
    let silent = complete("shadow");
    let _proxies = ["web-1", "backend-1"].map(|name| silent.connect(name, &[]));
    silent.has_reported("web-1");
    refused(&silent, "check", "reports of 1 of 2 connected proxies");
    silent.has_reported("backend-1");
    migrate(&silent, &["--step", "check"]).ok();
    let full = complete("shadow");
    full.observe_too_many(UNTIL, &[("web", BACKEND, 1), ("db", BACKEND, 1)]);
    refused(&full, "check", "some of the calls: there were more than the control plane keeps");
}

#[test]
fn a_call_about_which_no_one_has_decided_stops_the_walk() {
    let unseen = complete("shadow");
    add_service(&unseen, "cron", 2, SINCE);
    let missing = "a caller, or a permission that says who may call, of kri_msvc_default_east__cron_80";
    refused(&unseen, "enforce", missing);
    let call = "spiffe://default/web to kri_msvc_default_east__backend_80";
    refused(&open("shadow"), "enforce", &format!("a permission for {call}"));
    let missing =
        "a decision, apply what `kumactl suggest permissions` says or deny by name what is refused now: ";
    refused(&observed("shadow", UNTIL), "permissions", &format!("{missing}{call}"));
    // Of two policies of one rank the first in the alphabet decides, so the call is denied when that one is gone.
    let ending = complete("shadow");
    ending.put([
        everybody(),
        proxy("db-1", "db"),
        permission("no", spec::all(), &[(spec::tagged("db"), "Deny")]),
    ]);
    ending.observe(UNTIL, &[("db", BACKEND, 7)]);
    refused(&ending, "enforce", &format!("a decision: spiffe://default/db called {BACKEND} (calls: 7"));
}

#[test]
fn steps_are_taken_in_their_order() {
    refused(&open("shadow"), "deny", "the mode of the mesh is not enforce: run the step enforce first");
    refused(&complete("off"), "enforce", "the mode of the mesh was never shadow");
}

#[test]
fn calls_to_be_trimmed_stop_the_walk_unless_denied_by_name() {
    let control_plane = complete("shadow");
    control_plane.put([proxy("db-1", "db")]);
    control_plane.observe(UNTIL, &[("db", BACKEND, 7)]);
    let missing = format!("a permission for what would be trimmed: spiffe://default/db to {BACKEND}");
    refused(&control_plane, "enforce", &missing);
    let control_plane = complete("shadow");
    control_plane.put([proxy("db-1", "db"), deny("db", "backend")]);
    control_plane.observe(UNTIL, &[("db", BACKEND, 7)]);
    migrate(&control_plane, &["--yes", "--step", "enforce", "--min-shadow", "0s"]).ok();
}

#[test]
fn a_mesh_stays_in_shadow_for_a_while_before_anything_is_enforced() {
    let now = jiff::Timestamp::now().as_second();
    let since = |seconds: i64| {
        let control_plane = complete("shadow");
        control_plane.secure(json!({ MODE: "shadow", SHADOW_SINCE: (now - seconds).to_string() }));
        control_plane
    };
    let hour = 3600;
    refused(
        &since(3 * hour + 600),
        "enforce",
        "time in mode shadow: it is 3 h, and 24 h are required (--min-shadow)",
    );
    migrate(&since(25 * hour), &["--yes", "--step", "enforce"]).ok();
    migrate(&since(3 * hour), &["--yes", "--step", "enforce", "--min-shadow", "2h"]).ok();
    let unknown = "time in mode shadow: since when it is so is not known";
    refused(&complete("shadow"), "enforce", unknown);
}

#[test]
fn a_mesh_without_mtls_is_not_moved() {
    let control_plane = complete("off");
    control_plane
        .store(json!({ "type": "Mesh", "name": "default", "meshServices": { "mode": "Exclusive" } }));
    refused(&control_plane, "check", "mTLS, without which permissions have no effect");
    control_plane.store(json!({ "type": "MeshIdentity", "mesh": "default", "name": "identity",
        "spec": { "selector": {}, "provider": { "type": "Bundled" } } }));
    migrate(&control_plane, &["--step", "check"]).ok().says("check: proxies have identities by MeshIdentity");
}

#[test]
fn nothing_is_changed_without_agreement_and_in_a_dry_run() {
    let control_plane = open("off");
    let program = Program::at(&control_plane.url);
    let walk = ["migrate", "permissions", "--step", "permissions"];
    let ran = program.run(&walk);
    assert_eq!(ran.code, 4, "{ran:#?}");
    assert!(ran.err.contains("not confirmed, nothing was changed"), "{ran:#?}");
    let suggested = suggestions(&control_plane)["permissions"][0]["resource"].clone();
    let dry = migrate(&control_plane, &["--dry-run"]);
    assert_eq!(dry.code, 4, "{dry:#?}");
    let shown = resources::format::yaml::documents(&dry.out).unwrap();
    assert_eq!(shown[0].value, suggested);
    assert_eq!(writes(&control_plane), Vec::<String>::new());
    program.run_with_stdin(&walk, "y\n").ok();
    assert_eq!(writes(&control_plane).len(), 1);
    assert_eq!(stored(&control_plane, "allow-to-backend-80"), suggested["spec"]);
}

#[test]
fn a_mesh_of_a_global_control_plane_gets_its_mode_there() {
    let control_plane = complete("off");
    control_plane.secure(json!({ MODE: "off", "kuma.io/origin": "global" }));
    let ran = migrate(&control_plane, &["--yes", "--step", "shadow"]);
    let advice = "run `kumactl edit mesh default` there, give it the label reachability.kuma.io/mode: shadow";
    assert!(ran.code == 4 && ran.err.contains(advice), "{ran:#?}");
    assert_eq!(writes(&control_plane), Vec::<String>::new());
}

#[test]
fn a_policy_that_says_more_than_that_everyone_is_allowed_keeps_the_rest() {
    let control_plane = observed("enforce", UNTIL);
    let denied = (spec::tagged("batch"), "Deny");
    control_plane.put([
        allow("web", "backend"),
        permission("everybody", spec::all(), &[(spec::all(), "Allow"), denied.clone()]),
    ]);
    let before = suggestions(&control_plane);
    let ran = migrate(&control_plane, &["--yes", "--step", "deny"]).ok();
    assert!(ran.err.contains("would lose that; what else they say stays"), "{ran:#?}");
    let paths =
        ["everybody", "zz-deny-all"].map(|name| format!("PUT /meshes/default/meshtrafficpermissions/{name}"));
    assert_eq!(writes(&control_plane), paths);
    assert_eq!(control_plane.puts()[0].json(), before["allowAll"][0]["rest"]);
    let from = json!([{ "targetRef": denied.0, "default": { "action": "Deny" } }]);
    assert_eq!(stored(&control_plane, "everybody"), json!({ "targetRef": spec::all(), "from": from }));
}

#[test]
fn the_walk_is_not_done_while_a_policy_lets_in_clients_that_no_rule_names() {
    let control_plane = complete("enforce");
    control_plane.put([permission("public", spec::tagged("backend"), &[(spec::all(), "Allow")])]);
    let ran = migrate(&control_plane, &["--yes"]);
    let line = format!("open: kri_mtp_default_east__public_rule_0 lets every client call {BACKEND}");
    assert!(ran.code == 3 && ran.err.contains(&line) && ran.err.contains("not done"), "{ran:#?}");
    let forced = migrate(&control_plane, &["--yes", "--force"]).ok();
    assert!(forced.err.contains(&line) && forced.err.contains("done: permissions decide"), "{forced:#?}");
}

/// Someone else writes the policy again between the last step and the look at its result. No control plane does that
/// by itself, so this one repeats what it was taught.
#[test]
fn the_walk_is_not_done_when_everyone_is_allowed_again() {
    let control_plane = complete("enforce");
    control_plane.put([everybody()]);
    let server = Server::start();
    for path in [
        "/meshes/default",
        "/meshes/default/meshidentities?size=1",
        "/meshes/default/_observed?wouldBeTrimmed=true",
        "/meshes/default/_suggestions",
    ] {
        server.on("GET", path, 200, control_plane.get(path));
    }
    server.on("DELETE", "/meshes/default/meshtrafficpermissions/everybody", 200, json!({}));
    let ran = Program::of(&server).run(&["migrate", "permissions", "--yes"]);
    let line = "open: kri_mtp_default_east__everybody_ lets every client call everything";
    assert!(ran.code == 3 && ran.err.contains(line), "{ran:#?}");
}

#[test]
fn one_service_is_closed_while_others_stay_open() {
    let control_plane = observed("enforce", UNTIL);
    control_plane.put([everybody(), allow("web", "backend")]);
    add_service(&control_plane, "docs", 2, SINCE);
    let ran = migrate(&control_plane, &["--yes", "--service", "backend"]).ok();
    assert!(ran.err.contains("done: permissions decide about what was asked for"), "{ran:#?}");
    let closed = "zz-deny-all-backend-80";
    assert_eq!(writes(&control_plane), [format!("PUT /meshes/default/meshtrafficpermissions/{closed}")]);
    let from: Value = json!([{ "targetRef": spec::all(), "default": { "action": "Deny" } }]);
    assert_eq!(stored(&control_plane, closed), json!({ "targetRef": spec::tagged("backend"), "from": from }));
}
