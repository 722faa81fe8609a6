//! A proxy that a route sends elsewhere follows what is there.

use resources::{Key, Kind};
use serde_json::json;
use serving::push::PendingWork;
use xds::Type;

use crate::world::{ConnectedProxy, World, dataplane, mesh, resource, service};

fn clusters(proxy: &ConnectedProxy) -> Vec<String> {
    let target = &proxy.current.as_ref().unwrap().target;
    target.of(Type::Cluster).keys().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_backend_of_a_route_counts_as_called() {
    let world = World::new();
    world
        .put([mesh("default", ""), service("default", "backend", &[]), service("default", "next", &[])])
        .await;
    world.put([dataplane("default", "web", "127.0.2.1", "web", &["backend"])]).await;
    let mut web = world.proxy("default", "web").await;
    world.put([dataplane("default", "next-1", "127.0.1.1", "next", &[])]).await;
    assert_eq!(web.turn().await, PendingWork::Nothing, "nobody sends it there");

    let rule = json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
        "default": { "backendRefs": [{ "kind": "MeshService", "name": "next", "port": 80 }] }
    });
    let to = json!({ "targetRef": { "kind": "MeshService", "name": "backend" }, "rules": [rule] });
    let key = Key::new(Kind::MeshHTTPRoute, "default", "elsewhere");
    world.put([resource(key, &[], json!({ "to": [to] }))]).await;
    assert_eq!(web.turn().await, PendingWork::Everything);
    let next = "default_next___msvc_80".to_owned();
    assert!(clusters(&web).contains(&next), "{:?}", clusters(&web));

    world.put([dataplane("default", "next-2", "127.0.1.2", "next", &[])]).await;
    assert!(matches!(web.turn().await, PendingWork::Endpoints));
    let endpoints = web.current.as_ref().unwrap().target.of(Type::Endpoint).get(next.as_str()).unwrap();
    assert!(endpoints.body().windows(9).any(|text| text == b"127.0.1.2"));

    world.delete(Kind::MeshService, "default", "next").await;
    assert_eq!(web.turn().await, PendingWork::Outbounds);
    assert!(!clusters(&web).contains(&next));
    world.put([service("default", "next", &[])]).await;
    assert_eq!(web.turn().await, PendingWork::Outbounds);
    assert!(clusters(&web).contains(&next), "what was missed is waited for");
}

#[tokio::test]
async fn a_backend_by_tags_counts_as_called_as_soon_as_a_dataplane_has_them() {
    let world = World::new();
    world.put([mesh("default", ""), service("default", "backend", &[])]).await;
    let rule = json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
        "default": { "backendRefs": [{ "kind": "MeshServiceSubset", "name": "later" },
                                     { "kind": "MeshService", "name": "backend", "port": 80 }] }
    });
    let to = json!({ "targetRef": { "kind": "MeshService", "name": "backend" }, "rules": [rule] });
    let key = Key::new(Kind::MeshHTTPRoute, "default", "elsewhere");
    world.put([resource(key, &[], json!({ "to": [to] }))]).await;
    world.put([dataplane("default", "web", "127.0.2.1", "web", &["backend"])]).await;
    let mut web = world.proxy("default", "web").await;
    let later = "later".to_owned();
    assert!(!clusters(&web).contains(&later), "{:?}", clusters(&web));

    world.put([dataplane("default", "later-1", "127.0.1.1", "later", &[])]).await;
    assert_eq!(web.turn().await, PendingWork::Outbounds);
    assert!(clusters(&web).contains(&later), "{:?}", clusters(&web));

    world.put([dataplane("default", "later-2", "127.0.1.2", "later", &[])]).await;
    assert!(matches!(web.turn().await, PendingWork::Endpoints));
    let endpoints = web.current.as_ref().unwrap().target.of(Type::Endpoint).get("later").unwrap();
    assert!(endpoints.body().windows(9).any(|text| text == b"127.0.1.2"));

    world.delete(Kind::Dataplane, "default", "later-1").await;
    world.delete(Kind::Dataplane, "default", "later-2").await;
    while web.turn().await != PendingWork::Nothing {}
    assert!(!clusters(&web).contains(&later), "tags that no Dataplane has are not called");
}
