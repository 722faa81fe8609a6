//! Real Envoys find out whether the applications behind them live, and how they prove who they are meanwhile.

use e2e::{
    Setup, eventually,
    proxy::own_address,
    service::{Service, call, dataplane},
};
use serde_json::{Value, json};

use crate::world::{World, answered_by, by_reference, client};

/// The state of the only inbound, as stored.
fn state(world: &World, name: &str) -> Value {
    let answer = world.control_plane.client().get(&format!("/meshes/default/dataplanes/{name}")).unwrap();
    answer.json()["networking"]["inbound"][0]["state"].clone()
}

#[test]
fn an_application_is_called_while_it_listens_and_not_before_or_after() {
    let world = World::start(Setup::default().with("KUMA_DP_SERVER_HDS_INTERVAL", "1s"));
    let address = own_address();
    let workload = (own_address(), 9000).into();
    let mut probed = dataplane("backend", "backend", address, "http", workload);
    probed["networking"]["inbound"][0]["serviceProbe"] = json!({"tcp": {}, "timeout": "1s"});
    let backend = world.proxy(&probed);
    let (client, own) = client(&world, "client", &[by_reference("backend")]);
    let endpoint = format!("{address}:8080");
    let is_called = || client.admin("/clusters").is_ok_and(|clusters| clusters.contains(&endpoint));

    let reports = || backend.stat("hds_delegate.responses").unwrap_or_default();
    eventually("reports of nothing that listens", || reports() > 2)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", backend.log(), world.control_plane.log()));
    assert_eq!(state(&world, "backend"), "NotReady");
    assert!(!is_called(), "{}", client.admin("/clusters").unwrap());

    for _ in 0..2 {
        let app = Service::start("backend", "http", workload).unwrap();
        assert_eq!(answered_by(own, 10001), "backend");
        assert!(is_called());
        // The default is not written.
        assert_eq!(state(&world, "backend"), Value::Null);
        drop(app);
        eventually("no endpoint to be called", || !is_called()).unwrap();
        assert_eq!(call(own, 10001).unwrap().status, 503);
        assert_eq!(state(&world, "backend"), "NotReady");
    }
}

#[test]
fn a_proxy_that_reads_its_token_from_its_file_is_let_in() {
    let setup = Setup::default().with("KUMA_DP_SERVER_AUTHN_ENABLE_RELOADABLE_TOKENS", "true");
    let world = World::start(setup);
    let (_app, proxy, _) = world.service("backend", "backend", "http");
    let (_client, own) = client(&world, "client", &[by_reference("backend")]);
    assert_eq!(answered_by(own, 10001), "backend");
    let dump = proxy.admin("/config_dump").unwrap();
    assert!(dump.contains("file_based_metadata") && !dump.contains("ads_cluster"), "{dump}");
}

#[test]
fn an_endpoint_that_fails_the_checks_of_its_callers_is_not_called() {
    let world = World::start(Setup::default());
    let (app, _first, address) = world.service("backend-1", "backend", "http");
    let _second = world.service("backend-2", "backend", "http");
    let (client, own) = client(&world, "client", &[by_reference("backend")]);
    let endpoint = format!("{address}:8080");
    let flags = |flags: &str| {
        let line = format!("::{endpoint}::health_flags::{flags}");
        client.admin("/clusters").is_ok_and(|clusters| clusters.lines().any(|said| said.ends_with(&line)))
    };
    eventually("an endpoint without checks", || flags("healthy")).unwrap();
    // The control plane does not learn of it: the application is not probed, and its proxy goes on serving.
    let workload = app.address;
    drop(app);
    let quick = json!({"interval": "100ms", "noTrafficInterval": "100ms", "unhealthyThreshold": 1, "http": {"path": "/"}});
    let to = json!([{"targetRef": {"kind": "MeshService", "name": "backend"}, "default": quick}]);
    let policy = json!({"type": "MeshHealthCheck", "mesh": "default", "name": "quick", "spec": {"to": to}});
    world.put("/meshes/default/meshhealthchecks/quick", &policy);
    eventually("a failed check", || flags("/failed_active_hc"))
        .unwrap_or_else(|error| panic!("{error}\n{}", client.admin("/clusters").unwrap()));
    for _ in 0..20 {
        assert_eq!(call(own, 10001).unwrap().json()["name"], "backend-2");
    }
    let _app = Service::start("backend-1", "http", workload).unwrap();
    eventually("an endpoint that is well again", || flags("healthy")).unwrap();
    eventually("an answer of it", || answered_by(own, 10001) == "backend-1").unwrap();
}
