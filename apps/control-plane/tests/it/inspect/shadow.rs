//! Policies in shadow: without effect anywhere, and shown with it where that is asked for; and what a global control
//! plane can tell.

use std::sync::Arc;

use api::{AdminView, Inspect, InspectError, XdsConfig};
use inspection::StoredProxies;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use serving::push::PendingWork;

use super::STATS;
use crate::world::{ConnectedProxy, World, dataplane, mesh, resource, service};

const SHADOW: &[(&str, &str)] = &[("kuma.io/effect", "shadow")];

fn timeout(name: &str, to: Value, seconds: u32, labels: &[(&str, &str)]) -> Resource {
    let conf =
        json!({ "idleTimeout": format!("{seconds}s"), "http": { "requestTimeout": format!("{seconds}s") } });
    let to = json!([{ "targetRef": to, "default": conf }]);
    resource(Key::new(Kind::MeshTimeout, "default", name), labels, json!({ "to": to }))
}

fn route(labels: &[(&str, &str)]) -> Resource {
    let rule =
        json!({ "matches": [{ "path": { "type": "PathPrefix", "value": "/shadowy" } }], "default": {} });
    let to = json!([{ "targetRef": { "kind": "MeshService", "name": "backend" }, "rules": [rule] }]);
    resource(Key::new(Kind::MeshHTTPRoute, "default", "r"), labels, json!({ "to": to }))
}

async fn connected() -> (World, StoredProxies, ConnectedProxy, Key) {
    let world = World::new();
    world.put([mesh("default", "STRICT"), service("default", "backend", &[])]).await;
    world.put([dataplane("default", "web", "127.0.2.1", "web", &["backend"])]).await;
    let proxy = world.proxy("default", "web").await;
    let proxies = StoredProxies::new(world.store.clone(), world.push.clone(), 9901);
    (world, proxies, proxy, Key::new(Kind::Dataplane, "default", "web"))
}

#[tokio::test]
async fn a_policy_in_shadow_changes_nothing_but_what_is_asked_for_with_it() {
    let (world, proxies, mut proxy, key) = connected().await;
    let before = proxies.config(&key, false).await.unwrap();
    let told = proxy.received();
    world.put([timeout("slow", json!({ "kind": "Mesh" }), 23, SHADOW), route(SHADOW)]).await;
    assert_eq!((proxy.turn().await, proxy.received()), (PendingWork::Nothing, told));
    assert_eq!(proxies.config(&key, false).await.unwrap(), before);
    assert_eq!(proxies.matched(&key).await.unwrap(), []);
    assert!(proxies.rules(&key).await.unwrap().rules.iter().all(|rules| rules.to_resource_rules.is_empty()));

    let XdsConfig { xds, without_shadow } = proxies.config(&key, true).await.unwrap();
    assert_eq!(without_shadow.as_ref(), Some(&before.xds));
    let text = xds.to_string();
    assert!(text.contains("\"23s\"") && text.contains("/shadowy"), "{xds:#}");
    let patch = Value::Array(api::patch::between(&before.xds, &xds)).to_string();
    assert!(patch.contains("\"23s\"") && patch.contains("\"op\":\"test\""), "{patch}");
    // The real thing is what was shown.
    world.put([timeout("slow", json!({ "kind": "Mesh" }), 23, &[]), route(&[])]).await;
    assert_eq!(proxies.config(&key, false).await.unwrap().xds, xds);
}

#[tokio::test]
async fn no_policy_refers_to_a_route_that_is_in_shadow() {
    let (world, proxies, mut proxy, key) = connected().await;
    world.put([route(SHADOW)]).await;
    let before = proxies.config(&key, false).await.unwrap();
    // For the route only, which is not there.
    world.put([timeout("of-the-route", json!({ "kind": "MeshHTTPRoute", "name": "r" }), 23, &[])]).await;
    proxy.turn().await;
    assert_eq!(proxies.config(&key, false).await.unwrap(), before);
    assert!(proxies.config(&key, true).await.unwrap().xds.to_string().contains("\"23s\""));
}

#[tokio::test]
async fn a_global_answers_from_its_store_and_refers_to_zones_for_the_rest() {
    let (world, ..) = connected().await;
    let stored = world.store.snapshot().unwrap();
    let of_zone = stored.get(&Key::new(Kind::Dataplane, "default", "web")).unwrap();
    let zone = [("kuma.io/zone", "east"), ("kuma.io/origin", "zone")];
    world.put([resource(of_zone.key.clone(), &zone, of_zone.spec.to_json())]).await;
    let proxies = StoredProxies::on_global(world.store.clone(), world.push.clone(), Arc::default());
    let key = Key::new(Kind::Dataplane, "default", "web");
    assert_eq!(proxies.rules(&key).await.unwrap().resource.name, "web");
    assert_eq!(proxies.matched(&key).await.unwrap(), []);
    let unreachable = |answer: Result<(), InspectError>| {
        let Err(InspectError::Unreachable(text)) = answer else { panic!("{answer:?}") };
        assert!(text.contains("zone \"east\"") && text.contains("is not connected"), "{text}");
    };
    unreachable(proxies.stats_summary(&key, true).await.map(drop));
    unreachable(proxies.config(&key, false).await.map(drop));
    unreachable(proxies.layout(&key).await.map(drop));
    unreachable(proxies.hostnames(&key).await.map(drop));
    for view in [STATS, AdminView::ConfigDump { include_eds: false }] {
        unreachable(proxies.admin(&key, view).await.map(drop));
    }
}
