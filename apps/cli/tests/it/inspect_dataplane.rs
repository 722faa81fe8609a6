//! `inspect dataplane`: what one proxy counts and runs, what it would be sent, and what it can call by name.

use serde_json::json;
use topology::virtual_hosts::vips;

use crate::{
    control_plane::{ConnectedProxy, UNIFIED, ZoneControlPlane, synced},
    program::{Program, cells},
};

const ONE: &str = "/meshes/default/dataplanes/web";
const INBOUND: &str = "kri_dp_default_east__web_http";
const BACKEND: &str = "kri_msvc_default_east__backend_http";

/// The connected proxy `web` of a mesh with mTLS, which calls `backend`.
fn connected(features: &[&str]) -> (ZoneControlPlane, ConnectedProxy, Program) {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    control_plane.service("backend");
    let tags = json!({"kuma.io/service": "web", "kuma.io/protocol": "http"});
    let outbound =
        json!([{"port": 10000, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}}]);
    control_plane.store(
        json!({"type": "Dataplane", "mesh": "default", "name": "web", "labels": {"kuma.io/zone": "east"},
        "networking": {"address": "127.0.0.1", "outbound": outbound,
            "inbound": [{"port": 80, "servicePort": 8080, "name": "http", "tags": tags}]}}),
    );
    let connection = control_plane.connect("web", features);
    let program = Program::at(&control_plane.url);
    (control_plane, connection, program)
}

#[test]
fn what_a_proxy_says_is_passed_on_or_put_into_the_form_asked_for() {
    let (_control_plane, connection, program) = connected(&[UNIFIED]);
    let text = "cluster.self_http.upstream_rq_total: 3\nserver.state: 0\n";
    let stats = json!({"stats": [{"name": "server.state", "value": 0}]});
    connection.answers("/stats?usedonly", text);
    connection.answers("/stats", "unused: 0\n");
    connection.answers("/stats?format=json&usedonly", &stats);
    connection.answers("/clusters", "self_http::added_via_api::true\n");
    let host = json!({"address": {"socket_address": {"address": "::1", "port_value": 80}},
        "health_status": {"eds_health_status": "HEALTHY"},
        "stats": [{"name": "rq_total", "value": "12"}, {"name": "rq_error"}]});
    let ejected = json!({"address": {"pipe": {"path": "/tmp/s"}},
        "health_status": {"eds_health_status": "HEALTHY", "failed_outlier_check": true}});
    let clusters = json!({"cluster_statuses": [
        {"name": "self_http", "host_statuses": [host, ejected]}, {"name": "system_ads"}]});
    connection.answers("/clusters?format=json", &clusters);
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
            ["self_http", "self", "[::1]:80", "healthy", "12", "0", INBOUND],
            ["self_http", "self", "/tmp/s", "ejected", "0", "0", INBOUND],
            ["system_ads", "system", "-", "-", "-", "-", "-"],
        ]
    );
}

#[test]
fn flags_that_would_change_nothing_are_refused_before_asking() {
    let control_plane = ZoneControlPlane::start();
    let program = Program::at(&control_plane.url);
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
    assert!(control_plane.lines().is_empty());
}

#[test]
fn what_policies_in_shadow_would_change_is_shown() {
    let (control_plane, _connection, program) = connected(&[UNIFIED]);
    let ask = ["inspect", "dataplane", "web", "--type=config", "--shadow"];
    let with_diff = [&ask[..], &["--include=diff"]].concat();
    let as_table = [&with_diff[..], &["-o", "table"]].concat();
    assert_eq!(program.run(&as_table).ok().out, "Nothing would change.\n");

    let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "23s"}}]);
    control_plane.store(json!({"type": "MeshTimeout", "mesh": "default", "name": "slow",
        "labels": {"kuma.io/effect": "shadow"}, "spec": {"to": to}}));
    let path = format!("{ONE}/_config?shadow=true");
    assert_eq!(program.run(&ask).ok().json(), control_plane.get(&path));
    let answer = control_plane.get(&format!("{path}&include=diff"));
    assert_eq!(program.run(&with_diff).ok().json(), answer);
    assert_ne!(answer["xds"], control_plane.get(&format!("{ONE}/_config"))["xds"]);
    let place = format!(
        "/type.googleapis.com~1envoy.config.cluster.v3.Cluster/{BACKEND}/typedExtensionProtocolOptions/\
         envoy.extensions.upstreams.http.v3.HttpProtocolOptions/commonHttpProtocolOptions/idleTimeout"
    );
    let table = program.run(&as_table).ok().out;
    assert_eq!(table, format!("@ {place}\n- \"3600s\"\n+ \"23s\"\n"));
}

#[test]
fn a_proxy_that_cannot_be_asked_is_explained_by_the_control_plane() {
    let (control_plane, _connection, program) = connected(&[]);
    control_plane.dataplane("gone", json!({}), synced());
    let attempted = |name: &str| format!("could not inspect Dataplane {name:?} in mesh \"default\"");
    let refused = |view: &str, name: &str, why: &str| {
        program
            .run(&["inspect", "dataplane", name, "--type", view])
            .failed(1)
            .says(&attempted(name))
            .says(why);
    };
    let not_connected =
        "Dataplane \"gone\" in mesh \"default\" is not connected to this control plane: start its kuma-dp";
    for view in ["config", "config-dump", "stats", "clusters"] {
        refused(view, "gone", not_connected);
        program
            .run(&["inspect", "dataplane", "nobody", "--type", view])
            .failed(1)
            .says("there is no Dataplane \"nobody\" in mesh \"default\"");
    }
    // Its Envoy knows none of these paths.
    let no_answer = "Dataplane \"web\" in mesh \"default\" does not answer at http://127.0.0.1:";
    for view in ["config-dump", "stats", "clusters"] {
        refused(view, "web", no_answer);
    }
    program.run(&["proxy", "config", "web", "listeners"]).failed(1).says(no_answer);
    program.run(&["proxy", "config", "gone", "listeners"]).failed(1).says(not_connected);
}

const SUMMARY: [&str; 7] = ["inspect", "dataplane", "web", "--type", "stats", "--format", "summary"];

/// The rows of a table.
fn rows(out: &str) -> Vec<Vec<&str>> {
    out.lines().map(cells).collect()
}

#[test]
fn statistics_are_summed_up_by_resource() {
    let (control_plane, connection, program) = connected(&[UNIFIED]);
    let counts = "cluster.kri_msvc_default_east__backend_http.upstream_cx_active: 1
cluster.kri_msvc_default_east__backend_http.upstream_cx_total: 2
cluster.kri_msvc_default_east__backend_http.upstream_rq_5xx: 4
cluster.kri_msvc_default_east__backend_http.upstream_rq_total: 9
cluster.self_http.upstream_rq_total: 15
http.self_http.downstream_cx_total: 77
http.self_http.downstream_rq_2xx: 15
http.self_http.downstream_rq_4xx: 5
http.self_http.downstream_rq_total: 20
http.self_http.rbac.self_http.allowed: 15
http.self_http.rbac.self_http.denied: 5
http.self_http.rbac.self_http.shadow_denied: 2
http.system_envoy_admin.downstream_rq_total: 0
listener.self_http.downstream_cx_active: 0
listener.self_http.downstream_cx_total: 3
server.live: 1
";
    connection.answers("/stats?usedonly", counts);
    connection.answers("/stats", "");
    let run = |arguments: &[&str]| program.run(&[&SUMMARY, arguments].concat()).ok();
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
        [&["self_http", "self"], &inbound[..], &[INBOUND]].concat(),
        [&[BACKEND, "kri"], &outbound[..], &[BACKEND]].concat(),
        [&["system_envoy_admin", "system", "0"], &["-"; 9][..], &["-"]].concat(),
        vec![],
        vec!["Names without any of these numbers: 1 (-o yaml lists them)"],
    ];
    assert_eq!(rows(&table.out), expect);
    assert_eq!(run(&["-o", "json"]).json(), control_plane.get(&format!("{ONE}/stats?format=summary")));
    assert!(run(&["-o", "yaml"]).out.starts_with("unifiedNaming: true\n"));
    assert_eq!(run(&["--include-unused"]).lines().len(), 1);
}

#[test]
fn names_of_one_resource_stand_together() {
    let (_control_plane, connection, program) = connected(&[]);
    let counts = "cluster.default_backend__east_msvc_80.upstream_rq_total: 1
cluster.localhost_8080.upstream_rq_total: 2
cluster.xds_cluster.upstream_rq_total: 3
listener.127.0.0.1_10000.downstream_cx_total: 4
listener.127.0.0.1_80.ssl.handshake: 5
";
    connection.answers("/stats?usedonly", counts);
    let ran = program.run(&SUMMARY).ok();
    let shown: Vec<[&str; 3]> =
        rows(&ran.out)[1..].iter().map(|row| [row[0], row[1], row[row.len() - 1]]).collect();
    assert_eq!(
        shown,
        [
            ["127.0.0.1_80", "legacy", INBOUND],
            ["localhost_8080", "legacy", INBOUND],
            ["127.0.0.1_10000", "legacy", BACKEND],
            ["default_backend__east_msvc_80", "legacy", BACKEND],
            ["xds_cluster", "other", "-"],
        ]
    );
}

#[test]
fn hostnames_of_a_proxy_are_shown_with_destinations_and_lost_claims() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({"type": "Mesh", "name": "default", "meshServices": {"mode": "Everywhere"}}));
    let networking = |service: &str| {
        let inbound = json!({"port": 80, "tags": {"kuma.io/service": service, "version": "v1"}});
        json!({"address": "127.0.0.1", "inbound": [inbound],
            "transparentProxying": {"redirectPortInbound": 15006, "redirectPortOutbound": 15001}})
    };
    for name in ["web", "backend"] {
        let spec = networking(name);
        control_plane
            .store(json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": spec}));
    }
    // One of these services has the hostname that the VirtualOutbound makes for `backend`.
    let taken = "v1.backend.mesh";
    for (name, vip, hostname) in [("web", "241.0.0.1", "web.svc"), ("other", "241.0.0.2", taken)] {
        let address = json!({"hostname": hostname, "origin": "HostnameGenerator", "hostnameGeneratorRef": {"coreName": "local"}});
        control_plane.store(json!({"type": "MeshService", "mesh": "default", "name": name,
            "labels": {"kuma.io/zone": "east"}, "spec": {"ports": [{"port": 8080, "targetPort": 80}]},
            "status": {"vips": [{"ip": vip}], "addresses": [address]}}));
    }
    let parameter = |name: &str, tag: &str| json!({"name": name, "tagKey": tag});
    control_plane.store(json!({"type": "VirtualOutbound", "mesh": "default", "name": "vo",
        "selectors": [{"match": {"kuma.io/service": "backend"}}],
        "conf": {"host": "{{.version}}.{{.service}}.mesh", "port": "8080",
            "parameters": [parameter("service", "kuma.io/service"), parameter("version", "version")]}}));
    // The address that a control plane gave it.
    let shard = vips::config_name("default", vips::shard_of(taken));
    let given = json!({taken: {"address": "240.0.0.1"}}).to_string();
    control_plane.store(json!({"type": "Config", "name": shard, "config": given}));
    let program = Program::at(&control_plane.url);
    let run = |more: &[&str]| {
        program.run(&[&["inspect", "dataplane", "web", "--type", "hostnames"], more].concat()).ok()
    };
    let ran = run(&[]);
    let expect = [
        vec!["HOSTNAME", "ADDRESSES", "FROM", "LEADS TO"],
        vec![
            "v1.backend.mesh:8080",
            "240.0.0.1,::ffff:f000:1",
            "VirtualOutbound/vo",
            "kuma.io/service=backend version=v1",
        ],
        vec![
            "web.svc:8080",
            "241.0.0.1,::ffff:f100:1",
            "MeshService/web by HostnameGenerator/local",
            "kri_msvc_default_east__web_8080",
        ],
        vec![],
        vec![
            "Conflict: v1.backend.mesh:8080 is claimed by VirtualOutbound/vo (has it) and by MeshService/other by HostnameGenerator/local",
        ],
        vec![],
        vec!["The agent of this proxy answers no queries for hostnames of the mesh."],
    ];
    assert_eq!(rows(&ran.out), expect);
    let answer = control_plane.get(&format!("{ONE}/_hostnames"));
    assert_eq!(run(&["-o", "json"]).json(), answer, "as the REST API says it");
}
