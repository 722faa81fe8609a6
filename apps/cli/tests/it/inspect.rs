//! `inspect`: tables and documents about proxies, meshes, services and zones.

use serde_json::{Value, json};

use crate::{
    control_plane::ZoneControlPlane,
    program::{Program, cells},
};

/// A proxy that connected twice; `inbounds` are its inbounds.
fn proxy(name: &str, inbounds: &Value, insight: &Value) -> Value {
    let mut of = json!({"type": "DataplaneOverview", "mesh": "default", "name": name,
        "dataplane": {"networking": {"address": "10.0.0.1", "inbound": inbounds}}});
    if !insight.is_null() {
        of["dataplaneInsight"] = insight.clone();
    }
    of
}

fn insight() -> Value {
    json!({
        "subscriptions": [
            {"connectTime": "2020-01-01T00:00:00Z", "disconnectTime": "2020-01-02T00:00:00Z",
             "status": {"lastUpdateTime": "2020-01-01T01:00:00Z", "total": {"responsesSent": "10", "responsesAcknowledged": "9", "responsesRejected": "1"}},
             "version": {"kumaDp": {"version": "2.13.0"}}},
            {"connectTime": "2020-01-03T00:00:00Z", "status": {"total": {"responsesSent": "5", "responsesRejected": "1"}},
             "version": {"kumaDp": {"version": "2.14.3"}, "envoy": {"version": "1.40.0"}}}],
        "mTLS": {"certificateExpirationTime": "2020-05-02T10:00:00Z", "lastCertificateRegeneration": "2020-01-03T00:00:00Z",
                 "certificateRegenerations": 3, "issuedBackend": "ca-1"},
        "metadata": {"features": ["feature-delta-grpc", "feature-unified-resource-naming"]}
    })
}

fn inbound(service: &str) -> Value {
    json!({"port": 80, "tags": {"kuma.io/service": service, "kuma.io/protocol": "http"}})
}

#[test]
fn proxies_are_shown_with_what_became_of_their_connections() {
    let control_plane = ZoneControlPlane::start();
    control_plane.overview(&proxy("web", &json!([inbound("web"), inbound("web-admin")]), &insight()));
    control_plane.overview(&proxy("x-new", &json!([]), &Value::Null));
    let program = Program::at(&control_plane.url);
    let run = |format| program.run(&["inspect", "dataplanes", "-o", format]).ok();
    let table = run("table");
    let titles = [
        "MESH",
        "NAME",
        "TAGS",
        "STATUS",
        "LAST CONNECTED AGO",
        "LAST UPDATED AGO",
        "TOTAL UPDATES",
        "TOTAL ACKNOWLEDGED",
        "TOTAL ERRORS",
        "NAMES",
    ];
    assert_eq!(cells(table.lines()[0]), titles);
    let row = cells(table.lines()[1]);
    assert_eq!(row[..4], ["default", "web", "kuma.io/protocol=http kuma.io/service=web,web-admin", "Online"]);
    assert!(row[4].ends_with('d') && row[5].ends_with('d'), "{row:?}");
    assert_eq!(row[6..], ["15", "9", "2", "unified"], "all connections together");
    assert_eq!(
        cells(table.lines()[2]),
        ["default", "x-new", "-", "Offline", "never", "never", "0", "0", "0", "-"]
    );

    let wide = run("wide");
    let more = [
        "CERT REGENERATED AGO",
        "CERT EXPIRATION",
        "CERT REGENERATIONS",
        "CERT BACKEND",
        "KUMA-DP VERSION",
        "ENVOY VERSION",
    ];
    assert_eq!(cells(wide.lines()[0])[10..], more);
    assert_eq!(cells(wide.lines()[1])[11..], ["2020-05-02 10:00:00", "3", "ca-1", "2.14.3", "1.40.0"]);
    assert_eq!(cells(wide.lines()[2])[10..], ["-"; 6]);
    let answer = control_plane.get("/meshes/default/dataplanes/_overview");
    assert_eq!(run("json").json(), answer, "as the REST API says it");
    let yaml = resources::format::yaml::documents(&run("yaml").out).unwrap().remove(0).value;
    assert_eq!(yaml, answer);
    assert_eq!(run("name").out, "dataplane/web\ndataplane/x-new\n");
}

#[test]
fn a_proxy_is_as_well_as_its_inbounds() {
    let not_ready = json!({"port": 80, "state": "NotReady"});
    let unhealthy = json!({"port": 80, "health": {"ready": false}});
    let gateway = |mut of: Value| {
        of["dataplane"]["networking"]["gateway"] = json!({"tags": {"kuma.io/service": "edge"}});
        of
    };
    let mut left_open = insight();
    left_open["subscriptions"].as_array_mut().unwrap().reverse();
    let cases = [
        (proxy("a", &json!([inbound("a")]), &insight()), "Online"),
        (proxy("b", &json!([]), &insight()), "Online"),
        (proxy("c", &json!([inbound("a"), not_ready]), &insight()), "Partially degraded"),
        (proxy("d", &json!([not_ready, unhealthy]), &insight()), "Offline"),
        (proxy("e", &json!([inbound("a")]), &json!({})), "Offline"),
        (gateway(proxy("f", &json!([]), &insight())), "Online"),
        (proxy("g", &json!([inbound("a")]), &left_open), "Offline"),
    ];
    let control_plane = ZoneControlPlane::start();
    cases.iter().for_each(|(item, _)| control_plane.overview(item));
    let ran = Program::at(&control_plane.url).run(&["inspect", "dataplanes"]).ok();
    for ((item, expect), line) in cases.iter().zip(&ran.lines()[1..]) {
        assert_eq!(cells(line)[3], *expect, "{}", item["name"]);
    }
}

#[test]
fn proxies_are_chosen_by_the_control_plane() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    let tagged = |v: &str| json!({"port": 80, "tags": {"kuma.io/service": "a&b", "v": v}});
    let gateway = |kind: &str| json!({"type": kind, "tags": {"kuma.io/service": "edge"}});
    for (mesh, name, field, value) in [
        ("default", "one", "inbound", json!([tagged("1")])),
        ("default", "two", "inbound", json!([tagged("2")])),
        ("default", "builtin", "gateway", gateway("BUILTIN")),
        ("default", "delegated", "gateway", gateway("DELEGATED")),
        ("shop", "cart", "inbound", json!([inbound("cart")])),
    ] {
        control_plane.store(json!({"type": "Dataplane", "mesh": mesh, "name": name,
            "networking": {"address": "10.0.0.1", field: value}}));
    }
    let program = Program::at(&control_plane.url);
    let check = |arguments: &[&str], path: &str, names: &[&str]| {
        let ran = program.run(&[&["inspect", "dataplanes", "-o", "name"], arguments].concat()).ok();
        assert_eq!(control_plane.lines().last().unwrap(), &format!("GET {path}"));
        let expect: Vec<String> = names.iter().map(|name| format!("dataplane/{name}")).collect();
        assert_eq!(ran.lines(), expect, "{arguments:?}");
    };
    let of_default = "/meshes/default/dataplanes/_overview?size=1000";
    check(
        &["--tag", "kuma.io/service=a&b", "--tag", "v=1"],
        &format!("{of_default}&tag=kuma.io/service:a%26b&tag=v:1"),
        &["one"],
    );
    check(&["--gateway"], &format!("{of_default}&gateway=true"), &["builtin", "delegated"]);
    check(&["--gateway=builtin"], &format!("{of_default}&gateway=builtin"), &["builtin"]);
    check(&["--gateway=false"], &format!("{of_default}&gateway=false"), &["one", "two"]);
    check(&["-m", "shop"], "/meshes/shop/dataplanes/_overview?size=1000", &["cart"]);
    check(&["-A"], "/dataplanes/_overview?size=1000", &["builtin", "delegated", "one", "two", "cart"]);
    program.run(&["inspect", "dataplanes", "--tag", "a"]).failed(2).says("KEY=VALUE");
    program.run(&["inspect", "dataplanes", "--gateway=x"]).failed(2).says("delegated");
}

/// Checks the table of what is inspected, with one item in it, and that its JSON is what the REST API answers. Cells
/// have ` | ` between them.
pub fn check_table(control_plane: &ZoneControlPlane, what: &str, path: &str, titles: &str, row: &str) {
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["inspect", what, "-o", "wide"]).ok();
    assert_eq!(cells(ran.lines()[0]).join(" | "), titles, "{what}");
    assert_eq!(cells(ran.lines()[1]).join(" | "), row, "{what}");
    let json = program.run(&["inspect", what, "-o", "json"]).ok().json();
    assert_eq!(json, control_plane.get(path), "{what}");
}

#[test]
fn meshes_services_and_zones_have_their_tables() {
    let control_plane = ZoneControlPlane::start();
    let stat = json!({"total": 4, "online": 2, "offline": 1, "partiallyDegraded": 1});
    control_plane.store(
        json!({"type": "MeshInsight", "name": "default", "dataplanes": stat, "services": {"total": 3},
               "policies": {"MeshTimeout": {"total": 2}, "MeshRetry": {"total": 1}},
               "mTLS": {"issuedBackends": {"ca-1": {"total": 3}, "ca-2": {"total": 1}}},
               "dpVersions": {"kumaDp": {"2.14.3": {"total": 4}}, "envoy": {"1.40.0": {"total": 4}}}}),
    );
    check_table(
        &control_plane,
        "meshes",
        "/mesh-insights",
        "NAME | DATAPLANES | DEGRADED | SERVICES | POLICIES | CERT BACKENDS | KUMA-DP VERSIONS | ENVOY VERSIONS | LAST UPDATED AGO",
        "default | 2/4 | 1 | 3 | 3 | ca-1=3,ca-2=1 | 2.14.3=4 | 1.40.0=4 | 0s",
    );
    let web = json!({"serviceType": "internal", "status": "partially_degraded", "dataplanes": stat,
        "addressPort": "web.mesh:80", "zones": ["east", "west"], "issuedBackends": {"ca-1": 2}});
    control_plane.store(json!({"type": "ServiceInsight", "mesh": "default", "name": "all-services-default",
        "services": {"web": web}}));
    check_table(
        &control_plane,
        "services",
        "/meshes/default/service-insights",
        "MESH | NAME | TYPE | STATUS | DATAPLANES | ADDRESS | ZONES | CERT BACKENDS",
        "default | web | internal | Partially degraded | 2/3 | web.mesh:80 | east,west | ca-1=2",
    );
    control_plane.overview(
        &json!({"type": "ZoneOverview", "name": "east", "zone": {"enabled": false}, "zoneInsight": {"subscriptions": [
            {"id": "1", "connectTime": "2999-01-01T00:00:00Z", "zoneInstanceId": "cp-1",
             "version": {"kumaCp": {"version": "2.14.3"}}, "status": {"total": {"responsesSent": "7"}}}],
            "problems": [{"type": "MeshTimeout", "what": "rejected by the zone", "reason": "no"}]}}),
    );
    check_table(
        &control_plane,
        "zones",
        "/zones/_overview",
        "NAME | STATUS | SINCE | LAST CONNECTED AGO | LAST UPDATED AGO | TOTAL UPDATES | TOTAL ERRORS | ZONE-CP VERSION | PROBLEMS | ENABLED | ZONE-CP INSTANCE",
        "east | Offline | - | 0s | never | 7 | 0 | 2.14.3 | MeshTimeout rejected by the zone: no | no | cp-1",
    );
}

#[test]
fn a_zone_whose_connection_is_lost_is_unknown_until_it_is_withdrawn() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    let gone = json!({"connectTime": "2024-01-01T00:00:00Z", "disconnectTime": "2024-01-02T00:00:00Z"});
    let there = json!({"connectTime": "2024-01-01T00:00:00Z"});
    for (name, subscription, absence) in [
        ("a", &there, Value::Null),
        ("b", &gone, json!({"since": "2024-01-03T00:00:00Z", "reason": "TLS"})),
        ("c", &gone, json!({"since": "2024-01-03T00:00:00Z", "withdrawn": true})),
        ("d", &gone, Value::Null),
    ] {
        let mut insight = json!({"subscriptions": [subscription]});
        if !absence.is_null() {
            insight["absence"] = absence;
        }
        let zone = json!({"type": "ZoneOverview", "name": name, "zone": {}, "zoneInsight": insight});
        control_plane.overview(&zone);
    }
    let ran = program.run(&["inspect", "zones"]).ok();
    let shown: Vec<_> = ran.lines().iter().skip(1).map(|line| cells(line)[1..3].to_owned()).collect();
    let connected = "2024-01-01 00:00:00";
    let left = "2024-01-02 00:00:00";
    let lost = "2024-01-03 00:00:00";
    let expected = [["Online", connected], ["Unknown", lost], ["Offline", lost], ["Offline", left]];
    assert_eq!(shown, expected);
    assert!(ran.lines()[2].contains("not connected: TLS"), "{:?}", ran.lines());
}

#[test]
fn every_policy_tells_which_proxies_it_applies_to() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
    control_plane.store(json!({"type": "Mesh", "name": "shop"}));
    for (name, app) in [("web-1", "a"), ("other", "b")] {
        control_plane.store(json!({"type": "Dataplane", "mesh": "shop", "name": name,
            "labels": {"kuma.io/zone": "east", "kuma.io/workload": "web", "app": app},
            "networking": {"address": "10.0.0.1", "inbound": [inbound("web")]}}));
    }
    let target = json!({"kind": "Dataplane", "labels": {"app": "a"}});
    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "1s"}}]);
    let rules =
        json!([{"default": {"allow": [{"spiffeID": {"type": "Exact", "value": "spiffe://shop/web"}}]}}]);
    let patch = json!({"appendModifications": [{"cluster": {"operation": "Remove"}}]});
    for (kind, field, value) in [
        ("MeshTimeout", "to", to),
        ("MeshTrafficPermission", "rules", rules),
        ("MeshProxyPatch", "default", patch),
    ] {
        let spec = json!({"targetRef": target, field: value});
        control_plane.store(json!({"type": kind, "mesh": "shop", "name": "slow", "spec": spec}));
    }
    let check = |arguments: &[&str]| {
        let run = |more: &[&str]| {
            program.run(&[&["inspect"], arguments, &["slow", "-m", "shop"], more].concat()).ok()
        };
        let table = run(&[]);
        assert_eq!(cells(table.lines()[0]), ["MESH", "NAME", "ZONE", "WORKLOAD"], "{arguments:?}");
        assert_eq!(cells(table.lines()[1]), ["shop", "web-1", "east", "web"], "{arguments:?}");
        assert!(run(&["-o", "wide"]).lines()[1].contains("app=a"), "{arguments:?}");
        assert_eq!(run(&["-o", "json"]).json()["items"][0]["name"], "web-1", "{arguments:?}");
        assert_eq!(run(&["-o", "name"]).out, "dataplane/web-1\n", "{arguments:?}");
    };
    check(&["meshtimeout"]);
    check(&["meshtrafficpermission"]);
    check(&["policy", "mpp"]);
    check(&["policy", "MeshTimeout"]);
    program
        .run(&["inspect", "meshtimeout", "none"])
        .failed(1)
        .says("there is no MeshTimeout \"none\" in mesh \"default\"");
    program.run(&["inspect", "policy", "dataplanes", "a"]).failed(2).says("Dataplane is not a policy");
    program.run(&["inspect", "meshtimeouts"]).failed(2);
}
