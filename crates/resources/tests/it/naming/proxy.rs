use std::collections::BTreeMap;

use proptest::{prelude::*, sample::select};
use resources::{
    Kind,
    naming::{
        Class, Direction, IpVersion, Kri, KumaSpelling, LegacyName, SelfName, SystemName, classify,
        classify_stat, legacy, system,
    },
};
use serde_json::json;

use super::{kri::any_kri, map, resource, section::any_section};

fn inbound(section: &str) -> SelfName {
    SelfName::Inbound(section.parse().expect(section))
}

const PASSTHROUGHS: [(IpVersion, Direction); 4] = [
    (IpVersion::V4, Direction::Inbound),
    (IpVersion::V4, Direction::Outbound),
    (IpVersion::V6, Direction::Inbound),
    (IpVersion::V6, Direction::Outbound),
];

#[test]
fn inbounds_are_named_after_their_section() {
    for section in ["5050", "http", "httpport", "backend-kumahq.com", "a"] {
        let name = format!("self_{section}");
        assert_eq!(inbound(section).to_string(), name);
        assert_eq!(name.parse(), Ok(inbound(section)));
    }
}

#[test]
fn passthroughs_have_four_names() {
    let names = PASSTHROUGHS.map(|(ip, direction)| SelfName::Passthrough(ip, direction).to_string());
    assert_eq!(
        names,
        [
            "self_passthrough_ipv4_inbound",
            "self_passthrough_ipv4_outbound",
            "self_passthrough_ipv6_inbound",
            "self_passthrough_ipv6_outbound",
        ]
    );
}

#[test]
fn names_as_kuma_ships_them_are_read_as_the_same_names() {
    let check = |shipped: &str, name: &SelfName| {
        assert_eq!(shipped.parse().as_ref(), Ok(name));
        assert_eq!(name.shipped_alias(), shipped);
    };
    check("self_inbound_dp_http", &inbound("http"));
    check("self_inbound_dp_8080", &inbound("8080"));
    check("self_inbound_dp_80", &inbound("80"));
    check("self_inbound_dp_443", &inbound("443"));
    check("self_inbound_dp_main-port", &inbound("main-port"));
    for of_zone_proxy in ["inbound_zi", "inbound_ze", "zoneingress_dp", "zoneegress_dp"] {
        assert_eq!(format!("self_{of_zone_proxy}_10001").parse(), Ok(inbound("10001")));
    }
    for (ip, direction) in PASSTHROUGHS {
        let shipped = format!("self_transparentproxy_passthrough_{}_{}", direction.as_str(), ip.as_str());
        check(&shipped, &SelfName::Passthrough(ip, direction));
    }
}

#[test]
fn kumas_spelling_replaces_envoys_names_and_touches_nothing_else() {
    let inbounds = json!([
        { "name": "http", "port": 80 }, { "port": 9000 }, { "name": "a", "port": 1 }, { "name": "a.b", "port": 2 },
    ]);
    let spec = json!({ "networking": { "address": "192.0.2.1", "inbound": inbounds } });
    let dataplane = resource(Kind::Dataplane, "default", "web", &[], spec);
    let spelling = KumaSpelling::of(&dataplane);
    let check = |written: &str, expected: &str| assert_eq!(spelling.text(written), expected);
    check("cluster.self_http.upstream_cx_total: 1\n", "cluster.self_inbound_dp_http.upstream_cx_total: 1\n");
    check(
        "http.self_http.rbac.self_http.denied: 0\nself_9000.rbac.denied: 1",
        "http.self_inbound_dp_http.rbac.self_inbound_dp_http.denied: 0\nself_inbound_dp_9000.rbac.denied: 1",
    );
    check("tcp.self_a.b.c: 1\ntcp.self_a.c: 2", "tcp.self_inbound_dp_a.b.c: 1\ntcp.self_inbound_dp_a.c: 2");
    check("self_http::127.0.0.1:80::cx_active::1", "self_inbound_dp_http::127.0.0.1:80::cx_active::1");
    check(
        r#"{"name": "self_http", "stat_prefix": "self_http."}"#,
        r#"{"name": "self_inbound_dp_http", "stat_prefix": "self_inbound_dp_http."}"#,
    );
    check(
        "listener.self_passthrough_ipv4_outbound.x: 1",
        "listener.self_transparentproxy_passthrough_outbound_ipv4.x: 1",
    );
    // Services of others, names that only begin like one, and what is spelled so already.
    let others = "cluster.self_service.x: 1\ncluster.myself_http.x: 1\ncluster.self_httpx.x: 1\n\
                  cluster.self_inbound_dp_http.x: 1\ncluster.kri_msvc_default___self_http.x: 1";
    check(others, others);
    check("", "");

    let ingress = json!({ "networking": { "address": "192.0.2.1", "port": 10001 } });
    let ingress = KumaSpelling::of(&resource(Kind::ZoneIngress, "", "gate", &[], ingress));
    assert_eq!(ingress.name("self_10001"), "self_inbound_zi_10001");
    let egress = json!({ "networking": { "address": "192.0.2.1", "port": 10002 } });
    let egress = KumaSpelling::of(&resource(Kind::ZoneEgress, "", "gate", &[], egress));
    assert_eq!(egress.text("listener.self_10002.x: 1"), "listener.self_inbound_ze_10002.x: 1");
}

#[test]
fn other_descriptors_are_refused() {
    for name in [
        "",
        "self",
        "self_",
        "self_trimmed_outbound",
        "self_0",
        "self_65536",
        "self_Http",
        "self_a_b",
        "self_passthrough_ipv5_inbound",
        "self_passthrough_inbound_ipv4",
        "self_transparentproxy_passthrough_ipv4_inbound",
        "self_transparentproxy_no_destination_inbound",
        "self_inbound_dp_",
        "this_5050",
    ] {
        assert!(name.parse::<SelfName>().is_err(), "{name}");
    }
}

#[test]
fn system_names_hold_only_plain_characters() {
    let zipkin = system::tracing(
        system::Tracing::Zipkin,
        "http://jaeger-collector.mesh-observability:9411/api/v2/spans",
    );
    assert_eq!(
        zipkin,
        "system_meshtrace_zipkin_http---jaeger-collector-mesh-observability-9411-api-v2-spans"
    );
    let clean = "otel-collector-observability-svc-4317";
    assert_eq!(system::clean("otel-collector.observability.svc:4317"), clean);
    assert_eq!(
        system::access_log("otel-collector.observability.svc", 4317),
        format!("system_meshaccesslog_{clean}")
    );
    assert_eq!(system::tracing(system::Tracing::OpenTelemetry, "A b"), "system_meshtrace_otel_--b");
    assert_eq!(system::tracing(system::Tracing::Datadog, "x"), "system_meshtrace_datadog_x");
    assert_eq!(system::ca("default"), "system_mtls_ca_default");
    assert_eq!(system::identity("default"), "system_mtls_identity_default");
    assert_eq!(system::dynamic_config("dns"), "system_dynamicconfig_dns");
    assert_eq!(system::dynamic_config_not_modified("dns"), "system_dynamicconfig_dns_not_modified");
    assert_eq!(system::prometheus("default-backend"), "system_meshmetric_prometheus_default-backend");
    assert_eq!(system::metrics_to_opentelemetry("a:1"), "system_meshmetric_otel_a-1");
    assert_eq!(system::access_log_to_opentelemetry("a:1"), "system_meshaccesslog_otel_a-1");
}

#[test]
fn legacy_names_are_those_old_patches_and_dashboards_use() {
    assert_eq!(legacy::inbound_listener("192.168.0.1", 80), "inbound:192.168.0.1:80");
    assert_eq!(legacy::inbound_listener("fd00::1", 80), "inbound:[fd00::1]:80");
    assert_eq!(legacy::outbound_listener("241.0.0.1", 8080), "outbound:241.0.0.1:8080");
    assert_eq!(legacy::inbound_cluster(8080), "localhost:8080");
    assert_eq!(legacy::passthrough(IpVersion::V4, Direction::Inbound), "inbound:passthrough:ipv4");
    assert_eq!(legacy::passthrough(IpVersion::V6, Direction::Outbound), "outbound:passthrough:ipv6");
}

#[test]
fn a_destination_had_its_parts_in_another_order() {
    let check = |kri: &str, port: u32, expected: &str| {
        let kri: Kri = kri.parse().expect(kri);
        assert_eq!(legacy::destination(&kri, port), expected);
        let by_port = kri.with_section(&port.to_string());
        assert_eq!(LegacyName::parse(expected), Some(LegacyName::Destination(by_port)));
    };
    check("kri_msvc_default___backend_http", 80, "default_backend___msvc_80");
    check("kri_msvc_default_east__backend_", 80, "default_backend__east_msvc_80");
    check("kri_mzsvc_default___multi-backend_80", 80, "default_multi-backend___mzsvc_80");
    check("kri_extsvc_prod_west_ns_ext_", 9000, "prod_ext_ns_west_extsvc_9000");
}

#[test]
fn a_subset_of_a_service_is_named_by_the_hash_of_its_tags() {
    let none = BTreeMap::new();
    let us = map(&[("kuma.io/service", "backend"), ("region", "us")]);
    assert_eq!(legacy::subset_cluster(&us, &none), "backend-c72efb5be46fae6b");
    assert_eq!(legacy::subset_cluster(&map(&[("kuma.io/service", "backend")]), &none), "backend");
    let identified = legacy::subset_cluster(&us, &map(&[("policy", "a")]));
    assert_ne!(identified, "backend-c72efb5be46fae6b");
    assert_eq!(legacy::service_of_cluster(&identified), "backend");
    assert_eq!(legacy::service_of_cluster("backend-c72efb5be46fae6b"), "backend");
    for service in ["backend", "backend-C72EFB5BE46FAE6B", "backend-c72efb5be46fae6", "-", ""] {
        assert_eq!(legacy::service_of_cluster(service), service);
    }
}

#[test]
fn a_route_is_named_by_the_hash_of_what_it_matches() {
    let json = r#"[{"path":{"value":"/","type":"PathPrefix"}}]"#;
    assert_eq!(legacy::route_of_matches(json), "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=");
}

#[test]
fn statistics_hold_only_letters_digits_underscores_and_hyphens() {
    let check = |name: &str, expected: &str| assert_eq!(legacy::sanitize_stat(name), expected);
    check("localhost:8080", "localhost_8080");
    check("inbound:192.168.0.1:80", "inbound_192_168_0_1_80");
    check("inbound:[::1]:80", "inbound____1__80");
    check("kri_msvc_default___backend_80", "kri_msvc_default___backend_80");
    check("é", "_");
}

#[test]
fn a_name_is_recognised_by_its_scheme() {
    let check = |name: &str, expected: Class| assert_eq!(classify(name), expected, "{name}");
    let backend = "kri_msvc_default___backend_80";
    check(backend, Class::Kri(backend.parse().expect(backend)));
    let route = "kri_mhttpr_default___test-origin_rule_0";
    check(route, Class::Kri(route.parse().expect(route)));
    check("self_80", Class::SelfName(inbound("80")));
    check("self_inbound_dp_80", Class::SelfName(inbound("80")));
    for name in ["envoy_admin", "mtls_ca_default", "mtls_ca_my.mesh", "kri_mglr___ns_mesh-rate-limit_"] {
        check(&format!("system_{name}"), Class::System(SystemName::Plain(name.to_owned())));
    }
    check(&format!("system_{backend}"), Class::System(SystemName::Of(backend.parse().expect(backend))));
    let address = |text: &str| text.to_owned();
    check(
        "inbound:10.0.0.1:80",
        Class::Legacy(LegacyName::Inbound { address: address("10.0.0.1"), port: 80 }),
    );
    check(
        "inbound:[fd00::1]:80",
        Class::Legacy(LegacyName::Inbound { address: address("fd00::1"), port: 80 }),
    );
    check(
        "outbound:241.0.0.1:1",
        Class::Legacy(LegacyName::Outbound { address: address("241.0.0.1"), port: 1 }),
    );
    check("localhost:8080", Class::Legacy(LegacyName::Workload { port: 8080 }));
    check(
        "outbound:passthrough:ipv6",
        Class::Legacy(LegacyName::Passthrough(IpVersion::V6, Direction::Outbound)),
    );
    check("kuma:envoy:admin", Class::Legacy(LegacyName::Renamed(system::ENVOY_ADMIN)));
    check("outbound:trimmed", Class::Legacy(LegacyName::Renamed(system::TRIMMED)));
    check("meshaccesslog:opentelemetry:1", Class::Legacy(LegacyName::AccessLog { index: 1 }));
    check("meshaccesslog:opentelemetry:x", Class::Other);
    check("meshtrace:opentelemetry", Class::Legacy(LegacyName::Tracing(system::Tracing::OpenTelemetry)));
    check("mesh_ca:secret:all", Class::Legacy(LegacyName::Renamed(system::CA_OF_ALL_MESHES)));
    for (older, unified) in [
        ("_kuma:metrics:prometheus:default-backend", "system_meshmetric_prometheus_default-backend"),
        ("_kuma:metrics:prometheus:a.b", "system_meshmetric_prometheus_a-b"),
        ("_kuma:metrics:hijacker", "system_meshmetric_prometheus_default-backend"),
        ("_kuma:metrics:opentelemetry:otel.svc-4317", "system_meshmetric_otel_otel-svc-4317"),
        ("_kuma:dynamicconfig:/meshmetric", "system_dynamicconfig_meshmetric"),
    ] {
        check(older, Class::Legacy(LegacyName::OfPolicy(unified.to_owned())));
    }
    for name in ["mesh_ca:secret:shop", "identity_cert:secret:shop"] {
        check(name, Class::Legacy(LegacyName::Secret { mesh: "shop".to_owned() }));
    }
    check("backend-c72efb5be46fae6b", Class::Legacy(LegacyName::Subset { service: "backend".to_owned() }));
    for other in ["", "backend", "backend_default_svc_80", "self_a_b", "system_", "system_A", "inbound:a:80"]
    {
        check(other, Class::Other);
    }
    for other in
        ["localhost:080", "localhost:+80", "inbound:fd00::1:80", "default_a___mt_80", "mesh1:backend"]
    {
        check(other, Class::Other);
    }
}

#[test]
fn a_class_has_a_word_and_tells_the_resource_if_the_name_does() {
    let check = |name: &str, word: &str, kri: Option<&str>| {
        let class = classify(name);
        let told = class.kri().map(ToString::to_string);
        assert_eq!((class.as_str(), told.as_deref()), (word, kri), "{name}");
    };
    let backend = "kri_msvc_default_east__backend_80";
    check(backend, "kri", Some(backend));
    check(&format!("system_{backend}"), "system", Some(backend));
    check("default_backend__east_msvc_80", "legacy", Some(backend));
    check("self_80", "self", None);
    check("system_ads", "system", None);
    check("inbound:10.0.0.1:80", "legacy", None);
    check("backend", "other", None);
}

#[test]
fn statistics_spell_older_names_their_own_way() {
    let check = |name: &str, expected: LegacyName| {
        assert_eq!(classify_stat(name), Class::Legacy(expected), "{name}");
    };
    check("localhost_8080", LegacyName::Workload { port: 8080 });
    check("kuma_envoy_admin", LegacyName::Renamed(system::ENVOY_ADMIN));
    check("meshaccesslog_opentelemetry_0", LegacyName::AccessLog { index: 0 });
    check("meshtrace_zipkin", LegacyName::Tracing(system::Tracing::Zipkin));
    check("ads_cluster", LegacyName::Renamed(system::ADS));
    let page = system::prometheus("main");
    check("_kuma_metrics_prometheus_main", LegacyName::OfPolicy(page));
    check("inbound_passthrough_ipv6", LegacyName::Passthrough(IpVersion::V6, Direction::Inbound));
    let address = str::to_owned;
    check("inbound_10_0_0_1_80", LegacyName::Inbound { address: address("10.0.0.1"), port: 80 });
    check("inbound____1__80", LegacyName::Inbound { address: address("::1"), port: 80 });
    check("10.0.0.1_80", LegacyName::Listening { address: address("10.0.0.1"), port: 80 });
    check("[__1]_80", LegacyName::Listening { address: address("::1"), port: 80 });
    let unified = "kri_msvc_default_east__backend_80";
    assert_eq!(classify_stat(unified), Class::Kri(unified.parse().expect(unified)));
    for other in ["", "_", "server", "localhost_", "localhost_080", "inbound_x_80", "1_2_3", "10.0.0.1_x"] {
        assert_eq!(classify_stat(other), Class::Other, "{other}");
    }
}

fn any_self_name() -> impl Strategy<Value = SelfName> {
    let passthrough =
        select(PASSTHROUGHS.to_vec()).prop_map(|(ip, direction)| SelfName::Passthrough(ip, direction));
    prop_oneof![any_section().prop_map(SelfName::Inbound), passthrough]
}

proptest! {
    #[test]
    fn every_self_name_reads_back_in_both_spellings(name in any_self_name()) {
        prop_assert_eq!(name.to_string().parse(), Ok(name.clone()));
        prop_assert_eq!(name.shipped_alias().parse(), Ok(name.clone()));
        prop_assert_eq!(classify(&name.to_string()), Class::SelfName(name));
    }

    #[test]
    fn every_system_name_reads_back(kri in any_kri(), text in ".{1,40}") {
        let of = SystemName::Of(kri);
        prop_assert_eq!(of.to_string().parse(), Ok(of.clone()));
        let plain = SystemName::Plain(format!("meshmetric_otel_{}", system::clean(&text)));
        prop_assert_eq!(plain.to_string().parse(), Ok(plain.clone()));
    }

    #[test]
    fn every_listener_address_reads_back(ip in any::<std::net::IpAddr>(), port in any::<u16>()) {
        let address = ip.to_string();
        let inbound = legacy::inbound_listener(&address, port.into());
        let expected = Some(LegacyName::Inbound { address, port });
        prop_assert_eq!(&LegacyName::parse(&inbound), &expected);
        // Without its dots an embedded IPv4 address looks like four groups of IPv6.
        if ip.is_ipv4() || !ip.to_string().contains('.') {
            prop_assert_eq!(&LegacyName::parse_stat(&legacy::sanitize_stat(&inbound)), &expected);
        }
    }
}
