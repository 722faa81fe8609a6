//! Status that the control plane writes to a service.

use std::sync::Arc;

use resources::{Kind, Resource, kinds::mesh_service::DataplaneProxies};
use serde_json::{Value, json};

use crate::{
    fixtures::{dataplane, insight, mesh, resource, service, serving},
    generation::World,
};

fn backend(mtls: &str, states: &[&str]) -> World {
    let of_state = |(i, state): (usize, &&str)| {
        let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": "backend" }, "state": state }]);
        dataplane(&format!("dp-{i}"), &format!("10.0.0.{i}"), inbound)
    };
    World::of(mesh(mtls), states.iter().enumerate().map(of_state))
}

fn tls(world: &mut World, certified: &[&str]) -> String {
    world.insights = certified.iter().map(|name| Arc::new(insight(name, "ca-1"))).collect();
    world.settle();
    world.status("backend").tls.status.to_string()
}

#[test]
fn tls_is_ready_once_all_have_certificates_and_stays_so_under_mtls() {
    let mut world = backend("PERMISSIVE", &["Ready", "Ready"]);
    assert_eq!(tls(&mut world, &[]), "NotReady");
    assert_eq!(tls(&mut world, &["dp-0"]), "NotReady");
    assert_eq!(tls(&mut world, &["dp-0", "dp-1"]), "Ready");
    assert_eq!(tls(&mut world, &["dp-0"]), "Ready", "a proxy that starts does not send clients back");
    world.mesh = mesh("");
    assert_eq!(tls(&mut world, &["dp-0", "dp-1"]), "NotReady", "mTLS is off");
    world.mesh = mesh("STRICT");
    world.insights = vec![Arc::new(insight("dp-0", "")), Arc::new(insight("dp-1", "ca-1"))];
    world.settle();
    assert_eq!(world.status("backend").tls.status.to_string(), "NotReady");
}

#[test]
fn a_service_is_available_while_one_proxy_serves_all_its_ports() {
    for (states, healthy) in
        [(&["Ready", "NotReady"][..], 1), (&["NotReady", "Ignored"], 0), (&["Ready", "Ready"], 2)]
    {
        let mut world = backend("", states);
        world.insights = vec![Arc::new(insight("dp-0", ""))];
        world.settle();
        let expect = if healthy > 0 { "Available" } else { "Unavailable" };
        assert_eq!(world.spec("backend").state.as_str(), expect, "{states:?}");
        let counts = DataplaneProxies { connected: 1, healthy, total: 2 };
        assert_eq!(world.status("backend").dataplane_proxies, counts, "{states:?}");
    }
}

#[test]
fn a_proxy_that_serves_only_some_ports_is_not_healthy() {
    let spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
        "ports": [{ "port": 80, "targetPort": 80 }, { "port": 81, "targetPort": 81 }]
    });
    let mut world = World::of(mesh(""), [serving("dp", "10.0.0.1", "backend")]);
    world.services = vec![Arc::new(resource(Kind::MeshService, "backend", &[], spec))];
    world.settle();
    assert_eq!(world.spec("backend").state.as_str(), "Unavailable");
    assert_eq!(world.status("backend").dataplane_proxies.total, 1);
}

fn identities(dataplanes: Vec<Resource>, given: Value) -> Vec<(String, String)> {
    let spec = json!({
        "selector": { "dataplaneLabels": { "matchLabels": { "app": "x" } } },
        "identities": given
    });
    let mut world = World::of(mesh(""), dataplanes);
    world.services = vec![Arc::new(resource(Kind::MeshService, "x", &[], spec))];
    world.settle();
    world.spec("x").identities.iter().map(|i| (i.type_.to_string(), i.value.clone())).collect()
}

#[test]
fn identities_are_the_services_of_the_dataplanes_then_spiffe_ids() {
    let labelled = |resource: Resource, extra: &[(&str, &str)]| {
        let labels = [&[("app", "x")], extra].concat();
        Resource { labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(), ..resource }
    };
    let no_tags = |name: &str| dataplane(name, "10.0.0.3", json!([{ "port": 80 }]));
    let found = identities(
        vec![
            labelled(serving("dp-1", "10.0.0.1", "web"), &[("kuma.io/workload", "not-used")]),
            labelled(serving("dp-2", "10.0.0.2", "api"), &[]),
            labelled(serving("dp-3", "10.0.0.4", "web"), &[]),
            labelled(no_tags("dp-4"), &[("kuma.io/workload", "batch")]),
            serving("dp-5", "10.0.0.5", "unrelated"),
        ],
        json!([
            { "type": "SpiffeID", "value": "spiffe://b" },
            { "type": "ServiceTag", "value": "old" },
            { "type": "SpiffeID", "value": "spiffe://a" },
        ]),
    );
    let expect = [
        ("ServiceTag", "api"),
        ("ServiceTag", "batch"),
        ("ServiceTag", "web"),
        ("SpiffeID", "spiffe://a"),
        ("SpiffeID", "spiffe://b"),
    ];
    assert_eq!(found, expect.map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[test]
fn of_a_service_from_another_zone_only_the_address_is_ours() {
    let labels = [("kuma.io/origin".to_owned(), "global".to_owned())].into();
    let mut world = World::of(mesh("STRICT"), [serving("dp", "10.0.0.1", "backend")]);
    world.services = vec![Arc::new(Resource { labels, ..service("backend") })];
    world.settle();
    assert_eq!(world.spec("backend").state.as_str(), "Unavailable");
    let status = world.status("backend");
    assert_eq!((status.vips[0].ip.as_str(), status.dataplane_proxies.total), ("241.0.0.0", 0));
    assert!(status.tls.status.is_absent());
}
