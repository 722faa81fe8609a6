//! Whatever a proxy is called in its layout, it is called in its configuration.

use api::{Inspect, InspectError};
use plan::ProxyTraits;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};

use super::Inspected;
use crate::world::{resource, service, traits};

const UNIFIED: &str = "feature-unified-proxy-resources-and-stats-naming";

/// A mesh in which every service is a resource; `mode` is that of its mutual TLS, or empty for none.
pub fn exclusive(mode: &str) -> Resource {
    let mut spec = json!({ "meshServices": { "mode": "Exclusive" } });
    if !mode.is_empty() {
        let backend = json!({ "name": "ca-1", "type": "builtin", "mode": mode });
        spec["mtls"] = json!({ "enabledBackend": "ca-1", "backends": [backend] });
    }
    resource(Key::global(Kind::Mesh, "default"), &[], spec)
}

fn web() -> Key {
    Key::new(Kind::Dataplane, "default", "web")
}

fn of_mesh(kind: Kind, name: &str, spec: Value) -> Resource {
    resource(Key::new(kind, "default", name), &[("kuma.io/zone", "default")], spec)
}

/// Every shape of inbound and outbound that is named differently.
fn everything() -> Vec<Resource> {
    let inbound = |port: u32, name: &str, protocol: &str, more: Value| {
        let mut inbound = json!({ "port": port, "tags": {
            "kuma.io/service": format!("web-{port}"), "kuma.io/protocol": protocol,
        } });
        if !name.is_empty() {
            inbound["name"] = name.into();
        }
        for (field, value) in more.as_object().unwrap() {
            inbound[field] = value.clone();
        }
        inbound
    };
    let backend = |port: u32, kind: &str, name: &str, of: u32| json!({ "port": port, "backendRef": { "kind": kind, "name": name, "port": of } });
    let networking = json!({
        "address": "127.0.0.2",
        "inbound": [
            inbound(8080, "http-main", "http", json!({})),
            inbound(80, "", "tcp", json!({})),
            inbound(81, "backend-kumahq.com", "http", json!({})),
            inbound(82, "a", "grpc", json!({})),
            inbound(83, "", "http2", json!({ "servicePort": 9083 })),
            inbound(84, "", "http", json!({ "address": "::1" })),
        ],
        "outbound": [
            backend(10_001, "MeshService", "backend", 80),
            backend(10_002, "MeshService", "backend", 81),
            backend(10_003, "MeshService", "backend", 82),
            backend(10_004, "MeshExternalService", "example", 443),
            backend(10_007, "MeshMultiZoneService", "everywhere", 80),
            { "port": 10_005, "tags": { "kuma.io/service": "old.one" } },
            { "port": 10_006, "address": "::1", "tags": { "kuma.io/service": "old", "version": "2" } },
        ],
    });
    let ports = json!([
        { "name": "main-port", "port": 80, "targetPort": 80, "appProtocol": "http" },
        { "name": "x", "port": 81, "targetPort": 81, "appProtocol": "tcp" },
        { "port": 82, "targetPort": 82, "appProtocol": "http2" },
    ]);
    let external = json!({
        "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tcp" },
        "endpoints": [{ "address": "192.0.2.9", "port": 443 }],
    });
    vec![
        of_mesh(Kind::Dataplane, "web", json!({ "networking": networking })),
        of_mesh(
            Kind::MeshService,
            "backend",
            json!({ "selector": { "dataplaneTags": { "kuma.io/service": "backend" } }, "ports": ports }),
        ),
        of_mesh(Kind::MeshExternalService, "example", external),
        resource(
            Key::new(Kind::MeshMultiZoneService, "default", "everywhere"),
            &[],
            json!({
                "selector": { "meshService": { "matchLabels": { "kuma.io/zone": "default" } } },
                "ports": [{ "port": 80, "appProtocol": "http" }],
            }),
        ),
    ]
}

/// Layout and configuration of a proxy that is connected with these traits.
async fn both(inspected: &Inspected, traits: ProxyTraits) -> (Value, Value) {
    let _connected = inspected.world.push.connect(traits);
    let layout = inspected.proxies.layout(&web()).await.unwrap();
    let config = inspected.proxies.config(&web(), false).await.unwrap().xds;
    (serde_json::to_value(layout).unwrap(), config)
}

fn of_type<'a>(config: &'a Value, kind: &str) -> &'a Value {
    &config[format!("type.googleapis.com/envoy.config.{}.v3.{kind}", kind.to_lowercase())]
}

/// Every value of a field of messages of a type, however deep they are.
fn fields<'a>(value: &'a Value, of: &str, field: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            if object.get("@type").and_then(Value::as_str).is_some_and(|t| t.ends_with(of)) {
                found.extend(value.pointer(field).and_then(Value::as_str));
            }
            object.values().for_each(|inside| fields(inside, of, field, found));
        }
        Value::Array(items) => items.iter().for_each(|inside| fields(inside, of, field, found)),
        _ => {}
    }
}

fn all<'a>(value: &'a Value, of: &str, field: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    fields(value, of, field, &mut found);
    found.dedup();
    found
}

/// The names of one item are those of its listener, cluster and filters.
fn check_item(item: &Value, config: &Value) {
    let names = &item["proxyResources"];
    let stats = &names["stats"];
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{item:#}")).to_owned();
    let listener = &of_type(config, "Listener")[text(&names["listener"])];
    assert!(listener.is_object(), "no listener for {item:#}");
    let address = &listener["address"]["socketAddress"];
    let by_address = format!("{}_{}", text(&address["address"]), address["portValue"]);
    let in_stats = listener["statPrefix"].as_str().map_or_else(
        || match by_address.rsplit_once('_').filter(|(address, _)| address.contains(':')) {
            Some((address, port)) => format!("[{}]_{port}", address.replace(':', "_")),
            None => by_address.clone(),
        },
        str::to_owned,
    );
    assert_eq!(stats["listener"], in_stats, "{item:#}");
    let cluster = &of_type(config, "Cluster")[text(&names["cluster"])];
    assert!(cluster.is_object(), "no cluster for {item:#}");
    assert_eq!(stats["cluster"], *cluster.get("altStatName").unwrap_or(&cluster["name"]), "{item:#}");
    let is_http = names.get("routeConfiguration").is_some();
    let filter = if is_http { "v3.HttpConnectionManager" } else { "v3.TcpProxy" };
    assert_eq!(all(listener, filter, "/statPrefix"), [text(&stats["filter"])], "{item:#}");
    let rbac: Vec<&str> = [
        all(listener, "http.rbac.v3.RBAC", "/rulesStatPrefix"),
        all(listener, "network.rbac.v3.RBAC", "/statPrefix"),
    ]
    .concat();
    let expect: Vec<String> =
        stats["permissions"].as_str().map(|name| format!("{name}.")).into_iter().collect();
    assert_eq!(rbac, expect, "{item:#}");
    if is_http {
        let routes = all(listener, filter, "/routeConfig/name");
        assert_eq!(routes, [text(&names["routeConfiguration"])], "{item:#}");
        let hosts = all(listener, filter, "/routeConfig/virtualHosts/0/name");
        assert_eq!(hosts, [text(&names["virtualHost"])], "{item:#}");
    } else {
        assert_eq!(
            (names.get("virtualHost"), all(listener, "v3.HttpConnectionManager", "/statPrefix").len()),
            (None, 0)
        );
    }
}

/// Checks that the parts of a resource are named like its cluster.
fn check_named_item(item: &Value, config: &Value) {
    check_item(item, config);
    assert_eq!(item["proxyResourceName"], item["proxyResources"]["cluster"]);
}

/// Passthrough is called like its listener, which leads to its cluster and nowhere else.
fn check_passthrough(item: &Value, config: &Value) {
    check_item(item, config);
    let names = &item["proxyResources"];
    assert_eq!(item["proxyResourceName"], names["listener"]);
    let listener = &of_type(config, "Listener")[names["listener"].as_str().unwrap()];
    assert_eq!(all(listener, "v3.TcpProxy", "/cluster"), [names["cluster"].as_str().unwrap()], "{item:#}");
}

fn items(layout: &Value) -> impl Iterator<Item = &Value> {
    ["inbounds", "outbounds"].into_iter().flat_map(|part| layout[part].as_array().unwrap())
}

/// Identifier, port, protocol and name of each item.
fn rows(layout: &Value) -> Vec<(&str, u64, &str, &str)> {
    fn text<'a>(item: &'a Value, field: &str) -> &'a str {
        item[field].as_str().unwrap()
    }
    fn row(item: &Value) -> (&str, u64, &str, &str) {
        let port = item["port"].as_u64().unwrap();
        (text(item, "kri"), port, text(item, "protocol"), text(item, "proxyResourceName"))
    }
    items(layout).map(row).collect()
}

#[tokio::test]
async fn with_unified_naming_everything_has_the_name_of_the_layout() {
    let inspected = Inspected::new().await;
    inspected.world.put(everything().into_iter().chain([exclusive("STRICT")])).await;
    let (layout, config) =
        both(&inspected, ProxyTraits { unified_naming: true, ..traits("default", "web") }).await;
    assert_eq!(
        rows(&layout),
        [
            ("kri_dp_default_default__web_http-main", 8080, "http", "self_http-main"),
            ("kri_dp_default_default__web_80", 80, "tcp", "self_80"),
            ("kri_dp_default_default__web_backend-kumahq.com", 81, "http", "self_backend-kumahq.com"),
            ("kri_dp_default_default__web_a", 82, "grpc", "self_a"),
            ("kri_dp_default_default__web_83", 83, "http2", "self_83"),
            ("kri_dp_default_default__web_84", 84, "http", "self_84"),
            ("", 10_006, "tcp", "old-13ae3516def19705"),
            ("", 10_005, "tcp", "old.one"),
            (
                "kri_extsvc_default_default__example_443",
                443,
                "tcp",
                "kri_extsvc_default_default__example_443"
            ),
            ("kri_msvc_default_default__backend_82", 82, "http2", "kri_msvc_default_default__backend_82"),
            (
                "kri_msvc_default_default__backend_main-port",
                80,
                "http",
                "kri_msvc_default_default__backend_main-port"
            ),
            ("kri_msvc_default_default__backend_x", 81, "tcp", "kri_msvc_default_default__backend_x"),
            ("kri_mzsvc_default___everywhere_80", 80, "http", "kri_mzsvc_default___everywhere_80"),
        ]
    );
    for item in items(&layout) {
        check_named_item(item, &config);
        let mut names = Vec::new();
        texts(&item["proxyResources"], &mut names);
        if item["kri"] != "" {
            assert!(names.iter().all(|name| *name == item["proxyResourceName"]), "{item:#}");
        }
    }
    // Secrets are there by name, with nothing in them: a chain, its key, and authorities.
    let secrets = &config["type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"];
    let names: Vec<&String> = secrets.as_object().unwrap().keys().collect();
    assert_eq!(names, ["system_mtls_ca_default", "system_mtls_identity_default"]);
    assert_eq!(secrets.to_string().matches("W3JlZGFjdGVkXQ==").count(), 3, "{secrets}");
    assert_eq!(layout["spiffeId"], "spiffe://default/web-80");
    assert_eq!((&layout["listeners"], &layout["passthrough"]), (&json!([]), &json!([])));
    assert_eq!(layout["labels"], json!({ "kuma.io/zone": "default" }));
    assert_eq!(layout["kri"], "kri_dp_default_default__web_");
}

#[tokio::test]
async fn a_dataplane_without_redirection_and_outbounds_shows_all_as_in_kuma() {
    let inspected = Inspected::new().await;
    let inbound = json!({ "port": 80, "tags": { "kuma.io/service": "web" } });
    let networking = json!({ "address": "127.0.0.2", "inbound": [inbound] });
    let mut resources = everything();
    resources[0] = of_mesh(Kind::Dataplane, "web", json!({ "networking": networking }));
    inspected.world.put(resources.clone().into_iter().chain([exclusive("")])).await;
    let shown = |layout: &Value| -> Vec<(String, u64, String)> {
        let outbounds = layout["outbounds"].as_array().unwrap();
        assert!(
            outbounds.iter().all(|item| item.get("proxyResources").is_none()),
            "the proxy has none of them"
        );
        let text = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
        assert!(outbounds.iter().all(|item| item["proxyResourceName"] == item["kri"]));
        outbounds
            .iter()
            .map(|it| (text(it, "kri"), it["port"].as_u64().unwrap(), text(it, "protocol")))
            .collect()
    };
    let (layout, config) = both(&inspected, traits("default", "web")).await;
    let expected = [
        ("kri_extsvc_default_default__example_443", 443, "tcp"),
        ("kri_msvc_default_default__backend_82", 82, "http2"),
        ("kri_msvc_default_default__backend_main-port", 80, "http"),
        ("kri_msvc_default_default__backend_x", 81, "tcp"),
        ("kri_mzsvc_default___everywhere_80", 80, "http"),
    ];
    assert_eq!(shown(&layout), expected.map(|(kri, port, word)| (kri.to_owned(), port, word.to_owned())));
    assert_eq!(of_type(&config, "Cluster").as_object().unwrap().len(), 1, "its inbound's: {config:#}");

    // With redirection it shows what it can reach: nothing here has an address.
    let redirect = json!({ "redirectPortInbound": 15006, "redirectPortOutbound": 15001 });
    let mut redirected = networking;
    redirected["transparentProxying"] = redirect;
    resources[0] = of_mesh(Kind::Dataplane, "web", json!({ "networking": redirected }));
    inspected.world.put(resources.into_iter().chain([exclusive("")])).await;
    let (layout, _) = both(&inspected, traits("default", "web")).await;
    assert_eq!(shown(&layout), []);
}

fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Object(fields) => fields.values().for_each(|value| texts(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn with_older_names_the_layout_tells_what_each_part_is_called() {
    let inspected = Inspected::new().await;
    for mode in ["STRICT", ""] {
        inspected.world.put(everything().into_iter().chain([exclusive(mode)])).await;
        let (layout, config) = both(&inspected, traits("default", "web")).await;
        items(&layout).for_each(|item| check_named_item(item, &config));
        let inbound = &layout["inbounds"][4];
        let mut stats =
            json!({ "listener": "127.0.0.2_83", "cluster": "localhost_9083", "filter": "localhost_9083" });
        if !mode.is_empty() {
            stats["permissions"] = "inbound_127_0_0_2_83".into();
        }
        let names = json!({
            "listener": "inbound:127.0.0.2:83",
            "cluster": "localhost:9083",
            "routeConfiguration": "inbound:web-83",
            "virtualHost": "web-83",
            "stats": stats,
        });
        assert_eq!(
            (&inbound["proxyResourceName"], &inbound["proxyResources"]),
            (&json!("localhost:9083"), &names)
        );
        assert_eq!(layout.get("spiffeId").is_some(), !mode.is_empty());
    }
}

#[tokio::test]
async fn what_has_no_routes_has_no_names_of_routes() {
    let inspected = Inspected::new().await;
    inspected.world.put(everything().into_iter().chain([exclusive("STRICT")])).await;
    let named = |layout: &Value| -> Vec<String> {
        let with_routes =
            items(layout).filter(|item| item["proxyResources"].get("routeConfiguration").is_some());
        with_routes.map(|item| item["kri"].as_str().unwrap().rsplit('_').next().unwrap().to_owned()).collect()
    };
    let unified = || ProxyTraits { unified_naming: true, ..traits("default", "web") };
    let (layout, _) = both(&inspected, unified()).await;
    let inbounds = ["http-main", "backend-kumahq.com", "a", "83", "84"];
    assert_eq!(named(&layout), [&inbounds[..], &["82", "main-port", "80"]].concat());
    // Connections to the service are spread whatever they carry.
    let reference = json!({ "kind": "MeshService", "name": "backend" });
    let rule =
        json!({ "default": { "backendRefs": [{ "kind": "MeshService", "name": "backend", "port": 81 }] } });
    let spec = json!({ "to": [{ "targetRef": reference, "rules": [rule] }] });
    inspected.world.put([of_mesh(Kind::MeshTCPRoute, "spread", spec)]).await;
    let (layout, config) = both(&inspected, unified()).await;
    assert_eq!(named(&layout), [&inbounds[..], &["80"]].concat());
    items(&layout).for_each(|item| check_named_item(item, &config));
}

#[tokio::test]
async fn passthrough_is_listed_with_its_names() {
    let inspected = Inspected::new().await;
    let redirect = json!({ "redirectPortInbound": 15006, "redirectPortOutbound": 15001 });
    let networking = json!({ "address": "127.0.0.2", "transparentProxying": redirect });
    inspected
        .world
        .put([exclusive(""), of_mesh(Kind::Dataplane, "web", json!({ "networking": networking }))])
        .await;
    for (unified_naming, expect) in [
        (
            true,
            [
                "self_passthrough_ipv4_outbound",
                "self_passthrough_ipv6_outbound",
                "self_passthrough_ipv4_inbound",
                "self_passthrough_ipv6_inbound",
            ],
        ),
        (
            false,
            [
                "outbound:passthrough:ipv4",
                "outbound:passthrough:ipv6",
                "inbound:passthrough:ipv4",
                "inbound:passthrough:ipv6",
            ],
        ),
    ] {
        let traits = ProxyTraits { unified_naming, ipv6: true, ..traits("default", "web") };
        let (layout, config) = both(&inspected, traits).await;
        let passthrough = layout["passthrough"].as_array().unwrap();
        let names: Vec<&str> = passthrough.iter().map(|p| p["proxyResourceName"].as_str().unwrap()).collect();
        assert_eq!(names, expect);
        for item in passthrough {
            check_passthrough(item, &config);
            assert_eq!(item["proxyResourceName"], item["proxyResources"]["cluster"]);
            assert_eq!(item["allowed"], true);
        }
        assert_eq!(
            (&passthrough[0]["direction"], &passthrough[0]["port"]),
            (&json!("outbound"), &json!(15001))
        );
    }
}

#[tokio::test]
async fn refused_passthrough_is_listed_with_the_cluster_where_it_ends() {
    let inspected = Inspected::new().await;
    let networking = json!({
        "address": "127.0.0.2",
        "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }],
        "transparentProxying": { "redirectPortInbound": 15006, "redirectPortOutbound": 15001 },
    });
    let web = of_mesh(Kind::Dataplane, "web", json!({ "networking": networking }));
    inspected.world.put([exclusive("STRICT"), web]).await;
    for (unified_naming, listeners) in [
        (true, ["self_passthrough_ipv4_inbound", "self_passthrough_ipv6_inbound"]),
        (false, ["inbound:passthrough:ipv4", "inbound:passthrough:ipv6"]),
    ] {
        let traits = ProxyTraits {
            unified_naming,
            ipv6: true,
            strict_inbound_ports: true,
            ..traits("default", "web")
        };
        let (layout, config) = both(&inspected, traits).await;
        let inbound: Vec<_> = layout["passthrough"].as_array().unwrap()[2..].iter().collect();
        for (item, listener) in inbound.into_iter().zip(listeners) {
            check_passthrough(item, &config);
            assert_eq!((&item["allowed"], &item["proxyResourceName"]), (&json!(false), &json!(listener)));
            let names = &item["proxyResources"];
            assert_eq!(names["listener"], listener);
            assert_eq!(names["cluster"], listener);
        }
    }
}

#[tokio::test]
async fn a_proxy_that_is_away_is_shown_as_it_last_was() {
    let inspected = Inspected::new().await;
    inspected.world.put(everything().into_iter().chain([exclusive("STRICT")])).await;
    let name = async || {
        let layout = inspected.proxies.layout(&web()).await.unwrap();
        layout.inbounds[0].proxy_resource_name.clone()
    };
    assert_eq!(name().await, "localhost:8080");
    let insight = json!({ "metadata": { "features": [UNIFIED] } });
    inspected.world.put([of_mesh(Kind::DataplaneInsight, "web", insight)]).await;
    assert_eq!(name().await, "self_http-main");
    // What it says now counts more than what it said.
    let _connected = inspected.world.push.connect(traits("default", "web"));
    assert_eq!(name().await, "localhost:8080");
}

#[tokio::test]
async fn what_cannot_be_done_is_told_with_the_rest() {
    let inspected = Inspected::new().await;
    let outbound =
        json!({ "port": 10_001, "backendRef": { "kind": "MeshService", "name": "none", "port": 80 } });
    let networking = json!({ "address": "127.0.0.2", "outbound": [outbound] });
    inspected
        .world
        .put([exclusive(""), of_mesh(Kind::Dataplane, "web", json!({ "networking": networking }))])
        .await;
    let layout = inspected.proxies.layout(&web()).await.unwrap();
    assert!(layout.outbounds.is_empty());
    assert!(layout.problems[0].contains("there is no destination"), "{:?}", layout.problems);
    let missing = Key::new(Kind::Dataplane, "default", "none");
    assert_eq!(inspected.proxies.layout(&missing).await, Err(InspectError::Missing(missing)));
    // A service that comes later is there at the next look.
    inspected.world.put([service("default", "none", &[])]).await;
    assert_eq!(
        inspected.proxies.layout(&web()).await.unwrap().outbounds[0].kri,
        "kri_msvc_default___none_80"
    );
}

#[tokio::test]
async fn a_proxy_that_is_connected_twice_is_what_it_said_last() {
    let inspected = Inspected::new().await;
    inspected.world.put(everything().into_iter().chain([exclusive("")])).await;
    let name =
        async || inspected.proxies.layout(&web()).await.unwrap().inbounds[0].proxy_resource_name.clone();
    let unified = ProxyTraits { unified_naming: true, ..traits("default", "web") };
    for (first, then, expect) in [
        (traits("default", "web"), unified.clone(), ["localhost:8080", "self_http-main"]),
        (unified, traits("default", "web"), ["self_http-main", "localhost:8080"]),
    ] {
        let [before, after] = expect;
        let _old = inspected.world.push.connect(first);
        assert_eq!(name().await, before);
        let newer = inspected.world.push.connect(then);
        assert_eq!(name().await, after);
        drop(newer);
        assert_eq!(name().await, before);
    }
}
