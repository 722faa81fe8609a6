//! `inspect dataplane NAME`: what applies to a proxy, its inbounds and its outbounds.

use resources::{Kind, Resource};
use serde_json::{Value, json};
use testkit::{build::dataplane, resource, spec};

use crate::{
    control_plane::ZoneControlPlane,
    observed_mesh::{OF_ZONE, permission, service},
    program::{Program, cells},
    server::Server,
};

const ONE: &str = "/meshes/default/dataplanes/web";
const INBOUND: &str = "kri_dp_default_east__web_http";
const BACKEND: &str = "kri_msvc_default_east__backend_80";
/// Confs as they are shown.
const PATCH: &str = r#"{"appendModifications":[{"cluster":{"match":{"name":"none"},"operation":"Remove"}}]}"#;
const ALLOW: &str = r#"{"allow":[{"spiffeID":{"type":"Exact","value":"spiffe://default/a"}}]}"#;
const DENY: &str = r#"{"deny":[{"spiffeID":{"type":"Exact","value":"spiffe://default/b"}}]}"#;
const RULES: &str = concat!(
    r#"{"rules":[{"matches":[{"path":{"value":"/v2","type":"PathPrefix"},"method":"GET","#,
    r#""headers":[{"type":"Exact","name":"a","value":"b"}]}],"default":{}}]}"#
);
const ROUTE: &str = "kri_mhttpr_default_east__canary_";

fn idle(target: Value, seconds: u8) -> Value {
    json!({ "to": [spec::entry(target, json!({ "idleTimeout": format!("{seconds}s") }))] })
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().unwrap().iter()
}

fn policy(kind: Kind, name: &str, spec: Value) -> Resource {
    resource::with_labels(resource::policy(kind, name, spec), &OF_ZONE)
}

/// `web` calls these MeshServices, and this one that does not exist or is known by its tags only.
fn web(called: &[&str], other: Value) -> Resource {
    let reference =
        |name: &&str| json!({ "backendRef": { "kind": "MeshService", "name": name, "port": 80 } });
    let mut outbounds: Vec<Value> = called.iter().map(reference).chain([other]).collect();
    outbounds.iter_mut().zip(10_000..).for_each(|(outbound, port)| outbound["port"] = json!(port));
    let tags = json!({ "kuma.io/service": "web", "kuma.io/protocol": "http" });
    let inbound = json!({ "port": 8080, "name": "http", "tags": tags });
    let networking = json!({ "outbound": outbounds, "inbound": [inbound] });
    dataplane("web").labels(&OF_ZONE).address("127.0.0.1").networking(networking).complete()
}

/// A mesh that has MeshServices only, with `more` outbounds that nothing applies to.
fn mesh(more: usize) -> ZoneControlPlane {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    let mut called = vec!["backend".to_owned()];
    called.extend((0..more).map(|number| format!("other-{number:02}")));
    control_plane.put(called.iter().enumerate().map(|(number, name)| service(name, number + 1)));
    let patch = json!({ "cluster": { "operation": "Remove", "match": { "name": "none" } } });
    let backend = spec::service("backend");
    let header = json!({ "name": "a", "value": "b" });
    let matched =
        json!({ "path": { "type": "PathPrefix", "value": "/v2" }, "method": "GET", "headers": [header] });
    let route = json!({ "matches": [matched], "default": {} });
    let allow = json!({ "allow": [{ "spiffeID": { "type": "Exact", "value": "spiffe://default/a" } }] });
    let deny = json!({ "deny": [{ "spiffeID": { "type": "Exact", "value": "spiffe://default/b" } }] });
    let called: Vec<&str> = called.iter().map(String::as_str).collect();
    let gone = json!({ "backendRef": { "kind": "MeshService", "name": "gone", "port": 80 } });
    control_plane.put([
        web(&called, gone),
        policy(Kind::MeshProxyPatch, "p", json!({ "default": { "appendModifications": [patch] } })),
        policy(
            Kind::MeshTrafficPermission,
            "allow",
            json!({ "rules": [{ "default": allow }, { "default": deny }] }),
        ),
        permission("old", spec::all(), &[(spec::tagged("orders"), "Allow")]),
        policy(Kind::MeshTimeout, "slow", idle(backend.clone(), 9)),
        policy(Kind::MeshHTTPRoute, "canary", json!({ "to": [{ "targetRef": backend, "rules": [route] }] })),
        policy(
            Kind::MeshTCPRoute,
            "t",
            json!({ "to": [{ "targetRef": backend, "rules": [{ "default": {} }] }] }),
        ),
        policy(Kind::MeshTimeout, "of-route", idle(json!({ "kind": "MeshHTTPRoute", "name": "canary" }), 1)),
    ]);
    control_plane
}

#[test]
fn policies_are_shown_where_they_apply_with_their_origins() {
    let control_plane = mesh(0);
    let ran = Program::at(&control_plane.url).run(&["inspect", "dataplane", "web"]).ok();
    let lines = ran.lines();
    let expect: &[&[&str]] = &[
        &["Proxy"],
        &["MeshProxyPatch", "kri_mpp_default_east__p_", PATCH],
        &[],
        &["Inbound kri_dp_default_east__web_http (http, port 8080, in Envoy localhost:8080)"],
        &["MeshTrafficPermission", "kri_mtp_default_east__allow_", ALLOW],
        &["MeshTrafficPermission", "kri_mtp_default_east__allow_", DENY],
        &[
            "MeshTrafficPermission",
            "kri_mtp_default_east__old_",
            r#"kuma.io/service=orders {"action":"Allow"}"#,
        ],
        &[],
        &[
            "Outbound kri_msvc_default_east__backend_80 (http, port 80, in Envoy default_backend__east_msvc_80)",
        ],
        &["MeshTimeout", "kri_mt_default_east__slow_", r#"{"idleTimeout":"9s"}"#],
        &["MeshHTTPRoute", ROUTE, "PathPrefix /v2 GET +1 headers {}"],
        &[
            "MeshTimeout on kri_mhttpr_default_east__canary_",
            "kri_mt_default_east__of-route_",
            r#"{"idleTimeout":"1s"}"#,
        ],
        &["MeshTCPRoute", "kri_mtcpr_default_east__t_", "{}"],
        &[],
        &["Problems"],
        &[r#"outbound 127.0.0.1:10001: there is no destination with MeshService "gone" port 80 in the mesh"#],
    ];
    assert_eq!(lines.into_iter().map(cells).collect::<Vec<_>>(), expect, "{}", ran.out);
}

#[test]
fn many_outbounds_are_asked_about_and_told_in_order() {
    let control_plane = mesh(40);
    let program = Program::at(&control_plane.url);
    let document =
        program.run(&["inspect", "dataplane", "web", "--type", "policies", "-o", "json"]).ok().json();
    let asked = control_plane.lines().len();
    let told: Vec<&str> =
        each(&document["outbounds"]).filter_map(|outbound| outbound["kri"].as_str()).collect();
    let mut expect = vec![BACKEND.to_owned()];
    expect.extend((0..40).map(|n| format!("kri_msvc_default_east__other-{n:02}_80")));
    assert_eq!(told, expect);
    assert_eq!(document["kri"], "kri_dp_default_east__web_");
    assert_eq!(document["policies"][0]["kind"], "MeshProxyPatch");
    assert_eq!(document["inbounds"][0]["policies"][0]["rules"][1]["kri"], "kri_mtp_default_east__allow_");
    let backend = &document["outbounds"][0];
    let timeout = each(&backend["policies"]).find(|policy| policy["kind"] == "MeshTimeout").unwrap();
    assert_eq!(timeout["origins"], json!([{ "kri": "kri_mt_default_east__slow_" }]));
    assert_eq!(backend["routes"][0]["rules"][0]["policies"][0]["kind"], "MeshTimeout");
    assert_eq!(document["outbounds"][40]["policies"], json!([]));
    assert_eq!(asked, 2 + 1 + 3 + 2 * 40);
    let table = program.run(&["inspect", "dataplane", "web"]).ok();
    assert!(table.out.ends_with("\nOutbounds without policies: 40 (-o yaml lists them)\n"), "{}", table.out);
    let yaml = program.run(&["inspect", "dataplane", "web", "-o", "yaml"]).ok().out;
    assert_eq!(resources::format::yaml::documents(&yaml).unwrap().remove(0).value, document);
}

/// The answers of a control plane about `web`, for a server that gives one of them otherwise.
fn taught(more: usize) -> Server {
    let control_plane = mesh(more);
    Program::at(&control_plane.url).run(&["inspect", "dataplane", "web"]).ok();
    let server = Server::start();
    for line in control_plane.lines() {
        let path = line.strip_prefix("GET ").unwrap();
        server.on("GET", path, 200, control_plane.get(path));
    }
    server
}

/// The Dataplane changes between two reads, or the control plane breaks: a server answers what that one would.
#[test]
fn a_part_that_cannot_be_asked_about_is_a_failure() {
    let server = taught(20);
    let program = Program::of(&server);
    program.run(&["inspect", "dataplane", "web"]).ok();
    let check = |path: &str, status: u16, said: &str| {
        let problem = json!({"status": status, "title": said, "detail": "Not found"});
        server.replace("GET", &format!("{ONE}/{path}"), status, problem);
        program
            .run(&["inspect", "dataplane", "web"])
            .failed(1)
            .says("could not inspect Dataplane \"web\" in mesh \"default\"")
            .says(said);
    };
    check("_outbounds/kri_msvc_default_east__other-07_80/_routes", 500, "broken");
    // The proxy exists, so no message says that it does not.
    check(&format!("_inbounds/{INBOUND}/_policies"), 404, "has no inbound");
}

#[test]
fn a_failure_names_the_proxy_that_does_not_exist() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    program.run(&["inspect", "dataplane", "none"]).failed(1).says("there is no Dataplane \"none\"");
}

/// A mesh where services are named by tags, too, and where one is of another zone.
fn mesh_of_zones() -> ZoneControlPlane {
    let control_plane = mesh(0);
    // A service of another zone is stored under a longer name; its own one is in a label.
    let west = json!({ "kuma.io/display-name": "backend", "kuma.io/zone": "west" });
    let labels =
        [("kuma.io/origin", "global"), ("kuma.io/display-name", "backend"), ("kuma.io/zone", "west")];
    let of_west = resource::service("default", "backend-x2", &labels);
    control_plane.put([
        resource::mesh("default", "STRICT"),
        web(&["backend"], json!({ "tags": { "kuma.io/service": "legacy" } })),
        of_west,
        policy(Kind::MeshTimeout, "all", idle(spec::all(), 5)),
        policy(
            Kind::MeshTimeout,
            "west",
            idle(json!({ "kind": "MeshService", "labels": west, "sectionName": "80" }), 7),
        ),
        permission("public", spec::all(), &[(spec::all(), "Allow")]),
    ]);
    control_plane
}

#[test]
fn a_mesh_with_other_destinations_tells_its_rules() {
    let control_plane = mesh_of_zones();
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["inspect", "dataplane", "web"]).ok();
    let ran = ran.says(
        "warning: MeshTrafficPermission: fromRules are listed in the order in which they are evaluated",
    );
    let expect: &[&[&str]] = &[
        &["Proxy"],
        &["MeshProxyPatch", "kri_mpp_default_east__p_", PATCH],
        &[],
        &["Inbound port 8080 http web"],
        &[
            "MeshTrafficPermission",
            "kri_mtp_default_east__old_",
            r#"kuma.io/service=orders {"action":"Allow"}"#,
        ],
        &["MeshTrafficPermission", "kri_mtp_default_east__public_", r#"{"action":"Allow"}"#],
        &["MeshTrafficPermission", "kri_mtp_default_east__allow_rule_0", ALLOW],
        &["MeshTrafficPermission", "kri_mtp_default_east__allow_rule_1", DENY],
        &[],
        &["Outbound kri_msvc_default_east__backend_"],
        &["MeshHTTPRoute", "kri_mhttpr_default_east__canary_rule_0", RULES],
        &["MeshTCPRoute", "kri_mtcpr_default_east__t_rule_0", r#"{"rules":[{"default":{}}]}"#],
        &[
            "MeshTimeout",
            "kri_mt_default_east__all_rule_0,kri_mt_default_east__slow_rule_0",
            r#"{"idleTimeout":"9s"}"#,
        ],
        &[],
        &["Outbound kri_msvc_default_west__backend_80"],
        &[
            "MeshTimeout",
            "kri_mt_default_east__all_rule_0,kri_mt_default_east__west_rule_0",
            r#"{"idleTimeout":"7s"}"#,
        ],
        &[],
        &["Outbound kri_mhttpr_default_east__canary_"],
        &[
            "MeshTimeout",
            "kri_mt_default_east__all_rule_0,kri_mt_default_east__of-route_rule_0",
            r#"{"idleTimeout":"1s"}"#,
        ],
        &[],
        &["All outbounds"],
        &["MeshTimeout", "kri_mt_default_east__all_rule_0", r#"{"idleTimeout":"5s"}"#],
        &[],
        &["Outbounds with kuma.io/service=legacy"],
        &["MeshTimeout", "kri_mt_default_east__all_", r#"{"idleTimeout":"5s"}"#],
    ];
    assert_eq!(ran.lines().into_iter().map(cells).collect::<Vec<_>>(), expect, "{}", ran.out);
    let document = program.run(&["inspect", "dataplane", "web", "-o", "json"]).ok().json();
    assert_eq!(document, control_plane.get(&format!("{ONE}/_rules")));
}

/// Kuma splits what holds for clients into rules that exclude each other. Our control plane lists them in their order.
#[test]
fn rules_that_exclude_each_other_are_told() {
    let server = Server::start();
    let refusal = json!({"status": 400, "title": "Bad Request",
        "detail": "bad request: can't use _policies endpoint without meshService enabled"});
    server.on("GET", &format!("{ONE}/_policies"), 400, refusal);
    let meta = |kind: &str, name: &str| json!({"type": kind, "mesh": "default", "name": name, "labels": {}});
    let inbound = json!({"port": 80, "tags": {"kuma.io/service": "web"}});
    let web = json!([{"key": "kuma.io/service", "value": "web", "not": false}, {"key": "v", "value": "1", "not": true}]);
    let rules = json!({"resource": meta("Dataplane", "web"), "httpMatches": [], "rules": [
        {"type": "MeshTrafficPermission", "warnings": ["one matches nothing"], "toRules": [], "toResourceRules": [],
         "fromRules": [{"inbound": inbound, "rules": [{"conf": {"action": "Allow"}, "matchers": web, "origin": [meta("MeshTrafficPermission", "p")]}]}]},
        {"type": "MeshTimeout", "warnings": [], "fromRules": [], "inboundRules": [],
         "toRules": [{"conf": {"a": 1}, "matchers": web, "origin": [meta("MeshTimeout", "t")]}, {"conf": {"a": 3}, "matchers": [], "origin": []}]}]});
    server.on("GET", &format!("{ONE}/_rules"), 200, rules);
    let program = Program::of(&server);
    let ran =
        program.run(&["inspect", "dataplane", "web"]).ok().says("MeshTrafficPermission: one matches nothing");
    let expect: &[&[&str]] = &[
        &["Proxy"],
        &["no policies"],
        &[],
        &["Inbound port 80 web"],
        &["MeshTrafficPermission", "kri_mtp_default___p_", r#"kuma.io/service=web v!=1 {"action":"Allow"}"#],
        &[],
        &["Outbounds with kuma.io/service=web v!=1"],
        &["MeshTimeout", "kri_mt_default___t_", r#"{"a":1}"#],
        &[],
        &["All outbounds"],
        &["MeshTimeout", r#"{"a":3}"#],
    ];
    assert_eq!(ran.lines().into_iter().map(cells).collect::<Vec<_>>(), expect, "{}", ran.out);
}
