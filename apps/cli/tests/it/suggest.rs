//! `suggest permissions` and `migrate permissions`, against a control plane that repeats what it was taught.

use serde_json::{Value, json};

use crate::{
    program::{Program, Ran, cells},
    server::Server,
};

const SUGGESTIONS: &str = "/meshes/default/_suggestions";
const OBSERVED: &str = "/meshes/default/_observed?wouldBeTrimmed=true";
const WEEK: u64 = 7 * 24 * 3600;

fn resource(name: &str) -> Value {
    let client = json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "web" } });
    let server = json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "backend" } });
    json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": {
        "targetRef": server, "from": [{ "targetRef": client, "default": { "action": "Allow" } }] } })
}

fn call(caller: &str, destination: &str) -> Value {
    json!({ "caller": format!("spiffe://default/{caller}"), "destination": destination,
        "firstSeen": "2026-01-01T00:00:00Z", "lastSeen": "2026-01-08T00:00:00Z", "count": 7 })
}

fn permission(name: &str) -> Value {
    json!({ "resource": resource(name), "evidence": [call("web", "kri_msvc_default___backend_80")],
        "notes": ["it selects\nmore"] })
}

/// Everything was observed for a week, and nothing is left to do.
fn complete() -> Value {
    json!({ "window": { "since": "2026-01-01T00:00:00Z", "until": "2026-01-08T00:00:00Z", "seconds": WEEK },
        "warnings": [], "permissions": [], "denied": [], "unseen": [], "alreadyAllowed": 3, "allowAll": [],
        "open": [], "closing": [] })
}

fn closing() -> Value {
    let from = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Deny" } }]);
    json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": "zz-deny-all",
        "spec": { "targetRef": { "kind": "Mesh" }, "from": from } })
}

fn observed() -> Value {
    json!({ "total": 0, "edges": [], "dropped": false, "proxies": { "reporting": 2, "connected": 2 } })
}

fn mesh(mode: &str) -> Value {
    let backend = json!({ "name": "ca-1", "type": "builtin", "mode": "STRICT" });
    json!({ "type": "Mesh", "name": "default", "creationTime": "2026-01-01T00:00:00Z",
        "labels": { "reachability.kuma.io/mode": mode, "mine": "kept" },
        "mtls": { "enabledBackend": "ca-1", "backends": [backend] } })
}

/// A control plane with a mesh in this mode, about which this is suggested.
fn control_plane(mode: &str, suggestions: &Value) -> Server {
    let server = Server::start();
    server.on("GET", "/meshes/default", 200, mesh(mode));
    server.on("GET", "/meshes/default/meshidentities?size=1", 200, json!({ "total": 0, "items": [] }));
    server.on("GET", OBSERVED, 200, observed());
    server.on("GET", SUGGESTIONS, 200, suggestions.clone());
    server.on("PUT", "/meshes/default", 200, json!({}));
    for name in ["allow-to-backend-80", "zz-deny-all"] {
        server.on("PUT", &format!("/meshes/default/meshtrafficpermissions/{name}"), 201, json!({}));
    }
    server.on("DELETE", "/meshes/default/meshtrafficpermissions/everybody", 200, json!({}));
    server
}

fn migrate(server: &Server, flags: &[&str]) -> Ran {
    let arguments: Vec<&str> = ["migrate", "permissions"].into_iter().chain(flags.iter().copied()).collect();
    Program::of(server).run(&arguments)
}

fn writes(server: &Server) -> Vec<String> {
    server.lines().into_iter().filter(|line| !line.starts_with("GET")).collect()
}

#[track_caller]
fn refused(server: &Server, step: &str, missing: &str) {
    let ran = migrate(server, &["--yes", "--step", step]);
    assert_eq!(ran.code, 3, "{ran:#?}");
    let line = format!("{step}: missing: {missing}");
    assert!(ran.err.contains(&line), "expected {line:?} in {ran:#?}");
    assert!(ran.err.contains("refused, nothing was changed"), "{ran:#?}");
    assert_eq!(writes(server), Vec::<String>::new());
    let forced = migrate(server, &["--yes", "--step", step, "--force"]).ok();
    assert!(forced.err.contains("continuing because of --force"), "{forced:#?}");
}

#[test]
fn suggestions_are_yaml_to_apply_with_who_called_in_comments() {
    let mut answer = complete();
    answer["permissions"] = json!([permission("allow-to-backend-80"), permission("other")]);
    answer["warnings"] = json!(["observed for 3 h: a daily or weekly job would not have been seen"]);
    let mut denied = call("db", "kri_msvc_default___backend_80");
    denied["policy"] = json!("kri_mtp_default___no_rule_0");
    denied["getsThrough"] = json!(false);
    answer["denied"] = json!([denied]);
    answer["unseen"] = json!(["kri_msvc_default___cron_80"]);
    let server = control_plane("off", &answer);
    let program = Program::of(&server);
    let ran = program.run(&["suggest", "permissions"]).ok();
    let first = "# spiffe://default/web called kri_msvc_default___backend_80 (calls: 7, first 2026-01-01T00:00:00Z, \
                 last 2026-01-08T00:00:00Z)";
    assert_eq!(&ran.lines()[..2], [first, "# note: it selects more"], "a comment stays one");
    let documents = resources::format::yaml::documents(&ran.out).unwrap();
    let values: Vec<&Value> = documents.iter().map(|document| &document.value).collect();
    assert_eq!(values, [&resource("allow-to-backend-80"), &resource("other")]);
    for said in [
        "warning: observed for 3 h: a daily or weekly job would not have been seen",
        "warning: spiffe://default/db called kri_msvc_default___backend_80 (calls: 7, last 2026-01-08T00:00:00Z); \
         kri_mtp_default___no_rule_0 denies it, and no suggestion allows it",
        "warning: kri_msvc_default___cron_80 was called by no one: once all else is refused, no client can call it",
    ] {
        assert!(ran.err.contains(said), "{said} in {ran:#?}");
    }
    let applied = program.run_with_stdin(&["apply", "--dry-run", "-f", "-"], &ran.out);
    assert!(applied.ok().err.contains("2 resources valid"));
    assert_eq!(program.run(&["suggest", "permissions", "-o", "json"]).ok().json(), answer);
    let table = program.run(&["suggest", "permissions", "-o", "table"]).ok();
    let row = ["allow-to-backend-80", "spiffe://default/web", "kri_msvc_default___backend_80", "7"];
    assert_eq!(cells(table.lines()[1])[..4], row);
}

#[test]
fn one_service_is_asked_about_by_its_name_and_nothing_is_said_to_be_nothing() {
    let server = Server::start();
    server.on("GET", "/meshes/my%20shop/_suggestions?service=a%26b", 200, complete());
    let program = Program::of(&server);
    let ran = program.run(&["suggest", "permissions", "-m", "my shop", "--service", "a&b"]).ok();
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("nothing to suggest: 3 observed calls are allowed already"), "{ran:#?}");
    let missing =
        json!({ "status": 404, "title": "Not found", "detail": "nothing in the mesh is called \"x\"" });
    server.on("GET", "/meshes/default/_suggestions?service=x", 404, missing);
    program
        .run(&["suggest", "permissions", "--service", "x"])
        .failed(1)
        .says("could not get suggestions for mesh \"default\"")
        .says("nothing in the mesh is called");
}

#[test]
fn the_walk_takes_every_step_in_order_and_denies_everyone_last() {
    let mut before = complete();
    before["permissions"] = json!([permission("allow-to-backend-80")]);
    let mut after = complete();
    after["allowAll"] = json!([{ "name": "everybody", "kri": "kri_mtp_default___everybody_" }]);
    after["closing"] = json!([closing()]);
    let server = control_plane("off", &before);
    // Asked by the steps check and permissions, by all others after the permission was written, and at the end.
    server.on("GET", SUGGESTIONS, 200, before);
    for _ in ["shadow", "enforce", "deny"] {
        server.on("GET", SUGGESTIONS, 200, after.clone());
    }
    server.on("GET", SUGGESTIONS, 200, complete());
    // Asked by check and shadow, then by enforce, then by deny.
    for mode in ["off", "shadow", "enforce"] {
        server.on("GET", "/meshes/default", 200, mesh(mode));
    }
    let ran = migrate(&server, &["--yes", "--min-shadow", "0s"]).ok();
    assert_eq!(
        writes(&server),
        [
            "PUT /meshes/default/meshtrafficpermissions/allow-to-backend-80",
            "PUT /meshes/default",
            "PUT /meshes/default",
            "DELETE /meshes/default/meshtrafficpermissions/everybody",
            "PUT /meshes/default/meshtrafficpermissions/zz-deny-all",
        ]
    );
    let puts = server.puts();
    assert_eq!(puts[0].json(), resource("allow-to-backend-80"));
    let labels = |n: usize| puts[n].json()["labels"].clone();
    let since = &labels(1)["reachability.kuma.io/shadow-since"];
    assert!(since.as_str().unwrap().parse::<i64>().is_ok(), "{since}");
    let shadow = json!({ "reachability.kuma.io/mode": "shadow", "mine": "kept",
        "reachability.kuma.io/shadow-since": since });
    assert_eq!(labels(1), shadow);
    assert_eq!(labels(2), json!({ "reachability.kuma.io/mode": "enforce", "mine": "kept" }));
    assert_eq!(puts[3].json(), closing());
    for said in [
        "check: mTLS is STRICT",
        "permissions: 1 permission would be written",
        "enforce: MeshTrafficPermissions everybody allow everyone: nothing is trimmed before the step deny",
        "deny: MeshTrafficPermission everybody deleted",
        "done: permissions decide about the mesh",
    ] {
        assert!(ran.err.contains(said), "{said} in {ran:#?}");
    }
}

#[test]
fn a_mesh_where_everything_is_done_is_left_alone() {
    let server = control_plane("enforce", &complete());
    let ran = migrate(&server, &["--yes"]).ok();
    assert_eq!(writes(&server), Vec::<String>::new());
    assert!(ran.err.contains("the mode of the mesh is enforce already"), "{ran:#?}");
    assert!(ran.err.contains("a policy states it already"), "{ran:#?}");
}

#[test]
fn a_step_without_its_evidence_is_refused_and_says_what_is_missing() {
    let mut short = complete();
    short["window"]["seconds"] = json!(3 * 3600);
    let of = |answer: &Value| control_plane("shadow", answer);
    refused(&of(&short), "check", "time: calls were observed for 3 h, and 7 d are required (--min-window)");
    let ran = migrate(&of(&short), &["--step", "check", "--min-window", "2h"]).ok();
    assert!(ran.err.contains("calls are observed since 2026-01-01T00:00:00Z (10800 s)"), "{ran:#?}");
    short["window"]["newest"] = json!("kri_msvc_default___db_80");
    refused(&of(&short), "check", "time: calls to kri_msvc_default___db_80 were observed for 3 h");
    let mut zones = complete();
    zones["otherZones"] = json!(true);
    refused(&of(&zones), "check", "the callers of other zones, which only their control planes know");
    let mut never = complete();
    never["window"] = json!({ "since": null, "until": "", "seconds": 0 });
    refused(&of(&never), "check", "reports of calls: no proxy has sent one yet");
    let mut unseen = complete();
    unseen["unseen"] = json!(["kri_msvc_default___cron_80"]);
    let missing = "a caller, or a permission that says who may call, of kri_msvc_default___cron_80";
    refused(&of(&unseen), "enforce", missing);
    let mut wanted = complete();
    wanted["permissions"] = json!([permission("p")]);
    refused(
        &of(&wanted),
        "enforce",
        "a permission for spiffe://default/web to kri_msvc_default___backend_80",
    );
    let mut kept_out = complete();
    kept_out["permissions"] = json!([permission("allow-to-backend-80")]);
    kept_out["permissions"][0]["evidence"][0]["refused"] = json!(true);
    let missing = "a decision, apply what `kumactl suggest permissions` says or deny by name what is refused now: \
                   spiffe://default/web to kri_msvc_default___backend_80";
    refused(&of(&kept_out), "permissions", missing);
    let mut ending = complete();
    ending["denied"] = json!([call("db", "kri_msvc_default___backend_80")]);
    ending["denied"][0]["policy"] = json!("kri_mtp_default___no_rule_0");
    ending["denied"][0]["getsThrough"] = json!(true);
    refused(
        &of(&ending),
        "enforce",
        "a decision: spiffe://default/db called kri_msvc_default___backend_80 (calls: 7",
    );
    let mut open = complete();
    open["closing"] = json!([closing()]);
    refused(&of(&open), "deny", "the mode of the mesh is not enforce: run the step enforce first");
    let server = of(&complete());
    server.replace("GET", "/meshes/default", 200, mesh("off"));
    refused(&server, "enforce", "the mode of the mesh was never shadow");
    let server = of(&complete());
    let mut seen = observed();
    seen["proxies"]["reporting"] = json!(1);
    server.replace("GET", OBSERVED, 200, seen);
    refused(&server, "check", "reports of 1 of 2 connected proxies");
    let server = of(&complete());
    let mut seen = observed();
    seen["dropped"] = json!(true);
    server.replace("GET", OBSERVED, 200, seen);
    refused(&server, "check", "some of the calls: there were more than the control plane keeps");
}

#[test]
fn calls_that_would_be_trimmed_stop_the_walk_unless_a_policy_denies_them_by_name() {
    let mut edge = call("db", "kri_msvc_default___backend_80");
    edge["wouldBeTrimmed"] = json!(true);
    let mut seen = observed();
    seen["edges"] = json!([edge.clone()]);
    let server = control_plane("shadow", &complete());
    server.replace("GET", OBSERVED, 200, seen.clone());
    let missing =
        "a permission for what would be trimmed: spiffe://default/db to kri_msvc_default___backend_80";
    refused(&server, "enforce", missing);
    let mut denied = complete();
    edge["policy"] = json!("kri_mtp_default___no_rule_0");
    edge["getsThrough"] = json!(false);
    denied["denied"] = json!([edge]);
    let server = control_plane("shadow", &denied);
    server.replace("GET", OBSERVED, 200, seen);
    migrate(&server, &["--yes", "--step", "enforce", "--min-shadow", "0s"]).ok();
}

#[test]
fn a_mesh_stays_in_shadow_for_a_while_before_anything_is_enforced() {
    let now = jiff::Timestamp::now().as_second();
    let since = |seconds: i64| {
        let server = control_plane("shadow", &complete());
        let mut shadowed = mesh("shadow");
        shadowed["labels"]["reachability.kuma.io/shadow-since"] = json!((now - seconds).to_string());
        server.replace("GET", "/meshes/default", 200, shadowed);
        server
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
    refused(&control_plane("shadow", &complete()), "enforce", unknown);
}

#[test]
fn a_mesh_without_mtls_is_not_moved() {
    let server = control_plane("off", &complete());
    let mut plain = mesh("off");
    plain["mtls"] = Value::Null;
    server.replace("GET", "/meshes/default", 200, plain);
    refused(&server, "check", "mTLS, without which permissions have no effect");
    server.replace(
        "GET",
        "/meshes/default/meshidentities?size=1",
        200,
        json!({ "items": [{ "name": "identity" }] }),
    );
    migrate(&server, &["--step", "check"]).ok();
}

#[test]
fn nothing_is_changed_without_agreement_and_in_a_dry_run() {
    let mut answer = complete();
    answer["permissions"] = json!([permission("allow-to-backend-80")]);
    let server = control_plane("off", &answer);
    let program = Program::of(&server);
    let walk = ["migrate", "permissions", "--step", "permissions"];
    let ran = program.run(&walk);
    assert_eq!(ran.code, 4, "{ran:#?}");
    assert!(ran.err.contains("not confirmed, nothing was changed"), "{ran:#?}");
    let dry = migrate(&server, &["--dry-run"]);
    assert_eq!(dry.code, 4, "{dry:#?}");
    let shown = resources::format::yaml::documents(&dry.out).unwrap();
    assert_eq!(shown[0].value, resource("allow-to-backend-80"));
    assert_eq!(writes(&server), Vec::<String>::new());
    program.run_with_stdin(&walk, "y\n").ok();
    assert_eq!(writes(&server).len(), 1);
}

#[test]
fn the_shortest_of_several_windows_counts() {
    let mut short = complete();
    short["window"]["seconds"] = json!(3600);
    let server = control_plane("off", &complete());
    server.on("GET", &format!("{SUGGESTIONS}?service=old"), 200, complete());
    server.on("GET", &format!("{SUGGESTIONS}?service=new"), 200, short);
    let flags = ["--step", "check", "--service", "old", "--service", "new"];
    let ran = migrate(&server, &flags);
    assert!(ran.code == 3 && ran.err.contains("observed for 1 h, and 7 d"), "{ran:#?}");
}

#[test]
fn a_mesh_of_a_global_control_plane_gets_its_mode_there() {
    let server = control_plane("off", &complete());
    let mut global = mesh("off");
    global["labels"]["kuma.io/origin"] = json!("global");
    server.replace("GET", "/meshes/default", 200, global);
    let ran = migrate(&server, &["--yes", "--step", "shadow"]);
    let advice = "run `kumactl edit mesh default` there, give it the label reachability.kuma.io/mode: shadow";
    assert!(ran.code == 4 && ran.err.contains(advice), "{ran:#?}");
    assert_eq!(writes(&server), Vec::<String>::new());
}

#[test]
fn a_policy_that_says_more_than_that_everyone_is_allowed_keeps_the_rest() {
    let rest = json!({ "type": "MeshTrafficPermission", "mesh": "default", "name": "everybody", "spec": {} });
    let mut answer = complete();
    answer["allowAll"] =
        json!([{ "name": "everybody", "kri": "kri_mtp_default___everybody_", "rest": rest }]);
    answer["closing"] = json!([closing()]);
    let server = control_plane("enforce", &answer);
    server.on("PUT", "/meshes/default/meshtrafficpermissions/everybody", 200, json!({}));
    let ran = migrate(&server, &["--yes", "--step", "deny"]).ok();
    assert!(ran.err.contains("would lose that; what else they say stays"), "{ran:#?}");
    let paths =
        ["everybody", "zz-deny-all"].map(|name| format!("PUT /meshes/default/meshtrafficpermissions/{name}"));
    assert_eq!(writes(&server), paths);
    assert_eq!(server.puts()[0].json(), rest);
}

#[test]
fn the_walk_is_not_done_while_a_policy_lets_in_clients_that_no_rule_names() {
    let mut answer = complete();
    let open = json!({ "policy": "kri_mtp_default___public_rule_0", "destinations": ["kri_msvc_default___backend_80"] });
    answer["open"] = json!([open]);
    let server = control_plane("enforce", &answer);
    let ran = migrate(&server, &["--yes"]);
    let line = "open: kri_mtp_default___public_rule_0 lets every client call kri_msvc_default___backend_80";
    assert!(ran.code == 3 && ran.err.contains(line) && ran.err.contains("not done"), "{ran:#?}");
    let forced = migrate(&server, &["--yes", "--force"]).ok();
    assert!(forced.err.contains(line) && forced.err.contains("done: permissions decide"), "{forced:#?}");
    let mut answer = complete();
    answer["allowAll"] = json!([{ "name": "everybody", "kri": "kri_mtp_default___everybody_" }]);
    let server = control_plane("enforce", &answer);
    let ran = migrate(&server, &["--yes"]);
    let line = "open: kri_mtp_default___everybody_ lets every client call everything";
    assert!(ran.code == 3 && ran.err.contains(line), "it could not be deleted: {ran:#?}");
}

#[test]
fn one_service_is_closed_while_others_stay_open() {
    let mut answer = complete();
    answer["allowAll"] = json!([{ "name": "everybody", "kri": "kri_mtp_default___everybody_" }]);
    answer["closing"] = json!([closing()]);
    let server = control_plane("enforce", &complete());
    server.on("GET", &format!("{SUGGESTIONS}?service=backend"), 200, answer);
    migrate(&server, &["--yes", "--service", "backend"]).ok();
    assert_eq!(writes(&server), ["PUT /meshes/default/meshtrafficpermissions/zz-deny-all"]);
}
