//! Definitions, variables and settings, before the control plane is asked.

use crate::{
    agent::{Agent, DATAPLANE, Home},
    control_plane::SimulatedControlPlane,
};

#[test]
fn every_violation_of_the_definition_is_shown_and_no_request_is_sent() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let text = "type: Dataplane\nmesh: default\nname: web-1\nnetworking:\n  address: not an address\n  inbound:\n  \
                - port: 0\n    tags: {kuma.io/service: web}\n  - port: 70000\n    tags: {kuma.io/service: ''}\n";
    let file = home.file("bad.yaml", text);
    let agent = Agent::start(&mut home.run_command(&control_plane, &["--dataplane-file", &file]));
    let expect =
        ["is not valid", "networking.address:", "networking.inbound[0].port:", "networking.inbound[1].port:"];
    agent.ends_with(2, &expect);
    assert!(control_plane.requests().is_empty());
}

#[test]
fn variables_fill_the_definition_in() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let file = home.file("dp.yaml", &DATAPLANE.replace("web-1", "{{ name }}").replace("8080", "{{port}}"));
    let flags = ["-d", &file, "-v", "name=shop-7", "--dataplane-var", "port=9090"];
    let agent = Agent::start(&mut home.run_command(&control_plane, &flags));
    agent.wait_for_ready(&home);
    let request = &control_plane.requests()[0];
    assert_eq!(request["name"], "shop-7");
    assert!(request["dataplaneResource"].as_str().unwrap().contains(r#""port":9090"#), "{request}");

    let missing = Agent::start(&mut home.run_command(&control_plane, &["-d", &file, "-v", "name=shop-7"]));
    missing.ends_with(2, &["no value for {{ port }}"]);
}

#[test]
fn settings_come_from_the_environment_and_flags_win() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let mut command =
        home.command(&["run", "--name", "x", "--name", "from-flag", "--strict-inbound-ports=false"]);
    command.arg("--bind-outbounds");
    command
        .env("KUMA_CONTROL_PLANE_URL", control_plane.url())
        .env("KUMA_CONTROL_PLANE_CA_CERT", &control_plane.certificate.pem)
        .env("KUMA_DATAPLANE_NAME", "from-environment")
        .env("KUMA_DATAPLANE_MESH", "shop")
        .env("KUMA_DATAPLANE_RUNTIME_TOKEN", "")
        .env("KUMA_DATAPLANE_PROXY_TYPE", "")
        .env("KUMA_DATAPLANE_DRAIN_TIME", "")
        .env("KUMA_DATAPLANE_RUNTIME_WORK_DIR", home.path("work"))
        .env("KUMA_DATAPLANE_RUNTIME_TOKEN_PATH", home.file("token", "abc\n"))
        .env("KUMA_DATAPLANE_RUNTIME_UNIFIED_RESOURCE_NAMING_ENABLED", "true")
        .env("KUMA_DATAPLANE_RUNTIME_ENVOY_XDS_TRANSPORT_PROTOCOL_VARIANT", "GRPC")
        .env("KUMA_DATAPLANE_RUNTIME_REUSE_PORT_ENABLED", "f")
        .env("KUMA_DATAPLANE_RUNTIME_IPV6_ENABLED", "false")
        .env("KUMA_READINESS_PORT", home.readiness_port.to_string())
        .env("KUMA_DATAPLANE_RUNTIME_NO_SUCH_THING", "1")
        .env("KUMA_DNS_ENVOY_DNS_PORT", "15054")
        .env("HOST_IP", "10.9.8.7")
        .env("ENVOY_BIN", crate::agent::envoy());
    let agent = Agent::start(&mut command);
    agent.wait_for_ready(&home);
    let request = &control_plane.requests()[0];
    assert_eq!((&request["name"], &request["mesh"]), (&"from-flag".into(), &"shop".into()));
    assert_eq!((&request["dataplaneToken"], &request["ipv6Enabled"]), (&"abc".into(), &false.into()));
    assert!(request["dataplaneTokenPath"].as_str().unwrap().ends_with("/token"));
    let features = [
        "feature-bind-outbounds",
        "feature-stats-labels-via-kuma-dp",
        "feature-unified-proxy-resources-and-stats-naming",
        "feature-unified-resource-naming",
    ];
    assert_eq!(request["features"], serde_json::json!(features));
    assert_eq!(request["dynamicMetadata"], serde_json::json!({ "HOST_IP": "10.9.8.7" }));
    let said = agent.said();
    assert!(
        said.contains("KUMA_DATAPLANE_RUNTIME_NO_SUCH_THING") && said.contains("--dns-envoy-port"),
        "{said}"
    );
}

#[test]
fn a_contradiction_or_a_lack_is_an_error_of_usage() {
    let check = |more: &[&str], expect: &str| {
        let control_plane = SimulatedControlPlane::away();
        let home = Home::new();
        let file = home.file("dp.yaml", DATAPLANE);
        let more: Vec<&str> =
            more.iter().map(|flag| if *flag == "DP" { file.as_str() } else { flag }).collect();
        Agent::start(&mut home.run_command(&control_plane, &more)).ends_with(2, &[expect]);
    };
    check(&[], "which proxy is this?");
    check(&["-d", "DP", "--name", "other"], "--name is \"other\" but");
    check(&["-d", "DP", "--mesh", "other"], "--mesh is \"other\" but");
    check(&["-d", "DP", "--proxy-type", "egress"], "expected a ZoneEgress");
    check(&["-d", "/nowhere.yaml"], "cannot read the definition /nowhere.yaml");
    check(&["-d", "DP", "--dataplane-token-file", "/nowhere"], "kumactl generate dataplane-token");
    check(&["-d", "DP", "--drain-time", "soon"], "--drain-time");
    check(&["-d", "DP", "--cp-address", "http://cp.example:5681"], "write https://cp.example:5678");
}

#[test]
fn a_zone_proxy_takes_the_variable_for_unified_names() {
    const INGRESS: &str = "type: ZoneIngress\nname: gate\nnetworking: {address: 127.0.0.1, port: 10001}\n";
    const EGRESS: &str = "type: ZoneEgress\nname: exit\nnetworking: {address: 127.0.0.1, port: 10002}\n";
    for (kind, definition) in [("ingress", INGRESS), ("egress", EGRESS)] {
        let control_plane = SimulatedControlPlane::start();
        let home = Home::new();
        control_plane.refuse(422, "enough");
        let file = home.file("proxy.yaml", definition);
        let mut command =
            home.run_command(&control_plane, &["--proxy-type", kind, "--dataplane-file", &file]);
        command.env("KUMA_DATAPLANE_RUNTIME_UNIFIED_PROXY_RESOURCES_AND_STATS_NAMING_ENABLED", "true");
        Agent::start(&mut command).ends_with(1, &["enough"]);
        let features = control_plane.requests()[0]["features"].as_array().unwrap().clone();
        let unified = "feature-unified-proxy-resources-and-stats-naming";
        assert!(features.iter().any(|feature| feature == unified), "{kind}: {features:?}");
    }
}
