//! MeshServices come from Dataplanes, and go when no Dataplane needs them any more.

use std::sync::Arc;

use reconcilers::mesh_services;
use resources::{
    Draft, Key, Kind, Resource, Status,
    kinds::mesh_service::{MeshService, MeshServiceStatus, State},
};
use runtime::Shutdown;
use store::{Memory, Store};

use crate::world::{World, dataplane, eventually, mesh, registrar, resource, runner};

/// A control plane's generator of services, ended when it is dropped.
struct Generator(Shutdown);

impl Drop for Generator {
    fn drop(&mut self) {
        self.0.begin();
    }
}

fn generate(store: &Arc<dyn Store>, grace_period: &str) -> Generator {
    let shutdown = Shutdown::default();
    let mut config = reconcilers::Config::default();
    config.mesh_service.deletion_grace_period = grace_period.parse().unwrap();
    mesh_services::start(
        &registrar(store.clone()),
        Arc::default(),
        &config,
        "default",
        &runner(store, &shutdown),
    );
    Generator(shutdown)
}

fn stored(store: &Arc<dyn Store>, mesh: &str, name: &str) -> Option<Arc<Resource>> {
    store.snapshot().unwrap().get(&Key::new(Kind::MeshService, mesh, name)).cloned()
}

fn status(service: &Resource) -> MeshServiceStatus {
    match &service.status {
        Some(Status::MeshService(status)) => MeshServiceStatus::clone(status),
        _ => MeshServiceStatus::default(),
    }
}

async fn register(store: &Arc<dyn Store>, mesh: &str, name: &str, address: &str, service: &str) {
    let dataplane = dataplane(mesh, name, address, service, &[]);
    registrar(store.clone()).put(Draft::new(dataplane.key, dataplane.spec)).await.unwrap();
}

#[tokio::test]
async fn a_stored_dataplane_makes_its_service_with_an_address_and_names() {
    let world = World::new();
    world.put([mesh("default", "STRICT")]).await;
    let _generator = generate(&world.store, "1h");
    register(&world.store, "default", "backend-1", "127.0.1.1", "backend").await;
    let complete = || {
        let service = stored(&world.store, "default", "backend")?;
        (!status(&service).vips.is_empty()).then_some(service)
    };
    eventually("the service has an address", || complete().is_some()).await;
    let service = complete().unwrap();
    let spec = service.spec.get::<MeshService>().unwrap();
    assert_eq!(spec.state, State::Available);
    let ports: Vec<_> = spec.ports.iter().map(|port| (port.port, port.snis.len())).collect();
    assert_eq!(ports, [(80, 1)], "each port can be asked for by one name");
    assert_eq!(spec.identities.iter().map(|i| i.value.as_str()).collect::<Vec<_>>(), ["backend"]);
    let vip: std::net::Ipv4Addr = status(&service).vips[0].ip.parse().unwrap();
    assert_eq!(vip.octets()[0], 241, "{vip}");
}

#[tokio::test]
async fn hostnames_follow_their_generators_in_every_mesh() {
    let world = World::new();
    world.put([mesh("default", ""), mesh("next-door", "")]).await;
    let _generator = generate(&world.store, "1h");
    register(&world.store, "default", "backend-1", "127.0.1.1", "backend").await;
    register(&world.store, "next-door", "web-1", "127.0.1.2", "web").await;
    let hostnames = |mesh: &str, name: &str| -> Vec<String> {
        let addresses = stored(&world.store, mesh, name).map(|service| status(&service).addresses);
        addresses.into_iter().flatten().map(|address| address.hostname).collect()
    };
    let made_with = |template: &str| {
        let spec = serde_json::json!({ "selector": { "meshService": {} }, "template": template });
        resource(Key::global(Kind::HostnameGenerator, "all"), &[], spec)
    };
    world.put([made_with("{{ .DisplayName }}.{{ .Mesh }}.mesh")]).await;
    let named = || (hostnames("default", "backend"), hostnames("next-door", "web"));
    let expected = (vec!["backend.default.mesh".to_owned()], vec!["web.next-door.mesh".to_owned()]);
    eventually("both have their hostnames", || named() == expected).await;
    world.put([made_with("{{ .DisplayName }}.other")]).await;
    let expected = (vec!["backend.other".to_owned()], vec!["web.other".to_owned()]);
    eventually("both have others", || named() == expected).await;
    world.delete(Kind::HostnameGenerator, "", "all").await;
    eventually("both have none", || named() == (Vec::new(), Vec::new())).await;
}

#[tokio::test]
async fn two_generators_on_one_store_agree_and_come_to_rest() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let world = World::on(store.clone());
    world.put([mesh("default", "")]).await;
    let _both = [generate(&store, "1h"), generate(&store, "1h")];
    for i in 0..10 {
        register(&store, "default", &format!("dp-{i}"), &format!("127.0.1.{i}"), &format!("s-{i}")).await;
    }
    let vips = || -> Vec<String> {
        let snapshot = store.snapshot().unwrap();
        let services = snapshot.in_mesh(Kind::MeshService, "default");
        services.flat_map(|service| status(service).vips).map(|vip| vip.ip).collect()
    };
    eventually("every service has an address", || vips().len() == 10).await;
    let distinct: std::collections::BTreeSet<String> = vips().into_iter().collect();
    assert_eq!(distinct.len(), 10);
    // At rest: nothing is written any more, so that the revision stays the same for a while.
    let mut last = 0;
    let mut unchanged = 0;
    eventually("nothing is written any more", || {
        let revision = store.snapshot().unwrap().revision();
        unchanged = if revision == last { unchanged + 1 } else { 0 };
        last = revision;
        unchanged > 40
    })
    .await;
    assert!(last < 100, "{last} revisions for ten services are a quarrel");
}

#[tokio::test]
async fn other_changes_do_not_delay_the_end_of_a_service_without_dataplanes() {
    let world = World::new();
    world.put([mesh("default", ""), mesh("next-door", "")]).await;
    let _generator = generate(&world.store, "300ms");
    register(&world.store, "default", "backend-1", "127.0.1.1", "backend").await;
    eventually("the service is there", || stored(&world.store, "default", "backend").is_some()).await;
    world.delete(Kind::Dataplane, "default", "backend-1").await;
    let marked = || {
        let service = stored(&world.store, "default", "backend");
        service.is_none_or(|service| service.label("kuma.io/deletion-grace-period-started-at").is_some())
    };
    eventually("the service is marked", marked).await;
    // Something else happens meanwhile, which must not make the generator forget.
    register(&world.store, "next-door", "web-1", "127.0.1.2", "web").await;
    eventually("the service next door is there", || stored(&world.store, "next-door", "web").is_some()).await;
    eventually("the service is gone", || stored(&world.store, "default", "backend").is_none()).await;
}

#[tokio::test]
async fn a_service_that_a_user_takes_over_keeps_its_address_and_is_left_alone() {
    let world = World::new();
    world.put([mesh("default", "STRICT")]).await;
    let _generator = generate(&world.store, "1ms");
    register(&world.store, "default", "backend-1", "127.0.1.1", "backend").await;
    let vips = || stored(&world.store, "default", "backend").map(|service| status(&service).vips);
    eventually("the service has an address", || vips().is_some_and(|vips| !vips.is_empty())).await;
    let before = (stored(&world.store, "default", "backend").unwrap(), vips());

    let key = before.0.key.clone();
    let ports = serde_json::json!([{"port": 80, "targetPort": 80}, {"port": 81, "targetPort": 80}]);
    let selector = serde_json::json!({"dataplaneTags": {"kuma.io/service": "backend"}});
    let own = resource(key.clone(), &[], serde_json::json!({"selector": selector, "ports": ports}));
    registrar(world.store.clone()).put(Draft::new(key, own.spec)).await.unwrap();
    // What comes after shows that the generator has seen the take-over.
    world.delete(Kind::Dataplane, "default", "backend-1").await;
    register(&world.store, "default", "web-1", "127.0.1.2", "web").await;
    let proxies = || stored(&world.store, "default", "backend").map(|it| status(&it).dataplane_proxies.total);
    eventually("the service has no proxies", || proxies() == Some(0)).await;
    eventually("another one is generated", || stored(&world.store, "default", "web").is_some()).await;

    let service = stored(&world.store, "default", "backend").unwrap();
    let ports = |service: &Resource| service.spec.get::<MeshService>().unwrap().ports.clone();
    assert_eq!(ports(&service).iter().map(|port| port.port).collect::<Vec<_>>(), [80, 81]);
    assert_eq!(ports(&service)[0].snis, ports(&before.0)[0].snis);
    assert_eq!(vips(), before.1);
    assert_eq!(service.kri("80"), before.0.kri("80"));
}

#[tokio::test]
async fn a_burst_of_dataplanes_is_a_few_batches() {
    let world = World::new();
    world.put([mesh("default", "")]).await;
    let _generator = generate(&world.store, "1h");
    let revision = || world.store.snapshot().unwrap().revision();
    let count = || world.store.snapshot().unwrap().count(Kind::MeshService, Some("default"));
    let before = revision();
    let began = std::time::Instant::now();
    let burst = 200;
    for i in 0..burst {
        register(&world.store, "default", &format!("dp-{i}"), "127.0.1.1", &format!("s-{i}")).await;
    }
    eventually("every service is there", || count() == burst).await;
    let batches = revision() - before - burst as u64;
    // The first at once, then one in 50 ms.
    let most = 2 + began.elapsed().as_millis() as u64 / 50;
    assert!(batches <= most, "{batches} batches where {most} would do");
}

#[tokio::test]
async fn a_workload_is_there_while_a_dataplane_carries_its_label() {
    let world = World::new();
    world.put([mesh("default", "")]).await;
    let _generator = generate(&world.store, "1h");
    let dataplane = dataplane("default", "web-1", "127.0.1.1", "web", &[]);
    let labels = [("kuma.io/workload".to_owned(), "web".to_owned())].into();
    let registrar = registrar(world.store.clone());
    registrar.put(Draft { labels, ..Draft::new(dataplane.key.clone(), dataplane.spec) }).await.unwrap();
    let counted = || {
        let snapshot = world.store.snapshot().unwrap();
        let workload = snapshot.get(&Key::new(Kind::Workload, "default", "web"))?;
        workload.status.as_ref().map(Status::to_json)
    };
    let one = serde_json::json!({ "dataplaneProxies": { "connected": 0, "healthy": 1, "total": 1 } });
    eventually("the workload has a proxy", || counted().is_some_and(|status| status == one)).await;
    registrar.delete(&dataplane.key).await.unwrap();
    eventually("the workload is gone", || counted().is_none()).await;
}
