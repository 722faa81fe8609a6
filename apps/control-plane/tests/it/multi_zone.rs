//! A MeshMultiZoneService, from the store to the proxy that calls it.

use std::sync::Arc;

use reconcilers::mesh_services;
use resources::{Draft, Key, Kind, Resource};
use runtime::Shutdown;
use serde_json::{Value, json};
use serving::push::PendingWork;
use xds::Type;

use crate::world::{
    ConnectedProxy, World, dataplane, eventually, mesh, registrar, resource, runner, service, traits,
};

fn everywhere() -> Resource {
    let spec = json!({
        "selector": { "meshService": { "matchLabels": { "app": "backend" } } },
        "ports": [{ "port": 80, "name": "http", "appProtocol": "http" }]
    });
    resource(Key::new(Kind::MeshMultiZoneService, "default", "everywhere"), &[], spec)
}

/// A proxy that calls it at port 10000.
fn caller() -> Resource {
    let reference = json!({ "kind": "MeshMultiZoneService", "name": "everywhere", "port": 80 });
    let networking = json!({
        "address": "127.0.2.1",
        "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }],
        "outbound": [{ "port": 10_000, "backendRef": reference }]
    });
    testkit::resource::dataplane("web", &[], networking)
}

async fn backends() -> World {
    let world = World::new();
    let backend = [("app", "backend")];
    world.put([mesh("default", "STRICT"), everywhere(), caller()]).await;
    world.put([service("default", "blue", &backend), service("default", "green", &backend)]).await;
    world
        .put([
            dataplane("default", "blue-1", "127.0.1.1", "blue", &[]),
            dataplane("default", "green-1", "127.0.1.2", "green", &[]),
        ])
        .await;
    world
}

/// The encoded resource of a type and name, as text where it is text.
fn told(proxy: &ConnectedProxy, kind: Type, name: &str) -> String {
    let told = proxy.received().unwrap();
    let found = told.iter().find(|(of, called, _)| *of == kind && called == name);
    let Some((.., body)) = found else {
        panic!("no {kind:?} {name} among {:?}", told.iter().map(|(_, name, _)| name).collect::<Vec<_>>())
    };
    String::from_utf8_lossy(body).into_owned()
}

#[tokio::test]
async fn a_calling_proxy_gets_a_cluster_with_endpoints_of_every_service_in_it() {
    for (unified, name) in
        [(false, "default_everywhere___mzsvc_80"), (true, "kri_mzsvc_default___everywhere_http")]
    {
        let world = backends().await;
        let mut proxy = ConnectedProxy::connect(
            &world,
            plan::ProxyTraits { unified_naming: unified, ..traits("default", "web") },
        );
        assert_eq!(proxy.turn().await, PendingWork::Everything);
        let cluster = told(&proxy, Type::Cluster, name);
        for expected in [".everywhere.80.default.mzms", "spiffe://default/blue", "spiffe://default/green"] {
            assert!(cluster.contains(expected), "{expected} is not in {cluster}");
        }
        let endpoints = told(&proxy, Type::Endpoint, name);
        assert!(endpoints.contains("127.0.1.1") && endpoints.contains("127.0.1.2"), "{endpoints}");

        world.put([dataplane("default", "green-2", "127.0.1.3", "green", &[])]).await;
        assert!(matches!(proxy.turn().await, PendingWork::Endpoints), "an instance more is nothing else");
        assert!(told(&proxy, Type::Endpoint, name).contains("127.0.1.3"));

        world.put([service("default", "green", &[])]).await;
        assert_eq!(proxy.turn().await, PendingWork::Outbounds, "other servers are expected now");
        let endpoints = told(&proxy, Type::Endpoint, name);
        assert!(endpoints.contains("127.0.1.1") && !endpoints.contains("127.0.1.2"), "{endpoints}");
    }
}

#[tokio::test]
async fn its_status_follows_the_services_and_is_written_only_when_it_differs() {
    let world = World::new();
    let shutdown = Shutdown::default();
    mesh_services::start(
        &registrar(world.store.clone()),
        Arc::default(),
        &reconcilers::Config::default(),
        "default",
        &runner(&world.store, &shutdown),
    );
    world.put([mesh("default", "")]).await;
    let register = async |resource: Resource, labels: &[(&str, &str)]| {
        let mut draft = Draft::new(resource.key, resource.spec);
        draft.labels.extend(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        registrar(world.store.clone()).put(draft).await.unwrap();
    };
    let stored = || -> Option<Arc<Resource>> {
        let key = Key::new(Kind::MeshMultiZoneService, "default", "everywhere");
        world.store.snapshot().unwrap().get(&key).cloned()
    };
    let status = || stored().and_then(|found| found.status.as_ref().map(resources::Status::to_json));
    let reason = |status: Option<Value>| status.map(|status| status["conditions"][0]["reason"].clone());

    register(everywhere(), &[]).await;
    eventually("it says that nothing matches", || reason(status()) == Some(json!("NoMatchesFound"))).await;
    register(service("default", "blue", &[]), &[("app", "backend")]).await;
    eventually("it says what matches", || reason(status()) == Some(json!("MatchesFound"))).await;
    let written = status().unwrap();
    let blue = json!([{ "name": "blue", "namespace": "", "zone": "default", "mesh": "default" }]);
    assert_eq!((&written["meshServices"], &written["vips"]), (&blue, &json!([{ "ip": "243.0.0.0" }])));

    let version = stored().unwrap().version;
    register(dataplane("default", "blue-1", "127.0.1.1", "blue", &[]), &[]).await;
    let key = Key::new(Kind::MeshService, "default", "blue");
    eventually("the service counts its proxy", || {
        let snapshot = world.store.snapshot().unwrap();
        let status = snapshot.get(&key).and_then(|blue| blue.status.as_ref().map(resources::Status::to_json));
        status.is_some_and(|status| status["dataplaneProxies"]["total"] == 1)
    })
    .await;
    assert_eq!(stored().unwrap().version, version, "nothing about it is different");
    shutdown.begin();
}
