//! `inspect dataplane NAME`: what applies to a proxy, its inbounds and its outbounds.

use serde_json::{Value, json};

use crate::{
    program::{Program, cells},
    server::Server,
};

const ONE: &str = "/meshes/default/dataplanes/web";
const INBOUND: &str = "kri_dp_default_east__web_http";
const BACKEND: &str = "kri_msvc_default_east__backend_http";
const ROUTE: &str = "kri_mhttpr_default___canary_";

fn origin(kri: &str) -> Value {
    json!([{ "kri": kri }])
}

/// A mesh that has MeshServices only, with `more` outbounds that nothing applies to.
fn taught(more: usize) -> (Server, Program) {
    let server = Server::start();
    let on = |path: &str, body: Value| server.on("GET", &format!("{ONE}/{path}"), 200, body);
    let mut outbounds = vec![
        json!({"kri": BACKEND, "port": 80, "protocol": "http", "proxyResourceName": "default_backend__east_msvc_80"}),
    ];
    for n in 0..more {
        let kri = format!("kri_msvc_default_east__other-{n}_80");
        on(&format!("_outbounds/{kri}/_policies"), json!({"policies": []}));
        on(&format!("_outbounds/{kri}/_routes"), json!({"routes": []}));
        outbounds.push(json!({"kri": kri, "port": 80, "protocol": "tcp", "proxyResourceName": kri}));
    }
    on(
        "_layout",
        json!({"kri": "kri_dp_default_east__web_", "labels": {}, "outbounds": outbounds, "problems": ["nothing listens at port 9"],
            "inbounds": [{"kri": INBOUND, "port": 8080, "protocol": "http", "proxyResourceName": "self_http"}]}),
    );
    on(
        "_policies",
        json!({"policies": [{"kind": "MeshProxyPatch", "conf": {"appendModifications": []}, "origins": origin("kri_mpp_default___p_")}]}),
    );
    on(
        &format!("_inbounds/{INBOUND}/_policies"),
        json!({"policies": [{"kind": "MeshTrafficPermission", "origins": origin("kri_mtp_default___allow_"), "rules": [
            {"kri": "kri_mtp_default___allow_rule_0", "conf": {"allow": [{}]}},
            {"kri": "kri_mtp_default___allow_rule_1", "conf": {"deny": [{}]}},
            {"kri": "kri_mtp_default___old_", "conf": {"action": "Allow"}, "matchers": [
                {"key": "kuma.io/service", "not": false, "value": "orders"}]}]}]}),
    );
    let timeout = |seconds: u8, kri: &str| json!({"kind": "MeshTimeout", "conf": [{"idleTimeout": format!("{seconds}s")}], "origins": origin(kri)});
    let slow = timeout(9, "kri_mt_default___slow_");
    on(&format!("_outbounds/{BACKEND}/_policies"), json!({"policies": [slow]}));
    on(
        &format!("_outbounds/{BACKEND}/_routes"),
        json!({"routes": [
            {"kind": "MeshHTTPRoute", "origins": origin(ROUTE), "rules": [{"kri": ROUTE, "conf": {"backendRefs": []},
                "matches": [{"path": {"type": "PathPrefix", "value": "/v2"}, "method": "GET", "headers": [{"name": "a"}]}]}]},
            {"kind": "MeshTCPRoute", "origins": origin("kri_mtcpr_default___t_"), "rules": [{"kri": "", "conf": {}, "matches": null}]}]}),
    );
    let own = timeout(1, "kri_mt_default___of-route_");
    on(&format!("_outbounds/{BACKEND}/_routes/{ROUTE}/_policies"), json!({"policies": [slow, own]}));
    let program = Program::of(&server);
    (server, program)
}

#[test]
fn policies_are_shown_where_they_apply_with_their_origins() {
    let (_server, program) = taught(0);
    let ran = program.run(&["inspect", "dataplane", "web"]).ok();
    let lines = ran.lines();
    let expect: &[&[&str]] = &[
        &["Proxy"],
        &["MeshProxyPatch", "kri_mpp_default___p_", r#"{"appendModifications":[]}"#],
        &[],
        &["Inbound kri_dp_default_east__web_http (http, port 8080, in Envoy self_http)"],
        &["MeshTrafficPermission", "kri_mtp_default___allow_rule_0", r#"{"allow":[{}]}"#],
        &["MeshTrafficPermission", "kri_mtp_default___allow_rule_1", r#"{"deny":[{}]}"#],
        &["MeshTrafficPermission", "kri_mtp_default___old_", r#"kuma.io/service=orders {"action":"Allow"}"#],
        &[],
        &[
            "Outbound kri_msvc_default_east__backend_http (http, port 80, in Envoy default_backend__east_msvc_80)",
        ],
        &["MeshTimeout", "kri_mt_default___slow_", r#"{"idleTimeout":"9s"}"#],
        &["MeshHTTPRoute", ROUTE, r#"PathPrefix /v2 GET +1 headers {"backendRefs":[]}"#],
        &[
            "MeshTimeout on kri_mhttpr_default___canary_",
            "kri_mt_default___of-route_",
            r#"{"idleTimeout":"1s"}"#,
        ],
        &["MeshTCPRoute", "kri_mtcpr_default___t_", "{}"],
        &[],
        &["Problems"],
        &["nothing listens at port 9"],
    ];
    assert_eq!(lines.into_iter().map(cells).collect::<Vec<_>>(), expect, "{}", ran.out);
}

#[test]
fn many_outbounds_are_asked_about_and_told_in_order() {
    let (server, program) = taught(40);
    let document =
        program.run(&["inspect", "dataplane", "web", "--type", "policies", "-o", "json"]).ok().json();
    let told: Vec<&str> = document["outbounds"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|outbound| outbound["kri"].as_str())
        .collect();
    let mut expect = vec![BACKEND.to_owned()];
    expect.extend((0..40).map(|n| format!("kri_msvc_default_east__other-{n}_80")));
    assert_eq!(told, expect);
    assert_eq!(document["kri"], "kri_dp_default_east__web_");
    assert_eq!(document["policies"][0]["kind"], "MeshProxyPatch");
    assert_eq!(document["inbounds"][0]["policies"][0]["rules"][1]["kri"], "kri_mtp_default___allow_rule_1");
    let backend = &document["outbounds"][0];
    assert_eq!(backend["policies"][0]["origins"], origin("kri_mt_default___slow_"));
    assert_eq!(backend["routes"][0]["rules"][0]["policies"][1]["kind"], "MeshTimeout");
    assert_eq!(document["outbounds"][40]["policies"], json!([]));
    assert_eq!(server.lines().len(), 2 + 1 + 3 + 2 * 40);
    let table = program.run(&["inspect", "dataplane", "web"]).ok();
    assert!(table.out.ends_with("\nOutbounds without policies: 40 (-o yaml lists them)\n"), "{}", table.out);
    let yaml = program.run(&["inspect", "dataplane", "web", "-o", "yaml"]).ok().out;
    assert_eq!(resources::format::yaml::documents(&yaml).unwrap().remove(0).value, document);
}

#[test]
fn a_part_that_cannot_be_asked_about_is_a_failure() {
    let (server, program) = taught(20);
    let check = |path: &str, status: u16, said: &str| {
        let problem = json!({"status": status, "title": said, "detail": "Not found"});
        server.replace("GET", &format!("{ONE}/{path}"), status, problem);
        program
            .run(&["inspect", "dataplane", "web"])
            .failed(1)
            .says("could not inspect Dataplane \"web\" in mesh \"default\"")
            .says(said);
    };
    check("_outbounds/kri_msvc_default_east__other-7_80/_routes", 500, "broken");
    // The proxy exists, so no message says that it does not.
    check(&format!("_inbounds/{INBOUND}/_policies"), 404, "has no inbound");
    program.run(&["inspect", "dataplane", "none"]).failed(1).says("there is no Dataplane \"none\"");
}

/// A mesh where services are named by tags too.
#[test]
fn a_mesh_with_other_destinations_tells_its_rules() {
    let server = Server::start();
    let refusal = json!({"status": 400, "title": "Bad Request",
        "detail": "bad request: can't use _policies endpoint without meshService enabled"});
    server.on("GET", &format!("{ONE}/_policies"), 400, refusal);
    let meta = |kind: &str, name: &str| json!({"type": kind, "mesh": "default", "name": name, "labels": {}});
    let origin =
        |kind: &str, name: &str, rule: u8| json!({"resourceMeta": meta(kind, name), "ruleIndex": rule});
    let inbound = json!({"port": 80, "tags": {"kuma.io/service": "web"}});
    let web = json!([{"key": "kuma.io/service", "value": "web", "not": false}, {"key": "v", "value": "1", "not": true}]);
    let mut backend = meta("MeshService", "backend-x2");
    backend["labels"] = json!({"kuma.io/display-name": "backend", "kuma.io/zone": "east"});
    let rules = json!({"resource": meta("Dataplane", "web"), "httpMatches": [], "rules": [
        {"type": "MeshTrafficPermission", "warnings": ["one matches nothing"], "toRules": [], "toResourceRules": [],
         "fromRules": [{"inbound": inbound, "rules": [{"conf": {"action": "Allow"}, "matchers": web, "origin": [meta("MeshTrafficPermission", "p")]}]}],
         "inboundRules": [{"inbound": inbound, "rules": [{"conf": [{"deny": []}], "origin": [origin("MeshTrafficPermission", "p", 1)]}]}]},
        {"type": "MeshTimeout", "warnings": [], "fromRules": [], "inboundRules": [],
         "toRules": [{"conf": {"a": 1}, "matchers": web, "origin": [meta("MeshTimeout", "t")]}, {"conf": {"a": 3}, "matchers": [], "origin": []}],
         "toResourceRules": [{"conf": [{"a": 2}], "origin": [origin("MeshTimeout", "t", 0)], "resourceMeta": backend, "resourceSectionName": "http"},
            {"conf": [{"a": 4}], "origin": [], "resourceMeta": meta("Mesh", "default"), "resourceSectionName": ""}]},
        {"type": "MeshProxyPatch", "warnings": [], "proxyRule": {"conf": {"x": 1}, "origin": [meta("MeshProxyPatch", "pp")]}}]});
    server.on("GET", &format!("{ONE}/_rules"), 200, rules.clone());
    let program = Program::of(&server);
    let ran =
        program.run(&["inspect", "dataplane", "web"]).ok().says("MeshTrafficPermission: one matches nothing");
    let expect: &[&[&str]] = &[
        &["Proxy"],
        &["MeshProxyPatch", "kri_mpp_default___pp_", r#"{"x":1}"#],
        &[],
        &["Inbound port 80 web"],
        &["MeshTrafficPermission", "kri_mtp_default___p_", r#"kuma.io/service=web v!=1 {"action":"Allow"}"#],
        &["MeshTrafficPermission", "kri_mtp_default___p_rule_1", r#"{"deny":[]}"#],
        &[],
        &["Outbound kri_msvc_default_east__backend_http"],
        &["MeshTimeout", "kri_mt_default___t_rule_0", r#"{"a":2}"#],
        &[],
        &["All outbounds"],
        &["MeshTimeout", r#"{"a":4}"#],
        &["MeshTimeout", r#"{"a":3}"#],
        &[],
        &["Outbounds with kuma.io/service=web v!=1"],
        &["MeshTimeout", "kri_mt_default___t_", r#"{"a":1}"#],
    ];
    assert_eq!(ran.lines().into_iter().map(cells).collect::<Vec<_>>(), expect, "{}", ran.out);
    assert_eq!(program.run(&["inspect", "dataplane", "web", "-o", "json"]).ok().json(), rules);
}
