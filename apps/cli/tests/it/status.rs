//! `proxy status`: what became of what proxies were sent.

use serde_json::{Value, json};

use crate::{
    program::{Program, cells},
    server::Server,
};

const ALL: &str = "/meshes/default/dataplanes/_overview?size=1000";

fn proxy(name: &str, status: &Value) -> Value {
    json!({"type": "DataplaneOverview", "mesh": "default", "name": name, "kri": format!("kri_dp_default___{name}_"),
        "dataplaneInsight": {
            "metadata": {"features": ["feature-unified-proxy-resources-and-stats-naming"]},
            "subscriptions": [
                {"connectTime": "2020-01-01T00:00:00Z", "disconnectTime": "2020-01-02T00:00:00Z",
                 "status": {"cds": {"responsesSent": "3"}}},
                {"connectTime": "2020-01-03T00:00:00Z", "controlPlaneInstanceId": "cp-1", "status": status}]}})
}

fn synced() -> Value {
    let done = json!({"responsesSent": "2", "responsesAcknowledged": "1", "responsesRejected": "1"});
    json!({"lastUpdateTime": "2020-01-03T00:00:00Z", "total": {"responsesSent": "8"},
           "cds": done, "eds": done, "lds": done, "sds": done})
}

/// Envoy's words for a listener it does not want.
fn rejecting() -> Value {
    let mut status = synced();
    status["rejections"] = json!([
        {"type": "lds", "name": "self_http", "kri": "kri_mpp_default___broken_", "time": "2020-01-03T00:00:00Z",
         "policies": ["kri_mt_default___slow_", "kri_mtp_default___all_"],
         "message": "Proto constraint validation failed\n(field: 'x')"},
        {"type": "cds", "name": "kri_msvc_default___backend_http", "message": "no"},
        {"type": "sds", "name": "mesh_ca", "message": "bad PEM"}]);
    status
}

fn offline() -> Value {
    let mut of = proxy("gone", &rejecting());
    of["dataplaneInsight"]["subscriptions"][1]["disconnectTime"] = json!("2020-01-04T00:00:00Z");
    of
}

fn taught(items: &[Value]) -> (Server, Program) {
    let server = Server::start();
    server.on("GET", ALL, 200, json!({"total": items.len(), "items": items, "next": null}));
    let program = Program::of(&server);
    (server, program)
}

#[test]
fn the_exit_code_says_whether_everything_is_synced() {
    let mut late = synced();
    late["eds"]["responsesSent"] = json!("5");
    let cases = [
        (vec![], 0),
        (vec![proxy("a", &synced())], 0),
        (vec![proxy("a", &synced()), proxy("b", &late)], 4),
        (vec![proxy("a", &synced()), offline()], 4),
        (vec![proxy("a", &json!({}))], 4),
        (vec![json!({"mesh": "default", "name": "never"})], 4),
        (vec![proxy("a", &late), proxy("b", &rejecting()), offline()], 3),
    ];
    for (items, code) in cases {
        let (_server, program) = taught(&items);
        for format in ["table", "wide", "json", "yaml", "name"] {
            let ran = program.run(&["proxy", "status", "-o", format]);
            assert_eq!(ran.code, code, "{items:#?} {ran:#?}");
        }
    }
}

#[test]
fn every_kind_of_configuration_has_its_state() {
    let mut late = synced();
    late["eds"]["responsesSent"] = json!("5");
    let (_server, program) =
        taught(&[proxy("late", &late), proxy("refusing", &rejecting()), offline(), json!({"name": "never"})]);
    let ran = program.run(&["proxy", "status"]).answered(3);
    let rows: Vec<Vec<&str>> = ran.lines().into_iter().take(5).map(cells).collect();
    let titles = ["MESH", "NAME", "STATUS", "CDS", "EDS", "LDS", "RDS", "SDS", "LAST UPDATED AGO"];
    assert_eq!(rows[0], titles);
    assert_eq!(rows[1][1..8], ["late", "Online", "synced", "stale", "synced", "-", "synced"]);
    assert_eq!(rows[2][1..8], ["refusing", "Online", "rejected", "synced", "rejected", "-", "rejected"]);
    assert_eq!(rows[3][1..8], ["gone", "Offline", "-", "-", "-", "-", "-"]);
    assert_eq!(rows[4], ["-", "never", "Offline", "-", "-", "-", "-", "-", "-"]);
    let wide = program.run(&["proxy", "status", "-o", "wide"]).answered(3);
    assert_eq!(cells(wide.lines()[0])[9..], ["SENT", "ACKNOWLEDGED", "REJECTED", "NAMES", "CONTROL PLANE"]);
    assert_eq!(cells(wide.lines()[1])[9..], ["11", "4", "4", "unified", "cp-1"]);
}

#[test]
fn a_refusal_is_told_in_envoys_words_with_the_resource_to_blame() {
    let (_server, program) = taught(&[proxy("a", &rejecting()), offline()]);
    let told = program.run(&["proxy", "status"]).answered(3).out;
    let (_, told) = told.split_once("\n\n").unwrap();
    assert_eq!(
        told,
        "a rejected listener self_http, which comes from kri_mpp_default___broken_:\n  \
           Proto constraint validation failed\n  (field: 'x')\n  \
           policies in it: kri_mt_default___slow_, kri_mtp_default___all_\n\n\
         a rejected cluster kri_msvc_default___backend_http, which comes from kri_msvc_default___backend_http:\n  no\n\n\
         a rejected secret mesh_ca:\n  bad PEM\n",
        "what offline proxies refused is over"
    );
}

#[test]
fn programs_get_the_same_fields_for_one_proxy_as_for_many() {
    let (server, program) = taught(&[proxy("a", &rejecting()), json!({"mesh": "m", "name": "b"})]);
    server.on("GET", "/meshes/default/dataplanes/a/_overview", 200, proxy("a", &rejecting()));
    let one = program.run(&["proxy", "status", "a", "-o", "json"]).answered(3).json();
    let all = program.run(&["proxy", "status", "-o", "json"]).answered(3).json();
    assert_eq!(all["items"][0], one);
    assert_eq!((&all["total"], &all["next"]), (&json!(2), &Value::Null));
    let fields = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&all["items"][1]), fields(&one));
    assert_eq!(one["state"], "rejected");
    assert_eq!(one["types"]["eds"], json!({"state": "synced", "sent": 2, "acknowledged": 1, "rejected": 1}),);
    assert_eq!(one["types"]["rds"], json!({"state": null, "sent": 0, "acknowledged": 0, "rejected": 0}));
    assert_eq!(
        one["rejections"][2],
        json!({"type": "sds", "name": "mesh_ca", "kri": null, "policies": [], "message": "bad PEM", "time": null})
    );
    let yaml = program.run(&["proxy", "status", "a", "-o", "yaml"]).answered(3).out;
    assert_eq!(resources::format::yaml::documents(&yaml).unwrap().remove(0).value, one);
    assert_eq!(program.run(&["proxy", "status", "-o", "name"]).answered(3).out, "dataplane/a\ndataplane/b\n");
}

#[test]
fn proxies_are_chosen_by_name_and_mesh() {
    let server = Server::start();
    let program = Program::of(&server);
    let check = |arguments: &[&str], path: &str, body: Value| {
        server.on("GET", path, 200, body);
        program.run(&[&["proxy", "status"], arguments].concat()).ok();
        assert_eq!(server.lines().last().unwrap(), &format!("GET {path}"));
    };
    let none = json!({"total": 0, "items": [], "next": null});
    check(&["-m", "shop"], "/meshes/shop/dataplanes/_overview?size=1000", none.clone());
    check(&["-A"], "/dataplanes/_overview?size=1000", none);
    check(&["a", "-m", "shop"], "/meshes/shop/dataplanes/a/_overview", proxy("a", &synced()));
    program.run(&["proxy", "status", "x"]).failed(1).says("there is no Dataplane \"x\" in mesh \"default\"");
    program.run(&["proxy", "status", "x", "-A"]).failed(2).says("cannot be used with");
}
