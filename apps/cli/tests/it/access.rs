//! `access`: may A call B, and which rule says so.

use serde_json::{Value, json};

use crate::{
    control_plane::{ControlPlane, synced},
    program::{Program, cells},
    server::Server,
};

const PATH: &str = "/meshes/default/_access?from=web&to=backend";

/// A mesh with mTLS, a client `web` and servers `backend-1` and so on with these labels.
fn meshed(servers: &[Value]) -> ControlPlane {
    let control_plane = ControlPlane::start();
    control_plane.secure(json!({}));
    control_plane.dataplane("web", json!({"app": "web"}), synced());
    for (labels, n) in servers.iter().zip(1..) {
        control_plane.dataplane(&format!("backend-{n}"), labels.clone(), synced());
    }
    control_plane
}

/// Lets clients of one identity call what is selected.
fn permission(name: &str, selected: &Value, client: &str) -> Value {
    let client = json!({"spiffeID": {"type": "Exact", "value": format!("spiffe://default/{client}")}});
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": {
        "targetRef": selected, "rules": [{"default": {"allow": [client]}}]}})
}

fn check_of(client: &str, allowed: bool, rule: Option<&str>, reason: &str) -> Value {
    json!({"client": format!("kri_dp_default___{client}_"), "spiffeId": format!("spiffe://default/{client}"),
           "server": "kri_dp_default___backend-1_http", "action": if allowed { "Allow" } else { "Deny" },
           "allowed": allowed, "rule": rule, "reason": reason})
}

fn answer(verdict: &str, checks: &[Value], truncated: bool) -> Value {
    json!({"from": {"kind": "Dataplane", "name": "web", "dataplanes": 1},
           "to": {"kind": "MeshService", "name": "backend", "dataplanes": 2},
           "verdict": verdict, "checks": checks, "truncated": truncated})
}

#[test]
fn the_answer_is_a_sentence_a_table_and_an_exit_code() {
    let rule = "kri_mtp_default___allow_rule_0";
    let allowed = check_of("web", true, Some(rule), "allowed: a rule allows it.");
    let denied = check_of("web", false, None, "no rule allows it");
    let other = check_of("web", false, Some(rule), "a rule denies it");
    let cases = [
        (
            answer("Allowed", &[allowed.clone(), allowed.clone()], false),
            0,
            "Dataplane web may call MeshService backend (dataplanes: 2): a rule allows it.",
        ),
        (
            answer("Denied", std::slice::from_ref(&denied), false),
            3,
            "Dataplane web may not call MeshService backend (dataplanes: 2): no rule allows it.",
        ),
        (
            answer("Denied", &[denied.clone(), other], false),
            3,
            "Dataplane web may not call MeshService backend (dataplanes: 2).",
        ),
        (
            answer("Mixed", &[allowed, denied], true),
            4,
            "Dataplane web may call MeshService backend (dataplanes: 2) only in part: 1 of 2 checks allow it.",
        ),
        (answer("Allowed", &[], false), 0, "Dataplane web may call MeshService backend (dataplanes: 2)."),
    ];
    for (answer, code, sentence) in cases {
        let server = Server::start();
        server.on("GET", PATH, 200, answer.clone());
        let program = Program::of(&server);
        let ran = program.run(&["access", "web", "backend"]).answered(code);
        assert_eq!(ran.lines()[0], sentence);
        let checks = answer["checks"].as_array().unwrap();
        let more = if answer["truncated"] == true { 2 } else { 0 };
        let table = if checks.is_empty() { 0 } else { 2 + checks.len() };
        assert_eq!(ran.lines().len(), 1 + table + more, "{ran:#?}");
        let json = program.run(&["access", "web", "backend", "-o", "json"]).answered(code).json();
        assert_eq!(json, answer, "as the REST API says it");
        let yaml = program.run(&["access", "web", "backend", "-o", "yaml"]).answered(code).out;
        assert_eq!(resources::format::yaml::documents(&yaml).unwrap().remove(0).value, answer);
    }
}

#[test]
fn every_check_names_its_rule() {
    let server = Server::start();
    let rule = "kri_mtp_default___allow_rule_0";
    let mut checks =
        [check_of("web", true, Some(rule), "it says so"), check_of("api", false, None, "nothing does")];
    checks[0]["clients"] = json!(3);
    checks[1]["clients"] = json!(1);
    server.on("GET", PATH, 200, answer("Mixed", &checks, true));
    let ran = Program::of(&server).run(&["access", "web", "backend"]).answered(4);
    let rows: Vec<Vec<&str>> = ran.lines()[2..5].iter().map(|line| cells(line)).collect();
    let backend = "kri_dp_default___backend-1_http";
    assert_eq!(
        rows,
        [
            ["CLIENT", "SERVER", "ALLOWED", "ACTION", "RULE", "REASON"],
            ["kri_dp_default___web_ and 2 alike", backend, "yes", "Allow", rule, "it says so"],
            ["kri_dp_default___api_", backend, "no", "Deny", "-", "nothing does"],
        ]
    );
    let last = "This is about the checks above, and there are more: name one Dataplane or a --port.";
    assert_eq!(*ran.lines().last().unwrap(), last);
}

#[test]
fn what_is_asked_reaches_the_control_plane_and_its_refusal_the_user() {
    let server = Server::start();
    let program = Program::of(&server);
    let path = "/meshes/my%20shop/_access?from=a%26b&to=c&port=http%2F1";
    let path = path.replace("%2F", "/");
    server.on("GET", &path, 200, answer("Allowed", &[], false));
    program.run(&["access", "a&b", "c", "-m", "my shop", "--port", "http/1"]).answered(0);
    let missing = json!({"status": 404, "title": "Could not retrieve a resource",
        "detail": "there is no Dataplane, no MeshService and no kuma.io/service \"x\""});
    server.on("GET", "/meshes/default/_access?from=x&to=y", 404, missing);
    program
        .run(&["access", "x", "y"])
        .failed(1)
        .says("could not determine whether x may call y")
        .says("no MeshService and no kuma.io/service");
    server.on("GET", "/meshes/default/_access?from=a&to=b", 200, json!({}));
    program.run(&["access", "a", "b"]).failed(1).says("no verdict");
    program.run(&["access", "a"]).failed(2);
}

#[test]
fn reachability_is_explained_with_the_change_that_would_allow_the_call() {
    let server = Server::start();
    let resource = json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "web-to-backend",
        "spec": {"rules": [{"default": {"allow": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/web"}}]}}]}});
    let mut denied = answer("Denied", &[check_of("web", false, None, "no rule allows it")], false);
    denied["reachability"] = json!({"verdict": "trimmed", "reason": "its proxy is not sent the destination",
        "decidedBy": [], "answers": [], "truncated": false,
        "refusing": ["kri_dp_default___backend-1_80", "kri_dp_default___backend-2_80"], "refusingTotal": 5,
        "missing": "the proxy is not sent this destination: it is not listed",
        "change": {"text": "write these", "notes": ["it selects 1 besides"], "resources": [resource, resource]}});
    server.on("GET", PATH, 200, denied);
    let ran = Program::of(&server).run(&["access", "web", "backend"]).answered(3);
    let said = ran.out.split_once("\nReachability: ").unwrap().1;
    let (said, yaml) = said.split_once("\n\n").unwrap();
    assert_eq!(
        said,
        "trimmed\n  its proxy is not sent the destination\nRefusing inbounds: kri_dp_default___backend-1_80, \
         kri_dp_default___backend-2_80 and 3 more\nNot offered: the proxy is not sent this destination: it is not \
         listed\nTo allow it: write these\nNote: it selects 1 besides"
    );
    let documents = resources::format::yaml::documents(yaml).unwrap();
    assert!(documents.len() == 2 && documents.iter().all(|document| document.value == resource), "{yaml}");

    let mut unknown = answer("Allowed", &[check_of("web", true, None, "allowed: maybe")], false);
    unknown["reachability"] = json!({"verdict": "unknown", "reason": "it is in another zone"});
    server.replace("GET", PATH, 200, unknown);
    let ran = Program::of(&server).run(&["access", "web", "backend"]).answered(0);
    assert!(ran.out.contains("as far as this control plane knows"), "{}", ran.out);

    let rule = "kri_mtp_default___some_rule_0";
    let mut mixed = answer("Mixed", &[check_of("web", true, Some(rule), "it says so")], false);
    let refusing = json!({"server": "kri_dp_default___backend-1_80", "servers": 3, "allowed": false, "reason": "denied: so"});
    let letting = json!({"server": "kri_dp_default___backend-2_80", "servers": 1, "allowed": true, "rule": rule, "reason": "yes"});
    mixed["reachability"] = json!({"verdict": "reachable", "reason": "1 of 4", "decidedBy": [rule],
        "answers": [letting, refusing], "truncated": true,
        "change": {"text": "change that rule", "rules": [rule]}});
    server.replace("GET", PATH, 200, mixed);
    let ran = Program::of(&server).run(&["access", "web", "backend"]).answered(4);
    let said = ran.out.split_once("\nReachability: ").unwrap().1;
    assert_eq!(
        said,
        format!(
            "reachable\n  1 of 4\nDecided by: {rule}\nWould refuse: kri_dp_default___backend-1_80 and 2 alike: denied: so\n\
             Not all servers were checked.\nTo allow it: change that rule\n"
        )
    );
}

#[test]
fn permissions_that_almost_allow_it_are_named() {
    let control_plane = meshed(&[json!({})]);
    let backends = json!({"kind": "Dataplane", "labels": {"app": "backend"}});
    control_plane.store(permission("web-to-backend", &backends, "web"));
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["access", "web", "backend-1"]).answered(3);
    let reason = "web-to-backend wants app=backend; backend-1 has no such label";
    assert!(ran.out.contains(&format!("\nNear misses:\n  {reason}\n")), "{ran:#?}");
    let json = program.run(&["access", "web", "backend-1", "-o", "json"]).answered(3).json();
    assert_eq!(json["nearMisses"][0]["policy"], "kri_mtp_default___web-to-backend_");
}
