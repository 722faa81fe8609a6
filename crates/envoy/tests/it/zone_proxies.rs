//! Zone proxies lead TLS on by server name, on a real Envoy and without reading it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use envoy::{ClassPart, Encoder, bootstrap::ClusterNames};
use plan::{OwnPlan, ProxyKind, ProxyTraits, SharedPlan, ZoneClass, ZonePlan, ZoneProxy, ZoneProxyKind};
use resources::{Key, Kind, naming::sni};
use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};
use serde_json::Value;
use xds::{Target, Type};

use crate::{
    enforcement::free_port,
    live::Live,
    real_envoy::certificate,
    support::{PLAIN, SECURED, mesh, traits, unified, web},
    view,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers every connection with its name, as soon as something was said to it.
fn server(name: &'static str) -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in socket.incoming().flatten() {
            let mut head = [0; 5];
            // The first record of TLS: it came as it was sent.
            if client.read_exact(&mut head).is_err() || head[..2] != [0x16, 3] {
                continue;
            }
            // What is left unread would reset the connection.
            let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            if client.read_exact(&mut hello).is_ok() {
                let _ = client.write_all(format!("by {name}").as_bytes());
            }
        }
    });
    port
}

/// Returns the server that answers the beginning of a TLS connection for a server name; empty without an
/// answer.
fn who(port: u16, server_name: &str) -> String {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(server_name.to_owned()).unwrap();
    let mut hello = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    hello.write_tls(&mut socket).unwrap();
    let mut answer = String::new();
    // A connection that is reset has no answer.
    let _ = socket.read_to_string(&mut answer);
    answer
}

/// The Envoy of a zone proxy, and its port.
fn start(kind: ZoneProxyKind, documents: &[&str], traits: ProxyTraits) -> (Live, u16) {
    let port = free_port();
    (start_at(kind, documents, traits, ("127.0.0.1", port)), port)
}

/// The Envoy of a zone proxy that listens there.
pub fn start_at(kind: ZoneProxyKind, documents: &[&str], traits: ProxyTraits, place: (&str, u16)) -> Live {
    let (address, port) = place;
    let proxy = match kind {
        ZoneProxyKind::Ingress => format!(
            "type: ZoneIngress\nname: gate\nnetworking: {{ address: {address}, port: {port}, \
             advertisedAddress: {address}, advertisedPort: {port} }}"
        ),
        ZoneProxyKind::Egress => {
            format!("type: ZoneEgress\nname: gate\nnetworking: {{ address: {address}, port: {port} }}")
        }
    };
    let mesh = mesh(&[documents, &[proxy.as_str()]].concat());
    let traits = ProxyTraits { kind: ProxyKind::Zone(kind), admin_port: 0, ..traits };
    let stored = mesh.globals.get(&Key::global(traits.kind.resource(), "gate")).unwrap();
    let own = ZoneProxy::plan(stored, "east", &traits).unwrap();
    let zone_plan = ZoneClass::of(kind, stored, &traits).plan(&mesh);
    assert_eq!(zone_plan.findings, []);
    let encoder = Encoder::default();
    let own = own_resources(&encoder, own, &zone_plan);
    let secrets = zone_plan.secrets.clone();
    let (shared, _) = encoder.shared(&SharedPlan::Zone(zone_plan));
    let mut target = Target { own, shared: Arc::new(shared) };
    if let Some(names) = &secrets {
        let (certificate, key) = certificate();
        target.insert(Type::Secret, encoder.secret(&names.identity.name(), &certificate, &key));
        target.insert(Type::Secret, encoder.authorities(names.authorities.name(), &certificate));
    }
    let names = if traits.unified_naming { ClusterNames::UNIFIED } else { ClusterNames::LEGACY };
    Live::with(&target, names, None)
}

fn own_service(name: &str, port: u16) -> String {
    format!(
        "type: MeshService\nmesh: default\nname: {name}\nlabels: {{ kuma.io/zone: east }}\nspec:\n\
         \x20 selector: {{ dataplaneTags: {{ kuma.io/service: {name} }} }}\n\
         \x20 ports: [{{ name: main, port: 80, targetPort: {port}, snis: [{{ value: new.{name}.example }}, {{ value: old.{name}.example }}] }}]\n\
         ---\ntype: Dataplane\nmesh: default\nname: {name}\nnetworking:\n  address: 127.0.0.1\n\
         \x20 inbound: [{{ port: {port}, tags: {{ kuma.io/service: {name} }} }}]"
    )
}

#[test]
fn an_ingress_leads_to_services_by_every_name_of_theirs_in_both_schemes() {
    let one = own_service("one", server("one"));
    let two = own_service("two", server("two"));
    let check = |traits: ProxyTraits, listener: &str, cluster: &str| {
        let (envoy, port) = start(ZoneProxyKind::Ingress, &[SECURED, &one, &two], traits);
        for name in ["one", "two"] {
            let kri_form = format!("sni.msvc.default.east.{name}.main");
            for server_name in [format!("new.{name}.example"), format!("old.{name}.example"), kri_form] {
                assert_eq!(who(port, &server_name), format!("by {name}"), "{server_name}");
            }
        }
        assert_eq!(who(port, "unknown.example"), "");
        // Each name has a count of its own, and what is open; what was asked for in capitals is the same name.
        assert_eq!(who(port, "NEW.one.example"), "by one");
        for (name, count) in
            [("new_one_example", 2), ("old_one_example", 1), ("sni_msvc_default_east_two_main", 1)]
        {
            let counted = format!("system_sni_{name}.rbac.shadow_allowed");
            let open = format!("connection_limit.system_sni_{name}.active_connections");
            let stats = envoy.get("/stats");
            let told = |name: &str| {
                let mut lines = stats.lines().filter_map(|line| line.split_once(": "));
                lines.find(|(told, _)| *told == name).map(|(_, value)| value.to_owned())
            };
            assert_eq!(told(&counted), Some(count.to_string()), "{counted} in\n{stats}");
            assert!(told(&open).is_some(), "{open} in\n{stats}");
        }
        let stats = envoy.get("/stats?usedonly");
        let listener = listener.replace("PORT", &port.to_string());
        for counted in [
            format!("listener.{listener}.no_filter_chain_match: 1"),
            format!("cluster.{cluster}.upstream_cx_total: 4"),
            format!("tcp.{cluster}.downstream_cx_total: 4"),
        ] {
            assert!(stats.lines().any(|line| line == counted), "{counted} is not in\n{stats}");
        }
    };
    check(unified("gate"), "self_PORT", "kri_msvc_default_east__one_main");
    check(traits("gate"), "127.0.0.1_PORT", "default_one__east_msvc_80");
}

#[test]
fn an_ingress_counts_under_dotted_names_as_in_its_configuration() {
    let service = own_service("one", server("one")).replace("name: main", "name: backend-kumahq.com");
    let (envoy, port) = start(ZoneProxyKind::Ingress, &[SECURED, &service], unified("gate"));
    assert_eq!(who(port, "new.one.example"), "by one");
    let stats = envoy.get("/stats?usedonly");
    let name = "kri_msvc_default_east__one_backend-kumahq.com";
    for counted in
        [format!("cluster.{name}.upstream_cx_total: 1"), format!("tcp.{name}.downstream_cx_total: 1")]
    {
        assert!(stats.lines().any(|line| line == counted), "{counted} is not in\n{stats}");
    }
}

#[test]
fn an_ingress_that_leads_nowhere_says_who_it_is() {
    let (_envoy, port) = start(ZoneProxyKind::Ingress, &[PLAIN], unified("gate"));
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // The listener looks for TLS before it answers.
    socket.write_all(b"hello").unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert_eq!(said, r#"{"proxy":".gate","zone":"east"}"#);
}

/// `backend` of another zone, whose ingress is at that port.
fn remote(zone: &str, port: u16) -> String {
    format!(
        "type: MeshService\nmesh: default\nname: backend-{zone}\n\
         labels: {{ kuma.io/zone: {zone}, kuma.io/origin: global, kuma.io/display-name: backend, app: backend }}\n\
         spec:\n  state: Available\n  ports: [{{ port: 80, targetPort: 80, snis: [{{ value: {zone}.example }}, {{ value: a601e0c00295a9fbe.backend.80.default.ms }}] }}]\n\
         ---\ntype: ZoneIngress\nname: {zone}\nzone: {zone}\nnetworking: {{ address: 10.0.0.1, port: 1, \
         advertisedAddress: 127.0.0.1, advertisedPort: {port} }}"
    )
}

/// `backend` of all zones.
const ALL: &str = "type: MeshMultiZoneService\nmesh: default\nname: all\nspec:\n\
                   \x20 selector: { meshService: { matchLabels: { app: backend } } }\n  ports: [{ port: 80 }]";

fn of_all() -> String {
    sni::hashed("all", "default", Kind::MeshMultiZoneService, 80, &BTreeMap::new()).unwrap()
}

#[test]
fn an_egress_tells_services_of_one_name_in_three_zones_apart() {
    let zones = ["west", "south", "north"].map(|zone| remote(zone, server(zone)));
    let documents = [SECURED, &zones[0], &zones[1], &zones[2], ALL];
    for traits in [unified("gate"), traits("gate")] {
        let (_envoy, port) = start(ZoneProxyKind::Egress, &documents, traits);
        for zone in ["west", "south", "north"] {
            assert_eq!(who(port, &format!("{zone}.example")), format!("by {zone}"));
        }
        // What all of them accept leads to one of them, and what is of all zones to any.
        let shared = who(port, "a601e0c00295a9fbe.backend.80.default.ms");
        assert_eq!(shared, "by north");
        let any: BTreeSet<String> = (0..60).map(|_| who(port, &of_all())).collect();
        assert_eq!(any.len(), 3, "{any:?}");
    }
}

#[test]
fn an_egress_calls_other_zones_and_leaves_out_one_that_is_silent() {
    // Nothing listens there.
    let west = remote("west", free_port());
    let south = remote("south", server("south"));
    let (envoy, port) = start(ZoneProxyKind::Egress, &[SECURED, &west, &south, ALL], unified("gate"));
    for _ in 0..40 {
        assert_eq!(who(port, &of_all()), "by south");
    }
    let stats = envoy.get("/stats?usedonly");
    let cluster = "cluster.kri_mzsvc_default___all_80";
    let left_out = format!("{cluster}.outlier_detection.ejections_active: 1");
    assert!(stats.lines().any(|line| line == left_out), "{left_out} is not in\n{stats}");
    // It did not take long to find out.
    let failed =
        stats.lines().find_map(|line| line.strip_prefix(&format!("{cluster}.upstream_cx_connect_fail: ")));
    assert!(failed.unwrap().parse::<u64>().unwrap() < 10, "{stats}");
    assert_eq!(who(port, "west.example"), "");
    assert_eq!(who(port, "south.example"), "by south");
}

#[test]
fn clients_do_not_check_an_egress_that_stands_for_several_zones() {
    let through = SECURED.replace("mtls:", "routing: { zoneEgress: true }\nmtls:");
    let exit = "type: ZoneEgress\nname: exit\nnetworking: { address: 10.0.0.9, port: 10002 }";
    let web =
        web("outbound: [{ port: 10001, backendRef: { kind: MeshMultiZoneService, name: all, port: 80 } }, \
         { port: 10002, backendRef: { kind: MeshService, name: backend-west, port: 80 } }]");
    let west = remote("west", 1);
    let south = remote("south", 2);
    let target = view::target(&[&through, exit, &west, &south, ALL, &web], &unified("web"));
    let endpoints = |cluster: &str| {
        let shown = view::shown(&target, Type::Endpoint, cluster);
        let groups = shown["endpoints"].as_array().unwrap().clone();
        groups.iter().flat_map(|group| group["lbEndpoints"].as_array().unwrap().clone()).collect::<Vec<_>>()
    };
    let unchecked =
        |endpoint: &Value| endpoint["endpoint"]["healthCheckConfig"]["disableActiveHealthCheck"].clone();
    let [one] = &endpoints("kri_mzsvc_default___all_80")[..] else { panic!("one endpoint") };
    assert_eq!(unchecked(one), true);
    let [one] = &endpoints("kri_msvc_default_west__backend_80")[..] else { panic!("one endpoint") };
    assert_eq!(unchecked(one), Value::Null);
}

/// The admin interface and the listener of a zone proxy.
fn own_resources(encoder: &Encoder, own: ZoneProxy, zone_plan: &ZonePlan) -> xds::OwnResources {
    let own = OwnPlan::Zone(Box::new(own));
    let filter_chains = plan::merged(zone_plan.filter_chains.iter());
    let (mut resources, _) = encoder.own(&own);
    encoder.put_joint(&mut resources, &own.joint().unwrap(), &ClassPart::FilterChains(filter_chains.into()));
    resources
}

/// The chains of filters of an ingress, as Envoy gets them.
fn chains(documents: &[&str]) -> BTreeSet<String> {
    let gate = "type: ZoneIngress\nname: gate\nnetworking: { address: 127.0.0.1, port: 10001 }";
    let mesh = mesh(&[documents, &[gate]].concat());
    let traits = ProxyTraits { kind: ProxyKind::INGRESS, ..unified("gate") };
    let stored = mesh.globals.get(&Key::global(Kind::ZoneIngress, "gate")).unwrap();
    let own = ZoneProxy::plan(stored, "east", &traits).unwrap();
    let class = ZoneClass::of(ZoneProxyKind::Ingress, stored, &traits);
    let own = own_resources(&Encoder::default(), own, &class.plan(&mesh));
    let target = Target { own, shared: Arc::default() };
    let listeners = target.of(Type::Listener);
    let listener = listeners.values().find(|listener| &*listener.name == "self_10001").unwrap();
    let listener = envoy::json::to_json(Type::Listener.url(), &listener.body()).unwrap();
    let chains = listener["filterChains"].as_array().or(listener["filter_chains"].as_array());
    chains.unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn a_server_name_that_comes_or_goes_keeps_connections_of_others() {
    // Envoy ends connections whose chain of filters is not there any more, and keeps all others.
    let service = own_service("one", 9000);
    let before = chains(&[SECURED, &service]);
    let rotated = service.replace("snis: [", "snis: [{ value: newest.example }, ");
    let during = chains(&[SECURED, &rotated]);
    assert!(before.is_subset(&during), "{before:#?}\n{during:#?}");
    assert_eq!(during.len(), before.len() + 1);
    let after = chains(&[SECURED, &rotated.replace(", { value: old.one.example }", "")]);
    assert!(after.is_subset(&during), "{after:#?}\n{during:#?}");
    assert_eq!(after.len(), during.len() - 1);
}
