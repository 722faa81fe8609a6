//! The same Dataplanes with legacy and with unified names: every name in the live configuration and in the
//! live statistics of a real Envoy, one by one.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use e2e::{
    Setup, eventually, own_port,
    proxy::{RunningProxy, own_address},
    service::{Service, call_tcp, dataplane, with_outbound},
};
use serde_json::{Value, json};

use crate::{
    names::{ListenerNames, Live, NOTHING},
    world::{UNIFIED, UNIFIED_ALIAS, World, answered_by, by_reference, by_tags, client, client_with},
};

/// One thing a proxy has: its names from before, and the one name it has after.
struct Case {
    what: &'static str,
    /// `{a}` is the proxy's address, `{s}` the same as statistics spell it, `{6}` and `{7}` are ports.
    legacy: [&'static str; 8],
    /// Nothing when the older names stay; a second one when the cluster has a name of its own.
    unified: &'static [&'static str],
}

/// Inbounds and outbounds of [`subject`].
#[rustfmt::skip]
const TABLE: &[Case] = &[
    Case { what: "inbound with a named port, and another port for the workload",
        legacy: ["inbound:{a}:8080", "{a}_8080", "localhost:9001", "localhost_9001",
                 "inbound:main", "main", "http localhost_9001", "inbound_{s}_8080."],
        unified: &["self_main"] },
    Case { what: "inbound without a name",
        legacy: ["inbound:{a}:8081", "{a}_8081", "localhost:9002", "localhost_9002",
                 "inbound:numeric", "numeric", "http localhost_9002", "inbound_{s}_8081."],
        unified: &["self_8081"] },
    Case { what: "inbound with a dotted name",
        legacy: ["inbound:{a}:8082", "{a}_8082", "localhost:9003", "localhost_9003",
                 "inbound:dotted", "dotted", "http localhost_9003", "inbound_{s}_8082."],
        unified: &["self_backend-kumahq.com"] },
    Case { what: "inbound with a name of one letter",
        legacy: ["inbound:{a}:8083", "{a}_8083", "localhost:9004", "localhost_9004",
                 "inbound:letter", "letter", "http localhost_9004", "inbound_{s}_8083."],
        unified: &["self_w"] },
    Case { what: "inbound for TCP",
        legacy: ["inbound:{a}:8084", "{a}_8084", "localhost:9005", "localhost_9005",
                 NOTHING, NOTHING, "tcp localhost_9005", "inbound_{s}_8084."],
        unified: &["self_queue"] },
    Case { what: "inbound at an IPv6 address",
        legacy: ["inbound:[::1]:{6}", "[__1]_{6}", "localhost:9006", "localhost_9006",
                 "inbound:six", "six", "http localhost_9006", "inbound____1__{6}."],
        unified: &["self_six"] },
    Case { what: "outbound to a named port of a MeshService",
        legacy: ["outbound:{a}:10001", "{a}_10001", "default_peer__default_msvc_8080", "default_peer__default_msvc_8080",
                 "kri_msvc_default_default__peer_main", "default_peer__default_msvc_8080", "http default_peer__default_msvc_8080", NOTHING],
        unified: &["kri_msvc_default_default__peer_main"] },
    Case { what: "outbound to a port without a name of a MeshService, at an IPv6 address",
        legacy: ["outbound:[::1]:{7}", "[__1]_{7}", "default_plain__default_msvc_8080", "default_plain__default_msvc_8080",
                 "kri_msvc_default_default__plain_8080", "default_plain__default_msvc_8080", "http default_plain__default_msvc_8080", NOTHING],
        unified: &["kri_msvc_default_default__plain_8080"] },
    Case { what: "outbound to a port with a dotted name of a MeshService",
        legacy: ["outbound:{a}:10007", "{a}_10007", "default_shop__default_msvc_8082", "default_shop__default_msvc_8082",
                 "kri_msvc_default_default__shop_backend-kumahq.com", "default_shop__default_msvc_8082", "http default_shop__default_msvc_8082", NOTHING],
        unified: &["kri_msvc_default_default__shop_backend-kumahq.com"] },
    Case { what: "outbound to a TCP port with a dotted name of a MeshService",
        legacy: ["outbound:{a}:10008", "{a}_10008", "default_shop__default_msvc_8083", "default_shop__default_msvc_8083",
                 NOTHING, NOTHING, "tcp default_shop__default_msvc_8083", NOTHING],
        unified: &["kri_msvc_default_default__shop_wire-kumahq.com"] },
    Case { what: "outbound to a TCP port of a MeshService",
        legacy: ["outbound:{a}:10003", "{a}_10003", "default_ledger__default_msvc_8080", "default_ledger__default_msvc_8080",
                 NOTHING, NOTHING, "tcp default_ledger__default_msvc_8080", NOTHING],
        unified: &["kri_msvc_default_default__ledger_main"] },
    Case { what: "outbound to a MeshExternalService",
        legacy: ["outbound:{a}:10004", "{a}_10004", "default_outside__default_extsvc_9010", "default_outside__default_extsvc_9010",
                 "kri_extsvc_default_default__outside_9010", "default_outside__default_extsvc_9010", "http default_outside__default_extsvc_9010", NOTHING],
        unified: &["kri_extsvc_default_default__outside_9010"] },
    Case { what: "outbound to a MeshMultiZoneService",
        legacy: ["outbound:{a}:10006", "{a}_10006", "default_peers___mzsvc_8080", "default_peers___mzsvc_8080",
                 "kri_mzsvc_default___peers_main", "default_peers___mzsvc_8080", "http default_peers___mzsvc_8080", NOTHING],
        unified: &["kri_mzsvc_default___peers_main"] },
    Case { what: "outbound by the tag kuma.io/service",
        legacy: ["outbound:{a}:10005", "{a}_10005", "peer", "peer",
                 "outbound:peer", "peer", "http peer", NOTHING],
        unified: &[] },
    Case { what: "the proxy's admin interface",
        legacy: ["kuma:envoy:admin", "{a}_9901", "kuma:envoy:admin", "kuma_envoy_admin",
                 "kuma:envoy:admin", "kuma:envoy:admin", "http kuma_envoy_admin", NOTHING],
        unified: &["system_envoy_admin"] },
    Case { what: "its answer to probes, at the admin interface",
        legacy: ["kuma:envoy:admin", "{a}_9901", "kuma:readiness", "kuma_readiness",
                 "kuma:envoy:admin", "kuma:envoy:admin", "http kuma_envoy_admin", NOTHING],
        unified: &["system_envoy_admin", "system_probe_readiness"] },
];

/// Passthrough of [`redirected`], whose clients must prove who they are; `{6}` is the port of inbound, `{7}` of outbound redirection.
#[rustfmt::skip]
const PASSTHROUGH: &[Case] = &[
    Case { what: "inbound passthrough, IPv4",
        legacy: ["inbound:passthrough:ipv4", "0.0.0.0_{6}", "inbound:passthrough:ipv4", "inbound_passthrough_ipv4",
                 NOTHING, NOTHING, "tcp inbound_passthrough_ipv4", NOTHING],
        unified: &["self_passthrough_ipv4_inbound"] },
    Case { what: "outbound passthrough, IPv4",
        legacy: ["outbound:passthrough:ipv4", "0.0.0.0_{7}", "outbound:passthrough:ipv4", "outbound_passthrough_ipv4",
                 NOTHING, NOTHING, "tcp outbound_passthrough_ipv4", NOTHING],
        unified: &["self_passthrough_ipv4_outbound"] },
    Case { what: "inbound passthrough, IPv6",
        legacy: ["inbound:passthrough:ipv6", "[__]_{6}", "inbound:passthrough:ipv6", "inbound_passthrough_ipv6",
                 NOTHING, NOTHING, "tcp inbound_passthrough_ipv6", NOTHING],
        unified: &["self_passthrough_ipv6_inbound"] },
    Case { what: "outbound passthrough, IPv6",
        legacy: ["outbound:passthrough:ipv6", "[__]_{7}", "outbound:passthrough:ipv6", "outbound_passthrough_ipv6",
                 NOTHING, NOTHING, "tcp outbound_passthrough_ipv6", NOTHING],
        unified: &["self_passthrough_ipv6_outbound"] },
];

/// Clusters of the bootstrap, which no listener leads to.
const BOOTSTRAP: [(&str, &str); 2] =
    [("ads_cluster", "system_ads"), ("access_log_sink", "system_access_log_sink")];
const SECRETS: [(&str, &str); 2] = [
    ("identity_cert:secret:default", "system_mtls_identity_default"),
    ("mesh_ca:secret:default", "system_mtls_ca_default"),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Legacy,
    Unified,
}

impl Mode {
    fn of<'a>(self, (legacy, unified): (&'a str, &'a str)) -> &'a str {
        if self == Mode::Legacy { legacy } else { unified }
    }
}

fn expected(case: &Case, mode: Mode, address: Ipv4Addr, ports: [u16; 2]) -> ListenerNames {
    let plain = address.to_string();
    let [six, seven] = ports.map(|port| port.to_string());
    let filled = case.legacy.map(|name| {
        let name = name.replace("{a}", &plain).replace("{s}", &plain.replace('.', "_"));
        name.replace("{6}", &six).replace("{7}", &seven)
    });
    let legacy = ListenerNames::of(filled.each_ref().map(String::as_str));
    match (mode, case.unified) {
        (Mode::Legacy, _) | (_, []) => legacy,
        (_, [name, cluster @ ..]) => {
            let mut row = legacy.all_named(name);
            for cluster in cluster {
                (row.cluster, row.cluster_stats) = ((*cluster).to_owned(), (*cluster).to_owned());
            }
            row
        }
    }
}

/// Two ports for the parts of a proxy that have an IPv6 address.
fn ports_with_ipv6() -> [u16; 2] {
    TcpListener::bind("[::1]:0").expect("this test needs a machine with an IPv6 loopback address");
    [own_port().unwrap(), own_port().unwrap()]
}

/// A Dataplane with one inbound or outbound for each case of [`TABLE`].
fn subject(address: Ipv4Addr, workload: Ipv4Addr, [six, seven]: [u16; 2]) -> Value {
    let mut own = dataplane("subject", "main", address, "http", (workload, 9001).into());
    let inbounds = own["networking"]["inbound"].as_array_mut().unwrap();
    for (name, service, port, service_port) in [
        ("", "numeric", 8081, 9002),
        ("backend-kumahq.com", "dotted", 8082, 9003),
        ("w", "letter", 8083, 9004),
        ("queue", "queue", 8084, 9005),
        ("six", "six", six, 9006),
    ] {
        let protocol = if service == "queue" { "tcp" } else { "http" };
        let mut inbound = json!({
            "port": port, "servicePort": service_port, "serviceAddress": workload.to_string(),
            "tags": {"kuma.io/service": service, "kuma.io/protocol": protocol}
        });
        if !name.is_empty() {
            inbound["name"] = json!(name);
        }
        if service == "six" {
            inbound["address"] = json!("::1");
        }
        inbounds.push(inbound);
    }
    let outside = json!({"backendRef": {"kind": "MeshExternalService", "name": "outside", "port": 9010}});
    own = with_outbound(own, address, 10001, by_reference("peer"));
    own = with_outbound(own, address, 10003, by_reference("ledger"));
    own = with_outbound(own, address, 10004, outside);
    own = with_outbound(own, address, 10005, by_tags("peer"));
    let peers = json!({"backendRef": {"kind": "MeshMultiZoneService", "name": "peers", "port": 8080}});
    own = with_outbound(own, address, 10006, peers);
    for (port, target) in [(10007, 8082), (10008, 8083)] {
        let shop = json!({"backendRef": {"kind": "MeshService", "name": "shop", "port": target}});
        own = with_outbound(own, address, port, shop);
    }
    let mut six = json!({"address": "::1", "port": seven});
    six["backendRef"] = by_reference("plain")["backendRef"].clone();
    own["networking"]["outbound"].as_array_mut().unwrap().push(six);
    own
}

/// A Dataplane whose service has ports with dotted names, served by the first workload and by the queue.
fn shop(workload: Ipv4Addr) -> Value {
    let mut shop = dataplane("shop-1", "shop", own_address(), "http", (workload, 9001).into());
    let inbounds = [(8082, "backend-kumahq.com", 9001, "http"), (8083, "wire-kumahq.com", 9005, "tcp")];
    let inbound = |(port, name, service_port, protocol)| {
        json!({
            "port": port, "name": name, "servicePort": service_port, "serviceAddress": workload.to_string(),
            "tags": {"kuma.io/service": "shop", "kuma.io/protocol": protocol}
        })
    };
    shop["networking"]["inbound"] = inbounds.map(inbound).into_iter().collect();
    shop
}

/// The mesh around the subject: its workloads, those it calls, and somebody who calls it.
struct Scene {
    world: World,
    address: Ipv4Addr,
    ports: [u16; 2],
    subject: Value,
    _apps: Vec<Service>,
    _peers: Vec<(Service, RunningProxy, Ipv4Addr)>,
    _others: Vec<RunningProxy>,
    _caller: RunningProxy,
    caller: Ipv4Addr,
}

impl Scene {
    fn set() -> Scene {
        let world = World::start(Setup::default());
        let address = own_address();
        let workload = own_address();
        let ports = ports_with_ipv6();
        let app = |(name, port): (&str, u16)| {
            let protocol = if name == "queue" { "tcp" } else { "http" };
            Service::start(name, protocol, (workload, port).into()).unwrap()
        };
        let names = ["main", "numeric", "dotted", "letter", "queue", "six", "outside"];
        let apps = names.into_iter().zip(9001..).map(app).collect();
        let peers = vec![world.service("peer-1", "peer", "http"), world.service("ledger-1", "ledger", "tcp")];
        let mut plain = dataplane("plain-1", "plain", own_address(), "http", (workload, 9002).into());
        plain["networking"]["inbound"][0].as_object_mut().unwrap().remove("name");
        let plain = world.proxy(&plain);
        let others = vec![plain, world.proxy(&shop(workload))];
        let outside = json!({"type": "MeshExternalService", "mesh": "default", "name": "outside", "spec": {
            "match": {"type": "HostnameGenerator", "port": 9010, "protocol": "http"},
            "endpoints": [{"address": workload.to_string(), "port": 9007}]}});
        world.put("/meshes/default/meshexternalservices/outside", &outside);
        let everywhere = json!({"type": "MeshMultiZoneService", "mesh": "default", "name": "peers", "spec": {
            "selector": {"meshService": {"matchLabels": {"kuma.io/display-name": "peer"}}},
            "ports": [{"port": 8080, "name": "main", "appProtocol": "http"}]}});
        world.put("/meshes/default/meshmultizoneservices/peers", &everywhere);
        let target = |service: &str, port: u16| json!({"backendRef": {"kind": "MeshService", "name": service, "port": port}});
        let services = ["main", "numeric", "dotted", "letter", "queue"];
        let mut targets: Vec<_> =
            services.into_iter().zip(8080..).map(|(name, port)| target(name, port)).collect();
        targets.push(target("six", ports[0]));
        let (caller_proxy, caller) = client(&world, "caller", &targets);
        Scene {
            subject: subject(address, workload, ports),
            world,
            address,
            ports,
            _apps: apps,
            _peers: peers,
            _others: others,
            _caller: caller_proxy,
            caller,
        }
    }

    /// One call through every inbound and every outbound.
    fn call_everything(&self) {
        let http = |at: SocketAddr, name: &str| {
            let client = e2e::Client::new(format!("http://{at}"));
            let answered = || client.get("/").is_ok_and(|answer| answer.json()["name"] == name);
            eventually(&format!("an answer of {name} at {at}"), answered).unwrap_or_else(|error| {
                panic!("{error}: {:?}\n{}", client.get("/"), self.world.control_plane.log())
            });
        };
        let tcp = |address: Ipv4Addr, port: u16, name: &str| {
            let answered = || call_tcp(address, port, "hello").is_ok_and(|line| line.contains(name));
            eventually(&format!("a line of {name}"), answered).unwrap();
        };
        for (port, name) in
            [(10001, "main"), (10002, "numeric"), (10003, "dotted"), (10004, "letter"), (10006, "six")]
        {
            http((self.caller, port).into(), name);
        }
        tcp(self.caller, 10005, "queue");
        for (port, name) in
            [(10001, "peer-1"), (10004, "outside"), (10005, "peer-1"), (10006, "peer-1"), (10007, "main")]
        {
            http((self.address, port).into(), name);
        }
        tcp(self.address, 10003, "ledger-1");
        tcp(self.address, 10008, "queue");
        http(format!("[::1]:{}", self.ports[1]).parse().unwrap(), "numeric");
    }
}

/// Every name in use is in the table, and everything in the table is in use.
#[track_caller]
fn check_names(proxy: &RunningProxy, rows: &[(&str, ListenerNames)], mode: Mode) -> Live {
    let live = Live::of(proxy);
    for (what, row) in rows {
        assert!(live.rows.contains(row), "{mode:?}, {what}: no {row:#?}\namong {:#?}", live.rows);
    }
    assert_eq!(live.rows.len(), rows.len(), "{mode:?}: more than the table has: {:#?}", live.rows);
    let all = |pick: fn(&ListenerNames) -> &String| -> BTreeSet<String> {
        rows.iter().map(|(_, row)| pick(row)).filter(|name| *name != NOTHING).cloned().collect()
    };
    let bootstrap = BOOTSTRAP.map(|pair| mode.of(pair).to_owned());
    let mut clusters = all(|row| &row.cluster);
    clusters.extend(bootstrap.clone());
    assert_eq!(live.clusters, clusters, "{mode:?}: clusters");
    assert_eq!(live.endpoints, all(|row| &row.cluster), "{mode:?}: endpoints");
    let routes = rows.iter().map(|(_, row)| (row.route_configuration.clone(), row.virtual_host.clone()));
    assert_eq!(live.routes, routes.filter(|(name, _)| name != NOTHING).collect(), "{mode:?}: routes");
    assert_eq!(live.secrets, SECRETS.iter().map(|pair| mode.of(*pair).to_owned()).collect(), "{mode:?}");

    let mut in_stats = all(|row| &row.cluster_stats);
    in_stats.extend(bootstrap);
    assert_eq!(live.names_in("cluster.", ".membership_total"), in_stats, "{mode:?}: statistics of clusters");
    // Envoy's own admin interface is there in any case.
    let mut listeners = all(|row| &row.listener_stats);
    listeners.insert("admin".to_owned());
    assert_eq!(live.names_in("listener.", ".no_filter_chain_match"), listeners, "{mode:?}: of listeners");
    for (family, statistic, own) in
        [("http", "downstream_cx_destroy", Some("admin")), ("tcp", "downstream_cx_no_route", None)]
    {
        let filters = rows.iter().filter_map(|(_, row)| row.filter.strip_prefix(family)?.strip_prefix(' '));
        let expect: BTreeSet<String> = filters.chain(own).map(str::to_owned).collect();
        let names = live.names_in(&format!("{family}."), &format!(".{statistic}"));
        assert_eq!(names, expect, "{mode:?}: statistics of {family}");
    }
    live
}

fn features(world: &World, proxy: &str, wanted: Option<&str>) {
    let is_unified = |feature: &Value| feature.as_str().is_some_and(|name| name.contains("unified"));
    world.insight(proxy, |insight| {
        let features = insight["metadata"]["features"].as_array();
        features.is_some_and(|features| {
            features.iter().find(|it| is_unified(it)).and_then(Value::as_str) == wanted
        })
    });
}

#[test]
fn every_name_of_a_proxy_is_the_one_of_its_naming_mode() {
    let scene = Scene::set();
    // Names do not depend on how changes are sent to Envoy.
    let everything = ("KUMA_DATAPLANE_RUNTIME_ENVOY_XDS_TRANSPORT_PROTOCOL_VARIANT", "GRPC");
    let modes = [
        (Mode::Legacy, &[][..], None),
        (Mode::Unified, &[UNIFIED][..], Some("feature-unified-proxy-resources-and-stats-naming")),
        (
            Mode::Unified,
            &[UNIFIED_ALIAS, everything][..],
            Some("feature-unified-proxy-resources-and-stats-naming"),
        ),
        (Mode::Legacy, &[][..], None),
    ];
    for (mode, variables, feature) in modes {
        let mut proxy = scene.world.proxy_with(&scene.subject, variables);
        scene.call_everything();
        let row = |case: &Case| (case.what, expected(case, mode, scene.address, scene.ports));
        let rows: Vec<_> = TABLE.iter().map(row).collect();
        let live = check_names(&proxy, &rows, mode);
        for (what, row) in rows.iter().filter(|(what, _)| !what.contains("admin")) {
            for counter in row.counters() {
                let count = live.stats.get(&counter);
                assert!(count.is_some_and(|count| *count > 0), "{mode:?}, {what}: {counter} is {count:?}");
            }
        }
        features(&scene.world, "subject", feature);
        proxy.terminate().unwrap();
        assert!(proxy.ended().unwrap().success());
    }
}

#[test]
fn passthrough_is_named_by_version_and_direction() {
    let world = World::start(Setup::default());
    let address = own_address();
    let ports = ports_with_ipv6();
    let mut own = dataplane("redirected", "redirected", address, "http", (own_address(), 9001).into());
    own["networking"]["transparentProxying"] =
        json!({"redirectPortInbound": ports[0], "redirectPortOutbound": ports[1]});
    for (mode, variables) in [(Mode::Legacy, &[][..]), (Mode::Unified, &[UNIFIED][..])] {
        let proxy = world.proxy_with(&own, variables);
        let row = |case: &Case| (case.what, expected(case, mode, address, ports));
        let rows: Vec<_> = PASSTHROUGH.iter().map(row).collect();
        let live = Live::of(&proxy);
        for (what, row) in &rows {
            assert!(live.rows.contains(row), "{mode:?}, {what}: no {row:#?}\namong {:#?}", live.rows);
            for counter in row.counters() {
                assert!(live.stats.contains_key(&counter), "{mode:?}, {what}: no {counter}");
            }
        }
        let is_passthrough = |row: &&ListenerNames| row.listener.contains("passthrough");
        assert_eq!(live.rows.iter().filter(is_passthrough).count(), rows.len(), "{:#?}", live.rows);
        let heard = call_tcp(Ipv4Addr::LOCALHOST, ports[0], "hello").unwrap_or_default();
        let name = mode.of(("inbound_passthrough_ipv4", "self_passthrough_ipv4_inbound"));
        let refused = format!("cluster.{name}.upstream_cx_none_healthy");
        assert_eq!((heard.as_str(), Live::of(&proxy).stats.get(&refused)), ("", Some(&1)), "{mode:?}");
    }
}

#[test]
fn an_agent_that_redirects_traffic_needs_no_word_of_it_in_the_dataplane() {
    let world = World::start(Setup::default());
    let address = own_address();
    let ports = ports_with_ipv6();
    let own = dataplane("redirected", "redirected", address, "http", (own_address(), 9001).into());
    let redirect =
        json!({"redirect": {"inbound": {"port": ports[0]}, "outbound": {"port": ports[1]}}}).to_string();
    let variable = ("KUMA_DATAPLANE_RUNTIME_TRANSPARENT_PROXY_CONFIG", redirect.as_str());
    let proxy = world.proxy_with(&own, &[UNIFIED, variable]);
    let live = Live::of(&proxy);
    for case in PASSTHROUGH {
        let row = expected(case, Mode::Unified, address, ports);
        assert!(live.rows.contains(&row), "{}: no {row:#?}\namong {:#?}", case.what, live.rows);
    }
}

#[test]
fn routes_are_named_by_the_policy_they_come_from() {
    let world = World::start(Setup::default());
    let _servers = [world.service("web-1", "web", "http"), world.service("canary-1", "canary", "http")];
    let web = json!({"kind": "MeshService", "name": "web"});
    let canary = json!({"kind": "MeshService", "name": "canary", "port": 8080});
    let rule = json!({
        "matches": [{"path": {"type": "PathPrefix", "value": "/canary"}}],
        "default": {"backendRefs": [canary]}
    });
    let route = json!({"type": "MeshHTTPRoute", "mesh": "default", "name": "canary", "spec": {
        "targetRef": {"kind": "Mesh"}, "to": [{"targetRef": web, "rules": [rule]}]}});
    world.put("/meshes/default/meshhttproutes/canary", &route);
    for (name, variables, expect) in [
        ("older", &[][..], "kri_mhttpr_default_default__canary_"),
        ("newer", &[UNIFIED][..], "kri_mhttpr_default_default__canary_rule_0"),
    ] {
        let (proxy, address) = client_with(&world, name, &[by_reference("web")], variables);
        assert_eq!(answered_by(address, 10001), "web-1");
        let client = e2e::Client::new(format!("http://{address}:10001"));
        let routed = || client.get("/canary").is_ok_and(|answer| answer.json()["name"] == "canary-1");
        eventually("the route to be taken", routed).unwrap();
        let names: Vec<_> = Live::of(&proxy).route_names.into_iter().collect();
        // What is left of a destination after its routes has a name of its own, the same in both schemes.
        assert_eq!(names, ["9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=", expect], "{name}");
    }
}
