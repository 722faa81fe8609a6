//! Every name, in both schemes, field by field.

use plan::{AdminNames, InboundNames, OutboundNames, PassthroughNames};

use crate::support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web};

const DEFAULT_ROUTE: &str = "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=";

fn text(value: &str) -> String {
    value.to_owned()
}

fn unified_inbound(name: &str) -> InboundNames {
    InboundNames {
        listener: text(name),
        listener_stats: Some(text(name)),
        cluster: text(name),
        cluster_stats: None,
        route_configuration: text(name),
        virtual_host: text(name),
        filter_stats: text(name),
        permission_stats: format!("{name}."),
    }
}

/// `legacy` is listener, cluster, route configuration, virtual host, RBAC prefix.
#[track_caller]
fn check_inbound(inbound: &str, legacy: [&str; 5], unified_name: &str) {
    let web = web(&format!("inbound: [{inbound}]"));
    let [listener, cluster, route_configuration, virtual_host, permission_stats] = legacy.map(text);
    let stats = cluster.replace(':', "_");
    let expected = InboundNames {
        listener,
        listener_stats: None,
        cluster,
        cluster_stats: Some(stats.clone()),
        route_configuration,
        virtual_host,
        filter_stats: stats,
        permission_stats,
    };
    let old = plan(&[PLAIN, &web], &traits("web"));
    assert_eq!((old.own.inbounds[0].names.clone(), old.findings()), (expected, Vec::new()));
    let new = plan(&[PLAIN, &web], &unified("web"));
    assert_eq!(
        (new.own.inbounds[0].names.clone(), new.findings()),
        (unified_inbound(unified_name), Vec::new())
    );
}

#[test]
fn an_inbound_is_named_by_its_section_or_as_before() {
    let http = "tags: { kuma.io/service: web, kuma.io/protocol: http }";
    check_inbound(
        &format!("{{ name: http, port: 80, servicePort: 8080, {http} }}"),
        ["inbound:127.0.0.2:80", "localhost:8080", "inbound:web", "web", "inbound_127_0_0_2_80."],
        "self_http",
    );
    check_inbound(
        &format!("{{ port: 80, {http} }}"),
        ["inbound:127.0.0.2:80", "localhost:80", "inbound:web", "web", "inbound_127_0_0_2_80."],
        "self_80",
    );
    check_inbound(
        &format!("{{ name: backend-kumahq.com, port: 80, {http} }}"),
        ["inbound:127.0.0.2:80", "localhost:80", "inbound:web", "web", "inbound_127_0_0_2_80."],
        "self_backend-kumahq.com",
    );
    check_inbound(
        &format!("{{ name: a, port: 80, {http} }}"),
        ["inbound:127.0.0.2:80", "localhost:80", "inbound:web", "web", "inbound_127_0_0_2_80."],
        "self_a",
    );
    check_inbound(
        "{ port: 80 }",
        [
            "inbound:127.0.0.2:80",
            "localhost:80",
            "inbound:127.0.0.2:80",
            "inbound:127.0.0.2:80",
            "inbound_127_0_0_2_80.",
        ],
        "self_80",
    );
    check_inbound(
        &format!("{{ name: six, address: 'fd00::1', port: 80, {http} }}"),
        ["inbound:[fd00::1]:80", "localhost:80", "inbound:web", "web", "inbound__fd00__1__80."],
        "self_six",
    );
}

#[track_caller]
fn check_outbound(outbound: &str, legacy: &OutboundNames, new: &OutboundNames) {
    let web = web(&format!("outbound: [{outbound}]"));
    let names = |traits| {
        let plan = plan(&[PLAIN, BACKEND, &web], &traits);
        assert_eq!(plan.findings(), []);
        plan.outgoing.outbounds[0].names.clone()
    };
    assert_eq!(&names(traits("web")), legacy);
    assert_eq!(&names(unified("web")), new);
}

fn unified_outbound(kri: &str) -> OutboundNames {
    OutboundNames {
        listener: text(kri),
        listener_stats: Some(text(kri)),
        cluster: text(kri),
        cluster_stats: None,
        route_configuration: text(kri),
        virtual_host: text(kri),
        default_route: text(DEFAULT_ROUTE),
        filter_stats: text(kri),
    }
}

fn legacy_outbound(listener: &str, cluster: &str, configuration: &str) -> OutboundNames {
    OutboundNames {
        listener: text(listener),
        listener_stats: None,
        cluster: text(cluster),
        cluster_stats: None,
        route_configuration: text(configuration),
        virtual_host: text(cluster),
        default_route: text(DEFAULT_ROUTE),
        filter_stats: text(cluster),
    }
}

#[test]
fn an_outbound_to_a_service_is_named_by_its_identifier_or_as_before() {
    check_outbound(
        "{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }",
        &legacy_outbound(
            "outbound:127.0.0.1:10001",
            "default_backend__east_msvc_80",
            "kri_msvc_default_east__backend_http",
        ),
        &unified_outbound("kri_msvc_default_east__backend_http"),
    );
    check_outbound(
        "{ address: '::1', port: 10001, backendRef: { kind: MeshService, name: backend, port: 9000 } }",
        &legacy_outbound(
            "outbound:[::1]:10001",
            "default_backend__east_msvc_9000",
            "kri_msvc_default_east__backend_9000",
        ),
        &unified_outbound("kri_msvc_default_east__backend_9000"),
    );
}

#[test]
fn an_outbound_by_tags_keeps_the_older_names() {
    let by_service = legacy_outbound("outbound:127.0.0.1:10001", "backend", "outbound:backend");
    check_outbound("{ port: 10001, tags: { kuma.io/service: backend } }", &by_service, &by_service);
    let of_region = OutboundNames { cluster: text("backend-c72efb5be46fae6b"), ..by_service };
    check_outbound("{ port: 10001, tags: { kuma.io/service: backend, region: us } }", &of_region, &of_region);
}

#[test]
fn one_proxy_may_see_both_schemes() {
    let web = web(
        "outbound:\n- { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n- { port: 10002, tags: { kuma.io/service: backend } }",
    );
    let plan = plan(&[PLAIN, BACKEND, &web], &unified("web"));
    let clusters: Vec<_> =
        plan.outgoing.outbounds.iter().map(|outbound| outbound.names.cluster.as_str()).collect();
    assert_eq!(clusters, ["kri_msvc_default_east__backend_http", "backend"]);
}

#[test]
fn passthrough_has_a_name_in_each_scheme() {
    let web = web("transparentProxying: { redirectPortInbound: 15006, redirectPortOutbound: 15001 }");
    let old = plan(&[SECURED, &web], &traits("web"));
    let new = plan(&[SECURED, &web], &unified("web"));
    for (index, direction, version) in
        [(0, "outbound", 4), (1, "outbound", 6), (2, "inbound", 4), (3, "inbound", 6)]
    {
        let name = format!("{direction}:passthrough:ipv{version}");
        let stats = name.replace(':', "_");
        assert_eq!(
            old.own.passthrough[index].names,
            PassthroughNames {
                listener: name.clone(),
                listener_stats: None,
                cluster: name,
                cluster_stats: Some(stats.clone()),
                filter_stats: stats,
            }
        );
        let name = format!("self_passthrough_ipv{version}_{direction}");
        assert_eq!(
            new.own.passthrough[index].names,
            PassthroughNames {
                listener: name.clone(),
                listener_stats: Some(name.clone()),
                cluster: name.clone(),
                cluster_stats: None,
                filter_stats: name,
            }
        );
    }
}

#[test]
fn admin_and_secrets_have_a_name_in_each_scheme() {
    let web = web("inbound: [{ port: 80 }]");
    let old = plan(&[SECURED, &web], &traits("web"));
    let new = plan(&[SECURED, &web], &unified("web"));
    assert_eq!(
        old.own.admin.unwrap().names,
        AdminNames {
            listener: text("kuma:envoy:admin"),
            listener_stats: None,
            cluster: text("kuma:envoy:admin"),
            cluster_stats: Some(text("kuma_envoy_admin")),
            readiness_cluster: text("kuma:readiness"),
            readiness_cluster_stats: Some(text("kuma_readiness")),
            filter_stats: text("kuma_envoy_admin"),
        }
    );
    assert_eq!(
        new.own.admin.unwrap().names,
        AdminNames {
            listener: text("system_envoy_admin"),
            listener_stats: Some(text("system_envoy_admin")),
            cluster: text("system_envoy_admin"),
            cluster_stats: None,
            readiness_cluster: text("system_probe_readiness"),
            readiness_cluster_stats: None,
            filter_stats: text("system_envoy_admin"),
        }
    );
    let secrets = |plan: Option<plan::Security>| {
        plan.map(|it| (it.secrets.identity.name().into_owned(), it.secrets.authorities.name().to_owned()))
    };
    assert_eq!(
        secrets(old.own.security),
        Some((text("identity_cert:secret:default"), text("mesh_ca:secret:default")))
    );
    assert_eq!(
        secrets(new.own.security),
        Some((text("system_mtls_identity_default"), text("system_mtls_ca_default")))
    );
}
