//! Proxies that serve a zone instead of a workload.

use std::sync::Arc;

use plan::{
    FilterChain, Impact, ProxyKind, ProxyTraits, ZoneClass, ZonePlan, ZoneProxy, ZoneProxyKind, ZoneServer,
};
use resources::{Key, Kind};
use topology::{Affected, DestinationId, MeshSnapshot};

use crate::support::{BACKEND, PLAIN, SECURED, mesh, traits, unified};

pub const PROXIES: &str = r#"
type: ZoneIngress
name: gate
networking: { address: 127.0.0.7, port: 10001, advertisedAddress: 192.168.0.7, advertisedPort: 10001 }
---
type: ZoneEgress
name: gate
networking: { address: 127.0.0.8, port: 10002 }
"#;

/// Services from other zones: one name in two of them, and the ingresses of these zones.
pub const ABROAD: &str = r#"
type: MeshService
mesh: default
name: backend-west
labels: { kuma.io/zone: west, kuma.io/origin: global, kuma.io/display-name: backend, team: shop }
spec:
  state: Available
  ports: [{ name: http, port: 80, targetPort: 8080, appProtocol: http, snis: [{ value: west.example }, { value: a601e0c00295a9fbe.backend.80.default.ms }] }]
  identities: [{ type: ServiceTag, value: backend }]
---
type: MeshService
mesh: default
name: backend-south
labels: { kuma.io/zone: south, kuma.io/origin: global, kuma.io/display-name: backend, team: shop }
spec:
  state: Available
  ports: [{ name: http, port: 80, targetPort: 8080, appProtocol: http, snis: [{ value: south.example }, { value: a601e0c00295a9fbe.backend.80.default.ms }] }]
  identities: [{ type: ServiceTag, value: backend }]
---
type: ZoneIngress
name: west
zone: west
networking: { address: 10.0.0.1, port: 10001, advertisedAddress: 192.168.0.1, advertisedPort: 20001 }
---
type: ZoneIngress
name: south
zone: south
networking: { address: 10.0.0.1, port: 10001, advertisedAddress: 192.168.0.2, advertisedPort: 20002 }
---
type: MeshMultiZoneService
mesh: default
name: everywhere
labels: { kuma.io/origin: global }
spec:
  selector: { meshService: { matchLabels: { team: shop } } }
  ports: [{ name: http, port: 80, appProtocol: http }]
"#;

pub const OUTSIDE: &str = r#"
type: MeshExternalService
mesh: default
name: payments
spec:
  match: { type: HostnameGenerator, port: 443, protocol: http }
  endpoints: [{ address: payments.example, port: 8443 }]
  tls: { enabled: true, verification: { mode: Secured } }
"#;

fn class(kind: ZoneProxyKind, unified_naming: bool) -> ZoneClass {
    ZoneClass { kind, unified_naming, ipv6: true, system_ca_path: Some("/etc/ca.pem".into()) }
}

fn zone_plan(kind: ZoneProxyKind, unified_naming: bool, documents: &[&str]) -> (Arc<MeshSnapshot>, ZonePlan) {
    let mesh = mesh(documents);
    let zone_plan = class(kind, unified_naming).plan(&mesh);
    (mesh, zone_plan)
}

/// The cluster of each chain, and where it leads.
fn leads(zone_plan: &ZonePlan) -> Vec<(&str, Vec<String>)> {
    let places = |cluster: &str| {
        let backend = zone_plan.backends.iter().find(|backend| backend.cluster == cluster).unwrap();
        backend.endpoints.0.iter().map(|e| format!("{}:{}", e.address, e.port)).collect()
    };
    zone_plan.filter_chains.iter().map(|chain| (chain.cluster.as_str(), places(&chain.cluster))).collect()
}

#[test]
fn a_zone_proxy_and_its_own_interface_listen_where_its_resource_says() {
    let mesh = mesh(&[PLAIN, PROXIES]);
    let planned = |kind: ProxyKind, traits: ProxyTraits| {
        let stored = mesh.globals.get(&Key::global(kind.resource(), "gate")).unwrap();
        ZoneProxy::plan(stored, "east", &ProxyTraits { kind, ..traits }).unwrap()
    };
    let check = |kind, traits: ProxyTraits, address: &str, name: &str, stats: Option<&str>| {
        let proxy = planned(kind, traits);
        let admin = proxy.admin.unwrap();
        let listener = proxy.listener.unwrap();
        assert_eq!((admin.address.to_string().as_str(), admin.port), (address, 9901));
        assert_eq!(
            (listener.address.to_string().as_str(), listener.names.listener.as_str()),
            (address, name)
        );
        assert_eq!(listener.names.listener_stats.as_deref(), stats);
        assert_eq!(listener.greeting, r#"{"proxy":".gate","zone":"east"}"#);
        assert_eq!(proxy.findings, []);
    };
    check(ProxyKind::INGRESS, unified("gate"), "127.0.0.7", "self_10001", Some("self_10001"));
    check(ProxyKind::EGRESS, unified("gate"), "127.0.0.8", "self_10002", Some("self_10002"));
    check(ProxyKind::INGRESS, traits("gate"), "127.0.0.7", "inbound:127.0.0.7:10001", None);
    check(ProxyKind::EGRESS, traits("gate"), "127.0.0.8", "inbound:127.0.0.8:10002", None);
}

#[test]
fn an_ingress_leads_to_its_zones_services_and_its_part_of_multi_zone_ones() {
    let (_, unified) = zone_plan(ZoneProxyKind::Ingress, true, &[SECURED, BACKEND, ABROAD]);
    let own = |port: u16| vec![format!("127.0.0.3:{port}")];
    assert_eq!(
        leads(&unified),
        [
            ("kri_msvc_default_east__backend_9000", own(9000)),
            ("kri_msvc_default_east__backend_http", own(8080)),
            ("kri_mzsvc_default___everywhere_http", own(8080)),
        ]
    );
    let names: Vec<&[String]> =
        unified.filter_chains.iter().map(|chain| chain.server_names.as_slice()).collect();
    assert_eq!(names[1], ["a601e0c00295a9fbe.backend.80.default.ms", "sni.msvc.default.east.backend.http"]);
    assert!(names[2][0].ends_with(".everywhere.80.default.mzms"), "{names:?}");
    assert!(unified.filter_chains.iter().all(|chain| chain.tls.is_none()), "nothing is decrypted");
    assert_eq!((unified.secrets, unified.findings), (None, vec![]));

    let (_, legacy) = zone_plan(ZoneProxyKind::Ingress, false, &[SECURED, BACKEND, ABROAD]);
    let clusters: Vec<&str> = legacy.filter_chains.iter().map(|chain| chain.cluster.as_str()).collect();
    let expected =
        ["default_backend__east_msvc_9000", "default_backend__east_msvc_80", "default_everywhere___mzsvc_80"];
    assert_eq!(clusters, expected);
}

#[test]
fn nothing_crosses_zones_without_certificates() {
    for kind in [ZoneProxyKind::Ingress, ZoneProxyKind::Egress] {
        assert_eq!(zone_plan(kind, true, &[PLAIN, BACKEND, ABROAD, OUTSIDE]).1, ZonePlan::default());
    }
}

#[test]
fn an_egress_leads_to_the_ingress_of_each_zone_and_tells_zones_apart() {
    let (_, egress) = zone_plan(ZoneProxyKind::Egress, true, &[SECURED, BACKEND, ABROAD]);
    let west = "192.168.0.1:20001".to_owned();
    let south = "192.168.0.2:20002".to_owned();
    assert_eq!(
        leads(&egress),
        [
            ("kri_msvc_default_south__backend_http", vec![south.clone()]),
            ("kri_msvc_default_west__backend_http", vec![west.clone()]),
            ("kri_mzsvc_default___everywhere_http", vec![south, west]),
        ]
    );
    let merged = plan::merged(egress.filter_chains.iter());
    let names: Vec<&[String]> = merged.iter().map(|chain| chain.server_names.as_slice()).collect();
    // What both zones accept can lead to one of them only.
    let shared = "a601e0c00295a9fbe.backend.80.default.ms";
    assert_eq!(names[0], ["south.example", shared, "sni.msvc.default.south.backend.http"]);
    assert_eq!(names[1], ["west.example", "sni.msvc.default.west.backend.http"]);
}

#[test]
fn what_clients_dial_wins_over_what_is_merely_accepted() {
    let chain = |cluster: &str, names: &[&str]| FilterChain {
        server_names: names.iter().map(|&name| name.to_owned()).collect(),
        counted: true,
        cluster: cluster.to_owned(),
        stats: cluster.to_owned(),
        attempts: None,
        tls: None,
    };
    let filter_chains =
        [chain("a", &["a.example", "b.example"]), chain("b", &["b.example"]), chain("c", &["b.example"])];
    let merged = plan::merged(filter_chains.iter());
    let found: Vec<_> =
        merged.iter().map(|chain| (chain.cluster.as_str(), chain.server_names.clone())).collect();
    assert_eq!(found, [("a", vec!["a.example".to_owned()]), ("b", vec!["b.example".to_owned()])]);
}

#[test]
fn an_egress_ends_the_mesh_where_it_leads_out_of_it() {
    let through = SECURED.replace("mtls:", "routing: { zoneEgress: true }\nmtls:");
    let check = |mesh: &str, unified: bool, name: &str, secret: &str| {
        let (_, egress) = zone_plan(ZoneProxyKind::Egress, unified, &[mesh, OUTSIDE, PROXIES]);
        let [chain] = &egress.filter_chains[..] else { panic!("{egress:?}") };
        assert_eq!(leads(&egress), [(name, vec!["payments.example:8443".to_owned()])]);
        let termination = chain.tls.as_ref().unwrap();
        assert_eq!(
            (termination.name.as_str(), &*termination.security.secrets.identity.name()),
            (name, secret)
        );
        assert_eq!(egress.secrets.as_ref(), Some(&termination.security.secrets));
        assert_eq!(termination.permissions, None);
        let ZoneServer::External(external) = &egress.backends[0].served else { panic!("{egress:?}") };
        assert!(external.tls.is_some());
    };
    // It can be used before clients use it.
    for mesh in [SECURED, &through] {
        check(mesh, true, "kri_extsvc_default___payments_443", "system_mtls_identity_default");
        check(mesh, false, "default_payments___extsvc_443", "identity_cert:secret:default");
    }
    let forbidden =
        SECURED.replace("mtls:", "routing: { defaultForbidMeshExternalServiceAccess: true }\nmtls:");
    let (_, egress) = zone_plan(ZoneProxyKind::Egress, true, &[&forbidden, OUTSIDE, PROXIES]);
    assert!(egress.filter_chains[0].tls.as_ref().unwrap().permissions.as_ref().unwrap().rules.is_empty());
}

#[test]
fn clients_call_what_is_outside_through_the_egress_where_the_mesh_says_so() {
    let through = SECURED.replace("mtls:", "routing: { zoneEgress: true }\nmtls:");
    let web = crate::support::web(
        "outbound: [{ port: 1443, backendRef: { kind: MeshExternalService, name: payments } }]",
    );
    let backend = |mesh: &str| {
        crate::support::plan(&[mesh, OUTSIDE, PROXIES, &web], &unified("web")).outgoing.backends.remove(0)
    };
    let called = backend(&through);
    assert_eq!(called.external, None);
    assert_eq!(called.endpoints.0[0].address, "127.0.0.8");
    let topology::ClientTls::Mesh { spiffe_ids, .. } = &called.tls else { panic!("{called:?}") };
    assert_eq!(spiffe_ids, &["spiffe://default/zone-egress"]);
}

#[test]
fn a_unified_name_with_a_dot_is_the_same_in_statistics() {
    let dotted = |document: &str| {
        document.replace("name: http", "name: kumahq.com").replace("name: payments", "name: pay.v1")
    };
    let own = BACKEND.replace("name: http", "name: kumahq.com");
    for kind in [ZoneProxyKind::Ingress, ZoneProxyKind::Egress] {
        let (_, zone_plan) =
            zone_plan(kind, true, &[SECURED, &own, &dotted(ABROAD), &dotted(OUTSIDE), PROXIES]);
        assert!(
            zone_plan.filter_chains.iter().any(|chain| chain.cluster.contains('.')),
            "{:?}",
            zone_plan.filter_chains
        );
        for chain in &zone_plan.filter_chains {
            assert_eq!(chain.stats, chain.cluster);
        }
        assert!(zone_plan.backends.iter().all(|backend| backend.cluster_stats.is_none()));
    }
}

#[test]
fn a_change_concerns_those_zone_proxies_that_lead_to_what_changed() {
    let ingress = class(ZoneProxyKind::Ingress, true);
    let egress = class(ZoneProxyKind::Egress, true);
    let id = |kri: &str| DestinationId::Port(kri.parse().unwrap());
    let own = id("kri_msvc_default_east__a_80");
    let other = id("kri_msvc_default_west__a_80");
    let of = |id: &DestinationId| Affected { destinations: [id.clone()].into(), ..Affected::default() };
    let endpoints = |id: &DestinationId| Affected { endpoints: [id.clone()].into(), ..Affected::default() };
    assert_eq!(ingress.impact("east", &of(&own)), Impact::Everything);
    assert_eq!(ingress.impact("east", &of(&other)), Impact::Nothing);
    assert_eq!(ingress.impact("east", &endpoints(&own)), Impact::Endpoints([own.clone()].into()));
    assert_eq!(egress.impact("east", &of(&other)), Impact::Everything);
    let moved = Affected { zones: [Arc::from("west")].into(), ..Affected::default() };
    assert_eq!(egress.impact("east", &moved), Impact::Everything);
    assert_eq!(ingress.impact("east", &moved), Impact::Nothing);
    assert_eq!(ProxyKind::Sidecar.resource(), Kind::Dataplane);
}
