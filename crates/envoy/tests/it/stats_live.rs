//! Statistics of a real Envoy are listed under the right names, in both schemes.

use std::collections::{BTreeMap, BTreeSet};

use envoy::{
    bootstrap::ClusterNames,
    stats::{Summary, summary},
};
use plan::{ProxyTraits, meanings};

use crate::{
    live::Live,
    support::{BACKEND, SECURED, plan, traits, unified},
};

/// An address of its own, so that proxies of other tests are not in the way.
pub const WEB: &str = "
type: Dataplane
mesh: default
name: web
networking:
  address: 127.77.0.1
  inbound:
    - { name: http, port: 8081, servicePort: 18081, serviceAddress: 127.0.0.1, tags: { kuma.io/service: web, kuma.io/protocol: http } }
    - { name: backend-kumahq.com, port: 8083, serviceAddress: 127.0.0.1, tags: { kuma.io/service: web, kuma.io/protocol: grpc } }
    - { port: 8084, servicePort: 18084, tags: { kuma.io/service: web, kuma.io/protocol: tcp } }
    - { name: a, port: 8085, address: '::1', serviceAddress: '::1', servicePort: 18085, tags: { kuma.io/service: web, kuma.io/protocol: tcp } }
  outbound:
    - { port: 10001, address: 127.77.0.1, backendRef: { kind: MeshService, name: backend, port: 80 } }
    - { port: 10003, address: 127.77.0.1, backendRef: { kind: MeshService, name: backend, port: 9000 } }
    - { port: 10004, address: 127.77.0.1, tags: { kuma.io/service: backend, version: v1 } }
  transparentProxying: { redirectPortInbound: 15706, redirectPortOutbound: 15701 }
";
const DATAPLANE: &str = "kri_dp_default_east__web_";

/// Statistics of Envoy itself, and of nothing it was sent.
const OWN: &[&str] = &[
    "admin",
    "async-client",
    "cluster_manager",
    "control_plane",
    "envoy",
    "filesystem",
    "http1",
    "http2",
    "listener_manager",
    "main_thread",
    "overload",
    "runtime",
    "server",
    "thread_local_cluster_manager",
    "tls_inspector",
    "workers",
];

/// Lines of objects: `<class> <name> [= <kri>]: <families>`, without what Envoy counts of itself.
fn counted(traits: &ProxyTraits, names: ClusterNames) -> Vec<String> {
    let plan = plan(&[SECURED, BACKEND, WEB], traits);
    assert_eq!(plan.findings(), []);
    let live = Live::start(&plan, names);
    let text = live.get("/stats");
    let known = meanings(&plan, &DATAPLANE.parse().unwrap());
    let summary = summary(&text, &known, traits.unified_naming);
    assert_nothing_is_lost(&text, &summary);
    let mut lines: Vec<String> = summary
        .resources
        .iter()
        .filter(|(name, _)| !OWN.contains(&name.as_str()))
        .map(|(name, object)| {
            let kri = object.kri.as_ref().map(|kri| format!(" = {kri}")).unwrap_or_default();
            let families: Vec<&str> = object.stats.keys().map(String::as_str).collect();
            format!("{} {name}{kri}: {}", object.class, families.join(" "))
        })
        .collect();
    lines.sort();
    lines
}

/// Every line of the text is in the summary once; histograms without values are not.
fn assert_nothing_is_lost(text: &str, summary: &Summary) {
    let expected: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.ends_with(": No recorded values"))
        .map(|line| line.split_once(": ").unwrap().0.to_owned())
        .collect();
    let mut found = BTreeMap::new();
    for (name, object) in &summary.resources {
        for (family, stats) in &object.stats {
            for stat in stats.keys() {
                let spellings = [
                    format!("{family}.{stat}"),
                    format!("{family}.{name}.{stat}"),
                    format!("{name}.{family}.{stat}"),
                    format!("http.{name}.{family}.{stat}"),
                    format!("http.{name}.{family}.{name}.{stat}"),
                ];
                let known = spellings.iter().find(|spelling| expected.contains(*spelling)).cloned();
                // Older names of permissions differ from those of the filter they are asked by.
                let other = || {
                    let end = format!(".{family}.{name}.{stat}");
                    expected.iter().find(|line| line.starts_with("http.") && line.ends_with(&end)).cloned()
                };
                let full = known.or_else(other).unwrap_or_else(|| panic!("no {family} {name} {stat}"));
                assert_eq!(found.insert(full.clone(), name), None, "{full} is told twice");
            }
        }
    }
    assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn with_unified_names_every_object_has_one_name() {
    let backend = "kri_msvc_default_east__backend";
    let strict = ProxyTraits { strict_inbound_ports: true, ..unified("web") };
    assert_eq!(
        counted(&strict, ClusterNames::UNIFIED),
        [
            format!("kri {backend}_9000 = {backend}_9000: cluster listener tcp"),
            format!("kri {backend}_http = {backend}_http: cluster http listener"),
            // Destinations by tags have no other name.
            "legacy 127.77.0.1_10004: listener".to_owned(),
            "legacy backend-154693772bc47249: cluster".to_owned(),
            "legacy backend: http".to_owned(),
            format!("self self_8084 = {DATAPLANE}8084: cluster listener rbac tcp"),
            format!("self self_a = {DATAPLANE}a: cluster listener rbac tcp"),
            format!(
                "self self_backend-kumahq.com = {DATAPLANE}backend-kumahq.com: cluster http listener rbac"
            ),
            format!("self self_http = {DATAPLANE}http: cluster http listener rbac"),
            "self self_passthrough_ipv4_inbound: cluster listener tcp".to_owned(),
            "self self_passthrough_ipv4_outbound: cluster listener tcp".to_owned(),
            "self self_passthrough_ipv6_inbound: cluster listener tcp".to_owned(),
            "self self_passthrough_ipv6_outbound: cluster listener tcp".to_owned(),
            "system system_access_log_sink: cluster".to_owned(),
            "system system_ads: cluster".to_owned(),
            "system system_envoy_admin: cluster http listener".to_owned(),
            "system system_mtls_ca_default: sds".to_owned(),
            "system system_mtls_identity_default: sds".to_owned(),
            "system system_probe_readiness: cluster".to_owned(),
        ]
    );
}

#[test]
fn with_older_names_every_name_leads_back_to_its_resource() {
    let expected = [
        "0.0.0.0_15701: listener",
        "0.0.0.0_15706: listener",
        "127.77.0.1_10001 = kri_msvc_default_east__backend_http: listener",
        "127.77.0.1_10003 = kri_msvc_default_east__backend_9000: listener",
        "127.77.0.1_10004: listener",
        "127.77.0.1_8081 = kri_dp_default_east__web_http: listener",
        "127.77.0.1_8083 = kri_dp_default_east__web_backend-kumahq.com: listener",
        "127.77.0.1_8084 = kri_dp_default_east__web_8084: listener",
        "127.77.0.1_9901: listener",
        "241.0.0.1_80 = kri_msvc_default_east__backend_http: listener",
        "241.0.0.1_9000 = kri_msvc_default_east__backend_9000: listener",
        "[__1]_8085 = kri_dp_default_east__web_a: listener",
        "[__]_15701: listener",
        "[__]_15706: listener",
        "access_log_sink: cluster",
        "ads_cluster: cluster",
        "backend-154693772bc47249: cluster",
        "backend: http",
        "default_backend__east_msvc_80 = kri_msvc_default_east__backend_http: cluster http",
        "default_backend__east_msvc_9000 = kri_msvc_default_east__backend_9000: cluster tcp",
        "identity_cert_secret_default: sds",
        "inbound_127_77_0_1_8081 = kri_dp_default_east__web_http: rbac",
        "inbound_127_77_0_1_8083 = kri_dp_default_east__web_backend-kumahq.com: rbac",
        "inbound_127_77_0_1_8084 = kri_dp_default_east__web_8084: rbac",
        "inbound____1__8085 = kri_dp_default_east__web_a: rbac",
        "inbound_passthrough_ipv4: cluster tcp",
        "inbound_passthrough_ipv6: cluster tcp",
        "kuma_envoy_admin: cluster http",
        "kuma_readiness: cluster",
        "localhost_18081 = kri_dp_default_east__web_http: cluster http rbac",
        "localhost_18084 = kri_dp_default_east__web_8084: cluster tcp",
        "localhost_18085 = kri_dp_default_east__web_a: cluster tcp",
        "localhost_8083 = kri_dp_default_east__web_backend-kumahq.com: cluster http rbac",
        "mesh_ca_secret_default: sds",
        "outbound_passthrough_ipv4: cluster tcp",
        "outbound_passthrough_ipv6: cluster tcp",
    ];
    let counted = counted(&traits("web"), ClusterNames::LEGACY);
    assert_eq!(counted, expected.map(|line| format!("legacy {line}")));
}
