//! `describe`: everything about one resource.

use serde_json::json;

use crate::{
    control_plane::{ZoneControlPlane, offline, synced},
    program::Program,
    server::Server,
};

fn timeout(name: &str, app: &str) -> serde_json::Value {
    json!({ "type": "MeshTimeout", "mesh": "default", "name": name, "spec": {
        "targetRef": { "kind": "Dataplane", "labels": { "app": app } },
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "3s" } }],
    } })
}

#[test]
fn a_policy_is_described_with_whom_it_selects_and_what_is_wrong() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web-1", json!({ "app": "web" }), synced());
    control_plane.store(timeout("slow", "web"));
    control_plane.store(timeout("useless", "none"));
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["describe", "meshtimeout", "slow"]).ok();
    assert_eq!(ran.lines()[..3], ["Type:      MeshTimeout", "Name:      slow", "Mesh:      default"]);
    assert!(ran.out.contains("\nLabels:    kuma.io/display-name=slow\n"), "{ran:#?}");
    assert!(ran.out.contains("\nSpec:\n  targetRef:\n    kind: Dataplane\n"), "{ran:#?}");
    assert!(ran.out.contains("\nSelects 1 proxy:\n  web-1\n"), "{ran:#?}");
    assert!(ran.out.ends_with("\nFindings: none\n"), "{ran:#?}");
    let as_get_prints_it = program.run(&["describe", "meshtimeout/slow"]).ok();
    assert_eq!(as_get_prints_it.out, ran.out);
    program
        .run(&["describe", "meshtimeout"])
        .failed(2)
        .says("which MeshTimeout? Write TYPE NAME or TYPE/NAME");
    program.run(&["edit", "mt/slow", "mt/useless"]).failed(2).says("this command is about one resource");
    let ran = program.run(&["describe", "mt", "useless"]).ok();
    assert!(ran.out.contains("\nSelects no proxy.\n"), "{ran:#?}");
    assert!(ran.out.contains("\nFindings:\n  warning matches-nothing: "), "{ran:#?}");
    assert!(ran.out.contains("    Compare its targetRef with"), "what to do: {ran:#?}");
    program
        .run(&["describe", "mt", "none"])
        .failed(1)
        .says("there is no MeshTimeout \"none\" in mesh \"default\"");
}

#[test]
fn a_proxy_is_described_with_its_connection_and_its_policies() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web-1", json!({ "app": "web" }), synced());
    control_plane.dataplane("gone", json!({ "app": "gone" }), offline());
    control_plane.store(timeout("slow", "web"));
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["describe", "dataplane", "web-1"]).ok();
    assert!(
        ran.out.contains("\nConnection:\n  online, synced\n  kuma-dp 0.1.0\n  Envoy 1.40.0\n"),
        "{ran:#?}"
    );
    assert!(ran.out.contains("\nSpec:\n  networking:\n"), "{ran:#?}");
    assert!(ran.out.contains("\nPolicies that select it (1):\n  MeshTimeout/slow\n"), "{ran:#?}");
    let gone = program.run(&["describe", "dataplane", "gone"]).ok();
    let connection = gone.out.split("\nConnection:\n  ").nth(1).unwrap().lines().next().unwrap();
    assert!(connection.starts_with("offline: its last connection began "), "{gone:#?}");
    assert!(
        connection.ends_with(" ago (2026-01-02T04:04:05Z)") && connection.contains(" ago and ended "),
        "{gone:#?}"
    );
    let json = program.run(&["describe", "dataplane", "web-1", "-o", "json"]).ok().json();
    assert_eq!(json["connection"]["state"], "synced");
    assert_eq!(json["policies"], json!(["MeshTimeout/slow"]));
    assert_eq!(json["resource"]["name"], "web-1");
}

#[test]
fn a_status_and_its_conditions_are_described() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({ "type": "MeshService", "mesh": "default", "name": "backend",
        "spec": { "selector": { "dataplaneLabels": { "matchLabels": { "app": "backend" } } },
                  "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "http" }] },
        "status": { "dataplaneProxies": { "connected": 1, "healthy": 1, "total": 2 } } }));
    control_plane.dataplane("backend-1", json!({ "app": "backend" }), synced());
    let ran = Program::at(&control_plane.url).run(&["describe", "meshservice", "backend"]).ok();
    assert!(ran.out.contains("\n  dataplaneProxies:\n    connected: 1\n"), "{ran:#?}");
    assert!(ran.out.contains("\nSelects 1 proxy:\n  backend-1\n"), "{ran:#?}");
}

#[test]
fn what_cannot_be_read_is_not_said_to_be_nothing() {
    let server = Server::start();
    let item = "/meshes/default/meshtimeouts/slow";
    server.on(
        "GET",
        item,
        200,
        json!({ "type": "MeshTimeout", "mesh": "default", "name": "slow", "kri": "kri_mt_default___slow_", "spec": {} }),
    );
    let problems = "/meshes/default/_problems?kri=kri_mt_default___slow_";
    server.on("GET", problems, 403, json!({ "title": "Access Denied" }));
    server.on("GET", &format!("{item}/_resources/dataplanes?size=20"), 500, json!({ "title": "boom" }));
    let program = Program::of(&server);
    let ran = program.run(&["describe", "meshtimeout", "slow"]).ok();
    assert!(ran.out.contains("\nFindings: could not be read: findings: Access Denied [403]\n"), "{ran:#?}");
    assert!(ran.out.contains("\nProxies it selects: could not be read: "), "{ran:#?}");
    let json = program.run(&["describe", "meshtimeout", "slow", "-o", "json"]).ok().json();
    assert_eq!(json["findings"]["error"], "findings: Access Denied [403]");
}

#[test]
fn zones_and_zone_proxies_are_described_with_their_connection() {
    let control_plane = ZoneControlPlane::start();
    let subscriptions = json!([{ "id": "1", "connectTime": "2026-01-02T03:04:05Z" }]);
    for (kind, name) in [("zone", "east"), ("zoneIngress", "in"), ("zoneEgress", "out")] {
        let mut upper = kind.to_owned();
        upper.replace_range(..1, "Z");
        let networking = json!({ "networking": { "address": "127.0.0.1", "port": 10001 } });
        let mut overview = json!({ "type": format!("{upper}Overview"), "name": name });
        overview[kind] = if kind == "zone" { json!({}) } else { networking };
        overview[format!("{kind}Insight")] = json!({ "subscriptions": subscriptions });
        control_plane.overview(&overview);
        let ran = Program::at(&control_plane.url).run(&["describe", &kind.to_lowercase(), name]).ok();
        assert!(ran.out.contains("\nConnection:\n  online: connected "), "{ran:#?}");
        overview[format!("{kind}Insight")]["subscriptions"][0]["disconnectTime"] =
            json!("2026-01-02T04:04:05Z");
        control_plane.overview(&overview);
        let ran = Program::at(&control_plane.url).run(&["describe", &kind.to_lowercase(), name]).ok();
        assert!(ran.out.contains(" ago (2026-01-02T04:04:05Z)\n"), "{ran:#?}");
    }
}

#[test]
fn a_policy_in_shadow_is_described_as_one() {
    let control_plane = ZoneControlPlane::start();
    control_plane.dataplane("web-1", json!({ "app": "web" }), synced());
    let mut shadow = timeout("slow", "web");
    shadow["labels"] = json!({ "kuma.io/effect": "shadow" });
    control_plane.store(shadow);
    let ran = Program::at(&control_plane.url).run(&["describe", "meshtimeout", "slow"]).ok();
    assert!(ran.out.contains("\nSelects 1 proxy:\n  web-1\n"), "{ran:#?}");
    assert!(ran.out.contains("\nIt is a shadow (kuma.io/effect)"), "{ran:#?}");
}
