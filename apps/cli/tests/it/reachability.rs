//! Destinations of a proxy, and reasons.

use resources::Resource;
use serde_json::{Value, json};
use testkit::spec;

use crate::{
    control_plane::ZoneControlPlane,
    observed_mesh::{MODE, allow, permission, proxy, service},
    program::{Program, Ran, cells},
    server::Server,
};

/// `web` may call `kv` and not `db`, anyone may call `docs`, and of `old`, which `web` may call, there is no instance.
fn mesh(labels: Value) -> ZoneControlPlane {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(labels);
    control_plane.put(["web", "kv", "db", "docs"].map(|name| proxy(&format!("{name}-1"), name)));
    let services = ["kv", "db", "docs", "old"];
    control_plane.put(services.into_iter().enumerate().map(|(number, name)| service(name, number + 1)));
    control_plane.put([
        allow("web", "kv"),
        allow("web", "old"),
        permission("docs", spec::tagged("docs"), &[(spec::all(), "Allow")]),
        permission("db", spec::tagged("db"), &[(spec::all(), "Allow"), (spec::tagged("web"), "Deny")]),
    ]);
    control_plane
}

fn inspect(control_plane: &ZoneControlPlane, more: &[&str]) -> Ran {
    let words = ["inspect", "dataplane", "web-1", "--type", "reachability"];
    Program::at(&control_plane.url).run(&[&words[..], more].concat())
}

/// `1.5 KiB`, without what is behind the first digit.
fn kib(bytes: u64) -> String {
    format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024)
}

#[test]
fn what_a_proxy_reaches_is_shown_with_what_trimming_would_save() {
    let control_plane = mesh(json!({ MODE: "shadow" }));
    let answer = inspect(&control_plane, &["-o", "json"]).ok().json();
    let shown = inspect(&control_plane, &[]).ok();
    let lines = shown.lines();
    let sent = |field: &str| answer["report"][field].as_u64().unwrap();
    let before = sent("bytesBefore");
    let after = sent("bytesAfter");
    assert!(before > after && after > 0, "{answer:#}");
    assert_eq!(
        lines[..4],
        [
            "Mode: shadow (said by Mesh)",
            "Destinations: 2 reachable, 0 trimmed, 1 denied, 1 unknown",
            &format!(
                "Would be trimmed: 1 of 4 destinations, 1 clusters, 1 listeners, {} of {}",
                kib(before - after),
                kib(before)
            ),
            "Estimate: Envoy needs 138.0 KiB of memory and 2 ms of processor time less",
        ]
    );
    assert_eq!(cells(lines[5]), ["DESTINATION", "VERDICT", "REFUSING", "DECIDED BY"]);
    let of = |name: &str| format!("kri_msvc_default_east__{name}_80");
    let rows: Vec<Vec<&str>> = lines[6..].iter().map(|line| cells(line)).collect();
    let db = of("db");
    let old = of("old");
    let docs = of("docs");
    let kv = of("kv");
    let expect: &[&[&str]] = &[
        &[&db, "denied", "1", "kri_mtp_default_east__db_rule_1"],
        &[&old, "unknown", "-", "kri_mtp_default_east__web-to-old_rule_0"],
        &[&docs, "reachable", "-", "anyone may call it"],
        &[&kv, "reachable", "-", "kri_mtp_default_east__web-to-kv_rule_0"],
    ];
    assert_eq!(rows, expect);
    assert_eq!(answer, control_plane.get("/meshes/default/dataplanes/web-1/_reachability"));
}

#[test]
fn what_is_trimmed_is_shown_as_gone_and_a_mode_without_effect_says_why() {
    let control_plane = mesh(json!({ MODE: "enforce" }));
    let shown = inspect(&control_plane, &[]).ok();
    assert_eq!(shown.lines()[1], "Destinations: 2 reachable, 1 trimmed, 0 denied, 1 unknown");
    assert!(shown.lines()[2].starts_with("Trimmed: 1 of 4 destinations, "), "{shown:#?}");
    control_plane.store(json!({ "type": "Mesh", "name": "default", "labels": { MODE: "enforce" },
        "meshServices": { "mode": "Exclusive" } }));
    let shown = inspect(&control_plane, &[]).ok();
    let mode =
        "Mode: enforce (said by Mesh), without effect: the mesh has no mTLS, so servers refuse no client";
    assert!(shown.lines()[0].starts_with(mode), "{shown:#?}");
}

#[test]
fn one_destination_is_explained() {
    let control_plane = mesh(json!({ MODE: "shadow" }));
    let shown = inspect(&control_plane, &["--to", "db"]).ok();
    let rule = "kri_mtp_default_east__db_rule_1";
    let lines = shown.lines();
    assert_eq!(lines[1..3], ["Destination: kri_msvc_default_east__db_80", "Reachability: denied"]);
    assert!(lines[3].starts_with("  ") && lines[3].contains(rule), "the reason: {shown:#?}");
    assert_eq!(lines[4], format!("Decided by: {rule}"));
    assert!(lines[5].starts_with("To allow it: ") && lines[5].contains(rule), "{shown:#?}");
    inspect(&control_plane, &["--to", "c&d"]).failed(1).says("has no destination \"c&d\"");
    assert!(control_plane.lines().last().unwrap().ends_with("/_reachability?to=c%26d"));
    let program = Program::at(&control_plane.url);
    program
        .run(&["inspect", "dataplane", "web-1", "--to", "x"])
        .failed(2)
        .says("--to is for --type reachability");
}

#[test]
fn a_list_that_is_cut_says_so() {
    let control_plane = mesh(json!({}));
    control_plane.put((0..1000).map(|number| service(&format!("s{number}"), number + 10)));
    let shown = inspect(&control_plane, &[]).ok();
    assert!(shown.lines()[1].contains(" 1001 denied, "), "{:#?}", &shown.lines()[..4]);
    assert_eq!(shown.lines().len(), 4 + 1000 + 2);
    assert_eq!(*shown.lines().last().unwrap(), "There are more: select one with --to.");
}

#[test]
fn what_trimming_takes_from_each_proxy_is_listed_page_by_page() {
    let control_plane = mesh(json!({ MODE: "report" }));
    let off = [(MODE.to_owned(), "off".to_owned())].into();
    control_plane.put([Resource { labels: off, ..proxy("a-gone", "gone") }]);
    control_plane.put((0..100).map(|number| proxy(&format!("x-{number:03}"), "kv")));
    let program = Program::at(&control_plane.url);
    let run = |more: &[&str]| program.run(&[&["inspect", "reachability"], more].concat()).ok();
    let shown = run(&[]);
    let titles = ["NAME", "MODE", "DESTINATIONS", "CLUSTERS", "LISTENERS", "SENT", "MEMORY"];
    assert_eq!(cells(shown.lines()[0]), titles);
    assert_eq!(cells(shown.lines()[1]), ["a-gone", "off (said by Dataplane)", "-", "-", "-", "-", "-"]);
    let path = "GET /meshes/default/_reachability?size=100";
    assert_eq!(control_plane.lines(), [path.to_owned(), format!("{path}&offset=100")]);
    let answer = run(&["-o", "json"]).json();
    let items = answer["items"].as_array().unwrap();
    assert_eq!((items.len(), &answer["total"]), (105, &json!(105)));
    let at = items.iter().position(|item| item["name"] == "web-1").unwrap();
    let sent = |field: &str| kib(items[at]["report"][field].as_u64().unwrap());
    let bytes = format!("{} → {}", sent("bytesBefore"), sent("bytesAfter"));
    let expected = ["web-1", "report (said by Mesh)", "4 → 3", "-1", "-1", &bytes, "-138.0 KiB"];
    assert_eq!(cells(shown.lines()[at + 1]), expected);
    program.run(&["inspect", "reachability", "-m", "my shop"]).failed(1).says("\"my shop\"");
    assert!(control_plane.lines().last().unwrap().starts_with("GET /meshes/my%20shop/_reachability?"));
}

#[test]
fn a_global_control_plane_shows_zones_of_proxies_and_missing_zones() {
    let mode = json!({ "asked": "off", "saidBy": "Mesh", "active": "off", "stub": false });
    let item = |zone: &str| json!({ "name": "web-1", "zone": zone, "mode": mode });
    let zones = json!([{ "name": "east" }, { "name": "north" }, { "name": "west", "missing": "it is away" }]);
    let server = Server::start();
    let answer = json!({ "total": 2, "items": [item("east"), item("north")], "zones": zones });
    server.on("GET", "/meshes/default/_reachability?size=100", 200, answer);
    let program = Program::of(&server);
    let shown = program.run(&["inspect", "reachability"]).ok();
    assert_eq!(cells(shown.lines()[0])[..2], ["ZONE", "NAME"]);
    assert_eq!(cells(shown.lines()[2])[..2], ["north", "web-1"]);
    shown.says("the proxies of zone west are missing: it is away");
    let answer = program.run(&["inspect", "reachability", "-o", "json"]).ok().json();
    assert_eq!(answer["zones"], zones);
}
