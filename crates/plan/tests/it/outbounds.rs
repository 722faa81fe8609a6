//! What the Dataplane lists to call.

use plan::ProxyPlan;
use topology::{ClientTls, Protocol};

use crate::{
    problems::texts,
    support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web},
};

fn planned(mesh: &str, outbounds: &str) -> ProxyPlan {
    plan(&[mesh, BACKEND, &web(&format!("outbound: [{outbounds}]"))], &traits("web"))
}

#[test]
fn a_listed_service_is_offered_where_the_dataplane_says() {
    let plan = planned(
        SECURED,
        "{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }, \
         { address: 127.0.0.8, port: 10001, backendRef: { kind: MeshService, labels: { team: shop }, port: 9000 } }",
    );
    assert_eq!(plan.problems, []);
    let offered: Vec<_> =
        plan.outbounds.iter().map(|o| (o.address.to_string(), o.port, o.bind, o.protocol)).collect();
    assert_eq!(
        offered,
        [
            ("127.0.0.1".to_owned(), 10001, true, Protocol::Http),
            ("127.0.0.8".to_owned(), 10001, true, Protocol::Tcp)
        ]
    );
    let backend = plan.backends.iter().find(|backend| backend.cluster == plan.outbounds[0].names.cluster);
    let backend = backend.unwrap();
    let endpoints: Vec<_> = backend.endpoints.0.iter().map(|e| (e.address.as_str(), e.port)).collect();
    assert_eq!(endpoints, [("127.0.0.3", 8080)]);
    let ClientTls::Mesh { spiffe_ids, .. } = &backend.tls else { panic!("mTLS is on") };
    assert_eq!(spiffe_ids, &["spiffe://default/backend"]);
}

#[test]
fn tags_choose_among_inbounds() {
    let plan = planned(PLAIN, "{ port: 10001, tags: { kuma.io/service: backend, version: v1 } }");
    let backend = &plan.backends[0];
    let endpoints: Vec<_> = backend.endpoints.0.iter().map(|e| (e.address.as_str(), e.port)).collect();
    assert_eq!((endpoints, &backend.tls), (vec![("127.0.0.3", 8080)], &ClientTls::Off));
}

#[track_caller]
fn check_problem(outbounds: &str, kept: &[u16], problem: &str) {
    let plan = planned(PLAIN, outbounds);
    let ports: Vec<_> = plan.outbounds.iter().map(|outbound| outbound.port).collect();
    assert_eq!((ports.as_slice(), texts(&plan.problems)), (kept, vec![problem.to_owned()]));
}

#[test]
fn what_cannot_be_is_a_problem_and_the_rest_works() {
    let good = "backendRef: { kind: MeshService, name: backend, port: 80 }";
    check_problem(
        &format!(
            "{{ port: 10001, backendRef: {{ kind: MeshService, name: nobody, port: 80 }} }}, {{ port: 10002, {good} }}"
        ),
        &[10002],
        r#"outbound 127.0.0.1:10001: there is no destination with MeshService "nobody" port 80 in the mesh"#,
    );
    check_problem(
        "{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 81 } }",
        &[],
        r#"outbound 127.0.0.1:10001: there is no destination with MeshService "backend" port 81 in the mesh"#,
    );
    check_problem(
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
    assert_eq!(plan.outbounds.len(), 1);
    assert_eq!(plan.outbounds[0].also_at, [("127.0.0.1".parse().unwrap(), 10002)]);
}

#[test]
fn the_same_mesh_gives_the_same_plan() {
    let outbounds = "{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }";
    assert_eq!(planned(SECURED, outbounds), planned(SECURED, outbounds));
}
