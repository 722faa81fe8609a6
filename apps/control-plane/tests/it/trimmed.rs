//! A mesh in which each proxy gets what its permissions let it call: which changes wake which proxies.

use resources::{Key, Kind, Resource, Status};
use serde_json::{Value, json};
use serving::push::PendingWork;
use testkit::spec;
use xds::Type;

use crate::world::{self, ConnectedProxy, World, resource, traits};

/// The mesh, in which outbounds are trimmed.
pub fn mesh() -> Resource {
    let mut mesh = world::mesh("default", "STRICT");
    mesh.labels.insert("reachability.kuma.io/mode".to_owned(), "enforce".to_owned());
    mesh
}

/// A service with an address of its own, by number.
pub fn service(number: u8) -> Resource {
    let mut service = world::service("default", &format!("s{number}"), &[]);
    let status = json!({ "vips": [{ "ip": format!("241.0.0.{number}") }], "tls": { "status": "Ready" } });
    service.status = Some(Status::from_json(Kind::MeshService, status).unwrap());
    service
}

/// A Dataplane whose traffic is redirected.
pub fn dataplane(name: &str, service: &str, address: &str) -> Resource {
    let tags = json!({ "kuma.io/service": service, "kuma.io/protocol": "http" });
    let networking = json!({
        "address": address, "inbound": [{ "port": 80, "tags": tags }], "transparentProxying": {},
    });
    testkit::resource::dataplane(name, &[], networking)
}

/// The server of a service, by number.
pub fn server(number: u8) -> Resource {
    dataplane(&format!("s{number}-1"), &format!("s{number}"), &format!("127.0.1.{number}"))
}

/// Lets these services, and no others, call the service of this number.
pub fn permission(number: u8, clients: &[&str]) -> Resource {
    // A permission names one client at least.
    let clients: Vec<(Value, &str)> =
        clients.iter().chain(&["nobody"]).map(|client| (spec::service(client), "Allow")).collect();
    testkit::resource::permission(&format!("p{number}"), spec::tagged(&format!("s{number}")), &clients)
}

/// The services that a proxy has clusters for, by number.
pub fn callable(proxy: &ConnectedProxy) -> Vec<u8> {
    let target = &proxy.current.as_ref().unwrap().target;
    let of = |name: &str| name.strip_prefix("default_s")?.split('_').next()?.parse().ok();
    target.of(Type::Cluster).keys().filter_map(|name| of(name)).collect()
}

#[tokio::test]
async fn a_trimmed_proxy_is_not_woken_by_services_that_it_may_not_call() {
    let world = World::new();
    world.put([mesh(), dataplane("web-1", "web", "127.0.2.1"), dataplane("ops-1", "ops", "127.0.2.2")]).await;
    world.put((1..=9).flat_map(|n| [service(n), server(n), permission(n, &["ops"])])).await;
    world.put([permission(1, &["web", "ops"])]).await;
    let mut web = world.proxy("default", "web-1").await;
    let mut ops = world.proxy("default", "ops-1").await;
    assert_eq!((callable(&web), callable(&ops).len()), (vec![1], 9));

    let changed = |n: u8| {
        let mut changed = service(n);
        changed.labels.insert("team".to_owned(), "other".to_owned());
        changed
    };
    let grpc = |n: u8| {
        let mut grpc = service(n);
        let spec = json!({
            "selector": { "dataplaneTags": { "kuma.io/service": format!("s{n}") } },
            "ports": [{ "port": 80, "targetPort": 80, "appProtocol": "grpc" }],
        });
        grpc.spec = resource(grpc.key.clone(), &[], spec).spec;
        grpc
    };
    for (what, resources) in [
        ("labels of a service", vec![changed(2)]),
        ("the protocol of a service", vec![grpc(2)]),
        ("another server", vec![dataplane("s2-2", "s2", "127.0.3.2")]),
        (
            "a service that nobody serves but those who may not be called",
            vec![server(20), permission(20, &["ops"]), service(20)],
        ),
        ("a permission for others", vec![permission(3, &[])]),
    ] {
        let woken = world.push.woken();
        world.put(resources).await;
        assert_eq!(web.turn().await, PendingWork::Nothing, "{what}");
        while ops.turn().await != PendingWork::Nothing {}
        assert!(world.push.woken() > woken, "{what}: it concerns somebody");
    }
    assert_eq!((callable(&web), callable(&ops).len()), (vec![1], 9));
    // What it may call does wake it, and so does what it may call now.
    world.put([dataplane("s1-2", "s1", "127.0.3.1")]).await;
    assert_eq!(web.turn().await, PendingWork::Endpoints);
    world.put([permission(4, &["web"])]).await;
    assert_eq!(web.turn().await, PendingWork::Outbounds);
    assert_eq!(callable(&web), [1, 4]);
}

/// The names an agent resolves and the addresses of the stub's listener.
fn stub(proxy: &ConnectedProxy) -> Option<String> {
    let target = &proxy.current.as_ref().unwrap().target;
    let listener = target.of(Type::Listener).get("system_trimmed_outbound")?;
    Some(String::from_utf8_lossy(&listener.body()).into_owned())
}

#[tokio::test]
async fn a_stub_answers_in_the_name_of_what_decides_and_follows_it() {
    let world = World::new();
    let mut mesh = mesh();
    mesh.labels.insert("reachability.kuma.io/stub".to_owned(), "true".to_owned());
    world.put([mesh, dataplane("web-1", "web", "127.0.2.1")]).await;
    world.put((1..=3).flat_map(|n| [service(n), server(n), permission(n, &[])])).await;
    world.put([permission(1, &["web"])]).await;
    let unified = plan::ProxyTraits { unified_naming: true, ..traits("default", "web-1") };
    let mut web = ConnectedProxy::connect(&world, unified);
    web.turn().await;
    let found = stub(&web).unwrap();
    assert!(!found.contains("241.0.0.1:80"), "{found}");
    assert!(found.contains("241.0.0.2:80") && found.contains("241.0.0.3:80"), "{found}");
    assert!(found.contains("kri_m____default_") && !found.contains("kri_mtp"), "{found}");

    let deny =
        json!([{ "targetRef": { "kind": "MeshService", "name": "web" }, "default": { "action": "Deny" } }]);
    let top = json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "s2" } });
    let key = Key::new(Kind::MeshTrafficPermission, "default", "z-strangers");
    world.put([resource(key, &[], json!({ "targetRef": top, "from": deny.clone() }))]).await;
    assert_eq!(
        web.turn().await,
        PendingWork::Outbounds,
        "another policy decides, though nothing opens or closes"
    );
    let found = stub(&web).unwrap();
    assert!(found.contains("kri_mtp_default_") && found.contains("_z-strangers_"), "{found}");

    // It selects a server by a label, which the server takes on later.
    let top = json!({ "kind": "Dataplane", "labels": { "team": "x" } });
    let key = Key::new(Kind::MeshTrafficPermission, "default", "z-strangers");
    world.put([resource(key, &[], json!({ "targetRef": top, "from": deny }))]).await;
    while web.turn().await != PendingWork::Nothing {}
    let found = stub(&web).unwrap();
    assert!(!found.contains("_z-strangers_"), "it selects no server: {found}");
    let mut labelled = server(2);
    labelled.labels.insert("team".to_owned(), "x".to_owned());
    world.put([labelled]).await;
    assert_eq!(web.turn().await, PendingWork::Outbounds, "another policy decides, though no policy changed");
    let found = stub(&web).unwrap();
    assert!(found.contains("_z-strangers_"), "{found}");

    world.put([permission(2, &["web"]), permission(3, &["web"])]).await;
    world.delete(Kind::MeshTrafficPermission, "default", "z-strangers").await;
    while web.turn().await != PendingWork::Nothing {}
    assert_eq!(stub(&web), None, "nothing is left to answer for");
}
