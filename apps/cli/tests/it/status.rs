//! `proxy status`: what became of what proxies were sent.

use serde_json::{Value, json};

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, cells},
};

/// The insight of a proxy that is connected for the second time.
fn connected(status: &Value) -> Value {
    json!({"metadata": {"features": ["feature-unified-proxy-resources-and-stats-naming"]},
        "subscriptions": [
            {"id": "1", "connectTime": "2020-01-01T00:00:00Z", "disconnectTime": "2020-01-02T00:00:00Z",
             "status": {"cds": {"responsesSent": "3"}}},
            {"id": "2", "connectTime": "2020-01-03T00:00:00Z", "controlPlaneInstanceId": "cp-1", "status": status}]})
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
    let mut of = connected(&rejecting());
    of["subscriptions"][1]["disconnectTime"] = json!("2020-01-04T00:00:00Z");
    of
}

/// A control plane with proxies by name. Those without an insight were never connected.
fn with(proxies: &[(&str, Value)]) -> (ZoneControlPlane, Program) {
    let control_plane = ZoneControlPlane::start();
    for (name, insight) in proxies {
        control_plane.dataplane(name, json!({}), insight.clone());
    }
    let program = Program::at(&control_plane.url);
    (control_plane, program)
}

#[test]
fn the_exit_code_says_whether_everything_is_synced() {
    let mut late = synced();
    late["eds"]["responsesSent"] = json!("5");
    let synced = connected(&synced());
    let late = connected(&late);
    let cases = [
        (vec![], 0),
        (vec![("a", synced.clone())], 0),
        (vec![("a", synced.clone()), ("b", late.clone())], 4),
        (vec![("a", synced), ("gone", offline())], 4),
        (vec![("a", connected(&json!({})))], 4),
        (vec![("never", Value::Null)], 4),
        (vec![("a", late), ("b", connected(&rejecting())), ("gone", offline())], 3),
    ];
    for (proxies, code) in cases {
        let (_control_plane, program) = with(&proxies);
        for format in ["table", "wide", "json", "yaml", "name"] {
            let ran = program.run(&["proxy", "status", "-o", format]);
            assert_eq!(ran.code, code, "{proxies:#?} {ran:#?}");
        }
    }
}

#[test]
fn a_proxy_that_has_caught_up_since_its_insight_was_written_is_not_stale() {
    let mut late = synced();
    late["eds"]["responsesSent"] = json!("5");
    let (control_plane, program) =
        with(&[("a", connected(&late)), ("behind", connected(&late)), ("elsewhere", connected(&late))]);
    let answers = |name: &str, wanted: &str| {
        let sync = || control_plane.get(&format!("/meshes/default/dataplanes/{name}/_sync"));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while sync()["state"] != wanted {
            assert!(std::time::Instant::now() < deadline, "{name} is not {wanted}: {}", sync());
        }
    };
    let caught_up = control_plane.connect("a", &[]);
    caught_up.acknowledges(&[]);
    answers("a", "synced");
    let _behind = control_plane.connect("behind", &[]);
    answers("behind", "behind");
    let shown = program.run(&["proxy", "status"]).answered(4);
    let eds: Vec<&str> = shown.lines()[1..].iter().map(|line| cells(line)[4]).collect();
    assert_eq!(eds, ["synced", "stale", "stale"], "{shown:#?}");
    let one = program.run(&["proxy", "status", "a", "-o", "json"]).answered(0).json();
    assert_eq!((&one["state"], &one["types"]["eds"]["state"]), (&json!("synced"), &json!("synced")));
    let described = program.run(&["describe", "dataplane", "a"]).ok();
    assert!(described.out.contains("\nConnection:\n  online, synced\n"), "{described:#?}");
}

#[test]
fn every_kind_of_configuration_has_its_state() {
    let mut late = synced();
    late["eds"]["responsesSent"] = json!("5");
    let (_control_plane, program) = with(&[
        ("gone", offline()),
        ("late", connected(&late)),
        ("never", Value::Null),
        ("refusing", connected(&rejecting())),
    ]);
    let ran = program.run(&["proxy", "status"]).answered(3);
    let rows: Vec<Vec<&str>> = ran.lines().into_iter().take(5).map(cells).collect();
    let titles = ["MESH", "NAME", "STATUS", "CDS", "EDS", "LDS", "RDS", "SDS", "LAST UPDATED AGO"];
    assert_eq!(rows[0], titles);
    assert_eq!(rows[1][1..8], ["gone", "Offline", "-", "-", "-", "-", "-"]);
    assert_eq!(rows[2][1..8], ["late", "Online", "synced", "stale", "synced", "-", "synced"]);
    assert_eq!(rows[3], ["default", "never", "Offline", "-", "-", "-", "-", "-", "-"]);
    assert_eq!(rows[4][1..8], ["refusing", "Online", "rejected", "synced", "rejected", "-", "rejected"]);
    let wide = program.run(&["proxy", "status", "-o", "wide"]).answered(3);
    assert_eq!(cells(wide.lines()[0])[9..], ["SENT", "ACKNOWLEDGED", "REJECTED", "NAMES", "CONTROL PLANE"]);
    assert_eq!(cells(wide.lines()[2])[9..], ["11", "4", "4", "unified", "cp-1"]);
}

#[test]
fn a_rejection_is_shown_in_envoys_words_with_the_resource_to_blame() {
    let (_control_plane, program) = with(&[("a", connected(&rejecting())), ("gone", offline())]);
    let told = program.run(&["proxy", "status"]).answered(3).out;
    let (_, told) = told.split_once("\n\n").unwrap();
    assert_eq!(
        told,
        "a rejected listener self_http, which comes from kri_mpp_default___broken_:\n  \
           Proto constraint validation failed\n  (field: 'x')\n  \
           policies in it: kri_mt_default___slow_, kri_mtp_default___all_\n\n\
         a rejected cluster kri_msvc_default___backend_http, which comes from kri_msvc_default___backend_http:\n  no\n\n\
         a rejected secret mesh_ca:\n  bad PEM\n",
        "what offline proxies rejected is over"
    );
}

#[test]
fn programs_get_the_same_fields_for_one_proxy_as_for_many() {
    let (_control_plane, program) = with(&[("a", connected(&rejecting())), ("b", Value::Null)]);
    let one = program.run(&["proxy", "status", "a", "-o", "json"]).answered(3).json();
    let all = program.run(&["proxy", "status", "-o", "json"]).answered(3).json();
    assert_eq!(all["items"][0], one);
    assert_eq!((&all["total"], &all["next"]), (&json!(2), &Value::Null));
    let fields = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&all["items"][1]), fields(&one));
    assert_eq!(one["state"], "rejected");
    assert_eq!(one["types"]["eds"], json!({"state": "synced", "sent": 2, "acknowledged": 1, "rejected": 1}),);
    assert_eq!(one["types"]["rds"], json!({"state": null, "sent": 0, "acknowledged": 0, "rejected": 0}));
    let rejection = &one["rejections"][2];
    assert_eq!(
        (&rejection["name"], &rejection["kri"], &rejection["policies"], &rejection["message"]),
        (&json!("mesh_ca"), &Value::Null, &json!([]), &json!("bad PEM"))
    );
    let yaml = program.run(&["proxy", "status", "a", "-o", "yaml"]).answered(3).out;
    assert_eq!(resources::format::yaml::documents(&yaml).unwrap().remove(0).value, one);
    assert_eq!(program.run(&["proxy", "status", "-o", "name"]).answered(3).out, "dataplane/a\ndataplane/b\n");
}

#[test]
fn proxies_are_chosen_by_name_and_mesh() {
    let (control_plane, program) = with(&[("a", connected(&synced()))]);
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    let names = |arguments: &[&str]| {
        let ran = program.run(&[&["proxy", "status", "-o", "name"], arguments].concat());
        (ran.code, ran.out)
    };
    assert_eq!(names(&["-m", "shop"]), (0, String::new()));
    assert_eq!(names(&["-A"]), (0, "dataplane/a\n".to_owned()));
    assert_eq!(names(&["a"]), (0, "dataplane/a\n".to_owned()));
    program.run(&["proxy", "status", "x"]).failed(1).says("there is no Dataplane \"x\" in mesh \"default\"");
    program.run(&["proxy", "status", "x", "-A"]).failed(2).says("cannot be used with");
}
