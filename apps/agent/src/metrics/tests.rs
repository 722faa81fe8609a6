use resources::kinds::dataplane::Dataplane;

use super::{legacy::Listening, *};

const DOTTED: &str = "self_backend-kumahq.com";
const DOTTED_PORT: &str = "kri_msvc_default_east__web_backend-kumahq.com";

fn known(clusters: &[&str]) -> KnownNames {
    let stats = |before: &str, after: &str| {
        clusters.iter().map(|name| format!("{before}.{name}.{after}: 0\n")).collect::<String>()
    };
    KnownNames::of_stats(
        &[
            stats("cluster", "membership_total"),
            stats("listener", "no_filter_chain_match"),
            stats("http", "downstream_cx_destroy"),
            stats("tcp", "downstream_cx_no_route"),
            format!("{DOTTED}.rbac.denied: 1\na.b-c.rbac.denied: 1\na-b.c.rbac.denied: 1\n"),
        ]
        .concat(),
    )
}

/// Page for a reader who wants everything.
fn all(texts: &Texts, known: &KnownNames, older: Option<&LegacyNames>) -> String {
    merge(texts, known, older, None).render()
}

fn envoy(text: &str) -> Texts {
    Texts { envoy: text.to_owned(), ..Texts::default() }
}

#[track_caller]
fn comes_out(names: &[&str], text: &str, expect: &str) {
    assert_eq!(all(&envoy(text), &known(names), None), format!("{expect}\n"), "{names:?} {text}");
}

#[test]
fn names_with_dots_come_out_whole() {
    comes_out(
        &[DOTTED],
        r#"envoy_cluster_com_upstream_cx_total{envoy_cluster_name="self_backend-kumahq"} 2"#,
        r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="self_backend-kumahq.com"} 2"#,
    );
    comes_out(
        &[DOTTED],
        r#"envoy_http_com_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="self_backend-kumahq"} 1"#,
        r#"envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="self_backend-kumahq.com"} 1"#,
    );
    comes_out(
        &["self_tcp.com-a.org", "self_tcp.com"],
        r#"envoy_tcp_com_a_org_downstream_cx_total{envoy_tcp_prefix="self_tcp"} 1"#,
        r#"envoy_tcp_downstream_cx_total{envoy_tcp_prefix="self_tcp.com-a.org"} 1"#,
    );
    comes_out(
        &[DOTTED],
        r#"envoy_listener_com_http_com_downstream_rq_completed{envoy_http_conn_manager_prefix="self_backend-kumahq",envoy_listener_address="self_backend-kumahq"} 1"#,
        r#"envoy_listener_http_downstream_rq_completed{envoy_http_conn_manager_prefix="self_backend-kumahq.com",envoy_listener_address="self_backend-kumahq.com"} 1"#,
    );
    // The number of a worker becomes the label it is for names without dots.
    comes_out(
        &[DOTTED],
        r#"envoy_listener_com_worker_0_downstream_cx_total{envoy_listener_address="self_backend-kumahq"} 1"#,
        r#"envoy_listener_downstream_cx_total{envoy_listener_address="self_backend-kumahq.com",worker="0",envoy_worker_id="0"} 1"#,
    );
    comes_out(
        &[DOTTED],
        r#"envoy_rbac_self_backend_kumahq_com_allowed{listener="http.self_backend-kumahq.com",envoy_http_conn_manager_prefix="self_backend-kumahq"} 1"#,
        r#"envoy_rbac_allowed{listener="http.self_backend-kumahq.com",envoy_http_conn_manager_prefix="self_backend-kumahq.com",envoy_rbac_http_prefix="self_backend-kumahq.com"} 1"#,
    );
    comes_out(
        &[DOTTED],
        r#"envoy_rbac_denied{listener="self_backend-kumahq.com"} 1"#,
        r#"envoy_rbac_denied{listener="self_backend-kumahq.com",envoy_rbac_prefix="self_backend-kumahq.com"} 1"#,
    );
    // What is not known is not guessed, and addresses are whole already.
    let unknown = r#"envoy_cluster_com_upstream_cx_total{envoy_cluster_name="self_other"} 2"#;
    comes_out(&[DOTTED], unknown, unknown);
    let address = r#"envoy_listener_downstream_cx_total{envoy_listener_address="127.0.0.1_80"} 2"#;
    comes_out(&["127.0.0.1_80"], address, address);
}

#[test]
fn labels_of_kuma_are_made_where_envoy_has_not() {
    for (text, expect) in [
        (
            r#"envoy_listener_worker_downstream_cx_total{envoy_worker_id="1",envoy_listener_address="self_http"} 1"#,
            r#"envoy_listener_downstream_cx_total{envoy_worker_id="1",envoy_listener_address="self_http",worker="1"} 1"#,
        ),
        (
            r#"envoy_server_worker_watchdog_miss{envoy_worker_id="0"} 1"#,
            r#"envoy_server_watchdog_miss{envoy_worker_id="0",worker="0"} 1"#,
        ),
        (
            r#"envoy_http_rbac_allowed{envoy_rbac_http_prefix="inbound_10_0_0_1_80",envoy_http_conn_manager_prefix="localhost_80"} 1"#,
            r#"envoy_rbac_allowed{envoy_rbac_http_prefix="inbound_10_0_0_1_80",envoy_http_conn_manager_prefix="localhost_80",listener="http.localhost_80"} 1"#,
        ),
        (
            r#"envoy_http_com_rbac_self_backend_kumahq_com_allowed{envoy_http_conn_manager_prefix="self_backend-kumahq"} 1"#,
            r#"envoy_rbac_allowed{envoy_http_conn_manager_prefix="self_backend-kumahq.com",listener="http.self_backend-kumahq.com",envoy_rbac_http_prefix="self_backend-kumahq.com"} 1"#,
        ),
        (
            r#"envoy_rbac_denied{envoy_rbac_prefix="self_line"} 1"#,
            r#"envoy_rbac_denied{envoy_rbac_prefix="self_line",listener="self_line"} 1"#,
        ),
        (
            "envoy_self_backend_kumahq_com_rbac_denied 1",
            r#"envoy_rbac_denied{listener="self_backend-kumahq.com",envoy_rbac_prefix="self_backend-kumahq.com"} 1"#,
        ),
        // Not of permissions, whatever the cluster is called.
        (
            r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="rbac"} 1"#,
            r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="rbac"} 1"#,
        ),
        // Two permissions would become this one.
        ("envoy_a_b_c_rbac_denied 1", "envoy_a_b_c_rbac_denied 1"),
    ] {
        comes_out(&[DOTTED], text, expect);
        comes_out(&[DOTTED], expect, expect);
    }
}

#[test]
fn dotted_ports_of_services_come_out_whole() {
    comes_out(
        &[DOTTED_PORT, "kri_msvc_default_east__web_http"],
        r#"envoy_cluster_com_upstream_cx_total{envoy_cluster_name="kri_msvc_default_east__web_backend-kumahq"} 2"#,
        r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="kri_msvc_default_east__web_backend-kumahq.com"} 2"#,
    );
    comes_out(
        &[DOTTED_PORT],
        r#"envoy_http_com_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="kri_msvc_default_east__web_backend-kumahq"} 1"#,
        r#"envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="kri_msvc_default_east__web_backend-kumahq.com"} 1"#,
    );
    comes_out(
        &[DOTTED_PORT],
        r#"envoy_tcp_com_downstream_cx_total{envoy_tcp_prefix="kri_msvc_default_east__web_backend-kumahq"} 1"#,
        r#"envoy_tcp_downstream_cx_total{envoy_tcp_prefix="kri_msvc_default_east__web_backend-kumahq.com"} 1"#,
    );
    comes_out(
        &[DOTTED_PORT],
        r#"envoy_listener_com_worker_0_downstream_cx_total{envoy_listener_address="kri_msvc_default_east__web_backend-kumahq"} 1"#,
        r#"envoy_listener_downstream_cx_total{envoy_listener_address="kri_msvc_default_east__web_backend-kumahq.com",worker="0",envoy_worker_id="0"} 1"#,
    );
}

#[test]
fn a_name_that_begins_like_another_keeps_its_own_series() {
    let text = r#"# TYPE envoy_cluster_http2_rx_reset counter
envoy_cluster_http2_rx_reset{envoy_cluster_name="self_a"} 1
envoy_cluster_http2_rx_reset{envoy_cluster_name="ads_cluster"} 7
# TYPE envoy_cluster_http2_http2_rx_reset counter
envoy_cluster_http2_http2_rx_reset{envoy_cluster_name="self_a"} 2
# TYPE envoy_cluster_http2_upstream_cx_total counter
envoy_cluster_http2_upstream_cx_total{envoy_cluster_name="self_a"} 3
# TYPE envoy_cluster_upstream_cx_total counter
envoy_cluster_upstream_cx_total{envoy_cluster_name="self_a"} 4
# TYPE envoy_cluster_http2_external_upstream_rq counter
envoy_cluster_http2_external_upstream_rq{envoy_cluster_name="self_a"} 5
"#;
    let expect = r#"# TYPE envoy_cluster_http2_rx_reset counter
envoy_cluster_http2_rx_reset{envoy_cluster_name="self_a"} 1
envoy_cluster_http2_rx_reset{envoy_cluster_name="ads_cluster"} 7
envoy_cluster_http2_rx_reset{envoy_cluster_name="self_a.http2"} 2
# TYPE envoy_cluster_upstream_cx_total counter
envoy_cluster_upstream_cx_total{envoy_cluster_name="self_a.http2"} 3
envoy_cluster_upstream_cx_total{envoy_cluster_name="self_a"} 4
# TYPE envoy_cluster_external_upstream_rq counter
envoy_cluster_external_upstream_rq{envoy_cluster_name="self_a.http2"} 5
"#;
    assert_eq!(all(&envoy(text), &known(&["self_a", "self_a.http2", "self_z.http2"]), None), expect);
}

#[test]
fn a_histogram_moves_as_a_whole() {
    let text = r#"# TYPE envoy_cluster_com_upstream_rq_time histogram
envoy_cluster_com_upstream_rq_time_bucket{envoy_cluster_name="self_backend-kumahq",le="+Inf"} 1
envoy_cluster_com_upstream_rq_time_sum{envoy_cluster_name="self_backend-kumahq"} 2
envoy_cluster_com_upstream_rq_time_count{envoy_cluster_name="self_backend-kumahq"} 1
# TYPE envoy_cluster_upstream_rq_time histogram
envoy_cluster_upstream_rq_time_count{envoy_cluster_name="x"} 0
"#;
    let expect = r#"# TYPE envoy_cluster_upstream_rq_time histogram
envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="self_backend-kumahq.com",le="+Inf"} 1
envoy_cluster_upstream_rq_time_sum{envoy_cluster_name="self_backend-kumahq.com"} 2
envoy_cluster_upstream_rq_time_count{envoy_cluster_name="self_backend-kumahq.com"} 1
envoy_cluster_upstream_rq_time_count{envoy_cluster_name="x"} 0
"#;
    assert_eq!(all(&envoy(text), &known(&[DOTTED]), None), expect);
}

#[test]
fn applications_are_told_apart_and_families_stay_together() {
    let text = "# TYPE up gauge\nup 1\n".to_owned();
    let texts = Texts {
        envoy: "# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n".to_owned(),
        agent: "# TYPE own counter\nown_total 5\n# EOF\n".to_owned(),
        applications: vec![
            ("a".to_owned(), text.clone()),
            ("b".to_owned(), format!("{text}# TYPE own_total gauge\nown_total 6\n")),
        ],
    };
    let expect = "# TYPE envoy_server_live gauge\nenvoy_server_live 1\n\
                  # TYPE own_total untyped\nown_total 5\nown_total{kuma_application=\"b\"} 6\n\
                  # TYPE up gauge\nup{kuma_application=\"a\"} 1\nup{kuma_application=\"b\"} 1\n";
    assert_eq!(all(&texts, &KnownNames::default(), None), expect);
}

#[test]
fn the_bridge_adds_every_older_name_that_can_be_known() {
    let dataplane: Dataplane = serde_json::from_value(serde_json::json!({"networking": {
        "address": "10.0.0.1",
        "inbound": [{"port": 80, "servicePort": 8080, "name": "http"}],
        "outbound": [
            {"address": "10.9.0.1", "port": 81, "backendRef": {"kind": "MeshService", "name": "b", "port": 90}},
            {"address": "10.9.0.1", "port": 82, "backendRef": {"kind": "MeshService", "name": "web", "port": 91}},
        ],
    }}))
    .unwrap();
    let named = "kri_msvc_default_east_ns_b_web";
    let listening = Listening::of_admin(
        r#"{"listener_statuses": [
            {"name": "self_http", "local_address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}},
            {"name": "system_x", "local_address": {"pipe": {"path": "/x"}}},
            {"name": "kri_msvc_default_east_ns_b_web", "local_address": {"socket_address": {"address": "10.9.0.1", "port_value": 81}}},
            {"name": "kri_msvc_default_east__web_backend-kumahq.com", "local_address": {"socket_address": {"address": "10.9.0.1", "port_value": 82}}},
            {"name": "self_passthrough_ipv6_inbound", "local_address": {"socket_address": {"address": "::", "port_value": 15010}}}
        ]}"#,
    );
    let names = [
        "self_http",
        named,
        DOTTED_PORT,
        "kri_extsvc_default_east__pay_443",
        "kri_msvc_default_east_ns_c_web",
        "self_passthrough_ipv6_inbound",
        "self_transparentproxy_no_destination_inbound",
        "system_envoy_admin",
        "web",
    ];
    let older = LegacyNames::derive(&known(&names), &listening, Some(&dataplane));
    let check = |label: &str, value: &str, expect: Option<&str>| {
        let text = format!("m{{{label}=\"{value}\"}} 1\n");
        let copy = expect.map(|expect| format!("m{{{label}=\"{expect}\"}} 1\n")).unwrap_or_default();
        assert_eq!(all(&envoy(&text), &known(&names), Some(&older)), format!("{text}{copy}"), "{value}");
    };
    check(names::CLUSTER, "self_http", Some("localhost_8080"));
    check(names::HTTP, "self_http", Some("localhost_8080"));
    check(names::TCP, "self_http", Some("localhost_8080"));
    check(names::LISTENER, "self_http", Some("10.0.0.1_80"));
    check(names::PERMISSIONS, "self_http", Some("inbound_10_0_0_1_80"));
    check(names::PERMISSIONS, "http.self_http", Some("http.localhost_8080"));
    check(names::PERMISSIONS_HTTP, "self_http", Some("inbound_10_0_0_1_80"));
    check(names::PERMISSIONS_TCP, "self_http", Some("inbound_10_0_0_1_80"));
    check(names::CLUSTER, named, Some("default_b_ns_east_msvc_90"));
    check(names::LISTENER, named, Some("10.9.0.1_81"));
    check(names::CLUSTER, DOTTED_PORT, Some("default_web__east_msvc_91"));
    check(names::LISTENER, DOTTED_PORT, Some("10.9.0.1_82"));
    check(names::CLUSTER, "kri_extsvc_default_east__pay_443", Some("default_pay__east_extsvc_443"));
    check(names::CLUSTER, "self_passthrough_ipv6_inbound", Some("inbound_passthrough_ipv6"));
    check(names::LISTENER, "self_passthrough_ipv6_inbound", Some("[__]_15010"));
    check(names::CLUSTER, "system_envoy_admin", Some("kuma_envoy_admin"));
    // The number behind a named port is not in the KRI, and no outbound tells it.
    check(names::CLUSTER, "kri_msvc_default_east_ns_c_web", None);
    check(names::CLUSTER, "web", None);
    check(names::CLUSTER, "self_transparentproxy_no_destination_inbound", None);
    // Only the definition says where the workload listens.
    let undefined = LegacyNames::derive(&known(&names), &listening, None);
    let inbound = r#"m{envoy_cluster_name="self_http"} 1"#;
    assert_eq!(all(&envoy(inbound), &known(&names), Some(&undefined)), format!("{inbound}\n"));
}
