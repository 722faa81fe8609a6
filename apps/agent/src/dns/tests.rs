//! The server as an application sees it: real packets, real resolvers on loopback.

mod client;
mod resolver;

use std::{net::Ipv4Addr, time::Duration};

use bytes::Bytes;
use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{RData, RecordType},
};
use runtime::{Shutdown, metrics::Metrics};
use serde_json::json;
use tokio::sync::mpsc;

use self::{
    client::{ask, ask_tcp, query, read, until},
    resolver::{Behaviour, Resolver},
};
use super::*;

/// A server with names and resolvers of its own.
struct Machine {
    port: u16,
    server: DnsServer,
    metrics: Metrics,
    resolv_conf: tempfile::NamedTempFile,
    shutdown: Shutdown,
}

impl Machine {
    fn new(resolvers: &[&Resolver]) -> Machine {
        Machine::with_networks(resolvers, Vec::new())
    }

    fn with_networks(resolvers: &[&Resolver], networks: Vec<Range>) -> Machine {
        let resolv_conf = tempfile::NamedTempFile::new().unwrap();
        let metrics = Metrics::default();
        let shutdown = Shutdown::default();
        let port = testkit::ports::own_port().unwrap();
        let ports: Vec<u16> = resolvers.iter().map(|resolver| resolver.port).collect();
        write(&resolv_conf, &ports);
        let plan = DnsSettings {
            port,
            ipv6: true,
            resolv_conf: resolv_conf.path().to_owned(),
            log_queries: true,
            networks,
        };
        let server = DnsServer::start(&plan, &metrics, &shutdown).unwrap();
        let machine = Machine { port, server, metrics, resolv_conf, shutdown };
        machine.take(&json!({"ttl": 30, "records": [
            {"name": "backend.mesh", "ips": ["240.0.0.1", "::ffff:f000:1"]},
            {"name": "redis.mesh", "ips": ["240.0.0.2"]},
        ]}));
        machine
    }

    fn take(&self, document: &serde_json::Value) {
        self.server.names.take(document.to_string().as_bytes()).unwrap();
    }

    fn has(&self, line: &str) -> bool {
        self.metrics.encode().lines().any(|one| one == line)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

fn write(resolv_conf: &tempfile::NamedTempFile, ports: &[u16]) {
    let lines: String = ports.iter().map(|port| format!("nameserver 127.0.0.1:{port}\n")).collect();
    std::fs::write(resolv_conf.path(), format!("search svc.local\n{lines}options timeout:1\n")).unwrap();
}

fn addresses(message: &Message) -> Vec<String> {
    let address = |data: &RData| match data {
        RData::A(address) => address.to_string(),
        RData::AAAA(address) => address.to_string(),
        other => panic!("{other}"),
    };
    message.answers.iter().map(|record| address(&record.data)).collect()
}

#[test]
fn names_of_the_mesh_have_addresses_of_both_families_and_nothing_else() {
    let resolver = Resolver::start(Behaviour::NoSuchName);
    let machine = Machine::new(&[&resolver]);
    for (name, kind, expect) in [
        ("backend.mesh.", RecordType::A, &["240.0.0.1"][..]),
        ("BackEnd.MESH.", RecordType::A, &["240.0.0.1"]),
        ("backend.mesh.", RecordType::AAAA, &["::ffff:240.0.0.1"]),
        ("backend.mesh.", RecordType::ANY, &["240.0.0.1", "::ffff:240.0.0.1"]),
        ("backend.mesh.", RecordType::MX, &[]),
        ("backend.mesh.", RecordType::HTTPS, &[]),
        ("redis.mesh.", RecordType::AAAA, &[]),
    ] {
        let asked = query(name, kind);
        for answer in [ask(machine.port, &asked), ask_tcp(machine.port, &asked)] {
            assert_eq!(answer.metadata.id, asked.metadata.id);
            assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{name} {kind}");
            assert!(answer.metadata.authoritative && answer.metadata.recursion_available);
            assert_eq!(addresses(&answer), expect, "{name} {kind}");
            assert!(answer.answers.iter().all(|record| record.ttl == 30));
            // As it was asked for, with its capitals.
            assert_eq!(answer.queries[0].name().to_ascii(), name);
            assert!(answer.edns.is_none());
        }
    }
    assert_eq!(resolver.asked(), 0);
    assert!(machine.has(r#"kuma_dp_dns_queries_total{qtype="A",source="local"} 4"#));
    assert!(machine.has(r#"kuma_dp_dns_response_codes_total{rcode="noerror"} 14"#));
}

#[test]
fn queries_over_ipv6_are_answered_unless_the_agent_is_without_it() {
    let resolver = Resolver::start(Behaviour::Address(Ipv4Addr::new(192, 0, 2, 7)));
    let machine = Machine::new(&[&resolver]);
    for (name, kind, expect) in [
        ("backend.mesh.", RecordType::A, "240.0.0.1"),
        ("backend.mesh.", RecordType::AAAA, "::ffff:240.0.0.1"),
        ("shop.example.", RecordType::A, "192.0.2.7"),
    ] {
        for answer in client::ask_v6(machine.port, &query(name, kind)) {
            assert_eq!(addresses(&answer), [expect], "{name} {kind}");
        }
    }
    assert!(machine.has(r#"kuma_dp_dns_queries_total{qtype="AAAA",source="local"} 2"#));
    let port = testkit::ports::own_port().unwrap();
    let plan = DnsSettings {
        port,
        ipv6: false,
        resolv_conf: machine.resolv_conf.path().to_owned(),
        log_queries: false,
        networks: Vec::new(),
    };
    DnsServer::start(&plan, &Metrics::default(), &machine.shutdown).unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(std::net::TcpStream::connect(("::1", port)).is_err());
}

#[test]
fn an_ipv6_virtual_address_is_answered_as_the_control_plane_says_it() {
    let resolver = Resolver::start(Behaviour::NoSuchName);
    let machine = Machine::new(&[&resolver]);
    machine.take(&json!({"ttl": 30, "records": [
        {"name": "backend.mesh", "ips": ["240.0.0.1", "fd00:240::f000:1"]},
    ]}));
    for (kind, expect) in [(RecordType::A, "240.0.0.1"), (RecordType::AAAA, "fd00:240::f000:1")] {
        let asked = query("backend.mesh.", kind);
        assert_eq!(addresses(&ask(machine.port, &asked)), [expect]);
        for answer in client::ask_v6(machine.port, &asked) {
            assert_eq!(addresses(&answer), [expect]);
        }
    }
}

#[test]
fn other_names_are_asked_at_the_resolver_which_has_the_last_word() {
    let resolver = Resolver::start(Behaviour::NoSuchName);
    let machine = Machine::new(&[&resolver]);
    for (asked, name) in
        ["gone.example.", "backend.mesh.svc.local.", "ackend.mesh.", "mesh."].iter().enumerate()
    {
        let answer = ask(machine.port, &query(name, RecordType::A));
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
        // Without this an application could not keep the negative answer.
        assert_eq!(answer.authorities.len(), 1, "{name}");
        assert_eq!(resolver.asked(), asked + 1);
    }
    assert!(machine.has(r#"kuma_dp_dns_response_codes_total{rcode="nxdomain"} 4"#));
    resolver.behave(Behaviour::Address(Ipv4Addr::new(192, 0, 2, 7)));
    for answer in [ask, ask_tcp].map(|ask| ask(machine.port, &query("shop.example.", RecordType::A))) {
        assert_eq!(addresses(&answer), ["192.0.2.7"]);
    }
    assert!(machine.has(r#"kuma_dp_dns_queries_total{qtype="A",source="upstream"} 6"#));
}

#[test]
fn a_name_that_comes_is_answered_and_one_that_goes_is_the_resolvers_again() {
    let resolver = Resolver::start(Behaviour::Address(Ipv4Addr::new(192, 0, 2, 7)));
    let machine = Machine::new(&[&resolver]);
    let looked = || addresses(&ask(machine.port, &query("new.mesh.", RecordType::A)));
    assert_eq!(looked(), ["192.0.2.7"]);
    machine.take(&json!({"records": [{"name": "new.mesh", "ips": ["240.0.0.9", "240.0.0.8"]}], "ttl": 5}));
    assert_eq!(looked(), ["240.0.0.9", "240.0.0.8"]);
    machine.take(&json!({"records": [], "ttl": 30}));
    assert_eq!(looked(), ["192.0.2.7"]);
}

#[test]
fn a_resolver_that_is_away_silent_or_refuses_is_followed_by_the_next() {
    let [refusing, silent, good] =
        [Behaviour::Refuse, Behaviour::Silent, Behaviour::Address(Ipv4Addr::new(192, 0, 2, 9))]
            .map(Resolver::start);
    let gone = Resolver::start(Behaviour::Silent).end();
    let machine = Machine::new(&[]);
    write(&machine.resolv_conf, &[gone, refusing.port, silent.port, good.port]);
    let looked = |name| addresses(&ask(machine.port, &query(name, RecordType::A)));
    assert_eq!(looked("a.example."), ["192.0.2.9"]);
    assert_eq!(silent.asked(), 1);
    // Once is enough for a while.
    assert_eq!(looked("b.example."), ["192.0.2.9"]);
    assert_eq!((refusing.asked(), silent.asked(), good.asked()), (2, 1, 2));
    // A refusal is an answer when no other resolver has a better one.
    write(&machine.resolv_conf, &[refusing.port]);
    let refused = ask(machine.port, &query("c.example.", RecordType::A));
    assert_eq!(refused.metadata.response_code, ResponseCode::ServFail);
    assert!(machine.has("kuma_dp_dns_upstream_request_failure_count 0"));
    for ports in [&[gone][..], &[]] {
        write(&machine.resolv_conf, ports);
        let failed = ask(machine.port, &query("d.example.", RecordType::A));
        assert_eq!(failed.metadata.response_code, ResponseCode::ServFail);
        assert_eq!(failed.queries.len(), 1);
    }
    assert!(machine.has("kuma_dp_dns_upstream_request_failure_count 2"));
    // Names of the mesh need no resolver.
    assert_eq!(looked("redis.mesh."), ["240.0.0.2"]);
}

#[test]
fn what_does_not_fit_into_a_packet_is_asked_for_again_over_tcp() {
    let resolver = Resolver::start(Behaviour::Many(100));
    let machine = Machine::new(&[&resolver]);
    let plain = query("many.example.", RecordType::A);
    let short = ask(machine.port, &plain);
    assert!(short.metadata.truncation && short.answers.is_empty());
    assert_eq!(ask_tcp(machine.port, &plain).answers.len(), 100);
    let mut roomy = query("many.example.", RecordType::A);
    let mut edns = hickory_proto::op::Edns::new();
    edns.set_max_payload(4096);
    roomy.set_edns(edns);
    let whole = ask(machine.port, &roomy);
    assert!(!whole.metadata.truncation);
    assert_eq!(whole.answers.len(), 100);

    let ips: Vec<String> = (0..60).map(|i| format!("240.0.1.{i}")).collect();
    machine.take(&json!({"records": [{"name": "many.mesh", "ips": ips}]}));
    let short = ask(machine.port, &query("many.mesh.", RecordType::A));
    assert!(short.metadata.truncation && short.answers.is_empty());
    assert_eq!(ask_tcp(machine.port, &query("many.mesh.", RecordType::A)).answers.len(), 60);
    roomy.queries[0].set_name("many.mesh.".parse().unwrap());
    let whole = ask(machine.port, &roomy);
    assert_eq!((whole.answers.len(), whole.edns.unwrap().max_payload()), (60, 1232));
}

#[test]
fn an_answer_to_another_question_is_not_taken_for_one() {
    let resolver = Resolver::start(Behaviour::Forged(Ipv4Addr::new(192, 0, 2, 1)));
    let machine = Machine::new(&[&resolver]);
    assert_eq!(addresses(&ask(machine.port, &query("bank.example.", RecordType::A))), ["192.0.2.1"]);
}

#[test]
fn malformed_packets_are_refused_or_dropped_and_never_stop_the_server() {
    let resolver = Resolver::start(Behaviour::NoSuchName);
    let machine = Machine::new(&[&resolver]);
    let good = query("backend.mesh.", RecordType::A).to_vec().unwrap();
    let code = |packet: &[u8]| read(&client::send(machine.port, packet).unwrap()).metadata.response_code;
    let mut operation = good.clone();
    operation[2] = 5 << 3;
    assert_eq!(code(&operation), ResponseCode::NotImp);
    let mut two = good.clone();
    two[5] = 2;
    assert_eq!(code(&two), ResponseCode::FormErr);
    two[5] = 0;
    assert_eq!(code(&two), ResponseCode::FormErr);
    assert_eq!(code(&good[..good.len() - 1]), ResponseCode::FormErr);
    let mut edns = hickory_proto::op::Edns::new();
    edns.set_version(1);
    let mut newer = query("backend.mesh.", RecordType::A);
    newer.set_edns(edns);
    let refused = ask(machine.port, &newer);
    assert_eq!(refused.edns.as_ref().unwrap().version(), 0);
    assert_eq!(u16::from(refused.metadata.response_code), 16);

    // Whatever comes, the server lives.
    let mut random = client::Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..3000 {
        let mut packet = good.clone();
        if round % 2 == 0 {
            packet = (0..random.below(600)).map(|_| random.byte()).collect();
        }
        for _ in 0..random.below(6) {
            let at = random.below(packet.len().max(1));
            if let Some(byte) = packet.get_mut(at) {
                *byte = random.byte();
            }
        }
        packet.truncate(random.below(packet.len() + 1).max(packet.len() / 2));
        client::throw(machine.port, &packet, round % 50 == 0);
    }
    assert_eq!(
        addresses(&client::ask_again(machine.port, &query("backend.mesh.", RecordType::A))),
        ["240.0.0.1"]
    );
    assert_eq!(addresses(&ask_tcp(machine.port, &query("backend.mesh.", RecordType::A))), ["240.0.0.1"]);
}

#[test]
fn queries_waiting_for_resolvers_are_bounded_and_delay_no_mesh_name() {
    let resolver = Resolver::start(Behaviour::Silent);
    let machine = Machine::new(&[&resolver]);
    let flood = client::Flood::start(machine.port);
    let refused = r#"kuma_dp_dns_refused_queries_total{reason="too_many"} "#;
    until("a refusal", || machine.metrics.encode().contains(refused));
    let answer = client::ask_again(machine.port, &query("backend.mesh.", RecordType::A));
    assert_eq!(addresses(&answer), ["240.0.0.1"]);
    flood.end();
}

#[tokio::test]
async fn documents_that_cannot_be_read_leave_the_last_names() {
    let machine = Machine::new(&[]);
    let (news, documents) = mpsc::channel(1);
    let followed = tokio::spawn(machine.server.clone().follow(documents));
    for document in
        [Some(r#"{"records":[{"name":"only.mesh","ips":["240.0.0.3"]}],"ttl":30}"#), Some("<html>"), None]
    {
        news.send(document.map(Bytes::from)).await.unwrap();
    }
    drop(news);
    tokio::time::timeout(Duration::from_secs(60), followed).await.unwrap().unwrap();
    assert!(machine.has("kuma_dp_dns_entries_total 1"));
    let port = machine.port;
    let looked = move || addresses(&ask(port, &query("only.mesh.", RecordType::A)));
    assert_eq!(tokio::task::spawn_blocking(looked).await.unwrap(), ["240.0.0.3"]);
}

#[test]
fn a_port_that_is_taken_is_said() {
    let machine = Machine::new(&[]);
    for networks in [Vec::new(), networks("docker0:127.77.0.0/16")] {
        let plan = DnsSettings {
            port: machine.port,
            ipv6: false,
            resolv_conf: machine.resolv_conf.path().to_owned(),
            log_queries: false,
            networks,
        };
        let failure =
            DnsServer::start(&plan, &Metrics::default(), &machine.shutdown).unwrap_err().to_string();
        assert!(
            failure.contains(&plan.port.to_string()) && failure.contains("--dns-proxy-port"),
            "{failure}"
        );
    }
}

fn networks(text: &str) -> Vec<Range> {
    transparent_proxy::config::Vnet { networks: vec![text.to_owned()] }.ranges().unwrap()
}

#[test]
fn a_virtual_network_gets_answers_and_other_machines_do_not() {
    let machine = Machine::with_networks(&[], networks("docker0:127.77.0.0/16"));
    let question = query("backend.mesh.", RecordType::A).to_vec().unwrap();
    let client = |ip: &str| {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    };
    let ask = |from: &UdpSocket, to: &str| {
        from.send_to(&question, (to, machine.port)).unwrap();
        let mut buffer = [0; 512];
        let (length, server) = from.recv_from(&mut buffer).unwrap();
        assert_eq!(server.port(), machine.port);
        addresses(&read(&buffer[..length]))
    };
    assert_eq!(ask(&client("127.0.0.1"), "127.0.0.1"), ["240.0.0.1"], "loopback is answered as ever");
    assert_eq!(ask(&client("127.77.0.1"), "127.77.0.2"), ["240.0.0.1"]);
    client("127.78.0.1").send_to(&question, ("127.77.0.2", machine.port)).unwrap();
    until("a query from outside", || machine.has("kuma_dp_dns_refused_queries_total{reason=\"outside\"} 1"));
    // It has no answer: there are the two from before.
    assert!(machine.has("kuma_dp_dns_response_codes_total{rcode=\"noerror\"} 2"));
}
