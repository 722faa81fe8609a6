//! Traffic that MeshPassthrough allows out of the mesh.
//!
//! Nothing is redirected here. The original destination of a connection is sent in front of it (PROXY
//! protocol), for a listener filter that a patch puts in place of the one that asks the kernel.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use envoy::{Encoder, bootstrap::ClusterNames};
use plan::{ProxyPlan, ProxyTraits};
use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};
use serde_json::{Value, json};
use topology::MeshSnapshot;
use xds::{Target, Type};

use crate::{
    enforcement::free_port,
    live::Live,
    support::{PLAIN, mesh, plan, traits, unified, web},
    telemetry_live::wait_for_line,
    view::{check, shown},
};

const PATIENCE: Duration = Duration::from_secs(20);
const V4: &str = "outbound:passthrough:ipv4";
const V6: &str = "outbound:passthrough:ipv6";

fn policy(default: &Value) -> String {
    format!("type: MeshPassthrough\nmesh: default\nname: out\nspec: {{ default: {default} }}")
}

fn planned(default: &Value, mesh: &str) -> ProxyPlan {
    plan(&[mesh, &web("transparentProxying: {}"), &policy(default)], &traits("web"))
}

fn matched(matches: &Value) -> Target {
    let plan = planned(&json!({ "passthroughMode": "Matched", "appendMatch": matches }), PLAIN);
    assert_eq!(plan.findings(), []);
    Encoder::default().lower(&plan)
}

fn chains(target: &Target, listener: &str) -> Vec<String> {
    let listener = shown(target, Type::Listener, listener);
    let chains = listener["filterChains"].as_array().unwrap();
    chains.iter().map(|chain| chain["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_mode_of_the_policy_counts_before_that_of_the_mesh() {
    let closed = format!("{PLAIN}networking: {{ outbound: {{ passthrough: false }} }}\n");
    for mesh in [PLAIN, &closed] {
        for (mode, open) in
            [(json!("All"), true), (json!("None"), false), (json!("Matched"), false), (json!(null), false)]
        {
            let default = match &mode {
                Value::Null => json!({}),
                mode => json!({ "passthroughMode": mode }),
            };
            let target = Encoder::default().lower(&planned(&default, mesh));
            for name in [V4, V6] {
                assert_eq!(target.of(Type::Cluster).contains_key(name), open, "{mode}");
                assert_eq!(chains(&target, name).len(), 1, "it ends there otherwise");
            }
            assert!(target.of(Type::Cluster).contains_key("inbound:passthrough:ipv4"));
        }
    }
}

#[test]
fn addresses_pass_at_the_listener_of_their_version_domains_at_both() {
    let target = matched(&json!([
        { "type": "Domain", "value": "api.example.com", "port": 80, "protocol": "http" },
        { "type": "IP", "value": "192.168.0.0", "port": 80 },
        { "type": "IP", "value": "2001:db8::1", "port": 80 },
    ]));
    let v4 = shown(&target, Type::Listener, V4);
    assert_eq!(chains(&target, V4), ["meshpassthrough_tcp_192.168.0.0_80", "meshpassthrough_http_80"]);
    assert_eq!(chains(&target, V6), ["meshpassthrough_tcp_2001:db8::1_80", "meshpassthrough_http_80"]);
    check(
        &v4,
        &[
            (
                "/filterChains/0/filterChainMatch",
                json!({
                    "destinationPort": 80, "transportProtocol": "raw_buffer",
                    "prefixRanges": [{ "addressPrefix": "192.168.0.0", "prefixLen": 32 }],
                }),
            ),
            ("/filterChains/0/filters/0/typedConfig/statPrefix", json!("meshpassthrough_tcp_192_168_0_0_80")),
            ("/filterChains/0/filters/0/typedConfig/cluster", json!("meshpassthrough_tcp_192.168.0.0_80")),
            (
                "/filterChains/1/filterChainMatch",
                json!({
                    "destinationPort": 80, "transportProtocol": "raw_buffer", "applicationProtocols": ["http/1.1", "h2c"],
                }),
            ),
            (
                "/filterChains/1/filters/0/typedConfig/routeConfig/virtualHosts/0/domains",
                json!(["api.example.com", "api.example.com:80"]),
            ),
            ("/filterChains/1/filters/0/typedConfig/routeConfig/virtualHosts/1/name", json!("no_match")),
            ("/listenerFilters/0/name", json!("envoy.filters.listener.original_dst")),
            ("/listenerFilters/1/name", json!("envoy.filters.listener.tls_inspector")),
            ("/listenerFilters/2/name", json!("envoy.filters.listener.http_inspector")),
            ("/listenerFilters/1/filterDisabled", json!(null)),
        ],
    );
    check(
        &shown(&target, Type::Cluster, "meshpassthrough_http_api.example.com_80"),
        &[
            ("/type", json!("ORIGINAL_DST")),
            ("/lbPolicy", json!("CLUSTER_PROVIDED")),
            ("/connectTimeout", json!("5s")),
            ("/altStatName", json!("meshpassthrough_http_api_example_com_80")),
            ("/typedExtensionProtocolOptions", json!(null)),
        ],
    );
    assert!(!target.of(Type::Cluster).contains_key(V4));
}

#[test]
fn a_match_for_every_port_holds_at_ports_that_are_named_too() {
    let target = matched(&json!([
        { "type": "Domain", "value": "*.example.com", "protocol": "tls" },
        { "type": "Domain", "value": "example.com", "protocol": "tls" },
        { "type": "Domain", "value": "*", "port": 443, "protocol": "tls" },
        { "type": "CIDR", "value": "10.0.0.0/8", "protocol": "http2" },
        { "type": "CIDR", "value": "10.1.0.0/16", "protocol": "http2" },
        { "type": "IP", "value": "10.0.0.7", "port": 3306, "protocol": "mysql" },
    ]));
    assert_eq!(
        chains(&target, V4),
        [
            "meshpassthrough_tls_example.com_3306",
            "meshpassthrough_tls_example.com_443",
            "meshpassthrough_tls_example.com_*",
            "meshpassthrough_tls_*.example.com_3306",
            "meshpassthrough_tls_*.example.com_443",
            "meshpassthrough_tls_*_443",
            "meshpassthrough_tls_*.example.com_*",
            "meshpassthrough_tcp_10.0.0.7_3306",
            "meshpassthrough_http2_10.1.0.0/16_3306",
            "meshpassthrough_http2_10.0.0.0/8_3306",
            "meshpassthrough_http2_10.1.0.0/16_443",
            "meshpassthrough_http2_10.0.0.0/8_443",
            "meshpassthrough_http2_10.1.0.0/16_*",
            "meshpassthrough_http2_10.0.0.0/8_*",
        ]
    );
    check(
        &shown(&target, Type::Listener, V4),
        &[
            (
                "/filterChains/2/filterChainMatch",
                json!({ "serverNames": ["example.com"], "transportProtocol": "tls" }),
            ),
            (
                "/filterChains/5/filterChainMatch",
                json!({ "destinationPort": 443, "transportProtocol": "tls" }),
            ),
            (
                "/listenerFilters/2/filterDisabled",
                json!({ "destinationPortRange": { "start": 3306, "end": 3307 } }),
            ),
        ],
    );
    let http2 = shown(&target, Type::Cluster, "meshpassthrough_http2_10.0.0.0/8_*");
    assert!(http2["typedExtensionProtocolOptions"].is_object(), "{http2}");
}

#[test]
fn matches_that_cannot_be_told_apart_are_told_and_the_first_counts() {
    let plan = planned(
        &json!({ "appendMatch": [
            { "type": "Domain", "value": "a.com", "protocol": "http" },
            { "type": "Domain", "value": "b.com", "port": 80, "protocol": "grpc" },
            { "type": "IP", "value": "10.0.0.1", "port": 81 },
            { "type": "CIDR", "value": "10.0.0.1/32", "port": 81 },
        ] }),
        PLAIN,
    );
    let told: Vec<String> =
        plan.findings().iter().map(|finding| format!("{} {finding}", finding.code)).collect();
    assert_eq!(
        told,
        [
            "passthrough-conflict http a.com at port 80 matches the same traffic as grpc, which is already allowed there: it is ignored"
        ]
    );
    let target = Encoder::default().lower(&plan);
    assert_eq!(
        chains(&target, V4),
        [
            "meshpassthrough_tcp_10.0.0.1_81",
            "meshpassthrough_http_81",
            "meshpassthrough_http_*",
            "meshpassthrough_grpc_80"
        ]
    );
}

#[test]
fn a_proxy_without_redirected_traffic_is_told_that_it_has_no_effect() {
    let plan = plan(&[PLAIN, &web(""), &policy(&json!({ "passthroughMode": "None" }))], &traits("web"));
    let told: Vec<(&str, String)> = plan.findings().iter().map(|p| (p.code.name(), p.to_string())).collect();
    assert_eq!(
        told,
        [(
            "not-redirected",
            "MeshPassthrough has no effect: no traffic is redirected to this proxy".to_owned()
        )]
    );
}

/// A server outside of the mesh, which sends back what it gets.
fn server(ip: &str) -> SocketAddr {
    saying((ip, 0), "outside")
}

/// A server that answers with these words.
pub fn saying(at: (&str, u16), words: &'static str) -> SocketAddr {
    let socket = TcpListener::bind(at).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in socket.incoming().flatten() {
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                let _ = client.read(&mut asked);
                let length = words.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                let _ = client.write_all(format!("{head}{words}").as_bytes());
            });
        }
    });
    address
}

/// The filter that reads where a connection was to go.
fn told() -> Value {
    json!({ "name": "envoy.filters.listener.proxy_protocol", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
    } })
}

/// An Envoy that learns from the PROXY protocol where connections were to go.
pub struct World {
    envoy: Live,
    port: u16,
}

impl World {
    fn with(traits: &ProxyTraits, matches: &Value) -> World {
        World::of_family("IPv4", traits, matches, None)
    }

    fn of_family(family: &str, traits: &ProxyTraits, matches: &Value, log: Option<&str>) -> World {
        let policy = policy(&json!({ "passthroughMode": "Matched", "appendMatch": matches }));
        let told = json!({ "op": "replace", "path": "/listenerFilters/0", "value": told() });
        let documents: Vec<&str> = [PLAIN, &policy].into_iter().chain(log).collect();
        World::of(traits, &documents, family, &told, |_| {})
    }

    /// Without matches nothing needs to be distinguished, so that no listener filter is there already.
    fn without_matches(traits: &ProxyTraits, documents: &[&str]) -> World {
        World::changed(traits, "", documents, |_| {})
    }

    /// As [`World::without_matches`], with more about redirection in the Dataplane, and changes of the mesh.
    pub fn changed(
        traits: &ProxyTraits,
        redirection: &str,
        documents: &[&str],
        change: impl FnOnce(&mut MeshSnapshot),
    ) -> World {
        let told = json!({ "op": "add", "path": "/listenerFilters", "value": [told()] });
        World::of(traits, documents, &format!("IPv4{redirection}"), &told, change)
    }

    /// As [`World::changed`], where IPv6 is redirected too.
    pub fn of_both_versions(
        traits: &ProxyTraits,
        documents: &[&str],
        change: impl FnOnce(&mut MeshSnapshot),
    ) -> World {
        let told = json!({ "op": "add", "path": "/listenerFilters", "value": [told()] });
        World::of(traits, documents, "DualStack", &told, change)
    }

    /// Returns a page of Envoy's admin interface.
    pub fn admin(&self, path: &str) -> String {
        self.envoy.get(path)
    }

    fn of(
        traits: &ProxyTraits,
        documents: &[&str],
        family: &str,
        told: &Value,
        change: impl FnOnce(&mut MeshSnapshot),
    ) -> World {
        let port = free_port();
        let patch = json!([{ "listener": {
            "operation": "Patch", "match": { "origin": "transparent" }, "jsonPatches": [told],
        } }]);
        let patch = format!(
            "type: MeshProxyPatch\nmesh: default\nname: told\nspec: {{ targetRef: {{ kind: Dataplane, name: web }}, \
             default: {{ appendModifications: {patch} }} }}"
        );
        let redirected = format!(
            "transparentProxying: {{ redirectPortOutbound: {port}, redirectPortInbound: {}, ipFamilyMode: {family} }}",
            free_port()
        );
        let traits = ProxyTraits { admin_port: 0, ..traits.clone() };
        let web = web(&redirected);
        let all: Vec<&str> = documents.iter().copied().chain([&*web, &patch]).collect();
        let mut snapshot = MeshSnapshot::clone(&mesh(&all));
        change(&mut snapshot);
        let plan = plan::for_proxy(&snapshot, &traits).unwrap();
        assert_eq!(plan.findings(), []);
        let names = if traits.unified_naming { ClusterNames::UNIFIED } else { ClusterNames::LEGACY };
        World { envoy: Live::start(&plan, names), port }
    }

    /// Returns the answer of the server at an address; nothing if the connection ends.
    pub fn say(&self, to: SocketAddr, words: &[u8]) -> String {
        // As the kernel redirects, to the listener of the same version.
        let (version, own) = if to.is_ipv4() { ("TCP4", "127.0.0.1") } else { ("TCP6", "::1") };
        let mut socket = TcpStream::connect((own, self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("PROXY {version} {own} {} 4321 {}\r\n", to.ip(), to.port());
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A connection that no way takes ends while it is written to.
        if let Err(error) = socket.write_all(words).and_then(|()| socket.read_to_end(&mut answer)) {
            assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, to: SocketAddr, host: &str) -> String {
        self.say(to, format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())
    }

    fn hello(&self, to: SocketAddr, server_name: &str) -> String {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let mut hello = Vec::new();
        ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
        self.say(to, &hello)
    }
}

#[test]
fn a_real_envoy_lets_out_what_matches_and_nothing_else() {
    let (web, database, secure, elsewhere) =
        (server("127.0.0.1"), server("127.51.0.9"), server("127.0.0.1"), server("127.52.0.9"));
    let matches = json!([
        { "type": "Domain", "value": "api.example.com", "port": web.port(), "protocol": "http" },
        { "type": "Domain", "value": "*.shop.example.com", "port": web.port(), "protocol": "http" },
        { "type": "Domain", "value": "secure.example.com", "port": secure.port(), "protocol": "tls" },
        { "type": "Domain", "value": "*.secure.example.com", "protocol": "tls" },
        { "type": "CIDR", "value": "127.51.0.0/16" },
    ]);
    for traits in [traits("web"), unified("web")] {
        let world = World::with(&traits, &matches);
        let ok = |answer: String| is_outside(&answer);
        assert!(ok(world.get(web, "api.example.com")));
        assert!(ok(world.get(web, &format!("api.example.com:{}", web.port()))));
        assert!(ok(world.get(web, "a.shop.example.com")));
        let refused = world.get(web, "other.example.com");
        assert!(
            refused.starts_with("HTTP/1.1 503") && refused.contains("No routes matched this domain"),
            "{refused}"
        );
        assert!(ok(world.hello(secure, "secure.example.com")));
        assert!(ok(world.hello(secure, "a.secure.example.com")));
        assert!(ok(world.hello(elsewhere, "a.secure.example.com")), "at every port");
        assert_eq!(world.hello(secure, "other.example.com"), "");
        assert!(ok(world.say(database, b"hello\n")));
        assert_eq!(world.say(elsewhere, b"hello\n"), "");
        assert_eq!(world.get(elsewhere, "api.example.com"), "", "not at other ports");
        assert!(matches!(database.ip(), IpAddr::V4(_)));
    }
}

fn is_outside(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") && answer.ends_with("outside")
}

#[test]
fn a_real_envoy_lets_out_to_addresses_of_both_versions_of_ip() {
    let one = server("127.51.0.9");
    let two = server("::1");
    let other = server("::1");
    let secure = server("::1");
    let web = server("::1");
    let matches = json!([
        { "type": "CIDR", "value": "127.51.0.0/16", "port": one.port() },
        { "type": "IP", "value": "::1", "port": two.port() },
        { "type": "CIDR", "value": "::/64", "port": secure.port(), "protocol": "tls" },
        { "type": "Domain", "value": "api.example.com", "port": web.port(), "protocol": "http" },
    ]);
    for traits in [traits("web"), unified("web")] {
        let traits = ProxyTraits { ipv6: true, ..traits };
        let world = World::of_family("DualStack", &traits, &matches, None);
        assert!(is_outside(&world.say(one, b"hello\n")));
        assert!(is_outside(&world.say(two, b"hello\n")));
        assert_eq!(world.say(other, b"hello\n"), "", "the port is another one");
        let mapped = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), two.port());
        assert_eq!(world.say(mapped, b"hello\n"), "", "the same port of an address of version 4");
        assert!(is_outside(&world.hello(secure, "any.example.com")), "TLS to a range of addresses");
        assert!(is_outside(&world.get(web, "api.example.com")), "domains whatever their addresses are");
        assert!(world.get(web, "other.example.com").starts_with("HTTP/1.1 503"));
    }
}

/// A log of what goes out, with where it went.
fn log(path: &Path) -> String {
    let line = "%KUMA_TRAFFIC_DIRECTION% %KUMA_SOURCE_SERVICE% %KUMA_DESTINATION_SERVICE% %UPSTREAM_HOST% %RESPONSE_CODE%";
    let file = json!({ "path": path.display().to_string(), "format": { "type": "Plain", "plain": line } });
    let conf = json!({ "backends": [{ "type": "File", "file": file }] });
    let spec = json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": conf }] });
    format!("type: MeshAccessLog\nmesh: default\nname: out\nspec: {spec}")
}

#[test]
fn what_is_let_out_is_logged_and_so_is_what_no_domain_matches() {
    let database = server("127.51.0.9");
    let web = server("127.0.0.1");
    let matches = json!([
        { "type": "CIDR", "value": "127.51.0.0/16" },
        { "type": "Domain", "value": "api.example.com", "port": web.port(), "protocol": "http" },
    ]);
    for traits in [traits("web"), unified("web")] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.log");
        let world = World::of_family("IPv4", &traits, &matches, Some(&log(&file)));
        assert!(is_outside(&world.say(database, b"hello\n")));
        assert!(is_outside(&world.get(web, "api.example.com")));
        assert!(world.get(web, "other.example.com").starts_with("HTTP/1.1 503"));
        // This proxy has no inbounds, and so no service.
        for line in [
            format!("OUTBOUND unknown external {database} 0"),
            format!("OUTBOUND unknown external {web} 200"),
            "OUTBOUND unknown external - 503".to_owned(),
        ] {
            wait_for_line(&file, |said| said == line);
        }
    }
}

#[test]
fn plain_passthrough_is_logged_if_a_policy_is_for_the_mesh() {
    let logged = |log: &str| {
        let open = policy(&json!({ "passthroughMode": "All" }));
        let plan = plan(&[PLAIN, &web("transparentProxying: {}"), &open, log], &traits("web"));
        let target = Encoder::default().lower(&plan);
        [V4, V6].map(|name| {
            let path = "/filterChains/0/filters/0/typedConfig/accessLog";
            shown(&target, Type::Listener, name)
                .pointer(path)
                .map_or(0, |logs| logs.as_array().unwrap().len())
        })
    };
    let all = log(Path::new("/tmp/log"));
    assert_eq!(logged(&all), [1, 1]);
    let one = all.replace(r#"{"kind":"Mesh"}"#, r#"{"kind":"MeshService","name":"backend"}"#);
    assert_ne!(one, all);
    assert_eq!(logged(&one), [0, 0]);
}
#[test]
fn a_real_envoy_lets_nothing_out_where_the_mesh_or_a_policy_shuts_the_way() {
    let outside = server("127.53.0.9");
    let closed = format!("{PLAIN}networking: {{ outbound: {{ passthrough: false }} }}\n");
    let mode = |mode: &str| policy(&json!({ "passthroughMode": mode }));
    for (documents, open) in [
        (vec![PLAIN.to_owned()], true),
        (vec![closed.clone()], false),
        (vec![PLAIN.to_owned(), mode("None")], false),
        (vec![closed, mode("All")], true),
    ] {
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let world = World::without_matches(&unified("web"), &documents);
        let answer = world.say(outside, b"hello\n");
        assert_eq!(answer.ends_with("outside"), open, "{documents:?}: {answer}");
    }
}
