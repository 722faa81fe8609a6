//! From the start of an Envoy to its end.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    agent::{Agent, DATAPLANE, Home, envoy, http, is_alive},
    control_plane::{Certificate, SimulatedControlPlane},
};

#[test]
fn envoy_serves_what_the_control_plane_told_it_and_the_agent_says_ready() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--dataplane-token", "secret-token"]);
    agent.wait_for_ready(&home);
    assert_eq!(http(control_plane.traffic_port, "/").unwrap(), (200, "hello".to_owned()));

    let request = &control_plane.requests()[0];
    for (field, expect) in [("mesh", "default"), ("name", "web-1"), ("proxyType", "dataplane")] {
        assert_eq!(request[field], expect, "{field}");
    }
    assert_eq!(request["dataplaneToken"], "secret-token");
    assert_eq!(request["caCert"], control_plane.certificate.pem);
    assert_eq!(request["readinessPort"], home.readiness_port);
    assert_eq!(request["version"]["envoy"]["kumaDpCompatible"], true);
    let features = [
        "feature-delta-grpc",
        "feature-strict-inbound-ports",
        "feature-reuse-port",
        "feature-stats-labels-via-kuma-dp",
    ];
    assert_eq!(request["features"], serde_json::json!(features));
    let resource: serde_json::Value =
        serde_json::from_str(request["dataplaneResource"].as_str().unwrap()).unwrap();
    assert_eq!(resource["networking"]["inbound"][0]["tags"]["kuma.io/service"], "web");

    let token = home.path("work/dataplane-token");
    assert_eq!(request["dataplaneTokenPath"], token.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(std::fs::read_to_string(&token).unwrap(), "secret-token");
    for file in [home.path("work/bootstrap.json"), token] {
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let said = agent.said();
    assert!(said.contains(" INFO envoy: ") && said.contains("component=\"main\""), "{said}");
    assert!(!said.contains("secret-token"), "{said}");
}

#[test]
fn the_control_plane_learns_of_an_envoy_newer_than_tried_ones() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let version = "envoy  version: abc/1.99.0/Clean/RELEASE/BoringSSL";
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' && exit\nexec '{}' \"$@\"\n",
        envoy().display()
    );
    let program = home.file("envoy", &script);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let agent = home.run(&control_plane, &["--binary-path", &program]);
    agent.wait_for_ready(&home);
    let told = &control_plane.requests()[0]["version"]["envoy"];
    assert_eq!((&told["version"], &told["kumaDpCompatible"]), (&"1.99.0".into(), &false.into()));
    assert!(agent.said().contains("newest=\"1.40\""), "{}", agent.said());
}

#[test]
fn a_server_certificate_that_calls_itself_a_ca_is_trusted_if_given() {
    let control_plane = SimulatedControlPlane::with_certificate(Certificate::calling_itself_a_ca());
    let home = Home::new();
    home.run(&control_plane, &[]).wait_for_ready(&home);
}

#[test]
fn a_crashed_envoy_is_started_again_and_counted() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let agent = home.run(&control_plane, &[]);
    agent.wait_for_ready(&home);
    kill(Pid::from_raw(agent.envoys()[0]), Signal::SIGKILL).unwrap();
    agent.wait_until("a second Envoy", |_| agent.envoys().len() == 2);
    agent.wait_for_ready(&home);
    assert_eq!(http(control_plane.traffic_port, "/").unwrap().0, 200);
    agent.wait_until("a report", |said| {
        said.contains("Envoy exited unexpectedly") && said.contains("signal: 9")
    });
    let (_, metrics) = http(home.readiness_port, "/metrics").unwrap();
    assert!(metrics.contains("kuma_dp_envoy_restarts_total 1"), "{metrics}");
}

#[test]
fn an_agent_asked_to_end_waits_for_open_connections_and_then_ends_well() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let control_plane = SimulatedControlPlane::start();
        let home = Home::new();
        let mut agent = home.run(&control_plane, &["--drain-time", "10m"]);
        agent.wait_for_ready(&home);
        let mut open = TcpStream::connect(("127.0.0.1", control_plane.traffic_port)).unwrap();
        open.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        open.write_all(b"GET / HT").unwrap();
        agent.signal(signal);
        agent.wait_until("the drain", |said| said.contains("draining"));
        assert_eq!(http(home.readiness_port, "/ready").unwrap(), (503, "TERMINATING\n".to_owned()));
        assert!(agent.is_running(), "a request is half sent");
        open.write_all(b"TP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        open.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
        assert_eq!(agent.wait_for_end().code(), Some(0), "{}", agent.said());
        assert!(!is_alive(agent.envoys()[0]));
    }
}

#[test]
fn a_directory_the_agent_made_for_itself_is_gone_after_it() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let mut command = home.run_command(&control_plane, &["-d", &dataplane]);
    command.env_remove("KUMA_DATAPLANE_RUNTIME_WORK_DIR").env("TMPDIR", home.dir.path());
    let agent = Agent::start(&mut command);
    agent.wait_for_ready(&home);
    let made = control_plane.requests()[0]["workdir"].as_str().unwrap().to_owned();
    assert!(made.starts_with(home.dir.path().to_str().unwrap()), "{made}");
    let mode = std::fs::metadata(&made).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    agent.signal(Signal::SIGTERM);
    agent.ends_with(0, &["Envoy stopped"]);
    assert!(!std::path::Path::new(&made).exists());
}

#[test]
fn a_second_signal_skips_the_drain() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--drain-time", "10m"]);
    agent.wait_for_ready(&home);
    let _open = TcpStream::connect(("127.0.0.1", control_plane.traffic_port)).unwrap();
    agent.signal(Signal::SIGTERM);
    agent.wait_until("the drain", |said| said.contains("draining"));
    // The echo of the first signal is not a second one, so this may take some.
    agent.wait_until("impatience to be noticed", |said| {
        agent.signal(Signal::SIGTERM);
        said.contains("stopping without draining")
    });
    agent.ends_with(0, &[]);
}

#[test]
fn an_announced_end_drains_and_stops_nothing_yet() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let mut agent = home.run(&control_plane, &[]);
    agent.wait_for_ready(&home);
    agent.signal(Signal::SIGUSR2);
    agent.wait_until("the drain", |_| {
        http(home.readiness_port, "/ready").is_some_and(|(code, _)| code == 503)
    });
    agent.wait_until("the log", |said| said.contains("SIGUSR2"));
    assert!(agent.is_running() && is_alive(agent.envoys()[0]));
    agent.signal(Signal::SIGTERM);
    agent.ends_with(0, &["Envoy stopped"]);
}

#[test]
fn no_envoy_outlives_an_agent_that_is_killed() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let mut agent = home.run(&control_plane, &[]);
    agent.wait_for_ready(&home);
    let envoy = agent.envoys()[0];
    assert!(is_alive(envoy));
    agent.signal(Signal::SIGKILL);
    agent.wait_for_end();
    agent.wait_until("the end of Envoy", |_| !is_alive(envoy));
}

#[test]
fn an_agent_waits_for_its_control_plane_and_says_so_once() {
    let mut control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--log-level", "debug", "--envoy-log-level", "info"]);
    agent.wait_until("several attempts", |said| said.matches("still no configuration").count() > 2);
    let said = agent.said();
    assert_eq!(said.matches("retrying").count(), 1, "{said}");
    assert!(said.contains("cannot be reached"), "{said}");
    assert_eq!(http(home.readiness_port, "/ready").unwrap().0, 503);
    // Also while the control plane is there and does not know the proxy yet.
    control_plane.refuse(404, "");
    control_plane.refuse(503, "starting");
    control_plane.serve();
    agent.wait_for_ready(&home);
    assert_eq!(control_plane.requests().len(), 3);
}

#[test]
fn an_agent_asked_to_end_while_waiting_ends_well() {
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let agent = home.run(&control_plane, &[]);
    agent.wait_until("an attempt", |said| said.contains("retrying"));
    agent.signal(Signal::SIGTERM);
    agent.ends_with(0, &["before a configuration arrived"]);
}

#[test]
fn wait_ends_when_the_proxy_is_ready_and_fails_when_it_never_is() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let url = format!("http://127.0.0.1:{}/ready", home.readiness_port);
    let wait = |timeout: &str| {
        let arguments = ["wait", "--url", &url, "--timeout", timeout, "--check-frequency", "50ms"];
        home.command(&arguments).output().unwrap()
    };
    let late = wait("100ms");
    assert_eq!(late.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&late.stderr).contains("is not ready after 100ms"), "{late:?}");
    let _agent = home.run(&control_plane, &[]);
    assert_eq!(wait("90s").status.code(), Some(0));
}
