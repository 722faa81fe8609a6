//! The page of metrics, as Prometheus reads it, of a real Envoy and an application.

use std::{
    collections::{BTreeSet, HashSet},
    net::TcpListener,
};

use axum::{Router, routing::get};
use runtime::Shutdown;

use crate::{
    agent::{Agent, Home, free_port, http, serve},
    control_plane::{DESTINATION, SimulatedControlPlane},
};

const DATAPLANE: &str = "type: Dataplane\nmesh: default\nname: web-1\nnetworking:\n  address: 127.0.0.1\n  \
                         inbound:\n  - port: 8080\n    servicePort: 9090\n    name: backend-kumahq.com\n    \
                         tags: {kuma.io/service: web}\n";

/// An application that counts its orders; serves until the runtime is dropped.
fn application() -> (u16, tokio::runtime::Runtime, Shutdown) {
    let text = "# TYPE orders counter\norders{kind=\"book\"} 3\n";
    let router = Router::new().route("/stats/metrics", get(move || async move { text }));
    serve(router)
}

/// Every family has one type and its samples stand together.
#[track_caller]
fn is_orderly(page: &str) {
    let mut seen = HashSet::new();
    let mut current = String::new();
    for line in page.lines().filter(|line| !line.starts_with("# HELP")) {
        let name = line.strip_prefix("# TYPE ").unwrap_or(line).split(['{', ' ']).next().unwrap();
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        if line.starts_with('#') || (name != current && histogram != Some(current.as_str())) {
            assert!(seen.insert(name.to_owned()), "{name} comes twice:\n{page}");
            current = name.to_owned();
        }
    }
}

#[track_caller]
fn has(page: &str, line: &str) {
    assert!(page.lines().any(|one| one == line), "no {line} in\n{page}");
}

#[test]
fn metrics_of_envoy_and_application_are_one_page_with_whole_names() {
    let control_plane = SimulatedControlPlane::with_unified_names();
    let home = Home::new();
    let (port, _runtime, _shutdown) = application();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let address = format!("127.0.0.1:{}", free_port());
    let shop = format!("shop=http://127.0.0.1:{port}/stats/metrics");
    let gone = "gone=http://127.0.0.1:1/";
    let options = ["--dataplane-file", &dataplane, "--metrics-address", &address];
    let mut command = home.run_command(&control_plane, &options);
    // Its kernel takes the connection, and it never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hung = format!("hung=http://{}/", silent.local_addr().unwrap());
    for application in [&*shop, gone, &*hung] {
        command.args(["--metrics-application", application]);
    }
    let agent = Agent::start(&mut command);
    agent.wait_for_ready(&home);
    assert_eq!(http(control_plane.traffic_port, "/").unwrap().0, 200);

    let public = address.rsplit(':').next().unwrap().parse().unwrap();
    let (status, page) = http(public, "/metrics").unwrap();
    assert_eq!(status, 200);
    assert_eq!(http(public, "/ready").unwrap().0, 404);
    is_orderly(&page);
    for line in [
        r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="self_backend-kumahq.com"} 0"#,
        r#"envoy_cluster_upstream_cx_total{envoy_cluster_name="self_backend-kumahq"} 0"#,
        r#"envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="self_backend-kumahq.com"} 1"#,
        r#"envoy_listener_downstream_cx_total{envoy_listener_address="self_backend-kumahq.com"} 1"#,
        r#"envoy_listener_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="self_backend-kumahq.com",envoy_listener_address="self_backend-kumahq.com"} 1"#,
        r#"envoy_rbac_allowed{listener="http.self_backend-kumahq.com",envoy_http_conn_manager_prefix="self_backend-kumahq.com",envoy_rbac_http_prefix="self_backend-kumahq.com"} 1"#,
        r#"orders{kind="book",kuma_application="shop"} 3"#,
        r#"kuma_dp_metrics_source_up{source="envoy"} 1"#,
        r#"kuma_dp_metrics_source_up{source="gone"} 0"#,
        r#"kuma_dp_metrics_source_up{source="hung"} 0"#,
        r#"kuma_dp_metrics_source_up{source="shop"} 1"#,
        "kuma_dp_envoy_restarts_total 0",
    ] {
        has(&page, line);
    }
    assert!(!page.contains("_com_downstream") && !page.contains("_com_upstream"), "{page}");
    assert!(!page.contains("localhost_9090"), "{page}");
}

/// Series with their labels in order, without values.
fn series(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let read = |sample: &str| {
        let (series, _) = sample.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let mut labels: Vec<&str> = labels.trim_end_matches('}').split("\",").collect();
        labels.sort_unstable();
        Some(format!("{name} {}", labels.join(" ").replace('"', "")))
    };
    samples.filter_map(read).filter(|series| series.starts_with("envoy_")).collect()
}

#[test]
fn labels_are_the_same_whether_envoy_or_the_agent_makes_them() {
    let of = |control_plane: SimulatedControlPlane| {
        let home = Home::new();
        let agent = home.run(&control_plane, &[]);
        agent.wait_for_ready(&home);
        assert_eq!(http(control_plane.traffic_port, "/").unwrap().0, 200);
        series(&http(home.readiness_port, "/metrics").unwrap().1)
    };
    let expect = of(SimulatedControlPlane::with_unified_names());
    let found = of(SimulatedControlPlane::with_labels_by_the_agent());
    let of_kuma = |series: &&String| series.contains(" listener=") || series.contains(" worker=");
    assert!(expect.iter().filter(of_kuma).count() > 20, "{expect:#?}");
    assert_eq!(expect.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new(), "missing");
    assert_eq!(found.difference(&expect).collect::<Vec<_>>(), Vec::<&String>::new(), "too much");
}

#[test]
fn the_bridge_shows_older_names_beside_unified_ones() {
    let control_plane = SimulatedControlPlane::with_unified_names();
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let options = ["--dataplane-file", &dataplane, "--metrics-legacy-names"];
    let agent = Agent::start(&mut home.run_command(&control_plane, &options));
    agent.wait_for_ready(&home);
    assert_eq!(http(control_plane.traffic_port, "/").unwrap().0, 200);
    let (_, page) = http(home.readiness_port, "/metrics").unwrap();
    is_orderly(&page);
    let traffic = control_plane.traffic_port;
    for line in [
        r#"envoy_cluster_membership_total{envoy_cluster_name="self_backend-kumahq.com"} 0"#,
        r#"envoy_cluster_membership_total{envoy_cluster_name="localhost_9090"} 0"#,
        r#"envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="localhost_9090"} 1"#,
        &format!(r#"envoy_listener_downstream_cx_total{{envoy_listener_address="127.0.0.1_{traffic}"}} 1"#),
        &format!(
            r#"envoy_rbac_allowed{{listener="http.localhost_9090",envoy_http_conn_manager_prefix="localhost_9090",envoy_rbac_http_prefix="inbound_127_0_0_1_{traffic}"}} 1"#
        ),
        r#"envoy_cluster_membership_total{envoy_cluster_name="default_redis__east_msvc_6379"} 0"#,
        r#"envoy_tcp_downstream_cx_total{envoy_tcp_prefix="default_redis__east_msvc_6379"} 0"#,
    ] {
        has(&page, line);
    }
    has(&page, &format!(r#"envoy_tcp_downstream_cx_total{{envoy_tcp_prefix="{DESTINATION}"}} 0"#));
}

#[test]
fn a_listener_of_kumas_control_plane_is_answered_by_the_agent() {
    let (port, _runtime, _shutdown) = application();
    let listener = free_port();
    let control_plane = SimulatedControlPlane::with_metrics(listener, port);
    let home = Home::new();
    let agent = home.run(&control_plane, &[]);
    agent.wait_for_ready(&home);
    assert_eq!(http(control_plane.traffic_port, "/").unwrap().0, 200);

    let (status, page) = http(listener, "/metrics").unwrap();
    assert_eq!(status, 200, "{page}");
    is_orderly(&page);
    has(&page, r#"orders{kind="book",kuma_application="shop",mesh="default",kuma_proxy_role="sidecar"} 3"#);
    has(&page, r#"kuma_dp_metrics_source_up{source="envoy",mesh="default",kuma_proxy_role="sidecar"} 1"#);
    let requests =
        r#"envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="web","#;
    assert!(page.contains(requests), "{page}");
    // The profile Basic has neither what the mesh itself uses nor what is rarely read.
    assert!(!page.contains("hijacker") && !page.contains("envoy_runtime_load_success"), "{page}");

    let (status, page) = http(listener, "/old").unwrap();
    assert_eq!(status, 200, "{page}");
    has(&page, r#"orders{kind="book",kuma_application="old"} 3"#);
    assert!(page.contains("envoy_runtime_load_success"), "{page}");
}
