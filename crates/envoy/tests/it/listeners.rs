//! Listeners where connections arrive, and their treatment.

use std::sync::Arc;

use envoy::Encoder;
use plan::{AdminTls, ProxyTraits};
use serde_json::{Value, json};
use xds::Type;

use crate::{
    support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web},
    view::{check, shown, target},
};

fn inbound(mesh: &str, protocol: &str) -> Value {
    let web = web(&format!(
        "inbound: [{{ name: main, port: 80, tags: {{ kuma.io/service: web, kuma.io/protocol: {protocol} }} }}]"
    ));
    shown(&target(&[mesh, &web], &unified("web")), Type::Listener, "self_main")
}

fn filter_names(chain: &Value) -> Vec<&str> {
    let network = chain["filters"].as_array().unwrap().iter();
    network.map(|filter| filter["name"].as_str().unwrap()).collect()
}

fn http_filter_names(chain: &Value) -> Vec<String> {
    let filters = chain["filters"].as_array().unwrap().last().unwrap();
    let filters = filters["typedConfig"]["httpFilters"].as_array().unwrap();
    filters.iter().map(|filter| filter["name"].as_str().unwrap().to_owned()).collect()
}

const MANAGER: &str = "/filterChains/0/filters/0/typedConfig";

#[test]
fn an_inbound_takes_requests_for_the_application() {
    let manager = |pointer: &str| format!("{MANAGER}{pointer}");
    check(
        &inbound(PLAIN, "http"),
        &[
            ("/address/socketAddress", json!({"address": "127.0.0.2", "portValue": 80})),
            ("/trafficDirection", json!("INBOUND")),
            ("/bindToPort", Value::Null),
            ("/enableReusePort", json!(true)),
            (
                "/metadata/filterMetadata",
                json!({"io.kuma.tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}),
            ),
            (&manager("/statPrefix"), json!("self_main")),
            (&manager("/forwardClientCertDetails"), json!("SANITIZE_SET")),
            (&manager("/setCurrentClientCertDetails"), json!({"uri": true})),
            (&manager("/streamIdleTimeout"), json!("3600s")),
            (&manager("/commonHttpProtocolOptions/idleTimeout"), json!("0s")),
            (&manager("/requestHeadersTimeout"), json!("0s")),
            (&manager("/normalizePath"), Value::Null),
            (
                &manager("/internalAddressConfig/cidrRanges"),
                json!([
                    {"addressPrefix": "10.0.0.0", "prefixLen": 8},
                    {"addressPrefix": "192.168.0.0", "prefixLen": 16},
                    {"addressPrefix": "172.16.0.0", "prefixLen": 12},
                    {"addressPrefix": "fc00::", "prefixLen": 7},
                    {"addressPrefix": "fd00::", "prefixLen": 8},
                    {"addressPrefix": "127.0.0.1", "prefixLen": 32},
                    {"addressPrefix": "::1", "prefixLen": 128},
                ]),
            ),
            (
                &manager("/routeConfig"),
                json!({
                    "name": "self_main",
                    "requestHeadersToRemove": ["x-kuma-tags"],
                    "validateClusters": false,
                    "virtualHosts": [{"name": "self_main", "domains": ["*"], "routes": [{
                        "match": {"prefix": "/"},
                        "route": {"cluster": "self_main", "timeout": "15s", "idleTimeout": "1800s"},
                    }]}],
                }),
            ),
        ],
    );
    check(
        &inbound(PLAIN, "tcp"),
        &[(
            MANAGER,
            json!({
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "statPrefix": "self_main", "cluster": "self_main", "idleTimeout": "3600s",
            }),
        )],
    );
}

#[test]
fn filters_stand_in_the_order_of_their_meaning() {
    let http = |mesh, protocol| http_filter_names(&inbound(mesh, protocol)["filterChains"][0]);
    assert_eq!(http(PLAIN, "http"), ["envoy.filters.http.router"]);
    assert_eq!(http(SECURED, "http2"), ["envoy.filters.http.rbac", "envoy.filters.http.router"]);
    assert_eq!(
        http(SECURED, "grpc"),
        ["envoy.filters.http.rbac", "envoy.filters.http.grpc_stats", "envoy.filters.http.router"]
    );
    let secured = inbound(SECURED, "tcp");
    let expected = ["envoy.filters.network.rbac", "envoy.filters.network.tcp_proxy"];
    assert_eq!(filter_names(&secured["filterChains"][0]), expected);
}

#[test]
fn requests_to_a_kafka_broker_are_counted_by_a_proxy_that_can() {
    let web =
        web("inbound: [{ name: main, port: 80, servicePort: 9092, tags: { kuma.io/protocol: kafka } }]");
    let filters = |traits: &ProxyTraits| {
        let listener = shown(&target(&[SECURED, &web], traits), Type::Listener, "inbound:127.0.0.2:80");
        listener["filterChains"][0]["filters"].clone()
    };
    let usual = filters(&traits("web"));
    let able = filters(&ProxyTraits { kafka_filter: true, ..traits("web") });
    assert_eq!(usual.as_array().unwrap().len(), 2);
    assert_eq!((&able[0], &able[2]), (&usual[0], &usual[1]));
    let kafka = "envoy.extensions.filters.network.kafka_broker.v3.KafkaBroker";
    assert_eq!(
        able[1],
        json!({
            "name": "envoy.filters.network.kafka_broker",
            "typedConfig": {"@type": format!("type.googleapis.com/{kafka}"), "statPrefix": "localhost_9092"},
        })
    );
}

#[test]
fn strict_inbounds_take_only_clients_of_the_mesh() {
    let secret = |name: &str| json!({"name": name, "sdsConfig": {"ads": {}, "resourceApiVersion": "V3"}});
    let secured = inbound(SECURED, "http");
    assert_eq!(secured["filterChains"].as_array().unwrap().len(), 1);
    check(
        &secured,
        &[
            ("/listenerFilters", Value::Null),
            ("/filterChains/0/filterChainMatch", Value::Null),
            ("/filterChains/0/transportSocket/name", json!("envoy.transport_sockets.tls")),
            (
                "/filterChains/0/transportSocket/typedConfig",
                json!({
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                    "requireClientCertificate": true,
                    "commonTlsContext": {
                        "tlsCertificateSdsSecretConfigs": [secret("system_mtls_identity_default")],
                        "combinedValidationContext": {
                            "defaultValidationContext": {"matchTypedSubjectAltNames": [
                                {"sanType": "URI", "matcher": {"prefix": "spiffe://default/"}}
                            ]},
                            "validationContextSdsSecretConfig": secret("system_mtls_ca_default"),
                        },
                    },
                }),
            ),
        ],
    );
}

#[test]
fn permissive_inbounds_tell_three_kinds_of_clients_apart() {
    let permissive = SECURED.replace("type: builtin", "type: builtin, mode: PERMISSIVE");
    let listener = inbound(&permissive, "http");
    check(
        &listener,
        &[
            ("/listenerFilters/0/name", json!("envoy.filters.listener.tls_inspector")),
            ("/filterChains/0/filterChainMatch", json!({"transportProtocol": "raw_buffer"})),
            ("/filterChains/0/transportSocket", Value::Null),
            ("/filterChains/1/filterChainMatch", json!({"transportProtocol": "tls"})),
            ("/filterChains/1/transportSocket", Value::Null),
            (
                "/filterChains/2/filterChainMatch",
                json!({"transportProtocol": "tls", "applicationProtocols": ["kuma"]}),
            ),
            ("/filterChains/2/transportSocket/name", json!("envoy.transport_sockets.tls")),
            ("/filterChains/3", Value::Null),
        ],
    );
    let chains = &listener["filterChains"];
    assert_eq!(http_filter_names(&chains[0]), ["envoy.filters.http.router"]);
    assert_eq!(filter_names(&chains[1]), ["envoy.filters.network.tcp_proxy"]);
    assert_eq!(http_filter_names(&chains[2]), ["envoy.filters.http.rbac", "envoy.filters.http.router"]);
}

#[test]
fn an_outbound_offers_a_destination() {
    let web = web("outbound:\n\
         - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
         - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
         - { port: 10003, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
         - { port: 10004, tags: { kuma.io/service: backend, version: v1 } }\n");
    let target = target(&[SECURED, BACKEND, &web], &unified("web"));
    let name = "kri_msvc_default_east__backend_http";
    let manager = |pointer: &str| format!("{MANAGER}{pointer}");
    check(
        &shown(&target, Type::Listener, name),
        &[
            ("/statPrefix", json!(name)),
            ("/trafficDirection", json!("OUTBOUND")),
            ("/enableReusePort", Value::Null),
            ("/address/socketAddress", json!({"address": "127.0.0.1", "portValue": 10001})),
            ("/additionalAddresses/0/address/socketAddress/portValue", json!(10002)),
            ("/metadata/filterMetadata", json!({"io.kuma.tags": {"kuma.io/unified-name": name}})),
            (&manager("/statPrefix"), json!(name)),
            (&manager("/normalizePath"), json!(true)),
            (&manager("/forwardClientCertDetails"), Value::Null),
            (&manager("/streamIdleTimeout"), Value::Null),
            (&manager("/routeConfig/name"), json!(name)),
            (
                &manager("/routeConfig/virtualHosts/0/routes/0"),
                json!({
                    "name": "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=",
                    "match": {"prefix": "/"},
                    "route": {"cluster": name, "timeout": "15s", "idleTimeout": "1800s"},
                }),
            ),
        ],
    );
    let tcp = "kri_msvc_default_east__backend_9000";
    check(
        &shown(&target, Type::Listener, tcp),
        &[(&manager("/cluster"), json!(tcp)), (&manager("/idleTimeout"), json!("3600s"))],
    );
    check(
        &shown(&target, Type::Listener, "outbound:127.0.0.1:10004"),
        &[
            ("/statPrefix", Value::Null),
            (
                "/metadata/filterMetadata",
                json!({"io.kuma.tags": {"kuma.io/service": "backend", "version": "v1"}}),
            ),
            (&manager("/routeConfig/name"), json!("outbound:backend")),
        ],
    );
}

#[test]
fn redirected_listeners_do_not_bind_but_those_they_are_redirected_to_do() {
    let web = web("transparentProxying: {}\ninbound: [{ name: main, port: 80 }]");
    let target = target(&[PLAIN, &web], &unified("web"));
    check(&shown(&target, Type::Listener, "self_main"), &[("/bindToPort", json!(false))]);
    check(
        &shown(&target, Type::Listener, "self_passthrough_ipv4_inbound"),
        &[
            ("/address/socketAddress", json!({"address": "0.0.0.0", "portValue": 15006})),
            ("/useOriginalDst", json!(true)),
            ("/bindToPort", Value::Null),
            ("/trafficDirection", json!("INBOUND")),
            ("/enableReusePort", json!(true)),
            (&format!("{MANAGER}/statPrefix"), json!("self_passthrough_ipv4_inbound")),
            (&format!("{MANAGER}/cluster"), json!("self_passthrough_ipv4_inbound")),
        ],
    );
    let outbound = shown(&target, Type::Listener, "self_passthrough_ipv4_outbound");
    check(&outbound, &[("/enableReusePort", Value::Null)]);
}

#[test]
fn the_admin_interface_answers_whoever_proves_to_be_the_control_plane() {
    let mut plan = plan(&[PLAIN, &web("inbound: [{ port: 80 }]")], &traits("web"));
    let text = |value: &str| value.to_owned();
    let tls = AdminTls { certificate: text("CERT"), key: text("KEY"), authority: "CA".into() };
    let routes = |index: usize| {
        format!("/filterChains/{index}/filters/0/typedConfig/routeConfig/virtualHosts/0/routes")
    };
    let to = |path: &str, cluster: &str| json!({"match": {"prefix": path}, "route": {"cluster": cluster, "prefixRewrite": path}});
    let ready = to("/ready", "kuma:readiness");
    let without = shown(&Encoder::default().lower(&plan), Type::Listener, "kuma:envoy:admin");
    check(&without, &[(&routes(0), json!([ready])), ("/filterChains/1", Value::Null)]);
    plan.own.admin.as_mut().unwrap().tls = Some(Arc::new(tls));
    check(
        &shown(&Encoder::default().lower(&plan), Type::Listener, "kuma:envoy:admin"),
        &[
            ("/address/socketAddress", json!({"address": "127.0.0.2", "portValue": 9901})),
            ("/listenerFilters/0/name", json!("envoy.filters.listener.tls_inspector")),
            (&routes(0), json!([ready])),
            (&routes(1), json!([ready, to("/", "kuma:envoy:admin")])),
            (
                "/filterChains/1/filters/0/typedConfig/internalAddressConfig/cidrRanges",
                json!([{"addressPrefix": "127.0.0.1", "prefixLen": 32}, {"addressPrefix": "::1", "prefixLen": 128}]),
            ),
            ("/filterChains/1/filterChainMatch", json!({"transportProtocol": "tls"})),
            ("/filterChains/1/transportSocket/typedConfig/requireClientCertificate", json!(true)),
            (
                "/filterChains/1/transportSocket/typedConfig/commonTlsContext",
                json!({
                    "tlsCertificates": [{"certificateChain": {"inlineBytes": "Q0VSVA=="}, "privateKey": {"inlineBytes": "S0VZ"}}],
                    "validationContext": {"trustedCa": {"inlineBytes": "Q0E="}, "matchTypedSubjectAltNames":
                        [{"sanType": "DNS", "matcher": {"exact": "kuma-cp"}}]},
                }),
            ),
        ],
    );
}
