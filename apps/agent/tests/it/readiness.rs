//! Readiness endpoints of an agent.

use std::{
    net::{Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use testkit::netns::{self, Namespace};

use crate::{
    agent::{Agent, DATAPLANE, Home, http_at},
    control_plane::SimulatedControlPlane,
};

#[test]
fn readiness_is_at_the_configured_address_which_the_server_learns() {
    let control_plane = SimulatedControlPlane::start();
    let check = |address: &str, asked: &str, told: serde_json::Value| {
        let home = Home::new();
        let agent = home.run(&control_plane, &["--readiness-address", address]);
        let asked = SocketAddr::new(asked.parse().unwrap(), home.readiness_port);
        agent.wait_until("readiness", |_| http_at(asked, "/ready").is_some_and(|(code, _)| code == 200));
        let request = control_plane.requests().pop().unwrap();
        assert_eq!(request["readinessAddress"], told, "{address}");
    };
    check("::1", "::1", "::1".into());
    check("::", "::1", "::1".into());
    check("127.0.0.9", "127.0.0.9", "127.0.0.9".into());
    check("0.0.0.0", "127.0.0.1", serde_json::Value::Null);
}

#[test]
fn an_address_of_another_machine_is_refused_with_the_name_of_the_setting() {
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let agent = home.run(&control_plane, &["--readiness-address", "2001:db8::1"]);
    agent.ends_with(1, &["cannot listen on [2001:db8::1]", "KUMA_READINESS_ADDRESS"]);
}

#[test]
fn a_machine_without_ipv4_answers_at_the_loopback_address_of_ipv6() {
    if !netns::available().unwrap() {
        return;
    }
    let machine = Namespace::new().unwrap();
    machine.ip("addr del 127.0.0.1/8 dev lo").unwrap();
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let mut command = home.run_command(&control_plane, &["--dataplane-file", &dataplane]);
    let agent = machine.enter(|| Agent::start(&mut command)).unwrap();
    let asked = SocketAddr::from((Ipv6Addr::LOCALHOST, home.readiness_port));
    let deadline = Instant::now() + Duration::from_secs(60);
    let heard = loop {
        match machine.enter(|| http_at(asked, "/ready")).unwrap() {
            Some(heard) => break heard,
            None => assert!(Instant::now() < deadline, "{}", agent.said()),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(heard, (503, "NOT READY: Envoy has no configuration yet\n".to_owned()));
}
