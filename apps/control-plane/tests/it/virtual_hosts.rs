//! Hostnames of VirtualOutbounds get addresses that are stored, and keep them.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use control_plane::config::setting::StoreType;
use reconcilers::virtual_hosts;
use resources::{Key, Kind, Resource, kinds::config::Config as Stored};
use runtime::metrics::Metrics;
use serde_json::{Value, json};
use store::{Memory, Store};
use topology::virtual_hosts::vips;

use crate::{
    client,
    world::{SOON, World, dataplane, eventually, mesh, resource, runner},
};

/// A control plane that gives hostnames their addresses.
fn naming(store: &Arc<dyn Store>) -> World {
    let world = World::starting_late(store.clone());
    virtual_hosts::start(
        &world.push,
        Arc::default(),
        &reconcilers::Config::default(),
        &Metrics::default(),
        &runner(store, &world.shutdown),
    )
    .unwrap();
    world.push.start(&world.shutdown);
    world
}

fn names() -> Resource {
    let conf = json!({
        "host": "{{.service}}.mesh", "port": "80",
        "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }]
    });
    let spec = json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": conf });
    resource(Key::new(Kind::VirtualOutbound, "default", "names"), &[], spec)
}

fn backend(name: &str) -> Resource {
    dataplane("default", &format!("{name}-1"), "127.0.0.1", name, &[])
}

/// The addresses that a control plane tells proxies.
fn told(world: &World) -> BTreeMap<String, Option<Ipv4Addr>> {
    let mesh = world.push.mesh("default").unwrap();
    mesh.virtual_hosts.by_name.values().map(|host| (host.hostname.to_string(), host.vip)).collect()
}

async fn all_told(world: &World, count: usize) -> BTreeMap<String, Option<Ipv4Addr>> {
    let complete = || {
        let told = world.push.mesh("default").map(|_| told(world)).unwrap_or_default();
        told.len() == count && told.values().all(Option::is_some)
    };
    eventually("every hostname has an address", complete).await;
    told(world)
}

fn shard(store: &Arc<dyn Store>, host: &str) -> vips::Shard {
    let key = Key::global(Kind::Config, &vips::config_name("default", vips::shard_of(host)));
    let stored = store.snapshot().unwrap().get(&key).cloned();
    stored.map(|stored| vips::read(&stored.spec.get::<Stored>().unwrap().config)).unwrap_or_default()
}

#[tokio::test]
async fn a_hostname_gets_the_address_of_its_hash_and_keeps_it_over_restarts() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let first = naming(&store);
    first.put([mesh("default", ""), names(), backend("backend"), backend("web")]).await;
    let before = all_told(&first, 2).await;
    assert_eq!(before["backend.mesh"], Some(Ipv4Addr::new(240, 15, 233, 200)));
    drop(first);

    let second = naming(&store);
    assert_eq!(all_told(&second, 2).await, before);
    second.delete(Kind::Dataplane, "default", "backend-1").await;
    let released =
        || shard(&store, "backend.mesh").get("backend.mesh").is_some_and(|e| e.released_at.is_some());
    eventually("the address is in quarantine", released).await;
    assert_eq!(told(&second).len(), 1);
    second.put([backend("backend")]).await;
    assert_eq!(all_told(&second, 2).await, before);
    eventually("the quarantine is over", || !released()).await;
    // What belongs to a mesh goes with it.
    for name in ["backend-1", "web-1"] {
        second.delete(Kind::Dataplane, "default", name).await;
    }
    second.delete(Kind::VirtualOutbound, "default", "names").await;
    let key = Key::global(Kind::Mesh, "default");
    store.write(vec![store::Write::Delete { key, expected: None }]).await.unwrap();
    let kept = store.snapshot().unwrap().of_kind(Kind::Config).count();
    assert_eq!(kept, 0);
}

#[tokio::test]
async fn two_control_planes_on_one_store_agree_and_no_address_is_given_twice() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let one = naming(&store);
    let other = naming(&store);
    one.put([mesh("default", ""), names()]).await;
    let services: Vec<String> = (0..300).map(|i| format!("s{i}")).collect();
    for batch in services.chunks(20) {
        one.put_unheard(batch.iter().map(|name| backend(name))).await;
    }
    let found = all_told(&one, 300).await;
    assert_eq!(all_told(&other, 300).await, found);
    let addresses: std::collections::BTreeSet<_> = found.values().collect();
    assert_eq!(addresses.len(), 300);
}

#[tokio::test]
async fn addresses_in_a_store_that_kuma_used_stay() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let world = naming(&store);
    let given = json!({
        "0:web": { "address": "240.0.0.0", "outbounds": [] }, "0:backend": { "address": "240.0.0.1" },
    });
    let key = Key::global(Kind::Config, "kuma-default-dns-vips");
    let imported = resource(key, &[], json!({ "config": given.to_string() }));
    world
        .put([mesh("default", ""), imported, names(), backend("backend"), backend("web"), backend("new")])
        .await;
    let told = all_told(&world, 3).await;
    assert_eq!(told["web.mesh"], Some(Ipv4Addr::new(240, 0, 0, 0)));
    assert_eq!(told["backend.mesh"], Some(Ipv4Addr::new(240, 0, 0, 1)));
}

/// Dataplane whose inbounds make so many hostnames that share one part of the range.
fn crowd(count: usize) -> Value {
    let first = vips::shard_of("s0.mesh");
    let alike =
        (0..).map(|i| format!("s{i}")).filter(|name| vips::shard_of(&format!("{name}.mesh")) == first);
    let inbounds: Vec<Value> = (1000..)
        .zip(alike.take(count))
        .map(|(port, name)| json!({ "port": port, "tags": { "kuma.io/service": name } }))
        .collect();
    let networking = json!({ "address": "127.0.0.1", "inbound": inbounds });
    json!({ "type": "Dataplane", "mesh": "default", "name": "crowd", "networking": networking })
}

#[tokio::test]
async fn hostnames_without_an_address_are_a_problem_of_the_mesh_until_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = client::config(directory.path(), StoreType::Memory);
    config.reconcilers.dns_server.cidr = "240.0.0.0/16".parse().unwrap();
    let running = client::start(config).await;
    let policy = json!({
        "type": "VirtualOutbound", "mesh": "default", "name": "names",
        "selectors": [{ "match": { "kuma.io/service": "*" } }],
        "conf": { "host": "{{service}}.mesh", "port": 80, "tags": { "kuma.io/service": "service" } },
    });
    assert_eq!(client::put(&running, "/meshes/default/virtual-outbounds/names", policy).await, 201);
    let exhausted = async || {
        let findings = client::get(&running, "/meshes/default/_problems").await;
        let items = findings["items"].as_array().unwrap().clone();
        items.into_iter().find(|finding| finding["code"] == "addresses-exhausted")
    };
    let deadline = tokio::time::Instant::now() + SOON;
    // A part of the smallest range has 256 addresses.
    for (count, created, expected) in [(300, 201, Some("44 hostnames")), (1, 200, None)] {
        assert_eq!(client::put(&running, "/meshes/default/dataplanes/crowd", crowd(count)).await, created);
        loop {
            let found = exhausted().await;
            match (&found, expected) {
                (None, None) => break,
                (Some(finding), Some(expected)) => {
                    let text = finding["message"].as_str().unwrap();
                    assert!(text.contains("240.0.0.0/16 (dnsServer.CIDR)"), "{text}");
                    assert_eq!(
                        (&finding["severity"], &finding["kri"]),
                        (&json!("error"), &json!("kri_m____default_"))
                    );
                    if text.contains(expected) {
                        break;
                    }
                }
                _ => {}
            }
            assert!(tokio::time::Instant::now() < deadline, "{count} hostnames: {found:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    running.finish().await;
}
