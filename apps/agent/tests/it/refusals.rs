//! Ends of an agent: the reason, a hint, and an exit code other than 0.

use crate::{
    agent::{Agent, DATAPLANE, Home, serve},
    control_plane::{Certificate, SimulatedControlPlane},
};

#[test]
fn a_control_plane_that_the_given_ca_does_not_vouch_for_is_not_talked_to() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let mut command = home.run_command(&control_plane, &["--dataplane-file", &dataplane]);
    home.file("ca.pem", &Certificate::new().pem);
    Agent::start(&mut command).ends_with(1, &["is not trusted", "hint: --ca-cert-file"]);
    assert!(control_plane.requests().is_empty());
}

#[test]
fn a_ca_certificate_that_serves_as_server_certificate_is_called_so() {
    let control_plane = SimulatedControlPlane::with_certificate(Certificate::calling_itself_a_ca());
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let mut command = home.run_command(&control_plane, &["--dataplane-file", &dataplane]);
    home.file("ca.pem", &Certificate::new().pem);
    Agent::start(&mut command).ends_with(1, &["is not trusted", "uses a CA certificate (CA:TRUE"]);
    assert!(control_plane.requests().is_empty());
}

#[test]
fn a_host_that_the_certificate_is_not_for_is_not_talked_to() {
    let control_plane = SimulatedControlPlane::with_certificate(Certificate::of_another_host());
    Home::new().run(&control_plane, &[]).ends_with(1, &["is not trusted", "control-plane.example"]);
    assert!(control_plane.requests().is_empty());
}

#[test]
fn what_the_control_plane_refuses_for_good_is_not_tried_again() {
    let check = |status: u16, text: &'static str, expect: &[&str]| {
        let control_plane = SimulatedControlPlane::start();
        let home = Home::new();
        control_plane.refuse(status, text);
        home.run(&control_plane, &[]).ends_with(1, expect);
        assert_eq!(control_plane.requests().len(), 1);
    };
    check(422, "dataplane token is required", &["token is required", "hint: make a token"]);
    check(422, "mesh: mesh not found", &["mesh: mesh not found"]);
    check(
        400,
        "A data plane proxy is trying to connect to the control plane using x",
        &["hint: --cp-address"],
    );
}

#[test]
fn a_server_that_is_not_for_proxies_is_named_with_the_port_that_is_meant() {
    let expect =
        ["is not a control plane's server for data plane proxies", "--cp-address https://localhost:5678"];
    let check = |status: u16, text: &'static str, answered: &str| {
        let control_plane = SimulatedControlPlane::start();
        let home = Home::new();
        control_plane.refuse(status, text);
        let agent = home.run(&control_plane, &[]);
        agent.ends_with(1, &[&expect[..], &[answered]].concat());
    };
    check(404, "404: Page Not Found", "it answered 404 Not Found: 404: Page Not Found");
    check(405, "405: Method Not Allowed", "it answered 405");
    check(200, "<html>hello</html>", "the answer is not JSON");

    // The API's first port speaks plain HTTP.
    let (port, _runtime, _shutdown) = serve(axum::Router::new());
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--cp-address", &format!("https://localhost:{port}")]);
    agent.ends_with(1, &[&expect[..], &["does not speak TLS"]].concat());
}

#[test]
fn an_agent_that_sent_a_definition_is_not_asked_for_one() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    control_plane.refuse(404, "");
    let agent = home.run(&control_plane, &[]);
    agent.wait_for_ready(&home);
    let said = agent.said();
    assert!(said.contains("although the definition of the proxy was sent"), "{said}");
    assert!(!said.contains("--dataplane-file"), "{said}");

    control_plane.refuse(404, "");
    let home = Home::new();
    let agent = Agent::start(&mut home.run_command(&control_plane, &["--name", "web-1"]));
    agent.wait_until("advice", |said| said.contains("create its Dataplane or pass --dataplane-file"));
}

#[test]
fn a_token_that_discovery_refuses_ends_the_agent_with_a_hint() {
    for level in ["info", "error"] {
        let control_plane = SimulatedControlPlane::refusing_tokens();
        let home = Home::new();
        let agent = home.run(&control_plane, &["--envoy-log-level", level]);
        agent.ends_with(1, &["does not accept this proxy's token: token expired", "hint: the token must"]);
    }
}

#[test]
fn a_proxy_of_a_zone_is_told_to_get_a_zone_token_and_where() {
    const INGRESS: &str = "type: ZoneIngress\nname: gate\nnetworking: {address: 127.0.0.1, port: 10001}\n";
    let expect =
        ["hint: ", "`kumactl generate zone-token --zone ZONE --scope ingress`, on the global control plane"];
    let refused_at = |control_plane: &SimulatedControlPlane| {
        let home = Home::new();
        let ingress = home.file("ingress.yaml", INGRESS);
        let flags = ["--proxy-type", "ingress", "--dataplane-file", &ingress];
        let agent = Agent::start(&mut home.run_command(control_plane, &flags));
        let said = agent.said.clone();
        agent.ends_with(1, &expect);
        let said = said.lock().unwrap();
        assert!(!said.contains("dataplane-token "), "{said}");
    };
    let without_token = SimulatedControlPlane::start();
    without_token.refuse(422, "Zone Token is required.");
    refused_at(&without_token);
    refused_at(&SimulatedControlPlane::refusing_tokens());
}

#[test]
fn an_agent_gives_up_when_the_control_plane_stays_away() {
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--cp-retry-max-duration", "500ms"]);
    agent.ends_with(1, &["gave up after 500ms: the control plane at"]);
}

#[test]
fn an_envoy_that_cannot_start_ends_the_agent_after_some_attempts() {
    let mut control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    control_plane.traffic_port = taken.local_addr().unwrap().port();
    control_plane.serve();
    home.run(&control_plane, &[])
        .ends_with(1, &["exited 5 times without ever being ready", "Address already in use"]);
}

#[test]
fn a_program_that_is_no_usable_envoy_is_refused() {
    let check = |script: &str, expect: &str| {
        let control_plane = SimulatedControlPlane::away();
        let home = Home::new();
        let program = home.file("envoy", script);
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        home.run(&control_plane, &["--binary-path", &program]).ends_with(1, &[expect, "ENVOY_BIN"]);
    };
    check("#!/bin/sh\necho 'envoy  version: abc/1.35.3/Clean/RELEASE/BoringSSL'\n", "is Envoy 1.35.3");
    check("#!/bin/sh\necho 'hello'\n", "is not an Envoy");
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--binary-path", "/nowhere/envoy"]);
    agent.ends_with(1, &["there is no Envoy at /nowhere/envoy"]);
}

#[test]
fn an_envoy_that_does_not_say_its_version_is_waited_for_aloud() {
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let script = "#!/bin/sh\nwhile [ ! -e \"$0.go\" ]; do sleep 0.05; done\necho 'no version'\n";
    let program = home.file("envoy", script);
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let agent = home.run(&control_plane, &["--binary-path", &program]);
    agent.wait_until("a reason", |said| {
        said.contains("waiting for `envoy --version`") && said.contains(&program)
    });
    home.file("envoy.go", "");
    agent.ends_with(1, &["is not an Envoy"]);
}

#[test]
fn a_readiness_port_that_is_taken_is_named() {
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", home.readiness_port)).unwrap();
    home.run(&control_plane, &[]).ends_with(1, &["KUMA_READINESS_PORT", "another process uses this port"]);
}
