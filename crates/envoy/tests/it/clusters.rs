//! Clusters that connections go to.

use plan::ProxyTraits;
use serde_json::{Value, json};
use xds::Type;

use crate::{
    support::{BACKEND, PLAIN, SECURED, traits, unified, web},
    view::{check, shown, target},
};

const OPTIONS: &str = "/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

fn inbound(protocol: &str, networking: &str) -> Value {
    let web = web(&format!(
        "{networking}inbound: [{{ port: 80, servicePort: 8080, tags: {{ kuma.io/service: web, kuma.io/protocol: {protocol} }} }}]"
    ));
    shown(&target(&[PLAIN, &web], &traits("web")), Type::Cluster, "localhost:8080")
}

#[test]
fn the_application_is_called_in_its_own_protocol() {
    let options = |pointer: &str| format!("{OPTIONS}{pointer}");
    check(
        &inbound("http", ""),
        &[
            ("/type", json!("STATIC")),
            ("/altStatName", json!("localhost_8080")),
            ("/connectTimeout", json!("5s")),
            ("/circuitBreakers", json!({"thresholds": [{"trackRemaining": true}]})),
            (
                "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address/socketAddress",
                json!({"address": "127.0.0.2", "portValue": 8080}),
            ),
            (&options("/explicitHttpConfig"), json!({"httpProtocolOptions": {}})),
            (
                &options("/commonHttpProtocolOptions"),
                json!({"idleTimeout": "3600s", "maxStreamDuration": "0s", "maxConnectionDuration": "0s"}),
            ),
            ("/upstreamBindConfig", Value::Null),
        ],
    );
    let http2 = json!({"http2ProtocolOptions": {}});
    check(&inbound("http2", ""), &[(&options("/explicitHttpConfig"), http2.clone())]);
    check(
        &inbound("grpc", ""),
        &[
            (&options("/explicitHttpConfig"), http2),
            (&options("/commonHttpProtocolOptions"), json!({"idleTimeout": "7200s"})),
        ],
    );
    check(&inbound("tcp", ""), &[("/typedExtensionProtocolOptions", Value::Null)]);
}

#[test]
fn redirected_traffic_comes_from_an_address_that_is_not_redirected() {
    let web = web(
        "transparentProxying: {}\ninbound: [{ port: 80, address: 10.0.0.1 }, { port: 81, address: 'fd00::1' }]",
    );
    let target = target(&[PLAIN, &web], &unified("web"));
    for (name, source) in [("self_80", "127.0.0.6"), ("self_81", "::6")] {
        check(
            &shown(&target, Type::Cluster, name),
            &[("/upstreamBindConfig/sourceAddress", json!({"address": source, "portValue": 0}))],
        );
    }
}

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
    - { port: 10003, tags: { kuma.io/service: backend } }\n";

#[test]
fn destinations_in_the_mesh_are_discovered_and_proven() {
    let target = target(&[SECURED, BACKEND, &web(CALLS)], &traits("web"));
    let secret = |name: &str| json!({"name": name, "sdsConfig": {"ads": {}, "resourceApiVersion": "V3"}});
    let tls = |pointer: &str| format!("/transportSocket/typedConfig{pointer}");
    check(
        &shown(&target, Type::Cluster, "default_backend__east_msvc_80"),
        &[
            ("/type", json!("EDS")),
            ("/edsClusterConfig", json!({"edsConfig": {"ads": {}, "resourceApiVersion": "V3"}})),
            (&format!("{OPTIONS}/explicitHttpConfig"), json!({"http2ProtocolOptions": {}})),
            (
                &format!("{OPTIONS}/commonHttpProtocolOptions"),
                json!({"idleTimeout": "3600s", "maxStreamDuration": "0s", "maxConnectionDuration": "0s"}),
            ),
            (&tls("/commonTlsContext/alpnProtocols"), json!(["kuma"])),
            (
                &tls("/commonTlsContext/tlsCertificateSdsSecretConfigs"),
                json!([secret("identity_cert:secret:default")]),
            ),
            (
                &tls("/commonTlsContext/combinedValidationContext"),
                json!({
                    "defaultValidationContext": {"matchTypedSubjectAltNames": [
                        {"sanType": "URI", "matcher": {"exact": "spiffe://default/backend"}}
                    ]},
                    "validationContextSdsSecretConfig": secret("mesh_ca:secret:default"),
                }),
            ),
        ],
    );
    let sni = |cluster: &str| shown(&target, Type::Cluster, cluster).pointer(&tls("/sni")).cloned();
    assert_eq!(sni("backend"), Some(json!("backend{mesh=default}")));
    check(
        &shown(&target, Type::Cluster, "default_backend__east_msvc_9000"),
        &[
            (&format!("{OPTIONS}/explicitHttpConfig"), json!({"http2ProtocolOptions": {}})),
            (&format!("{OPTIONS}/commonHttpProtocolOptions"), Value::Null),
        ],
    );
}

#[test]
fn servers_without_a_service_prove_that_they_are_of_the_mesh() {
    let bare = "type: MeshService\nmesh: default\nname: bare\nspec:\n\
        \x20 selector: { dataplaneRef: { name: bare } }\n  ports: [{ port: 80, targetPort: 8080 }]\n---\n\
        type: Dataplane\nmesh: default\nname: bare\nnetworking: { address: 127.0.0.4, inbound: [{ port: 8080 }] }";
    let web = web("outbound: [{ port: 10001, backendRef: { kind: MeshService, name: bare, port: 80 } }]");
    let target = target(&[SECURED, bare, &web], &unified("web"));
    let context =
        "/transportSocket/typedConfig/commonTlsContext/combinedValidationContext/defaultValidationContext";
    check(
        &shown(&target, Type::Cluster, "kri_msvc_default___bare_80"),
        &[(
            context,
            json!({"matchTypedSubjectAltNames": [
                {"sanType": "URI", "matcher": {"prefix": "spiffe://default/"}},
                {"sanType": "URI", "matcher": {"exact": "spiffe://default"}},
            ]}),
        )],
    );
}

#[test]
fn without_mutual_tls_connections_are_plain() {
    let target = target(&[PLAIN, BACKEND, &web(CALLS)], &unified("web"));
    let cluster = shown(&target, Type::Cluster, "kri_msvc_default_east__backend_http");
    check(&cluster, &[("/transportSocket", Value::Null), ("/altStatName", Value::Null)]);
}

#[test]
fn endpoints_carry_their_tags_weight_and_priority() {
    let target = target(&[PLAIN, BACKEND, &web(CALLS)], &unified("web"));
    let tags = json!({"kuma.io/protocol": "http", "version": "v1"});
    check(
        &shown(&target, Type::Endpoint, "kri_msvc_default_east__backend_http"),
        &[
            ("/clusterName", json!("kri_msvc_default_east__backend_http")),
            (
                "/endpoints",
                json!([{"lbEndpoints": [{
                    "endpoint": {"address": {"socketAddress": {"address": "127.0.0.3", "portValue": 8080}}},
                    "metadata": {"filterMetadata": {"envoy.lb": tags, "envoy.transport_socket_match": tags}},
                    "loadBalancingWeight": 1,
                }]}]),
            ),
        ],
    );
}

#[test]
fn endpoints_are_grouped_by_zone_and_carry_labels_of_their_dataplane() {
    let other = |name: &str, address: &str, labels: &str, zone: &str| {
        format!(
            "type: Dataplane\nmesh: default\nname: {name}\nlabels: {labels}\nnetworking: {{ address: {address}, inbound: \
             [{{ port: 8080, tags: {{ kuma.io/service: backend{zone} }} }}] }}"
        )
    };
    let west = other("west", "127.0.0.4", "{ kuma.io/zone: west, team: shop }", "");
    // A tag says more than a label.
    let east = other("east", "127.0.0.5", "{ kuma.io/zone: west }", ", kuma.io/zone: east");
    let target = target(&[PLAIN, BACKEND, &west, &east, &web(CALLS)], &unified("web"));
    let shown = shown(&target, Type::Endpoint, "kri_msvc_default_east__backend_http");
    let zones: Vec<_> = shown["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let address = "/lbEndpoints/0/endpoint/address/socketAddress/address";
            (
                group["locality"]["zone"].clone(),
                group.pointer(address).unwrap().clone(),
                group["priority"].clone(),
            )
        })
        .collect();
    assert_eq!(
        zones,
        [
            (Value::Null, json!("127.0.0.3"), Value::Null),
            (json!("east"), json!("127.0.0.5"), Value::Null),
            (json!("west"), json!("127.0.0.4"), Value::Null),
        ]
    );
    let metadata = "/endpoints/2/lbEndpoints/0/metadata/filterMetadata";
    check(
        &shown,
        &[
            (metadata, json!({"io.kuma.labels": {"kuma.io/zone": "west", "team": "shop"}})),
            ("/endpoints/1/lbEndpoints/0/metadata/filterMetadata/envoy.lb", json!({"kuma.io/zone": "east"})),
        ],
    );
}

fn external(protocol: &str, endpoints: &str, tls: &str) -> Value {
    let service = format!(
        "type: MeshExternalService\nmesh: default\nname: shop\nspec:\n  match: {{ type: HostnameGenerator, port: 443, protocol: {protocol} }}\n  \
         endpoints: [{endpoints}]\n  {tls}\n"
    );
    let web = web("outbound: [{ port: 10001, backendRef: { kind: MeshExternalService, name: shop } }]");
    let target = target(&[SECURED, &service, &web], &unified("web"));
    assert_eq!(target.of(Type::Endpoint).len(), 0);
    shown(&target, Type::Cluster, "kri_extsvc_default___shop_443")
}

#[test]
fn what_is_outside_the_mesh_is_called_directly() {
    let named = "{ address: a.example.com, port: 8443, priority: 5 }, { address: 127.0.0.7, port: 8443 }";
    let first = "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint";
    check(
        &external(
            "http",
            named,
            "tls: { enabled: true, verification: { caCert: { inlineString: CERTIFICATE----- } } }",
        ),
        &[
            ("/type", json!("STRICT_DNS")),
            ("/dnsLookupFamily", json!("V4_PREFERRED")),
            (&format!("{first}/address/socketAddress/address"), json!("127.0.0.7")),
            ("/loadAssignment/endpoints/1/priority", json!(1)),
            ("/loadAssignment/endpoints/1/lbEndpoints/0/endpoint/hostname", json!("a.example.com")),
            (&format!("{OPTIONS}/explicitHttpConfig"), json!({"httpProtocolOptions": {}})),
            ("/transportSocket/typedConfig/autoHostSni", json!(true)),
            (
                "/transportSocket/typedConfig/commonTlsContext",
                json!({"validationContext": {
                    "trustedCa": {"inlineBytes": "Q0VSVElGSUNBVEUtLS0tLQ=="},
                    "matchTypedSubjectAltNames": [
                        {"sanType": "IP_ADDRESS", "matcher": {"exact": "127.0.0.7"}},
                        {"sanType": "DNS", "matcher": {"exact": "a.example.com"}},
                    ],
                }}),
            ),
        ],
    );
    check(
        &external("tcp", "{ address: 127.0.0.7, port: 8443 }", ""),
        &[
            ("/type", json!("STATIC")),
            ("/transportSocket", Value::Null),
            ("/typedExtensionProtocolOptions", Value::Null),
        ],
    );
}

#[test]
fn the_admin_interface_and_readiness_are_called_on_the_machine() {
    let target = target(&[PLAIN, &web("inbound: [{ port: 80 }]")], &traits("web"));
    let address = "/loadAssignment/endpoints/0/lbEndpoints/0/endpoint/address";
    check(
        &shown(&target, Type::Cluster, "kuma:envoy:admin"),
        &[(address, json!({"pipe": {"path": "/tmp/admin.sock"}}))],
    );
    check(
        &shown(&target, Type::Cluster, "kuma:readiness"),
        &[(address, json!({"socketAddress": {"address": "127.0.0.1", "portValue": 9902}}))],
    );
    let elsewhere = ProxyTraits { readiness_address: Some("::1".parse().unwrap()), ..traits("web") };
    let target = self::target(&[PLAIN, &web("inbound: [{ port: 80 }]")], &elsewhere);
    check(
        &shown(&target, Type::Cluster, "kuma:readiness"),
        &[(address, json!({"socketAddress": {"address": "::1", "portValue": 9902}}))],
    );
}

#[test]
fn passthrough_goes_where_the_application_wanted() {
    let closed = format!("{PLAIN}networking: {{ outbound: {{ passthrough: false }} }}\n");
    let web = web("transparentProxying: {}");
    let open = target(&[PLAIN, &web], &unified("web"));
    let outbound = shown(&open, Type::Cluster, "self_passthrough_ipv4_outbound");
    check(
        &outbound,
        &[
            ("/type", json!("ORIGINAL_DST")),
            ("/lbPolicy", json!("CLUSTER_PROVIDED")),
            ("/upstreamBindConfig", Value::Null),
        ],
    );
    let inbound = shown(&open, Type::Cluster, "self_passthrough_ipv6_inbound");
    check(&inbound, &[("/upstreamBindConfig/sourceAddress/address", json!("::6"))]);
    let closed = target(&[&closed, &web], &unified("web"));
    assert!(!closed.of(Type::Cluster).contains_key("self_passthrough_ipv4_outbound"));
    assert!(closed.of(Type::Listener).contains_key("self_passthrough_ipv4_outbound"));
}

#[test]
fn traffic_without_an_inbound_ends_at_a_cluster_without_endpoints() {
    let web = web("transparentProxying: {}\ninbound: [{ name: main, port: 80 }]");
    let older = ("inbound:passthrough:ipv6", json!("inbound_passthrough_ipv6"));
    let newer = ("self_passthrough_ipv6_inbound", Value::Null);
    for (traits, (name, in_stats)) in [(traits("web"), older), (unified("web"), newer)] {
        let strict = ProxyTraits { strict_inbound_ports: true, ..traits };
        let target = target(&[SECURED, &web], &strict);
        check(
            &shown(&target, Type::Cluster, name),
            &[
                ("/type", json!("STATIC")),
                ("/altStatName", in_stats),
                ("/loadAssignment", json!({ "clusterName": name })),
            ],
        );
        let leads_to = "/filterChains/0/filters/0/typedConfig/cluster";
        check(&shown(&target, Type::Listener, name), &[(leads_to, json!(name))]);
    }
}
