//! `inspect`: tables and documents about proxies, meshes, services and zones.

use serde_json::{Value, json};

use crate::{
    control_plane::ControlPlane,
    program::{Program, cells},
    server::Server,
};

pub fn list(items: &[Value]) -> Value {
    json!({"total": items.len(), "items": items, "next": null})
}

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
    let control_plane = ControlPlane::start();
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
    let control_plane = ControlPlane::start();
    cases.iter().for_each(|(item, _)| control_plane.overview(item));
    let ran = Program::at(&control_plane.url).run(&["inspect", "dataplanes"]).ok();
    for ((item, expect), line) in cases.iter().zip(&ran.lines()[1..]) {
        assert_eq!(cells(line)[3], *expect, "{}", item["name"]);
    }
}

#[test]
fn proxies_are_chosen_by_the_control_plane() {
    let server = Server::start();
    let program = Program::of(&server);
    let check = |arguments: &[&str], path: &str| {
        server.on("GET", path, 200, list(&[]));
        program.run(&[&["inspect", "dataplanes"], arguments].concat()).ok();
        assert_eq!(server.lines().last().unwrap(), &format!("GET {path}"));
    };
    let of_default = "/meshes/default/dataplanes/_overview?size=1000";
    check(
        &["--tag", "kuma.io/service=a&b", "--tag", "v=1"],
        &format!("{of_default}&tag=kuma.io/service:a%26b&tag=v:1"),
    );
    check(&["--gateway"], &format!("{of_default}&gateway=true"));
    check(&["--gateway=builtin"], &format!("{of_default}&gateway=builtin"));
    check(&["-m", "shop"], "/meshes/shop/dataplanes/_overview?size=1000");
    check(&["-A"], "/dataplanes/_overview?size=1000");
    program.run(&["inspect", "dataplanes", "--tag", "a"]).failed(2).says("KEY=VALUE");
    program.run(&["inspect", "dataplanes", "--gateway=x"]).failed(2).says("delegated");
}

/// Checks the table of what is inspected, with one item in it, and that its JSON is what the REST API answers. Cells
/// have ` | ` between them.
pub fn check_table(control_plane: &ControlPlane, what: &str, path: &str, titles: &str, row: &str) {
    let program = Program::at(&control_plane.url);
    let ran = program.run(&["inspect", what, "-o", "wide"]).ok();
    assert_eq!(cells(ran.lines()[0]).join(" | "), titles, "{what}");
    assert_eq!(cells(ran.lines()[1]).join(" | "), row, "{what}");
    let json = program.run(&["inspect", what, "-o", "json"]).ok().json();
    assert_eq!(json, control_plane.get(path), "{what}");
}

#[test]
fn meshes_services_and_zones_have_their_tables() {
    let control_plane = ControlPlane::start();
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
    let control_plane = ControlPlane::start();
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
    let (connected, left, lost) = ("2024-01-01 00:00:00", "2024-01-02 00:00:00", "2024-01-03 00:00:00");
    let expected = [["Online", connected], ["Unknown", lost], ["Offline", lost], ["Offline", left]];
    assert_eq!(shown, expected);
    assert!(ran.lines()[2].contains("not connected: TLS"), "{:?}", ran.lines());
}

#[test]
fn what_a_proxy_says_is_passed_on_or_put_into_the_form_asked_for() {
    let server = Server::start();
    let one = "/meshes/default/dataplanes/web";
    let text = "cluster.self_http.upstream_rq_total: 3\nserver.state: 0\n";
    let stats = json!({"stats": [{"name": "server.state", "value": 0}]});
    server.reply("GET", &format!("{one}/stats"), 200, &[], text);
    server.reply("GET", &format!("{one}/stats?usedonly=false"), 200, &[], "unused: 0\n");
    server.on("GET", &format!("{one}/stats?format=json"), 200, stats.clone());
    server.reply("GET", &format!("{one}/clusters"), 200, &[], "self_http::added_via_api::true\n");
    let host = json!({"address": {"socket_address": {"address": "::1", "port_value": 80}},
        "health_status": {"eds_health_status": "HEALTHY"},
        "stats": [{"name": "rq_total", "value": "12"}, {"name": "rq_error"}]});
    let ejected = json!({"address": {"pipe": {"path": "/tmp/s"}},
        "health_status": {"eds_health_status": "HEALTHY", "failed_outlier_check": true}});
    let clusters = json!({"cluster_statuses": [
        {"name": "self_http", "host_statuses": [host, ejected]}, {"name": "system_ads"}]});
    server.on("GET", &format!("{one}/clusters?format=json"), 200, clusters.clone());
    let layout =
        json!({"inbounds": [{"kri": "kri_dp_default___web_http", "proxyResourceName": "self_http"}]});
    server.on("GET", &format!("{one}/_layout"), 200, layout);
    let program = Program::of(&server);
    let run = |arguments: &[&str]| {
        program.run(&[&["inspect", "dataplane", "web", "--type"], arguments].concat()).ok()
    };
    assert_eq!(run(&["stats"]).out, text);
    assert_eq!(run(&["stats", "--include-unused"]).out, "unused: 0\n");
    assert_eq!(run(&["stats", "--format", "json"]).out, stats.to_string());
    assert_eq!(run(&["stats", "-o", "json"]).json(), stats);
    assert_eq!(run(&["stats", "-o", "yaml"]).out, "stats:\n- name: server.state\n  value: 0\n");
    let table = run(&["stats", "-o", "table"]);
    assert_eq!(cells(table.lines()[1]), ["cluster.self_http.upstream_rq_total", "3"]);
    assert_eq!(run(&["clusters"]).out, "self_http::added_via_api::true\n");
    assert_eq!(run(&["clusters", "-o", "json"]).json(), clusters);
    let table = run(&["clusters", "-o", "table"]);
    assert_eq!(
        table.lines().into_iter().map(cells).collect::<Vec<_>>(),
        [
            ["CLUSTER", "KIND", "ADDRESS", "HEALTH", "REQUESTS", "ERRORS", "KRI"],
            ["self_http", "self", "[::1]:80", "healthy", "12", "0", "kri_dp_default___web_http"],
            ["self_http", "self", "/tmp/s", "ejected", "0", "0", "kri_dp_default___web_http"],
            ["system_ads", "system", "-", "-", "-", "-", "-"],
        ]
    );
}

#[test]
fn flags_that_would_change_nothing_are_refused_before_asking() {
    let server = Server::start();
    let program = Program::of(&server);
    let check = |arguments: &[&str], says: &str| {
        program.run(&[&["inspect", "dataplane", "web"], arguments].concat()).failed(2).says(says);
    };
    check(&["--type", "all"], "possible values: policies, config, config-dump, stats, clusters");
    check(&["--format", "json"], "stats and clusters");
    check(&["--type", "clusters", "--format", "summary"], "--type stats");
    check(&["--type", "stats", "--include-eds"], "config-dump");
    check(&["--type", "config", "--format", "json"], "stats and clusters");
    check(&["--type", "clusters", "--include-unused"], "--type stats");
    check(&["--type", "stats", "--format", "json", "-o", "json"], "leave out -o");
    check(&["--type", "stats", "--shadow"], "--type config");
    check(&["--include", "diff"], "--type config");
    check(&["--type", "config", "--include", "all"], "possible values: diff");
    assert!(server.lines().is_empty());
}

#[test]
fn what_policies_in_shadow_would_change_is_shown() {
    let server = Server::start();
    let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let xds = json!({url: {"backend": {"idleTimeout": "23s"}}});
    let place = "/type.googleapis.com~1envoy.config.cluster.v3.Cluster/backend/idleTimeout";
    let diff = json!([{"op": "test", "path": place, "value": "3600s"}, {"op": "remove", "path": place},
                      {"op": "add", "path": place, "value": "23s"}]);
    let path = "/meshes/default/dataplanes/web/_config";
    server.on("GET", &format!("{path}?shadow=true"), 200, json!({"xds": xds}));
    server.on("GET", &format!("{path}?shadow=true&include=diff"), 200, json!({"diff": diff, "xds": xds}));
    let program = Program::of(&server);
    let ask = ["inspect", "dataplane", "web", "--type=config", "--shadow"];
    assert_eq!(program.run(&ask).ok().json(), json!({"xds": xds}));
    let with_diff = [&ask[..], &["--include=diff"]].concat();
    assert_eq!(program.run(&with_diff).ok().json(), json!({"diff": diff, "xds": xds}));
    let table = program.run(&[&with_diff[..], &["-o", "table"]].concat()).ok().out;
    assert_eq!(table, format!("@ {place}\n- \"3600s\"\n+ \"23s\"\n"));
}

#[test]
fn a_proxy_that_cannot_be_asked_is_explained_by_the_control_plane() {
    let server = Server::start();
    let refusal = "Dataplane web does not answer at 10.0.0.1:9901: connection refused; check that its kuma-dp is running";
    let problem = json!({"status": 503, "title": "Service unavailable", "detail": refusal});
    for view in ["xds", "stats", "clusters", "_config"] {
        server.on("GET", &format!("/meshes/default/dataplanes/web/{view}"), 503, problem.clone());
    }
    let program = Program::of(&server);
    for view in ["config", "config-dump", "stats", "clusters"] {
        program
            .run(&["inspect", "dataplane", "web", "--type", view])
            .failed(1)
            .says("could not inspect Dataplane \"web\" in mesh \"default\"")
            .says(refusal);
        program
            .run(&["inspect", "dataplane", "nobody", "--type", view])
            .failed(1)
            .says("there is no Dataplane \"nobody\" in mesh \"default\"");
    }
    program.run(&["proxy", "config", "web", "listeners"]).failed(1).says(refusal);
}

#[test]
fn statistics_are_summed_up_by_resource() {
    let server = Server::start();
    let one = "/meshes/default/dataplanes/web/stats?format=summary";
    let backend = "kri_msvc_default_east__backend_http";
    let summary = json!({"unifiedNaming": true, "resources": {
        backend: {"class": "kri", "kri": backend, "link": format!("/_kri/{backend}"), "stats": {
            "cluster": {"upstream_rq_total": 9, "upstream_rq_5xx": 4, "upstream_cx_total": 2, "upstream_cx_active": 1}}},
        "self_http": {"class": "self", "kri": "kri_dp_default_east__web_http", "stats": {
            "listener": {"downstream_cx_total": 3, "downstream_cx_active": 0},
            "http": {"downstream_rq_total": 20, "downstream_rq_2xx": 15, "downstream_rq_4xx": 5, "downstream_cx_total": 77},
            "cluster": {"upstream_rq_total": 15},
            "rbac": {"allowed": 15, "denied": 5, "shadow_denied": 2}}},
        "server": {"class": "other", "stats": {"server": {"live": 1}}},
        "z": {"class": "legacy", "kri": "kri_dp_default_east__web_a", "stats": {}},
        "a": {"class": "legacy", "kri": "kri_dp_default_east__web_b", "stats": {}},
        "system_envoy_admin": {"class": "system", "stats": {"http": {"downstream_rq_total": 0}}}}});
    server.on("GET", one, 200, summary.clone());
    server.on("GET", &format!("{one}&usedonly=false"), 200, json!({}));
    let program = Program::of(&server);
    let run = |arguments: &[&str]| {
        let all = [&["inspect", "dataplane", "web", "--type", "stats", "--format", "summary"], arguments];
        program.run(&all.concat()).ok()
    };
    let table = run(&[]);
    let inbound = ["20", "15", "-", "5", "-", "3", "0", "15", "5", "2"];
    let outbound = ["9", "-", "-", "-", "4", "2", "1", "-", "-", "-"];
    let counts = [
        "REQUESTS",
        "2XX",
        "3XX",
        "4XX",
        "5XX",
        "CONNECTIONS",
        "ACTIVE",
        "ALLOWED",
        "DENIED",
        "SHADOW DENIED",
    ];
    let expect = [
        [&["NAME", "KIND"], &counts[..], &["KRI"]].concat(),
        [&["self_http", "self"], &inbound[..], &["kri_dp_default_east__web_http"]].concat(),
        [&[backend, "kri"], &outbound[..], &[backend]].concat(),
        [&["z", "legacy"], &["-"; 10][..], &["kri_dp_default_east__web_a"]].concat(),
        [&["a", "legacy"], &["-"; 10][..], &["kri_dp_default_east__web_b"]].concat(),
        [&["system_envoy_admin", "system", "0"], &["-"; 9][..], &["-"]].concat(),
        vec![],
        vec!["Names without any of these numbers: 1 (-o yaml lists them)"],
    ];
    assert_eq!(table.lines().into_iter().map(cells).collect::<Vec<_>>(), expect);
    assert_eq!(run(&["-o", "json"]).json(), summary);
    assert!(run(&["-o", "yaml"]).out.starts_with("unifiedNaming: true\n"));
    assert_eq!(run(&["--include-unused"]).lines().len(), 1);
}

#[test]
fn hostnames_of_a_proxy_are_shown_with_where_they_lead_and_claims_that_lost() {
    let server = Server::start();
    let by_policy = json!({"origin": {"kind": "VirtualOutbound", "name": "vo"}, "tags": {"kuma.io/service": "backend", "version": "v1"}});
    let kri = "kri_msvc_default_east__web_80";
    let by_service =
        json!({"origin": {"kind": "MeshService", "name": "web", "hostnameGenerator": "local"}, "kri": kri});
    let port = |port: u16, mut claim: Value| {
        claim["port"] = port.into();
        claim
    };
    let hostnames = json!({
        "total": 2, "resolver": false,
        "items": [
            {"hostname": "v1.backend.mesh", "addresses": ["240.0.0.1", "::ffff:f000:1"], "ports": [port(8080, by_policy.clone())]},
            {"hostname": "web.svc", "addresses": ["241.0.0.1"], "ports": [port(80, by_service.clone())]},
        ],
        "conflicts": [{"hostname": "v1.backend.mesh", "port": 8080, "winner": by_policy, "loser": by_service}],
    });
    server.on("GET", "/meshes/default/dataplanes/web/_hostnames", 200, hostnames.clone());
    let program = Program::of(&server);
    let run = |more: &[&str]| {
        program.run(&[&["inspect", "dataplane", "web", "--type", "hostnames"], more].concat()).ok()
    };
    let expect = [
        vec!["HOSTNAME", "ADDRESSES", "FROM", "LEADS TO"],
        vec![
            "v1.backend.mesh:8080",
            "240.0.0.1,::ffff:f000:1",
            "VirtualOutbound/vo",
            "kuma.io/service=backend version=v1",
        ],
        vec!["web.svc:80", "241.0.0.1", "MeshService/web by HostnameGenerator/local", kri],
        vec![],
        vec![
            "Conflict: v1.backend.mesh:8080 is claimed by VirtualOutbound/vo (has it) and by MeshService/web by HostnameGenerator/local",
        ],
        vec![],
        vec!["The agent of this proxy answers no queries for hostnames of the mesh."],
    ];
    assert_eq!(run(&[]).lines().into_iter().map(cells).collect::<Vec<_>>(), expect);
    assert_eq!(run(&["-o", "json"]).json(), hostnames);
}

#[test]
fn every_policy_tells_which_proxies_it_applies_to() {
    let control_plane = ControlPlane::start();
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
