//! Expectations of scripts and charts written for Kuma's agent.

use std::{
    fs,
    time::{Duration, Instant},
};

use axum::{
    Router,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use runtime::Shutdown;

use crate::{
    agent::{Agent, DATAPLANE, Home, free_port, http, serve},
    control_plane::SimulatedControlPlane,
};

#[test]
fn settings_of_kumas_agent_are_accepted_and_logs_go_where_they_say() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let log = home.path("kuma-dp.log").display().to_string();
    let work = home.path("conf").display().to_string();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let ca = home.file("ca.pem", &control_plane.certificate.pem);
    let readiness = home.readiness_port.to_string();
    let mut command =
        home.command(&["--log-level", "debug", "--log-output-path", &log, "--log-max-size=1", "run"]);
    command.args([
        "--cp-address",
        &control_plane.url(),
        "--ca-cert-file",
        &ca,
        "--dataplane-file",
        &dataplane,
    ]);
    command.args(["--log-max-age", "1", "--log-max-retained-files", "3", "--config-dir", &work]);
    command.args(["--dns-enabled=false", "--dns-enable-logging", "--dns-coredns-empty-port", "15055"]);
    command.args(["--binary-path"]).arg(crate::agent::envoy()).args(["--readiness-port", &readiness]);
    let agent = Agent::start(&mut command);
    agent.wait_for_ready(&home);
    assert!(home.path("conf/bootstrap.json").is_file());
    let logged = || fs::read_to_string(&log).unwrap();
    agent.wait_until("the log", |_| logged().contains("Envoy is ready"));
    let logged = logged();
    assert!(logged.contains(" INFO envoy: ") && logged.contains("DEBUG"), "{logged}");
    let warnings: Vec<&str> = logged.lines().filter(|line| line.contains("are ignored")).collect();
    assert_eq!(warnings.len(), 1, "{logged}");
    assert!(warnings[0].contains("--dns-coredns-empty-port"), "{}", warnings[0]);
    assert_eq!(agent.said(), "");
}

#[test]
fn a_log_that_cannot_be_written_is_an_error_of_usage() {
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--log-output-path", "/nowhere/kuma-dp.log"]);
    agent.ends_with(2, &["/nowhere/kuma-dp.log, where --log-output-path points"]);
}

#[test]
fn an_agent_whose_log_nobody_reads_looks_after_envoy_all_the_same() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command =
        home.run_command(&control_plane, &["--dataplane-file", &dataplane, "--log-level", "debug"]);
    let mut child = command.stderr(writer.try_clone().unwrap()).stdout(writer).spawn().unwrap();
    let agent = i32::try_from(child.id()).unwrap();
    let envoy = || -> Option<i32> {
        let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    let wait_for = |what: &str, holds: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !holds() {
            assert!(Instant::now() < deadline, "waited for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let is_ready = || http(home.readiness_port, "/ready").is_some_and(|(code, _)| code == 200);
    wait_for("readiness", &is_ready);
    let first = envoy().unwrap();
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    wait_for("another Envoy", &|| envoy().is_some_and(|pid| pid != first) && is_ready());
    kill(Pid::from_raw(agent), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// An application with probes of every kind; serves until the runtime is dropped.
fn application() -> (u16, tokio::runtime::Runtime, Shutdown) {
    let serving = |status: u8| ([("content-type", "application/grpc")], vec![0, 0, 0, 0, 2, 8, status]);
    let router = Router::new()
        .route(
            "/healthz",
            get(|headers: HeaderMap| async move { headers["host"].to_str().unwrap().to_owned() }),
        )
        .route("/sick", get(async || (StatusCode::INTERNAL_SERVER_ERROR, "x".repeat(20_000))))
        .route(
            "/grpc.health.v1.Health/Check",
            post(move |body: axum::body::Bytes| async move {
                // Only the service "shop" is well.
                serving(if body.ends_with(b"shop") { 1 } else { 2 })
            }),
        );
    serve(router)
}

/// Status and body of a probe with one more header.
fn probe(port: u16, path: &str, header: &str) -> (u16, String) {
    // The header travels in the place where the helper puts the version of HTTP.
    http(port, &format!("{path} HTTP/1.1\r\n{header}\r\nx-rest:")).unwrap()
}

#[test]
fn the_application_is_probed_on_kubelets_behalf() {
    let (app, _runtime, _shutdown) = application();
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let probes = free_port();
    let closed = free_port();
    let port = probes.to_string();
    let agent = home.run(&control_plane, &["--application-probe-proxy-port", &port]);
    agent.wait_for_ready(&home);
    assert_eq!(control_plane.requests()[0]["appProbeProxyDisabled"], true);
    let ask = |path: String| http(probes, &path).unwrap();
    assert_eq!(ask(format!("/{app}/healthz")), (200, format!("localhost:{app}")));
    let named = probe(probes, &format!("/{app}/healthz"), "x-kuma-probes-host: shop.example");
    assert_eq!(named, (200, "shop.example".to_owned()));
    let (status, body) = ask(format!("/{app}/sick"));
    assert_eq!((status, body.len()), (500, 10 * 1024));
    assert_eq!(ask(format!("/{closed}/healthz")).0, 503);
    assert_eq!(ask(format!("/tcp/{app}")), (200, "HEALTHY\n".to_owned()));
    assert_eq!(ask(format!("/tcp/{closed}")).0, 503);
    assert_eq!(probe(probes, &format!("/grpc/{app}"), "x-kuma-probes-grpc-service: shop").0, 200);
    assert_eq!(ask(format!("/grpc/{app}")).0, 503);
    assert_eq!(ask("/web/healthz".to_owned()).0, 400);
}
