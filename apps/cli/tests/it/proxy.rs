//! `proxy config`: rows from what the proxy runs and from what it would be sent.

use serde_json::{Value, json};

use crate::{
    control_plane::{ConnectedProxy, UNIFIED, ZoneControlPlane},
    program::{Program, cells},
};

const ONE: &str = "/meshes/default/dataplanes/web";
const BACKEND: &str = "kri_msvc_default_east__backend_http";
const INBOUND: &str = "kri_dp_default_east__web_http";
const HCM: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP: &str = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const HTTP: &str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

fn socket(address: &str, port: u16) -> Value {
    json!({"socket_address": {"address": address, "port_value": port}})
}

/// The shape of Envoy 1.40's answers.
fn dump() -> Value {
    let section = |name: &str, fields: Value| {
        let mut of = json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{name}")});
        of.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        of
    };
    let inbound = json!({"name": "self_http", "address": socket("10.0.0.1", 80), "traffic_direction": "INBOUND",
        "filter_chains": [{"transport_socket": {"name": "tls"}, "filters": [{"typed_config": {"@type": HCM}}]}]});
    let refused = json!({"details": "address in use",
        "failed_configuration": {"name": "inbound:10.0.0.1:90", "address": socket("10.0.0.1", 90)}});
    let outbound = json!({"name": BACKEND, "address": socket("240.0.0.1", 80), "traffic_direction": "OUTBOUND",
        "filter_chains": [{"filters": [{"typed_config": {"@type": TCP}}]}]});
    let http2 = json!({HTTP: {"@type": HTTP, "explicit_http_config": {"http2_protocol_options": {}}}});
    let routes = json!({"name": BACKEND, "virtual_hosts": [{"name": BACKEND, "domains": ["*"], "routes": [
        {"name": "kri_mhttpr_default___r_rule_0", "match": {"path": "/exact", "headers": [{"name": "x"}]},
         "route": {"weighted_clusters": {"clusters": [{"name": BACKEND, "weight": 9}, {"name": "other", "weight": 1}]}}},
        {"match": {"prefix": "/old"}, "redirect": {}},
        {"match": {"safe_regex": {"regex": "^/x"}}, "direct_response": {"status": 404}},
        {"match": {"prefix": "/"}, "route": {"cluster": BACKEND}}]}]});
    let endpoint = |address: &str| json!({"endpoint": {"address": socket(address, 8080)}, "health_status": "HEALTHY", "load_balancing_weight": 1});
    json!({"configs": [
        section("BootstrapConfigDump", json!({})),
        section("ClustersConfigDump", json!({
            "static_clusters": [{"cluster": {"name": "ads_cluster", "type": "STRICT_DNS",
                "load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket("::1", 5678)}}]}]}}}],
            "dynamic_active_clusters": [
                {"cluster": {"name": "web-api", "type": "EDS"}},
                {"cluster": {"name": BACKEND, "type": "EDS", "transport_socket": {}, "typed_extension_protocol_options": http2}}],
            "dynamic_warming_clusters": [{"cluster": {"name": "slow"}}]})),
        section("ListenersConfigDump", json!({"dynamic_listeners": [
            {"name": "self_http", "active_state": {"listener": inbound}},
            {"name": BACKEND, "active_state": {"listener": outbound}},
            {"name": "inbound:10.0.0.1:90", "error_state": refused.clone()},
            {"error_state": refused}]})),
        section("RoutesConfigDump", json!({"static_route_configs": [{"route_config": routes}]})),
        section("SecretsConfigDump", json!({"dynamic_active_secrets": [
            {"name": "system_mtls_ca_default", "last_updated": "2020-01-01T00:00:00Z",
             "secret": {"name": "system_mtls_ca_default", "validation_context": {}}}]})),
        section("EndpointsConfigDump", json!({"dynamic_endpoint_configs": [{"endpoint_config":
            {"cluster_name": BACKEND, "endpoints": [
                {"locality": {"zone": "east"}, "lb_endpoints": [endpoint("10.0.0.3"), endpoint("10.0.0.2")]},
                {"priority": 1, "lb_endpoints": [endpoint("10.9.0.1")]}]}}]})),
    ]})
}

/// The proxy `web`, with an inbound that has a name, two that share the port of their application, and calls to a
/// MeshService and to a service by its tag.
fn web() -> Value {
    let inbound = |name: &str, port: u16, behind: u16| {
        let tags = json!({"kuma.io/service": "web", "kuma.io/protocol": "http"});
        json!({"name": name, "port": port, "servicePort": behind, "tags": tags})
    };
    json!({"type": "Dataplane", "mesh": "default", "name": "web", "labels": {"kuma.io/zone": "east"}, "networking": {
        "address": "127.0.0.1",
        "inbound": [inbound("http", 80, 8080), inbound("one", 90, 8090), inbound("other", 91, 8090)],
        "outbound": [
            {"port": 10000, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}},
            {"port": 10001, "tags": {"kuma.io/service": "old"}}]}})
}

/// A control plane with a proxy that runs the dump.
fn running() -> (ZoneControlPlane, ConnectedProxy, Program) {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    control_plane.service("backend");
    control_plane.store(web());
    let connection = control_plane.connect("web", &[UNIFIED]);
    connection.dumps(&dump());
    let program = Program::at(&control_plane.url);
    (control_plane, connection, program)
}

#[test]
fn every_part_has_a_table() {
    let (_control_plane, _connection, program) = running();
    let check = |arguments: &[&str], expect: &[&[&str]]| {
        let ran = program.run(&[&["proxy", "config", "web"], arguments].concat()).ok();
        assert_eq!(ran.lines().into_iter().map(cells).collect::<Vec<_>>(), expect, "{arguments:?}");
    };
    check(
        &["listeners", "-o", "wide"],
        &[
            &["NAME", "KIND", "ADDRESS", "PROTOCOL", "DIRECTION", "TLS", "STATE", "ERROR", "KRI"],
            &[
                "inbound:10.0.0.1:90",
                "legacy",
                "10.0.0.1:90",
                "-",
                "-",
                "no",
                "rejected",
                "address in use",
                "-",
            ],
            &[BACKEND, "kri", "240.0.0.1:80", "tcp", "outbound", "no", "active", "-", BACKEND],
            &["self_http", "self", "10.0.0.1:80", "http", "inbound", "yes", "active", "-", INBOUND],
        ],
    );
    check(
        &["routes"],
        &[
            &["NAME", "KIND", "VIRTUAL HOST", "MATCH", "DESTINATION", "KRI"],
            &[BACKEND, "kri", BACKEND, "path /exact +1 headers", &format!("{BACKEND}=9,other=1"), BACKEND],
            &[BACKEND, "kri", BACKEND, "prefix /old", "redirect", BACKEND],
            &[BACKEND, "kri", BACKEND, "regex ^/x", "status 404", BACKEND],
            &[BACKEND, "kri", BACKEND, "prefix /", BACKEND, BACKEND],
        ],
    );
    check(
        &["clusters"],
        &[
            &["NAME", "KIND", "TYPE", "ADDRESS", "PROTOCOL", "TLS", "STATE", "KRI"],
            &["ads_cluster", "legacy", "STRICT_DNS", "[::1]:5678", "tcp", "no", "static", "-"],
            &[BACKEND, "kri", "EDS", "-", "http2", "yes", "active", BACKEND],
            &["slow", "other", "STATIC", "-", "tcp", "no", "warming", "-"],
            &["web-api", "other", "EDS", "-", "tcp", "no", "active", "-"],
        ],
    );
    check(
        &["endpoints", "-o", "wide"],
        &[
            &["NAME", "KIND", "ADDRESS", "HEALTH", "WEIGHT", "ZONE", "PRIORITY", "KRI"],
            &[BACKEND, "kri", "10.0.0.2:8080", "healthy", "1", "east", "0", BACKEND],
            &[BACKEND, "kri", "10.0.0.3:8080", "healthy", "1", "east", "0", BACKEND],
            &[BACKEND, "kri", "10.9.0.1:8080", "healthy", "1", "-", "1", BACKEND],
        ],
    );
    let secrets = program.run(&["proxy", "config", "web", "secrets"]).ok();
    assert_eq!(cells(secrets.lines()[1])[..4], ["system_mtls_ca_default", "system", "authorities", "active"]);
}

#[test]
fn programs_get_the_same_fields_whatever_the_proxy_says() {
    let (_control_plane, _connection, program) = running();
    let run = |arguments: &[&str]| program.run(&[&["proxy", "config", "web"], arguments].concat()).ok();
    assert_eq!(
        run(&["listeners", "--name", "self_", "-o", "json"]).json(),
        json!({"total": 1, "items": [{"name": "self_http", "kind": "self", "address": "10.0.0.1", "port": 80,
            "protocols": ["http"], "direction": "inbound", "tls": true, "state": "active", "error": null,
            "kri": INBOUND}]})
    );
    assert_eq!(
        run(&["clusters", "--name", "slow", "-o", "json"]).json(),
        json!({"total": 1, "items": [{"name": "slow", "kind": "other", "type": "STATIC", "endpoints": [],
            "protocol": "tcp", "tls": false, "state": "warming", "error": null, "kri": null}]})
    );
    let yaml = run(&["secrets", "-o", "yaml"]).out;
    assert!(yaml.starts_with("total: 1\nitems:\n- name: system_mtls_ca_default\n"), "{yaml}");
    assert_eq!(run(&["endpoints", "-o", "name"]).out, format!("endpoint/{BACKEND}\n"));
    assert_eq!(
        run(&["routes", "--name", "mhttpr", "-o", "json"]).json()["total"],
        1,
        "routes have names too"
    );
    assert_eq!(
        run(&["listeners", "--name", "nothing", "-o", "json"]).json(),
        json!({"total": 0, "items": []})
    );
}

#[test]
fn what_would_be_sent_is_shown_like_what_runs() {
    let (control_plane, _connection, program) = running();
    let check = |part: &str, expect: &[&str]| {
        let ran = program.run(&["proxy", "config", "web", part, "--expected", "--name", "self_http"]).ok();
        assert_eq!(cells(ran.lines()[1]), expect, "{part}");
    };
    check("listeners", &["self_http", "self", "127.0.0.1:80", "http", "inbound", "yes", "expected", INBOUND]);
    check("routes", &["self_http", "self", "self_http", "prefix /", "self_http", INBOUND]);
    check("clusters", &["self_http", "self", "STATIC", "127.0.0.1:8080", "http", "no", "expected", INBOUND]);
    check("endpoints", &["self_http", "self", "127.0.0.1:8080", "unknown", "1", "-", INBOUND]);
    program.run(&["proxy", "config", "web", "secrets", "--expected"]).failed(2).says("leave out --expected");

    let inspect = |arguments: &[&str]| {
        program.run(&[&["inspect", "dataplane", "web", "--type", "config"], arguments].concat()).ok()
    };
    assert_eq!(inspect(&[]).json(), control_plane.get(&format!("{ONE}/_config")));
    assert!(inspect(&["-o", "yaml"]).out.starts_with("xds:\n  type.googleapis.com/"));
    let table = inspect(&["-o", "table"]);
    let mut kinds: Vec<&str> = table.lines().into_iter().skip(1).map(|line| cells(line)[0]).collect();
    kinds.dedup();
    assert_eq!(kinds, ["Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment", "Secret"]);
    assert_eq!(cells(table.lines()[1]), ["Listener", BACKEND, "kri", BACKEND]);
}

#[test]
fn the_whole_dump_is_shown_as_the_proxy_says_it() {
    let (control_plane, _connection, program) = running();
    let run = |arguments: &[&str]| {
        program.run(&[&["inspect", "dataplane", "web", "--type", "config-dump"], arguments].concat()).ok()
    };
    assert_eq!(run(&[]).json(), dump());
    assert_eq!(control_plane.lines().last().unwrap(), &format!("GET {ONE}/xds"));
    let table = run(&["--include-eds", "-o", "table"]);
    assert!(control_plane.lines().contains(&format!("GET {ONE}/xds?include_eds=true")));
    assert_eq!(cells(table.lines()[0]), ["TYPE", "NAME", "KIND", "KRI"]);
    assert_eq!(cells(table.lines()[1]), ["Listener", "inbound:10.0.0.1:90", "legacy", "-"]);
    assert_eq!(cells(table.lines()[2]), ["Listener", BACKEND, "kri", BACKEND]);
    assert_eq!(table.lines().len(), 1 + 3 + 1 + 4 + 1 + 1);
}

#[test]
fn an_answer_that_is_no_configuration_is_a_failure() {
    let (_control_plane, connection, program) = running();
    connection.dumps(&json!({}));
    program.run(&["proxy", "config", "web", "clusters"]).failed(1).says("the answer has no configs");
    program.run(&["proxy", "config", "web", "policies"]).failed(2).says("possible values");
    program.run(&["proxy", "config", "web"]).failed(2);
}

/// Configuration of an Envoy that got legacy names, and something of which the control plane knows nothing.
fn older() -> Value {
    let listeners = ["inbound:127.0.0.1:80", "inbound:127.0.0.1:90", "outbound:127.0.0.1:10000"];
    let listeners = listeners.map(|name| json!({"name": name, "active_state": {"listener": {"name": name}}}));
    let clusters = ["localhost:8080", "localhost:8090", "default_backend__east_msvc_80", "old", "own"]
        .map(|name| json!({"cluster": {"name": name}}));
    let section = |name: &str| format!("type.googleapis.com/envoy.admin.v3.{name}");
    json!({"configs": [
        {"@type": section("ListenersConfigDump"), "dynamic_listeners": listeners},
        {"@type": section("ClustersConfigDump"), "static_clusters": [{"cluster": {"name": "ads_cluster"}}],
            "dynamic_active_clusters": clusters}]})
}

/// Its statistics: nothing yet.
const OLDER_STATS: &str = "cluster.ads_cluster.upstream_rq_total: 0
cluster.default_backend__east_msvc_80.upstream_rq_total: 0
cluster.localhost_8080.upstream_rq_total: 0
cluster.localhost_8090.upstream_rq_total: 0
cluster.old.upstream_rq_total: 0
cluster.own.upstream_rq_total: 0
listener.127.0.0.1_10000.downstream_cx_total: 0
listener.127.0.0.1_80.downstream_cx_total: 0
listener.127.0.0.1_90.downstream_cx_total: 0
";

#[test]
fn names_lead_back_to_resources_in_whichever_scheme_they_are() {
    // A mesh whose destinations are not all MeshServices has no layouts: its proxies are asked what they count.
    for mode in ["Exclusive", "Everywhere"] {
        let control_plane = ZoneControlPlane::start();
        control_plane.store(json!({"type": "Mesh", "name": "default", "meshServices": {"mode": mode}}));
        control_plane.service("backend");
        control_plane.store(web());
        let connection = control_plane.connect("web", &[]);
        connection.dumps(&older());
        connection.answers("/stats", OLDER_STATS);
        let program = Program::at(&control_plane.url);
        let named = |part: &str, name: &str| {
            let ran = program.run(&["proxy", "config", "web", part, "-o", "json"]).ok().json();
            let items = ran["items"].as_array().unwrap();
            let found = items.iter().find(|item| item["name"] == name).unwrap();
            (found["kind"].as_str().unwrap().to_owned(), found["kri"].clone())
        };
        let legacy = |kri: Value| ("legacy".to_owned(), kri);
        assert_eq!(named("listeners", "inbound:127.0.0.1:80"), legacy(json!(INBOUND)), "{mode}");
        let one = "kri_dp_default_east__web_one";
        assert_eq!(named("listeners", "inbound:127.0.0.1:90"), legacy(json!(one)), "{mode}");
        assert_eq!(named("listeners", "outbound:127.0.0.1:10000"), legacy(json!(BACKEND)), "{mode}");
        assert_eq!(named("clusters", "localhost:8080"), legacy(json!(INBOUND)), "{mode}");
        assert_eq!(named("clusters", "default_backend__east_msvc_80"), legacy(json!(BACKEND)), "{mode}");
        let web = "kri_dp_default_east__web_";
        assert_eq!(named("clusters", "localhost:8090"), legacy(json!(web)), "{mode}: shared by two inbounds");
        assert_eq!(named("clusters", "old"), legacy(Value::Null), "{mode}: selected by tags");
        assert_eq!(named("clusters", "ads_cluster"), legacy(Value::Null), "{mode}");
        assert_eq!(named("clusters", "own"), ("other".to_owned(), Value::Null), "{mode}");
        let by_resource =
            program.run(&["proxy", "config", "web", "clusters", "--name", INBOUND, "-o", "name"]);
        assert_eq!(by_resource.ok().out, "cluster/localhost:8080\n", "{mode}");
        let asked = control_plane.lines();
        let summaries = asked.iter().filter(|line| line.contains("format=summary")).count();
        assert_eq!(summaries > 0, mode == "Everywhere", "{asked:?}");
    }
}
