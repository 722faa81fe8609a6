//! Outbounds that the Dataplane lists.

use plan::{HostnameOrigin, ProxyPlan, ProxyTraits};
use topology::{ClientTls, Protocol};

use crate::{
    findings::texts,
    planned::{Planned, planned},
    support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web},
};

/// The service with a hostname of its own.
const NAMED: &str = r#"
type: MeshService
mesh: default
name: backend
labels: { kuma.io/zone: east }
spec:
  ports: [{ name: http, port: 80, appProtocol: http }, { port: 9000 }]
status:
  vips: [{ ip: 241.0.0.1 }]
  addresses: [{ hostname: backend.svc.mesh.local, status: Available, origin: HostnameGenerator }]
"#;

fn calling(mesh: &str, outbounds: &str) -> Planned {
    planned().in_mesh(mesh).backend().web(&format!("outbound: [{outbounds}]"))
}

#[test]
fn a_listed_service_is_offered_where_the_dataplane_says() {
    let plan = calling(
        SECURED,
        "{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }, \
         { address: 127.0.0.8, port: 10001, backendRef: { kind: MeshService, labels: { team: shop }, port: 9000 } }",
    ).plan();
    assert_eq!(plan.findings(), []);
    let offered: Vec<_> =
        plan.outgoing.outbounds.iter().map(|o| (o.address.to_string(), o.port, o.bind, o.protocol)).collect();
    assert_eq!(
        offered,
        [
            ("127.0.0.1".to_owned(), 10001, true, Protocol::Http),
            ("127.0.0.8".to_owned(), 10001, true, Protocol::Tcp)
        ]
    );
    let backend = plan
        .outgoing
        .backends
        .iter()
        .find(|backend| backend.cluster == plan.outgoing.outbounds[0].names.cluster);
    let backend = backend.unwrap();
    let endpoints: Vec<_> = backend.endpoints.0.iter().map(|e| (e.address.as_str(), e.port)).collect();
    assert_eq!(endpoints, [("127.0.0.3", 8080)]);
    let ClientTls::Mesh { spiffe_ids, .. } = &backend.tls else { panic!("mTLS is on") };
    assert_eq!(spiffe_ids, &["spiffe://default/backend"]);
}

#[test]
fn tags_choose_among_inbounds() {
    let plan = calling(PLAIN, "{ port: 10001, tags: { kuma.io/service: backend, version: v1 } }").plan();
    let backend = &plan.outgoing.backends[0];
    let endpoints: Vec<_> = backend.endpoints.0.iter().map(|e| (e.address.as_str(), e.port)).collect();
    assert_eq!((endpoints, &backend.tls), (vec![("127.0.0.3", 8080)], &ClientTls::Off));
}

#[track_caller]
fn check_finding(outbounds: &str, kept: &[u16], finding: &str) {
    let plan = calling(PLAIN, outbounds).plan();
    let ports: Vec<_> = plan.outgoing.outbounds.iter().map(|outbound| outbound.port).collect();
    assert_eq!((ports.as_slice(), texts(&plan.findings())), (kept, vec![finding.to_owned()]));
}

#[test]
fn what_cannot_be_is_a_finding_and_the_rest_works() {
    let good = "backendRef: { kind: MeshService, name: backend, port: 80 }";
    check_finding(
        &format!(
            "{{ port: 10001, backendRef: {{ kind: MeshService, name: nobody, port: 80 }} }}, {{ port: 10002, {good} }}"
        ),
        &[10002],
        r#"outbound 127.0.0.1:10001: there is no destination with MeshService "nobody" port 80 in the mesh"#,
    );
    check_finding(
        "{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 81 } }",
        &[],
        r#"outbound 127.0.0.1:10001: there is no destination with MeshService "backend" port 81 in the mesh"#,
    );
    check_finding(
        &format!("{{ port: 10001, {good} }}, {{ port: 10001, {good} }}"),
        &[10001],
        "outbound 127.0.0.1:10001: the address is in use by an inbound or another outbound",
    );
}

#[test]
fn one_unified_listener_takes_all_addresses_of_a_destination() {
    let reference = "backendRef: { kind: MeshService, name: backend, port: 80 }";
    let outbounds = format!("outbound: [{{ port: 10001, {reference} }}, {{ port: 10002, {reference} }}]");
    let plan = plan(&[PLAIN, BACKEND, &web(&outbounds)], &unified("web"));
    assert_eq!(plan.outgoing.outbounds.len(), 1);
    assert_eq!(plan.outgoing.outbounds[0].also_at, [("127.0.0.1".parse().unwrap(), 10002)]);
}

#[test]
fn the_same_mesh_gives_the_same_plan() {
    let outbounds = "{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }";
    assert_eq!(calling(SECURED, outbounds).plan(), calling(SECURED, outbounds).plan());
}

/// Plans the outbound for an agent that answers queries; returns the records that the agent gets.
fn records(outbounds: &str, transparent: &str, traits: &ProxyTraits) -> (ProxyPlan, Option<String>) {
    let traits = ProxyTraits { resolver: true, ..traits.clone() };
    let web = web(&format!("outbound: [{outbounds}]\n{transparent}"));
    let plan = plan(&[PLAIN, NAMED, &web], &traits);
    assert_eq!(
        plan.own.agent.as_ref().is_some_and(|agent| agent.with_hostnames),
        plan.outgoing.records.is_some()
    );
    let body = plan.outgoing.records.as_ref().map(|part| part.body.clone());
    (plan, body)
}

#[test]
fn a_listed_hostname_resolves_without_redirection_and_is_the_only_one() {
    let outbounds = "{ address: 127.0.0.9, port: 80, hostname: kv.mesh, \
                       backendRef: { kind: MeshService, name: backend, port: 80 } }, \
                     { address: 127.0.0.9, port: 81, hostname: kv.mesh, \
                       backendRef: { kind: MeshService, name: backend, port: 9000 } }, \
                     { address: '::1', port: 80, hostname: kv.mesh, \
                       backendRef: { kind: MeshService, name: backend, port: 80 } }, \
                     { port: 83, backendRef: { kind: MeshService, name: backend, port: 80 } }";
    for traits in [traits("web"), unified("web"), ProxyTraits { bind_outbounds: true, ..traits("web") }] {
        let (plan, body) = records(outbounds, "", &traits);
        let body = body.unwrap();
        let expected = r#"{"name":"kv.mesh","ips":["127.0.0.9"#;
        assert!(body.contains(expected) && body.contains(r#""::1"]}"#), "{body}");
        // Where nothing is redirected and virtual addresses are not bound, no other name leads anywhere.
        assert_eq!(body.matches("name").count(), if traits.bind_outbounds { 2 } else { 1 }, "{body}");
        let ports: Vec<u16> = plan.outgoing.hostnames.by_name["kv.mesh"].ports.keys().copied().collect();
        assert_eq!((ports, texts(&plan.findings())), (vec![80, 81], Vec::new()));
    }
    let (plan, body) = records("{ port: 83, tags: { kuma.io/service: backend } }", "", &traits("web"));
    assert_eq!((plan.outgoing.outbounds.len(), body), (1, None), "no hostname, nothing to answer");
}

#[test]
fn a_hostname_whose_outbound_leads_nowhere_does_not_resolve() {
    let nobody = "{ port: 80, hostname: kv.mesh, backendRef: { kind: MeshService, name: nobody, port: 80 } }";
    let (plan, body) = records(nobody, "", &traits("web"));
    assert_eq!((plan.outgoing.hostnames.by_name.len(), plan.findings().len()), (0, 1));
    assert_eq!(body.as_deref(), Some(r#"{"records":[],"ttl":30}"#));
}

#[test]
fn what_the_dataplane_lists_has_a_hostname_that_the_mesh_gives_elsewhere() {
    let named = |port: u16| {
        format!(
            "{{ address: 10.0.0.9, port: 80, hostname: backend.svc.mesh.local, \
             backendRef: {{ kind: MeshService, name: backend, port: {port} }} }}"
        )
    };
    let reach =
        "transparentProxying: { reachableBackends: { refs: [{ kind: MeshService, name: backend }] } }";
    let addresses = |plan: &ProxyPlan| {
        let found = &plan.outgoing.hostnames.by_name["backend.svc.mesh.local"];
        assert!(found.ports.values().all(|port| port.origin == HostnameOrigin::Listed));
        found.addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let lost = |port: u16| {
        format!(
            "backend.svc.mesh.local:{port} is claimed by an outbound that the Dataplane lists and by MeshService \
             \"backend\"; the first one has it"
        )
    };
    let (plan, _) = records(&named(9000), reach, &traits("web"));
    assert_eq!((addresses(&plan), texts(&plan.findings())), (vec!["10.0.0.9".to_owned()], vec![lost(80)]));
    // Two names for one way are no conflict; what is at no port of the list is lost.
    let (plan, _) = records(&named(80), reach, &traits("web"));
    assert_eq!((addresses(&plan), texts(&plan.findings())), (vec!["10.0.0.9".to_owned()], vec![lost(9000)]));
}

#[test]
fn one_port_of_a_hostname_leads_to_one_place_in_both_versions_of_ip() {
    let at = |address: &str, port: u16| {
        format!(
            "{{ address: '{address}', port: 80, hostname: kv.mesh, \
             backendRef: {{ kind: MeshService, name: backend, port: {port} }} }}"
        )
    };
    let (plan, body) = records(&format!("{}, {}", at("127.0.0.9", 80), at("::1", 9000)), "", &traits("web"));
    assert_eq!(body.as_deref(), Some(r#"{"records":[{"name":"kv.mesh","ips":["127.0.0.9"]}],"ttl":30}"#));
    assert_eq!(plan.outgoing.hostnames.conflicts.len(), 1);
}
