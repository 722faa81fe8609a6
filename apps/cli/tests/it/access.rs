//! `access`: may A call B, and which rule says so.

use serde_json::{Value, json};

use crate::{
    control_plane::{ZoneControlPlane, synced},
    program::{Program, Ran, cells},
    server::Server,
};

/// A mesh with mTLS, a client `web`, and servers `backend-1` and so on with these labels, which MeshService `backend`
/// chooses.
fn meshed(servers: &[Value]) -> (ZoneControlPlane, Program) {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    control_plane.dataplane("web", json!({"app": "web"}), synced());
    for (labels, n) in servers.iter().zip(1..) {
        control_plane.dataplane(&format!("backend-{n}"), labels.clone(), synced());
    }
    control_plane.service("backend");
    let program = Program::at(&control_plane.url);
    (control_plane, program)
}

/// Permission of some Dataplanes for one identity.
fn permission(name: &str, selected: Value, says: &str, client: &str) -> Value {
    let client = json!({"spiffeID": {"type": "Exact", "value": format!("spiffe://default/{client}")}});
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": {
        "targetRef": selected, "rules": [{"default": {says: [client]}}]}})
}

fn allow(name: &str, labels: Value, client: &str) -> Value {
    permission(name, json!({"kind": "Dataplane", "labels": labels}), "allow", client)
}

/// A Dataplane with so many inbounds that not all are checked. It lets `web` in at all of them but one.
fn wide() -> [Value; 3] {
    let tags = json!({"kuma.io/service": "wide"});
    let inbounds: Vec<Value> = (1..=1001).map(|port| json!({"port": port, "tags": tags})).collect();
    let selected = json!({"kind": "Dataplane", "labels": {"app": "wide"}});
    let mut seventh = selected.clone();
    seventh["sectionName"] = json!("7");
    [
        json!({"type": "Dataplane", "mesh": "default", "name": "wide", "labels": {"app": "wide"},
            "networking": {"address": "127.0.0.1", "inbound": inbounds}}),
        permission("wide", selected, "allow", "web"),
        permission("not-7", seventh, "deny", "web"),
    ]
}

/// The answer without what follows the checks.
fn checks(ran: &Ran) -> Vec<&str> {
    let end = ran.out.find("\nNear misses:").or(ran.out.find("\nReachability: ")).unwrap();
    ran.out[..end].lines().collect()
}

#[test]
fn the_answer_is_a_sentence_a_table_and_an_exit_code() {
    let server = |v: &str| json!({"app": "backend", "v": v});
    let backends = || json!({"app": "backend"});
    let one = || json!({"app": "backend", "v": "1"});
    let call = "call MeshService backend (dataplanes: 2)";
    let no_rule =
        "no MeshTrafficPermission applies to this inbound, and clients that no rule allows are denied";
    let cases = [
        (
            // The servers differ, and the same rule decides.
            vec![allow("all", backends(), "web"), allow("api", one(), "api")],
            0,
            2,
            format!("Dataplane web may {call}: kri_mtp_default___all_rule_0 allows spiffe://default/web."),
        ),
        (vec![], 3, 1, format!("Dataplane web may not {call}: {no_rule}.")),
        (vec![allow("api", one(), "api")], 3, 2, format!("Dataplane web may not {call}.")),
        (
            vec![allow("one", one(), "web"), allow("two", json!({"app": "backend", "v": "2"}), "web")],
            0,
            2,
            format!("Dataplane web may {call}."),
        ),
        (
            vec![allow("one", one(), "web")],
            4,
            2,
            format!("Dataplane web may {call} only in part: 1 of 2 checks allow it."),
        ),
    ];
    for (permissions, code, rows, sentence) in cases {
        let (control_plane, program) = meshed(&[server("1"), server("2")]);
        control_plane.store_all(permissions);
        let ran = program.run(&["access", "web", "backend"]).answered(code);
        assert_eq!(ran.lines()[0], sentence);
        assert_eq!(checks(&ran).len(), 3 + rows, "{ran:#?}");
        let answer = control_plane.get("/meshes/default/_access?from=web&to=backend");
        let json = program.run(&["access", "web", "backend", "-o", "json"]).answered(code).json();
        assert_eq!(json, answer, "as the REST API says it");
        let yaml = program.run(&["access", "web", "backend", "-o", "yaml"]).answered(code).out;
        assert_eq!(resources::format::yaml::documents(&yaml).unwrap().remove(0).value, answer);
    }
}

#[test]
fn an_answer_about_servers_that_are_not_there_is_about_what_is_known() {
    let (control_plane, program) = meshed(&[]);
    control_plane.store(permission("all", json!({"kind": "Mesh"}), "allow", "web"));
    let ran = program.run(&["access", "web", "backend"]).answered(0);
    let knows = "as far as this control plane knows";
    let rule = "kri_mtp_default___all_rule_0";
    let sentence =
        format!("Dataplane web may call MeshService backend {knows}: {rule} allows spiffe://default/web.");
    assert_eq!(ran.lines()[0], sentence);
    assert_eq!(cells(checks(&ran)[3])[1..3], ["not known here", "yes"]);

    // Where there is no check, nothing is said about a rule.
    control_plane.store(json!({"type": "MeshMultiZoneService", "mesh": "default", "name": "everywhere", "spec": {
        "selector": {"meshService": {"matchLabels": {"app": "none"}}}, "ports": [{"port": 80, "appProtocol": "http"}]}}));
    let ran = program.run(&["access", "web", "everywhere"]).answered(0);
    let sentence =
        "Dataplane web may call MeshMultiZoneService everywhere as far as this control plane knows.";
    assert_eq!(checks(&ran), [sentence]);
    let known = "\nReachability: unknown\n  no instance of the destination is known here, so it is not known which clients it \
                 lets in\n";
    assert!(ran.out.ends_with(known), "{ran:#?}");
}

#[test]
fn every_check_names_its_rule() {
    let (control_plane, program) = meshed(&[json!({"app": "backend"})]);
    for (name, app) in [("web-1", "web"), ("web-2", "web"), ("api", "api")] {
        control_plane.dataplane(name, json!({"app": app, "team": "front"}), synced());
    }
    control_plane.dataplane("web", json!({"app": "web", "team": "front"}), synced());
    control_plane.store(json!({"type": "MeshService", "mesh": "default", "name": "front", "spec": {
        "selector": {"dataplaneLabels": {"matchLabels": {"team": "front"}}}, "ports": [{"port": 80, "targetPort": 80}]}}));
    control_plane.store(allow("web", json!({"app": "backend"}), "web"));
    let ran = program.run(&["access", "front", "backend"]).answered(4);
    let rows: Vec<Vec<&str>> = checks(&ran)[2..].iter().map(|line| cells(line)).collect();
    let backend = "kri_dp_default___backend-1_80";
    let rule = "kri_mtp_default___web_rule_0";
    let allowed = format!("{rule} allows spiffe://default/web");
    let denied =
        "the only rule of this inbound is not about this client, and clients that no rule allows are denied";
    assert_eq!(
        rows,
        [
            ["CLIENT", "SERVER", "ALLOWED", "ACTION", "RULE", "REASON"],
            ["kri_dp_default___api_", backend, "no", "Deny", "-", denied],
            ["kri_dp_default___web_ and 2 alike", backend, "yes", "Allow", rule, &allowed],
        ]
    );
}

#[test]
fn an_answer_about_too_many_servers_says_that_there_are_more() {
    let (control_plane, program) = meshed(&[]);
    control_plane.store_all(wide());
    let ran = program.run(&["access", "web", "wide"]).answered(4);
    let checks = checks(&ran);
    assert_eq!(checks[0], "Dataplane web may call Dataplane wide only in part: 1 of 2 checks allow it.");
    assert_eq!(cells(checks[3])[1], "kri_dp_default___wide_1 and 998 alike");
    let last = "This is about the checks above, and there are more: name one Dataplane or a --port.";
    assert_eq!(checks[5..], ["", last]);
    let denial = "kri_mtp_default___not-7_rule_0 denies";
    let refused = format!("Would refuse: kri_dp_default___wide_7: denied: {denial} spiffe://default/web");
    let change = format!(
        "To allow it: {denial} this client, and no other permission can allow it: the call is allowed when that rule no \
         longer denies it, which is for the owner of the policy to decide"
    );
    let lines = ran.lines();
    let known = lines.iter().position(|line| *line == refused).unwrap();
    assert_eq!(lines[known + 1..], ["Not all servers were checked.", &change]);
}

#[test]
fn what_is_asked_reaches_the_control_plane_and_its_refusal_the_user() {
    let (control_plane, program) = meshed(&[json!({"app": "backend"})]);
    control_plane.store(allow("web", json!({"app": "backend"}), "web"));
    program.run(&["access", "web", "backend", "--port", "http"]).answered(0);
    program.run(&["access", "web", "backend", "--port", "http/1"]).failed(1).says(
        "MeshService \"backend\" of mesh \"default\" takes no calls at port \"http/1\" now; it does at http",
    );
    program
        .run(&["access", "a&b", "backend"])
        .failed(1)
        .says("could not determine whether a&b may call backend: mesh \"default\" has no Dataplane and no MeshService of the \
               name \"a&b\", and no Dataplane with the tag kuma.io/service=a&b");
    program.run(&["access", "a&b", "c", "-m", "my shop", "--port", "http/1"]).failed(1).says("Mesh");
    let asked = "GET /meshes/my%20shop/_access?from=a%26b&to=c&port=http/1";
    assert_eq!(control_plane.lines().last().unwrap(), asked);
    program.run(&["access", "a"]).failed(2);
}

#[test]
fn an_answer_without_a_verdict_is_a_failure() {
    // Every control plane of ours gives one.
    let server = Server::start();
    server.on("GET", "/meshes/default/_access?from=a&to=b", 200, json!({}));
    Program::of(&server).run(&["access", "a", "b"]).failed(1).says("no verdict");
}

/// Text about reachability, and the YAML after it.
fn explained(ran: &Ran) -> (&str, &str) {
    let said = ran.out.split_once("\nReachability: ").unwrap().1;
    said.split_once("\n\n").unwrap_or((said, ""))
}

#[test]
fn what_is_trimmed_is_explained_with_the_change_that_would_allow_the_call() {
    let (control_plane, program) = meshed(&[]);
    control_plane.secure(json!({"reachability.kuma.io/mode": "enforce"}));
    let redirect = json!({"redirectPortInbound": 15006, "redirectPortOutbound": 15001});
    let tags = |service: &str| json!({"kuma.io/service": service});
    control_plane.store(
        json!({"type": "Dataplane", "mesh": "default", "name": "web", "networking": {"address": "127.0.0.1",
        "inbound": [{"port": 80, "tags": tags("web")}], "transparentProxying": redirect}}),
    );
    let port = |port: u16| json!({"port": port, "targetPort": port, "appProtocol": "http"});
    control_plane.store(json!({"type": "MeshService", "mesh": "default", "name": "backend", "spec": {
        "selector": {"dataplaneLabels": {"matchLabels": {"app": "backend"}}}, "ports": [port(80), port(81)]},
        "status": {"vips": [{"ip": "241.0.0.1"}], "tls": {"status": "Ready"}}}));
    // The third inbound is no part of the service, and no targetRef tells it from the others.
    let inbounds: Vec<Value> = (80..83).map(|port| json!({"port": port, "tags": tags("backend")})).collect();
    control_plane.store_all((1..=6).map(|n| {
        json!({"type": "Dataplane", "mesh": "default", "name": format!("backend-{n}"), "labels": {"app": "backend"},
            "networking": {"address": "127.0.0.1", "inbound": inbounds}})
    }));
    control_plane.store(allow("other", json!({"app": "none"}), "api"));
    let ran = program.run(&["access", "web", "backend"]).answered(3);
    let (said, yaml) = explained(&ran);
    let refusing: Vec<String> = (1..=6)
        .map(|n| (n, 80))
        .chain((1..=4).map(|n| (n, 81)))
        .map(|(n, port)| format!("kri_dp_default___backend-{n}_{port}"))
        .collect();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "trimmed",
            "  its proxy is not sent the destination, because every server refuses: denied: no MeshTrafficPermission \
             applies to this inbound, and clients that no rule allows are denied",
            &format!("Refusing inbounds: {} and 2 more", refusing.join(", ")),
            "To allow it: no rule is about this client; this MeshTrafficPermission would allow the call",
            "Note: no targetRef selects exactly the inbounds that are called: this one also selects 6 others (of \
             Dataplanes backend-1, backend-2, backend-3, backend-4, backend-5, …); give the Dataplanes a label of their \
             own, such as kuma.io/workload",
        ]
    );
    // What is offered does what it is offered for.
    program.run_with_stdin(&["apply", "-f", "-"], yaml).ok();
    program.run(&["access", "web", "backend"]).answered(0);
}

#[test]
fn a_change_of_several_resources_is_one_document_each() {
    let (control_plane, program) = meshed(&[]);
    let inbound = |port: u16, name: &str, service: &str| json!({"port": port, "name": name, "tags": {"kuma.io/service": service}});
    let networking = |inbounds: Value| json!({"address": "127.0.0.1", "inbound": inbounds});
    for (name, inbounds) in [
        ("backend-1", json!([inbound(80, "one", "a"), inbound(81, "admin", "a")])),
        ("backend-2", json!([inbound(80, "two", "b")])),
    ] {
        control_plane.store(json!({"type": "Dataplane", "mesh": "default", "name": name,
            "labels": {"app": "backend", "kuma.io/zone": "east"}, "networking": networking(inbounds)}));
    }
    // Whatever selects both servers by their label overrules this.
    let web = json!({"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}});
    control_plane.store(
        json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "admin", "spec": {
        "targetRef": {"kind": "Dataplane", "labels": {"app": "backend"}, "sectionName": "admin"},
        "from": [{"targetRef": web, "default": {"action": "Deny"}}]}}),
    );
    let ran = program.run(&["access", "web", "backend"]).answered(3);
    let (said, yaml) = explained(&ran);
    assert!(said.ends_with("these 2 MeshTrafficPermissions would allow the call"), "{said}");
    let documents = resources::format::yaml::documents(yaml).unwrap();
    let targets: Vec<&Value> =
        documents.iter().map(|document| &document.value["spec"]["targetRef"]).collect();
    assert_eq!(
        targets,
        [
            &json!({"kind": "Dataplane", "name": "backend-1", "sectionName": "one"}),
            &json!({"kind": "Dataplane", "name": "backend-2"})
        ]
    );
    program.run_with_stdin(&["apply", "-f", "-"], yaml).ok();
    program.run(&["access", "web", "backend"]).answered(0);
}

#[test]
fn servers_that_would_refuse_are_named_where_others_let_the_client_in() {
    let server = |v: &str| json!({"app": "backend", "v": v});
    let (control_plane, program) = meshed(&[server("1"), server("2"), server("2"), server("2")]);
    control_plane.store(allow("all", json!({"app": "backend"}), "web"));
    let second = json!({"kind": "Dataplane", "labels": {"v": "2"}});
    control_plane.store(permission("not-v2", second, "deny", "web"));
    let ran = program.run(&["access", "web", "backend"]).answered(4);
    let denied = "kri_mtp_default___not-v2_rule_0 denies";
    assert_eq!(
        explained(&ran).0.lines().collect::<Vec<_>>(),
        [
            "reachable",
            &format!(
                "  1 of 4 inbounds let the client in, so the whole destination is reachable; 3 would refuse it: denied: \
                 {denied} spiffe://default/web"
            ),
            "Decided by: kri_mtp_default___all_rule_0",
            &format!(
                "Would refuse: kri_dp_default___backend-2_80 and 2 alike: denied: {denied} spiffe://default/web"
            ),
            "Refusing inbounds: kri_dp_default___backend-2_80, kri_dp_default___backend-3_80, \
             kri_dp_default___backend-4_80",
            &format!(
                "To allow it: {denied} this client, and no other permission can allow it: the call is allowed when that \
                 rule no longer denies it, which is for the owner of the policy to decide"
            ),
        ]
    );
}

#[test]
fn permissions_that_almost_allow_it_are_named() {
    let (control_plane, program) = meshed(&[json!({})]);
    control_plane.store(allow("web-to-backend", json!({"app": "backend"}), "web"));
    let ran = program.run(&["access", "web", "backend-1"]).answered(3);
    let reason = "web-to-backend wants app=backend; backend-1 has no such label";
    assert!(ran.out.contains(&format!("\nNear misses:\n  {reason}\n")), "{ran:#?}");
    let json = program.run(&["access", "web", "backend-1", "-o", "json"]).answered(3).json();
    assert_eq!(json["nearMisses"][0]["policy"], "kri_mtp_default___web-to-backend_");
}

#[test]
fn a_destination_that_the_proxy_is_not_sent_says_why() {
    let (control_plane, program) = meshed(&[json!({"app": "backend"})]);
    control_plane.store(allow("web", json!({"app": "backend"}), "web"));
    let of_proxy = ["inspect", "dataplane", "web", "--type", "reachability", "--to", "backend"];
    let ran = program.run(&of_proxy).ok();
    let why = "it has no outbound for it in `networking.outbound`, and no transparent proxy";
    let said = format!("Not offered: the proxy is not sent this destination: {why}\n");
    assert!(ran.out.ends_with(&said), "{ran:#?}");
}
