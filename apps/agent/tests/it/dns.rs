//! Names of the mesh, from the socket where the agent reads them to the application that asks.

use std::{
    fmt::Write,
    net::{Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use hickory_proto::{
    op::{Message, Query, ResponseCode},
    rr::{RData, RecordType},
};
use serde_json::json;
use testkit::netns::{self, Namespace};
use tokio::runtime::{Builder, Runtime};

use crate::{
    agent::{Agent, Home, free_port, http},
    control_plane::SimulatedControlPlane,
};

const DATAPLANE: &str = "type: Dataplane\nmesh: default\nname: web-1\nnetworking:\n  address: 127.0.0.1\n  \
                         inbound:\n  - port: 8080\n    tags: {kuma.io/service: web}\n  transparentProxying: {}\n";

/// Stands for Envoy at the socket of the agent's documents.
#[derive(Clone, Default)]
struct Documents(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    etag: String,
    names: String,
    /// Number of requests of an agent that had the document already.
    known: usize,
}

impl Documents {
    fn set(&self, etag: &str, names: String) {
        let mut state = self.0.lock().unwrap();
        (state.etag, state.names, state.known) = (etag.to_owned(), names, 0);
    }

    fn known(&self) -> usize {
        self.0.lock().unwrap().known
    }

    fn serve(&self, socket: &Path) -> Runtime {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let documents = self.clone();
        let answer = move |headers: HeaderMap| async move { documents.answer(&headers) };
        let router = Router::new().route("/dns", get(answer));
        let socket = socket.to_owned();
        runtime.spawn(async move {
            let listener = tokio::net::UnixListener::bind(socket).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        runtime
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        let mut state = self.0.lock().unwrap();
        if headers.get("if-none-match").is_some_and(|known| known.as_bytes() == state.etag.as_bytes()) {
            state.known += 1;
            return StatusCode::NOT_MODIFIED.into_response();
        }
        ([("etag", state.etag.clone())], state.names.clone()).into_response()
    }
}

/// Fifty thousand names, of which the last leads to an address of its own.
fn names(last: &str) -> String {
    let mut names = String::from(r#"{"records":["#);
    for i in 0..49_999 {
        write!(names, r#"{{"name":"service-{i}.team.mesh","ips":["240.1.{}.{}"]}},"#, i / 250, i % 250)
            .unwrap();
    }
    write!(names, r#"{{"name":"backend.mesh","ips":["{last}"]}}],"ttl":30}}"#).unwrap();
    names
}

/// Addresses of a name, or the code of a refusal; `None` without an answer.
fn look(port: u16, name: &str) -> Option<Result<Vec<Ipv4Addr>, ResponseCode>> {
    let mut query = Message::query();
    query.add_query(Query::query(name.parse().unwrap(), RecordType::A));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.send_to(&query.to_vec().unwrap(), ("127.0.0.1", port)).ok()?;
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).ok()?;
    let answer = Message::from_vec(&buffer[..length]).unwrap();
    let address = |data: &RData| match data {
        RData::A(address) => address.0,
        other => panic!("{other}"),
    };
    Some(match answer.metadata.response_code {
        ResponseCode::NoError => Ok(answer.answers.iter().map(|record| address(&record.data)).collect()),
        code => Err(code),
    })
}

#[test]
fn a_machine_without_ipv4_answers_names_at_the_loopback_address_of_ipv6() {
    if !netns::available().unwrap() {
        return;
    }
    let machine = Namespace::new().unwrap();
    machine.ip("addr del 127.0.0.1/8 dev lo").unwrap();
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let port = free_port();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let resolvers = home.file("resolv.conf", "");
    let options = ["--dataplane-file", &dataplane, "--dns-resolv-conf", &resolvers];
    let mut command = home.run_command(&control_plane, &options);
    command.args(["--dns-proxy-port", &port.to_string()]);
    let agent = machine.enter(|| Agent::start(&mut command)).unwrap();
    let connects = || machine.enter(|| TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_ok()).unwrap();
    agent.wait_until("DNS at ::1", |_| connects());
}

#[test]
fn an_application_resolves_what_the_control_plane_says_now() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    // There is no resolver beside the mesh.
    let resolvers = home.file("resolv.conf", "");
    let port = free_port();
    let options = ["--dataplane-file", &dataplane, "--dns-resolv-conf", &resolvers];
    let mut command = home.run_command(&control_plane, &options);
    let agent = Agent::start(command.args(["--dns-proxy-port", &port.to_string()]));
    agent.wait_for_ready(&home);
    let request = &control_plane.requests()[0];
    assert_eq!(request["dnsPort"], port);
    assert!(request["features"].as_array().unwrap().contains(&json!("feature-embedded-dns")), "{request}");
    assert!(request.get("dataplaneConfig").is_none());
    assert_eq!(look(port, "backend.mesh."), Some(Err(ResponseCode::ServFail)));

    let documents = Documents::default();
    documents.set("1", names("240.0.0.1"));
    let _envoy = documents.serve(&home.path("work/kuma-mesh-metric-config.sock"));
    let leads = |name: &str, address: [u8; 4]| look(port, name) == Some(Ok(vec![address.into()]));
    agent.wait_until("a name", |_| leads("backend.mesh.", [240, 0, 0, 1]));
    assert!(leads("Service-49998.Team.Mesh.", [240, 1, 199, 248]));
    agent.wait_until("a question for news", |_| documents.known() > 0);
    documents.set("2", names("240.0.0.2"));
    agent.wait_until("the new address", |_| leads("backend.mesh.", [240, 0, 0, 2]));
    documents.set("3", "<html>".to_owned());
    agent.wait_until("a complaint", |said| said.contains("cannot read the names of the mesh"));
    assert!(leads("backend.mesh.", [240, 0, 0, 2]));
    documents.set("4", r#"{"records":[],"ttl":30}"#.to_owned());
    agent.wait_until("the end of a name", |_| {
        look(port, "backend.mesh.") == Some(Err(ResponseCode::ServFail))
    });

    let measured = || http(home.readiness_port, "/metrics").unwrap().1;
    agent.wait_until("a page without names", |_| measured().contains("\nkuma_dp_dns_entries_total 0\n"));
    let page = measured();
    for line in [
        "# TYPE kuma_dp_dns_request_duration_seconds histogram",
        r#"kuma_dp_dns_queries_total{qtype="A",source="local"} "#,
        r#"kuma_dp_dns_response_codes_total{rcode="servfail"} "#,
    ] {
        assert!(page.lines().any(|one| one.starts_with(line)), "no {line} in\n{page}");
    }
}

#[test]
fn the_control_plane_hears_how_the_machine_redirects_traffic() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let config = home.file("tp.yaml", "redirect: {dns: {enabled: true}, outbound: {port: 25001}}");
    let port = free_port();
    let mut command = home.run_command(&control_plane, &["--transparent-proxy-config", &config]);
    command.args([
        "--dns-proxy-port",
        &port.to_string(),
        "--dataplane-file",
        &home.file("dp.yaml", DATAPLANE),
    ]);
    command.env("KUMA_TRANSPARENT_PROXY_IP_FAMILY_MODE", "ipv4");
    let agent = Agent::start(&mut command);
    agent.wait_for_ready(&home);
    let request = &control_plane.requests()[0];
    assert_eq!(
        request["dataplaneConfig"],
        json!({"ipFamilyMode": "ipv4", "redirect": {
            "inbound": {"enabled": true, "port": 15006},
            "outbound": {"enabled": true, "port": 25001},
            "dns": {"enabled": true, "port": port},
        }})
    );
    let features = request["features"].as_array().unwrap();
    assert!(features.contains(&json!("feature-transparent-proxy-in-dataplane-metadata")), "{request}");
    assert!(!agent.said().contains("are ignored"), "{}", agent.said());
}

/// Returns the features that an agent announces in a namespace.
fn announced(machine: &Namespace, more: &[&str]) -> String {
    let home = Home::new();
    let port = free_port();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let resolvers = home.file("resolv.conf", "");
    let options = ["--dataplane-file", &dataplane, "--dns-resolv-conf", &resolvers];
    machine
        .enter(|| {
            let control_plane = SimulatedControlPlane::start();
            let mut command = home.run_command(&control_plane, &options);
            command.args(["--dns-proxy-port", &port.to_string()]).args(more);
            let agent = Agent::start(&mut command);
            agent.wait_until("a request", |_| !control_plane.requests().is_empty());
            control_plane.requests()[0]["features"].to_string()
        })
        .unwrap()
}

#[test]
fn agents_with_a_route_announce_ipv6_virtual_addresses() {
    if !netns::available().unwrap() {
        return;
    }
    let mut network = netns::Network::new().unwrap();
    let machine = network.workload().unwrap().namespace;
    let feature = "feature-ipv6-virtual-addresses";
    let said = announced(&machine, &[]);
    assert!(said.contains(feature), "{said}");
    for flag in ["--ipv6-enabled=false", "--dns-enabled=false"] {
        let said = announced(&machine, &[flag]);
        assert!(!said.contains(feature), "{flag}: {said}");
    }
    machine.ip("-6 route del default").unwrap();
    let said = announced(&machine, &[]);
    assert!(!said.contains(feature), "its own network alone: {said}");
    let said = announced(&Namespace::new().unwrap(), &[]);
    assert!(!said.contains(feature), "the loopback interface alone: {said}");
}

#[test]
fn an_agent_that_is_told_not_to_answers_no_names() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let dataplane = home.file("dp.yaml", DATAPLANE);
    let options = ["--dataplane-file", &dataplane, "--dns-enabled=false"];
    let agent = Agent::start(&mut home.run_command(&control_plane, &options));
    agent.wait_for_ready(&home);
    let request = &control_plane.requests()[0];
    assert!(request.get("dnsPort").is_none(), "{request}");
    assert!(!request["features"].to_string().contains("dns"), "{request}");
    let (_, page) = http(home.readiness_port, "/metrics").unwrap();
    assert!(!page.contains("kuma_dp_dns"), "{page}");
}
