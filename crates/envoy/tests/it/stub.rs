//! Calls to destinations that were trimmed, answered by a real Envoy.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use envoy::{
    bootstrap::ClusterNames,
    stats::{StatValue, summary},
};
use plan::{NamingScheme, PolicyRefusal, ProxyPlan, ProxyTraits, Stub, meanings};

use crate::{
    enforcement::free_port,
    live::Live,
    passthrough::{World, saying},
    real_envoy,
    redirected::{add_hosts, documents},
    support::{PLAIN, SECURED, plan, traits, unified},
};

const WEB: &str = "
type: Dataplane
mesh: default
name: web
networking: { address: 127.56.0.9, inbound: [{ port: 8080, tags: { kuma.io/service: web } }] }
";
const POLICY: &str = "kri_mtp_default___strangers_";
const MESH: &str = "kri_m____default_";
const PATIENCE: Duration = Duration::from_secs(20);

fn with_stub(traits: &ProxyTraits, refusals: &[(&str, bool, &[SocketAddr])]) -> ProxyPlan {
    let mut plan = plan(&[PLAIN, WEB], traits);
    let refusal = |&(decided_by, denied, addresses): &(&str, bool, &[SocketAddr])| PolicyRefusal {
        decided_by: decided_by.parse().unwrap(),
        denied,
        addresses: addresses.iter().map(|address| (address.ip(), address.port())).collect(),
    };
    plan.outgoing.stub = Some(Stub {
        names: NamingScheme::chosen(traits.unified_naming).stub(),
        bind: true,
        ipv6: true,
        client: "web".to_owned(),
        refusals: refusals.iter().map(refusal).collect(),
    });
    plan
}

/// Returns the answer, and true if the connection was reset.
fn say(to: SocketAddr, words: &str) -> (String, bool) {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    let ended = socket.write_all(words.as_bytes()).and_then(|()| socket.read_to_end(&mut answer).map(drop));
    let reset = ended.map_err(|error| error.kind()) == Err(ErrorKind::ConnectionReset);
    (String::from_utf8_lossy(&answer).into_owned(), reset)
}

fn ask(to: SocketAddr, host: &str) -> String {
    // Without "connection: close": the answer ends the connection itself.
    say(to, &format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).0
}

#[test]
fn requests_are_refused_by_name_and_other_traffic_is_reset_and_counted() {
    let at = |ip: &str| SocketAddr::new(ip.parse::<IpAddr>().unwrap(), free_port());
    let denied = at("127.56.0.1");
    let also = at("127.56.0.2");
    let open = at("127.56.0.3");
    let v6 = at("::1");
    for (traits, names) in [(traits("web"), ClusterNames::LEGACY), (unified("web"), ClusterNames::UNIFIED)] {
        let plan = with_stub(&traits, &[(MESH, false, &[open, v6]), (POLICY, true, &[denied, also])]);
        let live = Live::start(&plan, names);
        for (to, host, by) in [
            (denied, "backend.mesh", POLICY),
            (also, "127.56.0.1", POLICY),
            (open, "backend.mesh", MESH),
            (v6, "backend.mesh", MESH),
        ] {
            let answer = ask(to, host);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
            assert!(answer.contains(&format!("x-kuma-trimmed-by: {by}\r\n")), "{answer}");
            assert!(answer.contains("web may not call this destination"), "{answer}");
            assert!(answer.contains(&format!("Called: {host} at {to}")), "{answer}");
            assert_eq!(answer.contains(&format!("{POLICY} denies it")), by == POLICY, "{answer}");
        }
        assert_eq!(say(denied, "hello\n"), (String::new(), true));
        assert_eq!(say(v6, "\u{16}\u{3}\u{1}"), (String::new(), true), "what looks like TLS");
        let (said, _) = say(open, "");
        assert_eq!(said, "", "a client that waits for the server does not wait for ever");

        let text = live.get("/stats");
        let dataplane = "kri_dp_default_east__web_".parse().unwrap();
        let counted = summary(&text, &meanings(&plan, &dataplane), traits.unified_naming);
        let (name, class) = if traits.unified_naming {
            ("system_trimmed_outbound", "system")
        } else {
            ("outbound_trimmed", "legacy")
        };
        let object = &counted.resources[name];
        assert_eq!(object.class, class);
        assert_eq!(object.stats["http"]["downstream_rq_4xx"], StatValue::Number(4), "{text}");
        assert_eq!(object.stats["listener"]["no_filter_chain_match"], StatValue::Number(3), "{text}");
    }
}

#[test]
fn a_real_envoy_takes_a_stub_of_a_thousand_addresses() {
    let at = |i: u16| SocketAddr::from(([241, 0, i.to_be_bytes()[0], i.to_be_bytes()[1]], 80));
    let all: Vec<SocketAddr> = (0..1000).map(at).collect();
    let mut plan = with_stub(&unified("web"), &[(MESH, false, &all)]);
    plan.outgoing.stub.iter_mut().for_each(|stub| stub.bind = false);
    real_envoy::check(&plan);
}

#[test]
fn redirected_calls_to_trimmed_destinations_are_answered_and_others_pass() {
    let port = saying(("127.54.0.1", 0), "v1").port();
    saying(("127.54.0.2", port), "v2");
    let trimmed = "labels: { reachability.kuma.io/mode: enforce, reachability.kuma.io/stub: 'true' }\n";
    let mesh =
        format!("{}\n{trimmed}networking: {{ outbound: {{ passthrough: false }} }}\n", SECURED.trim_end());
    let permission = "type: MeshTrafficPermission\nmesh: default\nname: strangers\nspec: { from: [{ targetRef: { kind: Mesh }, \
                      default: { action: Deny } }] }";
    let documents = documents(port);
    let at = |address: &str| address.parse::<SocketAddr>().unwrap();
    for traits in [traits("web"), unified("web")] {
        let world = World::changed(&traits, "", &[&mesh, permission, &documents], add_hosts);
        for to in ["241.0.0.1:80", "240.0.0.1:80", "240.0.0.2:8080"] {
            let answer = world.say(at(to), b"GET / HTTP/1.1\r\nhost: any\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 403 "), "{to}: {answer}");
            assert!(answer.contains(&format!("x-kuma-trimmed-by: {POLICY}\r\n")), "{to}: {answer}");
            assert_eq!(world.say(at(to), b"hello\n"), "", "{to}");
        }
        assert_eq!(world.say(at("240.0.0.2:80"), b"hello\n"), "", "what is no destination ends as it did");
    }
}
