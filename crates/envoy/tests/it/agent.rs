//! Hostnames that an agent reads from its Envoy.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use envoy::{Documents, Encoder, bootstrap::ClusterNames};
use plan::{ProxyPlan, ProxyTraits};
use topology::{MeshSnapshot, VirtualHost, VirtualPort};
use xds::Type;

use crate::{
    live::Live,
    support::{PLAIN, mesh, traits, unified, web},
    view::shown,
};

const PATIENCE: Duration = Duration::from_secs(20);

const METRICS: &str = "
type: MeshMetric
mesh: default
name: metrics
spec: { default: { backends: [{ type: Prometheus, prometheus: { port: 5690 } }] } }
";

/// So many hostnames of the service `backend`, at which the first Dataplane listens.
fn named(count: u32, policies: &[&str], folder: &tempfile::TempDir, traits: &ProxyTraits) -> ProxyPlan {
    let backend = "type: Dataplane\nmesh: default\nname: backend\nnetworking: { address: 127.0.0.3, inbound: \
                   [{ port: 8080, tags: { kuma.io/service: backend } }], outbound: [{ port: 1, tags: { kuma.io/service: backend } }] }";
    let web = web("transparentProxying: { redirectPortInbound: 15806, redirectPortOutbound: 15801 }");
    let documents: Vec<&str> = [PLAIN, backend, &web].into_iter().chain(policies.iter().copied()).collect();
    let mut snapshot = MeshSnapshot::clone(&mesh(&documents));
    let tags = Arc::new(BTreeMap::from([("kuma.io/service".to_owned(), "backend".to_owned())]));
    for index in 0..count {
        let hostname: Arc<str> = format!("instance-{index:05}.backend.some-namespace.mesh").into();
        let port = VirtualPort { policy: Some("vo".into()), tags: tags.clone() };
        let vip = Some(Ipv4Addr::from(0xF000_0000 + index));
        let host = VirtualHost { hostname, vip, ports: BTreeMap::from([(80, port)]) };
        snapshot.virtual_hosts.insert(host);
    }
    let work_dir = folder.path().display().to_string();
    plan::for_proxy(&snapshot, &ProxyTraits { resolver: true, work_dir, ..traits.clone() }).unwrap()
}

fn asked(folder: &tempfile::TempDir, path: &str, headers: &str) -> String {
    let mut socket = UnixStream::connect(folder.path().join("kuma-mesh-metric-config.sock")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn an_agent_reads_hostnames_and_its_own_documents_from_one_listener() {
    for (traits, names) in [(traits("web"), ClusterNames::LEGACY), (unified("web"), ClusterNames::UNIFIED)] {
        let folder = tempfile::tempdir().unwrap();
        let plan = named(2, &[METRICS], &folder, &traits);
        let _live = Live::start(&plan, names);
        let records = plan.outgoing.records.as_ref().unwrap();
        let metrics = &plan.own.metrics.as_ref().unwrap().document;
        for part in [records, metrics] {
            let answer = asked(&folder, part.path, "");
            assert!(answer.to_lowercase().contains(&format!("etag: {}", part.etag)), "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\n{}", part.body)), "{answer}");
            let known = format!("if-none-match: {}\r\n", part.etag);
            assert!(asked(&folder, part.path, &known).starts_with("HTTP/1.1 304"));
        }
        assert!(records.body.contains("instance-00001.backend.some-namespace.mesh"));
    }
}

#[test]
fn fifty_thousand_hostnames_fit_into_one_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = named(50_000, &[], &folder, &unified("web"));
    // The listeners are not what this is about.
    plan.outgoing.outbounds.truncate(1);
    let _live = Live::start(&plan, ClusterNames::UNIFIED);
    let body = &plan.outgoing.records.as_ref().unwrap().body;
    assert!(body.len() > 4_000_000, "{}", body.len());
    assert!(asked(&folder, "/dns", "").ends_with(body.as_str()));
}

/// Resources of one proxy alone do not grow with the mesh, whether or not it has documents of its own.
#[test]
fn hostnames_are_encoded_once_for_all_proxies_of_a_class() {
    let folder = tempfile::tempdir().unwrap();
    for policies in [&[][..], &[METRICS][..]] {
        let plan = named(1000, policies, &folder, &unified("web"));
        let encoder = Encoder::default();
        let documents = Documents::of(plan.outgoing.records.as_ref().unwrap());
        let own = |documents: Option<&Documents>| {
            let mut own = xds::OwnResources::default();
            encoder.put_documents(&mut own, plan.own.agent.as_ref(), documents);
            own.iter(Type::Route).next().unwrap().clone()
        };
        let with = own(Some(&documents));
        let without = own(None);
        assert!(with.size() > without.size() + 50_000);
        assert!(with.own_size() < without.own_size() + 100, "{} {}", with.own_size(), without.own_size());
        assert_ne!(with.version, without.version);
        assert_eq!(with.version, own(Some(&documents)).version);
        let target = encoder.lower(&plan);
        assert_eq!(target.of(Type::Route).get("system_dynamicconfig"), Some(&with));
        let hosts = &shown(&target, Type::Route, "system_dynamicconfig")["virtualHosts"];
        let routes = hosts[0]["routes"].as_array().unwrap();
        assert_eq!((hosts.as_array().unwrap().len(), routes.len()), (1, 2 * policies.len() + 2));
    }
}

/// Reason why listeners have no addresses for the twins of IPv6 in documents for agents: the kernel turns a
/// connection to a mapped address into one of IPv4.
#[test]
fn a_connection_to_a_mapped_address_arrives_at_the_address_of_ipv4() {
    let listener = TcpListener::bind(("127.77.0.31", 0)).unwrap();
    let SocketAddr::V4(at) = listener.local_addr().unwrap() else { panic!("of IPv4") };
    let mapped = SocketAddr::from((at.ip().to_ipv6_mapped(), at.port()));
    let client = TcpStream::connect(mapped).unwrap();
    let (_, from) = listener.accept().unwrap();
    assert!(from.is_ipv4());
    assert_eq!(client.peer_addr().unwrap().port(), at.port());
}
